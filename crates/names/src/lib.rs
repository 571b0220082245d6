//! The namespace: which nodes the kernel knows, by which numbers, and how each is reached at home.
//!
//! Sans-I/O: a [`Namespace`] makes no system call and has no clock. Whoever owns it looks a name up at
//! home, tells it what was found ([`Identity`], [`Way`]), and asks it for the way back when a node is
//! used again later. So a node that is merely known costs memory alone, and no descriptor.
//!
//! [`tree`] is for names that do not wait for home: changes with a place in the log's order, brought home in the background and
//! after a crash. Without a log the mount passes names through: they are made, moved and removed at home at once, by the
//! commands of [`command`], and home is asked for each entry and each attribute.
//!
//! Does not own: descriptors and their bound (`weir_fuse::inode`), the system calls
//! (`weir_backend::home_names`).
//!
//! ```
//! use weir_names::{Forgot, Identity, Namespace, NodeId, Place, Way};
//!
//! let mut names = Namespace::new(Identity { device: 8, inode: 2, version: 0 });
//! let found = Identity { device: 8, inode: 77, version: 1 };
//! let way = Way::Place(Place::new(NodeId::ROOT, b"notes.txt").unwrap());
//! let node = names.count(found, way.clone());
//! assert_eq!(names.find(&found), Some(node));
//! assert_eq!(names.way(node), Some(&way));
//! // The kernel took one lookup, and gives it back.
//! assert_eq!(names.forget(node, 1), Forgot::Gone);
//! assert_eq!(names.find(&found), None);
//! ```

#![forbid(unsafe_code)]

pub mod command;
mod handle;
mod identity;
mod namespace;
mod numbers;
mod placed;
mod places;
mod table;
pub mod tree;
mod way;

pub use handle::Handle;
pub use identity::{Identity, NodeId};
pub use namespace::{Forgot, Marks, Namespace};
pub use placed::Placed;
pub use places::Places;
pub use way::{Place, Way};
