//! Everything a simulated disk consists of, and what happens to it from outside.

use super::directory::Directory;
use super::faults::{FaultKind, Faults};
use super::image::Image;
use super::survival::{CrashMode, Survival};
use super::{DiskConfig, SimulatedDisk};
use crate::lock::LockTable;
use crate::pages::Pages;
use crate::random::Random;
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::PathBuf;

/// How many removed files are remembered, to be found in new ones.
const FORMER_MAX: usize = 8;

/// A disk.
pub(super) struct State {
    pub(super) random: Random,
    pub(super) config: DiskConfig,
    /// Number of the present mounting; calls with an older one fail.
    pub(super) mounting: u64,
    pub(super) directory: Directory,
    pub(super) files: BTreeMap<u64, Image>,
    pub(super) next_file: u64,
    /// How often each file is open in the present mounting.
    pub(super) open: BTreeMap<u64, usize>,
    /// What removed files held, if new files are to find it.
    pub(super) former: Vec<Pages>,
    pub(super) io_count: u64,
    pub(super) crash_at: Option<u64>,
    /// The scheduled crash has come: nothing works until `crash`.
    pub(super) cut: bool,
    pub(super) read_only: bool,
    pub(super) gone: bool,
    pub(super) faults: Faults,
    pub(super) lock: LockTable,
    pub(super) trace: Vec<String>,
    /// A second disk, reached from this one.
    pub(super) mirror: Option<SimulatedDisk>,
    /// A real folder, for what is kept beside a pool.
    pub(super) folder: Option<PathBuf>,
}

impl State {
    pub(super) fn new(random: Random, config: DiskConfig) -> Self {
        Self {
            random,
            config,
            mounting: 0,
            directory: Directory::default(),
            files: BTreeMap::new(),
            next_file: 0,
            open: BTreeMap::new(),
            former: Vec::new(),
            io_count: 0,
            crash_at: None,
            cut: false,
            read_only: false,
            gone: false,
            faults: Faults::default(),
            lock: LockTable::default(),
            trace: Vec::new(),
            mirror: None,
            folder: None,
        }
    }

    pub(super) fn duplicate(&self, random: Random) -> Self {
        Self {
            directory: self.directory.clone(),
            files: self.files.clone(),
            next_file: self.next_file,
            former: self.former.clone(),
            io_count: self.io_count,
            cut: self.cut,
            read_only: self.read_only,
            gone: self.gone,
            ..Self::new(random, self.config.clone())
        }
    }

    pub(super) fn crash(&mut self, mode: Option<CrashMode>) {
        let pending = self.files.values().filter_map(Image::first_pending);
        let first = pending.chain(self.directory.first_pending()).min().unwrap_or(self.io_count);
        let survival = Survival::draw(mode, first, self.io_count, &mut self.random);
        self.note(|| format!("crash: {:?}", survival.mode()));
        for image in self.files.values_mut() {
            let own = survival.of_file(image.first_pending().unwrap_or(first), &mut self.random);
            image.crash(&own, &mut self.random);
        }
        let own = survival.of_file(first, &mut self.random);
        self.directory.crash(&own, &mut self.random);
        self.crash_at = None;
        self.cut = false;
        self.faults.clear();
        self.unmount();
    }

    pub(super) fn kill(&mut self) {
        self.note(|| "kill".to_owned());
        self.unmount();
    }

    fn unmount(&mut self) {
        self.mounting += 1;
        self.lock = LockTable::default();
        self.open.clear();
        self.drop_unreachable();
    }

    pub(super) fn schedule_crash(&mut self, number: u64) {
        assert!(number > 0, "the next I/O is number 1");
        self.crash_at = Some(self.io_count + number);
    }

    pub(super) fn schedule_fault(&mut self, number: u64, kind: FaultKind, persistent: bool) {
        self.faults.schedule(number, kind, persistent);
    }

    pub(super) fn clear_faults(&mut self) {
        self.faults.clear();
    }

    pub(super) const fn faults_struck(&self) -> u64 {
        self.faults.struck()
    }

    pub(super) const fn io_count(&self) -> u64 {
        self.io_count
    }

    pub(super) const fn is_cut(&self) -> bool {
        self.cut
    }

    pub(super) const fn mounting(&self) -> u64 {
        self.mounting
    }

    pub(super) const fn set_read_only(&mut self, read_only: bool) {
        self.read_only = read_only;
    }

    pub(super) const fn set_gone(&mut self, gone: bool) {
        self.gone = gone;
    }

    pub(super) const fn set_capacity(&mut self, capacity: u64) {
        self.config.capacity = capacity;
    }

    pub(super) fn take_trace(&mut self) -> Vec<String> {
        std::mem::take(&mut self.trace)
    }

    fn image_of(&mut self, name: &str) -> io::Result<(&mut Image, &mut Random)> {
        let file = self.directory.get(name).ok_or(io::ErrorKind::NotFound)?;
        let image = self.files.get_mut(&file).ok_or(io::ErrorKind::NotFound)?;
        Ok((image, &mut self.random))
    }

    pub(super) fn contents(&mut self, name: &str) -> io::Result<Vec<u8>> {
        let (image, _) = self.image_of(name)?;
        let length = usize::try_from(image.length()).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let mut bytes = vec![0; length];
        image.read(&mut bytes, 0);
        Ok(bytes)
    }

    pub(super) fn damage(
        &mut self,
        name: &str,
        range: Range<u64>,
        change: impl FnOnce(&mut [u8], &mut Random),
    ) -> io::Result<()> {
        let (image, random) = self.image_of(name)?;
        if range.end > image.length() || range.start > range.end {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        image.damage(range.start, (range.end - range.start) as usize, |bytes| change(bytes, random));
        Ok(())
    }

    pub(super) fn truncate(&mut self, name: &str, length: u64) -> io::Result<()> {
        self.image_of(name)?.0.truncate(length);
        Ok(())
    }

    pub(super) fn lose(&mut self, name: &str) -> io::Result<()> {
        self.image_of(name)?;
        self.directory.lose(name);
        Ok(())
    }

    /// Forgets files that are not open and that no name leads to, nor could after a crash.
    pub(super) fn drop_unreachable(&mut self) {
        let reachable = self.directory.reachable();
        let is_gone = |file: &&u64| !reachable.contains(file) && !self.open.contains_key(file);
        let gone: Vec<u64> = self.files.keys().filter(is_gone).copied().collect();
        for file in gone {
            let Some(image) = self.files.remove(&file) else { continue };
            self.former.push(image.into_durable());
            if self.former.len() > FORMER_MAX {
                self.former.remove(0);
            }
        }
    }
}
