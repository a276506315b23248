//! Room `server/host`: who the members are, which of them can answer for this host, and who leads.

use super::forward::unavailable;
use super::targets::Choice;
use super::{CallInfo, HOPS_MAX, Remote, UpstreamError, read, until};
use crate::host::floor::Floor;
use crate::service::method::{Method, Repeat};
use prost::Message;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tenon_env::sync::{Notify, watch};
use tenon_env::{Env, Instant};
use tenon_proto::caller::Caller;
use tenon_proto::error::Error;
use tenon_proto::etcdserverpb as pb;
use tenon_proto::ids::MemberId;

/// How long the members are taken for what they were.
const FRESH: Duration = Duration::from_secs(30);
/// Pause between two looks at who the members are.
const PAUSE: Duration = Duration::from_millis(500);
/// Time for one look at a member.
const LOOK_TIME: Duration = Duration::from_secs(2);
/// Pause before a member that is behind is looked at again.
const BEHIND_PAUSE: Duration = Duration::from_millis(10);
/// Share of the time for a look that one question to a member itself may take, which cannot always be reached.
const DIRECT_SHARE: u32 = 4;

/// The members as last learnt.
#[derive(Default)]
pub(super) struct Members {
    rows: Vec<pb::Member>,
}

/// Keeps the members up to date for as long as somebody holds the host's client mode.
pub(super) async fn run(
    remote: Weak<Remote>,
    env: Env,
    mut stopping: watch::Receiver<bool>,
    lookup: Arc<Notify>,
) {
    let work = async {
        loop {
            let known = match remote.upgrade() {
                Some(remote) => remote.look_up(env.now() + LOOK_TIME).await,
                None => return,
            };
            env.sleep(PAUSE).await;
            if known.is_ok() {
                let _ = env.timeout(FRESH, lookup.notified()).await;
            }
        }
    };
    tokio::select! {
        biased;
        () = until(&mut stopping, |stopping| *stopping) => {}
        () = work => {}
    }
}

impl Remote {
    /// Asks who the members are.
    async fn look_up(&self, deadline: Instant) -> Result<(), Error> {
        let request = pb::MemberListRequest {
            linearizable: false,
        };
        let method = Method::ClusterMemberList;
        let bytes = request.encode_to_vec().into();
        let info = CallInfo::default().of(&Caller::default());
        let answer = self
            .forward_until(method, info, bytes, Repeat::Harmless, deadline)
            .await;
        let answer: pb::MemberListResponse = read(&answer.map_err(|missed| missed.error)?)?;
        let mut urls = Vec::new();
        {
            let mut targets = self.targets.lock();
            for member in answer.members.iter().filter(|m| !m.is_learner) {
                let usable = |url: &&String| !targets.is_avoided(url);
                urls.extend(member.client_urls.iter().filter(usable).cloned());
            }
            if !urls.is_empty() {
                targets.replace(&urls);
            }
        }
        self.members.lock().rows = answer.members;
        if !urls.is_empty() && *self.endpoints.borrow() != urls {
            tracing::info!(?urls, "the members' client URLs");
            self.endpoints.send_replace(urls);
        }
        Ok(())
    }

    /// A member that can answer, rather not `other_than`; looks at it first when that was not done, with a call that
    /// has passed as many doors as the one it is picked for: the "member" may be another host.
    pub(super) async fn pick(
        &self,
        deadline: Instant,
        other_than: Option<&str>,
        hops: u8,
    ) -> Result<String, Error> {
        loop {
            let now = self.env.now();
            let choice = self.targets.lock().choose(now, other_than);
            let wakes = match choice {
                Choice::Ask(url) => return Ok(url),
                Choice::Look(url) if now < deadline => {
                    match self.look_at(&url, deadline, hops).await {
                        Ok(()) => return Ok(url),
                        Err(why) => self.blame(&url, why),
                    }
                    continue;
                }
                Choice::Look(_) => deadline,
                Choice::Rest(wakes) => wakes,
                Choice::None => deadline,
            };
            if now >= deadline {
                let text = format!("no member answers: {}", self.targets.lock().complaint());
                return Err(unavailable(&text));
            }
            self.env.clock.sleep_until(wakes.min(deadline)).await;
        }
    }

    /// Whether a member can answer for this host; the error says what it lacks. One that is only behind is waited
    /// for a little.
    async fn look_at(&self, url: &str, deadline: Instant, hops: u8) -> Result<(), String> {
        let until = deadline.min(self.env.now() + LOOK_TIME);
        if self.floor.owes_a_read() {
            self.settle_floor(url, until, hops).await?;
        }
        loop {
            let status = self.status_of(url, until, hops).await?;
            let (header, floor) = (status.header.unwrap_or_default(), self.floor.now());
            if !floor.is_of_cluster(&header) {
                return Err(format!(
                    "it belongs to cluster {:x}, not to {:x}",
                    header.cluster_id, floor.cluster_id
                ));
            }
            if status.is_learner {
                return Err("it has no vote".to_owned());
            }
            if status.leader == 0 {
                return Err(Error::NoLeader.message());
            }
            if floor.allows(&header) {
                let cluster_id = header.cluster_id;
                self.floor.raise(Floor {
                    cluster_id,
                    ..Floor::default()
                });
                self.targets.lock().is_fit(url);
                return Ok(());
            }
            if self.env.now() + BEHIND_PAUSE >= until {
                return Err(format!(
                    "it is behind, at revision {} of term {}",
                    header.revision, header.raft_term
                ));
            }
            self.env.sleep(BEHIND_PAUSE).await;
        }
    }

