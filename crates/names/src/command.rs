//! What home is to do to names. `weir_backend::home_names` does it, for the program that asked.

/// A change of one directory's entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// mkdir(2), with these permission bits.
    MakeDirectory {
        /// Permission bits, as the program gave them.
        mode: u32,
    },
    /// mknod(2).
    MakeNode {
        /// Type and permission bits, as in `st_mode`.
        mode: u32,
        /// Of a device node, in the home system's encoding.
        device: u64,
    },
    /// symlink(2) to this.
    MakeSymlink {
        /// What the link says.
        target: &'a [u8],
    },
    /// unlink(2).
    Unlink,
    /// rmdir(2).
    RemoveDirectory,
}
