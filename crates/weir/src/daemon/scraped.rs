//! `--metrics ADDR`: the daemon's metrics over HTTP.
//!
//! Owns what was said last. Does not touch the mount: the figures are those of the status, from memory.
//!
//! Invariants: clients make the daemon collect its figures at most once in [`FRESH`]; the end of the mount does not wait for
//! them.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::account::Account;
use crate::http::{Hosts, Listener, Response, Serving, is_local};
use crate::metrics::{self, CONTENT_TYPE};

/// How long figures are told again.
const FRESH: Duration = Duration::from_millis(200);

/// Where the metrics are.
const PATH: &str = "/metrics";

/// Serves the metrics at the address, if there is one.
///
/// # Errors
/// Those of starting a thread.
pub fn start(listener: Option<Listener>, account: Arc<Account>) -> io::Result<Option<Serving>> {
    let Some(listener) = listener else { return Ok(None) };
    // On other addresses machines go by their names.
    let hosts = match is_local(listener.address()) {
        true => Hosts::AddressesOnly,
        false => Hosts::Any,
    };
    tracing::info!("metrics are at http://{}{PATH}", listener.address());
    let mut said = Said { account, last: None };
    listener.start("metrics", hosts, move |request| said.answer(request.path)).map(Some)
}

/// What is said, and when.
struct Said {
    account: Arc<Account>,
    last: Option<(Instant, String)>,
}

impl Said {
    fn answer(&mut self, path: &str) -> Response {
        match path {
            PATH => Response::new(200, CONTENT_TYPE, self.metrics()),
            "/" => {
                let text = format!("Metrics of a weir mount for Prometheus: {PATH}\n");
                Response::new(200, "text/plain; charset=utf-8", text)
            }
            _ => Response::not_found(),
        }
    }

    fn metrics(&mut self) -> String {
        let fresh = self.last.take().filter(|(at, _)| at.elapsed() < FRESH);
        let collect = || (Instant::now(), metrics::render(&[self.account.status()], &[]));
        let (at, text) = fresh.unwrap_or_else(collect);
        self.last = Some((at, text.clone()));
        text
    }
}
