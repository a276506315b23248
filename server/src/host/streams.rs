//! Room `server/host`: streams through the door. What comes out is what the client gets, wherever it is answered.

use super::door::{Backend, Door, Phase, Stay, Visit};
use super::keep_alive::KeepAlive;
use super::remote::{Remote, UpstreamError, read, until};
use super::watch_move::WatchMove;
use crate::service::Services;
use crate::service::method::Method;
use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt};
use prost::Message;
use std::sync::Arc;
use tenon_env::sync::mpsc;
use tenon_proto::caller::Caller;
use tenon_proto::error::Error;
use tenon_proto::etcdserverpb as pb;

/// Answers; an error is the last.
pub type Stream<R> = BoxStream<'static, Result<R, Error>>;

/// Parts of an answer written ahead of a slow client.
const PARTS: usize = 4;

impl Door {
    /// A client's stream of watches. It goes on wherever the endpoint moves, without gap or repeat.
    pub fn watch(
        &self,
        visit: Visit,
        requests: mpsc::Receiver<pb::WatchRequest>,
    ) -> Stream<pb::WatchResponse> {
        let watches = Box::new(WatchMove::new(self, visit, requests));
        stream::unfold(watches, |mut watches| async {
            let answer = watches.next().await?;
            Some((answer, watches))
        })
        .boxed()
    }

    /// A client's stream of lease renewals. It goes on wherever the endpoint moves; ends with `requests`.
    pub fn keep_alive(
        &self,
        visit: Visit,
        requests: mpsc::Receiver<pb::LeaseKeepAliveRequest>,
    ) -> Stream<pb::LeaseKeepAliveResponse> {
        let renewals = Box::new(KeepAlive::new(self, visit, requests));
        stream::unfold(renewals, |mut renewals| async {
            let answer = renewals.next().await?;
            Some((answer, renewals))
        })
        .boxed()
    }

    /// An answer in parts; `here` sends them on the host's own member. It ends where it began: on a move it may finish
    /// within the time for that.
    pub fn parts<Q, R, F>(
        &self,
        visit: Visit,
        method: Method,
        request: Q,
        here: impl FnOnce(Arc<Services>, Caller, Q, mpsc::Sender<Result<R, Error>>) -> F,
    ) -> mpsc::Receiver<Result<R, Error>>
    where
        Q: Message,
        R: Message + Default + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let (out, parts) = mpsc::channel(PARTS);
        let Visit { stay, caller, info } = visit;
        match stay.backend().clone() {
            Backend::Closed(error) => {
                let _ = out.try_send(Err(error));
            }
            Backend::Member(services) => {
                let (door, its, to) = (self.clone(), stay.clone(), out.clone());
                let level = services.clone();
                let sending = here(services, caller, request, out.clone());
                let sending = async move {
                    match door.wait_level(&its, &level).await {
                        Ok(()) => sending.await,
                        Err(error) => drop(to.try_send(Err(error))),
                    }
                };
                self.env()
                    .spawn("parts", until_cut(stay, out, Box::pin(sending)));
            }
            Backend::Remote(remote) => {
                let (info, request) = (info.of(&caller), request.encode_to_vec().into());
                let to = out.clone();
                let sending = async move {
                    let mut first = true;
                    while !forward(&remote, method, info.clone(), &request, &to, &mut first).await {
                    }
                };
                self.env()
                    .spawn("parts", until_cut(stay, out, Box::pin(sending)));
            }
        }
        parts
    }
}

/// Sends parts until that is done or the stay is over.
async fn until_cut<R: Send + 'static>(
    stay: Arc<Stay>,
    out: mpsc::Sender<Result<R, Error>>,
    sending: tenon_env::BoxFuture<'static, ()>,
) {
    let mut phases = stay.watch_phase();
    tokio::select! {
        biased;
        () = sending => {}
        () = until(&mut phases, |phase| *phase == Phase::Cut) => {
            let _ = out.try_send(Err(Error::Stopped));
        }
    }
}

/// Passes on a member's parts; false when none came, so that another member may be asked.
async fn forward<R: Message + Default>(
    remote: &Remote,
    method: Method,
    info: super::remote::CallInfo,
    request: &Bytes,
    out: &mpsc::Sender<Result<R, Error>>,
    first: &mut bool,
) -> bool {
    let mut opened = match remote.open(method, info, vec![request.clone()]).await {
        Ok(opened) => opened,
        Err(missed) => {
            let _ = out.send(Err(missed.error)).await;
            return true;
        }
    };
    loop {
        let part = tokio::select! {
            biased;
            () = out.closed() => return true,
            part = opened.answers.recv() => part,
        };
        let part = match part {
            None => return true,
            Some(Ok(bytes)) => read(&bytes),
            Some(Err(UpstreamError::Status(error))) => Err(error),
            Some(Err(UpstreamError::NotSent(why) | UpstreamError::Broken(why))) => {
                remote.blame(&opened.target, why);
                if *first {
                    return false;
                }
                Err(Error::TimeoutDueToConnectionLost)
            }
        };
        *first = false;
        let last = part.is_err();
        if out.send(part).await.is_err() || last {
            return true;
        }
    }
}
