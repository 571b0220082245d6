//! A load over its time, as it is kept in the results: rates and shares, thinned to a bounded number.
//!
//! Pure: what was seen goes in, curves come out.

use crate::nbw::results::{Curves, Moment, Requests};
use crate::stage::over_time::{Look, OverTime};

/// Points of a curve, at most.
const POINTS_MAX: usize = 200;

/// The curves of a round, from its beginning to its end.
pub fn curves(seen: &OverTime) -> Curves {
    let inside = |at_ns: u64| (seen.began_ns..=seen.ended_ns).contains(&at_ns);
    let requests = steps(&seen.disk, |(at_ns, _)| inside(*at_ns)).map(|(from, to)| {
        let (done, seconds) = (to.1 - from.1, between(from.0, to.0));
        Requests {
            seconds: rounded(between(seen.began_ns, to.0)),
            reads_per_s: rounded(done.reads as f64 / seconds),
            writes_per_s: rounded(done.writes as f64 / seconds),
        }
    });
    let moments = steps(&seen.weir, |look| inside(look.at_ns))
        .map(|(from, to)| moment(from, to, seen.began_ns));
    Curves { requests: requests.collect(), moments: moments.collect() }
}

/// Neighbours of which the second is wanted, of all or of each so many.
fn steps<T>(all: &[T], wanted: impl Fn(&T) -> bool) -> impl Iterator<Item = (&T, &T)> {
    let first = all.iter().position(&wanted).unwrap_or(all.len()).saturating_sub(1);
    let count = all[first..].iter().skip(1).take_while(|one| wanted(one)).count();
    let shown = &all[first..all.len().min(first + count + 1)];
    let every = count.div_ceil(POINTS_MAX).max(1);
    let ends = shown.iter().step_by(every);
    ends.clone().zip(ends.skip(1))
}

fn moment(from: &Look, to: &Look, began_ns: u64) -> Moment {
    let seconds = between(from.at_ns, to.at_ns);
    let a_second = |of: fn(&Look) -> u64| rounded((of(to) - of(from)) as f64 / seconds);
    let percent = |part: u64, whole: u64| rounded(100.0 * part as f64 / whole.max(1) as f64);
    let share = |pages: u64| percent(pages, to.cache_pages);
    let hits = to.read_hits.saturating_sub(from.read_hits);
    let looked_for = hits + (to.read_misses - from.read_misses);
    Moment {
        seconds: rounded(between(began_ns, to.at_ns)),
        high_percent: share(to.watermark_high_pages),
        low_percent: share(to.watermark_low_pages),
        max_percent: share(to.watermark_max_pages),
        pressure_percent: share(to.pressure_pages),
        dirty_percent: share(to.dirty_memory_pages),
        clean_percent: share(to.clean_pages),
        patched_pages: to.patched_pages,
        dirtied_per_s: a_second(|look| look.dirtied_pages),
        cleaned_per_s: a_second(|look| look.cleaned_pages),
        hit_percent: (looked_for > 0).then(|| percent(hits, looked_for)),
        ghost_hits_per_s: a_second(|look| look.ghost_hits),
        ghost_misses_per_s: a_second(|look| look.ghost_misses),
        destages_per_s: a_second(|look| look.destage_commands),
        fetches_per_s: a_second(|look| look.fetch_commands),
        destages_in_flight: to.destages_in_flight,
        paced_per_s: a_second(|look| look.writers_paced),
    }
}

/// Seconds; not nothing, lest a rate be endless.
fn between(from_ns: u64, to_ns: u64) -> f64 {
    (to_ns.saturating_sub(from_ns).max(1_000_000)) as f64 / 1e9
}

/// More than two digits tell nothing.
fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Counts;

    const SECOND: u64 = 1_000_000_000;

    fn seen(seconds: u64) -> OverTime {
        let look = |at: u64| Look {
            at_ns: at * SECOND,
            watermark_high_pages: 20 + at,
            cache_pages: 100,
            dirtied_pages: 50 * at,
            read_hits: 3 * at,
            read_misses: at,
            ..Look::default()
        };
        let disk = |at: u64| (at * SECOND, Counts { writes: 7 * at, ..Counts::default() });
        OverTime {
            began_ns: 10 * SECOND,
            ended_ns: (10 + seconds) * SECOND,
            disk: (10..=10 + seconds).map(disk).collect(),
            weir: (0..=20 + seconds).map(look).collect(),
        }
    }

    #[test]
    fn a_curve_is_of_the_load_alone() {
        let curves = curves(&seen(5));
        let at = |moment: &Moment| (moment.seconds, moment.high_percent);
        assert_eq!(
            curves.moments.iter().map(at).collect::<Vec<_>>()[1..],
            [(1.0, 31.0), (2.0, 32.0), (3.0, 33.0), (4.0, 34.0), (5.0, 35.0)]
        );
        assert_eq!(curves.moments[2].dirtied_per_s, 50.0);
        assert_eq!(curves.moments[2].hit_percent, Some(75.0));
        assert!(curves.requests.iter().all(|step| step.writes_per_s == 7.0));
        assert_eq!(curves.requests.len(), 5);
    }

    #[test]
    fn a_long_one_is_thinned_and_none_is_none() {
        let long = curves(&seen(3600));
        assert!((100..=POINTS_MAX).contains(&long.moments.len()), "{}", long.moments.len());
        assert!(long.moments.iter().all(|moment| moment.dirtied_per_s == 50.0));
        let none = OverTime { weir: Vec::new(), disk: Vec::new(), ..seen(5) };
        assert_eq!(curves(&none), Curves::default());
    }
}
