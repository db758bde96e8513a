//! A pool that outgrew what lives in it.

use super::*;

/// Pieces that are overwritten in turn: a segment and a half.
const PIECES: u64 = 192;

/// Overwrites them all so often.
fn overwrite(db: &Dataset, file: InodeNumber, rounds: std::ops::Range<u64>) {
    for round in rounds {
        (0..PIECES).for_each(|piece| write(db, file, piece, round));
        db.sync().unwrap();
    }
}

/// Collection keeps room for a writer that is faster for a while, so that it need not make more segments.
#[test]
fn a_pool_that_outgrew_its_content_keeps_many_segments_free() {
    let storage = make(None);
    let pool = open(&storage);
    let (db, file) = with_file(&pool);
    pool.engine().collector.hush();
    // A little of each segment lives on, so that none becomes free by itself.
    for round in 0..60 {
        overwrite(&db, file, round..round + 1);
        write(&db, file, 1000 + 2 * round, round);
        (0..PIECES / 2).for_each(|piece| write(&db, file, piece, round));
        write(&db, file, 1001 + 2 * round, round);
    }
    pool.checkpoint().unwrap();
    let grown = pool.statistics().segments;
    assert!(grown > 100, "{grown} segments");
    pool.engine().collector.listen();
    overwrite(&db, file, 60..70);
    for round in 70..130 {
        overwrite(&db, file, round..round + 1);
        let now = pool.statistics();
        assert!(now.segments_free > 16 && now.segments <= grown, "{grown} segments before: {now:?}");
    }
    (0..PIECES).for_each(|piece| assert!(read(&pool, "db", file, piece) == content(piece, 129)));
    (0..60).for_each(|round| {
        assert!(read(&pool, "db", file, 1000 + 2 * round) == content(1000 + 2 * round, round));
    });
    assert_sound(&pool);
}
