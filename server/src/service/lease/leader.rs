//! Room `server/service`: only the leader knows how long a lease has left. It answers what its own clients and
//! what other members ask; those ask again for as long as a request may take, which does no harm.

use super::Lease;
use crate::service::context::Context;
use std::time::Duration;
use tenon_env::Instant;
use tenon_proto::error::Error;
use tenon_proto::etcdserverpb as pb;
use tenon_proto::ids::{MemberId, Term};
use tenon_proto::peer::{RenewLeases, RenewedLeases, ask::Ask, ask_reply::Reply};

/// How often a member that is to lead looks whether it took over the leases, and who leads.
const PAUSE: Duration = Duration::from_millis(10);
/// Pause before the leader is asked again.
const AGAIN: Duration = Duration::from_millis(50);

/// Who leads.
enum Leads {
    Here,
    There(MemberId),
}

/// What a member answered that took itself for the leader; `None` when it lost its office meanwhile: whoever leads now
/// is asked, as in etcd.
fn still_leads<T>(answer: Result<T, Error>) -> Result<Option<T>, Error> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(Error::LeaderChanged | Error::NotLeader) => Ok(None),
        Err(error) => Err(error),
    }
}

impl Lease {
    /// Renews leases at the leader: the TTL of each in seconds, 0 for one that is unknown or ended.
    pub(super) async fn renew_anywhere(&self, ids: &[i64]) -> Result<Vec<i64>, Error> {
        let deadline = self.deadline();
        loop {
            let ask = match self.who_leads(deadline).await? {
                Leads::Here => match still_leads(self.renew_here(ids).await)? {
                    Some(ttls) => return Ok(ttls),
                    None => {
                        self.context.env().sleep(AGAIN).await;
                        continue;
                    }
                },
                Leads::There(leader) => {
                    let ids = ids.to_vec();
                    self.ask(leader, Ask::Renew(RenewLeases { ids }), deadline)
                }
            };
            match ask.await? {
                Some(Reply::Renewed(renewed)) if renewed.ttls.len() == ids.len() => {
                    return Ok(renewed.ttls);
                }
                _ => self.context.env().sleep(AGAIN).await,
            }
        }
    }

    /// The time a lease has left, as the leader knows it; TTL -1 for an unknown one. The header is empty.
    pub(super) async fn time_to_live_anywhere(
        &self,
        request: pb::LeaseTimeToLiveRequest,
    ) -> Result<pb::LeaseTimeToLiveResponse, Error> {
        let deadline = self.deadline();
        loop {
            let ask = match self.who_leads(deadline).await? {
                Leads::Here => match still_leads(self.time_to_live_here(request).await)? {
                    Some(response) => return Ok(response),
                    None => {
                        self.context.env().sleep(AGAIN).await;
                        continue;
                    }
                },
                Leads::There(leader) => self.ask(leader, Ask::TimeToLive(request), deadline),
            };
            match ask.await? {
                Some(Reply::TimeToLive(response)) => return Ok(response),
                _ => self.context.env().sleep(AGAIN).await,
            }
        }
    }

    /// Renews as leader, for this member's clients or another's.
    pub(in crate::service) async fn renew_here(&self, ids: &[i64]) -> Result<Vec<i64>, Error> {
        self.confirm_leading().await?;
        let mut ttls = Vec::with_capacity(ids.len());
        for id in ids {
            ttls.push(self.renew(*id).await?);
        }
        Ok(ttls)
    }

    /// What [`Lease::renew_here`] answers to a member that asks.
    pub(in crate::service) async fn renew_for_peer(&self, ids: &[i64]) -> Reply {
        match self.renew_here(ids).await {
            Ok(ttls) => Reply::Renewed(RenewedLeases { ttls }),
            Err(error) => Reply::Failure(error.into()),
        }
    }

