//! `bench`: medians, ratios, the Markdown table.

use crate::Options;
use crate::cases::Sample;
use crate::server::Kind;
use crate::svg;
use std::fmt::Write;
use std::io;
use std::path::Path;

/// One figure of a sample and how it is shown.
pub struct Figure {
    /// Column head.
    pub name: &'static str,
    read: fn(&Sample) -> f64,
}

/// Every figure that is reported.
pub const FIGURES: [Figure; 9] = [
    Figure {
        name: "requests/s",
        read: |s| s.load.rate,
    },
    Figure {
        name: "p50 ms",
        read: |s| s.load.p50 * 1e3,
    },
    Figure {
        name: "p99 ms",
        read: |s| s.load.p99 * 1e3,
    },
    Figure {
        name: "CPU µs/request",
        read: |s| per(s.used.cpu * 1e6, s.requests),
    },
    Figure {
        name: "resident MB",
        read: |s| s.used.resident / 1e6,
    },
    Figure {
        name: "bytes written/request",
        read: |s| per(s.used.written, s.requests),
    },
    Figure {
        name: "syncs/request",
        read: |s| per(s.used.syncs, s.requests),
    },
    Figure {
        name: "start s",
        read: |s| s.start,
    },
    Figure {
        name: "disk MB",
        read: |s| s.disk / 1e6,
    },
];

fn per(total: f64, requests: f64) -> f64 {
    if requests > 0.0 {
        total / requests
    } else {
        0.0
    }
}

/// Median of a figure over the rounds; `None` when the case was not measured.
pub fn median(samples: &[Sample], case: &str, kind: Kind, figure: &Figure) -> Option<f64> {
    let mut values: Vec<f64> = samples
        .iter()
        .filter(|s| s.case == case && s.kind == kind)
        .map(figure.read)
        .collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// Case names in the order they ran.
pub fn case_names(samples: &[Sample]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for sample in samples {
        if !names.contains(&sample.case) {
            names.push(sample.case.clone());
        }
    }
    names
}

/// The whole result as Markdown.
pub fn table(options: &Options, samples: &[Sample]) -> String {
    let mut out = format!(
        "Median of {} round(s), {} member(s), servers and load on the same {} cores; ratio = tenon / etcd.\n\n\
         | case | figure | etcd 3.7.3 | tenon | ratio | bare tonic |\n|---|---|---:|---:|---:|---:|\n",
        options.rounds,
        options.members,
        std::thread::available_parallelism().map_or(0, usize::from)
    );
    for case in case_names(samples) {
        for figure in &FIGURES {
            let cell = |kind| median(samples, &case, kind, figure);
            let (etcd, tenon, floor) = (cell(Kind::Etcd), cell(Kind::Tenon), cell(Kind::Floor));
            if etcd.unwrap_or(0.0) == 0.0 && tenon.unwrap_or(0.0) == 0.0 {
                continue;
            }
            let ratio = match (etcd, tenon) {
                (Some(e), Some(t)) if e > 0.0 => format!("{:.2}", t / e),
                _ => "–".to_owned(),
            };
            let _ = writeln!(
                out,
                "| {case} | {} | {} | {} | {ratio} | {} |",
                figure.name,
                show(etcd),
                show(tenon),
                show(floor.filter(|f| *f > 0.0))
            );
        }
    }
    out
}

fn show(value: Option<f64>) -> String {
    match value {
        None => "–".to_owned(),
        Some(v) if v >= 100.0 => format!("{v:.0}"),
        Some(v) if v >= 1.0 => format!("{v:.1}"),
        Some(v) => format!("{v:.3}"),
    }
}

/// Writes `<base>.md` and `<base>.svg`.
pub fn write(base: &Path, table: &str, samples: &[Sample]) -> io::Result<()> {
    if let Some(folder) = base.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(base.with_extension("md"), table)?;
    std::fs::write(base.with_extension("svg"), svg::plot(samples))
}
