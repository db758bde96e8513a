//! Logical volumes on a loop device, with ext4 on one of them. Classic and thin snapshots differ only in a
//! [`Scheme`].

use super::loopback::{self, Attached, EXT4, SBIN};
use super::{Ground, LogicalVolume, System};
use crate::device::Device;
use crate::error::{Doing, Error, Result};
use crate::options::Options;
use crate::tool;
use serde::Deserialize;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The volume of the data.
pub(super) const ORIGIN: &str = "origin";
/// What volumes are made of.
pub(super) const EXTENT_BYTES: u64 = 1 << 20;
/// For the label and the metadata of the group.
const HEAD_BYTES: u64 = 64 << 20;
/// A program that looks at new devices may keep a volume busy for a moment.
const CLOSING: (u32, Duration) = (20, Duration::from_millis(250));

/// How one kind of snapshot works.
pub(super) struct Scheme {
    /// Makes the volume [`ORIGIN`].
    pub create: fn(&Group, &Ground<'_>) -> Result<()>,
    /// Takes a snapshot of it, with a copy area of this size.
    pub snapshot: fn(&Group, &str, u64) -> Result<()>,
    /// What each snapshot holds.
    pub held: fn(&Group, &[String]) -> Result<Vec<u64>>,
    /// What is in use, of which the files take so much.
    pub space: fn(&Group, u64) -> Result<u64>,
    /// Whether each snapshot has a copy area of its own.
    pub has_areas: bool,
}

/// A size as commands of LVM take it: sectors, and no part of one.
pub(super) fn size(bytes: u64) -> String {
    format!("{}b", bytes.next_multiple_of(512))
}

/// Why this machine cannot have volumes that need this module.
pub(super) fn probe(module: &str) -> std::result::Result<(), String> {
    loopback::probe(&EXT4, "e2fsprogs")?;
    super::has_device_mapper()?;
    super::has_program("lvm", "lvm2")?;
    // A kernel without modules has it built in, or volumes cannot be made: LVM then says so.
    let _ = super::load_module(module);
    Ok(())
}

pub(super) fn begin(ground: &Ground<'_>, bytes: u64, scheme: Scheme) -> Result<Box<dyn System>> {
    let group = Group::begin(ground, bytes)?;
    (scheme.create)(&group, ground)?;
    EXT4.make(&group.node(ORIGIN), ground.options)?;
    let folder = ground.folder.to_owned();
    let area_bytes = ground.areas.bytes.max(1).next_multiple_of(EXTENT_BYTES);
    let volumes = Volumes { group, scheme, folder, area_bytes, opened: RefCell::default() };
    volumes.mount(ORIGIN)?;
    Ok(Box::new(volumes))
}

/// A group of volumes; it goes when the value is dropped.
pub(super) struct Group {
    name: String,
    /// Set once the group is on the device.
    made: bool,
    // The volumes go before the device.
    attached: Attached,
    pub(super) options: Options,
}

/// One volume.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Volume {
    size_bytes: u64,
    used_percent: f64,
    /// The number of a thin volume in its pool.
    pub(super) thin_id: Option<u64>,
}

impl Volume {
    pub(super) fn used_bytes(&self) -> u64 {
        (self.size_bytes as f64 * self.used_percent / 100.0).round() as u64
    }
}

impl Group {
    fn begin(ground: &Ground<'_>, bytes: u64) -> Result<Self> {
        static GROUPS: AtomicU32 = AtomicU32::new(0);
        let number = GROUPS.fetch_add(1, Ordering::Relaxed);
        let bytes = bytes.next_multiple_of(EXTENT_BYTES) + HEAD_BYTES;
        // Copy areas are many and mostly empty: what lies far behind the data is not written before.
        let attached = Attached::begin(ground, "lvm", bytes, bytes.min(2 * ground.bytes))?;
        let name = format!("icecore_lab_{}_{number}", std::process::id());
        let mut group = Self { name, made: false, attached, options: ground.options.clone() };
        let device = group.attached.path().display().to_string();
        let (extent, head) = (format!("{EXTENT_BYTES}b"), format!("{}b", HEAD_BYTES / 2));
        let name = group.name.clone();
        group.command(
            &[
                &["vgcreate", "--yes", "--physicalextentsize", &extent][..],
                &["--metadatasize", &head, &name, &device],
            ]
            .concat(),
        )?;
        group.made = true;
        Ok(group)
    }

