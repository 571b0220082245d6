//! The advice as one page of HTML: style and charts inside, no script, nothing from elsewhere.

use std::fmt::Write as _;

use crate::call::Group;
use crate::chart::{Bar, Series, bars, escaped, lines};
use crate::report::{Report, bytes, count, percent};
use crate::summary::best;
use crate::verdict::{Answer, Verdict, duration, times};

/// By this a page is told from other files.
const GENERATOR: &str = "<meta name=\"generator\" content=\"weir advise\">";

const STYLE: &str = "\
:root{--ground:#fbfaf7;--card:#fff;--ink:#1d2430;--quiet:#5d6675;--rule:#dcdad2;--between:#c9ccd2;--reads:#2f6fb0;--writes:#b4541a;\
--syncs:#8a3d8f;--names:#3b7d4f;--looks:#8a7a1f;--yes:#26734d;--no:#a8322d;--same:#6b6f76}\
@media(prefers-color-scheme:dark){:root{--ground:#14171c;--card:#1c2027;--ink:#e6e8ec;--quiet:#9aa3b1;--rule:#333a45;--between:#4a515d;\
--reads:#6aa9e8;--writes:#e58a4e;--syncs:#c583ca;--names:#74bd8a;--looks:#cdbb5a;--yes:#6fc698;--no:#ef827c;--same:#a4a9b1}}\
*{box-sizing:border-box}body{margin:0;background:var(--ground);color:var(--ink);font:16px/1.5 system-ui,sans-serif}\
main{max-width:860px;margin:0 auto;padding:32px 20px 64px}h1{font-size:1.7rem;line-height:1.25;margin:0 0 8px}\
h2{font-size:1.15rem;margin:40px 0 10px}p{margin:8px 0}.quiet{color:var(--quiet)}code,pre{font:0.9em/1.5 ui-monospace,monospace}\
.verdict{background:var(--card);border:1px solid var(--rule);border-left:6px solid var(--same);border-radius:6px;padding:12px 16px;margin:12px 0}\
.verdict.yes{border-left-color:var(--yes)}.verdict.no{border-left-color:var(--no)}.verdict h3{margin:0;font-size:1rem}\
.verdict.yes b{color:var(--yes)}.verdict.no b{color:var(--no)}pre{background:var(--card);border:1px solid var(--rule);border-radius:6px;\
padding:12px 16px;overflow-x:auto}.wide{overflow-x:auto}table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}\
th,td{padding:5px 10px;text-align:right;border-bottom:1px solid var(--rule);white-space:nowrap}th:first-child,td:first-child{text-align:left}\
th{font-weight:600;color:var(--quiet)}svg{width:100%;height:auto;display:block}svg text{fill:var(--ink);font:13px system-ui,sans-serif}\
svg .tick{fill:var(--quiet);font-size:12px}.grid{stroke:var(--rule)}.line{fill:none!important;stroke-width:2.5}\
.between{fill:var(--between)}.reads{fill:var(--reads);stroke:var(--reads)}.writes{fill:var(--writes);stroke:var(--writes)}\
.syncs{fill:var(--syncs)}.names{fill:var(--names)}.looks{fill:var(--looks)}.other{fill:var(--same)}svg rect{stroke:none}\
.key span{display:inline-block;margin-right:16px}.key svg{width:14px;height:14px;display:inline;vertical-align:-2px;margin-right:5px}";

/// Whether these are the bytes of a page.
pub fn is_page(bytes: &[u8]) -> bool {
    let head = &bytes[..bytes.len().min(1024)];
    head.windows(GENERATOR.len()).any(|window| window == GENERATOR.as_bytes())
}

/// The page.
pub fn html(report: &Report) -> String {
    let mut page = String::with_capacity(32 << 10);
    // Writing to a string cannot fail.
    let _ = write(report, &mut page);
    page
}

