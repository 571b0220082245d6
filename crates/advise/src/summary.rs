//! The advice as text for a terminal.

use std::fmt::Write as _;

use crate::call::Group;
use crate::report::{Report, bytes, count, percent};
use crate::verdict::duration;

/// The text, its lines ended.
pub fn text(report: &Report) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write(report, &mut text);
    text
}

fn write(report: &Report, text: &mut String) -> std::fmt::Result {
    let alone = duration(report.alone_us);
    match report.exit_status {
        Some(status) => writeln!(
            text,
            "'{}' took {} while it was recorded, about {alone} without (exit status {status})",
            report.subject,
            duration(report.recorded_us)
        )?,
        None => writeln!(text, "{}: {alone}", report.subject)?,
    }
    writeln!(
        text,
        "{} calls on files in {} ({})",
        count(total(report)),
        report.source,
        report.source_kind
    )?;
    writeln!(text)?;
    writeln!(text, "  {:<8} {:>10} {:>10} {:>10}  of its time", "", "calls", "bytes", "in them")?;
    for group in Group::OF_FILES {
        let Some(tally) = report.footprint.groups.get(&group) else { continue };
        let share = tally.waited_us * 100.0 / report.alone_us.max(1.0);
        let moved = if tally.bytes > 0 { bytes(tally.bytes) } else { String::new() };
        let waited = duration(tally.waited_us);
        writeln!(
            text,
            "  {:<8} {:>10} {moved:>10} {waited:>10} {:>5.0}%",
            group.to_string(),
            count(tally.calls),
            share.min(100.0)
        )?;
    }
    let overwrites = report.footprint.overwrites;
    writeln!(text)?;
    writeln!(
        text,
        "Writes that overwrite part of a page: {} of {} ({}); for {} of them the page was used for the first time{}",
        count(overwrites.partial),
        count(overwrites.writes),
        percent(overwrites.partial, overwrites.writes),
        count(overwrites.first_use),
        overwrites
            .waited
            .map_or(String::new(), |waited| format!(", and {} waited for the disk", count(waited)))
    )?;
    if report.disk.read_us > 0.0 {
        writeln!(
            text,
            "Disk: a random read of 4 KiB takes {}, a small write with fdatasync {}, writing in sequence {}/s",
            duration(report.disk.read_us),
            duration(report.disk.sync_us),
            bytes(report.disk.write_rate as u64)
        )?;
        writeln!(
            text,
            "Done again for the prediction: {} of {} calls",
            count(report.sample.0),
            count(report.sample.1)
        )?;
    }
    writeln!(text)?;
    for verdict in &report.verdicts {
        let prediction = &verdict.prediction;
        writeln!(text, "{}", verdict.sentence)?;
        writeln!(
            text,
            "    predicted {:.2}x, confidence {}",
            prediction.ratio, prediction.confidence
        )?;
        for doubt in &prediction.doubts {
            writeln!(text, "    {doubt}")?;
        }
    }
    for (way, why) in &report.untried {
        writeln!(text, "{way}: not tried: {why}")?;
    }
    if let Some(best) = best(report) {
        writeln!(text, "\nTo try it, with the program's files named below MOUNTPOINT:")?;
        for command in &best.commands {
            writeln!(text, "  {command}")?;
        }
    }
    for note in &report.notes {
        writeln!(text, "note: {note}")?;
    }
    Ok(())
}

fn total(report: &Report) -> u64 {
    report.footprint.groups.values().map(|tally| tally.calls).sum()
}

/// The way that helps most, if one does. A way that could not be tried may not work, if another could be.
pub fn best(report: &Report) -> Option<&crate::verdict::Verdict> {
    let is_tried = |verdict: &&crate::verdict::Verdict| {
        let way = verdict.prediction.way.to_string();
        report.untried.len() == report.verdicts.len()
            || report.untried.iter().all(|(untried, _)| *untried != way)
    };
    let helpful =
        report.verdicts.iter().filter(|verdict| verdict.answer == crate::verdict::Answer::Yes);
    let helpful = helpful.filter(is_tried);
    helpful.max_by(|one, other| one.prediction.ratio.total_cmp(&other.prediction.ratio))
}
