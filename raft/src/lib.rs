//! Room raft.
