//! Tests of the cursor: what is delivered over broken streams equals one unbroken watch.

use super::*;
use proptest::prelude::*;
use tenon_proto::etcdserverpb::ResponseHeader;
use tenon_proto::mvccpb::KeyValue;

fn header(revision: i64) -> Option<ResponseHeader> {
    Some(ResponseHeader {
        revision,
        ..Default::default()
    })
}

fn event(revision: i64, n: usize) -> Event {
    let kv = KeyValue {
        key: format!("{revision}/{n}").into(),
        mod_revision: revision,
        ..Default::default()
    };
    Event {
        kv: Some(kv),
        ..Default::default()
    }
}

fn created(revision: i64) -> WatchResponse {
    WatchResponse {
        header: header(revision),
        created: true,
        ..Default::default()
    }
}

fn events(revisions: &[i64], fragment: bool) -> WatchResponse {
    WatchResponse {
        header: header(*revisions.last().expect("some")),
        events: revisions.iter().map(|r| event(*r, 0)).collect(),
        fragment,
        ..Default::default()
    }
}

fn delivered(step: Step) -> Vec<i64> {
    match step {
        Step::Update(WatchUpdate::Events(events)) => events.iter().map(revision_of).collect(),
        Step::Nothing => vec![],
        step => panic!("no events: {step:?}"),
    }
}

#[test]
fn now_is_fixed_by_the_first_answer() {
    let mut cursor = Cursor::new(None);
    assert_eq!(cursor.restart(), 0);
    assert_eq!(cursor.accept(created(7)), Step::Created);
    assert_eq!(cursor.restart(), 8, "what happened while broken is wanted");
    assert_eq!(cursor.accept(created(20)), Step::Created);
    assert_eq!(cursor.restart(), 8, "a later answer does not move it");
    assert_eq!(delivered(cursor.accept(events(&[8, 9], false))), [8, 9]);
    assert_eq!(cursor.restart(), 10);
}

#[test]
fn repeats_are_dropped_and_history_headers_do_not_skip() {
    let mut cursor = Cursor::new(Some(Revision(5)));
    // The header of a history response is the store's revision, ahead of what it carries.
    let mut history = events(&[5, 6], false);
    history.header = header(100);
    assert_eq!(delivered(cursor.accept(history)), [5, 6]);
    assert_eq!(cursor.restart(), 7);
    assert_eq!(
        delivered(cursor.accept(events(&[5, 6], false))),
        Vec::<i64>::new()
    );
    assert_eq!(delivered(cursor.accept(events(&[6, 7], false))), [7]);
}

#[test]
fn progress_moves_the_place_forward_only() {
    let mut cursor = Cursor::new(Some(Revision(5)));
    let progress = |revision| WatchResponse {
        header: header(revision),
        watch_id: -1,
        ..Default::default()
    };
    let step = cursor.accept(progress(9));
    assert_eq!(step, Step::Update(WatchUpdate::Progress(Revision(9))));
    assert_eq!(cursor.restart(), 10);
    cursor.accept(progress(3));
    assert_eq!(cursor.restart(), 10);
}

#[test]
fn a_revision_cut_into_fragments_is_taken_up_in_the_middle() {
    let mut cursor = Cursor::new(Some(Revision(5)));
    assert_eq!(
        delivered(cursor.accept(events(&[5, 6, 6], true))),
        [5, 6, 6]
    );
    assert_eq!(cursor.restart(), 6, "more of 6 may be missing");
    // Cut elsewhere the second time, and broken again inside the repeated part.
    assert_eq!(
        delivered(cursor.accept(events(&[6], true))),
        Vec::<i64>::new()
    );
    assert_eq!(cursor.restart(), 6);
    assert_eq!(delivered(cursor.accept(events(&[6, 6, 6], true))), [6]);
    assert_eq!(delivered(cursor.accept(events(&[6, 7], false))), [6, 7]);
    assert_eq!(cursor.restart(), 8);
}

#[test]
fn endings_say_why() {
    let canceled = |compact_revision, reason: &str| WatchResponse {
        header: header(0),
        canceled: true,
        compact_revision,
        cancel_reason: reason.into(),
        ..Default::default()
    };
    for (response, step) in [
        (canceled(9, ""), Step::Compacted(Revision(9))),
        (canceled(0, ""), Step::Refused(Error::WatchCanceled)),
        (
            canceled(0, "mvcc: watcher range is empty"),
            Step::Refused(Error::WatchRangeEmpty),
        ),
        (
            canceled(0, &Error::PermissionDenied.cancel_reason()),
            Step::Refused(Error::PermissionDenied),
        ),
        (
            canceled(0, &Error::Compacted.cancel_reason()),
            Step::Refused(Error::Compacted),
        ),
    ] {
        assert_eq!(Cursor::new(Some(Revision(1))).accept(response), step);
    }
}

proptest! {
    /// A server that sends a history in random cuts, on streams that break at random, against the history.
    #[test]
    fn no_gap_and_no_repeat(
        // Events per revision, for revisions 1..; 0: nothing of interest.
        history in prop::collection::vec(0..4_usize, 1..12),
        // Events per response, and whether the stream breaks after it.
        cuts in prop::collection::vec((1..6_usize, any::<bool>()), 1..80),
    ) {
        let all: Vec<Event> = (1_i64..)
            .zip(&history)
            .flat_map(|(revision, count)| (0..*count).map(move |n| event(revision, n)))
            .collect();
        let mut cursor = Cursor::new(Some(Revision(1)));
        let mut got: Vec<Event> = Vec::new();
        let mut from = cursor.restart();
        let mut rest: Vec<Event> = all.clone();
        // At the end one stream that does not break delivers what is left.
        for (length, breaks) in cuts.into_iter().chain([(usize::MAX, false)]) {
            if rest.is_empty() && from > 0 {
                break;
            }
            let now: Vec<Event> = rest.drain(..length.min(rest.len())).collect();
            let last = now.last().map(revision_of);
            // Only a fragment may end inside a revision.
            let fragment = rest.first().map(revision_of) == last;
            let response = WatchResponse { header: header(99), events: now, fragment, ..Default::default() };
            if let Step::Update(WatchUpdate::Events(new)) = cursor.accept(response) {
                got.extend(new);
            }
            if breaks {
                from = cursor.restart();
                rest = all.iter().filter(|e| revision_of(e) >= from).cloned().collect();
            }
        }
        prop_assert_eq!(got, all);
    }
}
