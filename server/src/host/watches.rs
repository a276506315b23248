//! Room `server/host`: the watches of one client's stream, as the host knows them, whatever backend they are on. Pure.
//!
//! The host, not a backend, owns what a client was told. A stream is on one [`Line`] at a time, and on two while it
//! moves: each watch is created again on the new line at the first revision not delivered, and from the moment the
//! new line has answered that, only the new line's events count. So for each watch:
//!
//! - every event with revision ≥ its start is delivered once, in order: `next` is the revision of the next event
//!   wanted and never goes back; events below it are repeats and are dropped;
//! - `seen` events of revision `next` were delivered already. It is above 0 only while a response that was cut into
//!   fragments is incomplete, because only then a revision comes in pieces;
//! - the client hears `created` once, from the line that took its own request.
//!
//! A watch is created again one revision *before* `next`, when it can be: a watch that starts above the newest
//! revision counts as not started, and would keep progress answers back. When just that revision is compacted it is
//! created once more at `next`.
//!
//! Ids are the backend's as long as the stream has not moved, so that they are given as etcd gives them. Afterwards
//! the host gives them, by etcd's rule. An id of 0 cannot be asked for, it means "choose": on a line that the stream
//! moved to, the watch with id 0 goes by [`ZERO`]. The client may be such a host itself, and its watch have that id: so
//! there [`ZERO`] goes by the id above, and so on.
//!
//! What it does not do: wait, or decide when to move (`watch_move.rs`).

use super::watch_row::{Row, State};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use tenon_proto::etcdserverpb::watch_request::RequestUnion;
use tenon_proto::etcdserverpb::{
    ResponseHeader, WatchCancelRequest, WatchCreateRequest, WatchProgressRequest, WatchRequest,
    WatchResponse,
};

/// What the watch with id 0 is called on a line that the stream moved to.
const ZERO: i64 = i64::MIN + 1;
/// Ids from [`ZERO`] up to here are shifted by one on such a line; far more than there are hosts behind hosts.
const ZERO_END: i64 = i64::MIN / 2;
/// Watch id of what concerns no watch, or the whole stream.
const NONE: i64 = -1;

/// A creation that a line has not answered.
#[derive(Clone, Debug)]
enum Asked {
    /// The client's, as it sent it, and the newest revision this host had answered then.
    Client {
        create: WatchCreateRequest,
        floor: i64,
    },
    /// A watch the client has, created again.
    Again(i64),
}

/// What was asked of one backend's stream.
#[derive(Debug, Default)]
pub(super) struct Line {
    serial: u64,
    /// Creations without an answer, oldest first.
    asked: VecDeque<Asked>,
    /// The client's progress requests without an answer.
    progress: usize,
    /// The host's own were answered up to here.
    progress_at: Option<i64>,
    /// The stream moved here, so that the host gives the ids.
    moved: bool,
}

impl Line {
    /// Newest revision up to which this line is known to be complete since [`Watches::ask_progress`].
    pub(super) fn progress_at(&self) -> Option<i64> {
        self.progress_at
    }

    fn id_there(&self, id: i64) -> i64 {
        match id {
            0 if self.moved => ZERO,
            ZERO..ZERO_END if self.moved => id + 1,
            id => id,
        }
    }

    fn id_here(&self, id: i64) -> i64 {
        match id {
            ZERO if self.moved => 0,
            ZERO..=ZERO_END if self.moved => id - 1,
            id => id,
        }
    }
}

/// Which line an answer came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whence {
    /// The only one.
    Settled,
    /// The one the stream moves to.
    New,
    /// The one it leaves.
    Old,
}

/// The watches of one stream.
#[derive(Debug, Default)]
pub(super) struct Watches {
    rows: BTreeMap<i64, Row>,
    lines: u64,
    /// The id that is tried first for the next client that lets the server choose.
    next_id: i64,
    /// The client's progress requests that a line took with it.
    progress_owed: usize,
    /// Of the newest answer, for those that the host gives by itself.
    header: ResponseHeader,
}

impl Watches {
    /// A line to a backend; `moved` unless it is the stream's first.
    pub(super) fn line(&mut self) -> Line {
        self.lines += 1;
        Line {
            serial: self.lines,
            moved: self.lines > 1,
            ..Line::default()
        }
    }

