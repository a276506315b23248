//! Room `storage`, WAL tests: readable stories in `scripts/`, run with goldenscript. `UPDATE_GOLDENFILES=1`
//! writes the answers anew; review them as a diff.

use super::disk::{FakeDisk, Left};
use super::model::{DIR, id, options};
use super::world::{Hands, node};
use crate::wal::frame::{self, HEADER_LEN, Head};
use crate::wal::{Done, Wal, WalEntry, scan};
use goldenscript::{Command, Context};
use parking_lot::Mutex;
use std::error::Error;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tenon_env::{Disk, OpenMode};
use tenon_proto::ids::LogIndex;
use tenon_proto::log::{LogId, Vote};

type Answer = Result<String, Box<dyn Error>>;

/// Runs one script on one log.
#[derive(Default)]
struct Story {
    disk: FakeDisk,
    hands: Hands,
    wal: Option<Wal>,
    said: Arc<Mutex<String>>,
    lives: u64,
}

fn show(id: Option<LogId>) -> String {
    id.map_or("none".to_owned(), |id| format!("{}/{}", id.term, id.index))
}

/// `TERM/INDEX`, or nothing for `none`.
fn log_id(text: &str) -> Result<Option<LogId>, Box<dyn Error>> {
    if text == "none" {
        return Ok(None);
    }
    let (term, index) = text.split_once('/').ok_or("want TERM/INDEX or none")?;
    Ok(Some(id(term.parse()?, index.parse()?)))
}

fn path(segment: &str) -> PathBuf {
    Path::new(DIR).join(format!("{segment:0>16}.wal"))
}

impl Story {
    fn wal(&self) -> Result<&Wal, &'static str> {
        self.wal.as_ref().ok_or("the log is not open")
    }

    fn done(&self, what: String) -> Done {
        let said = self.said.clone();
        Box::new(move |result| {
            let _ = match result {
                Ok(()) => writeln!(said.lock(), "durable: {what}"),
                Err(error) => writeln!(said.lock(), "failed: {what}: {error}"),
            };
        })
    }

    fn open(&mut self) -> Answer {
        self.lives += 1;
        let (env, hands) = node(&self.disk, self.lives);
        self.hands = hands;
        let (wal, found) = Wal::open(&env, Path::new(DIR), options())?;
        self.wal = Some(wal);
        let vote = found.vote.map_or("none".to_owned(), |vote| {
            let committed = if vote.committed { " committed" } else { "" };
            format!("{} for {}{committed}", vote.term, vote.node_id)
        });
        Ok(format!(
            "vote {vote}, committed {}, purged {}, last {}{}\n",
            show(found.committed),
            show(found.purged),
            show(found.last),
            if found.truncated_tail {
                ", a torn tail was cut"
            } else {
                ""
            }
        ))
    }

    /// The end of this life: power fails, or the process alone dies and the kernel keeps what it wrote.
    fn end(&mut self, left: Left) {
        self.hands.kill();
        self.wal = None;
        self.disk.restart(left, self.lives);
    }

    fn change(&self, command: &Command) -> Answer {
        let wal = self.wal()?;
        let mut args = command.consume_args();
        let what = command.to_string();
        let first = args.next_pos();
        match command.name.as_str() {
            "append" => {
                let first = log_id(first.ok_or("want TERM/INDEX")?)?.ok_or("want TERM/INDEX")?;
                let count = args.next_pos().map_or(Ok(1), str::parse)?;
                let bytes = args.take_key("bytes").map_or(Ok(8), str::parse)?;
                let entry = |nth| WalEntry {
                    id: id(first.term, first.index + nth),
                    payload: vec![b'a' + ((first.index + nth) % 26) as u8; bytes].into(),
                };
                wal.append((0..count).map(entry).collect(), self.done(what));
            }
            "vote" => {
                let vote = Vote {
                    term: first.ok_or("want TERM")?.parse()?,
                    node_id: 7,
                    committed: args.next_pos() == Some("committed"),
                };
                wal.save_vote(vote, self.done(what));
            }
            "commit" => wal.save_committed(log_id(first.unwrap_or_default())?.ok_or("want an id")?),
            "truncate" => wal.truncate_after(log_id(first.unwrap_or_default())?, self.done(what)),
            "reset" => {
                let to = log_id(first.unwrap_or_default())?.ok_or("want an id")?;
                wal.reset(to, self.done(what));
            }
            "purge" => wal.purge(log_id(first.unwrap_or_default())?.ok_or("want an id")?),
            "engine" => wal.set_engine_durable(LogIndex(first.ok_or("want INDEX")?.parse()?)),
            other => return Err(format!("unknown command {other}").into()),
        }
        args.reject_next()?;
        Ok(String::new())
    }

    fn state(&self) -> Answer {
        let wal = self.wal()?;
        let (purged, last) = wal.log_state();
        let (bytes, segments) = wal.size();
        Ok(format!(
            "purged {}, first {}, last {}, flushed {}, {segments} segments with {bytes} bytes\n",
            show(purged),
            wal.first_index(),
            show(last),
            wal.flushed()
        ))
    }

    fn read(&self, command: &Command) -> Answer {
        let mut args = command.consume_args();
        let first = args.next_pos().ok_or("want INDEX")?.parse()?;
        let entries = args.take_key("entries").map_or(Ok(100), str::parse)?;
        let bytes = args.take_key("bytes").map_or(Ok(1 << 20), str::parse)?;
        let mut out = String::new();
        for (id, payload) in self.wal()?.read(LogIndex(first), entries, bytes)? {
            let letter = payload.first().map_or('-', |byte| char::from(*byte));
            writeln!(out, "{}: {} x {letter}", show(Some(id)), payload.len())?;
        }
        Ok(out)
    }

    /// Every frame of every segment.
    fn frames(&self) -> Answer {
        let mut out = String::new();
        for name in self.disk.names() {
            let path = Path::new(DIR).join(&name);
            let Some(seq) = crate::wal::segment::seq_of(&name) else {
                writeln!(out, "{name}")?;
                continue;
            };
            let bytes = self.disk.bytes(&path);
            writeln!(out, "segment {seq}, {} bytes", bytes.len())?;
            let file = self.disk.open(&path, OpenMode::Read)?;
            let header = scan::read_header(&*file, seq).map_err(|fault| format!("{fault:?}"))?;
            let mut at = HEADER_LEN;
            while at + frame::HEAD_LEN <= bytes.len()
                && let Some(head) = Head::parse(&bytes[at..], header.binding())
                && at + head.frame_len() <= bytes.len()
                && frame::verify(&bytes[at..at + head.frame_len()], header.binding())
            {
                let (kind, id) = (head.kind, show(Some(head.id)));
                writeln!(
                    out,
                    "  {at}: {kind:?} {id}, {} bytes, durable {}",
                    head.len, head.durable
                )?;
                at += head.frame_len();
            }
        }
        Ok(out)
    }
}

