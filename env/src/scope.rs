//! Room `env`: the node a piece of code runs for. openraft's runtime has static functions only, so `raft`'s
//! runtime finds its node's [`Env`] in a thread-local that [`NodeScope`] sets around every poll. Tasks started
//! through [`Env::spawn`] inherit it. Nothing else may rely on it.

use crate::Env;
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

thread_local! {
    static CURRENT: RefCell<Option<Arc<Env>>> = const { RefCell::new(None) };
}

/// The [`Env`] of the node whose code runs on this thread now, or `None` outside any node.
pub fn current() -> Option<Env> {
    with(|env| env.cloned())
}

/// As [`current`] without a copy; `f` must not poll futures of another node.
pub fn with<T>(f: impl FnOnce(Option<&Env>) -> T) -> T {
    CURRENT.with(|c| f(c.borrow().as_deref()))
}

/// Runs `f` with `env` as the current node.
pub fn enter<T>(env: &Env, f: impl FnOnce() -> T) -> T {
    let mut slot = Some(Arc::new(env.clone()));
    let _restore = Swapped::new(&mut slot);
    f()
}

/// While it lives, the slot's content is the current node and the slot holds the one before.
struct Swapped<'a>(&'a mut Option<Arc<Env>>);

impl Swapped<'_> {
    fn new(slot: &mut Option<Arc<Env>>) -> Swapped<'_> {
        CURRENT.with(|c| std::mem::swap(slot, &mut *c.borrow_mut()));
        Swapped(slot)
    }
}

impl Drop for Swapped<'_> {
    fn drop(&mut self) {
        // No place to swap with when the thread itself is ending: then nobody asks any more.
        let _ = CURRENT.try_with(|c| std::mem::swap(self.0, &mut *c.borrow_mut()));
    }
}

/// A future that is polled, and dropped, with its node as the current one.
pub struct NodeScope<F> {
    env: Option<Arc<Env>>,
    future: Option<Pin<Box<F>>>,
}

impl<F: Future> NodeScope<F> {
    /// Binds `future` to the node of `env`.
    pub fn new(env: Env, future: F) -> NodeScope<F> {
        NodeScope {
            env: Some(Arc::new(env)),
            future: Some(Box::pin(future)),
        }
    }
}

impl<F: Future> Future for NodeScope<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.get_mut();
        let _entered = Swapped::new(&mut this.env);
        this.future
            .as_mut()
            .expect("polled after its drop")
            .as_mut()
            .poll(cx)
    }
}

impl<F> Drop for NodeScope<F> {
    fn drop(&mut self) {
        let mut env = self.env.take();
        let _entered = CURRENT
            .try_with(|_| ())
            .is_ok()
            .then(|| Swapped::new(&mut env));
        self.future = None;
    }
}
