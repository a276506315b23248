//! Room proto: generates Rust from `proto/**.proto` with protox, so a machine needs no protoc.
//!
//! The descriptor set written out keeps etcd's field names, which the JSON gateway needs. Only the
//! copy handed to the Rust generator is renamed where snake-casing would give `peer_ur_ls`.

#![allow(
    clippy::disallowed_methods,
    reason = "a build script runs on the build machine, outside Env"
)]

use prost::Message;
use std::error::Error;
use std::path::PathBuf;

/// Every schema, by its path below `proto/`.
const SCHEMAS: &[&str] = &[
    "authpb/auth.proto",
    "etcdserverpb/auth.proto",
    "etcdserverpb/cluster.proto",
    "etcdserverpb/header.proto",
    "etcdserverpb/kv.proto",
    "etcdserverpb/lease.proto",
    "etcdserverpb/maintenance.proto",
    "etcdserverpb/watch.proto",
    "mvccpb/kv.proto",
    "tenon/command.proto",
    "tenon/host.proto",
    "tenon/log.proto",
    "tenon/peer.proto",
    "v3electionpb/election.proto",
    "v3lockpb/lock.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=proto");
    let out = PathBuf::from(std::env::var("OUT_DIR")?);

    let mut descriptors = protox::compile(SCHEMAS, ["proto"])?;
    // Reflection and the gateway need names and numbers, not comments.
    let mut published = descriptors.clone();
    for file in &mut published.file {
        file.source_code_info = None;
    }
    write_if_changed(out.join("descriptors.bin"), &published.encode_to_vec())?;

    for field in descriptors
        .file
        .iter_mut()
        .flat_map(|f| &mut f.message_type)
        .flat_map(|m| &mut m.field)
    {
        match field.name() {
            "peerURLs" => field.name = Some("peer_urls".into()),
            "clientURLs" => field.name = Some("client_urls".into()),
            _ => {}
        }
    }
    tonic_prost_build::configure()
        .build_server(true)
        .build_client(true)
        .build_transport(false)
        .codec_path("crate::codec::SmallCodec")
        .bytes(".")
        .btree_map(".")
        .compile_fds(descriptors)?;
    Ok(())
}

fn write_if_changed(path: PathBuf, bytes: &[u8]) -> Result<(), Box<dyn Error>> {
    if std::fs::read(&path).ok().as_deref() != Some(bytes) {
        std::fs::write(path, bytes)?;
    }
    Ok(())
}
