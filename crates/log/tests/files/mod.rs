//! A home in memory, to recover logs to.

use std::collections::BTreeMap;
use std::convert::Infallible;

use weir_log::Home;

/// Files in memory, by identity.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Files(pub BTreeMap<Vec<u8>, Vec<u8>>);

impl Home for Files {
    type File = Vec<u8>;
    type Error = Infallible;

    fn open(&mut self, identity: &[u8]) -> Result<Option<Vec<u8>>, Infallible> {
        Ok(self.0.contains_key(identity).then(|| identity.to_vec()))
    }

    fn write(&mut self, file: &Vec<u8>, offset: u64, data: &[u8]) -> Result<(), Infallible> {
        let bytes = self.0.get_mut(file).unwrap();
        let end = offset as usize + data.len();
        bytes.resize(bytes.len().max(end), 0);
        bytes[offset as usize..end].copy_from_slice(data);
        Ok(())
    }

    fn truncate(&mut self, file: &Vec<u8>, size: u64) -> Result<(), Infallible> {
        self.0.get_mut(file).unwrap().resize(size as usize, 0);
        Ok(())
    }

    fn sync(&mut self, _file: &Vec<u8>) -> Result<(), Infallible> {
        Ok(())
    }
}
