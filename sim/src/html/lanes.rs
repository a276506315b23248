//! Room `sim`, page: the lanes: bars and marks over one axis of time.

use super::{Ended, Page, Shown, plain, seconds};
use crate::NodeId;
use crate::chronicle::{Role, What};
use std::collections::BTreeMap;
use std::fmt::Write;

/// A stretch of time in a lane.
struct Bar {
    from: u64,
    to: u64,
    class: String,
    label: String,
    title: String,
}

/// A moment in a lane.
struct Mark {
    at: u64,
    sign: char,
    title: String,
}

#[derive(Default)]
struct Lane {
    name: String,
    bars: Vec<Bar>,
    marks: Vec<Mark>,
}

/// Calls of one client that overlap stand below each other, in so many rows at most.
const ROWS_MAX: usize = 6;

/// What a node is at the moment, and since when.
struct Phase {
    since: u64,
    class: &'static str,
    text: String,
}

fn phase(role: Role, term: u64) -> (&'static str, String) {
    let (class, text) = match role {
        Role::Leader => ("leader", "leads in"),
        Role::Follower => ("follower", "follows in"),
        Role::Seeker => ("seeker", "knows no leader in"),
        Role::Learner => ("learner", "learns in"),
        Role::Outside => ("outside", "is in no configuration,"),
    };
    (class, format!("{text} term {term}"))
}

impl Page {
    fn member_lane(&self, node: NodeId) -> Lane {
        let mut lane = Lane {
            name: format!("member {}", node.0),
            ..Lane::default()
        };
        let mut now: Option<Phase> = None;
        let mut paused: Option<u64> = None;
        let mut turn = |lane: &mut Lane, at: u64, next: Option<(&'static str, String)>| {
            if let Some(old) = now.take() {
                lane.phase(old, at);
            }
            now = next.map(|(class, text)| Phase {
                since: at,
                class,
                text,
            });
        };
        for happening in self.chronicle.happenings() {
            let at = happening.at;
            let mut mark = |sign, title: String| lane.marks.push(Mark { at, sign, title });
            match &happening.what {
                What::Began(n, life) if *n == node => {
                    turn(
                        &mut lane,
                        at,
                        Some(("starting", format!("life {life} begins"))),
                    );
                }
                What::Role(n, role, term) if *n == node => {
                    turn(&mut lane, at, Some(phase(*role, *term)));
                }
                What::Died(n, mode) if *n == node => {
                    mark('✕', format!("killed; its disk: {mode:?}"));
                    if let Some(from) = paused.take() {
                        lane.paused(from, at);
                    }
                    turn(&mut lane, at, Some(("down", "down".to_owned())));
                }
                What::Paused(n) if *n == node => paused = Some(at),
                What::Resumed(n) if *n == node => {
                    if let Some(from) = paused.take() {
                        lane.paused(from, at);
                    }
                }
                What::Disk(n, text) if *n == node => mark('◆', format!("disk: {text}")),
                What::Clock(n, text) if *n == node => mark('◷', format!("clock: {text}")),
                What::Note(Some(n), text) if *n == node => mark('•', text.clone()),
                _ => {}
            }
        }
        if let Some(from) = paused {
            lane.paused(from, self.end);
        }
        turn(&mut lane, self.end, None);
        lane
    }

    /// One lane per pair that was cut, clogged or reset; above the way to the greater number, below back.
    fn link_lanes(&self) -> Vec<Lane> {
        let mut lanes: BTreeMap<(NodeId, NodeId), Lane> = BTreeMap::new();
        let mut cut: BTreeMap<(NodeId, NodeId), u64> = BTreeMap::new();
        for happening in self.chronicle.happenings() {
            let at = happening.at;
            let (from, to) = match &happening.what {
                What::Cut(from, to) | What::Mended(from, to) => (*from, *to),
                What::Clogged(from, to, _) | What::Link(from, to, _) => (*from, *to),
                What::Reset(from, to) => (*from, *to),
                _ => continue,
            };
            let lane = lanes.entry((from.min(to), from.max(to))).or_default();
            match &happening.what {
                What::Cut(..) => {
                    cut.insert((from, to), at);
                }
                What::Mended(..) => {
                    if let Some(since) = cut.remove(&(from, to)) {
                        lane.blocked("cut", (from, to), since, at);
                    }
                }
                What::Clogged(_, _, ns) => {
                    lane.blocked("clog", (from, to), at, (at + ns).min(self.end));
                }
                What::Link(_, _, text) => lane.marks.push(Mark {
                    at,
                    sign: '~',
                    title: format!("{} → {}: {text}", from.0, to.0),
                }),
                _ => lane.marks.push(Mark {
                    at,
                    sign: '⚡',
                    title: "streams reset".to_owned(),
                }),
            }
        }
        for ((from, to), since) in cut {
            let lane = lanes.entry((from.min(to), from.max(to))).or_default();
            lane.blocked("cut", (from, to), since, self.end);
        }
        for ((a, b), lane) in &mut lanes {
            lane.name = format!("{} ⇄ {}", a.0, b.0);
        }
        lanes.into_values().collect()
    }

