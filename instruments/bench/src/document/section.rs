//! The part of docs/RESULTS.md that is made from a run: what was measured, how, and beside it what
//! the paper says.

use serde_json::Value;

use super::markdown::{escape, wrapped};
use super::paper::beside;
use super::tables::{at_a_glance, bounds, disks, in_full, latencies, of_goals, slower_cases};
use crate::measure::show_count;
use crate::nbw::names::{BASELINE, DEFAULT, bytes, workloads};
use crate::nbw::results::{Experiment, Profile, Results};

/// The heading above the part, where the document has none.
pub const HEADING: &str = "## Weir and the kernel on slow disks";

/// The part. `raw` is where the results are, relative to the document.
pub fn section(results: &Results, raw: &str) -> String {
    let parts = [
        opening(results, raw),
        goals(results),
        how(&results.profile),
        personalities(results),
        memory(results),
        file_server(results),
        traces(results),
    ];
    // Nothing in the results may end the part early.
    wrapped(&parts.join("\n").replace("<!--", "&lt;!--"))
}

fn opening(results: &Results, raw: &str) -> String {
    let mut text = format!(
        "    {}\n\nmade the figures of this part in {}; `weir-bench report {raw} --out .`, in \
         this document's directory, writes them here. All of them, every repetition too, are in \
         [{raw}]({raw}).\n",
        one_line(&results.command),
        duration(results.took_seconds),
    );
    if !results.complete {
        text += "\n**The run is not complete:** what is missing is a dash or a gap.\n";
    }
    text += &format!(
        "\nMeasured with {}, on a machine with: {}.\n\n\
         It does again, on emulated disks, what section 6 of *Non-blocking Writes to Files* (NBW, \
         FAST 2015) did with a kernel that had non-blocking writes. \"The paper\" is that one, and \
         what is quoted is from its text, not read off its plots. `{BASELINE}` is the kernel's own \
         page cache, the paper's *blocking writes* (BW); `weir-` and a fetch policy is Weir, mounted \
         over the same ext4, and `{DEFAULT}` is its default.\n",
        escape(&results.weir),
        machine(&results.machine),
    );
    text
}

/// Of a run whose cases were added.
pub fn added(results: &Results, raw: &str) -> String {
    let text = format!(
        "\nAdded were the figures that\n\n    {}\n\nmade in {} with {}; they are in [{raw}]({raw}).\n",
        one_line(&results.command),
        duration(results.took_seconds),
        escape(&results.weir),
    );
    wrapped(&text.replace("<!--", "&lt;!--"))
}

/// A command in one line, whatever is in it.
pub fn one_line(command: &str) -> String {
    command.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect::<String>()
}

/// The facts about a machine that are single figures or words.
pub fn machine(machine: &Value) -> String {
    let facts = machine.as_object().into_iter().flatten().filter_map(|(name, value)| {
        let value = match value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            _ => return None,
        };
        Some(format!("{} {}", escape(name), escape(&value)))
    });
    let facts: Vec<String> = facts.collect();
    if facts.is_empty() { "nothing recorded".to_owned() } else { facts.join(", ") }
}

