//! Latencies and how they are summed up: percentiles of one series, medians over rounds.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use indicatif::HumanCount;
use serde::Serialize;

/// A series of latencies, and how long the whole series took.
#[derive(Clone)]
pub struct Latencies {
    histogram: Histogram<u64>,
    elapsed: Duration,
}

impl Latencies {
    /// Nothing measured yet.
    pub fn new() -> Latencies {
        let histogram =
            Histogram::new_with_bounds(1, 600_000_000_000, 3).expect("constant, valid bounds");
        Latencies { histogram, elapsed: Duration::ZERO }
    }

    /// Runs and times one operation.
    pub fn time<T>(&mut self, operation: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = operation();
        self.note(start.elapsed());
        result
    }

    /// Adds one operation that took `latency`.
    pub fn note(&mut self, latency: Duration) {
        self.histogram.saturating_record(latency.as_nanos().max(1) as u64);
        self.elapsed += latency;
    }

    /// Adds another series.
    pub fn add(&mut self, other: &Latencies) {
        self.histogram.add(&other.histogram).expect("same bounds");
        self.elapsed += other.elapsed;
    }

    /// The figures people ask for.
    pub fn summary(&self) -> Summary {
        let us = |quantile| self.histogram.value_at_quantile(quantile) as f64 / 1e3;
        let seconds = self.elapsed.as_secs_f64();
        Summary {
            count: self.histogram.len(),
            median_us: us(0.5),
            p99_us: us(0.99),
            max_us: self.histogram.max() as f64 / 1e3,
            mean_us: self.histogram.mean() / 1e3,
            per_second: if seconds > 0.0 { self.histogram.len() as f64 / seconds } else { 0.0 },
        }
    }
}

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies::new()
    }
}

/// A series in a few numbers.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Summary {
    /// Operations.
    pub count: u64,
    /// Median latency, microseconds.
    pub median_us: f64,
    /// 99th percentile, microseconds.
    pub p99_us: f64,
    /// Longest, microseconds.
    pub max_us: f64,
    /// Mean, microseconds.
    pub mean_us: f64,
    /// Operations a second while they were running.
    pub per_second: f64,
}

/// The sides of one round, each once: a round begins with the side after the one that the round before began with.
pub fn turn(round: u32, sides: usize) -> impl Iterator<Item = usize> {
    (0..sides).map(move |place| (round as usize + place) % sides)
}

/// The median of some figures, one a round; zero if there are none.
pub fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        len if len % 2 == 1 => sorted[len / 2],
        len => (sorted[len / 2 - 1] + sorted[len / 2]) / 2.0,
    }
}

/// The least and the most of some figures; `None` if there are none.
pub fn spread(figures: impl IntoIterator<Item = f64>) -> Option<(f64, f64)> {
    let both = figures.into_iter().map(|figure| (figure, figure));
    both.reduce(|(least, most), (figure, _)| (least.min(figure), most.max(figure)))
}

/// The mean of some figures, of which there is one at least.
pub fn mean(figures: &[f64]) -> f64 {
    figures.iter().sum::<f64>() / figures.len() as f64
}

/// A latency as a person reads it.
pub fn show_us(us: f64) -> String {
    match us {
        us if us < 1.0 => format!("{:.0} ns", us * 1e3),
        us if us < 100.0 => format!("{us:.1} us"),
        us if us < 10_000.0 => format!("{us:.0} us"),
        us if us < 1e6 => format!("{:.1} ms", us / 1e3),
        us => format!("{:.2} s", us / 1e6),
    }
}

/// A count with its thousands apart.
pub fn show_count(count: u64) -> String {
    HumanCount(count).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(&[]), 0.0);
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0]), 2.5);
    }

    #[test]
    fn counts_and_times_for_people() {
        assert_eq!(show_count(7), "7");
        assert_eq!(show_count(1234567), "1,234,567");
        assert_eq!(show_us(0.08), "80 ns");
        assert_eq!(show_us(12.34), "12.3 us");
        assert_eq!(show_us(12_340.0), "12.3 ms");
    }

    #[test]
    fn a_summary_of_a_series() {
        let mut latencies = Latencies::new();
        for us in 1..=100 {
            latencies.note(Duration::from_micros(us));
        }
        let summary = latencies.summary();
        assert_eq!(summary.count, 100);
        assert!((summary.median_us - 50.0).abs() < 0.5, "{summary:?}");
        assert!((summary.p99_us - 99.0).abs() < 0.5, "{summary:?}");
    }
}
