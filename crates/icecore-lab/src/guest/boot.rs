//! Boots the guest, and brings the result of its study out.
//!
//! The guest and this program share a folder (9p). The program lies in it, the study to run, and what comes
//! of it.

use super::study::StudyJob;
use super::{failure, require, watch};
use crate::child::Job;
use crate::conditions;
use crate::error::{Doing, Error, Result};
use crate::experiments::Experiment;
use crate::options::Options;
use crate::report::Report;
use crate::room;
use crate::tool::{self, Tool};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

const INIT: &str = include_str!("init.sh");
const QEMU: &str = "qemu-system-x86_64";
/// What it is called where it has no room.
const DISK: &str = "the disk of the guest";
const MEMORY: &str = "3G";
/// Size of the disk where so much is free: quick, full.
const DISK_BYTES: (u64, u64) = (16 << 30, 64 << 30);
/// What the disk has beyond what a study needs: for its file system, and for what programs write beside.
const SPARE: u64 = 2 << 30;
/// Less room than this under that file, and it is what a study failed for.
const ROOM_LEFT_MIN: u64 = 64 << 20;
/// Longest time without a step: quick, full. Emulation is slow.
const SILENCE: (Duration, Duration) = (Duration::from_secs(15 * 60), Duration::from_secs(2 * 3600));
/// At times an emulated kernel crashes. It is booted again, so often in all, and the study begins anew.
const BOOTS_MAX: usize = 3;
/// Where the guest writes its steps, from the beginning of its study on.
const PROGRESS: &str = "progress";
/// Where the guest writes how its study ended, or that it could not begin.
const STATUS: &str = "status";
/// What QEMU writes its messages to.
const SAID: &str = "qemu";
const KVM: &str = "kvm";
const TCG: &str = "tcg";
/// What QEMU says when the machine stands still from then on (`accel/kvm/kvm-all.c` and
/// `target/i386/kvm/kvm.c` of its source).
const GIVEN_UP: [&str; 5] =
    ["KVM internal error", "KVM: entry failed", "KVM: exception", "KVM: unknown exit", "kvm run failed"];
/// How the kernel begins to report that it crashes. Its registers, which follow, fill the end of the console.
const CRASHES: [&str; 4] = ["BUG: ", "Oops: ", " fault: ", "Kernel panic"];
/// Where KVM runs no machine at all, QEMU ends at once.
const TRIAL: Duration = Duration::from_secs(2);

/// Longest time without a step.
pub(super) fn silence(options: &Options) -> Duration {
    options.size(SILENCE.1, SILENCE.0)
}

/// Runs the study in the guest of this folder.
pub(super) fn run(built: &Path, study: &Experiment, options: &Options) -> Result<Report> {
    require(&[QEMU, "setpriv"])?;
    let folder = options.scratch()?;
    let shared = folder.path();
    let room = (study.room)(options).saturating_add(SPARE);
    room::require(shared, room, DISK)?;
    let free = room::free(shared).doing(|| format!("examine {}", shared.display()))?;
    let bytes = disk_bytes(room, free, options);
    let job = StudyJob::new(study.name, "/data", "/job/result.json", options);
    share(shared, &job, options)?;
    let disk = shared.join("disk.img");
    let first = if kvm_works()? { KVM } else { TCG };
    let boot = |accelerator| boot(built, shared, &disk, bytes, accelerator, options);
    let ended = until_ended(first, shared, boot, options)?;
    let mut report = outcome(shared, ended.status).or_else(|error| {
        // In the guest a full disk of this machine is an error of its own disk.
        room::require(shared, ROOM_LEFT_MIN, DISK)?;
        Err(error)
    })?;
    report.parameters.insert("emulated".to_owned(), true.into());
    report.parameters.insert("accelerator".to_owned(), ended.accelerator.into());
    if !ended.crashes.is_empty() {
        report.parameters.insert("crashes".to_owned(), ended.crashes.join("; ").as_str().into());
    }
    if let Some((name, version)) = conditions::version(QEMU, options) {
        report.parameters.insert(name, version.as_str().into());
    }
    Ok(report)
}

/// The end of a guest.
#[derive(Debug)]
struct Ended {
    status: ExitStatus,
    accelerator: &'static str,
    /// What the kernels before it said when they crashed.
    crashes: Vec<String>,
}

