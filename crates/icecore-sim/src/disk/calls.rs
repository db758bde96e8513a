//! What mountings ask of a simulated disk, and what each call does to it.

use super::directory::Directory;
use super::faults::{FaultKind, Operation};
use super::image::{Base, Image};
use super::state::State;
use super::survival::{Survival, tear};
use crate::lock::Lock;
use icecore::storage::{Kind, Space};
use std::collections::btree_map::Entry;
use std::io;

const EIO: i32 = 5;
const ENODEV: i32 = 19;
const ENOSPC: i32 = 28;
const EROFS: i32 = 30;
const EDQUOT: i32 = 122;
/// Lines of the trace that are kept at least.
const TRACE_MAX: usize = 10_000;
/// What a medium with a quota has for others.
const BEYOND_QUOTA: u64 = 1 << 40;

/// What is to become of a mutating I/O.
enum Verdict {
    Proceed,
    /// It is the one that the crash cuts short.
    Cut,
    Fail(FaultKind),
}

impl State {
    /// Every call passes here first.
    pub(super) fn admit(&self, mounting: u64) -> io::Result<()> {
        if self.gone {
            Err(io::Error::from_raw_os_error(ENODEV))
        } else if mounting != self.mounting {
            Err(io::Error::other("this mounting of the simulated disk ended with a crash"))
        } else if self.cut {
            Err(io::Error::from_raw_os_error(EIO))
        } else {
            Ok(())
        }
    }

    fn admit_change(&self, mounting: u64) -> io::Result<()> {
        self.admit(mounting)?;
        if self.read_only { Err(io::Error::from_raw_os_error(EROFS)) } else { Ok(()) }
    }

    /// Counts a mutating I/O and says what is to become of it.
    fn begin(&mut self, operation: Operation, line: impl FnOnce() -> String) -> Verdict {
        self.io_count += 1;
        let verdict = if self.crash_at == Some(self.io_count) {
            self.cut = true;
            Verdict::Cut
        } else {
            self.faults.strike(operation).map_or(Verdict::Proceed, Verdict::Fail)
        };
        let number = self.io_count;
        let outcome = match &verdict {
            Verdict::Proceed => String::new(),
            Verdict::Cut => " (cut short)".to_owned(),
            Verdict::Fail(kind) => format!(" ({kind:?})"),
        };
        self.note(|| format!("{number} {}{outcome}", line()));
        verdict
    }

    pub(super) fn note(&mut self, line: impl FnOnce() -> String) {
        if self.config.trace {
            if self.trace.len() == 2 * TRACE_MAX {
                self.trace.drain(..TRACE_MAX);
            }
            self.trace.push(line());
        }
    }

    fn used(&self) -> u64 {
        let files = self.directory.entries().values().filter_map(|file| self.files.get(file));
        files.map(Image::length).sum()
    }

    /// Bytes that files may still take up.
    fn room(&self) -> u64 {
        self.config.capacity.saturating_sub(self.used())
    }

    pub(super) fn space(&self) -> Space {
        // A medium knows nothing of quotas when it is asked.
        let beyond = if self.config.full_is_quota { BEYOND_QUOTA } else { 0 };
        Space { total: self.config.capacity + beyond, free: self.room() + beyond }
    }

    pub(super) fn list(&self) -> Vec<(String, u64)> {
        let length = |file| self.files.get(file).map_or(0, Image::length);
        self.directory.entries().iter().map(|(name, file)| (name.clone(), length(file))).collect()
    }

    pub(super) fn lock(&self, mounting: u64, exclusive: bool) -> io::Result<Lock> {
        if exclusive {
            self.admit_change(mounting)?;
        }
        self.admit(mounting)?;
        self.lock.lock(exclusive)
    }

    pub(super) fn is_locked(&self) -> bool {
        self.lock.is_held()
    }

