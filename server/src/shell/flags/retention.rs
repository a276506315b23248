//! Room `server/shell`: how `--auto-compaction-retention` is read. Pure.

use super::settings::Exit;
use super::value::read_duration;
use crate::member::config::Compaction;
use std::time::Duration;

/// etcd's retention: a bare number is hours or revisions by mode, everything else a duration.
pub(super) fn compaction(mode: &str, retention: &str) -> Result<Compaction, Exit> {
    if let Ok(number) = retention.parse::<i64>()
        && number >= 0
    {
        let number = number.unsigned_abs();
        return Ok(match (number, mode) {
            (0, _) => Compaction::Off,
            (n, "revision") => Compaction::Revision(n),
            (n, _) => Compaction::Periodic(Duration::from_secs(n.saturating_mul(3600))),
        });
    }
    let Some(nanos) = read_duration(retention) else {
        let bare = !retention.is_empty()
            && retention
                .trim_start_matches(['-', '+'])
                .bytes()
                .all(|b| b.is_ascii_digit());
        let why = if bare { "missing unit in" } else { "invalid" };
        return Err(Exit::Rejected(format!(
            "error parsing CompactionRetention: time: {why} duration {retention:?}"
        )));
    };
    let Ok(nanos) = u64::try_from(nanos) else {
        return Ok(Compaction::Off);
    };
    Ok(match (nanos, mode) {
        (0, _) => Compaction::Off,
        (n, "revision") => Compaction::Revision(n),
        (n, _) => Compaction::Periodic(Duration::from_nanos(n)),
    })
}