    /// What is sent to the backend for a client's request; `floor` is the newest revision this host has answered,
    /// 0 when the backend cannot be behind it.
    pub(super) fn on_request(
        &mut self,
        line: &mut Line,
        request: WatchRequest,
        floor: i64,
    ) -> Option<WatchRequest> {
        let mut union = request.request_union?;
        match &mut union {
            RequestUnion::CreateRequest(create) => {
                let client = create.clone();
                if line.moved && create.watch_id == 0 {
                    create.watch_id = self.draw_id(line);
                }
                create.watch_id = line.id_there(create.watch_id);
                line.asked.push_back(Asked::Client {
                    create: client,
                    floor,
                });
            }
            RequestUnion::CancelRequest(cancel) => {
                if let Some(row) = self.rows.get_mut(&cancel.watch_id) {
                    row.state = State::Canceling;
                }
                cancel.watch_id = line.id_there(cancel.watch_id);
            }
            RequestUnion::ProgressRequest(_) => line.progress += 1,
        }
        Some(WatchRequest {
            request_union: Some(union),
        })
    }

    /// etcd's rule: the next id counted up that is not in use.
    fn draw_id(&mut self, line: &Line) -> i64 {
        let asked = |id: i64| {
            line.asked.iter().any(|asked| match asked {
                Asked::Client { create, .. } => create.watch_id == id && id != 0,
                Asked::Again(again) => *again == id,
            })
        };
        while self.rows.contains_key(&self.next_id) || asked(self.next_id) {
            self.next_id += 1;
        }
        self.next_id += 1;
        self.next_id - 1
    }

    /// Whether there is any watch.
    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The host's own question how far a line is.
    pub(super) fn ask_progress(line: &mut Line) -> WatchRequest {
        line.progress_at = None;
        progress_request()
    }

    /// Creates on `line` every watch that is on another and was not created again yet: also one that another line took
    /// after the stream had begun to move here.
    pub(super) fn again(&mut self, line: &mut Line) -> Vec<WatchRequest> {
        let mut requests = Vec::new();
        let asked = line.asked.iter().filter_map(|asked| match asked {
            Asked::Again(id) => Some(*id),
            Asked::Client { .. } => None,
        });
        let under_way: BTreeSet<i64> = asked.collect();
        for (id, row) in &mut self.rows {
            let there = row.line == line.serial || under_way.contains(id);
            if there || row.state == State::Canceling {
                continue;
            }
            line.asked.push_back(Asked::Again(*id));
            let create = row.again(line.id_there(*id));
            requests.push(request(RequestUnion::CreateRequest(create)));
        }
        requests
    }

    /// Whether everything is on `line`, so that no other is needed: also nothing is left to be answered by the
    /// `old` one.
    pub(super) fn is_settled(&self, line: &Line, old: Option<&Line>) -> bool {
        let again = |asked: &Asked| matches!(asked, Asked::Again(_));
        let waits_for_old = |row: &Row| row.line != line.serial;
        let owed = match old {
            Some(old) => !old.asked.is_empty() || self.rows.values().any(waits_for_old),
            None => false,
        };
        !owed && !line.asked.iter().any(again)
    }

    /// A line is gone for good. What the client asked there and was not answered: requests to be asked again on
    /// another line, and answers that the host gives by itself.
    pub(super) fn lost(&mut self, line: Line) -> (Vec<WatchRequest>, Vec<WatchResponse>) {
        self.progress_owed += line.progress;
        let client = line.asked.into_iter().filter_map(|asked| match asked {
            Asked::Client { create, .. } => Some(request(RequestUnion::CreateRequest(create))),
            Asked::Again(_) => None,
        });
        let requests = client.collect();
        let is_canceled = |row: &Row| row.line == line.serial && row.state == State::Canceling;
        let ids: Vec<i64> = self
            .rows
            .iter()
            .filter_map(|(id, row)| is_canceled(row).then_some(*id))
            .collect();
        let answers = ids.into_iter().map(|watch_id| {
            self.rows.remove(&watch_id);
            WatchResponse {
                header: Some(self.header),
                watch_id,
                canceled: true,
                ..WatchResponse::default()
            }
        });
        (requests, answers.collect())
    }

    /// The client's progress requests that a line took with it, as one request to the settled line.
    pub(super) fn owed_progress(&mut self, line: &mut Line) -> Option<WatchRequest> {
        if std::mem::take(&mut self.progress_owed) == 0 {
            return None;
        }
        line.progress += 1;
        Some(progress_request())
    }

