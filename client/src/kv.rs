//! Room `client`: the calls of the KV service.

use crate::auth::rpcs;
use crate::call::Client;
use crate::request;
use crate::retry::Repeat;
use crate::stream::{MESSAGE_MAX, Parts};
use bytes::Bytes;
use tenon_proto::error::Error;
use tenon_proto::etcdserverpb as pb;
use tenon_proto::etcdserverpb::kv_client::KvClient;
use tenon_proto::etcdserverpb::request_op::Request as Op;
use tenon_proto::key_range::KeyRange;
use tenon_proto::mvccpb::KeyValue;

rpcs! { KvClient;
    /// Reads keys.
    range(RangeRequest) -> RangeResponse, Harmless;
    /// Writes a key. Not repeated once sent: the outcome of an `Unavailable` or `DeadlineExceeded` is unknown.
    put(PutRequest) -> PutResponse, Unsafe;
    /// Deletes keys. Not repeated once sent.
    delete_range(DeleteRangeRequest) -> DeleteRangeResponse, Unsafe;
    /// Forgets history up to a revision.
    compact(CompactionRequest) -> CompactionResponse, Unsafe;
}

impl Client {
    /// The newest pair of a key, if there is one.
    ///
    /// # Errors
    /// Those of [`Client::range`].
    pub async fn get(&self, key: impl Into<Bytes>) -> Result<Option<KeyValue>, Error> {
        let answer = self.range(request::range(&KeyRange::single(key))).await?;
        Ok(answer.kvs.into_iter().next())
    }

    /// Reads keys in parts; for answers too large for memory. Needs a server of etcd 3.7's interface.
    ///
    /// # Errors
    /// Those of [`Client::range`] at the opening; later ones come from [`Parts::next`].
    pub async fn range_stream(
        &self,
        request: pb::RangeRequest,
    ) -> Result<Parts<pb::RangeStreamResponse>, Error> {
        let stream = self.open(request, |channel, request| async move {
            let mut client = KvClient::new(channel).max_decoding_message_size(MESSAGE_MAX);
            client.range_stream(request).await
        });
        Ok(Parts::new(stream.await?))
    }

    /// Compares and, by the result, carries out one list of operations or the other, at one revision. One
    /// that only reads is repeated as reads are; others are not, once sent.
    ///
    /// # Errors
    /// What the server says; `Unavailable` or `DeadlineExceeded` when none answers.
    pub async fn txn(&self, request: pb::TxnRequest) -> Result<pb::TxnResponse, Error> {
        let repeat = match only_reads(&request) {
            true => Repeat::Harmless,
            false => Repeat::Unsafe,
        };
        self.txn_as(repeat, request).await
    }

    pub(crate) async fn txn_as(
        &self,
        repeat: Repeat,
        request: pb::TxnRequest,
    ) -> Result<pb::TxnResponse, Error> {
        self.call(repeat, request, |channel, request| async move {
            let mut client = KvClient::new(channel).max_decoding_message_size(MESSAGE_MAX);
            client.txn(request).await
        })
        .await
    }
}

fn only_reads(txn: &pb::TxnRequest) -> bool {
    txn.success
        .iter()
        .chain(&txn.failure)
        .all(|op| match &op.request {
            Some(Op::RequestRange(_)) => true,
            Some(Op::RequestTxn(nested)) => only_reads(nested),
            _ => false,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_txn_with_a_write_anywhere_is_a_write() {
        let read = request::op(request::range(&KeyRange::single("k")));
        let write = request::op(request::put("k", "v"));
        let txn = |success: &[&pb::RequestOp], failure: &[&pb::RequestOp]| pb::TxnRequest {
            compare: vec![],
            success: success.iter().map(|op| (*op).clone()).collect(),
            failure: failure.iter().map(|op| (*op).clone()).collect(),
        };
        assert!(only_reads(&txn(&[], &[])));
        assert!(only_reads(&txn(&[&read], &[&read])));
        assert!(!only_reads(&txn(&[&read], &[&write])));
        let nested = request::op(txn(&[&write], &[]));
        assert!(!only_reads(&txn(&[&nested], &[])));
    }
}
