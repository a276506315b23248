//! Room `raft`, test: the runtime that openraft runs on passes openraft's own suite on the real world.

use std::sync::Arc;
use tenon_env::real::{self, NoNet};

#[test]
fn openrafts_suite_passes_on_the_real_world() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .expect("a tokio runtime");
    let env = real::env(runtime.handle().clone(), Arc::new(NoNet));
    tenon_raft::runtime_suite(&env, Box::new(move |future| runtime.block_on(future)));
}
