//! What the demo tells the person watching: one screen, and no figure without what it means.

use std::fs::Metadata;
use std::io;
use std::time::Duration;

use super::comparison::{Comparison, Session, Side};
use super::sqlite::{INSERTS, UPDATES};
use crate::error::Error;
use crate::measure::{show_count, show_us};

/// Before anything is measured.
pub fn introduction(file_bytes: u64, database: io::Result<Metadata>, took: Duration) {
    let database_mib = database.map_or(0, |metadata| metadata.len() >> 20);
    println!(
        "Weir demo\n\
         \n\
         A program that writes a few bytes into a page that is not in memory has to wait until the\n\
         kernel has read that page. Through Weir it does not: Weir keeps the bytes as a patch, lets\n\
         the program go on, and brings page and patch together later.\n\
         \n\
         Two directories on one disk, with equal files, none of it in memory: {} MiB of records\n\
         and a SQLite database of {database_mib} MiB (made in {:.0} s). Programs use one directly, \
         the other\n\
         through 'weir mount'. The sides take turns.",
        file_bytes >> 20,
        took.as_secs_f64(),
    );
}

fn head(title: &str) {
    println!("\n{title}\n  {:<46}{:>12}{:>14}", "", "directly", "through Weir");
}

fn row(name: &str, straight: String, through: String, note: &str) {
    println!("  {name:<46}{straight:>12}{through:>14}   {note}");
}

fn times(straight: f64, through: f64) -> String {
    if through <= straight {
        format!("{:.1} times faster", straight / through.max(1e-9))
    } else {
        format!("{:.1} times slower", through / straight.max(1e-9))
    }
}

fn latencies(operation: &str, straight: &Side, through: &Side) {
    let (left, right) = (straight.operations.summary(), through.operations.summary());
    let latency = |name: String, left: f64, right: f64| {
        row(&name, show_us(left), show_us(right), &times(left, right));
    };
    latency(format!("{operation}, median"), left.median_us, right.median_us);
    latency(format!("{operation}, 99th percentile"), left.p99_us, right.p99_us);
    row(
        &format!("{operation}s per second"),
        show_count(left.per_second as u64),
        show_count(right.per_second as u64),
        "",
    );
}

/// After the update program.
pub fn updates(comparison: &Comparison) {
    let (straight, through) = (&comparison.straight, &comparison.through);
    head(&format!(
        "Update program: {} small writes a side, each page met for the first time",
        show_count(straight.operations.summary().count)
    ));
    latencies("write", straight, through);
    row(
        "page fetches the writer waited for",
        show_count(straight.waited),
        show_count(comparison.blocked),
        "",
    );
    row("page fetches that were never needed", "-".into(), show_count(through.avoided), "");
    row(
        "fsync after each round, median",
        show_us(straight.sync_us()),
        show_us(through.sync_us()),
        "the fetches put off are paid here",
    );
    let (left, right) = (straight.round_us(), through.round_us());
    row("a round's writes and its fsync", show_us(left), show_us(right), &times(left, right));
}

/// After SQLite with its journal in memory.
pub fn sqlite(comparison: &Comparison, transactions: u64) {
    let (straight, through) = (&comparison.straight, &comparison.through);
    head(&format!(
        "SQLite, journal in memory: {} transactions a side of {UPDATES} random UPDATEs, {INSERTS} INSERTs",
        show_count(transactions),
    ));
    latencies("transaction", straight, through);
    row(
        "page fetches SQLite waited for",
        show_count(straight.waited),
        show_count(through.waited),
        "it reads a row before changing it",
    );
    row("page fetches that were never needed", "-".into(), show_count(through.avoided), "so far");
    if is_slower(comparison) {
        println!(
            "  Slower here: each call of a transaction is a trip through FUSE. See docs/RESULTS.md."
        );
    }
}

fn is_slower(comparison: &Comparison) -> bool {
    let median_us = |side: &Side| side.operations.summary().median_us;
    median_us(&comparison.through) > median_us(&comparison.straight)
}

/// After SQLite with a write-ahead log.
pub fn sqlite_write_ahead(comparison: &Comparison) {
    let (straight, through) = (&comparison.straight, &comparison.through);
    head(
        "The same with a write-ahead log: many small appends, each a trip through FUSE, and fsync",
    );
    latencies("transaction", straight, through);
    if is_slower(comparison) {
        println!("  Slower here, too.");
    }
}

/// After the second scene; `unmounting` is how long the server took to get the rest, and `files` what it has then.
pub fn network(
    made: &Comparison,
    saved: &Comparison,
    round_trip: Duration,
    unmounting: Duration,
    files: usize,
) {
    head(&format!(
        "A directory behind a network: sshfs with a round trip of {}",
        show_us(round_trip.as_secs_f64() * 1e6)
    ));
    for (operation, of) in [("new file", made), ("saved file", saved)] {
        let (left, right) = (&of.straight.operations.summary(), &of.through.operations.summary());
        let name = format!("{operation}, median");
        row(
            &name,
            show_us(left.median_us),
            show_us(right.median_us),
            &times(left.median_us, right.median_us),
        );
    }
    println!(
        "  A saved file is written under another name, synced, and renamed. Weir's sync is durable on this\n  \
         machine; the server gets files and names in the background, the rest of them at the unmount\n  \
         ({:.1} s). The server has the same {files} files from both sides.",
        unmounting.as_secs_f64()
    );
}

/// In the place of the second scene.
pub fn no_network(why: &Error) {
    println!("\nThe second scene, a directory behind a network, is left out: {why}");
}

/// After the third scene.
pub fn session(figures: &Session) {
    head(&format!(
        "A session: SQLite adds {} rows, each synced, and prints a line after each",
        show_count(figures.rows)
    ));
    let note = times(1.0 / figures.straight, 1.0 / figures.session);
    let per_second = |rows: f64| show_count(rows as u64);
    row("rows per second", per_second(figures.straight), per_second(figures.session), &note);
    row("syncs that the program waited for", show_count(figures.syncs), "0".into(), "");
    row("commits that a line waited for", "-".into(), show_count(figures.commits), "");
    println!(
        "  Under 'weir run --sync external' a sync returns at once, and a printed line waits until all that was synced\n  \
         before it is durable."
    );
    if figures.session < figures.straight {
        println!(
            "  Slower here: this disk syncs sooner than calls go through a session. See docs/results/sync.md."
        );
    }
    println!(
        "  Then the daemon was killed (kill -9) in the middle of it, and SOURCE recovered. All {} lines that were\n  \
         printed are in the database, which has {} rows.",
        show_count(figures.printed),
        show_count(figures.kept)
    );
}

/// In the place of the third scene.
pub fn no_session(why: &Error) {
    println!("\nThe third scene, a program that syncs in a session, is left out: {why}");
}

/// After the comparison.
pub fn verdict(compared: u64, took: Duration) {
    println!(
        "\nUnmounted. {} MiB compared with what was written, straight from the directories: every \
         byte is\nthere, SQLite finds its databases sound, and they are equal. ({:.0} s in all.)",
        compared >> 20,
        took.as_secs_f64()
    );
}
