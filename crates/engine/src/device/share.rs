//! The share of the device's time for async transfers while readers wait.

use crate::device::schedule::DeviceBlock;
use crate::time::Time;

/// The share of the device's time for async transfers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Share {
    /// The time from which another async transfer may be charged.
    pub(crate) paid_at: Time,
    /// The place behind the last transfer that was charged.
    pub(crate) end: DeviceBlock,
    /// The time of the last read-ahead.
    pub(crate) ahead_at: Option<Time>,
}
