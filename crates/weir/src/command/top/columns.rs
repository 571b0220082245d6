//! The columns of the list of mounts: their titles, values and order, and which of them fit a width.

use std::cmp::Ordering;

use super::figures;
use super::sample::{Rates, page_bytes};
use super::watched::Watched;
use crate::control::protocol::{PercentilesReport, Status};

/// A column; the order is that on the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Column {
    Mount,
    Writes,
    WriteBytes,
    Reads,
    ReadBytes,
    Syncs,
    Requests,
    HomeBytes,
    Dirty,
    Patches,
    Names,
    Log,
    Waiting,
    WriteP99,
    ReadP99,
    SyncP99,
}

/// Least width of the column of mount points.
pub(super) const MOUNT_COLUMNS_MIN: usize = 10;

impl Column {
    pub(super) const ALL: [Column; 16] = [
        Column::Mount,
        Column::Writes,
        Column::WriteBytes,
        Column::Reads,
        Column::ReadBytes,
        Column::Syncs,
        Column::Requests,
        Column::HomeBytes,
        Column::Dirty,
        Column::Patches,
        Column::Names,
        Column::Log,
        Column::Waiting,
        Column::WriteP99,
        Column::ReadP99,
        Column::SyncP99,
    ];

    /// Those after the mount point, the ones that are needed most first.
    const BY_NEED: [Column; 15] = [
        Column::Dirty,
        Column::WriteBytes,
        Column::ReadBytes,
        Column::Waiting,
        Column::Writes,
        Column::Reads,
        Column::Syncs,
        Column::Log,
        Column::HomeBytes,
        Column::Names,
        Column::WriteP99,
        Column::SyncP99,
        Column::Requests,
        Column::Patches,
        Column::ReadP99,
    ];

