//! Room `sim`, page: the tables: what came before the break, and everything.

use super::{Ended, Page, Shown, plain, seconds};
use crate::chronicle::What;
use std::fmt::Write;

/// A line of a table.
struct Row {
    at: u64,
    who: String,
    text: String,
    class: &'static str,
}

/// Lines of the table of what came before.
const BEFORE_MAX: usize = 60;

/// Lines of the table of everything.
const ALL_MAX: usize = 20_000;

fn story(what: &What) -> (String, String) {
    let node = |n: &crate::NodeId| format!("node {}", n.0);
    let link = |a: &crate::NodeId, b: &crate::NodeId| format!("{} → {}", a.0, b.0);
    match what {
        What::Began(n, life) => (node(n), format!("life {life} begins")),
        What::Died(n, mode) => (node(n), format!("killed; its disk: {mode:?}")),
        What::Paused(n) => (node(n), "paused".to_owned()),
        What::Resumed(n) => (node(n), "goes on after a pause".to_owned()),
        What::Clock(n, text) => (node(n), format!("clock: {text}")),
        What::Disk(n, text) => (node(n), format!("disk: {text}")),
        What::Cut(a, b) => (link(a, b), "cut".to_owned()),
        What::Mended(a, b) => (link(a, b), "open again".to_owned()),
        What::Clogged(a, b, ns) => (link(a, b), format!("clogged for {} s", seconds(*ns))),
        What::Link(a, b, text) => (link(a, b), text.clone()),
        What::Reset(a, b) => (link(a, b), "streams reset".to_owned()),
        What::Role(n, role, term) => (node(n), format!("{role:?} in term {term}")),
        What::Note(n, text) => (n.as_ref().map_or(String::new(), node), text.clone()),
        What::Violation(text) => (String::new(), text.clone()),
    }
}

impl Page {
    fn call_rows(&self, call: &Shown) -> Vec<Row> {
        let named = self.is_named(call);
        let row = |at, text: String| Row {
            at,
            who: call.client.clone(),
            text,
            class: if named { "named" } else { "" },
        };
        let mut rows = vec![row(call.begun, format!("{} {}", call.name, call.what))];
        if let Some(ended) = call.ended {
            let how = match &call.how {
                Ended::Answered(text) => format!("answered: {text}"),
                Ended::Refused(text) => format!("refused: {text}"),
                Ended::Unknown(text) => format!("unknown: {text}"),
            };
            rows.push(row(ended, format!("{} {} — {how}", call.name, call.what)));
        }
        rows
    }

    fn all_rows(&self) -> Vec<Row> {
        let happenings = self.chronicle.happenings().iter();
        let mut rows: Vec<Row> = happenings
            .filter(|h| !matches!(h.what, What::Began(n, _) if !self.members.contains(&n)))
            .map(|h| {
                let (who, text) = story(&h.what);
                let class = match &h.what {
                    What::Violation(_) => "bad",
                    what if what.fault().is_some() => "fault",
                    _ => "",
                };
                let at = h.at;
                Row {
                    at,
                    who,
                    text,
                    class,
                }
            })
            .collect();
        rows.extend(self.calls.iter().flat_map(|call| self.call_rows(call)));
        rows.sort_by_key(|row| row.at);
        rows
    }

    pub(super) fn tables(&self, out: &mut String) {
        let rows = self.all_rows();
        if self.violation.is_some() {
            out.push_str("<h2>Before it broke</h2>\n<table>\n");
            // Of what lies further back: the faults, and the calls that the sentence speaks of.
            let moment = self.moment();
            let over = rows.partition_point(|row| row.at <= moment);
            let last = over.saturating_sub(BEFORE_MAX);
            let early = rows[..last].iter().filter(|row| !row.class.is_empty());
            early.for_each(|row| line(out, row));
            rows[last..over].iter().for_each(|row| line(out, row));
            out.push_str("</table>\n");
        }
        out.push_str(
            "<h2>Everything</h2>\n<p><input id=\"filter\" placeholder=\"show lines with …\"></p>\n\
             <details><summary>all lines</summary><table id=\"all\">\n",
        );
        rows.iter().take(ALL_MAX).for_each(|row| line(out, row));
        out.push_str("</table></details>\n");
        if rows.len() > ALL_MAX {
            let _ = writeln!(
                out,
                "<p>{} lines more are not shown.</p>",
                rows.len() - ALL_MAX
            );
        }
    }
}

fn line(out: &mut String, row: &Row) {
    let class = match row.class {
        "" => String::new(),
        class => format!(" class=\"{class}\""),
    };
    let _ = writeln!(
        out,
        "<tr{class}><td>{}</td><td>{}</td><td>{}</td></tr>",
        seconds(row.at),
        plain(&row.who),
        plain(&row.text)
    );
}
