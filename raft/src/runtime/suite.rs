//! Room `raft`: openraft's own runtime conformance suite, run on whatever world an `Env` offers.

use super::NodeRuntime;
use openraft_rt::testing::Suite;
use std::future::Future;
use std::pin::Pin;
use tenon_env::{Env, NodeScope};

/// Runs a future to its end from outside any task: `Handle::block_on` in reality, the executor's loop in
/// the simulator.
pub type Drive = Box<dyn FnMut(Pin<&mut dyn Future<Output = ()>>)>;

pub(super) struct Driver {
    env: Env,
    drive: Drive,
}

impl Driver {
    pub(super) fn block_on<F: Future>(&mut self, future: F) -> F::Output {
        let mut out = None;
        {
            let mut scoped = std::pin::pin!(NodeScope::new(self.env.clone(), async {
                out = Some(future.await)
            }));
            (self.drive)(scoped.as_mut());
        }
        out.expect("the driver runs the future to its end")
    }
}

/// Runs openraft's runtime suite on the node of `env`.
///
/// # Panics
/// When the runtime breaks a rule that openraft relies on.
pub fn runtime_suite(env: &Env, drive: Drive) {
    let mut runtime = NodeRuntime(Driver {
        env: env.clone(),
        drive,
    });
    Suite::<NodeRuntime>::test_all_on(&mut runtime);
}