fn write(report: &Report, page: &mut String) -> std::fmt::Result {
    let title = match best(report) {
        Some(best) => format!("Weir would make it {}", times(best.prediction.ratio)),
        None => "Weir would not make it faster".to_owned(),
    };
    writeln!(
        page,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">{GENERATOR}\n<meta name=\"viewport\" \
         content=\"width=device-width,initial-scale=1\"><meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\
         <style>{STYLE}</style></head>\n<body><main>"
    )?;
    writeln!(page, "<h1>{title}</h1>")?;
    writeln!(
        page,
        "<p><code>{}</code></p><p class=\"quiet\">Files in <code>{}</code>, {}. {}{} calls; about {} without the recorder. \
         Made by weir {}.</p>",
        escaped(&report.subject),
        escaped(&report.source),
        escaped(&report.source_kind),
        report.exit_status.map_or(String::new(), |status| format!("Exit status {status}. ")),
        count(report.calls),
        duration(report.alone_us),
        escaped(&report.weir_version)
    )?;
    for verdict in &report.verdicts {
        card(verdict, page)?;
    }
    for (way, why) in &report.untried {
        writeln!(
            page,
            "<p class=\"quiet\">{} could not be tried: {}</p>",
            escaped(way),
            escaped(why)
        )?;
    }
    if let Some(best) = best(report) {
        writeln!(
            page,
            "<h2>Try it</h2><p>With the program's files named below MOUNTPOINT:</p><pre>"
        )?;
        for command in &best.commands {
            writeln!(page, "{}", escaped(command))?;
        }
        writeln!(page, "</pre>")?;
    }
    time(report, page)?;
    asks(report, page)?;
    overwrites(report, page)?;
    costs(report, page)?;
    places(report, page)?;
    method(report, page)?;
    writeln!(page, "</main></body></html>")
}

fn class(answer: Answer) -> &'static str {
    match answer {
        Answer::Yes => "yes",
        Answer::Same => "same",
        Answer::No => "no",
    }
}

fn card(verdict: &Verdict, page: &mut String) -> std::fmt::Result {
    let prediction = &verdict.prediction;
    let sentence = escaped(&verdict.sentence);
    let (word, rest) = sentence.split_once(' ').unwrap_or((&sentence, ""));
    writeln!(
        page,
        "<section class=\"verdict {}\"><h3>{} <span class=\"quiet\">{:.2}x, confidence {}</span></h3><p><b>{word}</b> {rest}</p>",
        class(verdict.answer),
        prediction.way,
        prediction.ratio,
        prediction.confidence
    )?;
    for doubt in &prediction.doubts {
        writeln!(page, "<p class=\"quiet\">{}</p>", escaped(doubt))?;
    }
    writeln!(page, "</section>")
}

/// Where the time goes, now and in each way.
fn time(report: &Report, page: &mut String) -> std::fmt::Result {
    let Some(first) = report.verdicts.first() else { return Ok(()) };
    let bar = |label: String, whole: f64, groups: Vec<(Group, f64)>| {
        let in_calls: f64 = groups.iter().map(|(_, time)| time).sum();
        let between = (whole - in_calls).max(0.0);
        let mut parts = vec![("between", between, format!("between calls: {}", duration(between)))];
        parts.extend(
            groups
                .into_iter()
                .map(|(group, time)| (group.name(), time, format!("{group}: {}", duration(time)))),
        );
        Bar { label, parts, end: duration(whole) }
    };
    let now =
        first.prediction.groups.iter().map(|(group, (direct, _))| (*group, *direct)).collect();
    let mut rows = vec![bar("directly".to_owned(), first.prediction.direct_us, now)];
    for verdict in &report.verdicts {
        let prediction = &verdict.prediction;
        let groups = prediction.groups.iter().map(|(group, (_, weir))| (*group, *weir)).collect();
        rows.push(bar(prediction.way.to_string(), prediction.weir_us, groups));
    }
    writeln!(page, "<h2>Where its time would go</h2><div class=\"key\">")?;
    let keys = ["between", "reads", "writes", "syncs", "names", "looks", "other"];
    for key in keys {
        let name = if key == "between" { "between calls" } else { key };
        writeln!(
            page,
            "<span><svg viewBox=\"0 0 14 14\" aria-hidden=\"true\"><rect width=\"14\" height=\"14\" class=\"{key}\"/></svg>{name}</span>"
        )?;
    }
    writeln!(
        page,
        "</div>{}",
        bars("Time between calls and in calls, directly and in each way", &rows)
    )
}

