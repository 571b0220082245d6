//! TPC-C's transactions on PostgreSQL by pgbench (AWOL, paper 002, section 5.5): new orders, payments,
//! order status, deliveries and stock levels in the standard's mix, on its tables.
//!
//! A warehouse has a tenth of the standard's rows, so that there are many of them for a disk of moderate
//! size, and orders seldom wait for each other. There are no terminals: no keying and no thinking, and each
//! transaction draws its warehouse. Nothing here is an audited result.
//!
//! The server is stopped as by a crash. So what is verified is what its log holds: the standard's consistency
//! conditions 1 to 4 (clause 3.3.2), and that each payment that pgbench saw committed is in the history.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{Doing, Error, Result};
use crate::mount::run;
use crate::workload::job::Job;
use crate::workload::outcome::{Class, Outcome};
use crate::workload::postgres::{CLUSTER_BYTES, Clusters, Postgres, Server, unclear};

/// What a warehouse takes with its indexes, bytes, about, as PostgreSQL counts it.
pub const WAREHOUSE_BYTES: u64 = 10 << 20;
/// What the server's processes take of memory beside what they cache, bytes.
pub const PROCESS_BYTES: u64 = 24 << 20;
/// Rows: a tenth of the standard's.
const ITEMS: u64 = 10_000;
const CUSTOMERS_A_DISTRICT: u64 = 300;
const ORDERS_A_DISTRICT: u64 = 300;
const DISTRICTS: u64 = 10;

const SCHEMA: &str = include_str!("schema.sql");
/// The transactions and how many of a hundred each has (clause 5.2.3).
const SCRIPTS: [(&str, &str, u32); 5] = [
    ("new_order.sql", include_str!("new_order.sql"), 45),
    ("payment.sql", include_str!("payment.sql"), 43),
    ("order_status.sql", include_str!("order_status.sql"), 4),
    ("delivery.sql", include_str!("delivery.sql"), 4),
    ("stock_level.sql", include_str!("stock_level.sql"), 4),
];
/// Where in it are those that are counted.
const NEW_ORDER: usize = 0;
const PAYMENT: usize = 1;
/// Vacuuming begins when it likes, and is not what is measured.
const SETTINGS: &str = "autovacuum = off\n";

/// The conditions, how often each does not hold, and the rows of the history.
const CONDITIONS: &str = "SELECT concat_ws(' ', \
    (SELECT count(*) FROM warehouse WHERE w_ytd <> \
        (SELECT sum(d_ytd) FROM district WHERE d_w_id = w_id)), \
    (SELECT count(*) FROM district WHERE d_next_o_id - 1 <> \
        (SELECT max(o_id) FROM orders WHERE o_w_id = d_w_id AND o_d_id = d_id) OR d_next_o_id - 1 <> \
        (SELECT max(no_o_id) FROM new_order WHERE no_w_id = d_w_id AND no_d_id = d_id)), \
    (SELECT count(*) FROM (SELECT 1 FROM new_order GROUP BY no_w_id, no_d_id \
        HAVING max(no_o_id) - min(no_o_id) + 1 <> count(*)) AS gaps), \
    (SELECT count(*) FROM district WHERE \
        (SELECT sum(o_ol_cnt) FROM orders WHERE o_w_id = d_w_id AND o_d_id = d_id) <> \
        (SELECT count(*) FROM order_line WHERE ol_w_id = d_w_id AND ol_d_id = d_id)), \
    (SELECT count(*) FROM history)) AS found;";

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tpcc {
    /// Clients at once.
    pub clients: u32,
    /// Warehouses.
    pub warehouses: u32,
    /// For how long.
    pub seconds: u64,
}

impl Tpcc {
    fn fill(&self, server: &Server<'_>) -> Result<()> {
        let scripts = SCRIPTS.map(|(name, text, _)| (name, text));
        for (name, text) in [("schema.sql", SCHEMA)].into_iter().chain(scripts) {
            let path = server.cluster().join(name);
            fs::write(&path, text).doing("write", &path)?;
        }
        let mut psql = server.client("psql");
        psql.args(["-X", "-q", "-v", "ON_ERROR_STOP=1"]);
        for (name, value) in self.numbers() {
            psql.arg("-v").arg(format!("{name}={value}"));
        }
        run(psql.arg("-f").arg(server.cluster().join("schema.sql"))).map(drop)
    }

