//! Room storage, state: reading pairs for clients. A long range is read in steps, each holding the lock
//! for about a thousand keys, all at the revision of the first.

use super::apply::{check_revision, check_revision_in_txn, compare_all, header};
use super::core::{Inner, State};
use super::pins::Pin;
use super::scan::{self, Chunk, Want};
use crate::check;
use crate::engine::View;
use crate::mvcc::index::Interval;
use crate::mvcc::select::Selection;
use bytes::Bytes;
use std::sync::Arc;
use tenon_proto::error::Error;
use tenon_proto::etcdserverpb::request_op::Request;
use tenon_proto::etcdserverpb::response_op::Response;
use tenon_proto::etcdserverpb::{RangeRequest, RangeResponse, ResponseOp, TxnRequest, TxnResponse};
use tenon_proto::mvccpb::KeyValue;

/// Keys looked at while the lock is held once.
const KEYS_PER_STEP: usize = 1_000;
/// The same for a step that only counts.
const COUNTED_PER_STEP: usize = 4_000;

/// A range being read: pairs in key order, in pieces of the reader's size, at one revision.
///
/// Sorting and filtering need the whole range and are not done here ([`super::Store::range`] does).
pub struct RangeCursor {
    inner: Arc<Inner>,
    key: Bytes,
    range_end: Bytes,
    /// The revision read at.
    at: i64,
    /// The store's revision when the reading began.
    revision: i64,
    values: bool,
    /// Pairs still wanted.
    left: usize,
    /// Keys of the interval seen so far.
    count: i64,
    /// Pairs given out so far.
    given: i64,
    place: Place,
    pin: Option<Pin>,
}

#[derive(Debug)]
enum Place {
    Start,
    After(Box<[u8]>),
    End,
}

/// What a step found, and the engine as of then.
type Step = (Chunk, Arc<dyn View>);

/// Where a read begins.
fn begin(state: &State, request: &RangeRequest) -> Result<i64, Error> {
    check_revision(request, state.revision, state.compacted)?;
    Ok(if request.revision > 0 {
        request.revision
    } else {
        state.revision
    })
}

impl RangeCursor {
    fn new(
        inner: &Arc<Inner>,
        request: &RangeRequest,
        at: i64,
        revision: i64,
        left: Option<usize>,
    ) -> RangeCursor {
        RangeCursor {
            inner: inner.clone(),
            key: request.key.clone(),
            range_end: request.range_end.clone(),
            at,
            revision,
            values: Selection::new(request).needs_values(),
            left: if request.count_only {
                0
            } else {
                left.unwrap_or(usize::MAX)
            },
            count: 0,
            given: 0,
            place: Place::Start,
            pin: None,
        }
    }

    /// The store's revision when the reading began: what the answer's header says.
    pub fn revision(&self) -> i64 {
        self.revision
    }

    /// Whether every pair has been given out.
    pub fn is_done(&self) -> bool {
        self.left == 0 || matches!(self.place, Place::End)
    }

    /// The next pairs, up to `pairs_max`. Fewer come at the end only; none when it is done.
    ///
    /// # Errors
    /// `Compacted` when the reading took so long that compaction passed it.
    pub fn next(&mut self, pairs_max: usize) -> Result<Vec<KeyValue>, Error> {
        let mut kvs = Vec::new();
        while !self.is_done() && kvs.len() < pairs_max {
            let wanted = self.left.min(pairs_max - kvs.len());
            let (chunk, view) = self.locked_step(wanted, false)?;
            kvs.extend(self.resolve(chunk, &*view)?);
        }
        Ok(kvs)
    }

    /// Goes to the end: answers whether there are keys beyond the pairs given out, and the number of
    /// keys in the interval.
    ///
    /// # Errors
    /// As [`RangeCursor::next`].
    pub fn finish(&mut self) -> Result<(bool, i64), Error> {
        while !matches!(self.place, Place::End) {
            self.locked_step(0, true)?;
        }
        Ok((self.count > self.given, self.count))
    }

    fn locked_step(&mut self, items_max: usize, count: bool) -> Result<Step, Error> {
        let inner = self.inner.clone();
        let state = inner.state.read();
        self.step(&state, items_max, count)
    }

