//! Room `server/host`: watches of one stream over several lines, answer by answer.

use super::*;
use tenon_proto::mvccpb::{Event, KeyValue};

fn header(revision: i64) -> Option<ResponseHeader> {
    Some(ResponseHeader {
        revision,
        ..ResponseHeader::default()
    })
}

fn create(watch_id: i64, start_revision: i64) -> WatchRequest {
    request(RequestUnion::CreateRequest(WatchCreateRequest {
        key: "k".into(),
        watch_id,
        start_revision,
        ..WatchCreateRequest::default()
    }))
}

fn cancel(watch_id: i64) -> WatchRequest {
    request(RequestUnion::CancelRequest(WatchCancelRequest { watch_id }))
}

fn created(watch_id: i64, revision: i64) -> WatchResponse {
    WatchResponse {
        header: header(revision),
        watch_id,
        created: true,
        ..WatchResponse::default()
    }
}

fn canceled(watch_id: i64, compact_revision: i64) -> WatchResponse {
    WatchResponse {
        header: header(0),
        watch_id,
        canceled: true,
        compact_revision,
        ..WatchResponse::default()
    }
}

/// Events of these revisions; the keys number those of one revision.
fn events(watch_id: i64, revisions: &[i64]) -> WatchResponse {
    let mut events: Vec<Event> = Vec::new();
    for (at, mod_revision) in revisions.iter().enumerate() {
        let before = revisions[..at].iter().filter(|r| *r == mod_revision);
        let kv = KeyValue {
            key: before.count().to_string().into(),
            mod_revision: *mod_revision,
            ..KeyValue::default()
        };
        events.push(Event {
            kv: Some(kv),
            ..Event::default()
        });
    }
    WatchResponse {
        header: header(*revisions.last().expect("some")),
        watch_id,
        events,
        ..WatchResponse::default()
    }
}

fn piece(mut response: WatchResponse) -> WatchResponse {
    response.fragment = true;
    response
}

/// `revision/key` of each event.
fn told(response: Option<WatchResponse>) -> Vec<String> {
    let events = response.map(|r| r.events).unwrap_or_default();
    let kvs = events.into_iter().filter_map(|event| event.kv);
    kvs.map(|kv| {
        let key = String::from_utf8(kv.key.to_vec()).expect("text");
        format!("{}/{key}", kv.mod_revision)
    })
    .collect()
}

/// Ids and starts of the creations asked of a line.
fn starts(requests: &[WatchRequest]) -> Vec<(i64, i64)> {
    let creates = requests.iter().filter_map(|r| match &r.request_union {
        Some(RequestUnion::CreateRequest(create)) => Some((create.watch_id, create.start_revision)),
        _ => None,
    });
    creates.collect()
}

/// A stream with one watch, of id 0, created at revision 10.
fn one() -> (Watches, Line) {
    let mut watches = Watches::default();
    let mut line = watches.line();
    let sent = watches.on_request(&mut line, create(0, 0), 0);
    assert_eq!(sent, Some(create(0, 0)), "as the client sent it");
    let (answer, asked) = watches.on_answer(&mut line, Whence::Settled, created(0, 10));
    assert!(answer.expect("told").created && asked.is_empty());
    (watches, line)
}

#[test]
fn events_of_both_lines_are_told_once() {
    let (mut watches, mut old) = one();
    let (first, _) = watches.on_answer(&mut old, Whence::Settled, events(0, &[11, 12]));
    assert_eq!(told(first), ["11/0", "12/0"]);
    let mut new = watches.line();
    let again = watches.again(&mut new);
    assert_eq!(starts(&again), [(ZERO, 12)], "one before the next");
    // The old line goes on until the new one has answered; then only the new one counts.
    let (still, _) = watches.on_answer(&mut old, Whence::Old, events(0, &[13]));
    assert_eq!(told(still), ["13/0"]);
    assert!(!watches.is_settled(&new, Some(&old)));
    let (none, _) = watches.on_answer(&mut new, Whence::New, created(ZERO, 14));
    assert_eq!(none, None, "the client knows");
    assert!(watches.is_settled(&new, Some(&old)));
    let (late, _) = watches.on_answer(&mut old, Whence::Old, events(0, &[14]));
    assert_eq!(late, None);
    let repeats = events(ZERO, &[12, 13, 14, 15]);
    let (rest, _) = watches.on_answer(&mut new, Whence::Settled, repeats);
    assert_eq!(rest.as_ref().map(|r| r.watch_id), Some(0));
    assert_eq!(told(rest), ["14/0", "15/0"]);
}

