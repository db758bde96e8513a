//! The control protocol: what a client may send to the owner of a pool, and an owner to a client.

use super::simulated::new_pool;
use icecore::Pool;
use icecore::admin::codec::{read_message, write_message};
use icecore::admin::protocol::{Reply, Request};
use icecore::admin::{PoolService, Service};
use std::cell::RefCell;

const BYTES_MAX: usize = 1 << 16;

thread_local! {
    /// A pool that answers what makes sense. It is thrown away now and then, for requests change it.
    static POOL: RefCell<Option<(Pool, u32)>> = const { RefCell::new(None) };
}

/// Frames as they come, and requests that are answered by a pool.
pub fn control(data: &[u8]) {
    let mut stream = data;
    while let Ok(Some(request)) = read_message::<Request>(&mut stream, BYTES_MAX) {
        answer(request);
    }
    let _ = read_message::<Reply>(&mut &*data, BYTES_MAX);
    // Without a frame around it, so that the body is reached.
    let mut framed = b"ICEA".to_vec();
    framed.extend_from_slice(&icecore::admin::protocol::PROTOCOL_VERSION.to_le_bytes());
    framed.extend_from_slice(&[0, 0]);
    framed.extend_from_slice(&u32::try_from(data.len()).unwrap_or(u32::MAX).to_le_bytes());
    framed.extend_from_slice(data);
    let _ = read_message::<Reply>(&mut framed.as_slice(), BYTES_MAX);
    if let Ok(Some(request)) = read_message::<Request>(&mut framed.as_slice(), BYTES_MAX) {
        let mut own = Vec::new();
        write_message(&mut own, &request).expect("memory takes everything");
        assert!(read_message::<Request>(&mut own.as_slice(), BYTES_MAX).is_ok_and(|again| again.is_some()));
        answer(request);
    }
}

fn answer(request: Request) {
    POOL.with_borrow_mut(|kept| {
        let (pool, count) = kept.get_or_insert_with(|| (with_snapshot(), 0));
        *count += 1;
        // A client that asks for it gets a scrub that takes years, and may end it when it says how far it is.
        let patient = !matches!(&request, Request::Scrub(options) if options.bytes_per_second.is_some());
        let _ = PoolService::of(pool).session(None).call(request, &mut |_| patient);
        if *count % 64 == 0 {
            pool.verify().expect("the books");
        }
        if *count >= 1000 {
            *kept = None;
        }
    });
}

fn with_snapshot() -> Pool {
    let pool = new_pool("db");
    pool.snapshot(&["db@one".to_owned()], false, &[]).expect("a snapshot");
    pool
}
