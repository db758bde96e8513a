//! Remembers which compiler built the lab: a result names it.

use std::process::Command;

fn main() {
    let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(compiler)
        .arg("--version")
        .output()
        .ok()
        .and_then(|output| String::from_utf8(output.stdout).ok())
        .unwrap_or_default();
    println!("cargo::rustc-env=ICECORE_LAB_RUSTC={}", version.trim());
    let profile = std::env::var("PROFILE").unwrap_or_default();
    println!("cargo::rustc-env=ICECORE_LAB_PROFILE={profile}");
    println!("cargo::rerun-if-changed=build.rs");
}
