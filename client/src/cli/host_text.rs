//! Room `client`, command lines: a host's status as people read it. Pure.

use std::fmt::Write as _;
use tenon_proto::host::{Mode, StatusResponse};

/// The word for a mode.
pub(super) fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Unspecified => "unknown",
        Mode::Server => "server",
        Mode::Client => "client",
    }
}

/// Several lines, `name: value` each; what does not apply is left out.
pub(super) fn status(status: &StatusResponse) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        if !value.is_empty() {
            let _ = writeln!(text, "{:<14}{value}", format!("{name}:"));
        }
    };
    let id = |id: u64| match id {
        0 => String::new(),
        id => format!("{id:x}"),
    };
    line("host", &status.name);
    line("mode", mode_name(status.mode()));
    if status.switching_to() != Mode::Unspecified {
        let to = mode_name(status.switching_to());
        let at = format!("{}/{} {}", status.step_number, status.steps, status.step);
        line("switching to", &format!("{to}, step {at}"));
    }
    line("cluster", &id(status.cluster_id));
    line("member", &id(status.member_id));
    line("leader", &id(status.leader));
    line("client urls", &status.client_urls.join(", "));
    if status.mode() == Mode::Client {
        line("asks", &status.endpoints.join(", "));
    }
    if status.voters_target > 0 {
        let (target, doing) = (status.voters_target, &status.automatic);
        line("automatic", &format!("up to {target} voters; {doing}"));
    }
    line("leftover", &id(status.leftover_member));
    for warning in &status.warnings {
        line("warning", warning);
    }
    line("error", &status.error);
    line("note", &status.note);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_in_the_middle_of_a_switch_reads_like_this() {
        let given = StatusResponse {
            mode: Mode::Client.into(),
            switching_to: Mode::Server.into(),
            step: "catch-up".to_owned(),
            step_number: 6,
            steps: 8,
            cluster_id: 0xab,
            endpoints: vec!["http://a:1".to_owned(), "http://b:1".to_owned()],
            name: "m1".to_owned(),
            voters_target: 3,
            automatic: "takes the place of member c".to_owned(),
            ..StatusResponse::default()
        };
        let expected = "host:         m1\nmode:         client\nswitching to: server, step 6/8 catch-up\n\
                        cluster:      ab\nasks:         http://a:1, http://b:1\n\
                        automatic:    up to 3 voters; takes the place of member c\n";
        assert_eq!(status(&given), expected);
    }
}
