//! Room `server/service`: etcd's KV service. Reads go to the store, behind a read barrier unless they are
//! serializable; writes go through the log.

use super::context::Context;
use super::quota;
use super::stream::{self, Parts};
use std::sync::atomic::Ordering;
use tenon_proto::caller::Caller;
use tenon_proto::command::command::Body;
use tenon_proto::error::Error;
use tenon_proto::etcdserverpb as pb;
use tenon_proto::etcdserverpb::response_op::Response;
use tenon_storage::check;

/// The KV service.
#[derive(Clone)]
pub struct Kv {
    context: Context,
}

impl Kv {
    /// The service of a member.
    pub fn new(context: Context) -> Kv {
        Kv { context }
    }

    /// Reads an interval of keys.
    pub async fn range(
        &self,
        caller: &Caller,
        request: pb::RangeRequest,
    ) -> Result<pb::RangeResponse, Error> {
        check::range(&request)?;
        self.context.authorise(caller)?;
        let began = self.context.env().now();
        let outcome = self.read(&request).await;
        let took = self.context.env().now() - began;
        let requests = &self.context.counters().requests;
        requests.observe("Range", outcome.is_ok(), took);
        let mut response = outcome?;
        self.count_ranges(1);
        self.context.fill(&mut response.header);
        Ok(response)
    }

    async fn read(&self, request: &pb::RangeRequest) -> Result<pb::RangeResponse, Error> {
        if !request.serializable {
            self.refuse_learner()?;
            self.context.read_barrier().await?;
        }
        let (env, store) = (self.context.env(), self.context.store());
        let began = env.now();
        let outcome = store.range(request);
        let took = env.now() - began;
        self.context.counters().range_reads[usize::from(outcome.is_ok())].observe(took);
        store.measures().took("Range", took);
        outcome
    }

    /// Reads an interval in parts, all at the revision of the first, and sends them to `out`. Ends early
    /// when the receiver is gone.
    pub async fn range_stream(&self, caller: &Caller, request: pb::RangeRequest, out: Parts) {
        if let Err(error) = self.send_parts(caller, request, &out).await {
            let _ = out.send(Err(error)).await;
        }
    }

    async fn send_parts(
        &self,
        caller: &Caller,
        request: pb::RangeRequest,
        out: &Parts,
    ) -> Result<(), Error> {
        check::range(&request)?;
        self.context.authorise(caller)?;
        if !request.serializable {
            self.context.read_barrier().await?;
        }
        let part_bytes = self.context.config().max_request_bytes;
        stream::range_parts(&self.context, request, part_bytes, out).await
    }

    /// Writes one key.
    pub async fn put(
        &self,
        caller: &Caller,
        request: pb::PutRequest,
    ) -> Result<pb::PutResponse, Error> {
        check::put(&request)?;
        self.context.authorise(caller)?;
        let mut response: pb::PutResponse = self.write(request.into()).await?;
        self.context.fill(&mut response.header);
        Ok(response)
    }

    /// Deletes an interval of keys.
    pub async fn delete_range(
        &self,
        caller: &Caller,
        request: pb::DeleteRangeRequest,
    ) -> Result<pb::DeleteRangeResponse, Error> {
        check::delete_range(&request)?;
        self.context.authorise(caller)?;
        let mut response: pb::DeleteRangeResponse = self.write(request.into()).await?;
        self.context.fill(&mut response.header);
        Ok(response)
    }

    /// Runs a transaction. One that only reads bypasses the log.
    pub async fn txn(
        &self,
        caller: &Caller,
        request: pb::TxnRequest,
    ) -> Result<pb::TxnResponse, Error> {
        check::txn(&request, self.context.config().max_txn_ops)?;
        self.context.authorise(caller)?;
        let mut response = if check::txn_is_read_only(&request) {
            if !check::txn_is_serializable(&request) {
                self.context.read_barrier().await?;
            }
            let response = self.context.store().read_txn(&request)?;
            let counters = self.context.counters();
            counters.read_txns.fetch_add(1, Ordering::Relaxed);
            response
        } else {
            self.write(request.into()).await?
        };
        self.count_ranges(ranges_inside(&response));
        self.context.fill(&mut response.header);
        Ok(response)
    }

    /// Gives up history below a revision. A physical compaction answers once this member removed it.
    pub async fn compact(
        &self,
        caller: &Caller,
        request: pb::CompactionRequest,
    ) -> Result<pb::CompactionResponse, Error> {
        self.context.authorise(caller)?;
        let physical = request.physical;
        let revision = request.revision;
        let result = self.context.propose(request.into()).await?;
        let mut response = pb::CompactionResponse::try_from(result)?;
        if physical {
            self.context.store().wait_compacted(revision.into()).await;
        }
        self.context.fill(&mut response.header);
        Ok(response)
    }

    fn count_ranges(&self, more: u64) {
        let counters = self.context.counters();
        counters.ranges.fetch_add(more, Ordering::Relaxed);
    }

    /// A learner answers serializable ranges only.
    fn refuse_learner(&self) -> Result<(), Error> {
        if self.context.is_learner() {
            Err(Error::NotSupportedForLearner)
        } else {
            Ok(())
        }
    }

    /// Proposes a write that may add data: refused without room for it.
    async fn write<T>(&self, body: Body) -> Result<T, Error>
    where
        T: TryFrom<tenon_proto::command::CommandResult, Error = Error>,
    {
        quota::check(&self.context, &body).await?;
        T::try_from(self.context.propose(body).await?)
    }
}

/// Ranges in a transaction that ran.
fn ranges_inside(txn: &pb::TxnResponse) -> u64 {
    let each = |op: &pb::ResponseOp| match &op.response {
        Some(Response::ResponseRange(_)) => 1,
        Some(Response::ResponseTxn(nested)) => ranges_inside(nested),
        _ => 0,
    };
    txn.responses.iter().map(each).sum()
}
