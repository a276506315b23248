//! Room `tests`: a page of metrics by family, and the list of those that must be there. Pure.

use std::collections::{BTreeMap, BTreeSet};

/// One family of a page.
#[derive(Clone, Debug, Default)]
pub struct Family {
    /// `counter`, `gauge` or `histogram`.
    pub kind: String,
    /// Names of labels, without a histogram's `le`, of every series.
    pub labels: BTreeSet<Vec<String>>,
    /// Sum over all series; of a histogram, how often something was observed.
    pub total: f64,
}

/// A page by the names of its families. A family without series counts as absent.
pub type Page = BTreeMap<String, Family>;

/// Reads Prometheus' text format.
///
/// # Errors
/// The line that is none.
pub fn read(text: &str) -> Result<Page, String> {
    let mut kinds = BTreeMap::new();
    let mut page = Page::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').ok_or(line)?;
            kinds.insert(name.to_owned(), kind.to_owned());
            continue;
        }
        if line.starts_with('#') {
            continue;
        }
        let (series, value) = line.rsplit_once(' ').ok_or(line)?;
        let (name, labels) = match series.split_once('{') {
            Some((name, labels)) => (name, labels.trim_end_matches('}')),
            None => (series, ""),
        };
        let parts = ["_bucket", "_sum", "_count"];
        let of_histogram = parts.iter().find_map(|part| {
            let base = name.strip_suffix(part)?;
            ["histogram", "summary"]
                .contains(&kinds.get(base)?.as_str())
                .then_some((base, *part))
        });
        let (base, part) = of_histogram.unwrap_or((name, ""));
        let kind = kinds.get(base).ok_or_else(|| format!("no type: {line}"))?;
        let family = page.entry(base.to_owned()).or_default();
        family.kind.clone_from(kind);
        if part == "_count" || part.is_empty() {
            family.labels.insert(names(labels));
            family.total += value.parse::<f64>().map_err(|e| format!("{line}: {e}"))?;
        }
    }
    Ok(page)
}

/// Names of labels, sorted. Values may hold anything but a quote.
fn names(labels: &str) -> Vec<String> {
    let names = labels.split('"').step_by(2);
    let names = names.filter_map(|part| part.trim_start_matches(',').strip_suffix('='));
    let mut names: Vec<String> = names.map(str::to_owned).collect();
    names.sort();
    names
}

/// A row of the list: what must be there, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Name of the family.
    pub name: String,
    /// Its type.
    pub kind: String,
    /// Names of its labels, sorted.
    pub labels: Vec<String>,
    /// When it must have risen, or stand there: the words of the list.
    pub when: String,
}

/// Reads the list: `name type labels when`, labels joined by commas or `-`.
///
/// # Panics
/// When a line has another form.
#[must_use]
pub fn list(text: &str) -> Vec<Row> {
    let lines = text
        .lines()
        .filter(|l| !l.is_empty() && !l.starts_with('#'));
    let row = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [name, kind, labels, when] = words[..] else {
            panic!("four words: {line}");
        };
        let labels = labels.split(',').filter(|l| *l != "-");
        let mut labels: Vec<String> = labels.map(str::to_owned).collect();
        labels.sort();
        Row {
            name: name.to_owned(),
            kind: kind.to_owned(),
            labels,
            when: when.to_owned(),
        }
    };
    lines.map(row).collect()
}

impl Row {
    /// What is wrong with this family on a page.
    ///
    /// # Errors
    /// That it is missing, or has another type or other labels.
    pub fn check(&self, page: &Page) -> Result<f64, String> {
        let Some(family) = page.get(&self.name) else {
            return Err(format!("{} is missing", self.name));
        };
        if family.kind != self.kind {
            return Err(format!("{} is a {}", self.name, family.kind));
        }
        if family.labels.iter().any(|labels| *labels != self.labels) {
            return Err(format!("{} has labels {:?}", self.name, family.labels));
        }
        Ok(family.total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_read_by_family() {
        let text = "# HELP a x\n# TYPE a counter\na{m=\"p, q\",b=\"1\"} 2\na{b=\"2\",m=\"r\"} 3\n\
                    # TYPE h histogram\nh_bucket{le=\"1\"} 1\nh_sum 0.5\nh_count 4\n# TYPE e gauge\n";
        let page = read(text).expect("a page");
        assert_eq!((page["a"].total, page["h"].total), (5.0, 4.0));
        assert!(!page.contains_key("e"));
        let rows = list("# x\na counter b,m moves\nh histogram - -\na gauge b,m -\n");
        let checked: Vec<bool> = rows.iter().map(|row| row.check(&page).is_ok()).collect();
        assert_eq!(checked, [true, true, false]);
    }
}
