//! Snapshots, datasets in datasets, rollbacks, and what other doors change.

use crate::fixture::{Fixture, can_mount, number};
use icecore::DestroyTarget;
use icecore::admin::Request;
use icecore::admin::protocol::Owner;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};

fn create(fixture: &Fixture, name: &str) {
    fixture.ask(Request::Create { name: name.into(), parents: false, properties: vec![] }).unwrap();
}

fn names(folder: &std::path::Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn snapshots_are_folders_that_are_not_listed() {
    if !can_mount() {
        return;
    }
    let fixture = Fixture::new();
    fs::write(fixture.path("f"), "monday").unwrap();
    fixture.snapshot("db@monday");
    fs::write(fixture.path("f"), "tuesday").unwrap();
    fs::write(fixture.path("g"), "new").unwrap();
    fixture.snapshot("db@tuesday");
    assert_eq!(names(&fixture.path(".")), ["f", "g"]);
    assert_eq!(names(&fixture.path(".icecore")), ["snapshots"]);
    assert_eq!(names(&fixture.path(".icecore/snapshots")), ["monday", "tuesday"]);
    assert_eq!(names(&fixture.path(".icecore/snapshots/monday")), ["f"]);
    let old = fixture.path(".icecore/snapshots/monday/f");
    assert_eq!(fs::read_to_string(&old).unwrap(), "monday");
    assert_ne!(fs::metadata(&old).unwrap().ino(), fs::metadata(fixture.path("f")).unwrap().ino());
    assert_eq!(number(fs::write(&old, "x")), libc::EROFS);
    assert_eq!(number(fs::remove_file(&old)), libc::EROFS);
    assert_eq!(number(fs::create_dir(fixture.path(".icecore/snapshots/wednesday"))), libc::EROFS);
    assert_eq!(number(fs::create_dir(fixture.path(".icecore"))), libc::EEXIST);
    fs::create_dir(fixture.path("folder")).unwrap();
    assert_eq!(number(fs::rename(fixture.path("folder"), fixture.path(".icecore"))), libc::EBUSY);
    assert_eq!(number(fs::hard_link(&old, fixture.path("h"))), libc::EXDEV);
    // What is destroyed cannot be found any more, and what is renamed is found under its new name.
    let rename = Request::Rename { from: "db@tuesday".into(), to: "db@t".into(), recursive: false };
    fixture.ask(rename).unwrap();
    assert_eq!(names(&fixture.path(".icecore/snapshots")), ["monday", "t"]);
    assert_eq!(number(fs::metadata(fixture.path(".icecore/snapshots/tuesday"))), libc::ENOENT);
    fixture.ask(Request::Destroy { target: DestroyTarget::Snapshot("db@monday".into()) }).unwrap();
    assert_eq!(number(fs::read(&old)), libc::ENOENT);
    assert_eq!(names(&fixture.path(".icecore/snapshots")), ["t"]);
    fixture.snapshot("db@new");
    assert_eq!(names(&fixture.path(".icecore/snapshots")), ["new", "t"]);
}

#[test]
fn a_snapshot_in_use_is_not_destroyed() {
    if !can_mount() {
        return;
    }
    let mut fixture = Fixture::new();
    fs::create_dir(fixture.path("d")).unwrap();
    fs::write(fixture.path("d/f"), "monday").unwrap();
    fixture.snapshot("db@monday");
    fixture.snapshot("db@tuesday");
    let open = File::open(fixture.path(".icecore/snapshots/monday/d/f")).unwrap();
    let targets = [
        DestroyTarget::Snapshot("db@monday".into()),
        DestroyTarget::Range { dataset: "db".into(), first: "monday".into(), last: "tuesday".into() },
        DestroyTarget::Snapshots { of: vec![("db".into(), vec!["tuesday".into(), "monday".into()])] },
    ];
    for target in targets {
        let refused = fixture.ask(Request::Destroy { target }).unwrap_err();
        assert!(refused.contains(".icecore/snapshots/monday/d/f is open; close it first"), "{refused}");
    }
    let mut text = [0; 6];
    open.read_exact_at(&mut text, 0).unwrap();
    assert_eq!((&text, names(&fixture.path(".icecore/snapshots")).len()), (b"monday", 2));
    let destroy = |name: &str| Request::Destroy { target: DestroyTarget::Snapshot(name.into()) };
    fixture.ask(destroy("db@tuesday")).unwrap();
    fixture.snapshot("db@wednesday");
    drop(open);
    fixture.ask(destroy("db@monday")).unwrap();
    fixture.unmount();

    fixture.mount(Some("db@wednesday"));
    let refused = fixture.ask(destroy("db@wednesday")).unwrap_err();
    let mount = fixture.path("").display().to_string();
    let busy = format!("its mount on {} is open; close it first", mount.trim_end_matches('/'));
    assert!(refused.contains("db@wednesday") && refused.contains(&busy), "{refused}");
    assert_eq!(fs::read_to_string(fixture.path("d/f")).unwrap(), "monday");
    let open = File::open(fixture.path("d/f")).unwrap();
    let refused = fixture.ask(destroy("db@wednesday")).unwrap_err();
    assert!(refused.contains("mnt/d/f is open"), "{refused}");
    drop(open);
}

#[test]
fn a_snapshot_alone_and_a_pool_as_a_whole() {
    if !can_mount() {
        return;
    }
    let mut fixture = Fixture::new();
    fs::write(fixture.path("f"), "monday").unwrap();
    fixture.snapshot("db@monday");
    fs::write(fixture.path("f"), "tuesday").unwrap();
    fixture.unmount();
    fixture.mount(Some("db@monday"));
    assert_eq!(fs::read_to_string(fixture.path("f")).unwrap(), "monday");
    assert_eq!(number(fs::write(fixture.path("f"), "x")), libc::EROFS);
    fixture.unmount();
    fixture.mount(None);
    assert_eq!(names(&fixture.path(".")), ["db"]);
    assert_eq!(number(fs::create_dir(fixture.path("other"))), libc::EROFS);
    let clone = Request::Clone { snapshot: "db@monday".into(), target: "copy".into(), parents: false };
    fixture.ask(clone).unwrap();
    assert_eq!(names(&fixture.path(".")), ["copy", "db"]);
    fs::write(fixture.path("copy/g"), "in the clone").unwrap();
    assert_eq!(fs::read_to_string(fixture.path("copy/f")).unwrap(), "monday");
    assert_eq!(fs::read_to_string(fixture.path("db/f")).unwrap(), "tuesday");
    assert_eq!(names(&fixture.path("db")), ["f"]);
    assert_eq!(names(&fixture.path("db/.icecore/snapshots")), ["monday"]);
}

#[test]
fn datasets_in_a_dataset_are_folders() {
    if !can_mount() {
        return;
    }
    let fixture = Fixture::new();
    fs::write(fixture.path("below"), "hidden by the dataset").unwrap();
    fs::write(fixture.path("f"), "x").unwrap();
    create(&fixture, "db/below");
    assert!(fs::metadata(fixture.path("below")).unwrap().is_dir());
    assert_eq!(names(&fixture.path(".")), ["below", "f"]);
    fs::write(fixture.path("below/f"), "y").unwrap();
    assert_eq!(number(fs::rename(fixture.path("f"), fixture.path("below/g"))), libc::EXDEV);
    assert_eq!(number(fs::hard_link(fixture.path("f"), fixture.path("below/g"))), libc::EXDEV);
    assert_eq!(number(fs::remove_dir(fixture.path("below"))), libc::EBUSY);
    assert_eq!(number(fs::rename(fixture.path("below"), fixture.path("other"))), libc::EBUSY);
    fixture.snapshot("db@both");
    assert_eq!(fs::read_to_string(fixture.path("below/.icecore/snapshots/both/f")).unwrap(), "y");
    let rename = Request::Rename { from: "db/below".into(), to: "db/moved".into(), recursive: false };
    let mut open = File::create(fixture.path("below/open")).unwrap();
    fixture.ask(rename).unwrap();
    assert_eq!(fs::read_to_string(fixture.path("below")).unwrap(), "hidden by the dataset");
    assert_eq!(fs::read_to_string(fixture.path("moved/f")).unwrap(), "y");
    open.write_all(b"still open").unwrap();
    let destroy =
        || Request::Destroy { target: DestroyTarget::Dataset { name: "db/moved".into(), recursive: true } };
    let refused = fixture.ask(destroy()).unwrap_err();
    assert!(refused.contains("moved/open is open"), "{refused}");
    drop(open);
    fixture.ask(destroy()).unwrap();
    assert_eq!(number(fs::metadata(fixture.path("moved"))), libc::ENOENT);
    assert_eq!(names(&fixture.path(".")), ["below", "f"]);
    let whole = DestroyTarget::Dataset { name: "db".into(), recursive: true };
    let refused = fixture.ask(Request::Destroy { target: whole }).unwrap_err();
    assert!(refused.contains("its mount on"), "{refused}");
}

#[test]
fn a_rollback_shows_the_past_at_once() {
    if !can_mount() {
        return;
    }
    let fixture = Fixture::new();
    fs::create_dir_all(fixture.path("d/e")).unwrap();
    fs::write(fixture.path("d/e/f"), "monday").unwrap();
    fs::write(fixture.path("gone"), "gone").unwrap();
    fixture.snapshot("db@monday");
    fs::write(fixture.path("d/e/f"), "tuesday, longer").unwrap();
    fs::write(fixture.path("new"), "new").unwrap();
    fs::remove_file(fixture.path("gone")).unwrap();
    // All of it is in the caches of the kernel.
    assert_eq!(fs::read_to_string(fixture.path("d/e/f")).unwrap(), "tuesday, longer");
    assert_eq!(names(&fixture.path(".")), ["d", "new"]);

    let writer = OpenOptions::new().read(true).write(true).open(fixture.path("d/e/f")).unwrap();
    let refused = fixture.roll_back("db@monday", false).unwrap_err();
    assert!(refused.contains("mnt/d/e/f is open"), "{refused}");
    assert_eq!(fs::read_to_string(fixture.path("d/e/f")).unwrap(), "tuesday, longer");
    let reader = File::open(fixture.path("d/e/f")).unwrap();
    let mut bytes = [0; 7];
    reader.read_exact_at(&mut bytes, 0).unwrap();

    let folder = File::open(fixture.path("d")).unwrap();
    let old_folder = std::path::PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd()));
    assert_eq!(names(&old_folder), ["e"]);
    assert_eq!(names(&old_folder), ["e"]);

    fixture.roll_back("db@monday", true).unwrap();
    assert_eq!(number(writer.write_at(b"x", 0)), libc::ESTALE);
    assert_eq!(number(writer.sync_all()), libc::ESTALE);
    assert_eq!(number(reader.read_at(&mut bytes, 0)), libc::ESTALE);
    assert_eq!(number(reader.metadata()), libc::ESTALE);
    let listed = fs::read_dir(&old_folder).and_then(|entries| entries.collect::<Result<Vec<_>, _>>());
    assert_eq!(number(listed), libc::ESTALE);
    assert_eq!(fs::read_to_string(fixture.path("d/e/f")).unwrap(), "monday");
    assert_eq!(fs::metadata(fixture.path("d/e/f")).unwrap().len(), 6);
    assert_eq!(names(&fixture.path(".")), ["d", "gone"]);
    assert_eq!(number(fs::metadata(fixture.path("new"))), libc::ENOENT);
    drop((writer, reader, folder));
    fs::write(fixture.path("d/e/f"), "wednesday").unwrap();

    // Nothing is open for writing: no force is needed. Twice, and back again.
    fixture.roll_back("db@monday", false).unwrap();
    assert_eq!(fs::read_to_string(fixture.path("d/e/f")).unwrap(), "monday");
    let snapshots = names(&fixture.path(".icecore/snapshots"));
    let saved = snapshots.iter().find(|name| name.starts_with("rollback")).unwrap();
    fixture.roll_back(&format!("db@{saved}"), false).unwrap();
    assert_eq!(fs::read_to_string(fixture.path("d/e/f")).unwrap(), "tuesday, longer");
    assert_eq!(names(&fixture.path(".")), ["d", "new"]);
}

