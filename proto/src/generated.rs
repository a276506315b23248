//! Room proto: what `build.rs` generates from `proto/**.proto`. Nothing here is written by hand.
//!
//! Meanings stand as comments in the schemas. The modules nest as the packages do, because generated
//! code refers to its neighbours by `super::`.
#![allow(
    missing_docs,
    reason = "documented in the schemas, where comments are optional"
)]
#![allow(clippy::all, reason = "generated code")]

pub mod authpb {
    tonic::include_proto!("authpb");
}
pub mod etcdserverpb {
    tonic::include_proto!("etcdserverpb");
}
pub mod mvccpb {
    tonic::include_proto!("mvccpb");
}
pub mod v3electionpb {
    tonic::include_proto!("v3electionpb");
}
pub mod v3lockpb {
    tonic::include_proto!("v3lockpb");
}
pub mod tenon {
    pub mod command {
        tonic::include_proto!("tenon.command");
    }
    pub mod host {
        pub mod v1 {
            tonic::include_proto!("tenon.host.v1");
        }
    }
    pub mod log {
        tonic::include_proto!("tenon.log");
    }
    pub mod peer {
        tonic::include_proto!("tenon.peer");
    }
}

/// Encoded `FileDescriptorSet` of every schema, for reflection and the JSON gateway. Field names are
/// etcd's.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
