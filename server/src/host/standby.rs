//! Room `server/host`: what a host does by itself under automatic membership (docs/adr/0005): as a client it is a
//! standby and takes a place that it sees; removed from the cluster it becomes a client; with an emptied disk it
//! begins anew. How a look is judged stands in `automatic`.

use super::automatic::{LOOK, Own, Place};
use super::core::{Core, StepError, position};
use super::door::Backend;
use super::edges::{Mode, Step};
use super::journal::{Journal, Removal, Switching};
use super::orders::{ChangeError, ChangeOptions, Ended};
use super::running::{Role, Running};
use std::path::Path;
use std::time::Duration;
use tenon_env::{Env, Instant};
use tenon_proto::error::Error;
use tenon_proto::host::StandingResponse;

/// How long a look may take.
const LOOK_WITHIN: Duration = Duration::from_secs(2);
/// Pause after an attempt that failed: others may have more luck.
const AGAIN: Duration = Duration::from_secs(30);

impl Core {
    /// A standby's next look at the cluster, not before `rests_until`; never without automatic membership, nor while
    /// an earlier attempt has still to be cleaned up.
    pub(super) async fn next_look(&self, rests_until: Instant) -> Result<StandingResponse, Error> {
        if self.config.automatic.is_none() || self.journal.leftover.is_some() {
            return std::future::pending().await;
        }
        let next = rests_until.max(self.env.now() + LOOK);
        self.env.clock.sleep_until(next).await;
        self.standing(self.env.now() + LOOK_WITHIN).await
    }

    /// Says what automatic membership does about this host.
    pub(super) fn tell_automatic(&self, text: String) {
        if self.config.automatic.is_some() {
            self.board.edit(|status| status.automatic = text);
        }
    }
}

impl Running {
    /// A standby looked at the cluster: the role that follows.
    pub(super) async fn on_look(&mut self, seen: Result<StandingResponse, Error>) -> Role {
        let Some(automatic) = self.core.config.automatic else {
            return Role::Client;
        };
        let place = match seen {
            Err(error) => Place::None(format!("the members do not answer: {error}")),
            Ok(standing) => {
                let (ours, its) = (self.core.journal.cluster.get(), standing.header.as_ref());
                let its = its.map_or(0, |header| header.cluster_id);
                if ours != 0 && ours != its {
                    Place::None(format!(
                        "the members are of cluster {its:x}, this host of {ours:x}"
                    ))
                } else {
                    let member = &self.core.config.member;
                    let own = Own {
                        name: &member.name,
                        peer_urls: &member.advertise_peer_urls,
                    };
                    let now = self.core.env.now();
                    self.vigil.look(now, &standing, own, &automatic)
                }
            }
        };
        match place {
            Place::None(why) => {
                self.core.tell_automatic(format!("standby: {why}"));
                Role::Client
            }
            Place::Free(replaces) => {
                let whose = replaces.map_or_else(String::new, |id| format!(" of member {id}"));
                self.core.tell_automatic(format!("takes the place{whose}"));
                self.core.replaces = replaces;
                let role = self
                    .switch(Mode::Server, ChangeOptions::default(), 0, None)
                    .await;
                self.core.replaces = None;
                self.rests_until = self.core.env.now() + AGAIN;
                role
            }
        }
    }

    /// Why nobody switches this host by hand.
    pub(super) fn automatic_decides(&self, to: Mode) -> Option<ChangeError> {
        let target = self.core.config.automatic?.target();
        Some(ChangeError {
            remedy: "start the host without --voters-target to switch it by hand; to take it out of the cluster, \
                     stop it"
                .to_owned(),
            ..self.refusal(
                to,
                &format!("automatic membership decides which hosts are servers (--voters-target {target})"),
            )
        })
    }

