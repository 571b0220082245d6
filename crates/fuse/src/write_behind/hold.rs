//! Holding nodes for as long as an operation is at work ([`super::held`]).

use weir_names::NodeId;

use crate::write_behind::state::WriteBehind;

/// Holds nodes until it is dropped.
pub(crate) struct Hold<'a, const N: usize> {
    behind: &'a WriteBehind,
    nodes: [NodeId; N],
}

impl WriteBehind {
    /// What the tree knows of these nodes, or will know, stays.
    pub(crate) fn hold<const N: usize>(&self, nodes: [NodeId; N]) -> Hold<'_, N> {
        self.lock().held.hold(&nodes);
        Hold { behind: self, nodes }
    }
}

impl<const N: usize> Drop for Hold<'_, N> {
    fn drop(&mut self) {
        let mut state = self.behind.lock();
        if state.held.release(&self.nodes) {
            self.behind.call_workers_in_time(&mut state);
        }
    }
}
