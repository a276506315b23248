//! Room `sim`, cluster: the calls of clients as they are shown later. No checker reads them.

use crate::NodeId;
use crate::html::{Ended, Shown};
use parking_lot::Mutex;
use std::sync::Arc;

/// Calls in the order of their beginnings; shared by all clients of a cluster.
#[derive(Clone, Debug, Default)]
pub(crate) struct Calls(Arc<Mutex<Vec<Shown>>>);

/// Calls kept at most.
const KEPT_MAX: usize = 100_000;

impl Calls {
    pub(super) fn begin(&self, client: NodeId, now: u64, what: String) -> Option<usize> {
        let mut calls = self.0.lock();
        let id = calls.len();
        if id >= KEPT_MAX {
            return None;
        }
        calls.push(Shown {
            name: String::new(),
            client: format!("client {}", client.0),
            what,
            begun: now,
            ended: None,
            how: Ended::Unknown("under way".to_owned()),
        });
        Some(id)
    }

    pub(super) fn end(&self, id: Option<usize>, now: u64, how: Ended) {
        if let Some(id) = id {
            let call = &mut self.0.lock()[id];
            call.ended = Some(now);
            call.how = how;
        }
    }

    pub(super) fn all(&self) -> Vec<Shown> {
        self.0.lock().clone()
    }
}
