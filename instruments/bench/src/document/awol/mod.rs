//! The part of docs/results/awol.md that is made from a run of AWOL's workloads: `figures` and `over_time` are its plots, `paper`
//! is what the paper says of the same.

mod figures;
mod over_time;
mod panel;
mod paper;
#[cfg(test)]
mod sample;

pub use figures::all as figures;

use super::markdown::{Table, escape, wrapped};
use super::section::{duration, machine, number, one_line};
use crate::nbw::awol::{judge, macrobench, optimum};
use crate::nbw::names::{bytes, or_dash};
use crate::nbw::results::{Profile, Results};

/// The heading above the part, where the document has none.
pub const HEADING: &str = "# Readers and writers side by side: write-back that adapts";

/// The part. `raw` is where the results are, relative to the document.
pub fn section(results: &Results, raw: &str) -> String {
    let parts = [
        opening(results, raw),
        how(&results.profile),
        goals(results),
        beside(results),
        format!(
            "## Rates and latencies\n\n![Rates to ext4's](awol/rates.svg)\n\n{}",
            table(&judge::rates(results))
        ),
        over_time(results),
        format!("## What it cost the disk\n\n{}", table(&judge::costs(results))),
        programs(results),
        settings(results),
    ];
    // Nothing in the results may end the part early.
    wrapped(&parts.join("\n").replace("<!--", "&lt;!--"))
}

