//! How a node is reached again at home.

use crate::handle::Handle;
use crate::identity::NodeId;

/// A name in a directory.
///
/// Invariant: the name is one component: not empty, not `.` or `..`, without a slash or a zero. So walking
/// a place never leaves its directory.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place(Box<(NodeId, Box<[u8]>)>);

impl Place {
    /// The name `name` in the directory `parent`; `None` if it is not one component.
    pub fn new(parent: NodeId, name: &[u8]) -> Option<Place> {
        let is_component = !matches!(name, b"" | b"." | b"..")
            && !name.iter().any(|&byte| byte == b'/' || byte == 0);
        is_component.then(|| Place(Box::new((parent, name.into()))))
    }

    /// The directory.
    pub fn parent(&self) -> NodeId {
        self.0.0
    }

    /// The name.
    pub fn name(&self) -> &[u8] {
        &self.0.1
    }
}

/// How a node is reached at home without a descriptor of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// By the handle that its file system gave it.
    Handle(Handle),
    /// By the name that it was last found under. Whoever opens it must compare its identity.
    Place(Place),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_one_component() {
        for name in [&b""[..], b".", b"..", b"a/b", b"/", b"a\0"] {
            assert_eq!(Place::new(NodeId::ROOT, name), None, "{name:?}");
        }
        let place = Place::new(NodeId(7), b"...").unwrap();
        assert_eq!((place.parent(), place.name()), (NodeId(7), &b"..."[..]));
    }
}