#[test]
fn a_rollback_of_a_dataset_below_leaves_the_others_alone() {
    if !can_mount() {
        return;
    }
    let fixture = Fixture::new();
    create(&fixture, "db/below");
    fs::write(fixture.path("f"), "above").unwrap();
    fs::write(fixture.path("below/f"), "one").unwrap();
    fixture.snapshot("db/below@one");
    fs::write(fixture.path("below/f"), "two").unwrap();
    let mut open = OpenOptions::new().append(true).open(fixture.path("f")).unwrap();
    fixture.roll_back("db/below@one", false).unwrap();
    assert_eq!(fs::read_to_string(fixture.path("below/f")).unwrap(), "one");
    open.write_all(b", still").unwrap();
    assert_eq!(fs::read_to_string(fixture.path("f")).unwrap(), "above, still");
}

#[test]
fn a_rollback_waits_for_writers_and_loses_nothing_of_others() {
    if !can_mount() {
        return;
    }
    let fixture = Fixture::new();
    fixture.snapshot("db@empty");
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for number in 0..4 {
            let (fixture, stop) = (&fixture, &stop);
            scope.spawn(move || {
                let path = fixture.path(&format!("f{number}"));
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    // What is rolled back under a writer is stale, and nothing else ever happens.
                    let outcome = File::create(&path).and_then(|mut file| file.write_all(&[1; 5000]));
                    if let Err(error) = outcome {
                        assert_eq!(error.raw_os_error(), Some(libc::ESTALE), "{error}");
                    }
                }
            });
        }
        for _ in 0..20 {
            fixture.roll_back("db@empty", true).unwrap();
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    fixture.roll_back("db@empty", true).unwrap();
    assert!(names(&fixture.path(".")).is_empty());
}