    pub(super) fn title(self) -> &'static str {
        match self {
            Column::Mount => "MOUNT",
            Column::Writes => "WR/s",
            Column::WriteBytes => "WRITE/s",
            Column::Reads => "RD/s",
            Column::ReadBytes => "READ/s",
            Column::Syncs => "SYNC/s",
            Column::Requests => "REQ/s",
            Column::HomeBytes => "HOME/s",
            Column::Dirty => "DIRTY",
            Column::Patches => "PATCH",
            Column::Names => "NAMES",
            Column::Log => "LOG%",
            Column::Waiting => "WAIT",
            Column::WriteP99 => "WR99",
            Column::ReadP99 => "RD99",
            Column::SyncP99 => "SYNC99",
        }
    }

    /// What it is, for the choice of the order.
    pub(super) fn meaning(self) -> &'static str {
        match self {
            Column::Mount => "mount point",
            Column::Writes => "writes",
            Column::WriteBytes => "bytes written",
            Column::Reads => "reads",
            Column::ReadBytes => "bytes read",
            Column::Syncs => "syncs",
            Column::Requests => "FUSE requests",
            Column::HomeBytes => "bytes written home",
            Column::Dirty => "dirty memory",
            Column::Patches => "patch memory",
            Column::Names => "names not home",
            Column::Log => "log in use",
            Column::Waiting => "requests waiting",
            Column::WriteP99 => "99 % of writes",
            Column::ReadP99 => "99 % of reads",
            Column::SyncP99 => "99 % of syncs",
        }
    }

    /// Characters, without the space before it.
    pub(super) fn columns(self) -> usize {
        self.title().len().max(match self {
            Column::Mount => MOUNT_COLUMNS_MIN,
            Column::WriteP99 | Column::ReadP99 | Column::SyncP99 => 6,
            _ => 5,
        })
    }

    /// Its value of a mount; `None` if it is not known.
    pub(super) fn value(self, of: &Watched) -> Option<f64> {
        let rate = |rate: fn(&Rates) -> f64| of.rates.as_ref().map(rate);
        let status = |value: fn(&Status) -> Option<f64>| of.status().and_then(value);
        fn p99(of: &PercentilesReport) -> Option<f64> {
            (of.count > 0).then_some(of.p99_ns as f64)
        }
        match self {
            Column::Mount => None,
            Column::Writes => rate(|rates| rates.writes),
            Column::WriteBytes => rate(|rates| rates.write_bytes),
            Column::Reads => rate(|rates| rates.reads),
            Column::ReadBytes => rate(|rates| rates.read_bytes),
            Column::Syncs => rate(|rates| rates.syncs),
            Column::Requests => rate(|rates| rates.requests),
            Column::HomeBytes => rate(|rates| rates.home_bytes),
            Column::Dirty => status(|of| Some(page_bytes(of.stats.dirty_memory_pages) as f64)),
            Column::Patches => status(|of| Some(of.stats.patch_bytes as f64)),
            Column::Names => status(|of| Some(of.names.as_ref()?.pending as f64)),
            Column::Log => {
                status(|of| figures::percent(of.stats.log_used_bytes, of.stats.log_capacity_bytes))
            }
            Column::Waiting => of.waiting().map(|waiting| waiting as f64),
            Column::WriteP99 => status(|of| p99(&of.latency.write)),
            Column::ReadP99 => status(|of| p99(&of.latency.read)),
            Column::SyncP99 => status(|of| p99(&of.latency.sync)),
        }
    }

    /// Its text of a mount.
    pub(super) fn text(self, of: &Watched) -> String {
        if self == Column::Mount {
            return of.name();
        }
        let Some(value) = self.value(of) else { return "-".to_owned() };
        match self {
            Column::WriteBytes
            | Column::ReadBytes
            | Column::HomeBytes
            | Column::Dirty
            | Column::Patches => figures::bytes(value),
            Column::Log => format!("{value:.0}"),
            Column::WriteP99 | Column::ReadP99 | Column::SyncP99 => figures::time(value as u64),
            _ => figures::count(value),
        }
    }

    /// Compares two mounts by this column: names from A to Z, the largest figure first, unknown ones last.
    pub(super) fn compare(self, one: &Watched, other: &Watched) -> Ordering {
        let by_name = || one.key.cmp(&other.key);
        if self == Column::Mount {
            return by_name();
        }
        let figure = |of| self.value(of).unwrap_or(f64::NEG_INFINITY);
        figure(other).total_cmp(&figure(one)).then_with(by_name)
    }

    /// The columns that fit beside one of `for_name` characters for mount points, in the order on the screen, each with a space
    /// before it.
    pub(super) fn that_fit(width: usize, for_name: usize) -> Vec<Column> {
        let mut left = width.saturating_sub(for_name);
        let mut columns = vec![Column::Mount];
        for column in Column::BY_NEED {
            let taken = column.columns() + 1;
            if taken > left {
                break;
            }
            left -= taken;
            columns.push(column);
        }
        columns.sort();
        columns
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::command::top::asking::Answer;
    use crate::command::top::sample::tests::sample;
    use crate::command::top::watched::tests::mount;

    fn watched(point: &str, writes: Option<u64>) -> Watched {
        let mut of = Watched::new(&mount(point, 1));
        for (second, writes) in [(1, Some(0)), (2, writes)] {
            let Some(writes) = writes else { continue };
            let sample = sample(second * 1000, |status| status.stats.writes = writes);
            of.take(Instant::now(), Answer::Status(sample.status));
        }
        of
    }

    #[test]
    fn a_narrow_screen_has_the_columns_that_are_needed_most() {
        let titles = |width| {
            let columns = Column::that_fit(width, MOUNT_COLUMNS_MIN).into_iter();
            columns.map(Column::title).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(titles(5), "MOUNT");
        assert_eq!(titles(40), "MOUNT WRITE/s READ/s DIRTY WAIT");
        assert_eq!(Column::that_fit(300, 100), Column::ALL);
        for width in 0..200 {
            let columns = Column::that_fit(width, MOUNT_COLUMNS_MIN);
            let taken: usize = columns.iter().map(|column| column.columns() + 1).sum::<usize>() - 1;
            assert!(taken <= width.max(MOUNT_COLUMNS_MIN), "{width}");
        }
    }

    #[test]
    fn the_largest_figure_comes_first_and_an_unknown_one_last() {
        let mut all = [
            watched("/b", Some(10)),
            watched("/a", None),
            watched("/d", Some(10)),
            watched("/c", Some(90)),
        ];
        let mut order = |column: Column| {
            all.sort_by(|one, other| column.compare(one, other));
            all.iter().map(Watched::name).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(order(Column::Writes), "/c /b /d /a");
        assert_eq!(order(Column::Mount), "/a /b /c /d");
    }

    #[test]
    fn what_is_not_known_is_shown_as_such() {
        let of = watched("/mnt", None);
        assert_eq!(Column::Writes.text(&of), "-");
        assert_eq!(Column::Dirty.text(&of), "0");
        assert_eq!(Column::Log.text(&of), "-", "there is no log");
        assert_eq!(Column::Writes.text(&watched("/mnt", Some(1500))), "1.5k");
    }
}
