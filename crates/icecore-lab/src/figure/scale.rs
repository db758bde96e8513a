//! Where values lie along an axis of a picture, and which of them are named.

use crate::chart::{Axis, Scale};

const TICKS_MAX: f64 = 6.0;

/// An axis laid on the canvas, from one coordinate to another.
pub(super) struct Ruler<'chart> {
    scale: &'chart Scale,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl<'chart> Ruler<'chart> {
    /// The axis between two coordinates, wide enough for all of the values. A linear axis begins at 0.
    pub(super) fn new(
        axis: &'chart Axis,
        values: impl Iterator<Item = f64> + Clone,
        from: f64,
        to: f64,
    ) -> Self {
        let highest = values.clone().fold(0.0, f64::max);
        let (low, high) = match &axis.scale {
            Scale::Names(names) => (-0.5, names.len().max(1) as f64 - 0.5),
            Scale::Linear => (0.0, if highest > 0.0 { highest } else { 1.0 }),
            Scale::Log => decades(values),
        };
        Self { scale: &axis.scale, low, high, from, to }
    }

    /// The same with its end on a round number.
    pub(super) fn rounded(mut self) -> Self {
        if let Scale::Linear = self.scale {
            let step = round_step(self.high / TICKS_MAX);
            self.high = (self.high / step).ceil().max(1.0) * step;
        }
        self
    }

    /// The coordinate of a value.
    pub(super) fn at(&self, value: f64) -> f64 {
        let part = match self.scale {
            Scale::Log => {
                (value.max(self.low).log10() - self.low.log10()) / (self.high.log10() - self.low.log10())
            }
            Scale::Linear | Scale::Names(_) => (value - self.low) / (self.high - self.low),
        };
        self.from + (self.to - self.from) * part.clamp(0.0, 1.0)
    }

    /// Where bars begin.
    pub(super) fn base(&self) -> f64 {
        self.from
    }

    /// The values to name, with their names.
    pub(super) fn ticks(&self) -> Vec<(f64, String)> {
        match self.scale {
            Scale::Names(names) => (0..).map(f64::from).zip(names.iter().cloned()).collect(),
            Scale::Linear => {
                let step = round_step(self.high / TICKS_MAX);
                let count = (self.high / step * 1.000_001).floor() as u32;
                (0..=count).map(|tick| f64::from(tick) * step).map(|value| (value, short(value))).collect()
            }
            Scale::Log => {
                let (first, last) = (self.low.log10().round() as i32, self.high.log10().round() as i32);
                let power = |exponent: i32| 10_f64.powi(exponent);
                (first..=last).map(power).map(|value| (value, short(value))).collect()
            }
        }
    }
}

/// The powers of ten around the positive ones of the values.
fn decades(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let positive = values.filter(|value| *value > 0.0);
    let (low, high) = positive
        .fold((f64::INFINITY, 0.0), |(low, high): (f64, f64), value| (low.min(value), high.max(value)));
    if !low.is_finite() {
        return (1.0, 10.0);
    }
    let (low, high) = (low.log10().floor(), high.log10().ceil());
    (10_f64.powf(low), 10_f64.powf(high.max(low + 1.0)))
}

/// The smallest of 1, 2, 5 times a power of ten that is not below `least`.
fn round_step(least: f64) -> f64 {
    if least.is_nan() || least <= 0.0 {
        return 1.0;
    }
    let power = 10_f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|digit| digit * power)
        .find(|&step| step >= least * 0.999_999)
        .unwrap_or(10.0 * power)
}

/// A number for people: three digits that count, and a letter for thousands and more.
#[must_use]
pub fn short(value: f64) -> String {
    let size = value.abs();
    let (value, letter) = match size {
        1e9.. => (value / 1e9, "G"),
        1e6.. => (value / 1e6, "M"),
        1e4.. => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let size = value.abs();
    let decimals = match size {
        100.0.. => 0,
        10.0.. => 1,
        1.0.. => 2,
        0.01.. => 3,
        _ => 6,
    };
    let text = format!("{value:.decimals$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{letter}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round() {
        assert_eq!(round_step(0.9), 1.0);
        assert_eq!(round_step(13.0), 20.0);
        assert_eq!(round_step(50.0), 50.0);
        assert_eq!(round_step(0.0), 1.0);
    }

    #[test]
    fn numbers_are_short() {
        let shown: Vec<String> =
            [0.0, 0.25, 1.0, 12.5, 250.0, 9999.0, 12_000.0, 3.5e6, 2e9].map(short).into();
        assert_eq!(shown, ["0", "0.25", "1", "12.5", "250", "9999", "12k", "3.5M", "2G"]);
    }

    #[test]
    fn axes_hold_their_values() {
        let axis = Axis::log("us");
        let ruler = Ruler::new(&axis, [3.0, 250.0].into_iter(), 0.0, 100.0);
        assert_eq!((ruler.at(1.0), ruler.at(1000.0)), (0.0, 100.0));
        assert_eq!(ruler.ticks().len(), 4);
        let axis = Axis::linear("s");
        let ruler = Ruler::new(&axis, [250.0].into_iter(), 0.0, 100.0).rounded();
        assert_eq!(ruler.ticks().last().map(|tick| tick.0), Some(250.0));
        let axis = Axis::names("", vec!["a".into(), "b".into()]);
        let ruler = Ruler::new(&axis, std::iter::empty(), 0.0, 100.0);
        assert_eq!((ruler.at(0.0), ruler.at(1.0)), (25.0, 75.0));
    }
}
