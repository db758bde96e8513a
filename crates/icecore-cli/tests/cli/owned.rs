//! A pool that another process has open: this one, or a child of it.

use crate::fixture::{Fixture, complaint, program, wait_until};
use icecore::admin::{Client, ErrorCode, Request, Response, SOCKET_NAME, connect_or_open};
use icecore::units::InodeNumber;
use icecore::{Creation, OpenOptions, Pool, ReaderName};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

#[test]
fn every_command_works_on_a_pool_in_use() {
    let fixture = Fixture::with_db();
    let pool = fixture.own();
    let status = fixture.done(&["status"]);
    assert!(status.contains(&format!("owner  process {}", std::process::id())), "{status}");
    fixture.done(&["create", "-p", "-o", "team:owner=ada", "team/x"]);
    fixture.done(&["snapshot", "-r", "team@one", "db@two"]);
    fixture.done(&["clone", "db@one", "try"]);
    fixture.done(&["hold", "keep", "db@one"]);
    assert!(fixture.done(&["holds", "db@one"]).contains("keep"));
    let refusal = fixture.refused(7, &["destroy", "db@one"]);
    assert!(refusal.contains("keep"), "{refusal}");
    fixture.done(&["release", "keep", "db@one"]);
    fixture.done(&["promote", "try"]);
    fixture.done(&["rename", "try@one", "@first"]);
    fixture.done(&["set", "team:owner=grace", "team"]);
    fixture.done(&["inherit", "team:owner", "team/x"]);
    assert_eq!(fixture.done(&["get", "-H", "-o", "value", "team:owner", "team/x"]), "grace\n");
    fixture.done(&["rollback", "db@two"]);
    fixture.import("large", &vec![5; 3 << 20]);
    assert_eq!(fixture.done(&["export", "db/large", "-"]).len(), 3 << 20);
    assert_eq!(fixture.done(&["ls", "db"]), "app\nlarge\n");
    assert_eq!(fixture.done(&["diff", "-H", "db@two"]), "M\t/\n+\t/large\n");
    assert!(fixture.done(&["scrub"]).contains("no damage"));
    fixture.done(&["snapshot", "db@three"]);
    assert!(fixture.done(&["destroy", "-nv", "db@three"]).contains("would reclaim"));
    fixture.done(&["destroy", "-r", "team"]);
    let names = fixture.done(&["list", "-H", "-t", "all", "-o", "name"]);
    assert!(names.contains("try@first\n") && !names.contains("team"), "{names}");
    // What the program did is there for the owner at once, and the other way round.
    let dataset = pool.dataset("db").unwrap();
    assert!(dataset.view().unwrap().resolve(b"large").unwrap().is_some());
    let file = dataset.open_or_create(b"mine", &Creation::file()).unwrap();
    dataset.write(file, 0, b"not yet durable").unwrap();
    assert_eq!(fixture.done(&["cat", "db/mine"]), "not yet durable");
    pool.close().unwrap();
    assert_eq!(fixture.done(&["cat", "db/mine"]), "not yet durable");
}

#[test]
fn errors_read_the_same_here_and_there() {
    let fixture = Fixture::with_db();
    let attempts: &[(i32, &[&str])] = &[
        (1, &["snapshot", "db@one"]),
        (1, &["snapshot", "none@x"]),
        (2, &["create", "a b"]),
        (1, &["destroy", "db@none"]),
        (7, &["destroy", "db"]),
        (1, &["cat", "db/none"]),
        (1, &["ls", "db@none"]),
    ];
    let here: Vec<_> = attempts.iter().map(|(code, arguments)| fixture.refused(*code, arguments)).collect();
    let pool = fixture.own();
    let there: Vec<_> = attempts.iter().map(|(code, arguments)| fixture.refused(*code, arguments)).collect();
    assert_eq!(here, there);
    pool.close().unwrap();
}

