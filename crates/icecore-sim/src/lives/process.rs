//! What a process takes of the machine: memory and file descriptors must not grow with the number of lives.

use std::fmt;

/// Memory that a long run may take more than a short one, in bytes: allocators keep what they had.
const GROWTH_BYTES_MAX: u64 = 64 << 20;
/// Descriptors that it may have open more.
const GROWTH_FILES_MAX: u64 = 8;

/// What this process takes at a moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Footprint {
    /// Resident bytes.
    pub memory: u64,
    /// Open file descriptors.
    pub files: u64,
}

impl Footprint {
    /// Looks at this process; `None` where the system does not tell.
    #[must_use]
    pub fn now() -> Option<Self> {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        let kibibytes: u64 = line.split_whitespace().next()?.parse().ok()?;
        let files = std::fs::read_dir("/proc/self/fd").ok()?.count() as u64;
        Some(Self { memory: kibibytes << 10, files })
    }

    /// What grew from the first quarter of a run to the last, if more than it may. In the order of time.
    #[must_use]
    pub fn growth(samples: &[Self]) -> Option<String> {
        let quarter = samples.len() / 4;
        if quarter < 4 {
            return None;
        }
        // The very first ones know only how it begins.
        let (early, late) = (&samples[quarter..2 * quarter], &samples[samples.len() - quarter..]);
        let middle = |part: &[Self], value: fn(&Self) -> u64| {
            let mut values: Vec<u64> = part.iter().map(value).collect();
            values.sort_unstable();
            values[values.len() / 2]
        };
        let memory = (middle(early, |one| one.memory), middle(late, |one| one.memory));
        let files = (middle(early, |one| one.files), middle(late, |one| one.files));
        if memory.1 > memory.0 + memory.0 / 4 + GROWTH_BYTES_MAX {
            return Some(format!("memory grew from {} to {} bytes", memory.0, memory.1));
        }
        (files.1 > files.0 + GROWTH_FILES_MAX)
            .then(|| format!("open files grew from {} to {}", files.0, files.1))
    }
}

impl fmt::Display for Footprint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} MiB, {} open files", self.memory >> 20, self.files)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_noticed_and_noise_is_not() {
        let sample = |memory: u64, files| Footprint { memory: memory << 20, files };
        let steady: Vec<_> = (0..40).map(|number| sample(100 + number % 7 * 20, 10 + number % 3)).collect();
        assert_eq!(Footprint::growth(&steady), None);
        let leaking: Vec<_> = (0..40).map(|number| sample(100 + number * 10, 10)).collect();
        assert!(Footprint::growth(&leaking).is_some_and(|text| text.starts_with("memory")));
        let open: Vec<_> = (0..40).map(|number| sample(100, 10 + number)).collect();
        assert!(Footprint::growth(&open).is_some_and(|text| text.starts_with("open files")));
        assert!(Footprint::now().is_some_and(|one| one.memory > 0 && one.files > 2));
    }
}
