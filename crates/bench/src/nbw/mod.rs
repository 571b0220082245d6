//! The evaluation of the paper "Non-blocking Writes to Files" (FAST 2015, section 6), Weir and the
//! kernel side by side on the same emulated disks: `weir-bench run nbw`.

pub mod goals;
pub mod names;
pub mod results;
#[cfg(test)]
pub mod sample;
pub mod table;