#[test]
fn an_owner_that_does_not_listen_is_named() {
    let fixture = Fixture::with_db();
    let options = OpenOptions { control_socket: false, ..OpenOptions::default() };
    let pool = Pool::open_directory(&fixture.pool, &options).unwrap();
    let said = fixture.refused(4, &["snapshot", "db@two"]);
    assert!(said.contains(&std::process::id().to_string()), "{said}");
    assert!(!said.contains("use the icecore command"), "{said}");
    pool.close().unwrap();
    fixture.done(&["snapshot", "db@two"]);
}

#[test]
fn nonsense_on_the_socket_damages_nothing() {
    let fixture = Fixture::with_db();
    let pool = fixture.own();
    let socket = fixture.pool.join(SOCKET_NAME);
    let mut stalled = UnixStream::connect(&socket).unwrap();
    stalled.write_all(b"ICEA").unwrap();
    let version = icecore::admin::protocol::PROTOCOL_VERSION.to_le_bytes();
    let frame = |rest: &[u8]| [&b"ICEA"[..], &version, &[0, 0], rest].concat();
    for bytes in [vec![0; 12], frame(b"\xff\xff\xff\xff"), frame(b"\x01\0\0\0\xfe")] {
        let mut client = UnixStream::connect(&socket).unwrap();
        client.write_all(&bytes).unwrap();
        let mut answer = Vec::new();
        let _ = client.read_to_end(&mut answer);
        assert!(answer.starts_with(b"ICEA"), "one clear error");
    }
    fixture.done(&["list"]);
    drop(Client::connect(&fixture.pool).unwrap());
    fixture.done(&["snapshot", "db@two"]);
    pool.close().unwrap();
}

#[test]
fn an_import_that_is_cut_off_leaves_nothing() {
    let fixture = Fixture::with_db();
    let pool = fixture.own();
    let mut child = spawn(&fixture, &["import", "-f", "-", "db/app"]);
    let mut new = spawn(&fixture, &["import", "-", "db/new"]);
    for child in [&mut child, &mut new] {
        child.stdin.as_mut().unwrap().write_all(&vec![3; 20 << 20]).unwrap();
    }
    let said = fixture.refused(7, &["rollback", "db@one"]);
    assert!(said.contains("import"), "{said}");
    for mut child in [child, new] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    assert_eq!(fixture.done(&["cat", "db/app"]), "second");
    wait_until(|| fixture.done(&["ls", "db"]) == "app\n");
    wait_until(|| fixture.run(&["rollback", "db@one"]).output().unwrap().status.success());
    pool.close().unwrap();
}

/// The import is held where the owner has taken half of the file and the answer has not arrived: however slow
/// the test is, it meets the import in the middle.
#[test]
fn an_import_begins_again_where_the_owner_closes_the_pool() {
    let fixture = Fixture::with_db();
    let content: Vec<u8> = (0..8_u32 << 20).map(|index| (index / 7) as u8 | 1).collect();
    let source = fixture.beside("large");
    std::fs::write(&source, &content).unwrap();
    let pool = fixture.own();
    let middle = hold_after(&fixture, content.len() / 2);
    let import = spawn(&fixture, &["import", "--raw", source.to_str().unwrap(), "db/new"]);
    middle.arrived.recv_timeout(Duration::from_secs(30)).expect("an import in the middle");
    assert_eq!(hidden_files(&pool).len(), 1);
    pool.close().unwrap();
    assert_eq!(fixture.done(&["ls", "db"]), "app\n");
    drop(middle.go_on);
    succeed(import);
    middle.thread.join().unwrap();
    assert_eq!(fixture.done(&["ls", "db"]), "app\nnew\n");
    let copied = fixture.run(&["cat", "db/new"]).output().unwrap();
    assert!(copied.stdout == content);
}

/// A connection that is held in the middle. When this goes, in whatever way, the connection goes on.
struct Middle {
    arrived: Receiver<()>,
    go_on: Sender<()>,
    thread: JoinHandle<()>,
}