/// What the program asks, by group.
fn asks(report: &Report, page: &mut String) -> std::fmt::Result {
    writeln!(
        page,
        "<h2>What it asks of these files</h2><div class=\"wide\"><table><tr><th></th><th>calls</th><th>bytes</th><th>time in them</th>\
         <th>of its time</th></tr>"
    )?;
    for group in Group::OF_FILES {
        let Some(tally) = report.footprint.groups.get(&group) else { continue };
        let moved = if tally.bytes > 0 { bytes(tally.bytes) } else { String::new() };
        let share = (tally.waited_us * 100.0 / report.alone_us.max(1.0)).min(100.0);
        writeln!(
            page,
            "<tr><td>{group}</td><td>{}</td><td>{moved}</td><td>{}</td><td>{share:.0}%</td></tr>",
            count(tally.calls),
            duration(tally.waited_us)
        )?;
    }
    writeln!(page, "</table></div>")
}

/// Figures 4 and 5 of NBW, for this program.
fn overwrites(report: &Report, page: &mut String) -> std::fmt::Result {
    let overwrites = report.footprint.overwrites;
    if overwrites.writes == 0 {
        return Ok(());
    }
    writeln!(
        page,
        "<h2>Writes to parts of pages</h2><p>{} of {} writes ({}) overwrite a part of a page that holds data. For {} of them it was \
         the first use of a page that was there before{}.</p>",
        count(overwrites.partial),
        count(overwrites.writes),
        percent(overwrites.partial, overwrites.writes),
        count(overwrites.first_use),
        overwrites
            .waited
            .map_or(String::new(), |waited| format!("; {} waited for the disk", count(waited)))
    )?;
    let row = |label: &str, class, value: u64| Bar {
        label: label.to_owned(),
        parts: vec![(class, value as f64, format!("{label}: {}", count(value)))],
        end: format!("{} ({})", count(value), percent(value, overwrites.writes)),
    };
    let names = ["up to 1 KiB of a page", "up to 2 KiB", "up to 3 KiB", "up to 4 KiB"];
    let mut rows: Vec<Bar> = names
        .iter()
        .zip(overwrites.by_kib)
        .map(|(name, value)| row(name, "writes", value))
        .collect();
    rows.push(row("whole or new pages", "between", overwrites.writes - overwrites.partial));
    page.push_str(&bars("Writes by how much of a page they overwrite", &rows));
    let curve = &report.footprint.curve;
    if curve.len() > 1 {
        writeln!(
            page,
            "<h2>Fetches against memory</h2><p>How many writes and reads would wait for a page in a memory of that size (LRU). Weir \
             makes the writes not wait; the reads wait in any case.</p>"
        )?;
        let places: Vec<String> = curve.iter().map(|misses| bytes(misses.memory)).collect();
        let series = [
            Series {
                class: "writes",
                name: "writes that wait".to_owned(),
                values: curve.iter().map(|misses| misses.writes as f64).collect(),
            },
            Series {
                class: "reads",
                name: "reads that wait".to_owned(),
                values: curve.iter().map(|misses| misses.reads as f64).collect(),
            },
        ];
        page.push_str(&lines(
            "Writes and reads that wait for a page, by memory size",
            &places,
            &series,
            "memory",
        ));
    }
    Ok(())
}

/// What calls take, directly and in each way.
fn costs(report: &Report, page: &mut String) -> std::fmt::Result {
    if report.costs.iter().all(|costs| costs.direct_us.is_none()) {
        return Ok(());
    }
    writeln!(
        page,
        "<h2>What a call takes</h2><div class=\"wide\"><table><tr><th></th><th>calls</th><th>done again</th><th>directly</th>\
         <th>mount</th><th>run</th><th>session</th></tr>"
    )?;
    let shown = |us: Option<f64>| us.map_or("–".to_owned(), duration);
    for costs in &report.costs {
        writeln!(
            page,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            costs.class.name(),
            count(costs.calls),
            count(costs.sampled),
            shown(costs.direct_us),
            shown(costs.mount_us),
            shown(costs.run_us),
            shown(costs.session_us)
        )?;
    }
    writeln!(page, "</table></div>")
}

