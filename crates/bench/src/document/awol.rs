//! The part of docs/RESULTS.md about AWOL's workloads, and its plot.

use super::figures::series;
use super::markdown::{Table, escape, wrapped};
use super::section::{duration, machine, number, one_line};
use crate::disk::Model;
use crate::nbw::awol::judge;
use crate::nbw::names::{bytes, contestants, or_dash, workloads};
use crate::nbw::results::{Experiment, Profile, Results};
use crate::plot::{Figure, Kind, Mark, Panel};

/// The heading above the part, where the document has none.
pub const HEADING: &str = "## Readers and writers side by side: write-back that adapts";

/// The part. `raw` is where the results are, relative to the document.
pub fn section(results: &Results, raw: &str) -> String {
    let parts = [
        opening(results, raw),
        how(&results.profile),
        goals(results),
        format!(
            "### Rates and latencies\n\n![Rates to ext4's](awol/rates.svg)\n\n{}",
            table(&judge::rates(results))
        ),
        format!("### What it cost the disk\n\n{}", table(&judge::costs(results))),
    ];
    // Nothing in the results may end the part early.
    wrapped(&parts.join("\n").replace("<!--", "&lt;!--"))
}

fn opening(results: &Results, raw: &str) -> String {
    let mut text = format!(
        "    {}\n\nmade these figures in {}; `weir-bench report {raw} --out .`, in this document's \
         directory, writes them here. Every repetition is in [{raw}]({raw}).\n\nMeasured with {}, on \
         a machine with: {}.\n",
        one_line(&results.command),
        duration(results.took_seconds),
        escape(&results.weir),
        machine(&results.machine),
    );
    if !results.complete {
        text += "\n**The run is not complete:** what is missing is a dash or a gap.\n";
    }
    text
}

fn how(profile: &Profile) -> String {
    let mut text = format!(
        "The workloads of *AWOL: An Adaptive Write Optimizations Layer* (section 5): the letters are \
         no, sequential, random, Zipf or variable Reader, and the same of the Writer. All access is \
         of one page, by pread and pwrite at full speed; reader and writer are a thread each and have \
         a file each. Memory is {} a contestant (the paper: 2 GB, divided by {}). A load takes {} s \
         on the hard disk and half of it elsewhere; rounds: {}, in turn, each from a cold start; \
         every byte is compared afterwards.\n",
        bytes(profile.memory_bytes),
        profile.scale,
        number(profile.seconds),
        profile.rounds,
    );
    if let Some(sizes) = &profile.side_by_side {
        let [least, most] = sizes.variable_bytes;
        text += &format!(
            "\nFiles of RRRW, NRZW and ZRZW are {} (the paper: 1 GB), those of NRSW and SRSW {}, more \
             than memory and not divided, so that one pass lasts: SRSW is over when its file is \
             read. In NRVW and VRVW five to eight clients run at any time, on files of {} to {} KiB \
             (the paper: 100 to 512 MB), with a change every {} s on average; each is sequential or \
             by Zipf's law, and reads its file's length once in a session. The exponent of Zipf's \
             law is 1, and popular pages are spread over the file. The seed is {}.\n",
            bytes(sizes.file_bytes),
            bytes(sizes.sequential_bytes),
            least >> 10,
            most >> 10,
            sizes.change_seconds,
            sizes.seed,
        );
    }
    text
}

fn goals(results: &Results) -> String {
    let mut table = Table::new(&["goal", "", "at least", "measured", "weir-static"], 2);
    for goal in judge::goals(results) {
        let state = match goal.reached() {
            Some(true) => "reached",
            Some(false) => "**missed**",
            None => "not measured",
        };
        let at = goal.measured.as_ref().and_then(|found| found.decided_by.as_ref());
        table.row(vec![
            at.map_or(goal.name.clone(), |at| format!("{}, at {at}", goal.name)),
            state.to_owned(),
            goal.show(goal.need),
            or_dash(goal.measured.as_ref(), |found| goal.show(found.value)),
            or_dash(goal.best.as_ref(), |(_, found)| goal.show(found.value)),
        ]);
    }
    let below = judge::below_baseline(results);
    let below = if below.is_empty() { "nothing".to_owned() } else { below.join("; ") };
    format!("### Goals, write-back\n\n{}\nBelow ext4: {}.\n", table.text(), escape(&below))
}

/// Rows, of which the first is the headings and the first two columns are text.
fn table(rows: &[Vec<String>]) -> String {
    let Some((head, rows)) = rows.split_first() else { return String::new() };
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let mut table = Table::new(&head, 2);
    rows.iter().for_each(|row| table.row(row.clone()));
    table.text()
}

/// File names and what is drawn in them.
pub fn figures(results: &Results) -> Vec<(&'static str, Figure)> {
    vec![("rates.svg", rates(results))]
}

fn rates(results: &Results) -> Figure {
    let workloads = workloads(results, Experiment::SideBySide);
    let panel = |disk: Model, class: &str| {
        // Those that have such operations at all, on any disk.
        let has = |workload: &&&str| class == "write" || !workload.starts_with('n');
        let shown: Vec<&str> = workloads.iter().filter(has).copied().collect();
        let of = |who: &str, workload: &str| {
            let case = format!("{disk}/{workload}");
            let (value, least, most) = judge::times_baseline(results, &case, who, class)?;
            (value > 0.0).then_some(Mark { value, spread: Some((least, most)) })
        };
        let marks = contestants(results)
            .into_iter()
            .map(|who| shown.iter().map(|workload| of(who, workload)).collect());
        Panel {
            title: format!("{disk}: {class}s"),
            x_title: String::new(),
            y_title: "times ext4".into(),
            logarithmic: true,
            kind: Kind::Lines,
            categories: shown.iter().map(|name| name.to_uppercase()).collect(),
            marks: marks.collect(),
            line_at: Some(1.0),
        }
    };
    let disks = [Model::Hdd, Model::Ssd];
    Figure {
        title: format!("Readers and writers side by side (profile {})", results.profile.name),
        note:
            "Rates to ext4's in the same round, of VRVW's reads their mean time; more is better. \
               Whiskers: least and most of the rounds."
                .into(),
        columns: 2,
        series: series(results),
        panels: disks
            .into_iter()
            .flat_map(|disk| ["read", "write"].map(|class| panel(disk, class)))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nbw::names::DASH;
    use crate::nbw::sample;

    #[test]
    fn what_was_not_run_is_a_dash_and_no_number() {
        let mut results = sample::results();
        for cases in [true, false] {
            if !cases {
                results.cases.clear();
            }
            let text = section(&results, "awol/quick.json");
            assert!(text.contains("not complete") && text.contains("not measured"), "{text}");
            assert!(text.contains(DASH) && !text.contains("NaN"), "{text}");
            for (_, figure) in figures(&results) {
                assert!(!figure.svg().contains("NaN"));
            }
        }
    }
}