    /// What scripts call by its name.
    fn numbers(&self) -> [(&'static str, u64); 4] {
        [
            ("warehouses", u64::from(self.warehouses)),
            ("items", ITEMS),
            ("customers", CUSTOMERS_A_DISTRICT),
            ("orders", ORDERS_A_DISTRICT),
        ]
    }
}

impl Job for Tpcc {
    fn file_bytes(&self) -> u64 {
        2 * (u64::from(self.warehouses) * WAREHOUSE_BYTES + CLUSTER_BYTES) + (256 << 20)
    }

    fn prepare(&self, home: &Path) -> Result<()> {
        clusters(home).make(SETTINGS, |server| self.fill(server))
    }

    fn run(&self, directory: &Path) -> Result<Outcome> {
        let postgres = Postgres::find()?;
        let server = Server::start(&postgres, &clusters(directory).used(), "", &[])?;
        // Of two that wait for each other one is rolled back, and tried again.
        let mut arguments = vec!["--max-tries=10".to_owned()];
        for (name, value) in self.numbers() {
            arguments.push(format!("--define={name}={value}"));
        }
        for (name, _, weight) in SCRIPTS {
            let script = server.cluster().join(name);
            arguments.push(format!("--file={}@{weight}", script.display()));
        }
        let done = server.pgbench(self.clients, self.seconds, &arguments)?;
        server.stop("immediate")?;
        let tally = done.tally(|script| match script {
            NEW_ORDER => Class::NewOrder,
            _ => Class::Transaction,
        });
        let count = |wanted: usize| {
            done.transactions.iter().filter(|(script, _)| *script == wanted).count() as u64
        };
        Ok(Outcome::new(&[tally], vec![count(NEW_ORDER), count(PAYMENT)], 0))
    }

    fn verify(&self, home: &Path, outcome: &Outcome) -> Result<()> {
        let payments = outcome.done.get(PAYMENT).copied().unwrap_or(0);
        let found = clusters(home).ask(CONDITIONS)?;
        let prepared = u64::from(self.warehouses) * DISTRICTS * CUSTOMERS_A_DISTRICT;
        check(&found, prepared + payments)
    }

    fn reset(&self, home: &Path, _outcome: &Outcome) -> Result<()> {
        clusters(home).copy()
    }
}

fn clusters(home: &Path) -> Clusters {
    Clusters::new(home, "tpcc")
}

/// [`Error::Different`] unless all conditions hold and the history has at least `history` rows.
fn check(found: &str, history: u64) -> Result<()> {
    let numbers: Vec<u64> = found.split(' ').filter_map(|word| word.parse().ok()).collect();
    let [broken @ .., rows] = &numbers[..] else { return Err(unclear(found)) };
    if broken.len() != 4 {
        return Err(unclear(found));
    }
    if let Some(at) = broken.iter().position(|count| *count > 0) {
        let (number, count) = (at + 1, broken[at]);
        return Err(Error::Different(format!(
            "TPC-C's consistency condition {number} does not hold, {count} times"
        )));
    }
    if *rows < history {
        return Err(Error::Different(format!(
            "TPC-C's history has {rows} rows, and {history} were committed"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::scratch::assert_different;

    #[test]
    fn a_condition_that_does_not_hold_and_lost_payments_are_found() {
        check("0 0 0 0 3007", 3007).unwrap();
        assert_different(check("0 0 2 0 3007", 3007), "condition 3");
        assert_different(check("0 0 0 0 3006", 3007), "3007 were committed");
        assert!(check("0 0 0", 0).is_err() && check("", 0).is_err());
    }

    #[test]
    fn the_mix_is_the_standards() {
        assert_eq!(SCRIPTS.iter().map(|(.., weight)| weight).sum::<u32>(), 100);
        assert!(SCRIPTS[NEW_ORDER].0.starts_with("new_order"));
        assert!(SCRIPTS[PAYMENT].0.starts_with("payment"));
    }
}
