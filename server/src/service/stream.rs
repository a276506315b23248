//! Room `server/service`: a range cut into parts whose size grows from ten keys toward the request limit, so
//! that the first part comes early and none is too large. All parts are of one revision; header, `more`
//! and `count` stand in the last.

use super::context::Context;
use prost::Message;
use tenon_env::sync::mpsc;
use tenon_proto::error::Error;
use tenon_proto::etcdserverpb as pb;
use tenon_proto::etcdserverpb::range_request::{SortOrder, SortTarget};
use tenon_proto::mvccpb::KeyValue;
use tenon_storage::state::RangeCursor;

/// Where parts go.
pub type Parts = mpsc::Sender<Result<pb::RangeStreamResponse, Error>>;

/// Keys of the first part at most.
const FIRST_PART_KEYS: usize = 10;

/// How many keys the next part holds: twice as many while parts stay below half of `bytes_max`, half as
/// many when a part exceeded it.
fn next_part_keys(keys: usize, bytes: usize, bytes_max: usize) -> usize {
    if bytes > bytes_max {
        (keys / 2).max(1)
    } else if bytes.saturating_mul(2) <= bytes_max {
        keys.saturating_mul(2)
    } else {
        keys
    }
}

/// Whether the store can give the pairs in the order and choice wanted without reading all of them first.
fn is_plain(request: &pb::RangeRequest) -> bool {
    let filters = [
        request.min_mod_revision,
        request.max_mod_revision,
        request.min_create_revision,
        request.max_create_revision,
    ];
    let by_key = request.sort_target == SortTarget::Key as i32
        && request.sort_order != SortOrder::Descend as i32;
    by_key && filters == [0; 4]
}

/// The pairs of a range, part by part.
enum Source {
    /// Read as they are asked for, one pair ahead: so the last part is known to be the last.
    Cursor {
        cursor: Box<RangeCursor>,
        count_only: bool,
        ahead: Option<KeyValue>,
    },
    /// Sorted or filtered: all of them at once.
    Whole {
        rest: std::vec::IntoIter<KeyValue>,
        last: Box<pb::RangeResponse>,
    },
}

impl Source {
    fn new(context: &Context, request: &pb::RangeRequest) -> Result<Source, Error> {
        if is_plain(request) {
            let cursor = Box::new(context.store().range_cursor(request)?);
            return Ok(Source::Cursor {
                cursor,
                count_only: request.count_only,
                ahead: None,
            });
        }
        let mut whole = context.store().range(request)?;
        let rest = std::mem::take(&mut whole.kvs).into_iter();
        Ok(Source::Whole {
            rest,
            last: Box::new(whole),
        })
    }

    /// The next part and whether it is the last.
    fn next(&mut self, keys: usize) -> Result<(pb::RangeResponse, bool), Error> {
        match self {
            Source::Cursor {
                cursor,
                count_only,
                ahead,
            } => {
                let mut kvs: Vec<_> = ahead.take().into_iter().collect();
                kvs.extend(cursor.next(keys.saturating_add(1) - kvs.len())?);
                if kvs.len() > keys {
                    *ahead = kvs.pop();
                    return Ok((
                        pb::RangeResponse {
                            kvs,
                            ..Default::default()
                        },
                        false,
                    ));
                }
                let (more, count) = cursor.finish()?;
                let header = pb::ResponseHeader {
                    revision: cursor.revision(),
                    ..Default::default()
                };
                let more = more && !*count_only;
                Ok((
                    pb::RangeResponse {
                        header: Some(header),
                        kvs,
                        more,
                        count,
                    },
                    true,
                ))
            }
            Source::Whole { rest, last } => {
                let kvs: Vec<_> = rest.by_ref().take(keys).collect();
                if rest.len() > 0 {
                    return Ok((
                        pb::RangeResponse {
                            kvs,
                            ..Default::default()
                        },
                        false,
                    ));
                }
                Ok((
                    pb::RangeResponse {
                        kvs,
                        ..std::mem::take(last)
                    },
                    true,
                ))
            }
        }
    }
}

/// Sends the parts of `request` to `out`; ends early when nobody receives them.
pub async fn range_parts(
    context: &Context,
    request: pb::RangeRequest,
    part_bytes: usize,
    out: &Parts,
) -> Result<(), Error> {
    let mut source = Source::new(context, &request)?;
    let mut keys = FIRST_PART_KEYS;
    loop {
        let (mut part, last) = source.next(keys)?;
        if last {
            context.fill(&mut part.header);
        }
        keys = next_part_keys(keys, part.encoded_len(), part_bytes);
        let part = pb::RangeStreamResponse {
            range_response: Some(part),
        };
        if out.send(Ok(part)).await.is_err() || last {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_grow_toward_the_limit_and_shrink_beyond_it() {
        assert_eq!(next_part_keys(10, 100, 1000), 20);
        assert_eq!(next_part_keys(640, 600, 1000), 640);
        assert_eq!(next_part_keys(640, 1001, 1000), 320);
        assert_eq!(next_part_keys(1, 5000, 1000), 1);
    }

    #[test]
    fn sorted_and_filtered_ranges_are_read_whole() {
        let plain = pb::RangeRequest::default();
        assert!(is_plain(&plain));
        let ascending = pb::RangeRequest {
            sort_order: SortOrder::Ascend as i32,
            ..plain.clone()
        };
        assert!(is_plain(&ascending));
        let descending = pb::RangeRequest {
            sort_order: SortOrder::Descend as i32,
            ..plain.clone()
        };
        assert!(!is_plain(&descending));
        let by_value = pb::RangeRequest {
            sort_target: SortTarget::Value as i32,
            ..plain.clone()
        };
        assert!(!is_plain(&by_value));
        assert!(!is_plain(&pb::RangeRequest {
            max_mod_revision: 5,
            ..plain
        }));
    }
}
