//! `bench`: a bar plot of the ratios, one bar per case and figure; left of the line is better than etcd.

use crate::cases::Sample;
use crate::report::{FIGURES, case_names, median};
use crate::server::Kind;
use std::fmt::Write;

const ROW: usize = 18;
const LEFT: usize = 330;
const UNIT: f64 = 220.0;

/// The plot as an SVG document. Rates are shown inverted, so that a short bar is always the better one.
pub fn plot(samples: &[Sample]) -> String {
    let mut bars = String::new();
    let mut y = 40;
    for case in case_names(samples) {
        for figure in &FIGURES {
            let etcd = median(samples, &case, Kind::Etcd, figure).unwrap_or(0.0);
            let tenon = median(samples, &case, Kind::Tenon, figure).unwrap_or(0.0);
            if etcd <= 0.0 || tenon <= 0.0 {
                continue;
            }
            let ratio = if figure.name == "requests/s" {
                etcd / tenon
            } else {
                tenon / etcd
            };
            bar(&mut bars, y, &format!("{case} · {}", figure.name), ratio);
            y += ROW;
        }
    }
    let line = LEFT as f64 + UNIT;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"840\" height=\"{h}\" font-family=\"sans-serif\" \
         font-size=\"11\">\n<rect width=\"840\" height=\"{h}\" fill=\"#fff\"/>\n\
         <text x=\"10\" y=\"20\" font-size=\"14\">Tenon / etcd 3.7.3 (rates inverted): shorter is better, \
         the line is etcd</text>\n{bars}<line x1=\"{line}\" x2=\"{line}\" y1=\"30\" y2=\"{y}\" \
         stroke=\"#333\"/>\n</svg>\n",
        h = y + 20
    )
}

fn bar(out: &mut String, y: usize, label: &str, ratio: f64) {
    let width = (ratio.min(2.0) * UNIT).max(1.0);
    let colour = if ratio <= 1.0 { "#3a8f5c" } else { "#c0563f" };
    let _ = writeln!(
        out,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{label}</text>\
         <rect x=\"{LEFT}\" y=\"{}\" width=\"{width:.0}\" height=\"12\" fill=\"{colour}\"/>\
         <text x=\"{:.0}\" y=\"{}\">{ratio:.2}</text>",
        LEFT - 8,
        y + 10,
        y,
        LEFT as f64 + width + 6.0,
        y + 10
    );
}
