//! The mix of blogbench: writers, rewriters, commenters and readers on a tree of small files. It is not the
//! program.
//!
//! A blog is a folder with an article, pictures and comments. The oldest blog goes when there are too many,
//! so that a fast system does not run out of room for being fast.

use crate::error::{Doing, Error, Result};
use crate::random::{Random, mix};
use std::fs::{self, File};
use std::io::{ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Width of a counter of [`Tally`].
pub(super) const TICK: Duration = Duration::from_millis(10);
const PICTURES: u64 = 3;
const ARTICLE_BYTES: u64 = 16 << 10;
const PICTURE_BYTES: u64 = 64 << 10;
const COMMENT_BYTES: u64 = 2 << 10;

/// How many of each kind there are: blogbench's own numbers, unless it is a toy.
#[derive(Clone, Copy)]
pub(super) struct Crew {
    pub writers: u64,
    pub rewriters: u64,
    pub commenters: u64,
    pub readers: u64,
}

/// Operations in each tick.
pub(super) struct Tally(Vec<AtomicU32>);

impl Tally {
    fn new(time: Duration) -> Self {
        let ticks = time.as_millis() / TICK.as_millis() + 1;
        Self((0..ticks).map(|_| AtomicU32::new(0)).collect())
    }

    fn add(&self, at: Duration) {
        let tick = (at.as_millis() / TICK.as_millis()) as usize;
        // What ends after the end of the run does not count.
        if let Some(count) = self.0.get(tick) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Operations by tick.
    pub(super) fn counts(&self) -> Vec<f64> {
        self.0.iter().map(|count| f64::from(count.load(Ordering::Relaxed))).collect()
    }
}

/// The tree, and what is done with it.
pub(super) struct Mix {
    folder: PathBuf,
    begin: Instant,
    time: Duration,
    blogs_max: u64,
    /// Number of the next blog.
    next: AtomicU64,
    /// Numbers below this are gone.
    oldest: AtomicU64,
    ended: AtomicBool,
    failed: Mutex<Option<Error>>,
    pub written: Tally,
    pub read: Tally,
}

/// Most bytes of a blog before comments.
pub(super) const BLOG_BYTES: u64 = ARTICLE_BYTES + PICTURES * PICTURE_BYTES;

impl Mix {
    /// A mix that goes on for this time; it begins now.
    pub(super) fn new(folder: &Path, time: Duration, blogs_max: u64) -> Self {
        Self {
            folder: folder.to_owned(),
            begin: Instant::now(),
            time,
            blogs_max,
            next: AtomicU64::new(0),
            oldest: AtomicU64::new(0),
            ended: AtomicBool::new(false),
            failed: Mutex::new(None),
            written: Tally::new(time),
            read: Tally::new(time),
        }
    }

    /// Since the beginning.
    pub(super) fn elapsed(&self) -> Duration {
        self.begin.elapsed()
    }

    pub(super) fn is_over(&self) -> bool {
        self.ended.load(Ordering::Relaxed) || self.elapsed() >= self.time
    }

    /// Runs all of the crew until the time is up, and `meanwhile` beside it.
    pub(super) fn run(&self, crew: Crew, seed: u64, meanwhile: impl FnOnce() -> Result<()>) -> Result<()> {
        let done = std::thread::scope(|scope| {
            let roles = [
                (crew.writers, Self::write_blog as fn(&Self, &mut Random) -> Result<()>),
                (crew.rewriters, Self::rewrite),
                (crew.commenters, Self::comment),
                (crew.readers, Self::read_blog),
            ];
            for (role, (count, work)) in (0_u64..).zip(roles) {
                for number in 0..count {
                    let random = Random::new(mix(seed ^ (role << 32) ^ number));
                    scope.spawn(move || self.work(random, work));
                }
            }
            let done = meanwhile();
            if done.is_err() {
                self.ended.store(true, Ordering::Relaxed);
            }
            done
        });
        let failed = self.failed.lock().map_or(None, |mut failed| failed.take());
        done.and(failed.map_or(Ok(()), Err))
    }

    fn work(&self, mut random: Random, work: fn(&Self, &mut Random) -> Result<()>) {
        while !self.is_over() {
            match work(self, &mut random) {
                // The blog went before its turn.
                Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {}
                Err(error) => {
                    self.ended.store(true, Ordering::Relaxed);
                    if let Ok(mut failed) = self.failed.lock() {
                        failed.get_or_insert(error);
                    }
                }
                Ok(()) => {}
            }
        }
    }

    fn blog(&self, number: u64) -> PathBuf {
        self.folder.join(format!("blog-{number}"))
    }

    /// One of the blogs that are there.
    fn any(&self, random: &mut Random) -> Option<PathBuf> {
        let (oldest, next) = (self.oldest.load(Ordering::Relaxed), self.next.load(Ordering::Relaxed));
        if next <= oldest {
            // Nothing is there yet.
            std::thread::sleep(TICK);
            return None;
        }
        Some(self.blog(oldest + random.below(next - oldest)))
    }

    fn write_blog(&self, random: &mut Random) -> Result<()> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let folder = self.blog(number);
        fs::create_dir(&folder).doing(|| format!("make {}", folder.display()))?;
        self.put(&folder.join("article"), ARTICLE_BYTES, random)?;
        for picture in 0..PICTURES {
            self.put(&folder.join(format!("picture-{picture}")), PICTURE_BYTES, random)?;
        }
        if number >= self.blogs_max {
            let old = self.blog(self.oldest.fetch_add(1, Ordering::Relaxed));
            match fs::remove_dir_all(&old) {
                // Another thread puts a file there just now; it stays.
                Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => {}
                removed => removed.doing(|| format!("remove {}", old.display()))?,
            }
        }
        Ok(())
    }

    /// As editors do it: a new file takes the name of the old one.
    fn rewrite(&self, random: &mut Random) -> Result<()> {
        let Some(folder) = self.any(random) else { return Ok(()) };
        let (new, old) = (folder.join("article.new"), folder.join("article"));
        self.put(&new, ARTICLE_BYTES, random)?;
        fs::rename(&new, &old).doing(|| format!("rename {}", new.display()))
    }

    fn comment(&self, random: &mut Random) -> Result<()> {
        let Some(folder) = self.any(random) else { return Ok(()) };
        self.put(&folder.join(format!("comment-{}", random.below(20))), COMMENT_BYTES, random)
    }

    fn read_blog(&self, random: &mut Random) -> Result<()> {
        let Some(folder) = self.any(random) else { return Ok(()) };
        let doing = || format!("read {}", folder.display());
        let mut contents = Vec::new();
        for entry in fs::read_dir(&folder).doing(doing)? {
            if self.is_over() {
                break;
            }
            contents.clear();
            File::open(entry.doing(doing)?.path()).doing(doing)?.read_to_end(&mut contents).doing(doing)?;
            self.read.add(self.elapsed());
        }
        Ok(())
    }

    fn put(&self, path: &Path, bytes_max: u64, random: &mut Random) -> Result<()> {
        let mut contents = vec![0; (1 + random.below(bytes_max)) as usize];
        let half = contents.len() / 2;
        random.fill(&mut contents[..half]);
        let doing = || format!("write {}", path.display());
        File::create(path).doing(doing)?.write_all(&contents).doing(doing)?;
        self.written.add(self.elapsed());
        Ok(())
    }
}

/// The longest run of ticks without an operation.
pub(super) fn longest_gap(ticks: &[f64]) -> Duration {
    let longest = ticks.split(|count| *count > 0.0).map(<[f64]>::len).max().unwrap_or(0);
    TICK * u32::try_from(longest).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_gap_is_found_at_the_ends_too() {
        assert_eq!(longest_gap(&[1.0, 0.0, 0.0, 2.0, 0.0, 0.0, 0.0]), TICK * 3);
        assert_eq!(longest_gap(&[]), Duration::ZERO);
    }

    #[test]
    fn all_threads_work_and_old_blogs_go() {
        let folder = tempfile::tempdir().expect("a folder");
        let mix = Mix::new(folder.path(), Duration::from_millis(300), 5);
        let crew = Crew { writers: 2, rewriters: 1, commenters: 1, readers: 2 };
        mix.run(crew, 1, || Ok(())).expect("it ran");
        let sum = |tally: &Tally| tally.counts().iter().sum::<f64>();
        assert!(sum(&mix.written) > 0.0 && sum(&mix.read) > 0.0);
        let blogs = fs::read_dir(folder.path()).expect("listed").count();
        assert!(blogs >= 1 && (blogs as u64) < mix.next.load(Ordering::Relaxed), "{blogs}");
    }
}
