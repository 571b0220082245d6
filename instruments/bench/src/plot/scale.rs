//! From a figure to a place on the y axis, and where the axis has its ticks.
//!
//! Invariant: a scale has a range above zero, and the figures it was made for lie in it.

/// The y axis of a panel.
#[derive(Clone, Debug, PartialEq)]
pub struct Scale {
    logarithmic: bool,
    low: f64,
    high: f64,
    ticks: Vec<f64>,
}

/// Ticks of a linear axis, about.
const TICKS: f64 = 5.0;
/// No figure of a measurement is beyond these; what is counts for nothing.
const PLAUSIBLE: std::ops::RangeInclusive<f64> = 1e-9..=1e15;

impl Scale {
    /// From zero to beyond the largest of `figures`. What is not a number counts for nothing.
    pub fn linear(figures: impl IntoIterator<Item = f64>) -> Scale {
        let figures = figures.into_iter().filter(|figure| PLAUSIBLE.contains(figure));
        let most = figures.fold(0.0, f64::max);
        let most = if most > 0.0 { most * 1.04 } else { 1.0 };
        let step = round_up(most / TICKS);
        let count = (most / step).ceil() as u32;
        let ticks: Vec<f64> = (0..=count).map(|tick| f64::from(tick) * step).collect();
        Scale { logarithmic: false, low: 0.0, high: f64::from(count) * step, ticks }
    }

    /// From below the least to above the largest of `figures`, each step ten times the last (or, in
    /// a short range, two or two and a half times). Figures that have no logarithm count for
    /// nothing.
    pub fn logarithmic(figures: impl IntoIterator<Item = f64>) -> Scale {
        let (least, most) = figures
            .into_iter()
            .filter(|figure| PLAUSIBLE.contains(figure))
            .fold((f64::INFINITY, 0.0_f64), |(least, most), figure| {
                (least.min(figure), most.max(figure))
            });
        let (least, most) = if most > 0.0 { (least, most) } else { (1.0, 10.0) };
        let low = round_down(least / 1.05);
        let high = round_up(most * 1.05);
        let decades = |from: f64, to: f64| (to / from).log10();
        let factors: &[f64] = if decades(low, high) > 2.5 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let mut ticks = Vec::new();
        for power in low.log10().floor() as i32..=high.log10().ceil() as i32 {
            for factor in factors {
                let tick = factor * 10f64.powi(power);
                if tick >= low * 0.999 && tick <= high * 1.001 {
                    ticks.push(tick);
                }
            }
        }
        Scale { logarithmic: true, low, high, ticks }
    }

    /// Where `figure` is between the axis' lower end (0) and its upper (1); within them.
    pub fn place(&self, figure: f64) -> f64 {
        let place = if self.logarithmic {
            (figure.max(self.low) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (figure - self.low) / (self.high - self.low)
        };
        if place.is_finite() { place.clamp(0.0, 1.0) } else { 0.0 }
    }

    /// The figures with a tick, and what is written there.
    pub fn ticks(&self) -> impl Iterator<Item = (f64, String)> + '_ {
        self.ticks.iter().map(|tick| (*tick, short(*tick)))
    }
}

/// The least of 1, 2 and 5 times a power of ten that is not below `value`, which is above zero.
fn round_up(value: f64) -> f64 {
    let power = 10f64.powi(value.log10().floor() as i32);
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * power >= value * 0.9999);
    factor.unwrap_or(10.0) * power
}

/// The largest of them that is not above `value`, which is above zero.
fn round_down(value: f64) -> f64 {
    let power = 10f64.powi(value.log10().floor() as i32);
    let factor = [5.0, 2.0].into_iter().find(|factor| factor * power <= value * 1.0001);
    factor.unwrap_or(1.0) * power
}

/// A tick's figure, thousands as `k`, millions as `M`.
fn short(figure: f64) -> String {
    let (figure, unit) = match figure {
        figure if figure >= 999_999.0 => (figure / 1e6, "M"),
        figure if figure >= 999.9 => (figure / 1e3, "k"),
        figure => (figure, ""),
    };
    let mut text = format!("{figure:.3}");
    text.truncate(text.trim_end_matches('0').trim_end_matches('.').len());
    text + unit
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(scale: &Scale) -> Vec<String> {
        scale.ticks().map(|(_, label)| label).collect()
    }

    #[test]
    fn a_linear_axis_begins_at_zero_and_holds_everything() {
        let scale = Scale::linear([1.0, 0.6, f64::NAN]);
        assert_eq!(labels(&scale), ["0", "0.5", "1", "1.5"]);
        assert_eq!(scale.place(0.0), 0.0);
        assert!(scale.place(1.0) < 1.0);
        assert_eq!(labels(&Scale::linear([4200.0])), ["0", "1k", "2k", "3k", "4k", "5k"]);
    }

    #[test]
    fn a_logarithmic_axis_has_decades() {
        let scale = Scale::logarithmic([97.0, 5000.0, 250.0]);
        assert_eq!(labels(&scale), ["50", "100", "200", "500", "1k", "2k", "5k", "10k"]);
        let wide = Scale::logarithmic([90.0, 4_000_000.0]);
        assert_eq!(labels(&wide), ["100", "1k", "10k", "100k", "1M"]);
        assert!(wide.place(90.0) > 0.0 && wide.place(4_000_000.0) < 1.0);
        assert!(wide.place(9000.0) > wide.place(900.0));
    }

    #[test]
    fn nothing_to_show_is_an_axis_too() {
        let absurd = [0.0, -1.0, f64::NAN, f64::INFINITY, f64::MAX, 5e-324];
        for scale in [Scale::linear([]), Scale::linear(absurd), Scale::logarithmic(absurd)] {
            assert!(scale.ticks().count() >= 2, "{scale:?}");
            assert!((0.0..=1.0).contains(&scale.place(3.0)));
            assert_eq!(scale.place(f64::NAN), 0.0);
        }
    }
}
