//! Whose objects are whose: the identity of a state directory, which its objects and its lease name.

use std::path::Path;

/// A name for all that is written from this state directory, drawn once.
pub fn owner(state: &Path) -> std::io::Result<String> {
    let path = state.join("id");
    match std::fs::read_to_string(&path) {
        Ok(id) if !id.trim().is_empty() => return Ok(id.trim().to_owned()),
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    let id = format!("{:016x}", u64::from_le_bytes(bytes));
    let beside = state.join("id.new");
    std::fs::write(&beside, &id)?;
    std::fs::File::open(&beside)?.sync_all()?;
    std::fs::rename(&beside, &path)?;
    crate::state_file::sync_directory(state)?;
    Ok(id)
}