    pub(super) fn open(&mut self, mounting: u64, name: &str, writable: bool) -> io::Result<u64> {
        if writable {
            self.admit_change(mounting)?;
        }
        self.admit(mounting)?;
        let file = self.directory.get(name).ok_or(io::ErrorKind::NotFound)?;
        *self.open.entry(file).or_default() += 1;
        Ok(file)
    }

    /// A handle is dropped.
    pub(super) fn close(&mut self, mounting: u64, file: u64) {
        if mounting == self.mounting
            && let Entry::Occupied(mut count) = self.open.entry(file)
        {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }

    pub(super) fn create(&mut self, mounting: u64, name: &str, length: u64) -> io::Result<u64> {
        self.admit_change(mounting)?;
        if self.directory.get(name).is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let file = self.next_file + 1;
        let verdict = self.begin(Operation::Create, || format!("create {name} as file {file} of {length}"));
        if let Verdict::Fail(kind) = verdict {
            return Err(self.error_of(kind));
        }
        if length > self.room() {
            return Err(self.error_of(FaultKind::NoSpace));
        }
        if matches!(verdict, Verdict::Proceed) || self.random.chance(50) {
            let base = self.base();
            let image = Image::new(self.io_count, length, base, self.config.lengths_need_sync);
            self.next_file = file;
            self.files.insert(file, image);
            self.directory.create(self.io_count, name, file);
        }
        self.check_cut()?;
        self.open.insert(file, 1);
        Ok(file)
    }

    fn base(&mut self) -> Base {
        if !self.config.stale_garbage {
            return Base::Zero;
        }
        match self.random.pick(&self.former) {
            Some(pages) => Base::Former(pages.clone()),
            None => Base::Noise(self.random.next()),
        }
    }

    pub(super) fn remove(&mut self, mounting: u64, name: &str) -> io::Result<()> {
        self.admit_change(mounting)?;
        self.directory.get(name).ok_or(io::ErrorKind::NotFound)?;
        let verdict = self.begin(Operation::Remove, || format!("remove {name}"));
        self.change_directory(verdict, |directory, order| directory.remove(order, name))
    }

    pub(super) fn rename(&mut self, mounting: u64, from: &str, to: &str) -> io::Result<()> {
        self.admit_change(mounting)?;
        let file = self.directory.get(from).ok_or(io::ErrorKind::NotFound)?;
        let verdict = self.begin(Operation::Rename, || format!("rename {from} {to}"));
        self.change_directory(verdict, |directory, order| directory.rename(order, from, to, file))
    }

    fn change_directory(
        &mut self,
        verdict: Verdict,
        change: impl FnOnce(&mut Directory, u64),
    ) -> io::Result<()> {
        match verdict {
            Verdict::Fail(kind) => return Err(self.error_of(kind)),
            Verdict::Cut if self.random.chance(50) => {}
            Verdict::Proceed | Verdict::Cut => change(&mut self.directory, self.io_count),
        }
        self.check_cut()
    }

    fn error_of(&self, kind: FaultKind) -> io::Error {
        io::Error::from_raw_os_error(match kind {
            FaultKind::NoSpace if self.config.full_is_quota => EDQUOT,
            FaultKind::NoSpace => ENOSPC,
            FaultKind::ReadError | FaultKind::WriteError | FaultKind::SyncError => EIO,
        })
    }

    /// The error of the I/O that was just cut short.
    fn check_cut(&self) -> io::Result<()> {
        if self.cut { Err(io::Error::from_raw_os_error(EIO)) } else { Ok(()) }
    }

    pub(super) fn sync_directory(&mut self, mounting: u64) -> io::Result<()> {
        self.admit_change(mounting)?;
        match self.begin(Operation::SyncDirectory, || "sync directory".to_owned()) {
            Verdict::Fail(kind) => return Err(self.error_of(kind)),
            Verdict::Cut if self.random.chance(50) => {}
            Verdict::Proceed | Verdict::Cut => self.directory.sync(),
        }
        self.drop_unreachable();
        self.check_cut()
    }

    pub(super) fn length(&self, mounting: u64, file: u64) -> io::Result<u64> {
        self.admit(mounting)?;
        self.files.get(&file).map(Image::length).ok_or_else(|| io::Error::from_raw_os_error(EIO))
    }

    pub(super) fn read(
        &mut self,
        mounting: u64,
        file: u64,
        buffer: &mut [u8],
        offset: u64,
    ) -> io::Result<()> {
        let length = self.length(mounting, file)?;
        if let Some(kind) = self.faults.strike(Operation::Read) {
            self.note(|| format!("- read file {file} at {offset} ({kind:?})"));
            return Err(self.error_of(kind));
        }
        if offset.checked_add(buffer.len() as u64).is_none_or(|end| end > length) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if let Some(image) = self.files.get(&file) {
            image.read(buffer, offset);
        }
        Ok(())
    }

    pub(super) fn write(
        &mut self,
        mounting: u64,
        file: u64,
        parts: &[(Kind, &[u8])],
        offset: u64,
    ) -> io::Result<()> {
        self.admit_change(mounting)?;
        let grown = self.grows_by(mounting, file, parts, offset)?;
        let needs_space = self.config.overwrite_may_fail || grown > 0;
        let verdict = self.begin(Operation::Write { needs_space }, || describe_write(file, parts, offset));
        let bytes = parts.iter().map(|(_, bytes)| *bytes).collect::<Vec<_>>().concat();
        let waiting =
            if self.config.overwrite_may_fail { self.waiting() + bytes.len() as u64 } else { grown };
        let is_full = waiting > self.room();
        let written = match verdict {
            Verdict::Proceed if is_full => return Err(self.error_of(FaultKind::NoSpace)),
            Verdict::Proceed => vec![(0, bytes.len())],
            Verdict::Cut | Verdict::Fail(_) => tear(offset, bytes.len(), &mut self.random),
        };
        if let Some(image) = self.files.get_mut(&file) {
            for (start, end) in written {
                image.write(self.io_count, offset + start as u64, &bytes[start..end]);
            }
        }
        if let Verdict::Fail(kind) = verdict { Err(self.error_of(kind)) } else { self.check_cut() }
    }

    /// By how much a write makes its file longer.
    fn grows_by(&self, mounting: u64, file: u64, parts: &[(Kind, &[u8])], offset: u64) -> io::Result<u64> {
        let length = parts.iter().map(|(_, bytes)| bytes.len() as u64).sum();
        let end = offset.checked_add(length).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(end.saturating_sub(self.length(mounting, file)?))
    }

    /// Bytes that need new space until the flush that frees the old.
    fn waiting(&self) -> u64 {
        self.files.values().map(Image::pending_bytes).sum()
    }

    pub(super) fn sync(&mut self, mounting: u64, file: u64) -> io::Result<()> {
        self.admit_change(mounting)?;
        let verdict = self.begin(Operation::Sync, || format!("sync file {file}"));
        let Some(image) = self.files.get_mut(&file) else {
            return Err(io::Error::from_raw_os_error(EIO));
        };
        match verdict {
            Verdict::Proceed => image.sync(),
            // Cut short: the flush may have been done. If not, the crash decides over each write.
            Verdict::Cut if self.random.chance(30) => image.sync(),
            Verdict::Cut => {}
            Verdict::Fail(kind) => {
                let first = image.first_pending().unwrap_or(self.io_count);
                let survival = Survival::draw(None, first, self.io_count, &mut self.random);
                image.fail_sync(&survival.of_file(first, &mut self.random), &mut self.random);
                return Err(self.error_of(kind));
            }
        }
        self.check_cut()
    }
}

fn describe_write(file: u64, parts: &[(Kind, &[u8])], offset: u64) -> String {
    use std::fmt::Write;
    let mut line = format!("write file {file} at {offset}:");
    for (kind, bytes) in parts {
        // Writing to a string cannot fail.
        let _ = write!(line, " {kind:?} {}", bytes.len());
    }
    line
}