/// Puts itself between the owner of the pool and the next client, and holds back the answer to what comes
/// when the client has sent so many bytes.
fn hold_after(fixture: &Fixture, bytes: usize) -> Middle {
    let (socket, behind) = (fixture.pool.join(SOCKET_NAME), fixture.beside("owner.sock"));
    std::fs::rename(&socket, &behind).unwrap();
    let listener = UnixListener::bind(&socket).unwrap();
    let (arrived_sender, arrived) = channel();
    let (go_on, go_on_receiver) = channel::<()>();
    let thread = std::thread::spawn(move || {
        let (client, _) = listener.accept().unwrap();
        let owner = UnixStream::connect(behind).unwrap();
        let sent = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                pass(&client, &owner, |length| _ = sent.fetch_add(length, Ordering::SeqCst));
            });
            let mut held = false;
            pass(&owner, &client, |_| {
                if !held && sent.load(Ordering::SeqCst) >= bytes {
                    held = true;
                    let _ = arrived_sender.send(());
                    // Nothing is ever sent: it ends when the test, or what is left of it, lets go.
                    let _ = go_on_receiver.recv();
                }
            });
            // Whatever the client still sends goes nowhere, as with an owner that has gone.
            let _ = client.shutdown(Shutdown::Both);
        });
    });
    Middle { arrived, go_on, thread }
}

/// Passes on what comes until one of the two ends; `before` learns the length of each piece before it is
/// passed on.
fn pass(mut from: &UnixStream, mut to: &UnixStream, mut before: impl FnMut(usize)) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        before(length);
        if to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

#[test]
fn what_comes_once_is_not_imported_in_part_where_the_owner_closes_the_pool() {
    let fixture = Fixture::with_db();
    let pool = fixture.own();
    let mut import = spawn(&fixture, &["import", "-f", "-", "db/new"]);
    import.stdin.as_mut().unwrap().write_all(&vec![3; 4 << 20]).unwrap();
    wait_until(|| !hidden_files(&pool).is_empty());
    pool.close().unwrap();
    drop(import.stdin.take());
    let output = import.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("ended the connection in the middle; nothing of the file was imported"), "{said}");
    assert_eq!(fixture.done(&["ls", "db"]), "app\n");
}

#[test]
fn who_holds_nothing_any_more_goes_on_with_the_next_owner() {
    let fixture = Fixture::with_db();
    let pin = || Request::Pin { path: b"db".to_vec() };
    for close_first in [false, true] {
        let pool = fixture.own();
        let mut access = connect_or_open(&fixture.pool, false).unwrap();
        assert!(access.is_remote());
        access.call(pin()).unwrap();
        if close_first {
            pool.close().unwrap();
            access.call(Request::Unpin { pin: 0 }).unwrap();
        } else {
            access.call(Request::Unpin { pin: 0 }).unwrap();
            pool.close().unwrap();
        }
        access.call(pin()).unwrap();
        assert!(!access.is_remote());
        access.close().unwrap();
    }
}

#[test]
fn the_holder_of_a_pin_learns_that_it_went_with_the_owner() {
    let fixture = Fixture::with_db();
    let pool = fixture.own();
    let mut access = connect_or_open(&fixture.pool, false).unwrap();
    access.call(Request::Pin { path: b"db".to_vec() }).unwrap();
    pool.close().unwrap();
    let failure = access.call(Request::Status).unwrap_err();
    assert_eq!(failure.code, ErrorCode::Closing);
    assert!(failure.message.contains("in the middle of reading: repeat the command"), "{failure}");
    access.call(Request::Status).unwrap();
    access.close().unwrap();
}

