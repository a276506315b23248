//! Checker: log matching, and what is committed is never lost. Two logs that hold an entry of the same index and
//! term hold the same entry; an index that any member knows as committed holds the same entry everywhere and
//! for ever.

use super::{Verdict, require};
use std::collections::BTreeMap;
use tenon_proto::log::LogId;

/// Entries as logs hold them: term and hash of the bytes.
#[derive(Clone, Debug, Default)]
pub struct Logs {
    /// By index and term.
    entries: BTreeMap<(u64, u64), u64>,
    /// By index.
    committed: BTreeMap<u64, (u64, u64)>,
    looked: u64,
}

impl Logs {
    /// Notes an entry that a member holds; `committed` when that member knows it as such.
    pub fn holds(&mut self, id: &LogId, hash: u64, committed: bool) -> Verdict {
        self.looked += 1;
        let held = *self.entries.entry((id.index, id.term)).or_insert(hash);
        require(held == hash, || {
            format!(
                "entry {} of term {} is {held:x} in one log and {hash:x} in another",
                id.index, id.term
            )
        })?;
        if let Some((term, known)) = self.committed.get(&id.index) {
            // A member that does not know it yet may hold another one, to be replaced.
            return require(!committed || (*term, *known) == (id.term, hash), || {
                format!(
                    "committed entry {} was of term {term} and is of term {}",
                    id.index, id.term
                )
            });
        }
        if committed {
            self.committed.insert(id.index, (id.term, hash));
        }
        Ok(())
    }

    /// How many entries were looked at.
    pub fn looked(&self) -> u64 {
        self.looked
    }
}
