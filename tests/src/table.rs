//! Room `tests`: etcdctl's tables without what differs from run to run: widths, sizes, times, terms. Pure.

/// Columns whose values are sizes, times or positions.
const MASKED: &[&str] = &[
    "TOOK",
    "DB SIZE",
    "IN USE",
    "PERCENTAGE NOT IN USE",
    "RAFT TERM",
    "RAFT INDEX",
    "RAFT APPLIED INDEX",
];

/// `lines` with every table's lines made as narrow as they can be; other lines as they are.
#[must_use]
pub fn narrowed(lines: &[String]) -> Vec<String> {
    let mut header: Option<Vec<&str>> = None;
    let mut out = Vec::with_capacity(lines.len());
    for line in lines {
        let Some(inner) = line.strip_prefix('│').and_then(|l| l.strip_suffix('│')) else {
            if line.starts_with('┌') {
                header = None;
            }
            out.push(border(line));
            continue;
        };
        let cells: Vec<&str> = inner.split('│').map(str::trim).collect();
        let known = header.get_or_insert_with(|| cells.clone());
        let shown = cells.iter().zip(known.iter());
        let shown = shown.map(
            |(cell, column)| match MASKED.contains(column) && cell != column {
                true => "*",
                false => cell,
            },
        );
        out.push(format!("│ {} │", shown.collect::<Vec<_>>().join(" │ ")));
    }
    out
}

/// A line between rows, each run of strokes as one.
fn border(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    for c in line.chars() {
        if c != '─' || !out.ends_with('─') {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #[test]
    fn widths_and_times_do_not_show() {
        let lines = [
            "┌──────┬────┐",
            "│ TOOK │ X  │",
            "├──────┼────┤",
            "│  1ms │  2 │",
        ];
        let lines = lines.map(str::to_owned);
        let expected = ["┌─┬─┐", "│ TOOK │ X │", "├─┼─┤", "│ * │ 2 │"];
        assert_eq!(super::narrowed(&lines), expected);
        assert_eq!(super::narrowed(&["a  b".to_owned()]), ["a  b"]);
    }
}
