//! How requests reach the front end: the seam at which another transport can be put.
//!
//! A transport reads requests, calls the operations of [`crate::ops`] with the crate's own types,
//! and sends what they answer. [`device`] does so over /dev/fuse; [`mount`] gets that device for a
//! mount point.

pub(crate) mod device;
pub(crate) mod mount;
