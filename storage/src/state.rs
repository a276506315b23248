//! Room storage, state: the replicated state of one member, and the only way in: [`Store`]. May use the
//! other parts of this room, proto and env; no sockets, no openraft.

mod store;

pub use store::{Fatal, OpenError, Store, StoreOptions, StoreSize};