/// Whole seconds, minutes or hours and minutes.
pub fn duration(seconds: f64) -> String {
    let seconds = seconds.max(0.0).round() as u64;
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", (seconds + 30) / 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

fn goals(results: &Results) -> String {
    format!(
        "### Goals, on slow disks\n\n\
         Held against `{DEFAULT}`; the policy that did best is named beside it. A goal over several \
         cases is held against the worst of them. Averages are arithmetic means of the ratios over \
         all I/O sizes, 4 KiB included. A random-write size is held against its bound where one is \
         stated below, and against 45 x where patch memory holds the run's writes; whole pages, \
         which need no fetch, only have to be no slower.\n\n{}\n{}",
        of_goals(results),
        slower_cases(results)
    )
}

fn how(profile: &Profile) -> String {
    let Profile { name, scale, .. } = profile;
    let scaled = match scale {
        0 | 1 => "the paper's sizes and times".to_owned(),
        _ => format!("the paper's sizes and times divided by {scale}, to keep their proportions"),
    };
    format!(
        "### How these figures are made\n\n\
         *The disks* are emulated: a process serves an image file with the delays of a disk, under \
         a loop device with direct I/O, and a real ext4 is on it. `hdd` has one arm, with seeks by \
         distance, rotation at 7200 rpm, a transfer rate and a queue of 32 served by position; `ssd` \
         has parallel channels, reads of tens of microseconds and slower writes. `weir-bench disk \
         check --model hdd` measures a model against its parameters. Both contestants use the very \
         same disk and file system. The delays are real, so a figure holds for this model, not for \
         any one product.\n\n\
         *Memory:* each contestant has {memory} in all (the paper: 4 GB), a memory cgroup's limit: for ext4 the load \
         and the page cache, for Weir the load, its daemon and the page cache of both file systems. \
         Of its {memory}, Weir may use {patch} for patches (the paper: 64 MB). The kernel may hold dirty \
         pages of the disk up to a fifth of that memory before it throttles writers, as on a machine \
         of that memory.\n\n\
         *Processors:* while an emulated disk runs, idle processors poll instead of halting, for \
         both contestants alike. Where they halt, as they do by default, wake-ups take longer, and \
         those of FUSE's daemon with them.\n\n\
         *Sizes and times:* profile `{name}`, {scaled}: a file of {file} (the paper: 5 GB); \
         {seconds} s for each personality (the paper: 60 s), {server_seconds} s for each mix of the file server, and the first \
         {trace_seconds} s of each trace, in its own time.\n\n\
         *Order:* the contestants take turns in each round, and ratios are between neighbours in \
         one round: {rounds} rounds of the personalities (the paper: 3), {server_rounds} of the file server, \
         {trace_rounds} of the traces (the paper: 5). Figures are medians over the rounds; *least to most* is the \
         spread of the rounds' ratios.\n\n\
         *Cold and verified:* before each run both file systems are mounted anew and all caches \
         dropped. After it, everything Weir holds is written home and the files are compared with \
         what was written, every byte.\n\n\
         Fetches and blocked writes are by Weir's own count; the kernel does not count its own. \
         Device reads and writes are the requests the disk served during the load.\n",
        memory = bytes(profile.memory_bytes),
        patch = bytes(profile.patch_bytes),
        file = bytes(profile.file_bytes),
        seconds = number(profile.seconds),
        server_seconds = number(profile.file_server_seconds),
        trace_seconds = number(profile.trace_seconds),
        rounds = profile.rounds,
        server_rounds = profile.file_server_rounds,
        trace_rounds = profile.trace_rounds,
    )
}

/// Seconds, without a fraction that is zero.
pub fn number(seconds: f64) -> String {
    if seconds.fract() == 0.0 && seconds.abs() < 1e9 {
        show_count(seconds.max(0.0) as u64)
    } else {
        format!("{seconds:.2}")
    }
}

/// Heading, plot, and the paper beside ours.
fn part(
    results: &Results,
    experiment: Experiment,
    heading: &str,
    figure: u32,
    alt: &str,
) -> String {
    format!(
        "### {heading}\n\n![Figure {figure}: {alt}](nbw/figure-{figure}.svg)\n\n{}",
        beside(results, experiment)
    )
}

fn folded(summary: &str, table: &str) -> String {
    if table.is_empty() {
        return String::new();
    }
    format!("\n<details><summary>{summary}</summary>\n\n{table}\n</details>\n")
}

fn personalities(results: &Results) -> String {
    let experiment = Experiment::Personality;
    let mut text = part(
        results,
        experiment,
        "Filebench personalities over I/O sizes (the paper's Figure 10)",
        10,
        "operations a second of five personalities over I/O sizes, hdd and ssd",
    );
    text += "\nOne thread writes or reads, one in front of the other or at random places, in I/O of \
             one size; *random-readwrite* has a reader and a writer. The disk's parameters are not \
             those of the paper's, so that ratios compare, not operations a second. The *bound* of \
             random-write is what patch memory and the device's fetch rate allow: the patches that \
             fit, and after that one fetch for each page written.\n";
    for disk in disks(results, experiment) {
        text += &format!(
            "\n{disk}: ext4's operations a second, and how many times as many the others do. Bold: \
             slower than ext4.\n\n{}",
            at_a_glance(results, experiment, disk)
        );
        let table = bounds(results, disk);
        if !table.is_empty() {
            text += &format!("\n{disk}, random-write: the bound for each size.\n\n{table}");
        }
        for workload in workloads(results, experiment) {
            let table = in_full(results, experiment, disk, workload);
            text += &folded(&format!("{disk}, {}, in full", escape(workload)), &table);
        }
    }
    text
}

fn memory(results: &Results) -> String {
    let experiment = Experiment::Memory;
    let mut text = part(
        results,
        experiment,
        "Memory (the paper's Figure 11)",
        11,
        "operations a second of the personalities that write over memory sizes, hdd, 2 KiB",
    );
    text += "\nI/O of 2 KiB, patch memory as above, and memory of several sizes.\n";
    for disk in disks(results, experiment) {
        text += &format!("\n{}", at_a_glance(results, experiment, disk));
        for workload in workloads(results, experiment) {
            let table = in_full(results, experiment, disk, workload);
            text += &folded(&format!("{disk}, {}, in full", escape(workload)), &table);
        }
    }
    text
}

fn file_server(results: &Results) -> String {
    let experiment = Experiment::FileServer;
    let mut text = part(
        results,
        experiment,
        "A file server (the paper's Figure 12)",
        12,
        "mean latency by class of operation of a file server, ext4's being 1",
    );
    text += "\nA fixed load is offered, whole pages and parts of pages in the proportions of the \
             paper's Table 2, and latency is what is measured. The paper's clients were on a \
             network; here the load is on the machine itself. Mean latencies, and the change \
             against ext4:\n";
    for disk in disks(results, experiment) {
        text += &format!("\n{disk}:\n\n{}", latencies(results, experiment, disk));
    }
    text
}

fn traces(results: &Results) -> String {
    let experiment = Experiment::Trace;
    let mut text = part(
        results,
        experiment,
        "Traces of a phone (the paper's Figure 13)",
        13,
        "mean latency of all operations of two replayed traces, ext4's being 1",
    );
    text += "\nMobiBench's traces of the Facebook and Twitter applications, replayed at the times \
             recorded, against files that are cold: as recorded, and without their fsyncs. Mean \
             latencies, and the change against ext4:\n";
    for disk in disks(results, experiment) {
        text += &format!("\n{disk}:\n\n{}", latencies(results, experiment, disk));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::markers;
    use crate::nbw::sample;

    #[test]
    fn every_part_is_there_and_the_document_is_stable() {
        let mut results = sample::results();
        results.command += " <!-- nbw:end -->";
        let text = section(&results, "nbw/quick.json");
        for expected in [
            "    weir-bench run nbw --quick --json out.json &lt;!--",
            "not complete",
            "weir 0.1.0 &lt;a\\|b>",
            "cpus 2, kernel 6.18",
            "### Goals",
            "divided by 64",
            "nbw/figure-10.svg",
            "nbw/figure-13.svg",
            "<details><summary>hdd, random-write, in full</summary>",
            "in 7 min;",
        ] {
            assert!(text.contains(expected), "no '{expected}' in:\n{text}");
        }
        let once = markers::replace("# Title\n", "nbw", HEADING, &text).expect("no markers");
        assert_eq!(markers::replace(&once, "nbw", HEADING, &text).expect("markers"), once);
    }

    #[test]
    fn nothing_run_is_a_document_too() {
        let mut results = sample::results();
        results.cases.clear();
        let text = section(&results, "nbw/quick.json");
        assert!(text.contains("not measured"));
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    }

    #[test]
    fn durations() {
        assert_eq!(duration(61.4), "61 s");
        assert_eq!(duration(432.1), "7 min");
        assert_eq!(duration(9000.0), "2 h 30 min");
    }
}
