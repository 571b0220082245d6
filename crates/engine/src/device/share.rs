//! A share of the device's time for what nobody waits for, while somebody reads.

use crate::device::schedule::DeviceBlock;
use crate::time::Time;

/// A share of the device's time, for what nobody waits for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Share {
    /// When what was asked for so far is paid for.
    pub(crate) paid_at: Time,
    /// Behind it.
    pub(crate) end: DeviceBlock,
    /// When somebody read ahead last.
    pub(crate) ahead_at: Option<Time>,
}
