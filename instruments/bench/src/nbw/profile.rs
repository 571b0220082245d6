//! The two forms of the suite: how much is run, and at which size.

use strum::VariantArray;

use crate::disk::Model;
use crate::nbw::results::Profile;
use crate::page::PAGE;
use crate::stage::{Contestant, Fetch, LOG_BYTES};

/// What the paper ran with (000, section 6): a file of 5 GB, memory of 4 GB, patch memory of 64 MB, 60 seconds.
const PAPER_FILE_BYTES: u64 = 5 << 30;
const PAPER_MEMORY_BYTES: u64 = 4 << 30;
const PAPER_PATCH_BYTES: u64 = 64 << 20;
const PAPER_SECONDS: f64 = 60.0;

/// Which form to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A look at every part, in at most eight minutes.
    Quick,
    /// The whole of the paper's evaluation.
    Paper,
}

impl Form {
    /// Its sizes and times. The paper's are divided by 20: a file of 256 MiB, memory of 204.8 MiB,
    /// patch memory of 3.2 MiB, three seconds; the quick form also runs shorter.
    pub fn profile(self) -> Profile {
        let scale = 20;
        let page = PAGE;
        let scaled = |bytes: u64| (bytes / u64::from(scale)).next_multiple_of(page);
        let seconds = PAPER_SECONDS / f64::from(scale);
        let paper = Profile {
            name: "paper".into(),
            scale,
            file_bytes: scaled(PAPER_FILE_BYTES),
            memory_bytes: scaled(PAPER_MEMORY_BYTES),
            patch_bytes: scaled(PAPER_PATCH_BYTES),
            log_bytes: LOG_BYTES,
            seconds,
            file_server_seconds: 6.0,
            trace_seconds: 12.0,
            rounds: 3,
            file_server_rounds: 3,
            trace_rounds: 3,
            side_by_side: None,
        };
        match self {
            Form::Paper => paper,
            Form::Quick => Profile {
                name: "quick".into(),
                seconds: seconds / 2.0,
                patch_bytes: scaled(PAPER_PATCH_BYTES / 2),
                file_server_seconds: 3.5,
                trace_seconds: 5.0,
                rounds: 1,
                file_server_rounds: 1,
                trace_rounds: 1,
                ..paper
            },
        }
    }

    /// Operation sizes, bytes.
    pub fn sizes(self) -> &'static [u64] {
        match self {
            Form::Quick => &[128, 1024, 4096],
            Form::Paper => &[128, 256, 512, 1024, 2048, 4096],
        }
    }

    /// Memory sizes of the memory experiment in GiB before scaling; the paper's own are 4 and less
    /// and more.
    pub fn memory_gib(self) -> &'static [u64] {
        match self {
            Form::Quick => &[3, 5],
            Form::Paper => &[2, 3, 4, 5, 6],
        }
    }

    /// The contestants of workloads that write. ext4, the baseline, is first.
    pub fn writers(self) -> Vec<Contestant> {
        match self {
            Form::Quick => with_ext4(&[Fetch::Lazy, Fetch::Auto]),
            Form::Paper => with_ext4(&[Fetch::AsyncBg, Fetch::Lazy, Fetch::Auto]),
        }
    }

    /// The contestants where the memory or the mix is varied: what the paper recommends, and the
    /// default.
    pub fn variants(self) -> Vec<Contestant> {
        with_ext4(&[Fetch::Lazy, Fetch::Auto])
    }

    /// The contestants of random writes: every policy in the long form.
    pub fn random_writers(self) -> Vec<Contestant> {
        match self {
            Form::Quick => with_ext4(&[Fetch::AsyncBg, Fetch::Lazy, Fetch::Auto]),
            Form::Paper => with_ext4(Fetch::VARIANTS),
        }
    }

    /// The contestants of what only reads, where a policy makes no difference, and of traces.
    pub fn readers(self) -> Vec<Contestant> {
        with_ext4(&[Fetch::Auto])
    }

    /// The emulated disks.
    pub fn disks(self) -> &'static [Model] {
        &[Model::Hdd, Model::Ssd]
    }
}

fn with_ext4(policies: &[Fetch]) -> Vec<Contestant> {
    let weir = policies.iter().map(|&fetch| Contestant::Weir(fetch));
    std::iter::once(Contestant::Ext4).chain(weir).collect()
}
