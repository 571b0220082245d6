//! How far a file is on its way home, as the extended attribute that the daemon computes says.

use std::path::Path;

use rustix::fs::getxattr;
use rustix::io::Errno;

/// The attribute's name: `weir_fuse::STATE`.
pub const STATE: &str = "user.weir.state";

/// Longest value that is read; a longer one is of another version.
const STATE_BYTES_MAX: usize = 16;

/// The attribute of a file or directory of a mount: `dirty`, `logged` or `home`. `None`: its daemon does not tell, or says something too
/// long; it is another version. Follows links.
///
/// # Errors
/// Those of getxattr(2).
pub fn read(file: &Path) -> Result<Option<String>, Errno> {
    let mut state = [0; STATE_BYTES_MAX];
    match getxattr(file, STATE, &mut state[..]) {
        Ok(len) => Ok(Some(String::from_utf8_lossy(&state[..len]).into_owned())),
        Err(Errno::NODATA | Errno::RANGE) => Ok(None),
        Err(errno) => Err(errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "daemon")]
    #[test]
    fn the_daemon_has_the_same_name_for_it() {
        assert_eq!(STATE, weir_fuse::STATE);
    }

    #[test]
    fn files_of_other_file_systems_have_none() {
        assert_eq!(read(Path::new("/dev/null")).unwrap_or(None), None);
        assert_eq!(read(Path::new("/nonexistent/x")), Err(Errno::NOENT));
    }
}
