//! Policies of replacement on traces: how much of what is read each would have had in memory.

use serde::Serialize;
use strum::VariantArray;
use weir_engine::TwoLists;
use weir_sim::replacement::{Hits, Reference, S3Fifo, footprint, hits, trace};

use super::processors::on_all_processors;
use crate::error::{Error, Result};
use crate::nbw::awol::plan;
use crate::nbw::plan::Filter;
use crate::page::PAGE;
use crate::workload::{SideBySide, Trace, Workload};

/// Sizes of the cache, percent of the pages that a trace refers to.
const CACHE_PERCENT: [usize; 4] = [5, 10, 20, 50];

/// One trace in one cache.
#[derive(Serialize)]
pub struct Line {
    trace: String,
    footprint_pages: usize,
    cache_percent: usize,
    two_lists: Hits,
    s3_fifo: Hits,
}

/// The traces whose names contain one of `only`, those of the workloads `seconds` long.
pub fn compare(only: &[String], seconds: f64) -> Result<Vec<Line>> {
    let mut traces = Vec::new();
    let wanted = |name: &str| only.is_empty() || only.iter().any(|part| name.contains(part));
    let filter = Filter { disks: vec![crate::disk::Model::None], names: Vec::new() };
    for cell in plan::cells(&plan::profile(true, None), &[], None, &filter) {
        let Workload::SideBySide(load) = cell.workload else { continue };
        if wanted(&cell.label) {
            traces.push((cell.label, trace(&SideBySide { seconds, ..load })?));
        }
    }
    for &application in Trace::VARIANTS {
        if wanted(&application.to_string()) {
            traces.push((application.to_string(), references(application)?));
        }
    }
    if traces.is_empty() {
        return Err(Error::no_such_case("awol-sim"));
    }
    let runs: Vec<_> = traces
        .iter()
        .flat_map(|(name, trace)| CACHE_PERCENT.map(|percent| (name, trace, percent)))
        .collect();
    Ok(on_all_processors(&runs, |(name, trace, percent)| line(name, trace, *percent)))
}

fn line(name: &str, trace: &[Reference], cache_percent: usize) -> Line {
    let footprint_pages = footprint(trace);
    let cache_pages = (footprint_pages * cache_percent / 100).max(2);
    Line {
        trace: name.to_owned(),
        footprint_pages,
        cache_percent,
        two_lists: hits(&mut TwoLists::default(), trace, cache_pages),
        s3_fifo: hits(&mut S3Fifo::new(cache_pages), trace, cache_pages),
    }
}

/// The pages of an application's reads and writes.
fn references(application: Trace) -> Result<Vec<Reference>> {
    let pages = |file: usize, from: u64, to: u64| {
        (from / PAGE..to.div_ceil(PAGE)).map(move |page| (file as u64) << 32 | page)
    };
    let mut references = Vec::new();
    for one in application.transfers()? {
        let all = pages(one.file, one.offset, one.offset + one.length);
        references.extend(all.map(|page| Reference { page, is_write: one.is_write }));
    }
    Ok(references)
}

/// The table.
pub fn rows(lines: &[Line]) -> Vec<Vec<String>> {
    let head = ["trace", "of", "pages", "cache", "two lists", "S3-FIFO", "difference"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for line in lines {
        let [lists, fifos] = [&line.two_lists, &line.s3_fifo].map(|hits| 100.0 * hits.rate());
        rows.push(vec![
            line.trace.clone(),
            if line.two_lists.reads > 0 { "reads" } else { "writes" }.to_owned(),
            line.footprint_pages.to_string(),
            format!("{} %", line.cache_percent),
            format!("{lists:.1} %"),
            format!("{fifos:.1} %"),
            format!("{:+.1}", fifos - lists),
        ]);
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_trace_is_compared_in_every_cache() {
        let lines = compare(&[], 0.2).unwrap();
        assert_eq!(lines.len(), (7 + Trace::VARIANTS.len()) * CACHE_PERCENT.len());
        let rows = rows(&lines);
        assert!(rows.iter().all(|row| row.len() == rows[0].len()));
        for sizes in lines.chunks(CACHE_PERCENT.len()) {
            let rates = sizes.iter().map(|line| line.two_lists.rate());
            assert!(rates.is_sorted(), "{}: more memory, more hits", sizes[0].trace);
        }
        assert!(compare(&["xrxw".into()], 0.2).is_err());
    }

    #[test]
    fn a_transfer_refers_to_every_page_it_touches() {
        let found = references(Trace::Twitter).unwrap();
        let transfers = Trace::Twitter.transfers().unwrap();
        assert!(found.len() >= transfers.iter().filter(|one| one.length > 0).count());
        let reads = found.iter().filter(|one| !one.is_write).count();
        assert!(0 < reads && reads < found.len(), "{reads} of {}", found.len());
    }
}
