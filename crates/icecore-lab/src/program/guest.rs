//! `icecore lab guest`, and the options of `icecore lab run` that name a guest.

use super::{stopped, supervise};
use crate::output::say;
use clap::{Args, ValueEnum};
use icecore_lab::Options;
use icecore_lab::guest::Guest;
use std::path::PathBuf;

/// What a guest has beside Debian's own packages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Addition {
    /// OpenZFS, compiled once.
    Zfs,
}

#[derive(Args, Debug)]
pub struct Arguments {
    /// Run the study in a small machine of QEMU, whose kernel has LVM
    #[arg(long)]
    guest: bool,

    #[command(flatten)]
    which: Which,
}

#[derive(Args, Debug)]
struct Which {
    /// Where the guest is kept ($XDG_CACHE_HOME/icecore/guest unless said otherwise)
    #[arg(long, value_name = "FOLDER")]
    guest_cache: Option<PathBuf>,

    /// What the guest has beside Debian's packages: `zfs` is compiled once, in 3 to 20 minutes
    #[arg(long, value_name = "ADDITION")]
    with: Option<Addition>,
}

#[derive(Args, Debug)]
#[command(after_help = "\
`icecore lab run STUDY --guest` builds the guest by itself where it is not
there yet. This takes Debian, root, the network, and three minutes.

Example:
  sudo icecore lab guest
  sudo icecore lab guest --with zfs")]
pub struct BuildArguments {
    #[command(flatten)]
    which: Which,
}

impl Arguments {
    pub fn is_wanted(&self) -> bool {
        self.guest
    }

    /// The guest to run in, if it is to be one.
    pub fn chosen(&self) -> anyhow::Result<Option<Guest>> {
        match (self.guest, &self.which) {
            (true, which) => which.guest().map(Some),
            (false, Which { guest_cache: None, with: None }) => Ok(None),
            (false, _) => {
                Err(crate::exit::usage("--guest-cache and --with go with --guest: add it".to_owned()))
            }
        }
    }
}

impl Which {
    fn guest(&self) -> anyhow::Result<Guest> {
        let no_place = || crate::exit::usage("no HOME is set: name a folder with --guest-cache".to_owned());
        let cache = self.guest_cache.clone().or_else(Guest::default_cache).ok_or_else(no_place)?;
        Ok(Guest { cache, zfs: self.with == Some(Addition::Zfs) })
    }
}

pub fn build(arguments: &BuildArguments) -> anyhow::Result<()> {
    let guest = arguments.which.guest()?;
    let mut options = Options::new(".");
    supervise(&mut options);
    guest.build(&options).map_err(stopped)?;
    say(format!("The guest is in {}", guest.cache.display()))
}
