//! Medians, and how sure they are.
//!
//! Every ratio is that of runs taken in pairs, one right after the other, so that what slows the whole
//! machine down slows both. The value reported is the **median of the pairs' ratios**, and its interval is
//! the percentile bootstrap: 10,000 times as many pairs are drawn from those measured, with replacement
//! and from a fixed seed, and the middle 95 % of their medians is the interval. The median rather than a
//! mean of logarithms because what goes wrong on a shared machine (a neighbour's burst, a host's
//! write-back) hits single runs hard: a mean follows such a run, a median does not. The price is a
//! somewhat wider interval when nothing goes wrong.

use crate::random::Random;

/// Resamples drawn by [`bootstrap`].
pub const RESAMPLES: usize = 10_000;

/// A value with the bounds of its 95 % confidence interval.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Estimate {
    /// The value for all samples.
    pub value: f64,
    /// Lower bound.
    pub low: f64,
    /// Upper bound.
    pub high: f64,
}

/// The middle of the samples (the mean of the two middle ones of an even number); NaN for none.
#[must_use]
pub fn median(samples: &[f64]) -> f64 {
    quantile(samples, 0.5)
}

/// The mean of the samples; NaN for none.
#[must_use]
pub fn mean(samples: &[f64]) -> f64 {
    samples.iter().sum::<f64>() / samples.len() as f64
}

/// The root of the product of positive samples, for ratios; NaN for none.
#[must_use]
pub fn geometric_mean(samples: &[f64]) -> f64 {
    mean(&samples.iter().map(|sample| sample.ln()).collect::<Vec<_>>()).exp()
}

/// The value below which `part` (0 to 1) of the samples lie, interpolated; NaN for no samples.
#[must_use]
pub fn quantile(samples: &[f64], part: f64) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    quantile_of_sorted(&sorted, part)
}

fn quantile_of_sorted(sorted: &[f64], part: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let position = part.clamp(0.0, 1.0) * last as f64;
    let below = position.floor();
    let index = below as usize;
    let above = sorted[(index + 1).min(last)];
    sorted[index] + (above - sorted[index]) * (position - below)
}

/// The statistic of the samples with its percentile bootstrap interval; the seed makes it repeatable.
#[must_use]
pub fn bootstrap(samples: &[f64], statistic: fn(&[f64]) -> f64, seed: u64) -> Estimate {
    let value = statistic(samples);
    if samples.len() < 2 {
        return Estimate { value, low: value, high: value };
    }
    let mut random = Random::new(seed);
    let mut resample = vec![0.0; samples.len()];
    let mut values = Vec::with_capacity(RESAMPLES);
    for _ in 0..RESAMPLES {
        for place in &mut resample {
            *place = samples[random.below(samples.len() as u64) as usize];
        }
        values.push(statistic(&resample));
    }
    values.sort_by(f64::total_cmp);
    Estimate { value, low: quantile_of_sorted(&values, 0.025), high: quantile_of_sorted(&values, 0.975) }
}

/// The median of the pairs' ratios, `numerator[i] / denominator[i]`, with its interval.
///
/// # Panics
/// If the two sides do not have equally many samples: then they are not pairs.
#[must_use]
pub fn paired_ratio(numerator: &[f64], denominator: &[f64], seed: u64) -> Estimate {
    assert_eq!(numerator.len(), denominator.len(), "pairs have two sides");
    let ratios: Vec<f64> = numerator.iter().zip(denominator).map(|(above, below)| above / below).collect();
    bootstrap(&ratios, median, seed)
}

/// The median of one set of samples over that of another that ran at another time, with its interval: both
/// sides are resampled, each on its own. Resampling two or three values says too little of their spread, so
/// the interval also spans that of Welch's t-test of their logarithms ("The generalization of 'Student's'
/// problem when several different population variances are involved", Biometrika 34, 1947).
#[must_use]
pub fn unpaired_ratio(numerator: &[f64], denominator: &[f64], seed: u64) -> Estimate {
    let value = median(numerator) / median(denominator);
    if numerator.len() < 2 && denominator.len() < 2 {
        return Estimate { value, low: value, high: value };
    }
    let resampled = resampled_ratio(value, numerator, denominator, seed);
    match welch(numerator, denominator) {
        Some((low, high)) => Estimate { value, low: low.min(resampled.low), high: high.max(resampled.high) },
        None => resampled,
    }
}

/// Bounds of the ratio of two geometric means; `None` if there are too few samples, or some are not positive.
fn welch(numerator: &[f64], denominator: &[f64]) -> Option<(f64, f64)> {
    let [above, below] = [numerator, denominator].map(|samples| {
        let logarithms: Vec<f64> = samples.iter().map(|sample| sample.ln()).collect();
        let (count, mean) = (samples.len() as f64, mean(&logarithms));
        let squares = logarithms.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
        // The variance of the mean, and its degrees of freedom.
        (mean, squares / (count - 1.0) / count, count - 1.0)
    });
    let variance = above.1 + below.1;
    let parts = above.1.powi(2) / above.2 + below.1.powi(2) / below.2;
    let difference = above.0 - below.0;
    if variance == 0.0 {
        return Some((difference.exp(), difference.exp()));
    }
    let degrees = variance.powi(2) / parts;
    let reach = quantile_of_student(degrees) * variance.sqrt();
    reach.is_finite().then(|| ((difference - reach).exp(), (difference + reach).exp()))
}