#[test]
fn a_pin_of_a_snapshot_goes_on_with_the_next_owner() {
    let fixture = Fixture::with_db();
    for read_only in [false, true] {
        let mut access = connect_or_open(&fixture.pool, read_only).unwrap();
        let Response::Pinned(pinned) = access.call(Request::Pin { path: b"db@one/app".to_vec() }).unwrap()
        else {
            panic!("no pin")
        };
        let inode = pinned.found.unwrap().inode;
        let mut read = || access.call(Request::ReadFile { pin: pinned.pin, inode, offset: 0, length: 4096 });
        let first = read().unwrap();
        if read_only {
            // It owned nothing, so that a program can open the pool.
            let pool = fixture.own();
            assert_eq!(read().unwrap(), first);
            pool.close().unwrap();
            assert_eq!(read().unwrap(), first);
            fixture.done(&["snapshot", "db@two"]);
            assert_eq!(read().unwrap(), first);
            fixture.done(&["destroy", "db@one"]);
            assert_eq!(read().unwrap_err().code, ErrorCode::Closing);
        }
        access.close().unwrap();
    }
}

#[test]
fn what_a_stopped_owner_has_written_is_shown_and_marked() {
    let fixture = Fixture::with_db();
    fixture.done(&["sql", "-c", "db/app.db", "CREATE TABLE t(x); INSERT INTO t VALUES (7)"]);
    let mut owner = spawn_owner(&fixture);
    fixture.done(&["snapshot", "db@two"]);
    let pid = Pid::from_child(&owner);
    kill_process(pid, Signal::STOP).unwrap();
    let began = std::time::Instant::now();
    let output = fixture.run(&["list", "-H", "-t", "all", "-o", "name"]).output().unwrap();
    let listed = fixture.run(&["list", "--json"]).output().unwrap();
    let status = fixture.run(&["status"]).output().unwrap();
    let top = fixture.run(&["top", "--count", "1"]).output().unwrap();
    let monitored = fixture.run(&["monitor"]).output().unwrap();
    let queried = fixture.run(&["sql", "-r", "--json", "db/app.db", "SELECT x FROM t"]).output().unwrap();
    let of_past = fixture.run(&["sql", "-H", "db@two/app.db", "SELECT x FROM t"]).output().unwrap();
    let waited = began.elapsed();
    let refused = fixture.run(&["snapshot", "db@three"]).output().unwrap();
    kill_process(pid, Signal::CONT).unwrap();
    owner.kill().unwrap();
    owner.wait().unwrap();

    assert_eq!(String::from_utf8_lossy(&output.stdout), "db\ndb@one\ndb@two\n");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("does not answer: this is what was on disk"), "{said}");
    let text = String::from_utf8_lossy(&monitored.stdout);
    assert!(monitored.status.code() == Some(2) && text.contains("does not answer"), "{text}");
    // Three seconds each, and on a busy machine some more.
    assert!(waited < Duration::from_secs(7 * 6), "{waited:?}");
    for printed in [&listed.stdout, &queried.stdout] {
        let document: serde_json::Value = serde_json::from_slice(printed).unwrap();
        assert!(document["stale"].as_str().is_some_and(|why| why.contains("does not answer")), "{document}");
    }
    assert_eq!(String::from_utf8_lossy(&of_past.stdout), "7\n");
    let said = String::from_utf8_lossy(&of_past.stderr);
    assert!(said.contains("does not answer: this is what was on disk"), "{said}");
    for text in [&status, &top].map(|output| String::from_utf8_lossy(&output.stdout)) {
        assert!(text.contains("does not answer") && !text.contains("owner  none"), "{text}");
        assert!(!text.contains("no process has open"), "{text}");
    }
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(4) && said.contains("does not answer"), "{refused:?}");
}

/// The owner drops what was staged where it cannot make a file of it, so there is nothing to lose with the
/// connection.
#[test]
fn who_imported_in_vain_goes_on_with_the_next_owner() {
    let fixture = Fixture::with_db();
    let begin = |path: &[u8]| {
        let owner = icecore::admin::protocol::Owner { uid: 0, gid: 0 };
        Request::BeginImport { path: path.to_vec(), mode: 0o644, owner, replace: false, beside: Vec::new() }
    };
    for commit in [false, true] {
        let pool = fixture.own();
        let mut access = connect_or_open(&fixture.pool, false).unwrap();
        access.call(begin(b"db/new")).unwrap();
        let failure = if commit {
            pool.dataset("db").unwrap().open_or_create(b"new", &Creation::file()).unwrap();
            access.call(Request::CommitImport { size: 0 })
        } else {
            access.call(begin(b"db/none/new"))
        };
        failure.unwrap_err();
        pool.close().unwrap();
        access.call(Request::Status).unwrap();
        assert!(!access.is_remote());
        access.close().unwrap();
    }
}