/// Boots the guest until its study has ended. QEMU emulates what KVM gives up.
fn until_ended(
    mut accelerator: &'static str,
    shared: &Path,
    boot: impl Fn(&'static str) -> Result<ExitStatus>,
    options: &Options,
) -> Result<Ended> {
    let mut crashes = Vec::new();
    loop {
        let status = match boot(accelerator) {
            Err(_) if accelerator == KVM && has_given_up(shared) => {
                options.say("guest: KVM cannot run it, so QEMU emulates it, several times slower")?;
                accelerator = TCG;
                continue;
            }
            ended => ended?,
        };
        // A kernel that crashes ends its machine, which is no failure of QEMU.
        let has_crashed = !shared.join(STATUS).exists() && status.code() == Some(0);
        if !has_crashed || accelerator == KVM || crashes.len() + 1 == BOOTS_MAX {
            return Ok(Ended { status, accelerator, crashes });
        }
        // The disk is emptied for the next boot, and would run full again.
        room::require(shared, ROOM_LEFT_MIN, DISK)?;
        let crash = crash(shared).unwrap_or_else(|| "its console names no cause".to_owned());
        options.say(&format!("guest: it ended before the study did ({crash}), so the study begins anew"))?;
        crashes.push(crash);
    }
}

/// Boots the guest with an empty disk of this size, and waits until it ends.
fn boot(
    built: &Path,
    shared: &Path,
    disk: &Path,
    bytes: u64,
    accelerator: &str,
    options: &Options,
) -> Result<ExitStatus> {
    options.say(&format!("guest: booting, with {}", accelerator.to_uppercase()))?;
    let make = |path: &Path| File::create(path).doing(|| format!("make {}", path.display()));
    make(disk)?.set_len(bytes).doing(|| format!("make {}", disk.display()))?;
    for name in [PROGRESS, STATUS] {
        // Of a boot before this one, if there was one.
        let _ = fs::remove_file(shared.join(name));
    }
    let written = make(&shared.join(SAID))?;
    let mut command = machine(built, shared, disk, accelerator);
    let qemu = Tool::start(command.stdout(Stdio::null()).stderr(written))?;
    let check = || if has_given_up(shared) { Err(failure("KVM cannot run it here")) } else { Ok(()) };
    watch::until_end(qemu, &shared.join(PROGRESS), silence(options), check, options)
}

/// Whether QEMU has said that KVM cannot go on.
fn has_given_up(shared: &Path) -> bool {
    let said = text(shared, SAID).unwrap_or_default();
    GIVEN_UP.iter().any(|words| said.contains(words))
}

/// The first line on the console of a kernel that crashed.
fn crash(shared: &Path) -> Option<String> {
    let console = text(shared, "console").unwrap_or_default();
    let mut lines = console.lines().map(str::trim);
    lines.find(|line| CRASHES.iter().any(|crash| line.contains(crash))).map(str::to_owned)
}

/// What a file of the guest says.
fn text(shared: &Path, name: &str) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&fs::read(shared.join(name))?).into_owned())
}

/// The size of the disk, which is a file with holes: also for copy areas of LVM, but no more than is free.
/// The guest leaves out a rival that does not fit. QEMU opens a disk past the page cache only if its size is
/// a multiple of the block of the file system below.
fn disk_bytes(room: u64, free: u64, options: &Options) -> u64 {
    let wanted = options.size(DISK_BYTES.1, DISK_BYTES.0).max(room.saturating_mul(2)).min(free);
    wanted - wanted % (1 << 20)
}

/// Puts into the folder what the guest needs of it.
fn share(shared: &Path, job: &StudyJob, options: &Options) -> Result<()> {
    let program = match &options.child.program {
        Some(program) => program.clone(),
        None => std::env::current_exe().doing(|| "find this program's own file".to_owned())?,
    };
    let copy = shared.join("program");
    fs::copy(&program, &copy).doing(|| format!("copy {}", program.display()))?;
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).doing(|| "mark a program".to_owned())?;
    let wanted = Job::Study(job.clone());
    let text = serde_json::to_string(&wanted).map_err(|error| wanted.failure(&error.to_string()))?;
    for (name, text) in
        [("init", INIT.to_owned()), ("job.json", text), ("arguments", job.arguments().join("\n") + "\n")]
    {
        let path = shared.join(name);
        fs::write(&path, text).doing(|| format!("write {}", path.display()))?;
    }
    Ok(())
}

