//! Room `tests`: oracle scripts nobody wrote: drawn from a seed, run on etcd and on Tenon, compared answer by
//! answer. A failing seed prints as a script, to be kept under `scripts/`. Pure.
//!
//! Few keys, so that lives, deletions, leases and transactions meet often; few enough that etcd's sort keeps
//! ties in key order. Revisions are drawn near the newest, so that compacted and future ones come too.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::fmt::Write as _;

/// Keys of a script; among them a prefix of another and a byte above ASCII.
const KEYS: &[&str] = &["a", "aa", "ab", "b", "b\\000", "c", "d", "\\377"];
/// Ends of intervals: none, open, inner, inverted.
const ENDS: &[&str] = &["", "\\000", "b", "ab", "d", "a"];
/// Depth of nested transactions.
const DEPTH_MAX: u32 = 2;

/// A script of `steps` commands drawn from `seed`.
#[must_use]
pub fn script(seed: u64, steps: usize) -> String {
    let mut draw = Draw {
        rng: StdRng::seed_from_u64(seed),
        revision: 1,
        keeps: true,
    };
    let mut out = format!("# seed {seed}\n> open w Watch\n");
    out.push_str("> send w create_request { range_end: \"\\000\" prev_kv: true }\n> recv w 1\n");
    for step in 0..steps {
        let _ = writeln!(out, "> {}", draw.command());
        if step == steps / 2 {
            // History goes on over a kill, so the first half is told before it.
            out.push_str("> drain w\n> kill\n> HashKV\n> open w Watch\n");
            let from = "> send w create_request { range_end: \"\\000\" }\n> recv w 1\n";
            out.push_str(from);
        }
        if step % 20 == 19 {
            out.push_str("> HashKV\n");
        }
    }
    out.push_str(
        "> drain w\n> HashKV\n> Range key: \"\\000\" range_end: \"\\000\"\n> sorted LeaseLeases\n",
    );
    out
}

struct Draw {
    rng: StdRng,
    /// About the store's revision.
    revision: i64,
    /// Whether this command may carry over what an earlier step deleted: real etcd ends itself when a
    /// transaction keeps the value of a key that it deletes before.
    keeps: bool,
}

impl Draw {
    fn below(&mut self, n: u32) -> u32 {
        self.rng.random_range(0..n)
    }

    fn one_in(&mut self, n: u32) -> bool {
        self.below(n) == 0
    }

    fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.rng.random_range(0..of.len())]
    }

    /// `text` once in `n`, else nothing.
    fn maybe(&mut self, n: u32, text: &str) -> String {
        if self.one_in(n) {
            format!(" {text}")
        } else {
            String::new()
        }
    }

    fn near(&mut self) -> i64 {
        (self.revision + self.rng.random_range(-15..3)).max(-1)
    }

    fn command(&mut self) -> String {
        self.keeps = true;
        match self.below(20) {
            0..=5 => format!("Put {}", self.put()),
            6..=7 => format!("DeleteRange {}", self.delete()),
            8..=11 => format!("Range {}", self.range()),
            12..=15 => {
                self.revision += 1;
                self.keeps = self.one_in(2);
                format!("Txn {}", self.txn(0))
            }
            16 => format!(
                "LeaseGrant ID: {} TTL: {}",
                self.lease(),
                1000 + self.below(9) * 100
            ),
            17 if self.one_in(2) => format!("LeaseRevoke ID: {}", self.lease()),
            17 => format!("LeaseTimeToLive ID: {} keys: true", self.lease()),
            18 => format!("RangeStream {}", self.interval()),
            _ if self.one_in(3) => format!(
                // Not 0: after that etcd's HashKV answers the hash of nothing (docs/differences.md).
                "Compact revision: {}{}",
                self.near().max(1),
                self.maybe(2, "physical: true")
            ),
            _ => format!("Range {} revision: {}", self.interval(), self.near()),
        }
    }

    fn lease(&mut self) -> i64 {
        [1, 2, -3, i64::MAX][self.below(4) as usize]
    }

    fn key(&mut self) -> String {
        format!("key: \"{}\"", self.pick(KEYS))
    }

    fn interval(&mut self) -> String {
        let key = self.key();
        match self.pick(ENDS) {
            "" => key,
            end => format!("{key} range_end: \"{end}\""),
        }
    }

    fn value(&mut self) -> String {
        match self.below(12) {
            0 => String::new(),
            1 => format!("$fill({})", 300 + self.below(3)),
            n => n.to_string(),
        }
    }

    fn put(&mut self) -> String {
        self.revision += 1;
        let mut out = self.key();
        match self.below(8) {
            0 if self.keeps => out.push_str(" ignore_value: true"),
            _ => _ = write!(out, " value: \"{}\"", self.value()),
        }
        match self.below(6) {
            0 if self.keeps => out.push_str(" ignore_lease: true"),
            1 | 2 => _ = write!(out, " lease: {}", self.lease()),
            _ => {}
        }
        out + &self.maybe(3, "prev_kv: true")
    }

    fn delete(&mut self) -> String {
        self.revision += 1;
        self.interval() + &self.maybe(2, "prev_kv: true")
    }

    fn range(&mut self) -> String {
        let mut out = self.interval();
        if self.one_in(3) {
            _ = write!(out, " limit: {}", self.below(4));
        }
        if self.one_in(3) {
            _ = write!(out, " revision: {}", self.near());
        }
        if self.one_in(3) {
            _ = write!(
                out,
                " sort_order: {}",
                self.pick(&["NONE", "ASCEND", "DESCEND"])
            );
            let targets = ["KEY", "VERSION", "CREATE", "MOD", "VALUE"];
            _ = write!(out, " sort_target: {}", self.pick(&targets));
        }
        let bounds = ["min_mod", "max_mod", "min_create", "max_create"];
        if self.one_in(4) {
            _ = write!(
                out,
                " {}_revision: {}",
                self.pick(&bounds),
                self.near().max(0)
            );
        }
        for option in ["keys_only", "count_only", "serializable"] {
            out.push_str(&self.maybe(5, &format!("{option}: true")));
        }
        out
    }

    fn txn(&mut self, depth: u32) -> String {
        let mut out = String::new();
        for _ in 0..self.below(3) {
            _ = write!(out, "compare {{ {} }} ", self.compare());
        }
        for branch in ["success", "failure"] {
            for _ in 0..self.below(4) {
                _ = write!(out, "{branch} {{ {} }} ", self.op(depth));
            }
        }
        out
    }

    fn compare(&mut self) -> String {
        let result = self.pick(&["EQUAL", "NOT_EQUAL", "GREATER", "LESS"]);
        let near = self.near();
        let operand = match self.below(6) {
            0 => format!("target: VERSION version: {}", self.below(3)),
            1 => format!("target: CREATE create_revision: {near}"),
            2 => format!("target: MOD mod_revision: {near}"),
            3 => format!("target: LEASE lease: {}", self.lease()),
            4 => "target: MOD".to_owned(),
            _ => format!("target: VALUE value: \"{}\"", self.value()),
        };
        format!("{} result: {result} {operand}", self.interval())
    }

    fn op(&mut self, depth: u32) -> String {
        match self.below(8) {
            0..=2 => format!("request_put {{ {} }}", self.put()),
            3 if !self.keeps => format!("request_delete_range {{ {} }}", self.delete()),
            4 | 5 if depth < DEPTH_MAX => format!("request_txn {{ {} }}", self.txn(depth + 1)),
            _ => format!("request_range {{ {} }}", self.range()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::script;

    #[test]
    fn a_seed_is_a_script_and_always_the_same() {
        assert_eq!(script(7, 50), script(7, 50));
        assert_ne!(script(7, 50), script(8, 50));
        assert!(crate::script::parse(&script(7, 50)).is_ok());
    }
}
