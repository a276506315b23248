//! `bench/floor`: a bare tonic server with etcd's KV messages that stores nothing. What it costs is what
//! gRPC alone costs; no server built on tonic can cost less.
#![allow(
    clippy::disallowed_methods,
    reason = "a program of its own, not a node"
)]

use std::pin::Pin;
use tenon_proto::etcdserverpb::kv_server::{Kv, KvServer};
use tenon_proto::etcdserverpb::{
    CompactionRequest, CompactionResponse, DeleteRangeRequest, DeleteRangeResponse, PutRequest,
    PutResponse, RangeRequest, RangeResponse, RangeStreamResponse, ResponseHeader, TxnRequest,
    TxnResponse,
};
use tonic::{Request, Response, Status};

struct Floor;

type Answer<T> = Result<Response<T>, Status>;

fn header() -> Option<ResponseHeader> {
    Some(ResponseHeader {
        cluster_id: u64::MAX,
        member_id: u64::MAX,
        revision: 1 << 20,
        raft_term: 2,
    })
}

#[tonic::async_trait]
impl Kv for Floor {
    type RangeStreamStream =
        Pin<Box<dyn tokio_stream::Stream<Item = Result<RangeStreamResponse, Status>> + Send>>;

    async fn range(&self, _: Request<RangeRequest>) -> Answer<RangeResponse> {
        Ok(Response::new(RangeResponse {
            header: header(),
            ..Default::default()
        }))
    }

    async fn put(&self, _: Request<PutRequest>) -> Answer<PutResponse> {
        Ok(Response::new(PutResponse {
            header: header(),
            ..Default::default()
        }))
    }

    async fn delete_range(&self, _: Request<DeleteRangeRequest>) -> Answer<DeleteRangeResponse> {
        Ok(Response::new(DeleteRangeResponse {
            header: header(),
            ..Default::default()
        }))
    }

    async fn txn(&self, _: Request<TxnRequest>) -> Answer<TxnResponse> {
        Ok(Response::new(TxnResponse {
            header: header(),
            ..Default::default()
        }))
    }

    async fn compact(&self, _: Request<CompactionRequest>) -> Answer<CompactionResponse> {
        Ok(Response::new(CompactionResponse { header: header() }))
    }

    async fn range_stream(&self, _: Request<RangeRequest>) -> Answer<Self::RangeStreamStream> {
        Err(Status::unimplemented("the floor answers unary calls only"))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let port: u16 = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "24300".to_owned())
        .parse()?;
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], port));
    tonic::transport::Server::builder()
        .tcp_nodelay(true)
        .add_service(KvServer::new(Floor))
        .serve(address)
        .await?;
    Ok(())
}
