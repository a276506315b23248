//! Room `tests`: what is written short in a script, and the ids it remembers. Pure text.
//!
//! - `$name`: a remembered value; `$name.hex`: the same in lower-case hex.
//! - `$fill(N)`: N letters `v`.
//! - `$repeat(N){ … }`: the text N times; `%i` in it counts from 0. Braces nest.

use std::collections::BTreeMap;

/// Values remembered by `-> name=field`, by name, and what else stands for a name in an answer.
#[derive(Clone, Debug, Default)]
pub struct Names {
    values: BTreeMap<String, i128>,
    texts: BTreeMap<String, String>,
    /// Further values that are masked by a name.
    aliases: Vec<(String, i128)>,
}

/// Below this size a number is no id, and is never replaced by a name in an answer.
const ID_MIN: i128 = 1_000_000;

impl Names {
    /// Remembers `value` as `name`.
    pub fn set(&mut self, name: &str, value: i128) {
        self.values.insert(name.to_owned(), value);
    }

    /// Remembers a text as `name`; names that begin alike must not be texts.
    pub fn set_text(&mut self, name: &str, text: String) {
        self.texts.insert(name.to_owned(), text);
    }

    /// From now on `value` too is masked by `name`.
    pub fn alias(&mut self, name: &str, value: i128) {
        self.aliases.push((name.to_owned(), value));
    }

    /// The value called `name`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<i128> {
        self.values.get(name).copied()
    }

    /// Writes `$name` for each remembered text and id that stands in an answer, ids decimal or hex.
    #[must_use]
    pub fn mask(&self, answer: &str) -> String {
        let mut out = answer.to_owned();
        for (name, text) in &self.texts {
            out = out.replace(text.as_str(), &format!("${name}"));
        }
        let aliases = self.aliases.iter().map(|(name, value)| (name, value));
        for (name, value) in self.values.iter().chain(aliases) {
            if value.abs() >= ID_MIN {
                out = out.replace(&value.to_string(), &format!("${name}"));
                let hex = hex(*value);
                out = out.replace(&format!("{hex:0>16}"), &format!("${name}.hex"));
                out = out.replace(&hex, &format!("${name}.hex"));
            }
        }
        out
    }
}

fn hex(value: i128) -> String {
    // Two's complement of 64 bits, as the servers print a negative id.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "64-bit ids"
    )]
    let bits = value as u64;
    format!("{bits:x}")
}

/// Expands `text`.
///
/// # Errors
/// Which name is unknown or which form is broken.
pub fn expand(text: &str, names: &Names) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let end = rest
            .find(|c: char| !c.is_alphanumeric() && c != '_')
            .unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        rest = match name {
            "fill" => {
                let (count, after) = argument(after)?;
                out.extend(std::iter::repeat_n('v', count));
                after
            }
            "repeat" => {
                let (count, after) = argument(after)?;
                let (body, after) = braces(after)?;
                for i in 0..count {
                    out.push_str(&expand(&body.replace("%i", &i.to_string()), names)?);
                }
                after
            }
            _ if names.texts.contains_key(name) => {
                out.push_str(&names.texts[name]);
                after
            }
            _ => {
                let value = names
                    .get(name)
                    .ok_or_else(|| format!("${name} is not remembered"))?;
                match after.strip_prefix(".hex") {
                    Some(after) => {
                        out.push_str(&hex(value));
                        after
                    }
                    None => {
                        out.push_str(&value.to_string());
                        after
                    }
                }
            }
        };
    }
    out.push_str(rest);
    Ok(out)
}

/// `(N)` and what follows it.
fn argument(text: &str) -> Result<(usize, &str), String> {
    let broken = || format!("expected (N): {text:.20}");
    let (number, after) = text
        .strip_prefix('(')
        .and_then(|t| t.split_once(')'))
        .ok_or_else(broken)?;
    Ok((number.parse().map_err(|_| broken())?, after))
}

/// `{ … }` with nested braces, and what follows it.
fn braces(text: &str) -> Result<(&str, &str), String> {
    let inner = text
        .strip_prefix('{')
        .ok_or_else(|| format!("expected {{…}}: {text:.20}"))?;
    let mut depth = 1;
    for (at, c) in inner.char_indices() {
        depth += match c {
            '{' => 1,
            '}' => -1,
            _ => 0,
        };
        if depth == 0 {
            return Ok((&inner[..at], &inner[at + 1..]));
        }
    }
    Err(format!("no closing brace: {text:.20}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        let mut names = Names::default();
        names.set("lease", 7_000_000);
        assert_eq!(
            expand("ID: $lease x/$lease.hex", &names).as_deref(),
            Ok("ID: 7000000 x/6acfc0")
        );
        assert_eq!(
            expand("$fill(3)$repeat(2){a { k: \"%i\" } }", &names).as_deref(),
            { Ok("vvva { k: \"0\" } a { k: \"1\" } ") }
        );
        names.set_text("url_a", "http://a".to_owned());
        assert_eq!(expand("\"$url_a\"", &names).as_deref(), Ok("\"http://a\""));
        assert!(expand("$nobody", &names).is_err());
        assert!(expand("$repeat(2){a", &names).is_err());
    }

    #[test]
    fn ids_are_masked_and_small_numbers_are_not() {
        let mut names = Names::default();
        names.set("lease", 7_000_000);
        names.set("rev", 5);
        names.set_text("url", "http://a:1".to_owned());
        names.alias("lease", 8_000_000);
        assert_eq!(names.mask("8000000 at http://a:1"), "$lease at $url");
        assert_eq!(
            names.mask("ID: 7000000 key: \"n/6acfc0\" v: 5"),
            "ID: $lease key: \"n/$lease.hex\" v: 5"
        );
    }
}
