//! What a person sees while the suite runs: a bar with the time left, and a line for each cell as it
//! is done. On anything but a terminal only the lines.

use indicatif::{ProgressBar, ProgressStyle};

use crate::nbw::plan::Cell;
use crate::nbw::results::Case;
use crate::nbw::table;

/// Seconds a load costs beyond its own length: mounting, cold caches, verification.
const OVERHEAD_SECONDS: f64 = 1.5;

/// The bar; it is gone when this is.
pub struct Progress(ProgressBar);

impl Progress {
    /// For these cells.
    pub fn new(cells: &[&Cell]) -> Progress {
        let total: f64 =
            cells.iter().map(|cell| f64::from(cell.loads()) * cost(cell.seconds)).sum();
        let bar = ProgressBar::new(total.round() as u64);
        let style = ProgressStyle::with_template(
            "{elapsed_precise} {bar:24} {percent}%, {eta} left  {wide_msg}",
        )
        .expect("the template is valid");
        bar.set_style(style);
        bar.enable_steady_tick(std::time::Duration::from_millis(500));
        Progress(bar)
    }

    /// What is being done now.
    pub fn say(&self, what: &str) {
        self.0.set_message(what.to_owned());
    }

    /// A load of that many seconds is done.
    pub fn done(&mut self, seconds: f64) {
        self.0.inc(cost(seconds).round() as u64);
    }

    /// Prints the line of a cell.
    pub fn report(&self, cases: &[Case]) {
        self.0.suspend(|| println!("{}", table::line(cases)));
    }
}

/// In tenths of a second.
fn cost(seconds: f64) -> f64 {
    (seconds + OVERHEAD_SECONDS) * 10.0
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