    /// What the client is told of a line's answer; and what is asked of the line because of it.
    pub(super) fn on_answer(
        &mut self,
        line: &mut Line,
        whence: Whence,
        mut answer: WatchResponse,
    ) -> (Option<WatchResponse>, Vec<WatchRequest>) {
        if let Some(header) = &answer.header
            && header.revision >= self.header.revision
        {
            self.header = *header;
        }
        answer.watch_id = line.id_here(answer.watch_id);
        if answer.created {
            return (self.on_created(line, answer), Vec::new());
        }
        // A client may call a watch so: then nobody can tell its own progress from the stream's.
        let has_none = self.rows.contains_key(&NONE);
        if answer.watch_id == NONE && !answer.canceled && !has_none {
            return (self.on_progress(line, whence, answer), Vec::new());
        }
        if answer.watch_id == NONE && answer.events.is_empty() {
            line.progress = line.progress.saturating_sub(1);
        }
        let Some(row) = self.rows.get_mut(&answer.watch_id) else {
            return (None, Vec::new());
        };
        if row.line != line.serial {
            return (None, Vec::new());
        }
        if answer.canceled {
            return self.on_canceled(line, answer);
        }
        (row.on_events(answer), Vec::new())
    }

    fn on_created(&mut self, line: &mut Line, mut answer: WatchResponse) -> Option<WatchResponse> {
        match line.asked.pop_front()? {
            Asked::Client { create, floor } => {
                if !answer.canceled {
                    if create.watch_id == 0 {
                        self.next_id = self.next_id.max(answer.watch_id + 1);
                    }
                    let header = answer.header.get_or_insert_default();
                    header.revision = header.revision.max(floor);
                    let row = Row::new(create, header.revision, line.serial);
                    self.rows.insert(answer.watch_id, row);
                }
                Some(answer)
            }
            Asked::Again(id) if answer.canceled => {
                self.rows.remove(&id)?;
                answer.created = false;
                answer.watch_id = id;
                Some(answer)
            }
            Asked::Again(id) => {
                if let Some(row) = self.rows.get_mut(&id) {
                    row.moves_to(line.serial);
                }
                None
            }
        }
    }

    /// Progress of the whole stream. While it moves the client is not told: some watches are on the other line.
    fn on_progress(
        &mut self,
        line: &mut Line,
        whence: Whence,
        answer: WatchResponse,
    ) -> Option<WatchResponse> {
        let revision = answer.header.as_ref().map_or(0, |header| header.revision);
        for row in self.rows.values_mut().filter(|row| row.line == line.serial) {
            row.is_complete_to(revision);
        }
        line.progress_at = Some(revision);
        if whence != Whence::Settled || line.progress == 0 {
            return None;
        }
        let behind = self.rows.values().any(|row| row.next > revision + 1);
        if behind {
            return None;
        }
        line.progress -= 1;
        Some(answer)
    }

    fn on_canceled(
        &mut self,
        line: &mut Line,
        answer: WatchResponse,
    ) -> (Option<WatchResponse>, Vec<WatchRequest>) {
        let id = answer.watch_id;
        let Some(row) = self.rows.get_mut(&id) else {
            return (None, Vec::new());
        };
        if answer.compact_revision == 0 {
            if row.ignores_cancel() {
                return (None, Vec::new());
            }
            self.rows.remove(&id);
            return (Some(answer), Vec::new());
        }
        match row.state {
            State::Live => {}
            // It was told so by another line.
            State::Compacted => return (None, Vec::new()),
            State::Canceling => return (Some(answer), Vec::new()),
        }
        if let Some(create) = row.once_more(line.id_there(id), answer.compact_revision) {
            line.asked.push_back(Asked::Again(id));
            let watch_id = create.watch_id;
            let cancel = RequestUnion::CancelRequest(WatchCancelRequest { watch_id });
            let create = RequestUnion::CreateRequest(create);
            return (None, vec![request(cancel), request(create)]);
        }
        row.state = State::Compacted;
        (Some(answer), Vec::new())
    }
}

fn request(union: RequestUnion) -> WatchRequest {
    WatchRequest {
        request_union: Some(union),
    }
}

fn progress_request() -> WatchRequest {
    request(RequestUnion::ProgressRequest(WatchProgressRequest {}))
}

#[cfg(test)]
mod tests;
