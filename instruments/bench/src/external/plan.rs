//! What is run on which home, and how much of it: less where a sync takes long.

use strum::VariantArray;

use super::home::Kind;
use crate::error::Result;
use crate::form::Form;
use crate::lane::results::Figure;
use crate::sqlite_shell;
use crate::workload::{
    ALL, Commits, Dpkg, Inserts, Journal, Mariadb, Pgbench, Postmark, Redis, Script, Web, Workload,
    require_dpkg, require_git, require_mariadb, require_postgres, require_redis, require_script,
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
/// Of each client.
const UPDATES: Counts = Counts { full: 500, fast: 200, hdd: 20 };
const POOL: Counts = Counts { full: 2000, fast: 500, hdd: 500 };
const PACKAGES: Counts = Counts { full: 30, fast: 30, hdd: 10 };
/// Of each client.
const REQUESTS: Counts = Counts { full: 2000, fast: 400, hdd: 400 };

/// What of a case is in the session, and what is compared.
#[derive(Clone, Copy)]
pub struct Setup {
    /// Its server alone is in the session.
    pub clients_outside: bool,
    /// The session's `--sync`.
    pub sync: &'static str,
    /// The class of operations that is compared.
    pub class: &'static str,
    /// What of their times.
    pub figure: Figure,
}

const INSIDE: Setup =
    Setup { clients_outside: false, sync: "external", class: "transaction", figure: Figure::Mean };
const OUTSIDE: Setup = Setup { clients_outside: true, ..INSIDE };

/// One case on one home.
pub struct Cell {
    /// `sqlite-delete`, ...
    pub name: &'static str,
    /// What is run.
    pub workload: Workload,
    /// How.
    pub setup: Setup,
}

/// A case: its name, what it needs, how it is made, and where.
struct Entry {
    name: &'static str,
    require: fn() -> Result<()>,
    make: fn(Form, Kind) -> Workload,
    setup: Setup,
    homes: &'static [Kind],
}

const EVERY_HOME: &[Kind] = Kind::VARIANTS;

fn nothing() -> Result<()> {
    Ok(())
}

const ENTRIES: [Entry; 12] = [
    Entry {
        name: "sqlite-delete",
        require: sqlite_shell::require,
        make: |form, kind| inserts(Journal::Delete, form, kind),
        setup: INSIDE,
        homes: EVERY_HOME,
    },
    Entry {
        name: "sqlite-wal",
        require: sqlite_shell::require,
        make: |form, kind| inserts(Journal::Wal, form, kind),
        setup: INSIDE,
        homes: EVERY_HOME,
    },
    Entry {
        name: "git-commit",
        require: require_git,
        make: |form, kind| Workload::Commits(Commits { commits: COMMITS.of(form, kind) }),
        setup: INSIDE,
        homes: EVERY_HOME,
    },
    Entry {
        name: "script",
        require: require_script,
        make: |form, kind| Workload::Script(Script { changes: CHANGES.of(form, kind) }),
        setup: INSIDE,
        homes: EVERY_HOME,
    },
    Entry {
        name: "pgbench-inside",
        require: require_postgres,
        make: |form, kind| pgbench(1, form, kind),
        setup: INSIDE,
        homes: EVERY_HOME,
    },
    Entry {
        name: "pgbench-4-outside",
        require: require_postgres,
        make: |form, kind| pgbench(4, form, kind),
        setup: OUTSIDE,
        homes: EVERY_HOME,
    },
    Entry {
        name: "pgbench-16-outside",
        require: require_postgres,
        make: |form, kind| pgbench(16, form, kind),
        setup: OUTSIDE,
        homes: EVERY_HOME,
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
        setup: Setup { class: "set", ..OUTSIDE },
        homes: EVERY_HOME,
    },
    Entry {
        name: "mariadb-inside",
        require: require_mariadb,
        make: |form, kind| {
            Workload::Mariadb(Mariadb { clients: 4, transactions: UPDATES.of(form, kind) })
        },
        setup: INSIDE,
        homes: EVERY_HOME,
    },
    Entry {
        name: "postmark-every-write",
        require: nothing,
        make: |form, kind| {
            let files = POOL.of(form, kind);
            Workload::Postmark(Postmark { files, transactions: 2 * files })
        },
        setup: Setup { sync: "every-write", ..INSIDE },
        homes: EVERY_HOME,
    },
    Entry {
        name: "web",
        require: nothing,
        make: |form, kind| {
            let requests = REQUESTS.of(form, kind);
            Workload::Web(Web { clients: 8, requests, server_under: Vec::new() })
        },
        setup: Setup { class: ALL, figure: Figure::P99, ..OUTSIDE },
        homes: &[Kind::Ssd],
    },
    Entry {
        name: "dpkg",
        require: require_dpkg,
        make: |form, kind| Workload::Dpkg(Dpkg { packages: PACKAGES.of(form, kind) }),
        setup: Setup { class: "job", ..INSIDE },
        homes: EVERY_HOME,
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
    let here = ENTRIES.iter().filter(|entry| entry.homes.contains(&kind));
    for entry in here.filter(|entry| is_wanted(entry.name)) {
        match (entry.require)() {
            Ok(()) => cells.push(Cell {
                name: entry.name,
                workload: (entry.make)(form, kind),
                setup: entry.setup,
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
        let mut found: Vec<_> = cells(crate::form::QUICK, Kind::Ssd, &[], &mut left_out)
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

    #[test]
    fn the_web_is_on_a_flash_drive_alone() {
        for (kind, count) in [(Kind::Disk, 0), (Kind::Hdd, 0), (Kind::Ssd, 1)] {
            let found = cells(crate::form::QUICK, kind, &["web".into()], &mut Vec::new());
            assert_eq!(found.len(), count, "{kind}");
        }
    }
}
