//! Room `client`: the endpoints, and which one is asked. Decides nothing about retries.

use crate::endpoint::Endpoint;
use crate::options::ConnectOptions;
use parking_lot::Mutex;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;
use tenon_proto::code::Code;
use tenon_proto::error::Error;

/// Pauses between health checks of a failed endpoint: the first, doubled up to the last.
const PROBE_PAUSES: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(8));

/// The endpoints of a client; never empty.
#[derive(Debug)]
pub(crate) struct Pool {
    options: ConnectOptions,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    endpoints: Vec<Arc<Endpoint>>,
    current: usize,
}

impl Pool {
    /// Begins at a random endpoint, so that many clients of one list spread.
    ///
    /// # Errors
    /// `InvalidArgument` for an empty list or an endpoint that cannot be used.
    pub(crate) fn new(urls: &[String], options: ConnectOptions) -> Result<Pool, Error> {
        let mut endpoints = Vec::new();
        for url in urls {
            endpoints.push(Arc::new(Endpoint::new(url, &options)?));
        }
        if endpoints.is_empty() {
            let text = "tenon: at least one endpoint is required";
            return Err(Error::other(Code::InvalidArgument, text));
        }
        let random = RandomState::new().hash_one(0_u8);
        let count = u64::try_from(endpoints.len()).expect("fits");
        let current = usize::try_from(random % count).expect("below a usize");
        Ok(Pool {
            options,
            state: Mutex::new(State { endpoints, current }),
        })
    }

    /// The endpoint to ask: the same as before while it does not count as failed, else the next that does
    /// not, else simply the next.
    pub(crate) fn pick(&self) -> Arc<Endpoint> {
        let mut state = self.state.lock();
        let count = state.endpoints.len();
        let order = (0..count).map(|step| (state.current + step) % count);
        let healthy = order
            .into_iter()
            .find(|at| !state.endpoints[*at].is_failed());
        state.current = healthy.unwrap_or((state.current + 1) % count);
        state.endpoints[state.current].clone()
    }

    pub(crate) fn len(&self) -> usize {
        self.state.lock().endpoints.len()
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        let state = self.state.lock();
        state.endpoints.iter().map(|e| e.url.clone()).collect()
    }

    /// The endpoint of that URL, or a new one outside the pool.
    ///
    /// # Errors
    /// `InvalidArgument` when it cannot be used.
    pub(crate) fn named(&self, url: &str) -> Result<Arc<Endpoint>, Error> {
        let fresh = Endpoint::new(url, &self.options)?;
        let state = self.state.lock();
        let known = state.endpoints.iter().find(|e| e.url == fresh.url);
        Ok(known.cloned().unwrap_or_else(|| Arc::new(fresh)))
    }

    /// Replaces the endpoints, keeping connections of those that stay. URLs that cannot be used are left out;
    /// if none is left, nothing changes.
    pub(crate) fn replace(&self, urls: &[String]) {
        let mut endpoints: Vec<Arc<Endpoint>> = Vec::new();
        for url in urls {
            match self.named(url) {
                Ok(endpoint) if endpoints.iter().all(|e| e.url != endpoint.url) => {
                    endpoints.push(endpoint);
                }
                Ok(_) => {}
                Err(error) => tracing::debug!(%error, "an advertised client URL is left out"),
            }
        }
        if endpoints.is_empty() {
            return;
        }
        let mut state = self.state.lock();
        let current = state.endpoints[state.current].url.clone();
        let at = endpoints.iter().position(|e| e.url == current);
        *state = State {
            endpoints,
            current: at.unwrap_or(0),
        };
    }
}

/// Marks an endpoint as failed; a task of its own asks its health until it serves again or is dropped.
pub(crate) fn mark_failed(endpoint: &Arc<Endpoint>) {
    if endpoint.set_failed(true) {
        return;
    }
    let endpoint = Arc::downgrade(endpoint);
    tokio::spawn(async move {
        let (mut pause, pause_max) = PROBE_PAUSES;
        loop {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(pause_max);
            let Some(endpoint) = endpoint.upgrade() else {
                return;
            };
            if !endpoint.is_failed() || endpoint.is_serving().await {
                endpoint.set_failed(false);
                return;
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(urls: &[&str]) -> Result<Pool, Error> {
        let urls: Vec<String> = urls.iter().map(|u| (*u).to_owned()).collect();
        Pool::new(&urls, ConnectOptions::default())
    }

    #[tokio::test]
    async fn a_failed_endpoint_is_left_and_the_good_one_kept() {
        let pool = pool(&["a:1", "b:1", "c:1"]).expect("valid");
        let first = pool.pick();
        assert!(Arc::ptr_eq(&first, &pool.pick()), "stays while healthy");
        first.set_failed(true);
        let second = pool.pick();
        assert!(!Arc::ptr_eq(&first, &second));
        first.set_failed(false);
        assert!(
            Arc::ptr_eq(&second, &pool.pick()),
            "does not go back by itself"
        );

        second.set_failed(true);
        let third = pool.pick();
        third.set_failed(true);
        first.set_failed(true);
        let mut seen: Vec<String> = (0..3).map(|_| pool.pick().url.clone()).collect();
        seen.sort();
        assert_eq!(
            seen,
            ["http://a:1", "http://b:1", "http://c:1"],
            "all failed: in turn"
        );
    }

    #[tokio::test]
    async fn replacing_keeps_what_stays_and_never_empties() {
        let pool = pool(&["a:1"]).expect("valid");
        let a = pool.pick();
        pool.replace(&[
            "http://b:1".into(),
            "http://a:1".into(),
            "http://a:1/".into(),
        ]);
        assert_eq!(pool.urls(), ["http://b:1", "http://a:1"]);
        assert!(
            Arc::ptr_eq(&a, &pool.pick()),
            "the endpoint in use stays in use"
        );
        pool.replace(&["https://only-tls:1".into()]);
        assert_eq!(pool.len(), 2, "nothing usable: unchanged");
        assert!(self::pool(&[]).is_err());
    }
}
