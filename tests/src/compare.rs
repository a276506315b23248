//! Room `tests`: the answers of a run against those of a script. Pure.

use crate::run::Answers;
use crate::script::Item;
use crate::server::Kind;
use std::fmt::Write as _;

/// Every command whose answer is not the expected one: line, command, what was expected, what came. On Tenon
/// a command's `~` lines count instead of etcd's answer.
#[must_use]
pub fn differences(items: &[Item], answers: &Answers, kind: Kind) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut answers = answers.iter();
    for item in items {
        let Item::Command(command) = item else {
            continue;
        };
        let got = answers.next().map_or(&[][..], Vec::as_slice);
        let expected = match (&command.differs, kind) {
            (Some(differs), Kind::Tenon) => differs,
            _ => &command.answer,
        };
        if got != expected.as_slice() {
            let mut text = format!("{}: > {}", command.line, command.joined());
            expected
                .iter()
                .for_each(|line| _ = write!(text, "\n  - {line}"));
            got.iter().for_each(|line| _ = write!(text, "\n  + {line}"));
            wrong.push(text);
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::parse;

    fn answers(lines: &[&[&str]]) -> Answers {
        lines
            .iter()
            .map(|l| l.iter().map(|s| (*s).to_owned()).collect())
            .collect()
    }

    #[test]
    fn wrong_missing_and_additional_answers_are_found() {
        let items = parse("> A\none\ntwo\n> B\n").expect("a right script");
        let count = |lines: &[&[&str]]| differences(&items, &answers(lines), Kind::Etcd).len();
        assert_eq!(count(&[&["one", "two"], &[]]), 0);
        assert_eq!(count(&[&["one", "other"], &[]]), 1);
        assert_eq!(count(&[&["one"], &["more"]]), 2);
        assert_eq!(count(&[]), 1, "a run that ended early");
    }

    #[test]
    fn a_deliberate_difference_is_tenons_only() {
        let items = parse("> A\nrefused\n~ served\n> B\nx\n~\n").expect("a right script");
        let (etcd, tenon) = (
            answers(&[&["refused"], &["x"]]),
            answers(&[&["served"], &[]]),
        );
        assert_eq!(differences(&items, &etcd, Kind::Etcd).len(), 0);
        assert_eq!(differences(&items, &tenon, Kind::Tenon).len(), 0);
        assert_eq!(differences(&items, &etcd, Kind::Tenon).len(), 2);
    }
}
