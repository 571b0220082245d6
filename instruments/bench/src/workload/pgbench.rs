//! PostgreSQL's own benchmark, pgbench, with fsync as it is by default: transactions like those of
//! TPC-B by some clients for a time.
//!
//! A cluster is prepared once and copied for each run. In a run the server is started, every page of the
//! accounts read once, pgbench run, and the server stopped without a checkpoint, as by a crash. So what
//! is verified is what the write-ahead log holds: that the sums of all balances and of the history are
//! equal, and that each transaction that pgbench saw committed is in the history.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::mount::run;
use crate::workload::job::Job;
use crate::workload::outcome::{Class, Outcome};
use crate::workload::postgres::{CLUSTER_BYTES, Clusters, Postgres, Server, unclear};

/// A step of pgbench's scale, bytes: 100,000 accounts and their index.
const SCALE_BYTES: u64 = 15 << 20;

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pgbench {
    /// Clients at once.
    pub clients: u32,
    /// pgbench's scale: the number of branches, each with 100,000 accounts.
    pub scale: u32,
    /// For how long.
    pub seconds: u64,
    /// The command that the server is run by; empty: itself.
    pub server_under: Vec<String>,
}

impl Job for Pgbench {
    fn file_bytes(&self) -> u64 {
        2 * (u64::from(self.scale) * SCALE_BYTES + CLUSTER_BYTES)
    }

    fn prepare(&self, home: &Path) -> Result<()> {
        let scale = self.scale.to_string();
        clusters(home).make("", |server| {
            run(server.client("pgbench").args(["--initialize", "--quiet", "--scale", &scale]))
                .map(drop)
        })
    }

    fn run(&self, directory: &Path) -> Result<Outcome> {
        let postgres = Postgres::find()?;
        let cluster = clusters(directory).used();
        let server = Server::start(&postgres, &cluster, "", &self.server_under)?;
        for warm in [
            "SELECT sum(abalance) FROM pgbench_accounts",
            "SET enable_seqscan = off; SELECT count(*) FROM pgbench_accounts WHERE aid > 0",
        ] {
            run(server.client("psql").args(["-X", "-q", "-A", "-t", "-c", warm]))?;
        }
        let done = server.pgbench(self.clients, self.seconds, &[])?;
        server.stop("immediate")?;
        let tally = done.tally(|_| Class::Transaction);
        Ok(Outcome::new(&[tally], vec![done.transactions.len() as u64], 0))
    }

    fn verify(&self, home: &Path, outcome: &Outcome) -> Result<()> {
        let found = clusters(home).ask(
            "SELECT concat_ws(' ', (SELECT count(*) FROM pgbench_history), \
             (SELECT coalesce(sum(delta), 0) FROM pgbench_history), \
             (SELECT sum(abalance) FROM pgbench_accounts), \
             (SELECT sum(tbalance) FROM pgbench_tellers), \
             (SELECT sum(bbalance) FROM pgbench_branches)) AS found;",
        )?;
        check(&found, outcome.done.iter().sum())
    }

    fn reset(&self, home: &Path, _outcome: &Outcome) -> Result<()> {
        clusters(home).copy()
    }
}

fn clusters(home: &Path) -> Clusters {
    Clusters::new(home, "pgbench")
}

/// [`Error::Different`] unless the four sums that the history and the balances come to are equal, and
/// at least `committed` transactions are in the history.
fn check(found: &str, committed: u64) -> Result<()> {
    let numbers: Vec<i64> = found.split(' ').filter_map(|word| word.parse().ok()).collect();
    match numbers[..] {
        [count, delta, accounts, tellers, branches] => {
            if [accounts, tellers, branches] != [delta; 3] {
                return Err(Error::Different(format!(
                    "pgbench's history comes to {delta}, its accounts to {accounts}, its tellers to \
                     {tellers} and its branches to {branches}"
                )));
            }
            if (count as u64) < committed {
                return Err(Error::Different(format!(
                    "{committed} transactions of pgbench were committed and {count} are there"
                )));
            }
            Ok(())
        }
        _ => Err(unclear(found)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::scratch::assert_different;

    #[test]
    fn sums_that_differ_and_lost_transactions_are_found() {
        check("12 -50 -50 -50 -50", 12).unwrap();
        check("13 7 7 7 7", 12).unwrap();
        assert_different(check("12 7 7 7 8", 12), "its branches to 8");
        assert_different(check("11 7 7 7 7", 12), "11 are there");
        assert!(check("", 0).is_err() && check("1 2", 0).is_err());
    }
}
