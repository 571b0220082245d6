//! One writer a prefix: a lease, which is an object made and renewed by conditional PUTs.
//!
//! Clocks are not compared. Whoever finds another's lease watches it for as long as it is valid; if it is not renewed
//! meanwhile, it is taken over. A lease of the same state directory is taken over at once: the directory is locked, so
//! its program is gone. Who could not renew for as long as the lease is valid changes nothing any more, until a
//! renewal shows that nobody took it. That the time is over is looked up before each change ([`Metered::is_fenced`]): the renewal
//! itself may be waiting for an answer.
//!
//! A store that ignores the conditions cannot keep two writers apart: it is found out when the lease is taken.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::metadata::Properties;
use crate::store::{Condition, Metered, Store, StoreError};

/// The lease's key below the prefix.
pub const KEY: &str = ".weir-lease";
/// How long a lease is valid that is not renewed.
pub const VALID: Duration = Duration::from_secs(30);
/// Attempts of one renewal.
const RENEWALS_MAX: u32 = 4;

/// What the object says.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Holder {
    /// The state directory's identity.
    owner: String,
    /// For people.
    host: String,
    pid: u32,
    valid_s: u64,
    /// Makes each renewal another object.
    renewed: u64,
}

/// Why there is no lease.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    /// Another writer renews it.
    #[error(
        "{prefix} is in use by another writer, process {pid} on {host}: end that one, or use another prefix"
    )]
    Held {
        /// Which prefix.
        prefix: String,
        /// Where the other is.
        host: String,
        /// Its process there.
        pid: u32,
    },
    /// The store ignores conditions.
    #[error(
        "the store ignores the conditions of writes (If-Match, If-None-Match), so that two writers cannot be kept apart: \
         give --unfenced if nobody else writes to this prefix"
    )]
    Unconditional,
    /// The store does not answer as it should.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A lease that is held.
pub struct Lease {
    key: String,
    holder: Holder,
    etag: String,
    /// It is valid from then on.
    since: Instant,
}

fn body(holder: &Holder) -> Vec<u8> {
    serde_json::to_vec(holder).expect("texts and numbers are JSON")
}

impl Lease {
    /// Takes the lease of a prefix. Another's is watched for up to `valid`.
    pub fn take(
        store: &dyn Store,
        prefix: &str,
        owner: &str,
        valid: Duration,
    ) -> Result<Lease, LeaseError> {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let mut lease = Lease {
            key: format!("{prefix}{KEY}"),
            holder: Holder {
                owner: owner.to_owned(),
                host: host.trim().to_owned(),
                pid: std::process::id(),
                valid_s: valid.as_secs(),
                renewed: u64::from(std::process::id()) << 32,
            },
            etag: String::new(),
            since: Instant::now(),
        };
        let begun = Instant::now();
        let mut watched: Option<(String, Instant)> = None;
        loop {
            match lease.put(store, &Condition::Absent) {
                Ok(()) => break,
                Err(StoreError::Changed(_)) => {}
                Err(error) => return Err(error.into()),
            }
            let Some((etag, other)) = lease.look(store)? else { continue };
            let since = match &watched {
                Some((seen, since)) if *seen == etag => *since,
                Some(_) if other.owner != owner => {
                    return Err(LeaseError::Held {
                        prefix: prefix.to_owned(),
                        host: other.host,
                        pid: other.pid,
                    });
                }
                _ => {
                    watched = Some((etag.clone(), Instant::now()));
                    Instant::now()
                }
            };
            let other_valid =
                Duration::from_secs(other.valid_s).clamp(Duration::from_secs(1), 4 * VALID);
            if other.owner == owner || since.elapsed() >= other_valid {
                match lease.put(store, &Condition::Etag(etag)) {
                    Ok(()) => break,
                    Err(StoreError::Changed(_) | StoreError::NotFound(_)) => continue,
                    Err(error) => return Err(error.into()),
                }
            }
            if begun.elapsed() > other_valid + Duration::from_secs(5) {
                return Err(LeaseError::Held {
                    prefix: prefix.to_owned(),
                    host: other.host,
                    pid: other.pid,
                });
            }
            std::thread::sleep(Duration::from_millis(500));
        }
        match lease.conditions_are_kept(store)? {
            true => Ok(lease),
            false => Err(LeaseError::Unconditional),
        }
    }

