//! What the front of `weir run --sync external` is told by the process that has the program, and the report of a session.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;

use serde::{Deserialize, Serialize};
use weir_session::{Counts, Event, Failure};

use crate::control::protocol;
use crate::run::group_name::Name;
use crate::run::outcome::status_code;

/// What the front is told, a line of JSON each.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Message {
    Started { process: u32 },
    NoFence { errno: i32 },
    CannotBegin { why: String },
    CannotRun { errno: i32 },
    Ended { status: i32, report: Box<Report> },
    Failed { message: String },
}

/// What a session did, for `--report`.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Report {
    weir_version: String,
    command: Vec<String>,
    exit_status: u8,
    stopped_calls: u64,
    promises: u64,
    syncs_committed: u64,
    commits: Commits,
    waits: Waits,
    syncs_done_at_once: Vec<String>,
    /// All but the command and its status are of this group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    group: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Commits {
    for_output: u64,
    for_judging: u64,
    by_time: u64,
    at_end: u64,
    for_outsiders: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct Waits {
    count: u64,
    by_call: BTreeMap<String, u64>,
    p50_us: u64,
    p99_us: u64,
    max_us: u64,
}

/// The front, for the process that has the program.
pub(super) struct Front(UnixStream);

impl Front {
    pub(super) fn new(connection: UnixStream) -> Front {
        Front(connection)
    }

    pub(super) fn tell(&self, message: &Message) {
        // If the front was killed, nobody listens.
        let _ = protocol::send(&self.0, message);
    }
}

impl Message {
    pub(super) fn of(event: Event, command: &[String], group: Option<&Name>) -> Message {
        let number = |error: &io::Error| error.raw_os_error().unwrap_or(libc::EIO);
        match event {
            Event::Started(process) => Message::Started { process },
            Event::NoFence(error) => Message::NoFence { errno: number(&error) },
            Event::CannotBegin(why) => Message::CannotBegin { why },
            Event::CannotRun(error) => Message::CannotRun { errno: number(&error) },
            Event::Ended { status, counts, fallbacks } => Message::Ended {
                status: status.into_raw(),
                report: Box::new(Report::new(
                    command,
                    status_code(status),
                    &counts,
                    fallbacks,
                    group,
                )),
            },
            Event::Failed { mount, failure } => {
                let path = mount.path.display();
                let message = match failure {
                    Failure::Commit(error) => format!(
                        "what was synced on {path} cannot be made durable ({error}), and the session was killed: nothing has left it \
                         since; what was synced before the last output is durable"
                    ),
                    Failure::DaemonDied => format!(
                        "the daemon of {path} has died, or was ended by force, and the session was killed: what was synced before the last output is \
                         durable, what was synced since may be lost"
                    ),
                };
                Message::Failed { message }
            }
        }
    }
}

impl Report {
    pub(super) fn new(
        command: &[String],
        exit_status: u8,
        counts: &Counts,
        fallbacks: Vec<String>,
        group: Option<&Name>,
    ) -> Report {
        let waits = &counts.waits;
        Report {
            weir_version: env!("CARGO_PKG_VERSION").to_owned(),
            command: command.to_vec(),
            exit_status,
            stopped_calls: counts.calls,
            promises: counts.promises,
            syncs_committed: counts.commits.by_syncs,
            commits: Commits {
                for_output: counts.commits.for_output,
                for_judging: counts.commits.for_judging,
                by_time: counts.commits.by_time,
                at_end: counts.commits.at_end,
                for_outsiders: counts.commits.for_outsiders,
            },
            waits: Waits {
                count: waits.count(),
                by_call: counts.waited.clone(),
                p50_us: waits.percentile_us(50),
                p99_us: waits.percentile_us(99),
                max_us: waits.longest_us(),
            },
            syncs_done_at_once: fallbacks,
            group: group.map(ToString::to_string),
        }
    }

    /// The same of another program.
    pub(super) fn of_program(self, command: &[String], exit_status: u8) -> Report {
        Report { command: command.to_vec(), exit_status, ..self }
    }

    pub(super) fn text(&self, is_json: bool) -> String {
        if is_json {
            return serde_json::to_string_pretty(self).expect("plain structures") + "\n";
        }
        let Report { promises, syncs_committed, commits, waits, .. } = self;
        let mut text = format!(
            "weir run: {} (status {})\n  {promises} syncs returned at once, {syncs_committed} were commits, since output follows each\n  \
             {} other commits: {} for output, {} so that fewer calls are judged, {} after 5 s, {} at the end, {} for programs outside\n  \
             {} calls were stopped\n  {} calls waited for a commit: half of them up to {} µs, 99 % up to {}, the longest {}\n",
            self.command.join(" "),
            self.exit_status,
            commits.for_output
                + commits.for_judging
                + commits.by_time
                + commits.at_end
                + commits.for_outsiders,
            commits.for_output,
            commits.for_judging,
            commits.by_time,
            commits.at_end,
            commits.for_outsiders,
            self.stopped_calls,
            waits.count,
            waits.p50_us,
            waits.p99_us,
            waits.max_us,
        );
        let by_call = waits.by_call.iter().map(|(what, count)| format!("{count} {what}"));
        if !waits.by_call.is_empty() {
            text.push_str(&format!("  of these: {}\n", by_call.collect::<Vec<_>>().join("; ")));
        }
        for reason in &self.syncs_done_at_once {
            text.push_str(&format!("  syncs were done at once: {reason}\n"));
        }
        if let Some(group) = &self.group {
            text.push_str(&format!(
                "  these counts are of all programs of group {group} until now\n"
            ));
        }
        text
    }
}