    /// One step; to be called with the place before the end.
    fn step(&mut self, state: &State, items_max: usize, count: bool) -> Result<Step, Error> {
        if self.pin.as_ref().is_some_and(Pin::is_broken) {
            return Err(Error::Compacted);
        }
        let want = Want {
            // Reading as it is now is cheaper, and the same while nothing was written since.
            at: (self.at != state.revision).then_some(self.at),
            values: self.values,
            items_max,
            keys_max: if items_max == 0 {
                COUNTED_PER_STEP
            } else {
                KEYS_PER_STEP
            },
            count,
        };
        let after = match &self.place {
            Place::After(key) => Some(&**key),
            Place::Start | Place::End => None,
        };
        let interval = Interval::new(&self.key, &self.range_end);
        let chunk = scan::collect(state, interval, after, &want);
        self.count += chunk.counted;
        self.given += chunk.items.len() as i64;
        self.left -= chunk.items.len();
        match &chunk.next {
            Some(key) => {
                self.place = Place::After(key.clone());
                if self.pin.is_none() {
                    self.pin = Some(self.inner.pins.pin(self.at, self.inner.env.now()));
                }
            }
            None => self.place = Place::End,
        }
        Ok((chunk, state.view.clone()))
    }

    fn resolve(&self, chunk: Chunk, view: &dyn View) -> Result<Vec<KeyValue>, Error> {
        let kvs = scan::resolve(chunk.items, &self.inner.read_cache, view);
        self.inner.lose(kvs).map_err(|_| Error::Stopped)
    }
}

/// A whole range, begun under the caller's lock.
struct Whole<'a> {
    request: &'a RangeRequest,
    selection: Selection,
    cursor: RangeCursor,
    first: Step,
}

impl<'a> Whole<'a> {
    fn begin(
        inner: &Arc<Inner>,
        state: &State,
        request: &'a RangeRequest,
    ) -> Result<Whole<'a>, Error> {
        let at = begin(state, request)?;
        let selection = Selection::new(request);
        let left = selection.fetch();
        let mut cursor = RangeCursor::new(inner, request, at, state.revision, left);
        let first = cursor.step(state, cursor.left, true)?;
        Ok(Whole {
            request,
            selection,
            cursor,
            first,
        })
    }

    /// Reads on without the lock and answers as asked.
    fn finish(self) -> Result<RangeResponse, Error> {
        let Whole {
            request,
            selection,
            mut cursor,
            first: (chunk, view),
        } = self;
        let mut kvs = cursor.resolve(chunk, &*view)?;
        drop(view);
        if !cursor.is_done() {
            kvs.extend(cursor.next(usize::MAX)?);
        }
        let (_, count) = cursor.finish()?;
        let more = selection.finish(&mut kvs) && !request.count_only;
        Ok(RangeResponse {
            header: header(cursor.revision),
            kvs,
            more,
            count,
        })
    }
}

/// A range.
pub(crate) fn range(inner: &Arc<Inner>, request: &RangeRequest) -> Result<RangeResponse, Error> {
    let whole = Whole::begin(inner, &inner.state.read(), request)?;
    whole.finish()
}

/// A range to be read in pieces.
pub(crate) fn cursor(inner: &Arc<Inner>, request: &RangeRequest) -> Result<RangeCursor, Error> {
    let state = inner.state.read();
    let at = begin(&state, request)?;
    let limit = Selection::new(request).limit;
    let mut cursor = RangeCursor::new(inner, request, at, state.revision, limit);
    cursor.pin = Some(inner.pins.pin(at, inner.env.now()));
    Ok(cursor)
}

/// A transaction of ranges only: all of it at one revision.
pub(crate) fn txn(inner: &Arc<Inner>, request: &TxnRequest) -> Result<TxnResponse, Error> {
    assert!(
        check::txn_is_read_only(request),
        "only ranges are served without the log"
    );
    let (succeeded, revision, ranges) = {
        let state = inner.state.read();
        let holds = compare_all(&state, &inner.read_cache, &request.compare);
        let succeeded = inner.lose(holds).map_err(|_| Error::Stopped)?;
        let ops = if succeeded {
            &request.success
        } else {
            &request.failure
        };
        let mut ranges = Vec::with_capacity(ops.len());
        for op in ops {
            let Some(Request::RequestRange(range)) = &op.request else {
                return Err(Error::KeyNotFound);
            };
            check_revision_in_txn(range, state.revision, state.compacted)?;
            ranges.push(Whole::begin(inner, &state, range)?);
        }
        (succeeded, state.revision, ranges)
    };
    let mut responses = Vec::with_capacity(ranges.len());
    for range in ranges {
        let response = Some(Response::ResponseRange(range.finish()?));
        responses.push(ResponseOp { response });
    }
    Ok(TxnResponse {
        header: header(revision),
        succeeded,
        responses,
    })
}