    async fn status_of(
        &self,
        url: &str,
        until: Instant,
        hops: u8,
    ) -> Result<pb::StatusResponse, String> {
        let request = pb::StatusRequest::default();
        self.ask_unknown(url, Method::MaintenanceStatus, &request, until, hops)
            .await
    }

    /// Learns what this host may have answered before its process began: nothing newer than what a member has applied
    /// that just answered by a quorum. A list of members carries no revision (as in etcd); the status that is asked
    /// for next does, and must be of the same member. Behind a URL there may be several: another host in client mode sends
    /// the two questions to different members, perhaps always (seed 455 of hosts). So that member is asked directly too.
    async fn settle_floor(&self, url: &str, until: Instant, hops: u8) -> Result<(), String> {
        let request = pb::MemberListRequest { linearizable: true };
        loop {
            let list: pb::MemberListResponse = self
                .ask_unknown(url, Method::ClusterMemberList, &request, until, hops)
                .await?;
            let id = list.header.unwrap_or_default().member_id;
            let mut status = self.status_of(url, until, hops).await?;
            let is_other = |status: &pb::StatusResponse| {
                status.header.as_ref().is_none_or(|h| h.member_id != id)
            };
            if is_other(&status)
                && let Some(direct) = self.url_among(&list.members, id)
            {
                let now = self.env.now();
                let soon = now + (until - now) / DIRECT_SHARE;
                let asked = self.status_of(&direct, soon, hops).await;
                status = asked.unwrap_or(status);
            }
            if !is_other(&status) {
                self.floor
                    .settle(Floor::from(&status.header.unwrap_or_default()));
                return Ok(());
            }
            if self.env.now() + BEHIND_PAUSE >= until {
                return Err(format!(
                    "behind it answers now one member, now another, and {} itself does not answer",
                    MemberId(id)
                ));
            }
            self.env.sleep(BEHIND_PAUSE).await;
        }
    }

    /// A client URL of a listed member, that is not this host's own.
    fn url_among(&self, members: &[pb::Member], id: u64) -> Option<String> {
        let member = members.iter().find(|member| member.id == id)?;
        let targets = self.targets.lock();
        let mut urls = member.client_urls.iter();
        urls.find(|url| !targets.is_avoided(url)).cloned()
    }

    async fn ask_unknown<Q: Message, R: Message + Default>(
        &self,
        url: &str,
        method: Method,
        request: &Q,
        until: Instant,
        hops: u8,
    ) -> Result<R, String> {
        // Whether it belongs to the cluster is not known yet: it gets nobody's token.
        let info = CallInfo {
            hops,
            ..CallInfo::default()
        };
        let request = request.encode_to_vec().into();
        let asked = self.upstream.unary(url, method, info, request);
        match self.env.timeout(until - self.env.now(), asked).await {
            Some(Ok(bytes)) => read(&bytes).map_err(|error| error.message()),
            Some(Err(UpstreamError::Status(error))) => Err(error.message()),
            Some(Err(UpstreamError::NotSent(why) | UpstreamError::Broken(why))) => Err(why),
            None => Err("no answer in time".to_owned()),
        }
    }

    /// The leader's client URL, or another member's when the leader's is not known, does not answer, or is this
    /// host's own.
    pub(super) async fn leader(&self, deadline: Instant, hops: u8) -> Result<String, Error> {
        // For another host less and less time, so that hosts that ask each other in a circle come to an end.
        let patience = LOOK_TIME / 4_u32.pow(u32::from(hops.clamp(1, HOPS_MAX)) - 1);
        let deadline = match hops {
            0 | 1 => deadline,
            _ => deadline.min(self.env.now() + patience),
        };
        loop {
            let any = self.pick(deadline, None, hops).await?;
            let until = deadline.min(self.env.now() + LOOK_TIME);
            let leader = match self.status_of(&any, until, hops).await {
                Ok(status) if status.leader != 0 => status.leader,
                Ok(_) => {
                    self.blame(&any, Error::NoLeader.message());
                    continue;
                }
                Err(why) => {
                    self.blame(&any, why);
                    continue;
                }
            };
            let known = self.url_of(leader);
            if known.is_none() {
                let _ = Box::pin(self.look_up(until)).await;
            }
            return Ok(known.or_else(|| self.url_of(leader)).unwrap_or(any));
        }
    }

    fn url_of(&self, member: u64) -> Option<String> {
        let members = self.members.lock();
        let row = members.rows.iter().find(|row| row.id == member)?;
        let targets = self.targets.lock();
        let now = self.env.now();
        let mut urls = row.client_urls.iter();
        urls.find(|url| targets.is_worth_asking(url, now)).cloned()
    }
}
