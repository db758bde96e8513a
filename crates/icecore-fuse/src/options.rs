//! How a mount is made, and the options of mount(8) that say so.

use std::path::PathBuf;

/// How a mount is made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MountOptions {
    /// The folder of the pool.
    pub pool: PathBuf,
    /// The dataset or snapshot; all datasets of the pool unless said.
    pub version: Option<String>,
    /// The folder to mount on.
    pub point: PathBuf,
    /// Nothing can be changed through the mount, and the pool is only read: others may read it, too.
    pub read_only: bool,
    /// Whether users other than the own one may use it.
    pub any_user: bool,
    /// The mount stays in the foreground. For who starts it: [`crate::serve()`] never leaves it.
    pub foreground: bool,
    /// Set-id bits count.
    pub suid: bool,
    /// Device nodes work.
    pub dev: bool,
    /// Programs can be run.
    pub exec: bool,
    /// Files have extended attributes. Without them the kernel does not ask for one before it writes to a
    /// file whose size it had to ask for.
    pub xattrs: bool,
    /// The file to log into, where the mount is in the background.
    pub log: Option<PathBuf>,
}

/// Options that concern others: mount(8), systemd.mount(5), or nothing here.
const IGNORED: [&str; 25] = [
    "rw",
    "defaults",
    "auto",
    "noauto",
    "user",
    "nouser",
    "users",
    "owner",
    "group",
    "nofail",
    "_netdev",
    "atime",
    "noatime",
    "relatime",
    "norelatime",
    "strictatime",
    "nostrictatime",
    "diratime",
    "nodiratime",
    "lazytime",
    "nolazytime",
    "async",
    "default_permissions",
    "background",
    "loud",
];

impl MountOptions {
    /// The defaults: in the background; every user if the caller is root, as for other file systems.
    #[must_use]
    pub fn new(pool: PathBuf, version: Option<String>, point: PathBuf) -> Self {
        Self {
            pool,
            version,
            point,
            read_only: false,
            any_user: rustix::process::geteuid().is_root(),
            foreground: false,
            suid: false,
            dev: false,
            exec: true,
            xattrs: true,
            log: None,
        }
    }

    /// Takes options as `mount -o` has them, separated by commas.
    ///
    /// # Errors
    /// A sentence that names an option that is not known.
    pub fn apply(&mut self, options: &str) -> Result<(), String> {
        options.split(',').filter(|option| !option.is_empty()).try_for_each(|option| self.apply_one(option))
    }

    fn apply_one(&mut self, option: &str) -> Result<(), String> {
        match option {
            "ro" => self.read_only = true,
            "allow_other" => self.any_user = true,
            "noallow_other" => self.any_user = false,
            "foreground" => self.foreground = true,
            "suid" => self.suid = true,
            "nosuid" => self.suid = false,
            "dev" => self.dev = true,
            "nodev" => self.dev = false,
            "exec" => self.exec = true,
            "noexec" => self.exec = false,
            "xattr" => self.xattrs = true,
            "noxattr" => self.xattrs = false,
            _ if IGNORED.contains(&option) || option.starts_with("x-") || option.starts_with("comment=") => {}
            _ => match option.split_once('=') {
                Some(("log", file)) if !file.is_empty() => self.log = Some(PathBuf::from(file)),
                Some(("fsname" | "subtype", _)) => {}
                _ => {
                    return Err(format!(
                        "{option:?} is no option of a mount: ro, allow_other, noallow_other, foreground, \
                         log=FILE, suid, dev, noexec and noxattr are"
                    ));
                }
            },
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_fstab() {
        let mut options = MountOptions::new("/pool".into(), None, "/mnt".into());
        options.apply("rw,noatime,_netdev,x-systemd.automount,,log=/var/log/icecore").unwrap();
        assert!(!options.read_only && options.log == Some("/var/log/icecore".into()));
        options.apply("ro,foreground,noexec,noxattr").unwrap();
        assert!(options.read_only && options.foreground && !options.exec && !options.xattrs);
        assert!(options.apply("nonempty").unwrap_err().contains("\"nonempty\""));
        assert!(options.apply("log=").is_err());
    }
}
