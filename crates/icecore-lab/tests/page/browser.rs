//! A headless Chromium that is spoken to over a pair of pipes (`--remote-debugging-pipe`): no server, no
//! port.

use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use tempfile::TempDir;

/// How long the browser may take for one answer.
const PATIENCE: Duration = Duration::from_secs(60);
const PROGRAMS: [&str; 4] = ["chromium", "chromium-headless-shell", "google-chrome", "chromium-browser"];

/// A browser with one page. Dropping it ends all of its processes.
pub struct Browser {
    child: Child,
    input: ChildStdin,
    messages: Receiver<Value>,
    next: u64,
    session: String,
    /// What the page did since it was opened.
    pub events: Vec<Value>,
    _profile: TempDir,
}

/// The program, where there is one.
pub fn find() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    PROGRAMS
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)))
        .find(|path| path.is_file())
}

impl Browser {
    pub fn start(program: &Path) -> Self {
        let profile = tempfile::tempdir().expect("a folder for the profile");
        // The protocol is spoken on descriptors 3 and 4.
        let script = "exec \"$0\" \"$@\" 3<&0 4>&1 0</dev/null 1>/dev/null 2>/dev/null";
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).arg(program);
        command.args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--remote-debugging-pipe",
            "--no-first-run",
        ]);
        command.args([
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-dev-shm-usage",
        ]);
        command.arg(format!("--user-data-dir={}", profile.path().display())).arg("about:blank");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut child = command.spawn().expect("the browser starts");
        let (input, output) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            for message in BufReader::new(output).split(0) {
                let Ok(message) = message else { return };
                let Ok(message) = serde_json::from_slice(&message) else { continue };
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let (next, session, events) = (1, String::new(), Vec::new());
        let mut browser = Self { child, input, messages, next, session, events, _profile: profile };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = browser.call("Target.attachToTarget", attach);
        browser.session = attached["sessionId"].as_str().expect("a session").to_owned();
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    /// Calls a method, and answers its result.
    pub fn call(&mut self, method: &str, parameters: Value) -> Value {
        let id = self.next;
        self.next += 1;
        let mut message = json!({ "id": id, "method": method, "params": parameters });
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        let mut bytes = serde_json::to_vec(&message).expect("JSON");
        bytes.push(0);
        self.input.write_all(&bytes).expect("the browser listens");
        loop {
            let message = self.receive(method);
            if message["id"] == json!(id) {
                assert!(message["error"].is_null(), "{method}: {}", message["error"]);
                return message["result"].clone();
            }
        }
    }

    /// Opens a file and waits until it is there.
    pub fn open(&mut self, path: &Path) {
        self.events.clear();
        self.call("Page.navigate", json!({ "url": format!("file://{}", path.display()) }));
        while !self.events.iter().any(|event| event["method"] == "Page.loadEventFired") {
            self.receive("loading the page");
        }
    }

    /// The value of an expression.
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let answer =
            self.call("Runtime.evaluate", json!({ "expression": expression, "returnByValue": true }));
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {}", answer["exceptionDetails"]);
        answer["result"]["value"].clone()
    }

    /// Waits until the page has drawn what follows from the last call.
    pub fn next_frame(&mut self) {
        let two = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))";
        self.call("Runtime.evaluate", json!({ "expression": two, "awaitPromise": true }));
    }

    /// Events of this name, what they say.
    pub fn events(&self, method: &str) -> Vec<&Value> {
        self.events.iter().filter(|event| event["method"] == method).map(|event| &event["params"]).collect()
    }

    fn receive(&mut self, waiting_for: &str) -> Value {
        let message = self.messages.recv_timeout(PATIENCE);
        let message =
            message.unwrap_or_else(|error| panic!("no answer from the browser to {waiting_for}: {error}"));
        if message["method"].is_string() {
            self.events.push(message.clone());
        }
        message
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if let Some(group) = rustix::process::Pid::from_raw(self.child.id().cast_signed()) {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        let _ = self.child.wait();
    }
}