#[test]
fn a_revision_in_pieces_is_completed_by_the_other_line() {
    let (mut watches, mut old) = one();
    let (first, _) = watches.on_answer(&mut old, Whence::Settled, piece(events(0, &[11, 12, 12])));
    assert_eq!(told(first), ["11/0", "12/0", "12/1"]);
    let mut new = watches.line();
    let again = watches.again(&mut new);
    assert_eq!(
        starts(&again),
        [(ZERO, 12)],
        "the revision that is incomplete"
    );
    watches.on_answer(&mut new, Whence::New, created(ZERO, 12));
    let half = piece(events(ZERO, &[12, 12]));
    let (none, _) = watches.on_answer(&mut new, Whence::Settled, half);
    assert_eq!(none, None, "all of it was told");
    let mut rest = events(ZERO, &[12, 12]);
    let key =
        |event: &mut Event, key: &'static str| event.kv.as_mut().expect("set").key = key.into();
    key(&mut rest.events[0], "2");
    key(&mut rest.events[1], "3");
    let (rest, _) = watches.on_answer(&mut new, Whence::Settled, rest);
    assert!(!rest.as_ref().expect("told").fragment);
    assert_eq!(told(rest), ["12/2", "12/3"]);
}

#[test]
fn pieces_that_were_complete_but_for_the_word_are_ended() {
    let (mut watches, mut old) = one();
    watches.on_answer(&mut old, Whence::Settled, piece(events(0, &[11])));
    let mut new = watches.line();
    watches.again(&mut new);
    watches.on_answer(&mut new, Whence::New, created(ZERO, 11));
    let (end, _) = watches.on_answer(&mut new, Whence::Settled, events(ZERO, &[11]));
    let end = end.expect("the client waits for a last piece");
    assert!(end.events.is_empty() && !end.fragment);
}

#[test]
fn only_a_compaction_beyond_what_was_told_ends_a_watch() {
    let (mut watches, mut old) = one();
    watches.on_answer(&mut old, Whence::Settled, events(0, &[11]));
    let mut new = watches.line();
    watches.again(&mut new);
    watches.on_answer(&mut new, Whence::New, created(ZERO, 12));
    // Revision 11, asked for only to count as started, is gone; 12 is not.
    let (none, asked) = watches.on_answer(&mut new, Whence::New, canceled(ZERO, 12));
    assert_eq!((none, starts(&asked)), (None, vec![(ZERO, 12)]));
    assert_eq!(asked[0], cancel(ZERO));
    assert!(!watches.is_settled(&new, None));
    let (none, _) = watches.on_answer(&mut new, Whence::New, canceled(ZERO, 0));
    assert_eq!(none, None, "the host's own cancel");
    let (none, _) = watches.on_answer(&mut new, Whence::New, created(ZERO, 12));
    assert_eq!(none, None);
    assert!(watches.is_settled(&new, None));
    let (next, _) = watches.on_answer(&mut new, Whence::Settled, events(ZERO, &[12]));
    assert_eq!(told(next), ["12/0"]);
    // Another move, and this time something was missed.
    let mut third = watches.line();
    watches.again(&mut third);
    watches.on_answer(&mut third, Whence::New, created(ZERO, 20));
    let (end, asked) = watches.on_answer(&mut third, Whence::New, canceled(ZERO, 14));
    let end = end.expect("told");
    assert_eq!((end.watch_id, end.compact_revision), (0, 14));
    assert!(asked.is_empty());
    // It is created again wherever the stream goes, so that it stands in the way there too, but told once.
    let mut fourth = watches.line();
    assert_eq!(watches.again(&mut fourth).len(), 1);
    watches.on_answer(&mut fourth, Whence::New, created(ZERO, 20));
    let (none, asked) = watches.on_answer(&mut fourth, Whence::New, canceled(ZERO, 14));
    assert!(none.is_none() && asked.is_empty());
    let sent = watches.on_request(&mut fourth, cancel(0), 0);
    assert_eq!(sent, Some(cancel(ZERO)));
    let (end, _) = watches.on_answer(&mut fourth, Whence::Settled, canceled(ZERO, 0));
    assert_eq!(end.expect("told").watch_id, 0);
    assert!(watches.is_empty());
}

