//! What collection says that it does, and why: a user who looks at `status` while it is at work reads that.

use super::*;

/// Has collection at work for one reason. Answers what it said.
fn said(size_limit: Option<u64>, work: impl FnOnce(&Pool, &Dataset, InodeNumber)) -> Vec<String> {
    let pool = open(&make(size_limit));
    pool.engine().collector.hush();
    let (db, file) = thinned(&pool, 600);
    work(&pool, &db, file);
    // When it is done it says so.
    assert_eq!(pool.statistics().collector, "nothing to do");
    pool.engine().collector.said()
}

/// What was said without which segment it was about: the reasons.
fn reasons(said: &[String]) -> BTreeSet<String> {
    let reason = |what: &String| {
        let (segment, rest) = what.split_once(", ").expect("a segment");
        let (full, reason) = rest.split_once(" bytes): ").expect("how full it is");
        assert!(segment.starts_with("emptying segment."), "{what}");
        let (percent, bytes) = full.split_once(" % full (").expect("per cent and bytes");
        let (percent, bytes): (u64, u64) = (percent.parse().unwrap(), bytes.parse().unwrap());
        // Of the room for blocks, which is a little less than the segment.
        assert!(
            bytes > 0 && (percent.saturating_sub(1)..=percent).contains(&(bytes * 100 / SEGMENT)),
            "{what}"
        );
        reason.to_owned()
    };
    said.iter().map(reason).collect()
}

#[test]
fn ahead_of_need_it_says_how_much_room_there_is() {
    let mut expected = BTreeSet::new();
    let said = said(Some(16 * SEGMENT), |pool, _, _| {
        let engine = pool.engine();
        // One more than writers may not take, in so small a pool.
        let kept = engine.reserve(&engine.state(), Purpose::Data) + 1;
        leave_free(pool, kept - 1);
        expected.insert(format!("{} free segments, {kept} kept", kept - 1));
        engine.collect_ahead(false).unwrap();
    });
    assert!(!said.is_empty());
    assert_eq!(reasons(&said), expected);
}

#[test]
fn in_idle_time_it_says_that_there_is_nothing_else_to_do() {
    let said = said(None, |pool, _, _| pool.engine().collect_idle(Keep::Rest).unwrap());
    assert_eq!(reasons(&said), BTreeSet::from(["nothing else to do".to_owned()]));
}

#[test]
fn for_a_write_that_found_no_room_it_says_so() {
    let said = said(Some(20 * SEGMENT), |pool, db, file| {
        leave_free(pool, 3);
        (600..800).for_each(|piece| write(db, file, piece, 0));
    });
    assert_eq!(reasons(&said), BTreeSet::from(["there is no room".to_owned()]));
}
