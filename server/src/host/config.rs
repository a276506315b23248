//! Room `server/host`: what a host is told at its start. Plain data; the shell makes it from flags, an embedder
//! writes it, the simulator draws it.

use super::automatic::Automatic;
use super::edges::{Edges, Mode};
use crate::member::config::MemberConfig;
use std::time::Duration;

/// How long a switch may take unless told otherwise.
pub const CHANGE_WITHIN: Duration = Duration::from_secs(60);

/// What happens to a switch after which the cluster stops when one voter fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultTolerance {
    /// It goes on, with a warning.
    Warn,
    /// It is refused.
    Require,
}

/// A host's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostConfig {
    /// Its member, when it has one; name, data directory and URLs hold in both modes.
    pub member: MemberConfig,
    /// The mode it should be in; none leaves it as the journal says, and a fresh host a server.
    pub mode: Option<Mode>,
    /// Client URLs of members, for a fresh host in client mode. Later the journal knows better.
    pub endpoints: Vec<String>,
    /// How long a switch may take.
    pub change_within: Duration,
    /// What happens to a switch that leaves no fault tolerance.
    pub fault_tolerance: FaultTolerance,
    /// Automatic membership; none leaves modes to whoever switches them. Excludes `mode`.
    pub automatic: Option<Automatic>,
    /// The switches there are.
    pub edges: Edges,
}

impl HostConfig {
    /// A host with this member, and defaults for the rest.
    pub fn new(member: MemberConfig) -> HostConfig {
        HostConfig {
            member,
            mode: None,
            endpoints: Vec::new(),
            change_within: CHANGE_WITHIN,
            fault_tolerance: FaultTolerance::Warn,
            automatic: None,
            edges: Edges::default(),
        }
    }

    /// The mode of a host without a past.
    pub(super) fn first_mode(&self) -> Mode {
        match (self.automatic, self.endpoints.is_empty()) {
            (Some(_), false) => Mode::Client,
            (Some(_), true) => Mode::Server,
            (None, _) => self.mode.unwrap_or(Mode::Server),
        }
    }

    /// Refuses what excludes each other.
    pub(super) fn check(&self) -> Result<(), String> {
        let taken = match (&self.mode, &self.member.wal_dir) {
            (Some(_), _) => "--mode",
            (None, Some(_)) => "--wal-dir",
            (None, None) => return Ok(()),
        };
        match self.automatic {
            None => Ok(()),
            Some(_) => Err(format!(
                "{taken} and --voters-target exclude each other: with automatic membership a host may become a \
                 server or a client at any time"
            )),
        }
    }
}
