//! For fuzzing only: parsing a request in an entry's memory.

use super::area::{self, Area};
use crate::transport::wire::request::{Header, Operation, Request};

/// Bytes of a header.
pub const FRAME_BYTES: usize = area::FRAME_BYTES;
/// Most bytes of a payload.
pub const PAYLOAD_BYTES: usize = area::PAYLOAD_BYTES;

/// The parts of a request besides numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    /// Its names, in order; a symbolic link's target is one.
    pub names: Vec<Vec<u8>>,
    /// The data of a write.
    pub data: Vec<u8>,
    /// Nodes that are forgotten, and the number of lookups of each.
    pub forgets: Vec<(u64, u64)>,
}

/// Parses a request that the kernel wrote to an entry: `header`, and a payload of `payload` followed by zeros. `None` if it
/// is malformed.
pub fn take_apart(header: &[u8; FRAME_BYTES], payload: &[u8]) -> Option<Parts> {
    let mut area = Area::new(1).expect("there is memory");
    area.arrive(0, header, payload);
    let arrived = area.only_arrived();
    let header = Header::parse(arrived.header).ok()?;
    let request = Request::new(header, arrived.fixed, arrived.payload).ok()?;
    let operation = request.operation().ok()?;
    let (names, data) = match operation {
        Operation::Lookup { name }
        | Operation::MakeNode { name, .. }
        | Operation::MakeDirectory { name, .. }
        | Operation::Unlink { name }
        | Operation::RemoveDirectory { name }
        | Operation::MakeLink { name, .. }
        | Operation::Create { name, .. }
        | Operation::GetXattr { name, .. }
        | Operation::RemoveXattr { name } => (vec![name], &[][..]),
        Operation::MakeSymlink { name, target } => (vec![name, target], &[][..]),
        Operation::Rename { name, new_name, .. } => (vec![name, new_name], &[][..]),
        Operation::SetXattr { name, value, .. } => (vec![name], value),
        Operation::Write { data, .. } | Operation::Ioctl { data, .. } => (vec![], data),
        _ => (vec![], &[][..]),
    };
    let names = names.iter().map(|name| name.as_encoded_bytes().to_vec()).collect();
    let data = data.to_vec();
    let forgets = match operation {
        Operation::ForgetMany(forgets) => {
            forgets.map(|(node, lookups)| (node.0, lookups)).collect()
        }
        _ => Vec::new(),
    };
    Some(Parts { names, data, forgets })
}
