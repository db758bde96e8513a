//! A client that moves money without a pause and remembers what was acknowledged.

use crate::server::{Kind, Running};
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub struct Writer {
    acknowledged: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    /// Begins behind the number `last`.
    pub fn start(kind: &'static dyn Kind, server: &Running<'_>, last: u64) -> Self {
        let acknowledged = Arc::new(AtomicU64::new(last));
        let stop = Arc::new(AtomicBool::new(false));
        let mut client = server.client();
        let client =
            client.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let (number, end) = (Arc::clone(&acknowledged), Arc::clone(&stop));
        let thread = std::thread::spawn(move || write(kind, client, &number, &end));
        Self { acknowledged, stop, thread: Some(thread) }
    }

    /// The last number whose commit was acknowledged.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::SeqCst)
    }

    /// Waits until so many more are acknowledged.
    pub fn wait_for(&self, more: u64) {
        let (wanted, began) = (self.acknowledged() + more, Instant::now());
        while self.acknowledged() < wanted {
            assert!(began.elapsed() < Duration::from_secs(60), "nothing is acknowledged any more");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Whether it ended by itself: a transaction was not acknowledged.
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Ends it; answers the last number.
    pub fn stop(mut self) -> u64 {
        self.end();
        self.acknowledged()
    }

    fn end(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.end();
    }
}

/// One transaction after the other, until it is to stop or the server is gone.
fn write(kind: &dyn Kind, mut client: Child, acknowledged: &AtomicU64, stop: &AtomicBool) {
    let mut input = client.stdin.take().unwrap();
    let mut output = BufReader::new(client.stdout.take().unwrap());
    let mut line = String::new();
    while !stop.load(Ordering::SeqCst) {
        let number = acknowledged.load(Ordering::SeqCst) + 1;
        line.clear();
        let sent = input.write_all(kind.transaction(number).as_bytes()).and_then(|()| input.flush());
        if sent.is_err() || !matches!(output.read_line(&mut line), Ok(1..)) {
            break;
        }
        if line.trim() != number.to_string() {
            break;
        }
        acknowledged.store(number, Ordering::SeqCst);
    }
    drop(input);
    let _ = client.kill();
    let _ = client.wait();
}