    /// Whether the store refuses what it should.
    fn conditions_are_kept(&mut self, store: &dyn Store) -> Result<bool, StoreError> {
        let other = "\"00000000000000000000000000000000\"".to_owned();
        for condition in [Condition::Absent, Condition::Etag(other)] {
            match store.put(&self.key, body(&self.holder), &Properties::default(), &condition) {
                Err(StoreError::Changed(_)) => {}
                Ok(_) => return Ok(false),
                Err(StoreError::Refused(_)) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Writes the lease.
    fn put(&mut self, store: &dyn Store, condition: &Condition) -> Result<(), StoreError> {
        self.holder.renewed += 1;
        let begun = Instant::now();
        self.etag = store.put(&self.key, body(&self.holder), &Properties::default(), condition)?;
        self.since = begun;
        Ok(())
    }

    /// The lease that is there.
    fn look(&self, store: &dyn Store) -> Result<Option<(String, Holder)>, StoreError> {
        let head = match store.head(&self.key) {
            Ok(head) => head,
            Err(StoreError::NotFound(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let bytes = match store.get(&self.key, 0..head.size, &head.etag) {
            Ok(bytes) => bytes,
            Err(StoreError::NotFound(_) | StoreError::Changed(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let unreadable = Holder {
            owner: String::new(),
            host: "an unknown machine".into(),
            pid: 0,
            valid_s: VALID.as_secs(),
            renewed: 0,
        };
        Ok(Some((head.etag, serde_json::from_slice(&bytes).unwrap_or(unreadable))))
    }

    /// Renews it. If the object is not as it was written last, it says whose lease it is. If it is this one's, an earlier renewal was
    /// done and its answer was lost. Others have counted the time since then, so the lease is renewed again.
    pub fn renew(&mut self, store: &dyn Store) -> Result<(), StoreError> {
        for _ in 0..RENEWALS_MAX {
            let etag = Condition::Etag(self.etag.clone());
            match self.put(store, &etag) {
                Err(StoreError::Changed(_)) => {}
                Err(StoreError::NotFound(_)) => return Err(StoreError::Fenced),
                other => return other,
            }
            match self.look(store)? {
                Some((etag, other))
                    if other.owner == self.holder.owner && other.pid == self.holder.pid =>
                {
                    self.etag = etag;
                }
                _ => return Err(StoreError::Fenced),
            }
        }
        Err(StoreError::Failed(format!("the store refuses each renewal of {}", self.key)))
    }

    /// Gives it back. `store` is not asked if the lease was lost.
    pub fn give_back(&self, store: &dyn Store) {
        // Otherwise the next owner waits until the lease has run out.
        let _ = store.delete(&self.key);
    }
}

/// Renews a lease until it is stopped.
pub struct Renewal {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Lease>,
    store: Arc<Metered>,
}

impl Renewal {
    /// Begins to renew.
    pub fn start(mut lease: Lease, store: Arc<Metered>, valid: Duration) -> Renewal {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, metered) = (stop.clone(), store.clone());
        metered.fence().valid_until(lease.since + valid);
        let thread = std::thread::spawn(move || {
            let mut next = lease.since + valid / 3;
            let mut is_said = false;
            while !stopped.load(Relaxed) {
                std::thread::sleep(Duration::from_millis(100));
                if Instant::now() >= next {
                    match lease.renew(metered.unfenced()) {
                        Ok(()) => {
                            metered.fence().valid_until(lease.since + valid);
                            if std::mem::take(&mut is_said) {
                                eprintln!(
                                    "weir-bucket: the lease is renewed, nobody else took it: it goes on"
                                );
                            }
                            next = lease.since + valid / 3;
                        }
                        Err(StoreError::Fenced) => {
                            metered.fence().lose();
                            eprintln!(
                                "weir-bucket: another writer took the prefix over: nothing is changed any more, and all \
                                 changes fail with EIO. End the other, unmount, and mount again"
                            );
                            return lease;
                        }
                        Err(error) => {
                            next = Instant::now() + Duration::from_secs(1);
                            eprintln!("weir-bucket: the lease is not renewed: {error}");
                        }
                    }
                }
                if metered.is_fenced() && !std::mem::replace(&mut is_said, true) {
                    eprintln!(
                        "weir-bucket: the lease has expired, since the store does not answer: changes fail with EIO \
                         until it is renewed"
                    );
                }
            }
            lease
        });
        Renewal { stop, thread, store }
    }

    /// Stops, and gives the lease back if it is held.
    pub fn end(self) {
        self.stop.store(true, Relaxed);
        if let Ok(lease) = self.thread.join()
            && !self.store.is_fenced()
        {
            lease.give_back(self.store.unfenced());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Memory;

    const SHORT: Duration = Duration::from_secs(1);

    #[test]
    fn one_at_a_time() {
        let store = Memory::new(1);
        let mut first = Lease::take(&store, "p/", "one", SHORT).unwrap();
        // The same state directory, after a crash: at once.
        let mut again = Lease::take(&store, "p/", "one", SHORT).unwrap();
        again.holder.pid += 1;
        again.renew(&store).unwrap();
        assert_eq!(first.renew(&store), Err(StoreError::Fenced));
        // Another one, when it is not renewed.
        let begun = Instant::now();
        let other = Lease::take(&store, "p/", "two", SHORT).unwrap();
        assert!(begun.elapsed() >= SHORT);
        assert_eq!(again.renew(&store), Err(StoreError::Fenced));
        other.give_back(&store);
        assert!(store.objects().is_empty());
    }

    #[test]
    fn a_lost_answer_is_no_lost_lease() {
        let store = Memory::new(1);
        let mut lease = Lease::take(&store, "", "one", SHORT).unwrap();
        let mut first = true;
        store.fail(move |_, _| std::mem::take(&mut first).then_some(crate::store::Failure::After));
        assert!(lease.renew(&store).is_err());
        let before = store.objects();
        lease.renew(&store).unwrap();
        // Others count from this renewal, not from the one whose answer was lost.
        assert_ne!(store.objects(), before);
    }

    #[test]
    fn a_renewal_that_waits_fences() {
        let memory = Arc::new(Memory::new(1));
        let store: Arc<dyn Store> = memory.clone();
        let metered = Arc::new(Metered::new(store.clone(), None, Arc::default()));
        let lease = Lease::take(&*store, "", "one", SHORT).unwrap();
        memory.fail(move |_, _| Some(crate::store::Failure::Late(3 * SHORT)));
        let renewal = Renewal::start(lease, metered.clone(), SHORT);
        std::thread::sleep(SHORT + SHORT / 2);
        assert!(metered.is_fenced());
        memory.fail(|_, _| None);
        renewal.end();
    }

    #[test]
    fn a_lease_that_is_renewed_is_not_taken() {
        let store: Arc<dyn Store> = Arc::new(Memory::new(1));
        let metered = Arc::new(Metered::new(store.clone(), None, Arc::default()));
        let lease = Lease::take(&*store, "", "one", SHORT).unwrap();
        let renewal = Renewal::start(lease, metered, SHORT);
        let taken = Lease::take(&*store, "", "two", SHORT);
        assert!(matches!(taken, Err(LeaseError::Held { .. })));
        renewal.end();
        Lease::take(&*store, "", "two", SHORT).unwrap();
    }
}
