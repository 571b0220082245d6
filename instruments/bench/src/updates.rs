//! The update program of the demo and the benchmarks, and what its file must hold afterwards.
//!
//! The file is a table of records. Step n of a plan concerns one page no other step does, so that
//! each step meets a page that is not in memory. Most steps change 64 to 200 bytes somewhere in the
//! page; every 64th writes the whole page anew, in pieces. Where, and which bytes, follows from the
//! plan's seed, so that the file can be checked byte for byte without a copy.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::cold::disk_bytes_read;
use crate::content::{Random, fill_page};
use crate::error::{Doing, Result};
use crate::measure::Latencies;
use crate::page::{PAGE, PAGE_BYTES};
use crate::workload::compare;

const REWRITE_EVERY: u32 = 64;
const PIECES: usize = 8;

/// Which page each step concerns.
pub struct Plan {
    seed: u64,
    pages: Vec<u32>,
}

/// What a run of some steps took.
pub struct Run {
    /// Of the writes, one by one.
    pub writes: Latencies,
    /// Pages this process had read from the disk for them; zero where another process reads.
    pub pages_read: u64,
}

impl Plan {
    /// A plan for a file of `pages` pages made by [`crate::cold::make_file`] with the same seed.
    pub fn new(seed: u64, pages: u32) -> Plan {
        Plan { seed, pages: Random::of(seed, u64::MAX).permutation(pages) }
    }

    /// Steps there are: one a page.
    pub fn steps(&self) -> u32 {
        self.pages.len() as u32
    }

    /// Runs some steps on `file`, in order, one write after the other.
    pub fn run(&self, file: &File, path: &Path, steps: Range<u32>) -> Result<Run> {
        let before = disk_bytes_read();
        let mut writes = Latencies::new();
        for step in steps {
            let (random, pieces) = self.step(step);
            let base = u64::from(self.pages[step as usize]) * PAGE;
            let mut result = Ok(());
            each_piece(random, pieces, |start, bytes| {
                if result.is_ok() {
                    let offset = base + start as u64;
                    result = writes.time(|| file.write_all_at(bytes, offset));
                }
            });
            result.doing("write", path)?;
        }
        Ok(Run { writes, pages_read: (disk_bytes_read() - before) / PAGE })
    }

    /// How many steps take about `duration` on `file`; at least one, at most `most`. Runs some,
    /// beginning with `from`, and says how many.
    pub fn calibrate(
        &self,
        file: &File,
        path: &Path,
        from: u32,
        duration: Duration,
        most: u32,
    ) -> Result<(u32, u32)> {
        let start = Instant::now();
        let mut done = 0;
        while done < 200 && start.elapsed() < duration {
            self.run(file, path, from + done..from + done + 1)?;
            done += 1;
        }
        let fit = f64::from(done) * duration.as_secs_f64() / start.elapsed().as_secs_f64();
        Ok((done, (fit as u32).clamp(1, most)))
    }

    /// Compares the file with its content after the first `steps` steps; the bytes compared.
    pub fn verify(&self, path: &Path, steps: u32) -> Result<u64> {
        let mut step_of = vec![None; self.pages.len()];
        for step in 0..steps {
            step_of[self.pages[step as usize] as usize] = Some(step);
        }
        let length = self.pages.len() as u64 * PAGE;
        let explain = |byte: u64| match step_of[(byte / PAGE) as usize] {
            None => "it was never written".to_owned(),
            Some(step) => format!("step {step} wrote there"),
        };
        let expect = |page: u64, bytes: &mut _| self.expect(page, step_of[page as usize], bytes);
        compare(path, length, expect, explain)?;
        Ok(length)
    }

    fn expect(&self, page: u64, step: Option<u32>, bytes: &mut [u8; PAGE_BYTES]) {
        fill_page(self.seed, page, bytes);
        if let Some(step) = step {
            let (random, pieces) = self.step(step);
            each_piece(random, pieces, |start, piece| {
                bytes[start..start + piece.len()].copy_from_slice(piece);
            });
        }
    }

    fn step(&self, step: u32) -> (Random, usize) {
        let pieces = if step % REWRITE_EVERY == REWRITE_EVERY - 1 { PIECES } else { 1 };
        (Random::of(!self.seed, u64::from(step)), pieces)
    }
}

/// Calls `write` with the start in the page and the bytes of each write of a step.
fn each_piece(mut random: Random, pieces: usize, mut write: impl FnMut(usize, &[u8])) {
    if pieces == 1 {
        let mut bytes = [0; 200];
        let len = 64 + random.below(137) as usize;
        let start = random.below((PAGE_BYTES - len + 1) as u64) as usize;
        random.fill(&mut bytes[..len]);
        write(start, &bytes[..len]);
    } else {
        let mut bytes = [0; PAGE_BYTES / PIECES];
        for piece in 0..pieces {
            random.fill(&mut bytes);
            write(piece * bytes.len(), &bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cold::make_file;
    use crate::error::Error;
    use std::fs::OpenOptions;

    #[test]
    fn what_was_written_verifies_and_one_changed_byte_does_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data");
        let plan = Plan::new(9, 600);
        make_file(&path, 9, 600).unwrap();
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        let run = plan.run(&file, &path, 0..128).unwrap();
        assert_eq!(run.writes.summary().count, 128 + 2 * (PIECES as u64 - 1));
        assert_eq!(plan.verify(&path, 128).unwrap(), 600 * PAGE);
        assert!(matches!(plan.verify(&path, 127), Err(Error::Different(_))));
        let mut byte = [0];
        let reader = File::open(&path).unwrap();
        reader.read_exact_at(&mut byte, 70_000).unwrap();
        file.write_all_at(&[byte[0] ^ 1], 70_000).unwrap();
        let error = plan.verify(&path, 128).unwrap_err().to_string();
        assert!(error.contains("at byte 70000"), "{error}");
    }
}