#[test]
fn what_a_lost_line_owed_is_asked_elsewhere_or_answered_by_the_host() {
    let (mut watches, mut line) = one();
    watches.on_request(&mut line, create(5, 0), 0);
    watches.on_answer(&mut line, Whence::Settled, created(5, 11));
    watches.on_request(&mut line, cancel(0), 0);
    watches.on_request(&mut line, create(0, 3), 0);
    watches.on_request(&mut line, progress_request(), 0);
    let (asked, answers) = watches.lost(line);
    assert_eq!(asked, [create(0, 3)]);
    let [answer] = answers.as_slice() else {
        panic!("{answers:?}")
    };
    assert!(answer.canceled && answer.watch_id == 0);
    assert_eq!(answer.header, header(11), "as new as the newest heard");
    let mut next = watches.line();
    assert_eq!(starts(&watches.again(&mut next)), [(5, 11)]);
    watches.on_answer(&mut next, Whence::Settled, created(5, 11));
    // The host gives the ids now, by etcd's rule.
    let sent = watches.on_request(&mut next, create(0, 3), 0);
    assert_eq!(starts(sent.as_slice()), [(1, 3)]);
    assert!(watches.owed_progress(&mut next).is_some());
    assert!(watches.owed_progress(&mut next).is_none());
}

#[test]
fn progress_is_told_once_for_each_question_and_only_when_settled() {
    let (mut watches, mut old) = one();
    let progress = |revision| WatchResponse {
        header: header(revision),
        watch_id: NONE,
        ..WatchResponse::default()
    };
    let ask = Watches::ask_progress(&mut old);
    assert_eq!(ask, progress_request());
    let (none, _) = watches.on_answer(&mut old, Whence::Settled, progress(50));
    assert_eq!(none, None, "the host's own question");
    assert_eq!(old.progress_at(), Some(50));
    watches.on_request(&mut old, progress_request(), 0);
    let mut new = watches.line();
    let again = watches.again(&mut new);
    assert_eq!(starts(&again), [(ZERO, 50)], "not where the last event was");
    let (none, _) = watches.on_answer(&mut old, Whence::Old, progress(51));
    assert_eq!(none, None, "the stream moves");
    watches.on_answer(&mut new, Whence::New, created(ZERO, 51));
    watches.lost(old);
    assert!(watches.owed_progress(&mut new).is_some());
    let (answer, _) = watches.on_answer(&mut new, Whence::Settled, progress(51));
    assert_eq!(answer, Some(progress(51)));
    let (none, _) = watches.on_answer(&mut new, Whence::Settled, progress(51));
    assert_eq!(none, None);
}

#[test]
fn a_watch_from_now_on_tells_nothing_the_host_answered_before() {
    let mut watches = Watches::default();
    let mut line = watches.line();
    watches.on_request(&mut line, create(0, 0), 20);
    let (answer, _) = watches.on_answer(&mut line, Whence::Settled, created(0, 18));
    assert_eq!(answer.expect("told").header, header(20));
    for (revision, expected) in [(19, &[][..]), (20, &[]), (21, &["21/0"])] {
        let (answer, _) = watches.on_answer(&mut line, Whence::Settled, events(0, &[revision]));
        assert_eq!(told(answer), expected);
    }
}

