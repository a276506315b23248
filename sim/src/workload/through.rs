//! Room `sim`, workloads: requests carried out through a host's door, as a client of its endpoint makes them.

use crate::history::{Reply, Request};
use futures_util::StreamExt;
use tenon_env::sync::mpsc;
use tenon_proto::error::Error;
use tenon_proto::etcdserverpb as pb;
use tenon_server::host::Host;
use tenon_server::host::local::LocalClient;

pub(super) async fn carry_out(host: Host, request: Request) -> Result<Reply, Error> {
    let client = host.client();
    match request {
        Request::Put(r) => client.put(r).await.map(Reply::Put),
        Request::Delete(r) => client.delete_range(r).await.map(Reply::Delete),
        Request::Range(r) => client.range(r).await.map(Reply::Range),
        Request::Txn(r) => client.txn(r).await.map(Reply::Txn),
        Request::Compact(revision) => {
            let request = pb::CompactionRequest {
                revision,
                physical: false,
            };
            client.compact(request).await.map(Reply::Compact)
        }
        Request::Grant(id, ttl) => {
            let request = pb::LeaseGrantRequest { id, ttl };
            client.lease_grant(request).await.map(Reply::Grant)
        }
        Request::Revoke(id) => {
            let request = pb::LeaseRevokeRequest { id };
            client.lease_revoke(request).await.map(Reply::Revoke)
        }
        Request::KeepAlive(id) => keep_alive(&client, id).await.map(Reply::KeepAlive),
        Request::HashKv(revision) => {
            let request = pb::HashKvRequest { revision };
            client.hash_kv(request).await.map(Reply::HashKv)
        }
    }
}

/// One renewal over a stream of its own.
async fn keep_alive(client: &LocalClient, id: i64) -> Result<pb::LeaseKeepAliveResponse, Error> {
    let (requests, from) = mpsc::channel(1);
    let _ = requests.send(pb::LeaseKeepAliveRequest { id }).await;
    let mut answers = client.keep_alive(from)?;
    let answer = answers.next().await;
    answer.unwrap_or(Err(Error::Timeout))
}
