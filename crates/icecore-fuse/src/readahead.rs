//! How far the kernel reads ahead on a mount: the `read_ahead_kb` of its backing device, as in the kernel's
//! Documentation/ABI/testing/sysfs-class-bdi.

use crate::mounting;
use std::fs;
use std::path::Path;

/// One request of the largest size. The kernel's default of 128 KiB keeps one small request on its way, and a
/// linear reader waits for each block that an update moved elsewhere.
const READ_AHEAD_KIB: u32 = 1024;

/// Makes the kernel read further ahead on the mount at `point`. It takes root; without, the kernel's default
/// stays.
pub(crate) fn extend(point: &Path) {
    let Ok(Some(mount)) = mounting::mounted_at(point) else { return };
    // A mount works without it.
    let _ = fs::write(format!("/sys/class/bdi/{}/read_ahead_kb", mount.device), READ_AHEAD_KIB.to_string());
}