fn opening(results: &Results, raw: &str) -> String {
    let mut text = format!(
        "    {}\n\nmade these figures in {}. `weir-bench report {raw} --out .` in this directory writes \
         them into this page; [{raw}]({raw}) has every repetition.\n\nMeasured with {}, on a machine \
         with: {}.\n",
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
        "The workloads are those of *AWOL: An Adaptive Write Optimizations Layer* (section 5). A name \
         such as SRSW gives the reader and the writer: N for none, S for sequential, R for random, Z \
         for Zipf's law, V for variable. Each has a thread and a file of its own, and accesses one page \
         at a time with pread or pwrite, at full speed. Each contestant has {} of memory (the paper: 2 \
         GB, divided by {}). A load takes {} s on the hard disk and half of that elsewhere. There are {} \
         rounds, in which the contestants take turns, each from a cold start; every byte is compared \
         afterwards.\n",
        bytes(profile.memory_bytes),
        profile.scale,
        number(profile.seconds),
        profile.rounds,
    );
    if let Some(sizes) = &profile.side_by_side {
        let [least, most] = sizes.variable_bytes;
        text += &format!(
            "\nFiles of RRRW, NRZW and ZRZW have {} (the paper: 1 GB). Those of NRSW and SRSW have {}, \
             more than memory, so that one pass takes long enough; SRSW ends when its file has been read. \
             In NRVW and VRVW five to eight clients run at any time, on files of {} to {} KiB (the \
             paper: 100 to 512 MB), with a change every {} s on average; each is sequential or follows \
             Zipf's law, and reads as many bytes as its file has in a session. The exponent of Zipf's law \
             is 1, and popular pages are spread over the file. The seed is {}.\n",
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
        let at = goal.measured.as_ref().and_then(|found| found.decided_by.as_ref());
        table.row(vec![
            at.map_or(goal.name.clone(), |at| format!("{}, at {at}", goal.name)),
            goal.state("**missed**").to_owned(),
            goal.show(goal.need),
            or_dash(goal.measured.as_ref(), |found| goal.show(found.value)),
            or_dash(goal.best.as_ref(), |(_, found)| goal.show(found.value)),
        ]);
    }
    let below = judge::below_baseline(results);
    let below = if below.is_empty() { "nothing".to_owned() } else { below.join("; ") };
    format!("## Goals, write-back\n\n{}\nBelow ext4: {}.\n", table.text(), escape(&below))
}

fn beside(results: &Results) -> String {
    format!(
        "## The paper's figures beside ours\n\n\
         The paper's *default* is the kernel's own write-back, here ext4. *static* is Weir with a kernel's \
         fixed ratios. The hit rate is the share of the pages read by programs that was not read from the \
         disk.\n\n\
         {}\n\
         ![Figure 12: hit rates](awol/figure-12.svg)\n\n\
         ![Figure 16: random reads beside random writes](awol/figure-16.svg)\n\n\
         ![Figure 17: time that equal reading takes](awol/figure-17.svg)\n",
        paper::beside(results)
    )
}

fn over_time(results: &Results) -> String {
    format!(
        "## Over time\n\n\
         From `weir mount --record` and the disk's count of requests, for each second of the first round. \
         Shares are of the memory for pages.\n\n\
         ![Figure 11: watermarks of writers alone](awol/figure-11.svg)\n\n\
         ![Figure 14: watermarks beside a reader](awol/figure-14.svg)\n\n\
         ![Figure 18: requests to the disk](awol/figure-18.svg)\n\n{}",
        over_time::table(results)
    )
}

fn programs(results: &Results) -> String {
    let rows = macrobench::rows(results);
    let shown = if rows.len() > 1 { table(&rows) } else { "Not measured.\n".to_owned() };
    format!(
        "## Whole programs\n\n\
         *build*: the C sources of zstd are unpacked into {} trees, one after the other, and a program is \
         built in each; the figure is the time until all is done. *tpcc*: TPC-C's transactions on \
         PostgreSQL, without think time, with a tenth of the standard's rows in a warehouse, and warehouses \
         enough for a database of four times the memory; the figure is new orders. Neither is an audited \
         result.\n\n{shown}",
        macrobench::TREES,
    )
}

fn settings(results: &Results) -> String {
    let mut text = "## Settings\n\nFrom runs of `--sweep`; their rates are in the table above.\n\n\
                    ![Figure 20: sampling intervals](awol/figure-20.svg)\n"
        .to_owned();
    let best = optimum::rows(results);
    if best.len() > 1 {
        text += "\nFor each workload the best static setting (the paper's *optimal*), found by a search over the \
                 share of memory at which write-back begins, and the ratio of adaptive write-back to it:\n\n";
        text += &table(&best);
    }
    text
}

/// Rows, of which the first is the headings and the first two columns are text.
fn table(rows: &[Vec<String>]) -> String {
    let Some((head, rows)) = rows.split_first() else { return String::new() };
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let mut table = Table::new(&head, 2);
    rows.iter().for_each(|row| table.row(row.clone()));
    table.text()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nbw::names::DASH;

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
            for (name, figure) in figures(&results) {
                let svg = figure.svg();
                assert!(!svg.contains("NaN") && !svg.contains(">inf"), "{name}");
                assert!(text.contains(&format!("(awol/{name})")), "{name} is shown");
            }
        }
    }

    #[test]
    fn watermarks_are_drawn_over_time() {
        let all = figures(&sample::results());
        let named = |name: &str| &all.iter().find(|(file, _)| *file == name).expect("drawn").1;
        let nrsw = &named("figure-11.svg").panels[0];
        assert_eq!((nrsw.title.as_str(), nrsw.marks.len()), ("hdd: nrsw", 4));
        let high: Vec<_> = nrsw.marks[0].iter().map(|mark| mark.map(|mark| mark.value)).collect();
        assert_eq!((high[1], high[8]), (Some(20.0), Some(5.0)));
        assert!(named("figure-11.svg").panels[1].marks.iter().flatten().all(Option::is_none));
        let hits = &named("figure-12.svg").panels[0];
        assert_eq!(hits.marks[0][1].map(|mark| mark.value), Some(95.0), "ext4's of ZRZW");
        let times = &named("figure-17.svg").panels[0];
        let adaptive = times.marks[2][1].expect("ZRZW").value;
        assert!((adaptive - 200.0 / 300.0).abs() < 1e-9, "{adaptive}");
    }
}