    /// The time a lease has left, as leader.
    pub(in crate::service) async fn time_to_live_here(
        &self,
        request: pb::LeaseTimeToLiveRequest,
    ) -> Result<pb::LeaseTimeToLiveResponse, Error> {
        self.confirm_leading().await?;
        let now = self.context.env().now();
        let leases = self.context.store().leases();
        let id = request.id;
        Ok(match leases.info(id, now, request.keys) {
            None => pb::LeaseTimeToLiveResponse {
                id,
                ttl: -1,
                ..Default::default()
            },
            Some(info) => pb::LeaseTimeToLiveResponse {
                header: None,
                id,
                ttl: info.remaining_seconds,
                granted_ttl: info.granted_seconds,
                keys: info.keys,
            },
        })
    }

    fn deadline(&self) -> Instant {
        self.context.env().now() + self.context.config().request_timeout()
    }

    /// Asks the leader once; `None` when asking again may help.
    async fn ask(
        &self,
        leader: MemberId,
        ask: Ask,
        deadline: Instant,
    ) -> Result<Option<Reply>, Error> {
        let patience = (deadline - self.context.env().now()).min(self.patience());
        match self.context.raft().ask(leader, ask, patience).await {
            Ok(Reply::Failure(failure)) => match Error::from(failure) {
                Error::NotLeader | Error::NoLeader | Error::LeaderChanged | Error::Stopped => {
                    Ok(None)
                }
                Error::Timeout => Ok(None),
                error => Err(error),
            },
            Ok(reply) => Ok(Some(reply)),
            Err(reason) => {
                tracing::debug!(%leader, %reason, "the leader did not answer about leases");
                Ok(None)
            }
        }
    }

    /// How long one answer of the leader is waited for.
    fn patience(&self) -> Duration {
        2 * self.context.config().election
    }

    /// Who leads, once anybody does.
    async fn who_leads(&self, deadline: Instant) -> Result<Leads, Error> {
        let context: &Context = &self.context;
        let left = deadline - context.env().now();
        if left.is_zero() {
            return Err(Error::Timeout);
        }
        let mut status = self.status.clone();
        let known = context
            .env()
            .timeout(left, status.wait_for(|status| status.leader.is_some()));
        let status = match known.await {
            Some(status) => status.map_err(|_| Error::Stopped)?,
            None => return Err(Error::NoLeader),
        };
        Ok(match status.leader {
            Some(leader) if !status.is_leader => Leads::There(leader),
            _ => Leads::Here,
        })
    }

    /// Waits until this member, which leads, has taken over the leases and has had that confirmed; all
    /// callers at one time share the confirmation.
    async fn confirm_leading(&self) -> Result<(), Error> {
        let term = match self.leading() {
            Some(term) if self.context.store().leases().is_leader() => term,
            _ => self.wait_to_lead().await?,
        };
        self.context.read_barrier().await?;
        if self.leading() == Some(term) {
            Ok(())
        } else {
            Err(Error::LeaderChanged)
        }
    }

    async fn wait_to_lead(&self) -> Result<Term, Error> {
        let env = self.context.env();
        let take_over = async {
            while let Some(term) = self.leading() {
                if self.context.store().leases().is_leader() {
                    return Ok(term);
                }
                env.sleep(PAUSE).await;
            }
            Err(Error::NotLeader)
        };
        let waited = env.timeout(self.context.config().request_timeout(), take_over);
        waited.await.unwrap_or(Err(Error::NoLeader))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_lost_the_office_while_it_answered_is_not_the_last_to_be_asked() {
        assert_eq!(still_leads(Ok(1)), Ok(Some(1)));
        for lost in [Error::LeaderChanged, Error::NotLeader] {
            assert_eq!(still_leads::<i64>(Err(lost)), Ok(None));
        }
        for last in [Error::LeaseNotFound, Error::Timeout, Error::Stopped] {
            assert_eq!(still_leads::<i64>(Err(last.clone())), Err(last));
        }
    }
}