    /// Commands of LVM see the device of this group alone, and keep no copies of metadata on this machine.
    fn config(&self) -> String {
        let device = self.attached.path().display();
        format!(
            "devices {{ use_devicesfile=0 filter=[\"a|^{device}$|\",\"r|.*|\"] \
             global_filter=[\"a|^{device}$|\",\"r|.*|\"] }} \
             backup {{ backup=0 archive=0 }} activation {{ monitoring=0 }}"
        )
    }

    fn command(&self, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(format!("{SBIN}/lvm"));
        command.env("LVM_SUPPRESS_FD_WARNINGS", "1").args(&arguments[..1]).args(["--config", &self.config()]);
        // A command of LVM that is killed half-way leaves locks and suspended volumes.
        tool::output(command.args(&arguments[1..]), &self.options.unstoppable())
    }

    /// Runs a command of LVM on this group; `lvcreate` without a volume works on the group itself.
    pub(super) fn run(&self, arguments: &[&str]) -> Result<()> {
        self.options.go_on()?;
        let named = arguments.iter().any(|argument| argument.starts_with(&self.name));
        let group: &[&str] = if named { &[] } else { &[&self.name] };
        self.command(&[arguments, group].concat()).map(|_| ())
    }

    /// A volume, as commands of LVM name it.
    pub(super) fn volume(&self, name: &str) -> String {
        format!("{}/{name}", self.name)
    }

    /// A volume, as device-mapper names it. Hyphens would be doubled, and only the ends of internal names
    /// have one.
    pub(super) fn mapped(&self, name: &str) -> String {
        format!("{}-{name}", self.name)
    }

    /// The node of a volume.
    fn node(&self, name: &str) -> PathBuf {
        Path::new("/dev").join(&self.name).join(name)
    }

    /// Every volume by its name.
    pub(super) fn list(&self) -> Result<BTreeMap<String, Volume>> {
        let printed = self.command(&[
            "lvs",
            "--reportformat",
            "json",
            "--units",
            "b",
            "--nosuffix",
            "--options",
            "lv_name,lv_size,data_percent,thin_id",
            &self.name,
        ])?;
        parse(&printed).ok_or_else(|| Error::Mismatch {
            what: "what lvs printed".to_owned(),
            detail: tool::tail(&printed),
        })
    }
}

/// The list that `lvs --reportformat json` prints (lvmreport(7)).
fn parse(printed: &str) -> Option<BTreeMap<String, Volume>> {
    #[derive(Deserialize)]
    struct Printed {
        report: Vec<Section>,
    }
    #[derive(Deserialize)]
    struct Section {
        lv: Vec<Row>,
    }
    #[derive(Deserialize)]
    struct Row {
        lv_name: String,
        lv_size: String,
        data_percent: String,
        thin_id: String,
    }
    let printed: Printed = serde_json::from_str(&printed[printed.find('{')?..]).ok()?;
    let rows = printed.report.into_iter().flat_map(|section| section.lv);
    rows.map(|row| {
        let volume = Volume {
            size_bytes: row.lv_size.parse().ok()?,
            used_percent: row.data_percent.parse().unwrap_or(0.0),
            thin_id: row.thin_id.parse().ok(),
        };
        Some((row.lv_name, volume))
    })
    .collect()
}

impl Drop for Group {
    fn drop(&mut self) {
        // The file of the device goes, so it is enough that nothing uses the device.
        for _ in 0..if self.made { CLOSING.0 } else { 0 } {
            if self.command(&["vgchange", "--activate", "n", &self.name]).is_ok() {
                return;
            }
            std::thread::sleep(CLOSING.1);
        }
    }
}

/// The mounted volume of the data, and its snapshots.
struct Volumes {
    // Dropped by hand in this order: mounts, then volumes.
    group: Group,
    scheme: Scheme,
    folder: PathBuf,
    area_bytes: u64,
    /// Snapshots that are mounted.
    opened: RefCell<BTreeSet<String>>,
}

impl Volumes {
    fn point(&self, name: &str) -> PathBuf {
        self.folder.join(format!("mount-{name}"))
    }

