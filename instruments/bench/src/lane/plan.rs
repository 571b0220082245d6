//! What is run: one cell for each comparison of the three sides.

use std::path::{Path, PathBuf};

use super::results::Figure;
use crate::error::Result;
use crate::sqlite_shell;
use crate::workload::{
    Build, Call, Calls, Engine, Fio, GitTree, Inserts, Journal, Pgbench, Redis, Where, Workload,
    require_build, require_fio, require_git, require_postgres, require_redis,
};

const MIB: u64 = 1 << 20;
const KIB: u64 = 1 << 10;
/// Bytes of a file that is in memory.
const FILE_BYTES: u64 = 64 * MIB;
/// Of one that is written in large pieces.
const LARGE_FILE_BYTES: u64 = 256 * MIB;
/// Of one of which nothing is in memory.
const COLD_FILE_BYTES: u64 = 256 * MIB;
/// Of all files that threads write to: as much for one as for four, or what fits caches would be compared, too.
const THREADS_BYTES: u64 = 64 * MIB;
/// What places and bytes follow from.
const SEED: u64 = 0x6c61_6e65;

/// How long, and how often.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    /// As it is called in results.
    pub name: &'static str,
    /// Rounds of calls.
    pub rounds: u32,
    /// Rounds of programs.
    pub program_rounds: u32,
    /// For how long calls are made.
    pub seconds: f64,
    /// For how long programs run that can be told.
    pub program_seconds: f64,
    /// Processes started, a side.
    pub starts: u32,
}

/// In about eight minutes.
pub const QUICK: Form = Form {
    name: "quick",
    rounds: 3,
    program_rounds: 2,
    seconds: 1.0,
    program_seconds: 2.0,
    starts: 300,
};

/// Longer and more often.
pub const FULL: Form = Form {
    name: "full",
    rounds: 5,
    program_rounds: 5,
    seconds: 2.0,
    program_seconds: 5.0,
    starts: 1000,
};

/// How the sides' files come to be as a round needs them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// One mount for all rounds; what is needed is read before.
    Warm,
    /// Everything starts with nothing in memory, Weir with a mount of its own.
    Cold,
}

/// One comparison.
#[derive(Clone, Debug)]
pub struct Cell {
    /// Its name.
    pub name: String,
    /// The class of operations that is compared.
    pub class: &'static str,
    /// What of it.
    pub figure: Figure,
    /// See there.
    pub style: Style,
    /// What is run.
    pub workload: Workload,
    /// How often.
    pub rounds: u32,
}

/// The cells whose names contain one of `only`, or all; and what is passed over, and why.
pub fn cells(form: Form, sources: &Path, only: &[String]) -> (Vec<Cell>, Vec<String>) {
    let mut cells = Vec::new();
    in_memory(form, &mut cells);
    threads(form, &mut cells);
    on_disk(form, &mut cells);
    programs(form, sources, &mut cells);
    cells.retain(|cell| wanted(only, &cell.name));
    let mut passed_over = Vec::new();
    let requirements: [(&str, &dyn Fn() -> Result<()>); 6] = [
        ("fio/", &require_fio),
        ("sqlite/", &sqlite_shell::require),
        ("pgbench/", &require_postgres),
        ("redis/", &require_redis),
        ("git-status", &require_git),
        ("build", &|| require_build(sources)),
    ];
    for (part, require) in requirements {
        let is_part = |cell: &Cell| cell.name.starts_with(part);
        if cells.iter().any(is_part)
            && let Err(why) = require()
        {
            cells.retain(|cell| !is_part(cell));
            passed_over.push(format!("{}: {why}", part.trim_end_matches('/')));
        }
    }
    (cells, passed_over)
}

/// Whether a name is asked for.
pub fn wanted(only: &[String], name: &str) -> bool {
    only.is_empty() || only.iter().any(|part| name.contains(part.as_str()))
}

/// Where `scripts/setup bench` puts what is built.
pub fn default_sources() -> PathBuf {
    PathBuf::from("target/tools/sources.tar")
}

/// Calls of one thread on a file in memory.
pub fn calls(call: Call, place: Where, io_bytes: u64, form: Form) -> Calls {
    Calls {
        call,
        place,
        io_bytes,
        direct: false,
        threads: 1,
        shared: false,
        file_bytes: FILE_BYTES,
        seconds: form.seconds,
        timed_seconds: form.seconds / 4.0,
        seed: SEED,
    }
}

fn of_calls(name: String, figure: Figure, style: Style, form: Form, calls: Calls) -> Cell {
    let class = calls.call.name();
    let workload = Workload::Calls(calls);
    Cell { name, class, figure, style, workload, rounds: form.rounds }
}

