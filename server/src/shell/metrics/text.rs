//! Room `server/shell`: Prometheus' text exposition format, version 0.0.4. Pure.

use std::fmt::{Display, Write};
use tenon_storage::DurationsNow;

/// The content type of the format.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";

/// Type of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Goes up only.
    Counter,
    /// Goes both ways.
    Gauge,
    /// Counts per bucket.
    Histogram,
}

/// A page of metrics being written.
#[derive(Debug, Default)]
pub struct Page {
    text: String,
}

impl Page {
    /// The finished page.
    pub fn finish(self) -> String {
        self.text
    }

    /// Begins a family.
    pub fn family(&mut self, name: &str, kind: Kind, help: &str) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        let _ = write!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    /// One value of the family begun last.
    pub fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.text.push_str(name);
        self.labels(labels, None);
        let _ = writeln!(self.text, " {value}");
    }

    /// A family of one value without labels.
    pub fn single(&mut self, name: &str, kind: Kind, help: &str, value: impl Display) {
        self.family(name, kind, help);
        self.sample(name, &[], value);
    }

    /// One histogram of the family begun last.
    pub fn histogram(&mut self, name: &str, labels: &[(&str, &str)], histogram: &DurationsNow) {
        let mut below = 0;
        for (bound, count) in histogram.bounds.iter().zip(&histogram.buckets) {
            below += count;
            let _ = write!(self.text, "{name}_bucket");
            self.labels(labels, Some(&bound.to_string()));
            let _ = writeln!(self.text, " {below}");
        }
        let total = histogram.count();
        let _ = write!(self.text, "{name}_bucket");
        self.labels(labels, Some("+Inf"));
        let _ = writeln!(self.text, " {total}");
        self.sample(&format!("{name}_sum"), labels, histogram.sum_seconds);
        self.sample(&format!("{name}_count"), labels, total);
    }

    fn labels(&mut self, labels: &[(&str, &str)], le: Option<&str>) {
        let all = labels.iter().copied().chain(le.map(|le| ("le", le)));
        let mut open = false;
        for (name, value) in all {
            self.text.push(if open { ',' } else { '{' });
            open = true;
            let _ = write!(self.text, "{name}=\"");
            for c in value.chars() {
                match c {
                    '\\' => self.text.push_str("\\\\"),
                    '"' => self.text.push_str("\\\""),
                    '\n' => self.text.push_str("\\n"),
                    c => self.text.push(c),
                }
            }
            self.text.push('"');
        }
        if open {
            self.text.push('}');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_labels_and_histograms() {
        let mut page = Page::default();
        page.single("a_total", Kind::Counter, "What it is.", 3);
        page.family("b", Kind::Gauge, "Another.");
        page.sample("b", &[("x", "q\"\\\n"), ("y", "")], 1.5);
        page.family("h", Kind::Histogram, "Times.");
        let snapshot = DurationsNow {
            bounds: &[0.001, 2.0],
            buckets: vec![1, 2, 4],
            sum_seconds: 7.25,
        };
        page.histogram("h", &[("m", "p")], &snapshot);
        let expected = "\
# HELP a_total What it is.
# TYPE a_total counter
a_total 3
# HELP b Another.
# TYPE b gauge
b{x=\"q\\\"\\\\\\n\",y=\"\"} 1.5
# HELP h Times.
# TYPE h histogram
h_bucket{m=\"p\",le=\"0.001\"} 1
h_bucket{m=\"p\",le=\"2\"} 3
h_bucket{m=\"p\",le=\"+Inf\"} 7
h_sum{m=\"p\"} 7.25
h_count{m=\"p\"} 7
";
        assert_eq!(page.finish(), expected);
    }
}