    /// Mounts a volume; snapshots for reading alone.
    fn mount(&self, name: &str) -> Result<()> {
        let point = self.point(name);
        fs::create_dir_all(&point).doing(|| format!("make {}", point.display()))?;
        let how = if name == ORIGIN { "rw" } else { "ro" };
        let never = self.group.options.unstoppable();
        loopback::mount(&self.group.node(name), &point, EXT4.kind, how, &never)
    }

    fn unmount(&self, name: &str) -> Result<()> {
        let never = self.group.options.unstoppable();
        tool::output(Command::new("umount").arg(self.point(name)), &never).map(|_| ())
    }
}

impl System for Volumes {
    fn data(&self) -> Result<PathBuf> {
        let data = self.point(ORIGIN).join("data");
        fs::create_dir_all(&data).doing(|| format!("make {}", data.display()))?;
        Ok(data)
    }

    fn snapshot(&mut self, name: &str) -> Result<()> {
        (self.scheme.snapshot)(&self.group, &volume_of(name), self.area_bytes)
    }

    fn snapshot_folder(&self, name: &str) -> Result<PathBuf> {
        let volume = volume_of(name);
        if !self.opened.borrow().contains(&volume) {
            self.mount(&volume)?;
            self.opened.borrow_mut().insert(volume.clone());
        }
        Ok(self.point(&volume).join("data"))
    }

    fn destroy(&mut self, name: &str) -> Result<()> {
        let volume = volume_of(name);
        if self.opened.borrow_mut().remove(&volume) {
            self.unmount(&volume)?;
        }
        self.group.run(&["lvremove", "--yes", &self.group.volume(&volume)])
    }

    fn held_bytes(&self, names: &[String]) -> Result<Vec<u64>> {
        let volumes: Vec<String> = names.iter().map(|name| volume_of(name)).collect();
        (self.scheme.held)(&self.group, &volumes)
    }

    fn space_bytes(&self) -> Result<u64> {
        (self.scheme.space)(&self.group, loopback::used_bytes(&self.point(ORIGIN))?)
    }

    fn device(&self) -> &Device {
        self.group.attached.device()
    }

    fn volume(&self) -> Option<LogicalVolume> {
        let group = &self.group;
        let volume = LogicalVolume { group: group.name.clone(), name: ORIGIN, config: group.config() };
        self.scheme.has_areas.then_some(volume)
    }

    fn cool(&mut self) -> Result<()> {
        for name in std::mem::take(&mut *self.opened.borrow_mut()) {
            self.unmount(&name)?;
        }
        self.unmount(ORIGIN)?;
        self.mount(ORIGIN)
    }

    fn rest(&self) -> Result<()> {
        super::write_dirty(&self.point(ORIGIN))?;
        // udev reads a volume that was made or closed, later on a busy machine: what is counted next must not
        // have that.
        let never = self.group.options.unstoppable();
        tool::output(Command::new("udevadm").args(["settle", "--timeout=30"]), &never).map(|_| ())
    }
}

impl Drop for Volumes {
    fn drop(&mut self) {
        for name in self.opened.get_mut().iter() {
            loopback::unmount(&self.folder.join(format!("mount-{name}")));
        }
        loopback::unmount(&self.point(ORIGIN));
    }
}

/// The volume of a snapshot. LVM reserves some names, and device-mapper doubles hyphens.
fn volume_of(name: &str) -> String {
    format!("at_{}", name.replace('-', "_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_volumes_is_read() {
        let printed = r#"  {"report": [{"lv": [
            {"lv_name":"origin", "lv_size":"4194304", "data_percent":"", "thin_id":""},
            {"lv_name":"at_s1", "lv_size":"1048576", "data_percent":"12.50", "thin_id":"3"}]}]}"#;
        let volumes = parse(printed).expect("read");
        assert_eq!((volumes["origin"].used_bytes(), volumes["origin"].thin_id), (0, None));
        assert_eq!((volumes["at_s1"].used_bytes(), volumes["at_s1"].thin_id), (131_072, Some(3)));
        assert_eq!(parse("no list"), None);
    }

    #[test]
    fn a_volume_has_a_name_that_device_mapper_keeps() {
        assert_eq!(volume_of("after-0001"), "at_after_0001");
    }
}
