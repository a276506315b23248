//! Room `sim`, cluster: a client as the code under test holds it.

use super::calls::Calls;
use crate::NodeId;
use crate::html::Ended;
use crate::world::{self, CallError, World};
use bytes::Bytes;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tenon_env::{Instant, Task};
use tenon_proto::caller::Caller;
use tenon_proto::error::Error;
use tenon_proto::etcdserverpb::{self as pb, compare, request_op};
use tenon_proto::key_range::prefix_end;
use tenon_proto::mvccpb::KeyValue;
use tenon_server::service::Services;

/// The node of client number 0.
pub(super) const FIRST: u64 = 1_000;
/// How long one attempt waits for its answer.
const ATTEMPT: Duration = Duration::from_secs(2);
/// How long a call is repeated while that is safe.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pause between attempts.
const PAUSE: Duration = Duration::from_millis(50);

/// A key and what is known of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// Its value.
    pub value: String,
    /// The revision at which it was created; grows from one life of the key to the next, so it fences.
    pub created: i64,
    /// The revision of its last change.
    pub modified: i64,
    /// The lease it hangs on; 0 for none.
    pub lease: i64,
}

impl From<KeyValue> for Entry {
    fn from(kv: KeyValue) -> Entry {
        Entry {
            key: String::from_utf8_lossy(&kv.key).into_owned(),
            value: String::from_utf8_lossy(&kv.value).into_owned(),
            created: kv.create_revision,
            modified: kv.mod_revision,
            lease: kv.lease,
        }
    }
}

/// A client on a node of its own. Clones share the node.
///
/// Reads are repeated for ten seconds, at other members too. Writes are repeated only while they reached nobody;
/// an outcome that nobody knows is the caller's to deal with, as with any real cluster.
#[derive(Clone)]
pub struct Client {
    pub(super) world: World,
    inner: Arc<world::Client>,
    calls: Calls,
}

/// Whether a call may be made again when its outcome is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Again {
    /// It has no effect, or the same one again.
    Safe,
    /// It may have its effect twice.
    Never,
}

impl Client {
    pub(super) fn new(world: &World, number: u64, pinned: Option<NodeId>, calls: Calls) -> Client {
        let mut inner = world.client(number);
        inner.patience = ATTEMPT;
        inner.pinned = pinned;
        Client {
            world: world.clone(),
            inner: Arc::new(inner),
            calls,
        }
    }

    /// The client's node, for pauses, crashes and cuts.
    pub fn node(&self) -> NodeId {
        self.inner.node()
    }

    /// The client's clock: monotonic.
    pub fn now(&self) -> Instant {
        self.inner.env().now()
    }

    /// Sleeps by the client's clock.
    pub fn sleep(&self, how_long: Duration) -> impl Future<Output = ()> + Send + use<> {
        self.inner.env().sleep(how_long)
    }

    /// Starts a task of the client's node: it stands still in a pause and dies with a crash.
    pub fn spawn(
        &self,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> Task {
        self.inner.env().spawn(name, task)
    }

    pub(super) fn target(&self) -> Option<NodeId> {
        self.inner.target()
    }

    fn world_now(&self) -> u64 {
        self.world.sim().now().as_nanos() as u64
    }

    /// Makes a call, again while that is safe, and notes it.
    async fn ask<T, F>(
        &self,
        what: String,
        again: Again,
        show: impl Fn(&T) -> String,
        call: impl Fn(Services) -> F + Clone + Send + 'static,
    ) -> Result<T, CallError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let id = self.calls.begin(self.node(), self.world_now(), what);
        let deadline = self.now() + PATIENCE;
        let outcome = loop {
            let outcome = self.inner.call(call.clone()).await;
            let safe = match &outcome {
                Err(CallError::NotSent) => true,
                Err(CallError::Unknown(_)) => again == Again::Safe,
                _ => false,
            };
            if !safe || self.now() >= deadline {
                break outcome;
            }
            self.sleep(PAUSE).await;
        };
        let how = match &outcome {
            Ok(answer) => Ended::Answered(show(answer)),
            Err(CallError::Unknown(_)) => Ended::Unknown(
                outcome
                    .as_ref()
                    .err()
                    .map_or(String::new(), ToString::to_string),
            ),
            Err(error) => Ended::Refused(error.to_string()),
        };
        self.calls.end(id, self.world_now(), how);
        outcome
    }

