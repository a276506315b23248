//! Room `tests`: the words before a script's command that say whom to ask, how often, and how its answer is
//! told. Pure text.

use crate::call::Metadata;
use crate::expand::{Names, expand};
use crate::print::Detail;
use crate::receive::Order;

/// How a command is asked and its answer told.
#[derive(Clone, Debug)]
pub struct Manner {
    /// How much of a message is told.
    pub detail: Detail,
    /// Whether its order matters.
    pub order: Order,
    /// Sent with a call.
    pub metadata: Metadata,
    /// Whom to ask, if not the usual member.
    pub asked: Option<String>,
    /// Repeat until this holds.
    pub until: Option<Until>,
}

/// When a command is no longer repeated.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Until {
    /// It went well.
    Good,
    /// Its answer holds this.
    Holds(String),
}

impl Until {
    /// Whether these lines are the answer waited for.
    #[must_use]
    pub fn is_met(&self, lines: &[String]) -> bool {
        let bad = |line: &String| line.starts_with("exit ") || is_status(line);
        match self {
            Until::Good => !lines.iter().any(bad),
            Until::Holds(word) => lines.iter().any(|line| line.contains(word.as_str())),
        }
    }
}

/// Whether `line` is a failed call's, as `NotFound(5) …`.
fn is_status(line: &str) -> bool {
    let name = line.split('(').next().unwrap_or_default();
    let code = line[name.len()..].strip_prefix('(');
    let code = code.and_then(|rest| rest.split_once(')'));
    !name.is_empty()
        && name.chars().all(char::is_alphabetic)
        && code.is_some_and(|(digits, _)| digits.parse::<u8>().is_ok())
}

impl Manner {
    /// Reads the words at the beginning of `line`; the command that follows them.
    ///
    /// # Errors
    /// Which word lacks what.
    pub fn read<'a>(line: &'a str, names: &Names) -> Result<(Manner, &'a str), String> {
        let mut manner = Manner {
            detail: Detail::Full,
            order: Order::Kept,
            metadata: Metadata::new(),
            asked: None,
            until: None,
        };
        let mut rest = line;
        loop {
            let (word, after) = rest.split_once(' ').unwrap_or((rest, ""));
            let (next, beyond) = after.split_once(' ').unwrap_or((after, ""));
            let is_pair = matches!(word, "at" | "with" | "seen");
            match word {
                "sorted" => manner.order = Order::Sorted,
                "counted" => manner.detail = Detail::Counted,
                "unnumbered" => manner.detail = Detail::Unnumbered,
                "brief" => manner.detail = Detail::Brief,
                "soon" => manner.until = Some(Until::Good),
                "at" => manner.asked = Some(next.to_owned()),
                "seen" => manner.until = Some(Until::Holds(expand(next, names)?)),
                "with" => {
                    let (key, value) = next.split_once('=').ok_or("with: no =")?;
                    manner.metadata.push((key.to_owned(), value.to_owned()));
                }
                _ => return Ok((manner, rest)),
            }
            rest = if is_pair { beyond } else { after };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_before_a_command() {
        let read = Manner::read(
            "at m2 soon sorted with a=b Put key: \"a\"",
            &Names::default(),
        );
        let (manner, command) = read.expect("right words");
        assert_eq!(command, "Put key: \"a\"");
        assert_eq!(manner.asked.as_deref(), Some("m2"));
        assert_eq!(manner.order, Order::Sorted);
        assert_eq!(manner.metadata, [("a".to_owned(), "b".to_owned())]);
        let lines = |text: &str| vec![text.to_owned()];
        let good = manner.until.expect("soon");
        assert!(good.is_met(&lines("header { revision: 2 }")));
        assert!(!good.is_met(&lines("NotFound(5) etcdserver: member not found")));
        assert!(!good.is_met(&lines("exit 1")));
        assert!(Until::Holds("b".to_owned()).is_met(&lines("a b c")));
    }
}
