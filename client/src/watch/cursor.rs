//! Room `client`: how far a watch has been delivered, and what each response adds to it. Pure.
//!
//! A cursor outlives the streams it is fed from. It says where the next stream must start, and drops what a
//! new stream repeats, so that the events it lets through are those of one unbroken watch:
//!
//! - every event with revision ≥ the start, once, in the server's order;
//! - `next` is the revision of the next event wanted; it never goes back;
//! - `seen` events of revision `next` were delivered already. It is above 0 only while a response that the
//!   server cut into fragments is incomplete, because only then may a revision arrive in pieces.

use super::WatchUpdate;
use tenon_proto::code::Code;
use tenon_proto::error::Error;
use tenon_proto::etcdserverpb::WatchResponse;
use tenon_proto::ids::Revision;
use tenon_proto::mvccpb::Event;

/// What one response meant.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// Nothing for the caller.
    Nothing,
    /// The server took the watch.
    Created,
    /// Something for the caller.
    Update(WatchUpdate),
    /// The history wanted is gone up to, excluding, this revision.
    Compacted(Revision),
    /// The server ended the watch.
    Refused(Error),
}

/// See the room's words above.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Cursor {
    /// 0 until the server said which revision "now" is.
    next: i64,
    seen: usize,
    /// Events of revision `next` that the stream at hand will repeat.
    repeated: usize,
}

impl Cursor {
    /// A watch from that revision on; `None`: from now on.
    pub(super) fn new(start: Option<Revision>) -> Cursor {
        Cursor {
            next: start.map_or(0, Revision::get),
            ..Cursor::default()
        }
    }

    /// Where a new stream must start, as the create request says it.
    pub(super) fn restart(&mut self) -> i64 {
        self.repeated = self.seen;
        self.next
    }

    /// Takes one response of the stream at hand.
    pub(super) fn accept(&mut self, response: WatchResponse) -> Step {
        let revision = response.header.as_ref().map_or(0, |h| h.revision);
        if response.canceled {
            return ending(&response);
        }
        if response.created {
            if self.next == 0 {
                self.next = revision + 1;
            }
            return Step::Created;
        }
        if response.events.is_empty() && !response.fragment {
            self.pass(revision + 1);
            return Step::Update(WatchUpdate::Progress(Revision(revision)));
        }
        let last = response.events.last().map(revision_of);
        let wanted = response.events.into_iter().filter(|e| self.wants(e));
        let events: Vec<Event> = wanted.collect();
        if let (Some(last), false) = (last, response.fragment) {
            self.pass(last + 1);
        }
        if events.is_empty() {
            return Step::Nothing;
        }
        Step::Update(WatchUpdate::Events(events))
    }

    /// Whether the event is new; then it counts as delivered.
    fn wants(&mut self, event: &Event) -> bool {
        let revision = revision_of(event);
        if revision < self.next {
            return false;
        }
        if revision > self.next {
            self.next = revision;
            self.seen = 0;
            self.repeated = 0;
        }
        if self.repeated > 0 {
            self.repeated -= 1;
            return false;
        }
        self.seen += 1;
        true
    }

    /// Everything below `next` is complete.
    fn pass(&mut self, next: i64) {
        if next > self.next {
            *self = Cursor {
                next,
                ..Cursor::default()
            };
        }
    }
}

fn revision_of(event: &Event) -> i64 {
    event.kv.as_ref().map_or(0, |kv| kv.mod_revision)
}

fn ending(response: &WatchResponse) -> Step {
    if response.compact_revision > 0 {
        return Step::Compacted(Revision(response.compact_revision));
    }
    Step::Refused(read_reason(&response.cancel_reason))
}

/// The error a cancel reason stands for; some arrive as a printed status.
fn read_reason(reason: &str) -> Error {
    if reason.is_empty() {
        return Error::WatchCanceled;
    }
    let text = reason.strip_prefix("rpc error: code = ");
    let text = text
        .and_then(|rest| rest.split_once(" desc = "))
        .map(|(_, text)| text);
    Error::from_status(Code::Unknown, text.unwrap_or(reason))
}

#[cfg(test)]
#[path = "cursor_tests.rs"]
mod tests;
