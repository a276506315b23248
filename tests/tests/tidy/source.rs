//! Room `tests`: a Rust file as `tidy` sees it: text with comments and literals blanked, its functions, its
//! test parts. Pure; knows only as much of the language as the rules need.

/// Most lines of a file.
const FILE_LINES_MAX: usize = 500;
/// Most lines of a function, from `fn` to its closing brace.
const FN_LINES_MAX: usize = 70;

/// Length of the file and its functions, and the `//!` it begins with.
pub fn shape(path: &str, text: &str) -> Vec<String> {
    let mut findings = Vec::new();
    let lines = text.lines().count();
    if lines > FILE_LINES_MAX {
        findings.push(format!("{path}: {lines} lines, at most {FILE_LINES_MAX}"));
    }
    if !text.starts_with("//!") {
        findings.push(format!("{path}: does not begin with //!"));
    }
    for (line, name, length) in functions(&blank(text)) {
        if length > FN_LINES_MAX {
            findings.push(format!(
                "{path}:{line}: fn {name}: {length} lines, at most {FN_LINES_MAX}"
            ));
        }
    }
    findings
}

/// `text` with comments, strings and character literals turned into blanks; lines stay.
pub fn blank(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let end = literal_end(bytes, at);
        if end > at {
            out.extend(
                bytes[at..end]
                    .iter()
                    .map(|b| if *b == b'\n' { b'\n' } else { b' ' }),
            );
            at = end;
        } else {
            out.push(bytes[at]);
            at += 1;
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Where the comment or literal that begins at `at` ends; `at` itself if none begins there.
fn literal_end(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    let after_word = at > 0 && is_word(bytes[at - 1]);
    match rest {
        [b'/', b'/', ..] => at + rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len()),
        [b'/', b'*', ..] => block_comment_end(bytes, at),
        [b'"', ..] => string_end(bytes, at + 1),
        [b'r', b'"' | b'#', ..] if !after_word => raw_string_end(bytes, at, at + 1),
        [b'b', b'r', b'"' | b'#', ..] if !after_word => raw_string_end(bytes, at, at + 2),
        [b'\'', b'\\', ..] => {
            let close = rest[3..].iter().position(|b| *b == b'\'');
            at + close.map_or(rest.len(), |close| close + 4)
        }
        [b'\'', ..] => char_end(bytes, at),
        _ => at,
    }
}

fn block_comment_end(bytes: &[u8], start: usize) -> usize {
    let (mut depth, mut at) = (0, start);
    while at < bytes.len() {
        match &bytes[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

fn string_end(bytes: &[u8], mut at: usize) -> usize {
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

fn raw_string_end(bytes: &[u8], start: usize, mut at: usize) -> usize {
    let hashes = bytes[at..].iter().take_while(|b| **b == b'#').count();
    at += hashes;
    if bytes.get(at) != Some(&b'"') {
        return start; // a raw identifier
    }
    at += 1;
    while at < bytes.len() {
        let closes = bytes[at] == b'"'
            && bytes[at + 1..]
                .iter()
                .take(hashes)
                .filter(|b| **b == b'#')
                .count()
                == hashes;
        if closes {
            return at + 1 + hashes;
        }
        at += 1;
    }
    bytes.len()
}

/// A character literal, not a lifetime: its quote closes after one character.
fn char_end(bytes: &[u8], at: usize) -> usize {
    let text = std::str::from_utf8(&bytes[at + 1..(at + 6).min(bytes.len())]);
    let text = match text {
        Ok(text) => text,
        Err(e) => std::str::from_utf8(&bytes[at + 1..at + 1 + e.valid_up_to()]).unwrap_or(""),
    };
    let mut chars = text.char_indices();
    match (chars.next(), chars.next()) {
        (Some(_), Some((second, '\''))) => at + 1 + second + 1,
        _ => at,
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Offsets of `word` standing alone in blanked text.
pub fn words<'a>(blanked: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let bytes = blanked.as_bytes();
    blanked
        .match_indices(word)
        .map(|(at, _)| at)
        .filter(move |at| {
            let before = at.checked_sub(1).map(|i| bytes[i]);
            let after = bytes.get(at + word.len()).copied();
            !before.is_some_and(is_word) && !after.is_some_and(is_word)
        })
}

/// The line of an offset, from 1.
pub fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

/// Line, name and length of every function with a body.
fn functions(blanked: &str) -> Vec<(usize, String, usize)> {
    let mut found = Vec::new();
    for at in words(blanked, "fn") {
        let rest = &blanked[at + 2..];
        let name: String = rest
            .trim_start()
            .chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect();
        let body = rest
            .find(['{', ';'])
            .filter(|i| rest[*i..].starts_with('{'));
        if let (false, Some(body)) = (name.is_empty(), body) {
            let end = close(rest, body);
            found.push((
                line_of(blanked, at),
                name,
                rest[..end].matches('\n').count() + 1,
            ));
        }
    }
    found
}

/// The offset after the brace that closes the one at `open`.
fn close(blanked: &str, open: usize) -> usize {
    let mut depth = 0;
    for (at, byte) in blanked.bytes().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    blanked.len()
}

/// Blanked text without its `#[cfg(test)]` items.
pub fn without_tests(blanked: &str) -> String {
    let mut out = blanked.to_owned();
    while let Some(at) = out.find("#[cfg(test)]") {
        let rest = &out[at..];
        let end = match rest.find(['{', ';']) {
            Some(open) if rest[open..].starts_with('{') => at + close(rest, open),
            Some(semicolon) => at + semicolon + 1,
            None => out.len(),
        };
        let lines = "\n".repeat(out[at..end].matches('\n').count());
        out.replace_range(at..end, &lines);
    }
    out
}

/// Files that are test modules of the file at `path`: `#[cfg(test)] mod name;`.
pub fn test_files(path: &str, text: &str) -> Vec<String> {
    let blanked = blank(text);
    let (dir, file) = path.rsplit_once('/').unwrap_or(("", path));
    let stem = file.trim_end_matches(".rs");
    let home = match stem {
        "lib" | "main" | "mod" => dir.to_owned(),
        _ => format!("{dir}/{stem}"),
    };
    let mut found = Vec::new();
    for (at, _) in blanked.match_indices("#[cfg(test)]") {
        let Some(item) = blanked[at..].split_inclusive([';', '{']).next() else {
            continue;
        };
        if let Some(name) = item.strip_suffix(';').and_then(|i| i.rsplit_once("mod ")) {
            let name = name.1.trim();
            // A `#[path = "name.rs"]` module lies beside the file itself.
            found.extend([format!("{home}/{name}.rs"), format!("{dir}/{name}.rs")]);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_and_comments_are_blanked() {
        let text =
            "a(\"fn {\", 'x', '\\'', r#\"}\"#); // fn }\n/* { /* */ */ fn b<'a>(c: &'a str) {}";
        let blanked = blank(text);
        assert_eq!(blanked.len(), text.len());
        assert_eq!(words(&blanked, "fn").count(), 1);
        assert_eq!(blanked.matches(['{', '}']).count(), 2);
        assert!(blanked.contains("&'a str"), "{blanked}");
    }

    #[test]
    fn long_files_long_functions_and_missing_stories_are_found() {
        let body = "    let x = \"}\";\n".repeat(69);
        let long = format!("//! Story.\nfn long() {{\n{body}}}\n");
        let found = shape("a.rs", &long);
        assert_eq!(found, ["a.rs:2: fn long: 71 lines, at most 70"]);
        let short = format!("//! Story.\nfn short() {{\n{}}}\n", "    x();\n".repeat(68));
        assert!(shape("a.rs", &short).is_empty());
        assert_eq!(shape("a.rs", "fn a() {}\n").len(), 1, "no story");
        assert_eq!(
            shape("a.rs", &format!("//! Story.\n{}", "//\n".repeat(500))).len(),
            1
        );
    }

    #[test]
    fn test_parts_are_known() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n fn b() {}\n}\nfn c() {}\n";
        let left = without_tests(&blank(text));
        assert!(
            left.contains("fn a") && left.contains("fn c") && !left.contains("fn b"),
            "{left}"
        );
        assert_eq!(line_of(&left, left.find("fn c").unwrap_or(0)), 6);
        let found = test_files("storage/src/wal.rs", "#[cfg(test)]\nmod crash;\nmod real;");
        assert_eq!(found, ["storage/src/wal/crash.rs", "storage/src/crash.rs"]);
    }
}
