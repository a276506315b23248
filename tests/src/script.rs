//! Room `tests`: the form of an oracle script: a story of commands and the answers real etcd gave.
//! Pure text; must not run anything.
//!
//! - `# …` and blank lines: the story.
//! - `> command`, continued by lines `>> …`.
//! - the lines after a command: etcd's answer, written by recording (`TENON_ORACLE_RECORD=1`), never by hand.
//! - `~ …` lines after an answer: what Tenon answers instead, on purpose; `docs/differences.md` says why.
//!   `~` alone stands for an empty answer.

/// One step of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// A comment or blank line, kept as it is.
    Story(String),
    /// A command with its answers.
    Command(Command),
}

/// A command and what is expected of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// Number of its first line, from 1.
    pub line: usize,
    /// Its lines as written, without `> ` and `>> `.
    pub text: Vec<String>,
    /// etcd's answer.
    pub answer: Vec<String>,
    /// Tenon's answer where it differs on purpose.
    pub differs: Option<Vec<String>>,
}

impl Command {
    /// The command on one line.
    #[must_use]
    pub fn joined(&self) -> String {
        self.text.join(" ")
    }
}

/// Reads a script.
///
/// # Errors
/// The number of a line that belongs to nothing.
pub fn parse(text: &str) -> Result<Vec<Item>, String> {
    let mut items = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let stray = || format!("line {}: belongs to no command: {line:?}", index + 1);
        if line.is_empty() || line.starts_with('#') {
            items.push(Item::Story(line.to_owned()));
        } else if let Some(command) = line.strip_prefix("> ") {
            items.push(Item::Command(Command {
                line: index + 1,
                text: vec![command.to_owned()],
                answer: Vec::new(),
                differs: None,
            }));
        } else {
            let Some(Item::Command(command)) = items.last_mut() else {
                return Err(stray());
            };
            if let Some(more) = line.strip_prefix(">> ") {
                command.text.push(more.to_owned());
            } else if let Some(other) = line.strip_prefix('~') {
                let lines = command.differs.get_or_insert_default();
                if let Some(other) = other.strip_prefix(' ') {
                    lines.push(other.to_owned());
                }
            } else {
                command.answer.push(line.to_owned());
            }
        }
    }
    Ok(items)
}

/// Writes a script; the inverse of [`parse`].
#[must_use]
pub fn write(items: &[Item]) -> String {
    let mut out = String::new();
    for item in items {
        match item {
            Item::Story(line) => push(&mut out, "", line),
            Item::Command(command) => write_command(&mut out, command),
        }
    }
    out
}

fn write_command(out: &mut String, command: &Command) {
    for (index, line) in command.text.iter().enumerate() {
        push(out, if index == 0 { "> " } else { ">> " }, line);
    }
    for line in &command.answer {
        push(out, "", line);
    }
    match command.differs.as_deref() {
        None => {}
        Some([]) => push(out, "~", ""),
        Some(lines) => lines.iter().for_each(|line| push(out, "~ ", line)),
    }
}

fn push(out: &mut String, prefix: &str, line: &str) {
    out.push_str(prefix);
    out.push_str(line);
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_as_read() {
        let text =
            "# story\n\n> Put key: \"a\"\n>> value: \"b\"\nheader { revision: 2 }\n~ other\n";
        let items = parse(text).expect("a right script");
        assert_eq!(write(&items), text);
        let Item::Command(command) = &items[2] else {
            panic!("{items:?}")
        };
        assert_eq!(command.joined(), "Put key: \"a\" value: \"b\"");
        assert_eq!(command.answer, ["header { revision: 2 }"]);
        assert_eq!(
            command.differs.as_deref(),
            Some(["other".to_owned()].as_slice())
        );
    }

    #[test]
    fn an_answer_without_a_command_is_refused() {
        assert!(parse("# story\nheader { revision: 2 }\n").is_err());
    }
}