    /// The member was removed from the cluster. A host that asked for it, in vain as it seemed, or that is under
    /// automatic membership, becomes a client; for any other it is the end.
    pub(super) async fn on_removed(&mut self, why: String) -> Role {
        let steps = self.core.config.edges.steps(Mode::Server, Mode::Client);
        let go_on = steps.ok().and_then(|s| position(s, Step::SeeRemoval));
        let expected = self.core.journal.removal == Removal::Asked;
        let (true, Some(first)) = (expected || self.core.config.automatic.is_some(), go_on) else {
            return Role::Ended(Ended::Removed(why));
        };
        tracing::warn!(
            why,
            "this host's member was removed; the host becomes a client"
        );
        let endpoints = self.core.endpoints_of_others();
        if endpoints.is_empty() {
            return Role::Ended(Ended::Removed(why));
        }
        // From the first step on: a crash after the storage went must not look like storage that was lost.
        let switching = Some(Switching {
            to: Mode::Client,
            step: Step::SeeRemoval,
        });
        let saved = self.core.save(|journal| {
            journal.switching = switching;
            journal.endpoints.clone_from(&endpoints);
        });
        if let Err(StepError::Fatal(why)) = saved.await {
            return Role::Ended(Ended::Failed(why));
        }
        let remote = self.core.ask_through(endpoints);
        let aim = self.aim(Mode::Client, ChangeOptions::default());
        if let Err(error) = self.core.go_to(Backend::Remote(remote), &aim).await {
            tracing::warn!(?error, "the endpoint does not move");
        }
        let options = ChangeOptions::default();
        self.switch(Mode::Client, options, first, None).await
    }
}

impl Core {
    /// Client URLs of the other members: as the own member knows them, then as told earlier.
    fn endpoints_of_others(&self) -> Vec<String> {
        let own = &self.config.member.advertise_client_urls;
        let listed = self.member.iter().flat_map(|member| {
            let context = &member.services().context;
            let (me, members) = (context.member(), context.store().members());
            members.into_iter().filter(move |m| m.id != me)
        });
        let listed = listed.flat_map(|m| m.client_urls);
        let told = self.journal.endpoints.iter().chain(&self.config.endpoints);
        let mut urls: Vec<String> = Vec::new();
        for url in listed.chain(told.cloned()) {
            if !own.contains(&url) && !urls.contains(&url) {
                urls.push(url);
            }
        }
        urls
    }
}

/// What a server whose storage is gone begins with under automatic membership: as a client of its cluster. `None`
/// when it knows nobody to ask.
pub(super) fn begin_anew(journal: &Journal, told: &[String]) -> Option<Journal> {
    let mut endpoints = told.to_vec();
    endpoints.extend(
        journal
            .endpoints
            .iter()
            .filter(|url| !told.contains(url))
            .cloned(),
    );
    (!endpoints.is_empty()).then(|| Journal {
        cluster: journal.cluster,
        endpoints,
        ..Journal::new(Mode::Client)
    })
}

/// Whether nothing at all is left of a member's storage. What has lost only its identity is the operator's to judge.
pub(super) fn is_emptied(env: &Env, data_dir: &Path) -> std::io::Result<bool> {
    let storage = data_dir.join("member");
    Ok(match env.disk.stat(&storage)? {
        None => true,
        Some(_) => env.disk.list(&storage)?.is_empty(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenon_proto::ids::{ClusterId, MemberId};

    #[test]
    fn an_emptied_server_begins_as_a_client_of_its_cluster() {
        let lost = Journal {
            cluster: ClusterId(7),
            member: Some(MemberId(9)),
            endpoints: vec!["b".to_owned(), "c".to_owned()],
            ..Journal::new(Mode::Server)
        };
        let anew = begin_anew(&lost, &["a".to_owned(), "b".to_owned()]).unwrap();
        assert_eq!((anew.mode, anew.member), (Mode::Client, None));
        assert_eq!(anew.cluster, ClusterId(7));
        assert_eq!(anew.endpoints, ["a", "b", "c"]);
        assert_eq!(begin_anew(&Journal::new(Mode::Server), &[]), None);
    }
}
