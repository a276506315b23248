//! Room `raft`: how openraft hands over the outcome of an entry: it calls a closure, on the task that
//! applied the entry, so that no further task stands between apply and the waiting callers.

use super::Config;
use openraft::raft::responder::Responder;

type Call<T> = Box<dyn FnOnce(T) + Send>;

/// Called once with the outcome; dropped uncalled when raft stops first.
pub(crate) struct OnComplete<T>(Call<T>);

impl<T> OnComplete<T> {
    pub(crate) fn new(call: impl FnOnce(T) + Send + 'static) -> OnComplete<T> {
        OnComplete(Box::new(call))
    }
}

impl<T: Send + 'static> Responder<Config, T> for OnComplete<T> {
    fn on_complete(self, outcome: T) {
        (self.0)(outcome);
    }
}
