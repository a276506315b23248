//! Room `server/shell`: what tonic says of messages that it cannot take, in the words of Go's gRPC library, which are
//! etcd's.

use tenon_proto::code::Code;
use tenon_proto::error::Error;
use tonic::Status;

/// How prost begins when bytes are no message.
const UNREADABLE: &str = "failed to decode Protobuf message";
/// What prost says of messages within messages beyond its bound (100 levels; Go's is 10,000).
const TOO_DEEP: &str = "recursion limit reached";

/// Where a message came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The one of its call.
    Unary,
    /// One of many.
    Stream,
}

/// Size and limit out of tonic's text for a message above the limit.
pub fn too_large(text: &str) -> Option<(u64, u64)> {
    let text = text.strip_prefix("Error, decoded message length too large: found ")?;
    let (size, rest) = text.split_once(' ')?;
    let max = rest
        .strip_prefix("bytes, the limit is: ")?
        .strip_suffix(" bytes")?;
    Some((size.parse().ok()?, max.parse().ok()?))
}

/// What is said instead of tonic's text for bytes that are no message; `None` when the text is about something else.
pub fn unreadable(text: &str, place: Place) -> Option<String> {
    let rest = text.strip_prefix(UNREADABLE)?;
    let what = match place {
        Place::Unary => "grpc: error unmarshalling request: proto",
        Place::Stream => "grpc: failed to unmarshal the received message: proto",
    };
    let why = match rest.contains(TOO_DEEP) {
        true => "exceeded maximum recursion depth",
        false => "cannot parse invalid wire-format data",
    };
    Some(format!("{what}: {why}"))
}

/// Why a client's stream ends, when it ended because of what it sent; `None` when the client or its connection went.
pub fn of_stream(status: &Status) -> Option<Error> {
    if let Some((size, max)) = too_large(status.message()) {
        return Some(Error::MessageTooLarge { size, max });
    }
    let text = unreadable(status.message(), Place::Stream)?;
    Some(Error::other(Code::Internal, text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message;
    use tenon_proto::etcdserverpb as pb;

    #[test]
    fn tonics_words_for_large_messages_are_understood() {
        let text = "Error, decoded message length too large: found 2711562 bytes, the limit is: 2097152 bytes";
        assert_eq!(too_large(text), Some((2_711_562, 2_097_152)));
        assert_eq!(too_large("something else"), None);
    }

    #[test]
    fn prosts_words_for_bytes_that_are_no_message_are_understood() {
        let broken = pb::WatchRequest::decode(&b"\xff\xff"[..]).unwrap_err();
        assert_eq!(
            unreadable(&broken.to_string(), Place::Unary).as_deref(),
            Some("grpc: error unmarshalling request: proto: cannot parse invalid wire-format data")
        );
        let status = Status::internal(broken.to_string());
        let error = of_stream(&status).expect("the client's fault");
        assert_eq!(
            error.message(),
            "grpc: failed to unmarshal the received message: proto: cannot parse invalid wire-format data"
        );
        assert_eq!(error.code(), Code::Internal);
        assert!(of_stream(&Status::cancelled("h2 protocol error")).is_none());
    }

    #[test]
    fn transactions_within_transactions_beyond_the_bound_are_named() {
        let mut txn = pb::TxnRequest::default();
        for _ in 0..60 {
            let request = Some(pb::request_op::Request::RequestTxn(txn));
            txn = pb::TxnRequest {
                success: vec![pb::RequestOp { request }],
                ..pb::TxnRequest::default()
            };
        }
        let deep = pb::TxnRequest::decode(&txn.encode_to_vec()[..]).unwrap_err();
        assert_eq!(
            unreadable(&deep.to_string(), Place::Unary).as_deref(),
            Some("grpc: error unmarshalling request: proto: exceeded maximum recursion depth")
        );
    }
}
