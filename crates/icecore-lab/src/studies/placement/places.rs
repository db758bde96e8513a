//! The disks of one run, and memory in place of one.

use crate::device::Device;
use crate::disks::Simulated;
use crate::disks::model::HardDisk;
use crate::error::{Doing as _, Error, Result};
use crate::options::Options;
use crate::server::{self, Kind};
use crate::systems::loopback::{self, Loop};
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A place for files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    Hdd,
    Ssd,
    SecondSsd,
    Memory,
}

impl Place {
    /// What it is called in results.
    fn name(self) -> &'static str {
        match self {
            Self::Hdd => "hdd",
            Self::Ssd => "ssd",
            Self::SecondSsd => "second_ssd",
            Self::Memory => "tmpfs",
        }
    }
}

/// The disks of one placement.
pub(super) struct Disks {
    // Dropped in this order.
    hdd: Option<Simulated>,
    ssd: Option<Loop>,
    second: Option<Loop>,
    memory: Option<Memory>,
    _folder: TempDir,
}

impl Disks {
    /// Makes those that the places need, of this size each. `disk`: the hard disk.
    pub(super) fn begin(places: &[Place], disk: HardDisk, bytes: u64, options: &Options) -> Result<Self> {
        let folder = options.scratch()?;
        server::open_to_all(folder.path())?;
        let needs = |place| places.contains(&place);
        let on_disk = |name: &str| Loop::begin_in(folder.path(), name, bytes, &loopback::EXT4, options);
        let hdd = || Simulated::begin(folder.path(), disk, bytes, options);
        let memory = || Memory::begin(folder.path().join("memory"), bytes, options);
        let disks = Self {
            hdd: needs(Place::Hdd).then(hdd).transpose()?,
            ssd: needs(Place::Ssd).then(|| on_disk("ssd")).transpose()?,
            second: needs(Place::SecondSsd).then(|| on_disk("second-ssd")).transpose()?,
            memory: needs(Place::Memory).then(memory).transpose()?,
            _folder: folder,
        };
        for &place in places {
            if let Some(folder) = disks.folder(place) {
                options.mounts.note(place.name(), folder)?;
            }
        }
        Ok(disks)
    }

    fn folder(&self, place: Place) -> Option<&Path> {
        match place {
            Place::Hdd => self.hdd.as_ref().map(Simulated::point),
            Place::Ssd => self.ssd.as_ref().map(Loop::point),
            Place::SecondSsd => self.second.as_ref().map(Loop::point),
            Place::Memory => self.memory.as_ref().map(|memory| memory.0.as_path()),
        }
    }

    /// A folder for one sort of files, which belongs to the server.
    pub(super) fn subfolder(
        &self,
        place: Place,
        name: &str,
        kind: &dyn Kind,
        options: &Options,
    ) -> Result<PathBuf> {
        let missing = || Error::Mismatch { what: "a placement".to_owned(), detail: format!("no {place:?}") };
        let folder = self.folder(place).ok_or_else(missing)?;
        server::open_to_all(folder)?;
        let made = folder.join(name);
        server::make_folder(kind, &made, options)?;
        Ok(made)
    }

    /// Simulated ones answer at once from now on.
    pub(super) fn answer_at_once(&self) -> Result<()> {
        self.hdd.as_ref().map_or(Ok(()), Simulated::answer_at_once)
    }

    /// Those that count.
    pub(super) fn devices(&self) -> Vec<(&'static str, &Device)> {
        let hdd = self.hdd.as_ref().map(|hdd| (Place::Hdd.name(), hdd.device()));
        let ssd = self.ssd.as_ref().map(|ssd| (Place::Ssd.name(), ssd.device()));
        let second = self.second.as_ref().map(|second| (Place::SecondSsd.name(), second.device()));
        [hdd, ssd, second].into_iter().flatten().collect()
    }
}

/// A file system in memory. It goes when the value is dropped.
struct Memory(PathBuf);

impl Memory {
    /// As large as a disk: the usual limit is half of the memory, which a whole database may not fit into.
    fn begin(point: PathBuf, bytes: u64, options: &Options) -> Result<Self> {
        fs::create_dir(&point).doing(|| format!("make {}", point.display()))?;
        loopback::mount(Path::new("tmpfs"), &point, "tmpfs", &format!("rw,size={bytes}"), options)?;
        Ok(Self(point))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        loopback::unmount(&self.0);
    }
}