/// Below which 97.5 % of Student's distribution lie, from its table; NaN for less than one degree of freedom.
fn quantile_of_student(degrees: f64) -> f64 {
    const TABLE: [f64; 10] = [12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];
    match (degrees + 1e-9).floor() as usize {
        0 => f64::NAN,
        whole @ 1..=10 => TABLE[whole - 1],
        11..=15 => 2.201,
        16..=30 => 2.120,
        _ => 2.040,
    }
}

fn resampled_ratio(value: f64, numerator: &[f64], denominator: &[f64], seed: u64) -> Estimate {
    let mut random = Random::new(seed);
    let mut resampled = |samples: &[f64]| {
        let one = |_| samples[random.below(samples.len() as u64) as usize];
        median(&(0..samples.len()).map(one).collect::<Vec<_>>())
    };
    let mut ratios: Vec<f64> =
        (0..RESAMPLES).map(|_| resampled(numerator) / resampled(denominator)).collect();
    ratios.sort_by(f64::total_cmp);
    Estimate { value, low: quantile_of_sorted(&ratios, 0.025), high: quantile_of_sorted(&ratios, 0.975) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_means_and_quantiles_of_small_sets() {
        assert!(median(&[]).is_nan());
        assert_eq!(median(&[3.0]), 3.0);
        assert_eq!(median(&[4.0, 1.0]), 2.5);
        assert_eq!(median(&[9.0, 1.0, 5.0]), 5.0);
        assert!(geometric_mean(&[]).is_nan());
        assert!((geometric_mean(&[2.0, 8.0]) - 4.0).abs() < 1e-9);
        assert_eq!(quantile(&[0.0, 10.0], 0.25), 2.5);
        assert_eq!(quantile(&[0.0, 10.0], 1.0), 10.0);
    }

    #[test]
    fn equal_seeds_give_equal_intervals() {
        let samples: Vec<f64> = (0..25_i32).map(|number| f64::from(number * number % 17)).collect();
        assert_eq!(bootstrap(&samples, median, 5), bootstrap(&samples, median, 5));
        let estimate = bootstrap(&samples, median, 5);
        assert!(estimate.low <= estimate.value && estimate.value <= estimate.high);
        assert!(estimate.low < estimate.high);
    }

    #[test]
    fn one_sample_knows_nothing_about_its_spread() {
        assert_eq!(bootstrap(&[2.0], median, 1), Estimate { value: 2.0, low: 2.0, high: 2.0 });
    }

    #[test]
    fn drift_common_to_both_sides_cancels_in_pairs() {
        let below: Vec<f64> = (1..=20_i32).map(f64::from).collect();
        let above: Vec<f64> = below.iter().map(|value| value * 0.7).collect();
        let estimate = paired_ratio(&above, &below, 3);
        assert!((estimate.low - 0.7).abs() < 1e-9 && (estimate.high - 0.7).abs() < 1e-9);
    }

    #[test]
    fn runs_at_other_times_are_compared_without_pairs() {
        let before = [10.0, 11.0, 9.0, 10.5, 9.5];
        let after: Vec<f64> = before.iter().rev().map(|value| value * 2.0).collect();
        let estimate = unpaired_ratio(&after, &before, 7);
        assert_eq!(estimate.value, 2.0);
        assert!(1.5 < estimate.low && estimate.low < 2.0 && 2.0 < estimate.high && estimate.high < 2.5);
        assert_eq!(unpaired_ratio(&[4.0], &[2.0], 7), Estimate { value: 2.0, low: 2.0, high: 2.0 });
    }

    /// The sum of twelve fractions is nearly normal.
    #[test]
    fn what_is_the_same_seldom_passes_for_a_change_however_few_the_runs() {
        let mut random = Random::new(5);
        for runs in [2, 3, 5] {
            let mut side = || -> Vec<f64> {
                (0..runs).map(|_| 4.0 + (0..12).map(|_| random.fraction()).sum::<f64>()).collect()
            };
            let wrong = (0..200)
                .filter(|&seed| {
                    let estimate = unpaired_ratio(&side(), &side(), seed);
                    estimate.low > 1.0 || estimate.high < 1.0
                })
                .count();
            assert!(wrong <= 14, "{wrong} of 200 with {runs} runs");
        }
        let clear = unpaired_ratio(&[2.0, 2.02, 2.01], &[1.0, 1.01, 0.99], 1);
        assert!(clear.low > 1.9 && clear.high < 2.1, "{clear:?}");
        let exact = unpaired_ratio(&[3.0, 3.0], &[2.0, 2.0], 1);
        assert!((exact.low - 1.5).abs() < 1e-9 && (exact.high - 1.5).abs() < 1e-9);
    }

    #[test]
    fn the_interval_covers_the_truth_about_as_often_as_it_says() {
        let mut random = Random::new(11);
        let covered = (0..40)
            .filter(|&round| {
                let samples: Vec<f64> = (0..21).map(|_| random.fraction() + random.fraction()).collect();
                let estimate = bootstrap(&samples, median, round);
                estimate.low <= 1.0 && 1.0 <= estimate.high
            })
            .count();
        assert!((35..=40).contains(&covered), "{covered} of 40");
    }
}
