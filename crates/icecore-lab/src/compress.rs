//! A backup's way of reading: all files of a folder, one after the other, through zstd(1).

use crate::error::{Doing, Error, Result};
use crate::options::Options;
use crate::tool::{self, PATIENCE_AT_END, Tool};
use rustix::fs::{Advice, fadvise};
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const CHUNK_BYTES: usize = 1 << 20;

/// How long a folder is read, and how fast.
pub(crate) enum Pace<'a> {
    /// Once, as fast as it goes.
    Once,
    /// Again and again, until something else is over, at this speed at most.
    Until { over: &'a AtomicBool, bytes_per_second: Option<f64> },
}

/// What was read.
pub(crate) struct Copied {
    bytes: u64,
    time: Duration,
    /// Bytes of each second, the last one in part.
    each_second: Vec<u64>,
}

impl Copied {
    /// What a program has read, which does not say when.
    pub(crate) fn at_once(bytes: u64, time: Duration) -> Self {
        Self { bytes, time, each_second: Vec::new() }
    }

    pub(crate) fn bytes_per_second(&self) -> f64 {
        self.bytes as f64 / self.time.as_secs_f64()
    }

    /// MB of each whole second; of all where there is none.
    pub(crate) fn megabytes_each_second(&self) -> Vec<f64> {
        let whole = &self.each_second[..(self.time.as_secs() as usize).min(self.each_second.len())];
        if whole.is_empty() {
            return vec![self.bytes_per_second() / 1e6];
        }
        whole.iter().map(|bytes| *bytes as f64 / 1e6).collect()
    }

    fn add(&mut self, bytes: usize, at: Duration) {
        self.bytes += bytes as u64;
        self.time = at;
        self.each_second.resize(self.each_second.len().max(at.as_secs() as usize + 1), 0);
        self.each_second[at.as_secs() as usize] += bytes as u64;
    }
}

/// Reads and compresses. Nothing that was read before comes from the page cache.
pub(crate) fn copy_compressed(folder: &Path, pace: Pace<'_>, options: &Options) -> Result<Copied> {
    let mut files = Vec::new();
    find_files(folder, &mut files)?;
    let mut compressor = Compressor::start()?;
    loop {
        for file in &files {
            read(file, &mut compressor, &pace, options)?;
        }
        if pace.is_over() {
            break;
        }
    }
    compressor.end(options)
}

/// Compresses what a program prints, and answers how much that was.
///
/// # Errors
/// As for [`tool::output`].
pub(crate) fn output_compressed(command: &mut Command, options: &Options) -> Result<Copied> {
    let mut compressor = Compressor::start()?;
    tool::pass_on(command, options, |bytes| compressor.take(bytes))?;
    compressor.end(options)
}

/// A zstd(1) whose output goes nowhere.
struct Compressor {
    program: Tool,
    input: ChildStdin,
    begin: Instant,
    copied: Copied,
}

impl Compressor {
    fn start() -> Result<Self> {
        let mut command = Command::new("zstd");
        command.args(["-1", "--quiet", "--stdout"]).stdout(Stdio::null());
        let (program, input) = Tool::start_fed(&mut command)?;
        let copied = Copied { bytes: 0, time: Duration::ZERO, each_second: Vec::new() };
        Ok(Self { program, input, begin: Instant::now(), copied })
    }

    fn take(&mut self, bytes: &[u8]) -> Result<()> {
        self.input.write_all(bytes).doing(|| "pass what was read to zstd".to_owned())?;
        self.copied.add(bytes.len(), self.begin.elapsed());
        Ok(())
    }

    fn end(self, options: &Options) -> Result<Copied> {
        let Self { mut program, input, copied, .. } = self;
        drop(input);
        // It has all that it is to compress.
        let ended = program.ends_within(PATIENCE_AT_END)?;
        if !ended || !program.wait(options)?.success() {
            let reason = if ended { "it failed" } else { "it does not end" };
            return Err(Error::Child { job: "zstd".to_owned(), reason: reason.to_owned() });
        }
        Ok(copied)
    }
}

