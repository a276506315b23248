//! Room `sim`, L1 for one member: clients work on a member whose node is killed, slowed, paused and run out of
//! disk; it starts again and everything it ever acknowledged or showed must still hold.
//!
//! A run is a [`Plan`]: how many clients, how many calls, and how each life ends. It is drawn from the seed or
//! given by a test that walks through every disk operation. Lives:
//!
//! 1. the member starts on what the last life left; starting may itself be cut short by the next crash;
//! 2. clients call, watchers watch, the positions of DESIGN §5 are looked at all the time;
//! 3. the life ends: a crash at the n-th disk operation or at a moment, or an orderly end.
//!
//! After the last life one more begins without faults: it must become ready and answer, watchers must catch
//! up, leases must end. Then the checkers read the history.
//!
//! Clients are tasks of another node. Their calls run as tasks of the member's node, so that a crash leaves
//! them without an answer, as a broken connection would. There is no gRPC here and no cluster yet.

mod clients;
mod host;
mod plan;
mod run;
mod troubles;
mod watchers;

pub(crate) use plan::small;
pub use plan::{End, LifePlan, Plan};
pub use run::{Report, run, run_told};