#[test]
fn refused_creations_are_told_as_they_are_and_again_as_a_cancel() {
    let (mut watches, mut line) = one();
    let refused = WatchResponse {
        canceled: true,
        cancel_reason: "no".into(),
        ..created(NONE, 10)
    };
    watches.on_request(&mut line, create(0, -1), 0);
    let (answer, _) = watches.on_answer(&mut line, Whence::Settled, refused.clone());
    assert_eq!(answer, Some(refused.clone()));
    let mut next = watches.line();
    watches.again(&mut next);
    let (answer, _) = watches.on_answer(&mut next, Whence::New, refused);
    let answer = answer.expect("told");
    assert!(answer.canceled && !answer.created);
    assert_eq!((answer.watch_id, answer.cancel_reason.as_str()), (0, "no"));
    assert!(watches.is_empty());
}

#[test]
fn a_watch_that_the_old_line_took_during_a_move_moves_too() {
    let mut watches = Watches::default();
    let mut old = watches.line();
    watches.on_request(&mut old, create(0, 5), 0);
    let mut new = watches.line();
    assert!(watches.again(&mut new).is_empty(), "it is not there yet");
    let (answer, _) = watches.on_answer(&mut old, Whence::Old, created(0, 10));
    assert!(answer.expect("told").created);
    let (answer, _) = watches.on_answer(&mut old, Whence::Old, events(0, &[5, 6]));
    assert_eq!(told(answer), ["5/0", "6/0"]);
    assert_eq!(starts(&watches.again(&mut new)), [(ZERO, 6)]);
    assert!(watches.again(&mut new).is_empty(), "asked once");
    assert!(!watches.is_settled(&new, None), "nor is it forgotten");
    watches.on_answer(&mut new, Whence::New, created(ZERO, 10));
    assert!(watches.is_settled(&new, Some(&old)));
    let (answer, _) = watches.on_answer(&mut new, Whence::New, events(ZERO, &[6, 7]));
    assert_eq!(told(answer), ["7/0"]);
}

/// The client is another host whose stream moved: its watch with id 0 goes by `ZERO`, here too.
#[test]
fn a_watch_of_a_host_behind_this_one_keeps_its_id_over_a_move() {
    let (mut watches, mut first) = one();
    watches.on_request(&mut first, create(ZERO, 0), 0);
    let (answer, _) = watches.on_answer(&mut first, Whence::Settled, created(ZERO, 10));
    assert_eq!(answer.expect("told").watch_id, ZERO);
    let mut second = watches.line();
    let again = watches.again(&mut second);
    assert_eq!(starts(&again), [(ZERO + 1, 10), (ZERO, 10)]);
    for id in [ZERO + 1, ZERO] {
        watches.on_answer(&mut second, Whence::New, created(id, 10));
    }
    for (there, here) in [(ZERO + 1, ZERO), (ZERO, 0)] {
        let (answer, _) = watches.on_answer(&mut second, Whence::Settled, events(there, &[11]));
        assert_eq!(answer.as_ref().map(|a| a.watch_id), Some(here));
        assert_eq!(told(answer), ["11/0"]);
    }
}

/// -1 is what the stream itself goes by in answers that concern no watch; a client may call a watch so.
#[test]
fn a_watch_with_id_minus_one_gets_its_events_and_so_do_those_after_it() {
    let mut watches = Watches::default();
    let mut line = watches.line();
    for id in [-1, 3] {
        watches.on_request(&mut line, create(id, 0), 0);
        watches.on_answer(&mut line, Whence::Settled, created(id, 10));
    }
    for revision in [11, 12] {
        for id in [-1, 3] {
            let answer = events(id, &[revision]);
            let (answer, _) = watches.on_answer(&mut line, Whence::Settled, answer);
            assert_eq!(told(answer), [format!("{revision}/0")], "watch {id}");
        }
    }
    let progress = WatchResponse {
        header: header(20),
        watch_id: -1,
        ..WatchResponse::default()
    };
    let (answer, _) = watches.on_answer(&mut line, Whence::Settled, progress);
    assert!(answer.is_some(), "the client is told");
    let (answer, _) = watches.on_answer(&mut line, Whence::Settled, events(3, &[15]));
    assert_eq!(told(answer), ["15/0"], "nothing is taken for delivered");
}
