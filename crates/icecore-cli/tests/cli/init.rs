//! Making a pool: sizes that suit each other, and no trace of what cannot be made.

use crate::fixture::{complaint, entries, program};
use std::path::Path;

const MIB: u64 = 1 << 20;

fn init(folder: &Path, arguments: &[&str]) -> assert_cmd::Command {
    let mut command = program();
    command.arg("init").args(arguments).arg(folder.join("pool")).current_dir(folder);
    command
}

#[test]
fn segments_suit_the_size_limit() {
    for (arguments, segment) in [
        (&["--size-limit", "64M"][..], 2),
        (&["--size-limit", "1G"], 4),
        (&["--size-limit", "3G"], 8),
        (&["--size-limit", "1G", "--segment-size", "16M"], 16),
        (&["--size-limit", "none", "--segment-size", "4M"], 4),
    ] {
        let folder = tempfile::tempdir().unwrap();
        init(folder.path(), arguments).assert().success();
        let file = folder.path().join("pool/segment.00000000");
        assert_eq!(std::fs::metadata(file).unwrap().len(), segment * MIB, "{arguments:?}");
    }
}

#[test]
fn what_is_refused_says_what_would_do_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |code: i32, arguments: &[&str]| {
        let said = complaint(init(folder.path(), arguments), code);
        assert_eq!(entries(folder.path()), Vec::<String>::new(), "{arguments:?}: {said}");
        said
    };
    let said = refused(1, &["--size-limit", "100M", "--segment-size", "64M"]);
    for part in ["--segment-size", "100M", "704M", "8M at most"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let said = refused(1, &["--size-limit", "10M"]);
    assert!(said.contains("22M"), "{said}");
    refused(1, &["--segment-size", "3M"]);
    refused(2, &["--segment-size", "0"]);
    refused(1, &["--segment-size", "3M", "--mirror", "mirror"]);
    let said = refused(2, &["--copies", "none", "--mirror", "mirror"]);
    assert!(said.contains("--mirror"), "{said}");
    let said = refused(1, &["--mirror", "pool"]);
    assert!(said.contains("the folder of the pool itself"), "{said}");
}

#[test]
fn a_folder_that_was_there_stays_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let (pool, mirror) = (folder.path().join("pool"), folder.path().join("mirror"));
    std::fs::create_dir(&pool).unwrap();
    std::fs::create_dir(&mirror).unwrap();
    std::os::unix::fs::symlink(&pool, folder.path().join("link")).unwrap();
    for arguments in [
        &["--mirror", "pool"][..],
        &["--mirror", "link"],
        &["--mirror", "mirror/../pool"],
        &["--segment-size", "3M", "--mirror", "mirror"],
        &["--copies", "none", "--mirror", "mirror"],
    ] {
        let assert = init(folder.path(), arguments).assert().failure();
        assert!(entries(&pool).is_empty() && entries(&mirror).is_empty(), "{:?}", assert.get_output());
    }
    init(folder.path(), &["--mirror", "mirror", "--segment-size", "2M"]).assert().success();
}

#[test]
fn a_folder_with_other_files_takes_force() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("pool/lost+found")).unwrap();
    std::fs::write(folder.path().join("pool/letter"), b"").unwrap();
    let said = complaint(init(folder.path(), &[]), 2);
    assert!(said.contains("letter is in it") && said.contains("--force"), "{said}");
    assert_eq!(entries(&folder.path().join("pool")), ["letter", "lost+found"]);
    init(folder.path(), &["--force"]).assert().success();
    // What is a pool already stays one, force or not.
    for arguments in [&[][..], &["--force"]] {
        let said = complaint(init(folder.path(), arguments), 1);
        assert!(said.contains("pool"), "{said}");
    }

    let fresh = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(fresh.path().join("pool/lost+found")).unwrap();
    init(fresh.path(), &[]).assert().success();
}
