//! Small files whose content follows from a seed and a number.

use std::fs;
use std::path::Path;

use crate::content::Random;
use crate::error::{Doing, Error, Result};

/// Small bytes that follow from a seed and a number: up to `bytes_max` of them, and at least one.
pub fn small_content(seed: u64, number: u64, bytes_max: u64) -> Vec<u8> {
    let mut random = Random::of(seed, number);
    let mut bytes = vec![0; 1 + random.below(bytes_max) as usize];
    random.fill(&mut bytes);
    bytes
}

/// Fails unless a file has this content.
pub fn verify_small(path: &Path, content: &[u8]) -> Result<()> {
    if fs::read(path).doing("read", path)? == content {
        return Ok(());
    }
    Err(Error::Different(format!("{} is not as written", path.display())))
}