#[test]
fn an_import_shows_at_once() {
    if !can_mount() {
        return;
    }
    let fixture = Fixture::new();
    let import = |path: &str, text: &str, replace| {
        let mut access = fixture.access();
        let owner = Owner { uid: 0, gid: 0 };
        let path = path.as_bytes().to_vec();
        access
            .call(Request::BeginImport { path, mode: 0o644, owner, replace, beside: Vec::new() })
            .map_err(|error| error.to_string())?;
        access.call(Request::ImportChunk { offset: 0, data: text.into() }).unwrap();
        access.call(Request::CommitImport { size: text.len() as u64 }).map_err(|error| error.to_string())
    };
    assert!(names(&fixture.path(".")).is_empty());
    {
        let mut access = fixture.access();
        let owner = Owner { uid: 0, gid: 0 };
        let begin = Request::BeginImport {
            path: b"db/f".to_vec(),
            mode: 0o644,
            owner,
            replace: false,
            beside: Vec::new(),
        };
        access.call(begin).unwrap();
        // The second time from the kernel's list.
        assert_eq!(names(&fixture.path(".")).len(), 1);
        assert_eq!(names(&fixture.path(".")).len(), 1);
        // Another that begins gives the first one up, even if it fails.
        let path = b"db/none/f".to_vec();
        access
            .call(Request::BeginImport { path, mode: 0o644, owner, replace: false, beside: Vec::new() })
            .unwrap_err();
    }
    assert!(names(&fixture.path(".")).is_empty());
    import("db/f", "first", false).unwrap();
    assert_eq!(names(&fixture.path(".")), ["f"]);
    assert_eq!(fs::read_to_string(fixture.path("f")).unwrap(), "first");
    import("db/f", "second, longer", true).unwrap();
    assert_eq!(fs::read_to_string(fixture.path("f")).unwrap(), "second, longer");
    let open = File::open(fixture.path("f")).unwrap();
    let refused = import("db/f", "third", true).unwrap_err();
    assert!(refused.contains("a program has it open"), "{refused}");
    drop(open);
    let owner = Owner { uid: 7, gid: 8 };
    fixture.ask(Request::MakeDirectories { path: b"db/a/b".to_vec(), owner }).unwrap();
    assert_eq!(names(&fixture.path(".")), ["a", "f"]);
    assert_eq!(fs::metadata(fixture.path("a/b")).unwrap().uid(), 7);
}
