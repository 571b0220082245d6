//! Each client's two files: which they are and what they hold.

use std::path::{Path, PathBuf};

use weir_sim::side_by_side::Client;

use crate::page::PAGE;
use crate::workload::prepared::Prepared;
use crate::workload::slots::Slots;

/// What the content of files that are read follows from, client by client.
pub const READ_SEED: u64 = 0x7265_6164_6572;

pub fn file_written(client: &Client, directory: &Path) -> PathBuf {
    directory.join(format!("written-{}.data", client.number))
}

pub fn file_read(client: &Client, directory: &Path) -> PathBuf {
    directory.join(format!("read-{}.data", client.number))
}

/// The content of the file that is read.
pub fn prepared(client: &Client) -> Prepared {
    Prepared::new(READ_SEED + client.number as u64)
}

/// The file that is written: a slot for each page.
pub fn slots(client: &Client) -> Slots {
    let file_bytes = client.pages * PAGE;
    Slots { io_bytes: PAGE, file_bytes, random: false, seed: client.seed }
}
