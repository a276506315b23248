//! Room storage, MVCC: keys, their revisions and what can be read at each. Pure data structures; no
//! engine calls of its own, no clock, no tasks.
//!
//! **One write, one revision.** Every change of the key space has a position `(main, sub)`: `main` is
//! the store's revision after the request (a transaction has one), `sub` counts the changes inside it
//! from 0. A fresh store stands at 1; the first write makes 2. A request that changes nothing takes no
//! revision.
//!
//! **Records.** A change is kept as etcd keeps it ([`record`]): its position as key, with a `t` for a
//! deletion, and the bytes of `mvccpb.KeyValue` as value (a deletion's value holds the key only). The
//! bytes are made once, at apply; the engine, HashKV, snapshots and answers all use the same ones.
//!
//! **Index.** For every key, [`index::Index`] holds where its changes are ([`entry::KeyEntry`]): the
//! generations of the key, a generation being a life from creation to deletion. Reading at revision R
//! finds the newest change at or below R of the life then running. Values are not here: they stand in
//! [`recent::Recent`] until the engine has them and the memory is wanted, then in the engine.
//!
//! **Compaction at R** makes reads below R fail at once and lets go of what only they could see: for
//! each key the newest change at or below R stays unless it is a deletion before R (a deletion at
//! exactly R stays until the next compaction, so that a watch from R still shows it). The index is
//! swept in chunks while reads and writes go on; the engine's records follow in batches.
//!
//! What this does not do: permission, quotas, leases' life, the order of requests; the state above it
//! decides those.

mod blocks;
pub mod entry;
pub mod hash;
pub mod index;
pub mod read_cache;
pub mod recent;
pub mod record;
pub mod select;
