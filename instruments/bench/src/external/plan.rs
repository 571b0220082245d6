//! What is run on which home, and how much of it: less where a sync takes long.

use super::home::Kind;
use crate::error::Result;
use crate::form::Form;
use crate::sqlite_shell;
use crate::workload::{
    Commits, Inserts, Journal, Pgbench, Redis, Script, Workload, require_git, require_postgres,
    require_redis, require_script,
};

/// How many transactions there are.
struct Counts {
    full: u64,
    fast: u64,
    hdd: u64,
}

impl Counts {
    fn of(&self, form: Form, kind: Kind) -> u64 {
        match kind {
            _ if !form.is_quick => self.full,
            Kind::Hdd => self.hdd,
            Kind::Disk | Kind::Ssd => self.fast,
        }
    }
}

const INSERTS: Counts = Counts { full: 2000, fast: 1000, hdd: 200 };
const COMMITS: Counts = Counts { full: 200, fast: 40, hdd: 10 };
const CHANGES: Counts = Counts { full: 200, fast: 60, hdd: 20 };
const PGBENCH_SECONDS: Counts = Counts { full: 10, fast: 3, hdd: 5 };
const SETS: Counts = Counts { full: 50_000, fast: 20_000, hdd: 5000 };

/// One case on one home.
pub struct Cell {
    /// `sqlite-delete`, ...
    pub name: &'static str,
    /// What is run.
    pub workload: Workload,
    /// Its server alone is in the session.
    pub clients_outside: bool,
}

/// A case: its name, what it needs, and how it is made.
struct Entry {
    name: &'static str,
    require: fn() -> Result<()>,
    make: fn(Form, Kind) -> Workload,
    clients_outside: bool,
}

const ENTRIES: [Entry; 8] = [
    Entry {
        name: "sqlite-delete",
        require: sqlite_shell::require,
        make: |form, kind| inserts(Journal::Delete, form, kind),
        clients_outside: false,
    },
    Entry {
        name: "sqlite-wal",
        require: sqlite_shell::require,
        make: |form, kind| inserts(Journal::Wal, form, kind),
        clients_outside: false,
    },
    Entry {
        name: "git-commit",
        require: require_git,
        make: |form, kind| Workload::Commits(Commits { commits: COMMITS.of(form, kind) }),
        clients_outside: false,
    },
    Entry {
        name: "script",
        require: require_script,
        make: |form, kind| Workload::Script(Script { changes: CHANGES.of(form, kind) }),
        clients_outside: false,
    },
    Entry {
        name: "pgbench-inside",
        require: require_postgres,
        make: |form, kind| pgbench(1, form, kind),
        clients_outside: false,
    },
    Entry {
        name: "pgbench-4-outside",
        require: require_postgres,
        make: |form, kind| pgbench(4, form, kind),
        clients_outside: true,
    },
    Entry {
        name: "pgbench-16-outside",
        require: require_postgres,
        make: |form, kind| pgbench(16, form, kind),
        clients_outside: true,
    },
    Entry {
        name: "redis-50-outside",
        require: require_redis,
        make: |form, kind| {
            Workload::Redis(Redis {
                requests: SETS.of(form, kind),
                clients: 50,
                append_fsync: "always".into(),
                server_under: Vec::new(),
            })
        },
        clients_outside: true,
    },
];

fn pgbench(clients: u32, form: Form, kind: Kind) -> Workload {
    let seconds = PGBENCH_SECONDS.of(form, kind);
    Workload::Pgbench(Pgbench { clients, scale: 1, seconds, server_under: Vec::new() })
}

fn inserts(journal: Journal, form: Form, kind: Kind) -> Workload {
    let transactions = INSERTS.of(form, kind);
    Workload::Inserts(Inserts { journal, transactions, rows: 1, rows_before: 100 })
}

/// The names of all cases.
pub fn names() -> impl Iterator<Item = &'static str> {
    ENTRIES.iter().map(|entry| entry.name)
}

/// The cells of a home, those named in `only`, or all. What cannot be run is left out, with the reason.
pub fn cells(form: Form, kind: Kind, only: &[String], left_out: &mut Vec<String>) -> Vec<Cell> {
    let is_wanted = |name: &str| only.is_empty() || only.iter().any(|wanted| wanted == name);
    let mut cells = Vec::new();
    for entry in ENTRIES.iter().filter(|entry| is_wanted(entry.name)) {
        match (entry.require)() {
            Ok(()) => cells.push(Cell {
                name: entry.name,
                workload: (entry.make)(form, kind),
                clients_outside: entry.clients_outside,
            }),
            Err(why) => left_out.push(format!("{kind}/{}: {why}", entry.name)),
        }
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_one_case() {
        let mut left_out = Vec::new();
        let mut found: Vec<_> = cells(crate::form::QUICK, Kind::Hdd, &[], &mut left_out)
            .iter()
            .map(|cell| cell.name)
            .collect();
        assert_eq!(found.len() + left_out.len(), ENTRIES.len(), "{left_out:?}");
        found.sort_unstable();
        found.dedup();
        assert_eq!(found.len() + left_out.len(), ENTRIES.len());
        let one = cells(crate::form::FULL, Kind::Disk, &["script".into()], &mut Vec::new());
        assert!(one.iter().all(|cell| cell.name == "script") && one.len() <= 1);
    }
}
