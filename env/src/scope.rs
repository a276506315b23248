//! Room `env`: the node a piece of code runs for. openraft's runtime has static functions only, so `raft`'s
//! runtime finds its node's [`Env`] in a thread-local that [`NodeScope`] sets around every poll. Tasks started
//! through [`Env::spawn`] inherit it. Nothing else may rely on it.

use crate::Env;
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

thread_local! {
    static CURRENT: RefCell<Option<Env>> = const { RefCell::new(None) };
}

/// The [`Env`] of the node whose code runs on this thread now, or `None` outside any node.
pub fn current() -> Option<Env> {
    CURRENT.with(|c| c.borrow().clone())
}

/// Runs `f` with `env` as the current node.
pub fn enter<T>(env: &Env, f: impl FnOnce() -> T) -> T {
    let _restore = Restore(CURRENT.with(|c| c.replace(Some(env.clone()))));
    f()
}

struct Restore(Option<Env>);

impl Drop for Restore {
    fn drop(&mut self) {
        CURRENT.with(|c| *c.borrow_mut() = self.0.take());
    }
}

/// A future that is polled, and dropped, with its node as the current one.
pub struct NodeScope<F> {
    env: Env,
    future: Pin<Box<F>>,
}

impl<F: Future> NodeScope<F> {
    /// Binds `future` to the node of `env`.
    pub fn new(env: Env, future: F) -> NodeScope<F> {
        NodeScope { env, future: Box::pin(future) }
    }
}

impl<F: Future> Future for NodeScope<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.get_mut();
        enter(&this.env, || this.future.as_mut().poll(cx))
    }
}