    fn client_lanes(&self) -> Vec<Lane> {
        let mut lanes: BTreeMap<&str, Vec<(u64, Lane)>> = BTreeMap::new();
        for call in &self.calls {
            let rows = lanes.entry(&call.client).or_default();
            let free = rows.iter().position(|(until, _)| *until <= call.begun);
            let row = free.unwrap_or_else(|| {
                if rows.len() < ROWS_MAX {
                    rows.push((0, Lane::default()));
                }
                rows.len() - 1
            });
            let to = call.ended.unwrap_or(self.end);
            rows[row].0 = to;
            rows[row].1.bars.push(self.call_bar(call, to));
        }
        for node in self.paused_clients() {
            for (name, rows) in &mut lanes {
                if *name == format!("client {}", node.0) {
                    let pauses = self.member_lane(node);
                    let its = pauses.bars.into_iter().filter(|b| b.class == "paused");
                    rows[0].1.bars.extend(its);
                    rows[0].1.marks.extend(pauses.marks);
                }
            }
        }
        let mut all = Vec::new();
        for (name, rows) in lanes {
            for (row, (_, mut lane)) in rows.into_iter().enumerate() {
                if row == 0 {
                    lane.name = name.to_owned();
                }
                all.push(lane);
            }
        }
        all
    }

    /// Nodes that are no members and were paused or killed.
    fn paused_clients(&self) -> Vec<NodeId> {
        let happenings = self.chronicle.happenings().iter();
        let hit = happenings.filter_map(|h| match &h.what {
            What::Paused(node) | What::Died(node, _) => Some(*node),
            _ => None,
        });
        let mut nodes: Vec<NodeId> = hit.filter(|n| !self.members.contains(n)).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }

    fn call_bar(&self, call: &Shown, to: u64) -> Bar {
        let (class, how) = match &call.how {
            Ended::Answered(text) => ("ok", text),
            Ended::Refused(text) => ("refused", text),
            Ended::Unknown(text) => ("unknown", text),
        };
        let named = if self.is_named(call) { " named" } else { "" };
        Bar {
            from: call.begun,
            to,
            class: format!("{class}{named}"),
            label: call.what.clone(),
            title: format!("{} {} → {how}", call.name, call.what),
        }
    }

    pub(super) fn board(&self, out: &mut String) {
        let mut lanes: Vec<Lane> = self.members.iter().map(|n| self.member_lane(*n)).collect();
        let members = lanes.len();
        lanes.extend(self.link_lanes());
        let links = lanes.len();
        lanes.extend(self.client_lanes());
        out.push_str(
            "<div class=\"tools\"><label>zoom <input id=\"zoom\" type=\"range\" min=\"0\" max=\"5.3\" step=\"0.01\" \
             value=\"0\"></label> (or Ctrl and the wheel; point at anything for its story)</div>\n\
             <div class=\"board\"><div class=\"names\"><div class=\"head\">seconds</div>",
        );
        for (at, lane) in lanes.iter().enumerate() {
            let class = if at < members || at >= links {
                ""
            } else {
                " class=\"link\""
            };
            let _ = write!(out, "<div{class}>{}</div>", plain(&lane.name));
        }
        out.push_str("</div>\n<div class=\"scroll\"><div class=\"tracks\"><div class=\"head\">");
        self.axis(out);
        out.push_str("</div>\n");
        for lane in &lanes {
            self.track(out, lane);
        }
        if self.violation.is_some() {
            let _ = write!(
                out,
                "<span class=\"end\" style=\"left:{}\"></span>",
                self.place(self.moment())
            );
        }
        out.push_str("</div></div></div>\n");
    }

    /// Where a moment stands.
    fn place(&self, at: u64) -> String {
        // One part in fifty is left after the end.
        let share = at as f64 / self.end.max(1) as f64;
        format!("{:.4}%", share * 98.0)
    }

    fn axis(&self, out: &mut String) {
        let whole = self.end.div_ceil(1_000_000_000).max(1);
        let step = [1, 2, 5, 10, 30, 60, 300, 600, 3_600];
        let step = step.into_iter().find(|s| whole / s <= 60).unwrap_or(36_000);
        for second in (0..=whole).step_by(step as usize) {
            let at = second * 1_000_000_000;
            if at <= self.end {
                let left = self.place(at);
                let _ = write!(
                    out,
                    "<span class=\"tick\" style=\"left:{left}\">{second}</span>"
                );
            }
        }
    }

    fn track(&self, out: &mut String, lane: &Lane) {
        out.push_str("<div>");
        for bar in &lane.bars {
            let width = bar.to.saturating_sub(bar.from);
            let _ = write!(
                out,
                "<span class=\"bar {}\" style=\"left:{};width:{}\" title=\"{}–{} s: {}\">{}</span>",
                bar.class,
                self.place(bar.from),
                self.place(width),
                seconds(bar.from),
                seconds(bar.to),
                plain(&bar.title),
                plain(&bar.label)
            );
        }
        for mark in &lane.marks {
            let _ = write!(
                out,
                "<span class=\"mark\" style=\"left:{}\" title=\"{} s: {}\">{}</span>",
                self.place(mark.at),
                seconds(mark.at),
                plain(&mark.title),
                mark.sign
            );
        }
        out.push_str("</div>\n");
    }
}

impl Lane {
    fn phase(&mut self, phase: Phase, to: u64) {
        let label = match phase.class {
            "leader" => phase.text.replace("leads in term ", "T"),
            _ => String::new(),
        };
        self.bars.push(Bar {
            from: phase.since,
            to,
            class: phase.class.to_owned(),
            label,
            title: phase.text,
        });
    }

    fn paused(&mut self, from: u64, to: u64) {
        self.bars.push(Bar {
            from,
            to,
            class: "paused".to_owned(),
            label: String::new(),
            title: "paused".to_owned(),
        });
    }

    fn blocked(&mut self, class: &str, (a, b): (NodeId, NodeId), from: u64, to: u64) {
        let back = if a > b { " back" } else { "" };
        self.bars.push(Bar {
            from,
            to,
            class: format!("{class}{back}"),
            label: String::new(),
            title: format!("nothing passes from {} to {}", a.0, b.0),
        });
    }
}
