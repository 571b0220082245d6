//! Whether a bucket can be used: credentials, conditional writes, copies of parts, listings, the clock. `weir-bucket check`.

use std::time::SystemTime;

use crate::metadata::Properties;
use crate::store::{Condition, Store, StoreError, list_all};

/// One thing that was looked at.
pub struct Finding {
    /// What.
    pub what: &'static str,
    /// Why it is not as it should be.
    pub fault: Option<String>,
}

/// Clocks may differ by this; the store refuses requests from 15 minutes on.
const SKEW_MAX_S: u64 = 5 * 60;
const PART: usize = 5 << 20;

/// Looks at everything; what follows a fault that it needs is left out. Leaves nothing in the bucket.
pub fn check(store: &dyn Store, prefix: &str) -> Vec<Finding> {
    let key = format!("{prefix}.weir-check-{}", std::process::id());
    let mut findings = Vec::new();
    let mut note = |what: &'static str, result: Result<(), String>| {
        let is_good = result.is_ok();
        findings.push(Finding { what, fault: result.err() });
        is_good
    };
    let said = |error: StoreError| error.to_string();
    if note("the bucket can be listed", store.list(prefix, true, None).map(drop).map_err(said)) {
        let put = store.put(&key, b"weir".to_vec(), &Properties::default(), &Condition::None);
        if note("objects can be written", put.map(drop).map_err(said)) {
            note("objects can be read", read(store, &key).map_err(said));
            note("writes keep to If-None-Match and If-Match", conditions(store, &key));
            note("parts of objects can be copied", parts(store, &key));
            note("the clock is right", clock(store, &key));
            let shown = listed(store, &key);
            if note("objects can be removed", store.delete(&key).map_err(said)) {
                note("listings are up to date", shown.and_then(|()| listed(store, &key)));
            }
        }
    }
    findings
}

fn read(store: &dyn Store, key: &str) -> Result<(), StoreError> {
    let head = store.head(key)?;
    store.get(key, 1..3, &head.etag).map(drop)
}

fn conditions(store: &dyn Store, key: &str) -> Result<(), String> {
    let wrong = Condition::Etag("\"00000000000000000000000000000000\"".into());
    for (condition, name) in [(Condition::Absent, "If-None-Match"), (wrong, "If-Match")] {
        match store.put(key, b"weir".to_vec(), &Properties::default(), &condition) {
            Err(StoreError::Changed(_)) => {}
            Ok(_) => {
                return Err(format!(
                    "{name} is ignored: mount with --unfenced if nobody else writes there"
                ));
            }
            Err(error) => return Err(format!("{name}: {error}")),
        }
    }
    Ok(())
}

fn parts(store: &dyn Store, key: &str) -> Result<(), String> {
    let large = store.put(key, vec![b'w'; PART], &Properties::default(), &Condition::None);
    let etag = large.map_err(|error| error.to_string())?;
    let begun = store.begin(key, &Properties::default()).map_err(|error| error.to_string())?;
    let upload = begun.upload;
    let made = (|| {
        let first = store.copy_part(key, &upload, 1, key, &etag, 0..PART as u64)?;
        let second = store.upload_part(key, &upload, 2, b"eir".to_vec())?;
        let parts = [(1, first), (2, second)];
        let made = store.complete(key, &upload, &parts, &Condition::Etag(etag.clone()))?;
        Ok::<_, StoreError>(made.etag)
    })();
    if made.is_err() {
        // The first fault is the one to tell.
        let _ = store.abort(key, &upload);
    }
    let etag = made.map_err(|error| error.to_string())?;
    let bytes = store.get(key, PART as u64 - 1..PART as u64 + 3, &etag);
    match bytes.map_err(|error| error.to_string())?.as_slice() {
        b"weir" => Ok(()),
        other => Err(format!("the object has other bytes than its parts: {other:?}")),
    }
}

/// Whether a listing has the object that is there now, or none if none is.
fn listed(store: &dyn Store, key: &str) -> Result<(), String> {
    let etag = match store.head(key) {
        Ok(head) => Some(head.etag),
        Err(StoreError::NotFound(_)) => None,
        Err(error) => return Err(error.to_string()),
    };
    let page = list_all(store, key, false).map_err(|error| error.to_string())?;
    let found = page.objects.into_iter().find(|object| object.key == key);
    if found.map(|object| object.etag) == etag {
        return Ok(());
    }
    Err("they lag behind what was written or removed: names would be missing or come back, and a directory that is \
         renamed could leave objects behind"
        .into())
}

fn clock(store: &dyn Store, key: &str) -> Result<(), String> {
    let head = store.head(key).map_err(|error| error.to_string())?;
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let skew = since.as_secs().abs_diff(head.modified.seconds.unsigned_abs());
    if skew > SKEW_MAX_S {
        return Err(format!("it differs from the store's by {skew} s: set it, for example by NTP"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Memory;

    #[test]
    fn nothing_stays_in_the_bucket() {
        let store = Memory::new(PART);
        let findings = check(&store, "p/");
        let faults: Vec<_> = findings.iter().filter(|finding| finding.fault.is_some()).collect();
        // The time of the store in memory stands still.
        assert_eq!(
            faults.iter().map(|finding| finding.what).collect::<Vec<_>>(),
            ["the clock is right"]
        );
        assert!(store.objects().is_empty() && store.open_uploads() == 0);
    }

    #[test]
    fn listings_that_lag_behind_are_found() {
        let store = Memory::new(PART);
        store.list_late(1);
        let findings = check(&store, "p/");
        let of_listings = findings.iter().find(|finding| finding.what.contains("listings"));
        assert!(of_listings.unwrap().fault.as_ref().unwrap().contains("lag behind"));
    }
}
