//! What a run is to do.

use weir_engine::Order;

use super::undo::Undo;

/// A run under one seed.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Lives of one home, each of which ends with a crash.
    pub lives: u32,
    /// Operations of programs in each.
    pub operations: u32,
    /// On average one request in `sparse` is followed by a crash of a copy of the devices.
    pub sparse: u64,
    /// What is logged before it goes home.
    pub order: Order,
    /// Rules that are broken on purpose.
    pub undone: Vec<Undo>,
    /// Everything is printed.
    pub print: bool,
}

impl Plan {
    /// Lives in which each request is followed by a crash.
    pub fn new() -> Plan {
        let (order, undone) = (Order::Sync, Vec::new());
        Plan { lives: 3, operations: 100, sparse: 2, order, undone, print: false }
    }
}

impl Default for Plan {
    fn default() -> Plan {
        Plan::new()
    }
}
