//! The part of docs/results/nbw.md that is made from a run: what was measured, how, and what the
//! paper says of the same.

use serde_json::Value;

use super::markdown::{escape, wrapped};
use super::paper::beside;
use super::tables::{at_a_glance, bounds, disks, in_full, latencies, of_goals, slower_cases};
use crate::disk::Model;
use crate::measure::show_count;
use crate::nbw::names::{BASELINE, DEFAULT, bytes, workloads};
use crate::nbw::results::{Experiment, Profile, Results};

/// The heading above the part, where the document has none.
pub const HEADING: &str = "# Weir and the kernel on slow disks";

/// The part. `raw` is where the results are, relative to the document.
pub fn section(results: &Results, raw: &str) -> String {
    let mut parts = vec![opening(results, raw), goals(results), how(&results.profile)];
    parts.extend(PARTS.iter().map(|part| part.text(results)));
    // Nothing in the results may end the part early.
    wrapped(&parts.join("\n").replace("<!--", "&lt;!--"))
}

fn opening(results: &Results, raw: &str) -> String {
    let mut text = format!(
        "    {}\n\nmade these figures in {}. `weir-bench report {raw} --out .` in this directory writes \
         them into this page; [{raw}]({raw}) has every repetition.\n",
        one_line(&results.command),
        duration(results.took_seconds),
    );
    if !results.complete {
        text += "\n**The run is not complete:** what is missing is a dash or a gap.\n";
    }
    text += &format!(
        "\nMeasured with {}, on a machine with: {}.\n\n\
         The experiments are those of section 6 of *Non-blocking Writes to Files* (NBW, FAST 2015), \
         which measured a modified kernel; here they run on emulated disks. \"The paper\" is NBW, \
         quoted from its text and not read from its plots. `{BASELINE}` is the kernel's own page \
         cache, the paper's *blocking writes* (BW). `weir-` and a fetch policy is Weir, mounted over \
         the same ext4; `{DEFAULT}` is its default.\n",
        escape(&results.weir),
        machine(&results.machine),
    );
    text
}

/// Of a run whose cases were added.
pub fn added(results: &Results, raw: &str) -> String {
    let text = format!(
        "\nFurther figures were made by\n\n    {}\n\nin {} with {}; they are in [{raw}]({raw}).\n",
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
        "## Goals, on slow disks\n\n\
         Each goal is checked with `{DEFAULT}`; the last column has the best other policy. The worst \
         case decides a goal over several cases. An average is the arithmetic mean of the ratios over \
         all I/O sizes, 4 KiB included. Random writes of one size are compared with the bound stated \
         below, or with 45 x if patch memory holds all the writes of the run. Writes of whole pages \
         need no fetch and only must not be slower.\n\n{}\n{}",
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
        "## How these figures are made\n\n\
         *The disks* are emulated: a process serves an image file with the delays of a disk, under \
         a loop device with direct I/O, and a real ext4 is on it. `hdd` has one arm: seek time grows \
         with distance, the platters turn at 7200 rpm, and a queue of 32 is served by position. `ssd` \
         has parallel channels, reads of tens of microseconds, and slower writes. `weir-bench disk \
         check --model hdd` compares a model with its parameters. Both contestants use the same disk \
         and file system. The figures hold for these models, not for any one product.\n\n\
         *Memory:* each contestant has {memory} in all (the paper: 4 GB), a memory cgroup's limit: for ext4 the load \
         and the page cache, for Weir the load, its daemon and the page cache of both file systems. \
         Of its {memory}, Weir may use {patch} for patches (the paper: 64 MB). The kernel may hold dirty \
         pages of the disk up to a fifth of that memory before it throttles writers, as on a machine \
         of that memory.\n\n\
         *Processors:* while an emulated disk runs, idle processors poll instead of halting, for \
         both contestants. By default they halt, and wake-ups, FUSE's among them, take longer.\n\n\
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
         Weir counts fetches and blocked writes; the kernel does not count its own. Device reads and \
         writes are the requests that the disk served during the load.\n",
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

/// The part about one experiment.
struct Part {
    experiment: Experiment,
    heading: &'static str,
    /// The number of the paper's figure, and what its plot shows.
    figure: u32,
    alt: &'static str,
    text: &'static str,
}

const PARTS: [Part; 4] = [
    Part {
        experiment: Experiment::Personality,
        heading: "Filebench personalities over I/O sizes",
        figure: 10,
        alt: "operations a second of five personalities over I/O sizes, hdd and ssd",
        text: "One thread writes or reads, in order or at random places, in I/O of one size; \
               *random-readwrite* has a reader and a writer. The paper's disk had other parameters: compare \
               ratios, not operations a second. The *bound* of random-write is what patch memory and \
               the device's fetch rate allow: the patches that fit, and after that one fetch for each \
               page written.",
    },
    Part {
        experiment: Experiment::Memory,
        heading: "Memory",
        figure: 11,
        alt: "operations a second of the personalities that write over memory sizes, hdd, 2 KiB",
        text: "I/O of 2 KiB, patch memory as above, and memory of several sizes.",
    },
    Part {
        experiment: Experiment::FileServer,
        heading: "A file server",
        figure: 12,
        alt: "mean latency by class of operation of a file server, ext4's being 1",
        text: "The load is fixed, with whole and partial pages in the proportions of the paper's \
               Table 2; latency is measured. The paper's clients were on a network; here they are on the \
               same machine. Mean latencies, and the change against ext4:",
    },
    Part {
        experiment: Experiment::Trace,
        heading: "Traces of a phone",
        figure: 13,
        alt: "mean latency of all operations of two replayed traces, ext4's being 1",
        text: "MobiBench's traces of the Facebook and Twitter applications, replayed at the times \
               recorded, on cold files: as recorded, and without their fsyncs. Mean latencies, and the \
               change against ext4:",
    },
];

impl Part {
    /// Heading, plot, the paper beside ours, and what was measured on each disk.
    fn text(&self, results: &Results) -> String {
        let Part { experiment, heading, figure, alt, text } = self;
        let mut text = format!(
            "## {heading} (the paper's Figure {figure})\n\n![Figure {figure}: {alt}]\
             (nbw/figure-{figure}.svg)\n\n{}\n{text}\n",
            beside(results, *experiment)
        );
        for disk in disks(results, *experiment) {
            text += &on_disk(results, *experiment, disk);
        }
        text
    }
}

fn on_disk(results: &Results, experiment: Experiment, disk: Model) -> String {
    let mut text = match experiment {
        Experiment::Personality => format!(
            "\n{disk}: ext4's operations a second, and the others' relative to it. Bold: slower than \
             ext4.\n\n{}",
            at_a_glance(results, experiment, disk)
        ),
        Experiment::Memory => format!("\n{}", at_a_glance(results, experiment, disk)),
        _ => return format!("\n{disk}:\n\n{}", latencies(results, experiment, disk)),
    };
    let table = bounds(results, disk);
    if experiment == Experiment::Personality && !table.is_empty() {
        text += &format!("\n{disk}, random-write: the bound for each size.\n\n{table}");
    }
    for workload in workloads(results, experiment) {
        let table = in_full(results, experiment, disk, workload);
        if !table.is_empty() {
            text += &format!(
                "\n<details><summary>{disk}, {}, in full</summary>\n\n{table}\n</details>\n",
                escape(workload)
            );
        }
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
            "## Goals",
            "divided by 64",
            "nbw/figure-10.svg",
            "nbw/figure-13.svg",
            "<details><summary>hdd, random-write, in full</summary>",
            "in 7 min. ",
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