fn places(report: &Report, page: &mut String) -> std::fmt::Result {
    writeln!(
        page,
        "<h2>File systems</h2><div class=\"wide\"><table><tr><th>mounted at</th><th>type</th><th>calls</th><th>read</th><th>written</th>\
         <th>syncs</th><th>names</th><th>time</th></tr>"
    )?;
    for used in &report.file_systems {
        writeln!(
            page,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escaped(&used.mount_point),
            escaped(&used.kind),
            count(used.calls),
            bytes(used.read_bytes),
            bytes(used.written_bytes),
            count(used.syncs),
            count(used.names),
            duration(used.waited_us)
        )?;
    }
    writeln!(page, "</table></div>")
}

fn method(report: &Report, page: &mut String) -> std::fmt::Result {
    if report.disk.read_us > 0.0 {
        writeln!(
            page,
            "<h2>How this was found</h2><p>The program's calls were recorded. {} of {} calls on these files were done again in a \
             scratch directory on the same disk, directly and in each way, and each was timed. A call of the program takes what \
             calls of its kind took there; what is between its calls stays as it is. What goes home after the program has ended is \
             not counted.</p><p>The disk: a random read of 4 KiB takes {}, a small write with fdatasync {}, writing in sequence \
             {}/s.</p>",
            count(report.sample.0),
            count(report.sample.1),
            duration(report.disk.read_us),
            duration(report.disk.sync_us),
            bytes(report.disk.write_rate as u64)
        )?;
    }
    for note in &report.notes {
        writeln!(page, "<p>{}</p>", escaped(note))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::footprint::Footprint;
    use crate::prediction::{Basis, Disk, Way, predict};

    fn verdict(way: Way) -> Verdict {
        let basis = Basis { wall_us: 1e6, ..Basis::default() };
        Verdict::new(predict(&basis, way, None), "/a", "x")
    }

    fn report() -> Report {
        Report {
            weir_version: "0".into(),
            subject: "<script>alert(1)</script>".into(),
            exit_status: Some(0),
            source: "/a&b".into(),
            source_kind: "ext4".into(),
            recorded_us: 1e6,
            alone_us: 1e6,
            calls: 3,
            processes: 1,
            starts: 1,
            file_systems: Vec::new(),
            footprint: Footprint::default(),
            disk: Disk::default(),
            sample: (0, 0),
            costs: Vec::new(),
            recorder_share: 0.0,
            user_us: 0.0,
            verdicts: vec![verdict(Way::Mount)],
            untried: vec![("weir run".into(), "<b>".into())],
            notes: vec!["<i>".into()],
        }
    }

    #[test]
    fn a_way_that_could_not_be_tried_is_not_proposed() {
        let helpful = |way, ratio| {
            let mut verdict = verdict(way);
            verdict.answer = Answer::Yes;
            verdict.prediction.ratio = ratio;
            verdict
        };
        let mut report = report();
        report.verdicts = vec![helpful(Way::Run, 2.0), helpful(Way::Session, 3.0)];
        report.untried = vec![(Way::Session.to_string(), "no file handles".into())];
        assert_eq!(best(&report).map(|best| best.prediction.way), Some(Way::Run));
        // Nothing was tried: all are estimates.
        report.untried.push((Way::Run.to_string(), "--no-probe".into()));
        assert_eq!(best(&report).map(|best| best.prediction.way), Some(Way::Session));
    }

    #[test]
    fn a_page_is_whole_escaped_and_from_nowhere_else() {
        let page = html(&report());
        assert!(is_page(page.as_bytes()) && !is_page(b"<!doctype html><p>mine"));
        assert!(page.ends_with("</main></body></html>\n"));
        for foreign in ["<script", "<b>", "<i>", "http:", "https:", "url(", "src=", "a&b"] {
            assert!(
                !page.replace("<b>No</b>", "").replace("<b>No.</b>", "").contains(foreign),
                "{foreign}"
            );
        }
    }
}
