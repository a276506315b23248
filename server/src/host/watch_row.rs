//! Room `server/host`: one watch of a client's stream and how far it was delivered. Pure; see `watches.rs`.

use tenon_proto::etcdserverpb::{WatchCreateRequest, WatchResponse};
use tenon_proto::mvccpb::Event;

/// What became of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It gets events.
    Live,
    /// Compaction overtook it; as in etcd it stands in the way of progress until the client cancels it.
    Compacted,
    /// The client's cancel is under way.
    Canceling,
}

/// One watch.
#[derive(Clone, Debug)]
pub(super) struct Row {
    /// As the client asked for it.
    create: WatchCreateRequest,
    /// Revision of the next event wanted.
    pub(super) next: i64,
    /// Events of revision `next` delivered already.
    seen: usize,
    /// Events of revision `next` that the line at hand will repeat.
    repeated: usize,
    /// The last response delivered was a fragment with others to follow.
    in_pieces: bool,
    /// The line whose events count.
    pub(super) line: u64,
    /// Where it was created last.
    started: i64,
    /// Cancels of the host's own that are to be answered.
    own_cancels: usize,
    pub(super) state: State,
}

impl Row {
    /// A watch that was created when the newest revision was `current`.
    pub(super) fn new(create: WatchCreateRequest, current: i64, line: u64) -> Row {
        let next = match create.start_revision {
            0 => current + 1,
            start => start,
        };
        Row {
            create,
            next,
            seen: 0,
            repeated: 0,
            in_pieces: false,
            line,
            started: next,
            own_cancels: 0,
            state: State::Live,
        }
    }

    /// The request that creates it again, under an id of the line's.
    pub(super) fn again(&mut self, watch_id: i64) -> WatchCreateRequest {
        let earlier = self.seen == 0 && self.next > 1;
        self.started = self.next - i64::from(earlier);
        self.request(watch_id)
    }

    /// The request that creates it once more, at `next`, when it was only compacted because it began before that.
    pub(super) fn once_more(
        &mut self,
        watch_id: i64,
        compact_revision: i64,
    ) -> Option<WatchCreateRequest> {
        if self.started == self.next || compact_revision > self.next {
            return None;
        }
        self.started = self.next;
        self.own_cancels += 1;
        Some(self.request(watch_id))
    }

    fn request(&self, watch_id: i64) -> WatchCreateRequest {
        WatchCreateRequest {
            start_revision: self.started,
            watch_id,
            ..self.create.clone()
        }
    }

    /// A line has created it again: from here on that line's events count.
    pub(super) fn moves_to(&mut self, line: u64) {
        self.line = line;
        self.repeated = self.seen;
    }

    /// Whether the answer to a cancel is that of the host's own.
    pub(super) fn ignores_cancel(&mut self) -> bool {
        let own = self.own_cancels > 0;
        self.own_cancels -= usize::from(own);
        own
    }

    /// Everything up to `revision` was sent on its line.
    pub(super) fn is_complete_to(&mut self, revision: i64) {
        if !self.in_pieces {
            self.pass(revision + 1);
        }
    }

    /// What the client gets of a response with events, or of one without, which says how far it is.
    pub(super) fn on_events(&mut self, mut response: WatchResponse) -> Option<WatchResponse> {
        if self.state == State::Compacted {
            return None;
        }
        if response.events.is_empty() && !response.fragment {
            let revision = response.header.as_ref().map_or(0, |h| h.revision);
            if revision + 1 < self.next && !self.in_pieces {
                return None;
            }
            self.in_pieces = false;
            self.pass(revision + 1);
            return Some(response);
        }
        let last = response.events.last().map_or(0, revision_of);
        let repeats = self.repeats(&response.events);
        response.events.drain(..repeats);
        if response.fragment {
            if response.events.is_empty() {
                return None;
            }
            self.count(&response.events, last);
            self.in_pieces = true;
            return Some(response);
        }
        self.pass(last + 1);
        let ends_pieces = std::mem::take(&mut self.in_pieces);
        (ends_pieces || !response.events.is_empty()).then_some(response)
    }

    /// How many events at the front were delivered already.
    fn repeats(&mut self, events: &[Event]) -> usize {
        let mut count = 0;
        for event in events {
            let revision = revision_of(event);
            if revision == self.next && self.repeated > 0 {
                self.repeated -= 1;
            } else if revision >= self.next {
                break;
            }
            count += 1;
        }
        count
    }

    /// Counts the events of a fragment that is not the last.
    fn count(&mut self, events: &[Event], last: i64) {
        let of_last = events.iter().rev();
        let of_last = of_last.take_while(|e| revision_of(e) == last).count();
        if last > self.next {
            (self.next, self.seen, self.repeated) = (last, 0, 0);
        }
        self.seen += of_last;
    }

    /// Everything below `next` is complete.
    fn pass(&mut self, next: i64) {
        if next > self.next {
            (self.next, self.seen, self.repeated) = (next, 0, 0);
        }
    }
}

fn revision_of(event: &Event) -> i64 {
    event.kv.as_ref().map_or(0, |kv| kv.mod_revision)
}
