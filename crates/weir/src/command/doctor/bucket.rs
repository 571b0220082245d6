//! Whether a bucket can be SOURCE: what `weir-bucket check` says.

use super::finding::Findings;
use crate::bucket::Bucket;

/// Looks at the bucket. Objects that it makes for that are removed again.
pub fn check(bucket: &Bucket, findings: &mut Findings) {
    const CHECK: &str = "bucket";
    let output = match bucket.check() {
        Ok(output) => output,
        Err(error) => return findings.problem(CHECK, error.to_string(), None),
    };
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        match line.split_once(char::is_whitespace) {
            Some(("ok", found)) => findings.ok(CHECK, found.trim()),
            Some((_, fault)) => findings.problem(CHECK, fault.trim(), None),
            None => {}
        }
    }
    let said = String::from_utf8_lossy(&output.stderr);
    if let Some(fault) = said.lines().last().filter(|_| !output.status.success()) {
        findings.problem(CHECK, fault.strip_prefix("weir-bucket: ").unwrap_or(fault), None);
    }
}