fn machine(built: &Path, shared: &Path, disk: &Path, accelerator: &str) -> Command {
    // QEMU doubles commas in values.
    let path = |path: &Path| path.display().to_string().replace(',', ",,");
    // A lab that is killed takes the machine with it.
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", QEMU, "-accel", accelerator, "-cpu", "max", "-smp", "2"]);
    command.args(["-m", MEMORY, "-display", "none", "-nic", "none", "-no-reboot"]);
    command.arg("-serial").arg(format!("file:{}", path(&shared.join("console"))));
    command.arg("-kernel").arg(built.join("vmlinuz")).arg("-initrd").arg(built.join("initrd"));
    command.args(["-append", "root=/dev/vda rw init=/init console=ttyS0 quiet panic=-1"]);
    let drive = |file: &Path, how: &str| format!("file={},if=virtio,format=raw,{how}", path(file));
    // What is written to the root goes with the machine.
    command.arg("-drive").arg(drive(&built.join("root.ext4"), "cache=unsafe,snapshot=on"));
    // By default QEMU stops the machine when the file cannot grow: the study would stand still.
    command.arg("-drive").arg(drive(disk, "cache=none,aio=native,discard=unmap,werror=report"));
    command
        .arg("-virtfs")
        .arg(format!("local,path={},mount_tag=job,security_model=none,id=job", path(shared)));
    command
}

/// Whether KVM runs a machine here: there may be a device for it, and nothing behind that.
pub(super) fn kvm_works() -> Result<bool> {
    if !Path::new("/dev/kvm").exists() {
        return Ok(false);
    }
    let mut command = Command::new(QEMU);
    command.args(["-accel", KVM, "-cpu", "max", "-S", "-m", "64M", "-display", "none", "-nic", "none"]);
    let mut tried = Tool::start(command.stdout(Stdio::null()).stderr(Stdio::null()))?;
    Ok(!tried.ends_within(TRIAL)?)
}