impl goldenscript::Runner for Story {
    type Command = Command;

    fn run(&mut self, command: &Command, _context: &Context) -> Answer {
        let mut args = command.consume_args();
        match command.name.as_str() {
            "open" => self.open(),
            "run" => {
                self.hands.run();
                Ok(String::new())
            }
            "tasks" => {
                self.hands.tasks();
                Ok(String::new())
            }
            "lane" => {
                self.hands.job(0);
                Ok(String::new())
            }
            // The machine goes down at the n-th change of the disk from now.
            "die" => {
                let steps: u64 = args.next_pos().ok_or("want STEPS")?.parse()?;
                self.disk.crash_at(self.disk.steps() + steps);
                self.hands.run();
                self.hands.kill();
                self.said.lock().clear();
                Ok(String::new())
            }
            "kill" => {
                self.end(Left::Cached);
                Ok(String::new())
            }
            "power" => {
                let left = match args.next_pos() {
                    Some("nothing") => Left::Nothing,
                    Some("pieces") => Left::Pieces,
                    Some("beginnings") => Left::Beginnings,
                    _ => return Err("want nothing, pieces or beginnings".into()),
                };
                self.end(left);
                Ok(String::new())
            }
            "flip" => {
                let (segment, at) = (args.next_pos(), args.next_pos());
                let at: usize = at.ok_or("want SEGMENT OFFSET")?.parse()?;
                self.disk
                    .damage(&path(segment.ok_or("want SEGMENT")?), |bytes| {
                        bytes[at] ^= 1
                    });
                Ok(String::new())
            }
            "lose" => {
                self.disk
                    .remove_file(&path(args.next_pos().ok_or("want SEGMENT")?))?;
                self.disk.sync_dir(Path::new(DIR))?;
                Ok(String::new())
            }
            "state" => self.state(),
            "read" => self.read(command),
            "frames" => self.frames(),
            _ => self.change(command),
        }
    }

    fn end_command(&mut self, _command: &Command, _context: &Context) -> Answer {
        Ok(std::mem::take(&mut *self.said.lock()))
    }
}

impl Drop for Story {
    fn drop(&mut self) {
        self.hands.kill();
    }
}

fn tell(script: &str) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/wal/tests/scripts");
    goldenscript::run(&mut Story::default(), dir.join(script)).expect("the script runs");
}

#[test]
fn group_commit() {
    tell("group_commit");
}

#[test]
fn truncate() {
    tell("truncate");
}

#[test]
fn purge_and_reset() {
    tell("purge_and_reset");
}

#[test]
fn torn_and_damaged() {
    tell("torn_and_damaged");
}
