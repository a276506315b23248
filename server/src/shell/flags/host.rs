//! Room `server/shell`: the flags of host modes, as a typed part of the configuration. Pure.

use super::config::{reject, span_or};
use super::settings::{Exit, Settings};
use crate::host::automatic::REPLACE_AFTER;
use crate::host::config::CHANGE_WITHIN;
use crate::host::{Automatic, FaultTolerance, HostConfig, Mode};
use crate::member::config::MemberConfig;
use std::time::Duration;

/// What the flags say of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostSettings {
    /// The mode it should be in.
    pub mode: Option<Mode>,
    /// Client URLs of members.
    pub endpoints: Vec<String>,
    /// How long a switch may take.
    pub change_within: Duration,
    /// What happens to a switch that leaves no fault tolerance.
    pub fault_tolerance: FaultTolerance,
    /// Automatic membership, where it is on.
    pub automatic: Option<Automatic>,
}

impl HostSettings {
    pub(super) fn build(settings: &Settings) -> Result<HostSettings, Exit> {
        let mode = match settings.text("mode").as_str() {
            "" => None,
            text => Some(Mode::read(text).map_err(|why| Exit::Rejected(format!("--mode: {why}")))?),
        };
        let own = settings.list("advertise-client-urls");
        let mut endpoints = Vec::new();
        for text in settings.list("endpoints") {
            let url = match text.contains("://") {
                true => text.clone(),
                false => format!("http://{text}"),
            };
            let read = super::url::FlagUrl::read(&url);
            read.map_err(|why| Exit::Rejected(format!("--endpoints {text:?}: {why}")))?;
            if own.contains(&url) {
                return reject(format!(
                    "--endpoints {text:?} is this host's own client URL: name the cluster's members"
                ));
            }
            endpoints.push(url);
        }
        Ok(HostSettings {
            mode,
            endpoints,
            change_within: span_or(settings, "mode-change-timeout", CHANGE_WITHIN),
            fault_tolerance: match settings.flag("require-fault-tolerance") {
                true => FaultTolerance::Require,
                false => FaultTolerance::Warn,
            },
            automatic: automatic(settings)?,
        })
    }

    /// Whether a host without a past begins as a client, and asks nobody's peers who it is.
    pub(in super::super) fn begins_as_client(&self) -> bool {
        self.mode == Some(Mode::Client) || (self.automatic.is_some() && !self.endpoints.is_empty())
    }

    /// The host's configuration around a member's.
    pub fn config(&self, member: MemberConfig) -> HostConfig {
        HostConfig {
            mode: self.mode,
            endpoints: self.endpoints.clone(),
            change_within: self.change_within,
            fault_tolerance: self.fault_tolerance,
            automatic: self.automatic,
            ..HostConfig::new(member)
        }
    }
}

fn automatic(settings: &Settings) -> Result<Option<Automatic>, Exit> {
    let target = settings.uint("voters-target");
    if target == 0 {
        return Ok(None);
    }
    let target = u32::try_from(target).unwrap_or(u32::MAX);
    let after = span_or(settings, "replace-after", REPLACE_AFTER);
    Automatic::new(target, after)
        .map(Some)
        .map_err(Exit::Rejected)
}

#[cfg(test)]
mod tests {
    use super::super::parse::{read_args, read_env};
    use super::*;
    use std::collections::BTreeMap;

    fn build(line: &str) -> Result<HostSettings, Exit> {
        let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        HostSettings::build(&read_args(&args)?)
    }

    #[test]
    fn modes_and_endpoints_are_read_and_checked() {
        let plain = build("").unwrap();
        assert_eq!((plain.mode, plain.change_within), (None, CHANGE_WITHIN));
        let client = build("--mode client --endpoints a:1,http://b:2").unwrap();
        assert_eq!(client.mode, Some(Mode::Client));
        assert_eq!(client.endpoints, ["http://a:1", "http://b:2"]);
        let automatic = |line| build(line).unwrap().automatic;
        let three = Automatic::new(3, REPLACE_AFTER).unwrap();
        assert_eq!(automatic("--voters-target 3"), Some(three));
        assert_eq!(automatic("--replace-after 9s"), None);
        assert!(!build("--voters-target 3").unwrap().begins_as_client());
        let joins = build("--voters-target 3 --endpoints a:1").unwrap();
        assert!(joins.begins_as_client());
        for (line, text) in [
            (
                "--mode witness",
                "--mode: unknown mode \"witness\": a host is a server or a client",
            ),
            (
                "--voters-target 2",
                "--voters-target 2: a cluster has 1, 3, 5 or 7 voters",
            ),
            (
                "--voters-target 3 --replace-after 1s",
                "--replace-after 1s: at least three seconds, or a restart looks like a death",
            ),
            (
                "--endpoints localhost:2379",
                "--endpoints \"localhost:2379\" is this host's own client URL: name the cluster's members",
            ),
        ] {
            assert_eq!(build(line).unwrap_err().text(), text);
        }
        let vars = BTreeMap::from([("TENON_MODE".to_owned(), "server".to_owned())]);
        let mut settings = Settings::default();
        assert_eq!(read_env(&mut settings, &vars), Ok(vec![]));
        assert_eq!(
            HostSettings::build(&settings).unwrap().mode,
            Some(Mode::Server)
        );
    }
}
