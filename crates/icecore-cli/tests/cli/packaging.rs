//! What is in `packaging`: that the system takes it, and that the program does.

use crate::fixture::{Fixture, program};
use std::path::{Path, PathBuf};
use std::process::Command;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/systemd")
}

/// Names and texts of the units.
fn units() -> Vec<(String, String)> {
    let names = crate::fixture::entries(&folder()).into_iter().filter(|name| name.starts_with("icecore-"));
    names.map(|name| (name.clone(), std::fs::read_to_string(folder().join(name)).unwrap())).collect()
}

/// Whether all of these units, as instances for `/srv/pool`, are what systemd understands; what it says.
fn verified(units: &[(String, String)]) -> Result<(), String> {
    let place = tempfile::tempdir().unwrap();
    // Where the program is installed need not be where it was built.
    let here = assert_cmd::cargo::cargo_bin("icecore");
    for (name, text) in units {
        let text = text.replace("/usr/bin/icecore", here.to_str().unwrap());
        std::fs::write(place.path().join(name), text).unwrap();
    }
    let instances = units.iter().map(|(name, _)| place.path().join(name.replace('@', "@srv-pool")));
    let output = Command::new("systemd-analyze")
        .args(["verify", "--man=no"])
        .args(instances)
        .env("SYSTEMD_UNIT_PATH", format!("{}:", place.path().display()))
        .env("LC_ALL", "C")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    // Other units of this machine are not what this tests.
    let ours: Vec<&str> = said.lines().filter(|line| line.contains("icecore-")).collect();
    if ours.is_empty() { Ok(()) } else { Err(ours.join("\n")) }
}

#[test]
fn systemd_understands_the_units() {
    if let Err(error) = Command::new("systemd-analyze").arg("--version").output() {
        return eprintln!("left out: the units of systemd: cannot run systemd-analyze: {error}");
    }
    let units = units();
    assert_eq!(units.len(), 6);
    verified(&units).unwrap_or_else(|said| panic!("{said}"));
    // It would say so.
    for (right, wrong) in [
        ("ProtectHome=read-only", "ProtectHome=mostly"),
        ("Type=oneshot", "Type=oneshots"),
        ("PrivateNetwork=", "PrivateNetworks="),
        ("OnCalendar=", "OnCalendar=Someday "),
        ("ExecStart=", "ExecStart=/no/such/program "),
    ] {
        let spoilt: Vec<_> =
            units.iter().map(|(name, text)| (name.clone(), text.replacen(right, wrong, 1))).collect();
        assert!(verified(&spoilt).is_err(), "{wrong} was not noticed");
    }
}

/// Each service runs a command that there is, on the folder of the pool.
#[test]
fn the_program_understands_what_the_units_run() {
    let fixture = Fixture::with_db();
    let mut run = Vec::new();
    for (name, text) in units() {
        let Some(line) = text.lines().find_map(|line| line.strip_prefix("ExecStart=")) else {
            let service = name.replace(".timer", ".service");
            assert!(name.ends_with(".timer") && folder().join(service).exists(), "{name} runs nothing");
            continue;
        };
        let mut words = line.split(' ');
        assert_eq!(words.next(), Some("/usr/bin/icecore"), "{name}");
        let words: Vec<&str> =
            words.map(|word| if word == "%f" { fixture.pool.to_str().unwrap() } else { word }).collect();
        program().args(&words).assert().success().stderr("");
        assert!(text.contains(&format!("Documentation=man:icecore-{}(1)", words[0])), "{name}");
        run.push(words[0].to_owned());
    }
    assert_eq!(run, ["prune", "scrub", "snapshot"]);
}