#[test]
fn two_imports_of_one_file_do_not_mix() {
    let fixture = Fixture::with_db();
    let pool = fixture.own();
    let mut first = spawn(&fixture, &["import", "-", "db/new"]);
    first.stdin.as_mut().unwrap().write_all(&vec![3; 4 << 20]).unwrap();
    wait_until(|| !hidden_files(&pool).is_empty());
    let mut second = fixture.run(&["import", "-", "db/new"]);
    second.write_stdin("late");
    complaint(second, 7);
    drop(first.stdin.take());
    succeed(first);
    assert_eq!(fixture.done(&["ls", "db"]), "app\nnew\n");
    pool.close().unwrap();
}

#[test]
fn a_file_that_a_program_has_open_is_not_replaced() {
    let fixture = Fixture::with_db();
    let pool = fixture.own();
    let dataset = pool.dataset("db").unwrap();
    let inode = dataset.view().unwrap().resolve(b"app").unwrap().unwrap();
    let open = dataset.file(inode).unwrap();
    let mut import = fixture.run(&["import", "-f", "-", "db/app"]);
    import.write_stdin("other");
    assert!(complaint(import, 7).contains("db/app"));
    assert_eq!(fixture.done(&["cat", "db/app"]), "second");
    open.close().unwrap();
    fixture.import("app", b"other");
    assert_eq!(fixture.done(&["cat", "db/app"]), "other");
    drop(dataset);
    pool.close().unwrap();
}

/// Names of files that are on their way into `db`.
fn hidden_files(pool: &Pool) -> Vec<Vec<u8>> {
    let view = pool.view("db").unwrap();
    let entries = view.read_directory(icecore::units::InodeNumber::ROOT, 0, 100).unwrap();
    entries.into_iter().map(|entry| entry.name).filter(|name| name.starts_with(b".icecore-import")).collect()
}

fn spawn(fixture: &Fixture, arguments: &[&str]) -> Child {
    std::process::Command::new(assert_cmd::cargo::cargo_bin("icecore"))
        .arg("-P")
        .arg(&fixture.pool)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Waits for a command that must succeed.
fn succeed(child: Child) {
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn many_commands_at_once_take_turns() {
    let fixture = Fixture::with_db();
    let children: Vec<_> =
        (0..8).map(|index| spawn(&fixture, &["snapshot", &format!("db@s{index}")])).collect();
    children.into_iter().for_each(succeed);
    let names = fixture.done(&["list", "-H", "-t", "snapshot", "-o", "name"]);
    assert_eq!(names.lines().count(), 9, "{names}");
}

/// Not a test of its own: a process that owns a pool until its standard input ends.
#[test]
#[ignore = "a process for other tests"]
fn owner_process() {
    let Some(pool) = std::env::var_os("OWNED_POOL") else { return };
    let pool = Pool::open_directory(Path::new(&pool), &OpenOptions::default()).unwrap();
    println!("\nopen");
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    pool.close().unwrap();
    // The harness would write to a pipe that no process reads any more.
    std::process::exit(0);
}

/// Such a process, which has the pool open. A file size that it may not exceed is an error for it, and does
/// not end it.
pub fn spawn_owner(fixture: &Fixture) -> Child {
    let mut child = std::process::Command::new("sh")
        .args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "owned::owner_process", "--ignored", "--nocapture"])
        .env("OWNED_POOL", &fixture.pool)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "open"));
    child
}

