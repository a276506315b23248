//! Room `sim`: a run as a page that a person can read: one lane per member, per pair of nodes that was cut, per
//! client; what broke, and the moments before it. The page stands alone: no script, style or font from elsewhere.
//! Takes the chronicle and the calls, draws, judges nothing.

mod lanes;
mod rows;
#[cfg(test)]
mod tests;

use crate::NodeId;
use crate::chronicle::Chronicle;
use std::fmt::Write;

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// With this answer.
    Answered(String),
    /// Without effect, for this reason.
    Refused(String),
    /// Nobody can tell, or it is still under way.
    Unknown(String),
}

/// A call of a client, as it is shown.
#[derive(Clone, Debug)]
pub struct Shown {
    /// Its name in findings, such as `CallId(7)`; may be empty.
    pub name: String,
    /// Whose.
    pub client: String,
    /// What was asked.
    pub what: String,
    /// When, in nanoseconds since the start.
    pub begun: u64,
    /// When it was over; `None` while it is under way.
    pub ended: Option<u64>,
    /// How it ended.
    pub how: Ended,
}

/// What a page shows.
#[derive(Clone, Debug)]
pub struct Page {
    /// The seed.
    pub seed: u64,
    /// The command that shows the same again.
    pub replay: String,
    /// Facts of the run, such as its sizes: name and value.
    pub facts: Vec<(String, String)>,
    /// The nodes with members.
    pub members: Vec<NodeId>,
    /// Lives, faults, roles.
    pub chronicle: Chronicle,
    /// Calls, by their beginnings.
    pub calls: Vec<Shown>,
    /// When the run ended, in nanoseconds.
    pub end: u64,
    /// What broke.
    pub violation: Option<String>,
}

/// Text with no meaning for HTML.
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}

/// Seconds with three places.
fn seconds(ns: u64) -> String {
    format!("{}.{:03}", ns / 1_000_000_000, ns / 1_000_000 % 1_000)
}

/// Whether `text` has `word` with no digit or letter right before or after it.
fn has_word(text: &str, word: &str) -> bool {
    let part = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    !word.is_empty()
        && text.match_indices(word).any(|(at, _)| {
            let before = text[..at].chars().next_back();
            let after = text[at + word.len()..].chars().next();
            !part(before) && !part(after)
        })
}

/// Calls listed with the violation at most.
const NAMED_MAX: usize = 12;

impl Page {
    /// Whether the violation speaks of this call: by its name, its beginning, or the revision it was told.
    fn is_named(&self, call: &Shown) -> bool {
        let Some(text) = &self.violation else {
            return false;
        };
        let revision = match &call.how {
            Ended::Answered(answer) => answer.split("revision ").nth(1).unwrap_or_default(),
            _ => "",
        };
        let digits = revision.split(|c: char| !c.is_ascii_digit()).next();
        let revision = digits.filter(|d| !d.is_empty());
        let told = |r: &str| {
            has_word(text, &format!("revision {r}")) || has_word(text, &format!("behind {r}"))
        };
        has_word(text, &call.name)
            || has_word(text, &format!("invoked: {}", call.begun))
            || revision.is_some_and(told)
    }

    /// When it broke: when the last call that the violation speaks of was over, or else the end of the run. Most
    /// checkers read the history only after the run.
    fn moment(&self) -> u64 {
        let named = self.calls.iter().filter(|call| self.is_named(call));
        let over = named.map(|call| call.ended.unwrap_or(self.end));
        over.max().unwrap_or(self.end)
    }

    /// The page.
    pub fn render(&self) -> String {
        let mut out = String::new();
        let title = format!("tenon sim, seed {}", self.seed);
        let _ = write!(
            out,
            "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>\n\
             <style>\n{}</style></head><body>\n<h1>{title}</h1>\n",
            include_str!("html/page.css")
        );
        self.verdict(&mut out);
        self.facts(&mut out);
        out.push_str(LEGEND);
        self.board(&mut out);
        self.tables(&mut out);
        let _ = write!(
            out,
            "<script>\n{}</script>\n</body></html>\n",
            include_str!("html/page.js")
        );
        out
    }

    fn verdict(&self, out: &mut String) {
        let end = seconds(self.end);
        let Some(text) = &self.violation else {
            let _ = writeln!(
                out,
                "<div class=\"whole\">Every promise held for {end} simulated seconds.</div>"
            );
            return;
        };
        let _ = writeln!(
            out,
            "<div class=\"broken\"><b>A promise was broken at {} s (red line); the run ended at {end} s.</b>\n{}</div>\n\
             <p>The sentence speaks of these calls; they have a red frame below.</p><ul>",
            seconds(self.moment()),
            plain(text)
        );
        let named = self.calls.iter().filter(|call| self.is_named(call));
        for call in named.take(NAMED_MAX) {
            let (Ended::Answered(how) | Ended::Refused(how) | Ended::Unknown(how)) = &call.how;
            let _ = writeln!(
                out,
                "<li>{} s, {}: {} → {}</li>",
                seconds(call.begun),
                plain(&call.client),
                plain(&call.what),
                plain(how)
            );
        }
        out.push_str(
            "</ul>\n<p>Look for what stands between the moment a promise was given and the moment it did not hold: \
             faults in the lanes, and the table \"Before it broke\". A call that shows less than an earlier one was \
             answered by somebody who should have known better: see by whom, and what it was then.</p>\n",
        );
    }

    fn facts(&self, out: &mut String) {
        out.push_str("<dl>\n");
        let _ = writeln!(
            out,
            "<dt>again</dt><dd><code>{}</code></dd>",
            plain(&self.replay)
        );
        let counts = self.chronicle.counts();
        let counts: Vec<String> = counts.iter().map(|(k, n)| format!("{k} × {n}")).collect();
        let happened = ("happened".to_owned(), counts.join(", "));
        for (name, value) in self.facts.iter().chain([&happened]) {
            let _ = writeln!(out, "<dt>{}</dt><dd>{}</dd>", plain(name), plain(value));
        }
        out.push_str("</dl>\n");
    }
}

/// How to read the lanes.
const LEGEND: &str = "<p class=\"legend\"><span><i class=\"bar leader\"></i>leads (with its term)</span>\
<span><i class=\"bar follower\"></i>follows</span><span><i class=\"bar seeker\"></i>knows no leader</span>\
<span><i class=\"bar learner\"></i>learns</span><span><i class=\"bar down\"></i>down</span>\
<span><i class=\"bar paused\"></i>paused</span><span><i class=\"bar cut\"></i>cut</span>\
<span><i class=\"bar clog\"></i>clogged</span><span><i class=\"bar ok\"></i>answered</span>\
<span><i class=\"bar refused\"></i>refused</span><span><i class=\"bar unknown\"></i>outcome unknown</span>\
<span>✕ killed</span><span>◆ disk</span><span>◷ clock</span><span>⚡ streams reset</span></p>\n";
