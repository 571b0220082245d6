//! Which number a node gets.
//!
//! Inodes of SOURCE's own device keep the number they have at home, so that programs see the same one by
//! both paths. Those of devices mounted inside SOURCE, and the few whose number FUSE uses itself, get one
//! with bit 63 set: bits 48 to 62 are the device in the order of appearance, the rest is the inode number.
//! Numbers that do not fit are allotted and remembered.

use std::collections::HashMap;

use crate::identity::{Identity, NodeId};

const FOREIGN: u64 = 1 << 63;
const DEVICE_SHIFT: u32 = 48;
/// Device index of allotted numbers.
const ALLOTTED_DEVICE: u64 = 0x7fff;

/// Numbers of nodes.
#[derive(Debug)]
pub(crate) struct Numbers {
    root: (u64, u64),
    devices: Vec<u64>,
    /// Of inodes whose number does not fit: the same each time while mounted.
    allotted: HashMap<(u64, u64), NodeId>,
    next: u64,
}

impl Numbers {
    pub(crate) fn new(root: &Identity) -> Numbers {
        Numbers {
            root: (root.device, root.inode),
            devices: vec![root.device],
            allotted: HashMap::new(),
            next: 0,
        }
    }

    /// The number of an inode.
    pub(crate) fn of(&mut self, device: u64, inode: u64) -> NodeId {
        if (device, inode) == self.root {
            return NodeId::ROOT;
        }
        if device == self.root.0 && inode > NodeId::ROOT.0 && inode < FOREIGN {
            return NodeId(inode);
        }
        let index = self.device_index(device);
        if index < ALLOTTED_DEVICE && inode < 1 << DEVICE_SHIFT {
            return NodeId(FOREIGN | index << DEVICE_SHIFT | inode);
        }
        if let Some(&node) = self.allotted.get(&(device, inode)) {
            return node;
        }
        let node = self.allot();
        self.allotted.insert((device, inode), node);
        node
    }

    /// A number that no inode of home has, and that is never given again.
    pub(crate) fn allot(&mut self) -> NodeId {
        let number = self.next;
        self.next += 1;
        NodeId(FOREIGN | ALLOTTED_DEVICE << DEVICE_SHIFT | number)
    }

    fn device_index(&mut self, device: u64) -> u64 {
        let known = self.devices.iter().position(|&known| known == device);
        let index = known.unwrap_or_else(|| {
            self.devices.push(device);
            self.devices.len() - 1
        });
        index as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_kept_unique_across_devices() {
        let mut numbers = Numbers::new(&Identity { device: 10, inode: 2, version: 0 });
        assert_eq!(numbers.of(10, 2), NodeId::ROOT);
        assert_eq!(numbers.of(10, 77), NodeId(77));
        let one = numbers.of(10, 1);
        assert_ne!(one, NodeId::ROOT);
        let foreign = numbers.of(11, 77);
        assert_ne!(foreign, NodeId(77));
        assert_ne!(foreign, numbers.of(12, 77));
        assert_eq!(foreign, numbers.of(11, 77));
        let huge = numbers.of(10, u64::MAX);
        assert_ne!(huge, numbers.of(10, u64::MAX - 1));
        assert_eq!(huge, numbers.of(10, u64::MAX));
        assert_ne!(huge, numbers.allot());
    }
}