#[test]
fn the_socket_of_a_killed_owner_hinders_no_process() {
    let fixture = Fixture::with_db();
    let mut owner = spawn_owner(&fixture);
    fixture.done(&["snapshot", "db@two"]);
    owner.kill().unwrap();
    owner.wait().unwrap();
    assert!(fixture.pool.join(SOCKET_NAME).exists());
    assert!(fixture.done(&["list", "-t", "all"]).contains("db@two"));
    let pool = fixture.own();
    fixture.done(&["snapshot", "db@three"]);
    pool.close().unwrap();
    assert!(!fixture.pool.join(SOCKET_NAME).exists());
}

#[test]
fn a_pool_that_changes_hands_keeps_answering() {
    let fixture = Fixture::with_db();
    for round in 0..3 {
        let mut owner = spawn_owner(&fixture);
        let snapshots: Vec<_> =
            (0..4).map(|index| spawn(&fixture, &["snapshot", &format!("db@r{round}-{index}")])).collect();
        drop(owner.stdin.take());
        snapshots.into_iter().for_each(succeed);
        assert!(owner.wait().unwrap().success());
    }
    let names = fixture.done(&["list", "-H", "-t", "snapshot", "-o", "name"]);
    assert_eq!(names.lines().count(), 13, "{names}");
}

#[test]
fn a_pool_under_a_long_path_is_reached() {
    let folder = tempfile::tempdir().unwrap();
    let pool = folder.path().join("d".repeat(120)).join("pool");
    std::fs::create_dir_all(pool.parent().unwrap()).unwrap();
    program().args(["init", "--segment-size", "2M"]).arg(&pool).assert().success();
    let owner = Pool::open_directory(&pool, &OpenOptions::default()).unwrap();
    program().arg("create").arg(pool.join("db")).assert().success();
    assert!(owner.view("db").is_ok());
    owner.close().unwrap();
}

/// Who keeps space from being used again is named wherever an operator looks for it, with how much and since
/// when.
#[test]
fn readers_are_shown_with_what_they_keep() {
    let fixture = Fixture::with_db();
    fixture.import("large", &vec![7; 1 << 20]);
    let pool = fixture.own();
    let view = pool.view("db").unwrap();
    view.read_by(&Arc::new(ReaderName { process: Some(4711), what: Some("the nightly report".to_owned()) }));
    let large = view.lookup(InodeNumber::ROOT, b"large").unwrap().unwrap().inode;
    let db = pool.dataset("db").unwrap();
    db.write_durable(large, 0, &vec![8; 1 << 20]).unwrap();
    pool.checkpoint().unwrap();
    for command in [&["status"][..], &["top", "--count", "1"], &["monitor", "--space-warn", "0%"]] {
        let output = fixture.run(command).output().unwrap();
        let shown = String::from_utf8(output.stdout).unwrap();
        let line = shown.lines().find(|line| line.contains("the nightly report"));
        let line = line.unwrap_or_else(|| panic!("{command:?}: {shown}"));
        assert!(
            line.contains("4711") && line.contains(" db ") && line.contains(" MiB"),
            "{command:?}: {line}"
        );
    }
    let status = fixture.json(&["status", "--json"]);
    let reader = &status["readers"][0];
    assert_eq!(
        (&reader["process"], &reader["what"]),
        (&json!(4711), &json!("the nightly report")),
        "{status}"
    );
    assert!(reader["keeps_bytes"].as_u64().unwrap() >= 1 << 20, "{reader}");
    // Of a snapshot that is destroyed under its reader nothing comes back by destroying another one.
    drop(view);
    let view = pool.view("db@one").unwrap();
    view.read_by(&Arc::new(ReaderName { process: Some(4711), what: None }));
    fixture.done(&["snapshot", "db@two"]);
    fixture.done(&["destroy", "db@one"]);
    let output = fixture.run(&["monitor", "--space-warn", "0%"]).output().unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(shown.contains("reads db@one") && !shown.contains("destroy frees space"), "{shown}");
    drop(view);
    assert_eq!(fixture.json(&["status", "--json"])["readers"], json!([]));
    pool.close().unwrap();
}