fn in_memory(form: Form, cells: &mut Vec<Cell>) {
    for io_bytes in [64, 128, 4 * KIB] {
        for (place, called) in [(Where::Sequential, "sequential"), (Where::Random, "random")] {
            let name = format!("write/{io_bytes}/{called}");
            let calls = calls(Call::Write, place, io_bytes, form);
            cells.push(of_calls(name, Figure::Rate, Style::Warm, form, calls));
        }
    }
    let large = Calls {
        file_bytes: LARGE_FILE_BYTES,
        ..calls(Call::Write, Where::Sequential, 64 * KIB, form)
    };
    let name = "write/65536/sequential".to_owned();
    cells.push(of_calls(name, Figure::Rate, Style::Warm, form, large));
    for io_bytes in [64, 4 * KIB] {
        let name = format!("read/{io_bytes}/random");
        let calls = calls(Call::Read, Where::Random, io_bytes, form);
        cells.push(of_calls(name, Figure::Rate, Style::Warm, form, calls));
    }
}

fn threads(form: Form, cells: &mut Vec<Cell>) {
    for io_bytes in [64, 4 * KIB] {
        for (shared, called) in [(false, "own"), (true, "shared")] {
            for threads in [1, 2, 4] {
                let calls = Calls {
                    threads,
                    shared,
                    file_bytes: if shared {
                        THREADS_BYTES
                    } else {
                        THREADS_BYTES / u64::from(threads)
                    },
                    seconds: form.seconds / 2.0,
                    timed_seconds: 0.0,
                    ..calls(Call::Write, Where::Random, io_bytes, form)
                };
                let name = format!("threads/{io_bytes}/{called}/{threads}");
                cells.push(of_calls(name, Figure::Rate, Style::Warm, form, calls));
            }
        }
    }
}

fn on_disk(form: Form, cells: &mut Vec<Cell>) {
    let mut push = |name: String, call, io_bytes, direct| {
        let calls = Calls {
            direct,
            file_bytes: COLD_FILE_BYTES,
            seconds: 0.0,
            timed_seconds: form.seconds / 2.0,
            ..calls(call, Where::Cold, io_bytes, form)
        };
        cells.push(of_calls(name, Figure::Median, Style::Cold, form, calls));
    };
    for io_bytes in [64, 128] {
        push(format!("cold-write/{io_bytes}"), Call::Write, io_bytes, false);
    }
    push("direct-write/4096".into(), Call::Write, 4 * KIB, true);
    push("direct-read/4096".into(), Call::Read, 4 * KIB, true);
    push("miss/4096".into(), Call::Read, 4 * KIB, false);
}

fn programs(form: Form, sources: &Path, cells: &mut Vec<Cell>) {
    let mut push = |name: String, class, figure, workload| {
        let rounds = form.program_rounds;
        cells.push(Cell { name, class, figure, style: Style::Cold, workload, rounds });
    };
    for engine in [Engine::Psync, Engine::Sync, Engine::Libaio] {
        let workload =
            Workload::Fio(Fio { engine, file_bytes: FILE_BYTES, seconds: form.program_seconds });
        push(format!("fio/{engine}"), "all", Figure::Rate, workload);
    }
    for (journal, per_second) in [(Journal::Wal, 800.0), (Journal::Delete, 300.0)] {
        let transactions = (per_second * form.program_seconds) as u64;
        let workload =
            Workload::Inserts(Inserts { journal, transactions, rows: 10, rows_before: 20_000 });
        push(format!("sqlite/{journal}"), "transaction", Figure::Rate, workload);
    }
    let seconds = form.program_seconds as u64 + 1;
    let workload =
        Workload::Pgbench(Pgbench { clients: 4, scale: 5, seconds, server_under: Vec::new() });
    push("pgbench/4".into(), "transaction", Figure::Rate, workload);
    let requests = (60_000.0 * form.program_seconds) as u64;
    push(
        "redis/everysec".into(),
        "set",
        Figure::Rate,
        Workload::Redis(Redis {
            requests,
            clients: 8,
            append_fsync: "everysec".into(),
            server_under: Vec::new(),
        }),
    );
    let workload = Workload::GitTree(GitTree { files: 4000, looks: 8 });
    push("git-status".into(), "job", Figure::Median, workload);
    let build = Build { archive: sources.to_owned(), trees: 1 };
    push("build".into(), "job", Figure::Mean, Workload::Build(build));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_warm_ones_come_first() {
        let (cells, _) = cells(QUICK, Path::new("/nonexistent"), &[]);
        let mut names: Vec<_> = cells.iter().map(|cell| &cell.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), cells.len());
        assert!(cells.is_sorted_by_key(|cell| cell.style == Style::Cold));
        let (some, _) = super::cells(QUICK, Path::new("/nonexistent"), &["write/64/".into()]);
        assert_eq!(some.len(), 2, "{some:?}");
    }
}
