//! A real mount of a temporary directory, compared with that directory underneath.
//!
//! Needs root and /dev/fuse. Without them every test is reported as skipped, with the reason; with
//! CI=true it fails. The last line has the format of Rust's own harness, so that it is counted with
//! the others. Each test has a mount of its own; one that hangs is given up, with its mount, after
//! two minutes.
//!
//! Each is run over the device, and again over io_uring where the kernel has that; it is turned on
//! meanwhile.

#![allow(clippy::unwrap_used)] // What cannot be unwrapped is a failed test.
#![allow(clippy::disallowed_methods)] // A program's system calls, on the mount and on its SOURCE.

mod attributes;
mod behind;
mod behind_ahead;
mod behind_home;
mod behind_listings;
mod behind_nameless;
mod behind_permissions;
mod data;
mod directories;
mod faults;
mod fixture;
mod lane;
mod names;
mod privileges;
mod space;
mod transport;

use std::panic::catch_unwind;
use std::process::ExitCode;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

/// A test and its name.
type Test = (&'static str, fn());

/// Longer than any test takes on a slow machine.
const TEST_TIME_MAX: Duration = Duration::from_secs(120);

fn main() -> ExitCode {
    let mut tests: Vec<Test> = Vec::new();
    for group in [
        attributes::TESTS,
        behind::TESTS,
        behind_ahead::TESTS,
        behind_home::TESTS,
        behind_listings::TESTS,
        behind_nameless::TESTS,
        behind_permissions::TESTS,
        data::TESTS,
        directories::TESTS,
        faults::TESTS,
        lane::TESTS,
        names::TESTS,
        privileges::TESTS,
        space::TESTS,
        transport::TESTS,
    ] {
        tests.extend_from_slice(group);
    }
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    tests.retain(|(name, _)| wanted.is_empty() || wanted.iter().any(|word| name.contains(word)));
    if let Some(reason) = fixture::why_impossible() {
        for (name, _) in &tests {
            println!("test {name} ... skipped: {reason}");
        }
        let is_failure = std::env::var("CI").as_deref() == Ok("true");
        return end(0, if is_failure { tests.len() } else { 0 }, tests.len());
    }
    let (mut passed, mut failed) = (0, Vec::new());
    for transport in transport::all() {
        let _on = transport::choose(transport);
        for test in &tests {
            match run(test, transport.name()) {
                true => passed += 1,
                false => failed.push(test.0),
            }
        }
    }
    if !failed.is_empty() {
        println!("\nfailed: {}", failed.join(" "));
    }
    end(passed, failed.len(), 0)
}

/// Prints the line that `tests/run` counts by.
fn end(passed: usize, failed: usize, skipped: usize) -> ExitCode {
    let (verdict, code) =
        if failed == 0 { ("ok", ExitCode::SUCCESS) } else { ("FAILED", ExitCode::FAILURE) };
    let ignored = if failed == 0 { skipped } else { 0 };
    println!("\ntest result: {verdict}. {passed} passed; {failed} failed; {ignored} ignored");
    code
}

fn run(&(name, test): &Test, transport: &str) -> bool {
    let started = Instant::now();
    let (sender, receiver) = channel();
    thread::spawn(move || sender.send(catch_unwind(test).is_ok()));
    let passed = receiver.recv_timeout(TEST_TIME_MAX);
    let verdict = match passed {
        Ok(true) => "ok",
        Ok(false) => "FAILED",
        Err(_) => "FAILED (hangs)",
    };
    println!("test {name} over {transport} ... {verdict} ({} ms)", started.elapsed().as_millis());
    if passed.is_err() {
        fixture::abandon_all();
    }
    passed == Ok(true)
}