impl Pace<'_> {
    /// Whether no more passes are wanted.
    fn is_over(&self) -> bool {
        match self {
            Self::Once => true,
            Self::Until { over, .. } => over.load(Ordering::Relaxed),
        }
    }

    /// Whether a pass ends before its time.
    fn is_cut(&self) -> bool {
        matches!(self, Self::Until { .. }) && self.is_over()
    }

    /// When so many bytes may have been read, from the beginning on.
    fn due(&self, bytes: u64) -> Duration {
        match self {
            Self::Until { bytes_per_second: Some(limit), .. } => {
                Duration::from_secs_f64(bytes as f64 / limit.max(1.0))
            }
            _ => Duration::ZERO,
        }
    }
}

fn read(path: &Path, compressor: &mut Compressor, pace: &Pace<'_>, options: &Options) -> Result<()> {
    let doing = || format!("read {}", path.display());
    let mut file = File::open(path).doing(doing)?;
    fadvise(&file, 0, None, Advice::DontNeed).doing(doing)?;
    let mut chunk = vec![0; CHUNK_BYTES];
    while !pace.is_cut() {
        let bytes = file.read(&mut chunk).doing(doing)?;
        if bytes == 0 {
            break;
        }
        compressor.take(&chunk[..bytes])?;
        let early = pace.due(compressor.copied.bytes).saturating_sub(compressor.begin.elapsed());
        options.wait_while(early, || !pace.is_cut())?;
    }
    fadvise(&file, 0, None, Advice::DontNeed).doing(doing)
}

/// The bytes of the files in a folder and below it.
pub(crate) fn bytes_of_files(folder: &Path) -> Result<u64> {
    let mut files = Vec::new();
    find_files(folder, &mut files)?;
    let length = |file: &PathBuf| fs::metadata(file).map(|found| found.len());
    let lengths: std::io::Result<Vec<u64>> = files.iter().map(length).collect();
    Ok(lengths.doing(|| format!("examine the files in {}", folder.display()))?.iter().sum())
}

/// The files in a folder and below it, sorted by path.
fn find_files(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let doing = || format!("list {}", folder.display());
    let entries: std::io::Result<Vec<_>> = fs::read_dir(folder).doing(doing)?.collect();
    let mut paths: Vec<PathBuf> = entries.doing(doing)?.iter().map(fs::DirEntry::path).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            find_files(&path, files)?;
        } else if path.is_file() {
            files.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("below")).expect("made");
        for name in ["one", "below/two"] {
            fs::write(folder.path().join(name), vec![7; 3 << 20]).expect("written");
        }
        folder
    }

    #[test]
    fn a_folder_is_read_once_with_all_below() {
        let folder = folder();
        let options = Options::new(folder.path());
        let copied = copy_compressed(folder.path(), Pace::Once, &options).expect("read");
        assert_eq!(copied.bytes, 6 << 20);
        assert_eq!(copied.each_second.iter().sum::<u64>(), 6 << 20);
    }

    #[test]
    fn a_limited_reader_goes_on_at_its_speed_until_it_is_over() {
        let folder = folder();
        let (options, over) = (Options::new(folder.path()), AtomicBool::new(false));
        let limit = f64::from(20 << 20);
        let copied = std::thread::scope(|scope| {
            let pace = Pace::Until { over: &over, bytes_per_second: Some(limit) };
            let reading = scope.spawn(|| copy_compressed(folder.path(), pace, &options));
            std::thread::sleep(Duration::from_millis(1500));
            over.store(true, Ordering::Relaxed);
            reading.join().expect("no panic").expect("read")
        });
        assert!(copied.bytes > 6 << 20, "more than one pass: {}", copied.bytes);
        // The last chunk may come before its time.
        assert!(copied.bytes as f64 <= limit * copied.time.as_secs_f64() + (1 << 20) as f64);
    }
}
