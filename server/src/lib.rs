//! Room `server`: one etcd member as a library. `service` holds etcd's services as plain async functions,
//! `member` one running member, `host` its modes and its one endpoint, `shell` everything that touches sockets, files,
//! signals and the process. Only `shell` may know of sockets and of the real world; the others reach it through `Env`
//! (DESIGN §2).

pub mod host;
pub mod member;
pub mod service;
pub mod shell;
pub mod version;
