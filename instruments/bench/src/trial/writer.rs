//! Records of up to 4 KiB, each written by one pwrite(2), each told of as soon as that has returned.
//!
//! A record follows from the writer and the record's number: the two as words, again and again, and a CRC-32 at the
//! end. The tests' `killed.py` makes them too, to compare.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{Doing, Error, Result};

/// From one place of a record to the next: records cross pages.
const STRIDE_BYTES: u64 = 4400;
const RECORD_BYTES_MIN: u64 = 64;
const RECORD_BYTES_MAX: u64 = 4096;
/// Prime, so that all places have their turn.
const STEP: u64 = 7919;
/// Set in what is told of a record that was synced, and all before it.
const SYNCED: u64 = 1 << 63;
/// What any call may take once the daemon is gone.
const PATIENCE: Duration = Duration::from_secs(1);

#[derive(clap::Args)]
pub struct Arguments {
    /// Where records go.
    file: PathBuf,
    /// Who writes.
    #[arg(long)]
    writer: u64,
    /// Places in the file.
    #[arg(long, default_value_t = 200)]
    places: u64,
    /// The first record's number.
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// Sync after this many records.
    #[arg(long)]
    sync_every: Option<u64>,
    /// When a call fails, make others, each of which must fail within a second.
    #[arg(long)]
    stubborn: bool,
}

impl Arguments {
    /// Runs it.
    pub fn run(self) -> Result<()> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let file = options.open(&self.file).doing("open", &self.file)?;
        let mut bytes = Vec::with_capacity(RECORD_BYTES_MAX as usize);
        let mut number = self.from;
        loop {
            record(self.writer, number, &mut bytes);
            let place = number * STEP % self.places;
            let before = Instant::now();
            if let Err(error) = file.write_all_at(&bytes, place * STRIDE_BYTES) {
                return self.failed(&file, error, before.elapsed());
            }
            tell(number)?;
            if self.sync_every.is_some_and(|every| number.is_multiple_of(every)) {
                let before = Instant::now();
                if let Err(error) = file.sync_data() {
                    return self.failed(&file, error, before.elapsed());
                }
                tell(number | SYNCED)?;
            }
            number += 1;
        }
    }

    fn failed(&self, file: &File, error: io::Error, took: Duration) -> Result<()> {
        if !self.stubborn {
            return Err(error).doing("write", &self.file);
        }
        let late = |what: &str, took: Duration| {
            let why = format!("{what} took {took:?} after the daemon was gone");
            Err(Error::Different(why))
        };
        if took > PATIENCE {
            return late("the call that failed first", took);
        }
        let mut byte = [0];
        // The daemon's threads end one after the other: the lane may be there a moment longer than the mount. What is posted
        // then is lost as what was posted just before.
        let until = Instant::now() + PATIENCE;
        while file.write_at(&byte, 0).is_ok() && Instant::now() < until {
            thread::sleep(Duration::from_millis(1));
        }
        for _ in 0..3 {
            let mut call = |what: &str, call: &mut dyn FnMut(&mut [u8]) -> io::Result<()>| {
                let before = Instant::now();
                let done = call(&mut byte);
                match (done, before.elapsed()) {
                    (_, took) if took > PATIENCE => late(what, took),
                    (Ok(()), _) => {
                        Err(Error::Different(format!("{what} succeeds without a daemon")))
                    }
                    (Err(_), _) => Ok(()),
                }
            };
            call("pwrite", &mut |byte| file.write_at(byte, 0).map(drop))?;
            call("pread", &mut |byte| file.read_at(byte, 1).map(drop))?;
            call("fsync", &mut |_| file.sync_all())?;
            call("ftruncate", &mut |_| file.set_len(1))?;
            call("open", &mut |_| File::open(&self.file).map(drop))?;
        }
        eprintln!("failed as it must: {error}");
        Ok(())
    }
}

fn tell(number: u64) -> Result<()> {
    let mut stdout = io::stdout().lock();
    let told = stdout.write_all(&number.to_le_bytes()).and_then(|()| stdout.flush());
    told.doing("write to", "standard output".as_ref())
}

/// The bytes of a record.
fn record(writer: u64, number: u64, bytes: &mut Vec<u8>) {
    let spread = number.wrapping_mul(2_654_435_761) % (1 << 32);
    let len = RECORD_BYTES_MIN + spread % (RECORD_BYTES_MAX - RECORD_BYTES_MIN + 1);
    bytes.clear();
    while (bytes.len() as u64) < len - 4 {
        bytes.extend_from_slice(&writer.to_le_bytes());
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    bytes.truncate(len as usize - 4);
    let mut checksum = flate2::Crc::new();
    checksum.update(bytes);
    bytes.extend_from_slice(&checksum.sum().to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_have_all_sizes_and_their_numbers() {
        let mut bytes = Vec::new();
        let (mut least, mut most) = (usize::MAX, 0);
        for number in 0..5000 {
            record(3, number, &mut bytes);
            assert_eq!(bytes[8..16], number.to_le_bytes());
            (least, most) = (least.min(bytes.len()), most.max(bytes.len()));
        }
        assert!(least < 80 && most > 4080 && most <= 4096, "{least} to {most}");
    }
}