    /// Puts a value; the revision.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn put(&self, key: &str, value: &str) -> Result<i64, CallError> {
        self.put_with_lease(key, value, 0).await
    }

    /// Puts a value that goes with a lease; the revision.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn put_with_lease(
        &self,
        key: &str,
        value: &str,
        lease: i64,
    ) -> Result<i64, CallError> {
        let request = put_request(key, value, lease);
        let show = |r: &pb::PutResponse| format!("revision {}", revision(&r.header));
        let what = format!("put {key} = {value}");
        let put = self.ask(what, Again::Never, show, move |services| {
            let request = request.clone();
            async move { services.kv.put(&Caller::default(), request).await }
        });
        Ok(revision(&put.await?.header))
    }

    /// A linearizable read of one key.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn get(&self, key: &str) -> Result<Option<Entry>, CallError> {
        let (entries, _) = self.range(format!("get {key}"), key, Bytes::new()).await?;
        Ok(entries.into_iter().next())
    }

    /// A linearizable read of all keys that begin with `prefix`, and the revision at which they stood.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn get_prefix(&self, prefix: &str) -> Result<(Vec<Entry>, i64), CallError> {
        self.range(
            format!("get {prefix}*"),
            prefix,
            prefix_end(prefix.as_bytes()),
        )
        .await
    }

    async fn range(
        &self,
        what: String,
        key: &str,
        range_end: Bytes,
    ) -> Result<(Vec<Entry>, i64), CallError> {
        let request = pb::RangeRequest {
            key: Bytes::copy_from_slice(key.as_bytes()),
            range_end,
            ..Default::default()
        };
        let show = |r: &pb::RangeResponse| {
            let shown = |kv: &KeyValue| String::from_utf8_lossy(&kv.value).into_owned();
            let values: Vec<String> = r.kvs.iter().map(shown).collect();
            format!("{values:?} at revision {}", revision(&r.header))
        };
        let range = self.ask(what, Again::Safe, show, move |services| {
            let request = request.clone();
            async move { services.kv.range(&Caller::default(), request).await }
        });
        let response = range.await?;
        let at = revision(&response.header);
        Ok((response.kvs.into_iter().map(Entry::from).collect(), at))
    }

    /// Deletes a key; whether it was there.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn delete(&self, key: &str) -> Result<bool, CallError> {
        let request = pb::DeleteRangeRequest {
            key: Bytes::copy_from_slice(key.as_bytes()),
            ..Default::default()
        };
        let show = |r: &pb::DeleteRangeResponse| format!("{} deleted", r.deleted);
        let what = format!("delete {key}");
        let delete = self.ask(what, Again::Never, show, move |services| {
            let request = request.clone();
            async move { services.kv.delete_range(&Caller::default(), request).await }
        });
        Ok(delete.await?.deleted > 0)
    }

    /// A transaction, in the words of etcd's interface (`tenon_sim::pb`).
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn txn(&self, request: pb::TxnRequest) -> Result<pb::TxnResponse, CallError> {
        let what = show_txn(&request);
        let show = |r: &pb::TxnResponse| {
            let branch = if r.succeeded { "then" } else { "else" };
            format!("{branch}, revision {}", revision(&r.header))
        };
        self.ask(what, Again::Never, show, move |services| {
            let request = request.clone();
            async move { services.kv.txn(&Caller::default(), request).await }
        })
        .await
    }

    /// Puts a value when the key `guard` was created at exactly `created` (0: does not exist); whether it did.
    /// With a lock's key and fence as guard, a holder of old cannot write.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn put_if_created(
        &self,
        (guard, created): (&str, i64),
        key: &str,
        value: &str,
        lease: i64,
    ) -> Result<bool, CallError> {
        let compare = pb::Compare {
            result: compare::CompareResult::Equal.into(),
            target: compare::CompareTarget::Create.into(),
            key: Bytes::copy_from_slice(guard.as_bytes()),
            target_union: Some(compare::TargetUnion::CreateRevision(created)),
            ..Default::default()
        };
        let put = request_op::Request::RequestPut(put_request(key, value, lease));
        let request = pb::TxnRequest {
            compare: vec![compare],
            success: vec![pb::RequestOp { request: Some(put) }],
            failure: Vec::new(),
        };
        Ok(self.txn(request).await?.succeeded)
    }

    /// Grants a lease of `ttl` seconds; its id.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn lease_grant(&self, ttl: i64) -> Result<i64, CallError> {
        let show = |r: &pb::LeaseGrantResponse| format!("lease {:x}", r.id);
        let what = format!("grant {ttl} s");
        let grant = self.ask(what, Again::Never, show, move |services| async move {
            let request = pb::LeaseGrantRequest { id: 0, ttl };
            services.lease.grant(&Caller::default(), request).await
        });
        Ok(grant.await?.id)
    }

    /// Renews a lease; the seconds it lasts from now, 0 when it is over.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn lease_keep_alive(&self, lease: i64) -> Result<i64, CallError> {
        let show = |r: &pb::LeaseKeepAliveResponse| format!("{} s", r.ttl);
        let what = format!("keep {lease:x} alive");
        let renew = self.ask(what, Again::Safe, show, move |services| {
            world::keep_alive(services, lease)
        });
        Ok(renew.await?.ttl)
    }

    /// Ends a lease and deletes its keys. No error when it is over already.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn lease_revoke(&self, lease: i64) -> Result<(), CallError> {
        let show = |_: &pb::LeaseRevokeResponse| "ended".to_owned();
        let what = format!("revoke {lease:x}");
        let revoke = self.ask(what, Again::Safe, show, move |services| async move {
            let request = pb::LeaseRevokeRequest { id: lease };
            services.lease.revoke(&Caller::default(), request).await
        });
        match revoke.await {
            Ok(_) | Err(CallError::Refused(Error::LeaseNotFound)) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

fn revision(header: &Option<pb::ResponseHeader>) -> i64 {
    header.as_ref().map_or(0, |h| h.revision)
}

fn put_request(key: &str, value: &str, lease: i64) -> pb::PutRequest {
    pb::PutRequest {
        key: Bytes::copy_from_slice(key.as_bytes()),
        value: Bytes::copy_from_slice(value.as_bytes()),
        lease,
        ..Default::default()
    }
}

fn show_txn(request: &pb::TxnRequest) -> String {
    let key = |key: &Bytes| String::from_utf8_lossy(key).into_owned();
    let guards: Vec<String> = request.compare.iter().map(|c| key(&c.key)).collect();
    let put = |op: &pb::RequestOp| match &op.request {
        Some(request_op::Request::RequestPut(put)) => {
            format!("put {} = {}", key(&put.key), key(&put.value))
        }
        Some(request_op::Request::RequestDeleteRange(d)) => format!("delete {}", key(&d.key)),
        Some(request_op::Request::RequestRange(r)) => format!("get {}", key(&r.key)),
        _ => "txn".to_owned(),
    };
    let then: Vec<String> = request.success.iter().map(put).collect();
    format!("if {} then {}", guards.join(", "), then.join(", "))
}