/// The result that the guest left, or why there is none.
fn outcome(shared: &Path, qemu: ExitStatus) -> Result<Report> {
    let tail = |name: &str| tool::tail(&text(shared, name).unwrap_or_default());
    let Ok(status) = text(shared, STATUS) else {
        let crash = crash(shared).map_or_else(String::new, |line| format!(" has {line:?}, and"));
        return Err(failure(format!(
            "it ended before the study did (QEMU: {qemu}); QEMU said: {:?}, and the console{crash} ends \
             with: {:?}",
            tail(SAID),
            tail("console")
        )));
    };
    if status.trim() == "0" {
        return Report::from_json(
            "what the guest wrote",
            &text(shared, "result.json").doing(|| "read its result".to_owned())?,
        );
    }
    let errors = tail("errors");
    let foreign = errors.contains("GLIBC_") || ["126", "127"].contains(&status.trim());
    let reason = if foreign {
        format!(
            "this program does not run in it ({errors}): build it on the same release of Debian, or without \
             shared libraries"
        )
    } else {
        format!("the study in it failed: {errors}")
    };
    Err(match status.trim() {
        "" => failure("its disk is full, or it was cut off while it wrote"),
        _ => Error::Child { job: "the guest".to_owned(), reason },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::os::unix::process::ExitStatusExt as _;

    fn reason(files: &[(&str, &str)]) -> String {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in files {
            fs::write(folder.path().join(name), text).expect("written");
        }
        outcome(folder.path(), ExitStatus::from_raw(9)).expect_err("no result").to_string()
    }

    #[test]
    fn a_guest_without_a_result_says_why() {
        let killed = reason(&[("console", "boot\nKernel panic\n"), ("qemu", "")]);
        assert!(killed.contains("ended before the study") && killed.contains("Kernel panic"), "{killed}");
        let console = format!("boot\nBUG: a page fault\n{}Kernel panic\nend\n", "RAX: 0\n".repeat(50));
        let crashed = reason(&[("console", &console), ("qemu", "")]);
        assert!(crashed.contains("has \"BUG: a page fault\", and ends with"), "{crashed}");
        let old = reason(&[("status", "1\n"), ("errors", "program: version `GLIBC_2.99' not found\n")]);
        assert!(old.contains("same release of Debian"), "{old}");
        let failed = reason(&[("status", "1\n"), ("errors", "fio failed\n")]);
        assert!(failed.contains("the study in it failed: fio failed"), "{failed}");
        let cut = reason(&[("status", "0\n"), ("result.json", "{\"version\": 1")]);
        assert!(cut.contains("cut short"), "{cut}");
    }

    #[test]
    fn the_disk_is_no_larger_than_what_is_free_and_has_room_for_copy_areas() {
        let (quick, full) = (Options { quick: true, ..Options::new(".") }, Options::new("."));
        let disk = |room: u64, free: u64, options| disk_bytes(room << 30, free << 30, options) >> 30;
        assert_eq!((disk(3, 100, &quick), disk(10, 100, &full), disk(10, 30, &full)), (16, 64, 30));
        assert_eq!((disk(42, 100, &full), disk(42, 50, &full), disk(30, 200, &quick)), (84, 50, 60));
        let odd =
            [disk_bytes((42 << 30) + 333, u64::MAX, &full), disk_bytes(1 << 30, (3 << 30) + 512, &full)];
        assert_eq!(odd, [84 << 30, 3 << 30]);
    }

    /// Boots a guest that crashes in its study as often, and then ends it.
    fn ended(first: &'static str, crashes: usize) -> (Result<Ended>, Vec<&'static str>) {
        let folder = tempfile::tempdir().expect("a folder");
        let (shared, options) = (folder.path(), Options::new("."));
        let tried = RefCell::new(Vec::new());
        let boot = |accelerator| {
            tried.borrow_mut().push(accelerator);
            let emulated = tried.borrow().iter().filter(|tried| **tried == TCG).count();
            let said = if accelerator == KVM { "KVM internal error. Suberror: 1\n" } else { "" };
            let lines = "guest: booted\r\n[1.0] Oops: double fault\r\nRAX: 0\r\n";
            for (name, text) in [(SAID, said), (PROGRESS, "guest: begun\n"), ("console", lines)] {
                fs::write(shared.join(name), text).expect("written");
            }
            if emulated > crashes {
                fs::write(shared.join(STATUS), "0").expect("written");
            }
            if accelerator == KVM { Err(failure("it stands still")) } else { Ok(ExitStatus::from_raw(0)) }
        };
        let ended = until_ended(first, shared, boot, &options);
        (ended, tried.take())
    }

    #[test]
    fn qemu_emulates_what_kvm_gives_up_and_a_kernel_that_crashes_is_booted_again() {
        for (first, crashes, boots) in [
            (KVM, 0, &[KVM, TCG][..]),
            (TCG, 1, &[TCG, TCG]),
            (KVM, 2, &[KVM, TCG, TCG, TCG]),
            (TCG, 9, &[TCG, TCG, TCG]),
        ] {
            let (ended, tried) = ended(first, crashes);
            let ended = ended.expect("an end");
            assert_eq!((tried.as_slice(), ended.accelerator), (boots, TCG));
            assert_eq!(ended.crashes, vec!["[1.0] Oops: double fault"; crashes.min(BOOTS_MAX - 1)]);
        }
    }

    #[test]
    fn a_guest_that_hangs_or_whose_kvm_crashes_is_not_booted_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let options = Options::new(".");
        let hangs = |_| Err(failure("no step"));
        let error = until_ended(KVM, folder.path(), hangs, &options).expect_err("it hangs");
        assert!(error.to_string().contains("no step"), "{error}");
        let crashes = |_| Ok(ExitStatus::from_raw(0));
        let ended = until_ended(KVM, folder.path(), crashes, &options).expect("an end");
        assert!(ended.accelerator == KVM && ended.crashes.is_empty(), "{ended:?}");
    }

    #[test]
    fn what_kvm_cannot_run_is_seen_in_what_qemu_says() {
        let folder = tempfile::tempdir().expect("a folder");
        assert!(!has_given_up(folder.path()));
        for (text, gives_up) in [
            ("qemu-system-x86_64: warning: host doesn't support requested feature\n", false),
            ("KVM internal error. Suberror: 1\nemulation failure\n", true),
            ("KVM: entry failed, hardware error 0x7\n", true),
            ("KVM: exception 6 exit (error code 0x0)\n", true),
            ("KVM: unknown exit, hardware reason 31\n", true),
            ("error: kvm run failed Bad address\n", true),
        ] {
            fs::write(folder.path().join(SAID), text).expect("written");
            assert_eq!(has_given_up(folder.path()), gives_up, "{text}");
        }
    }

    #[test]
    fn commas_in_paths_are_not_options() {
        let command = machine(Path::new("/a,b"), Path::new("/c,d"), Path::new("/e"), "tcg");
        let arguments: Vec<String> =
            command.get_args().map(|argument| argument.to_string_lossy().into_owned()).collect();
        assert!(arguments.iter().any(|argument| argument.starts_with("file=/a,,b/root.ext4,if=")));
        assert!(arguments.iter().any(|argument| argument.starts_with("local,path=/c,,d,mount_tag")));
    }
}
