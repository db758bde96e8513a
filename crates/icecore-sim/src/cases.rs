//! What all generated tests share: where seeds come from, and how a failure names its own.

use crate::random::Random;

/// The number in an environment variable.
///
/// # Panics
/// If it is none.
#[must_use]
pub fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is not a number: {text}")))
}

/// How many cases to run: `ICECORE_CASES`, or so many.
#[must_use]
pub fn cases(default: u64) -> u64 {
    variable("ICECORE_CASES").unwrap_or(default)
}

/// Whether this is a long run, that leaves nothing out.
#[must_use]
pub fn is_long() -> bool {
    variable("ICECORE_CASES").is_some()
}

/// Runs a test once for each of its seeds: those that follow from `ICECORE_SEED` when that is set (the first
/// is itself), else the same ones every time. A failure prints the seed of its case.
pub fn for_each_seed(name: &str, default_cases: u64, mut case: impl FnMut(u64)) {
    let first = variable("ICECORE_SEED");
    let mut random =
        Random::new(name.bytes().fold(7, |sum: u64, byte| sum.wrapping_mul(31) + u64::from(byte)));
    for number in 0..cases(default_cases) {
        let drawn = random.next() >> 32;
        let seed = first.map_or(drawn, |first| first + number);
        let _context = Context(format!("{name}: to repeat it alone: ICECORE_SEED={seed} ICECORE_CASES=1"));
        case(seed);
    }
}

/// All numbers from 1 to `last`, or in a short run a sample of so many.
pub fn sample(last: u64, most: u64, random: &mut Random) -> Vec<u64> {
    if is_long() || last <= most {
        return (1..=last).collect();
    }
    let mut numbers: Vec<u64> = (0..most).map(|_| random.between(1, last)).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

/// Says something if a panic passes.
pub struct Context(pub String);

impl Drop for Context {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.0);
        }
    }
}

/// Fails with a description.
///
/// # Panics
/// That is how.
pub fn must<T>(outcome: Result<T, String>) -> T {
    outcome.unwrap_or_else(|description| panic!("{description}"))
}
