//! A bucket of S3 as a file system: the home of `weir mount s3://…`, in a program of its own.
//!
//! | module | what |
//! |---|---|
//! | `key`, `metadata`, `ranges`, `plan` | without I/O: names, attributes, changed bytes, the plan of an upload |
//! | `state_file` | what is not in the bucket yet, durably |
//! | `store` | what is asked of a bucket: by the AWS SDK, or in memory for tests |
//! | `cache` | what was fetched, on this machine's disk |
//! | `fs` | the file system's logic |
//! | `lease` | one writer a prefix |
//! | `serve` | FUSE |
//! | `check` | whether a bucket can be used |
//! | `owner` | the identity of a state directory |
//! | `address` | `s3://BUCKET/PREFIX` |
pub mod address;
pub mod cache;
pub mod check;
pub mod fs;
pub mod key;
pub mod lease;
pub mod metadata;
pub mod owner;
pub mod plan;
pub mod ranges;
pub mod serve;
pub mod state_file;
pub mod store;
