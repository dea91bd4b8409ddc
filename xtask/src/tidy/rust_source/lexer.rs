//! Separates code, comments and literals, so that a rule does not find a word that is only mentioned.

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Code,
    Comment,
    Literal,
}

/// The views of a text. Each is as long as the text, with blanks for the parts of the others.
pub(super) struct Views {
    pub(super) code: String,
    pub(super) comments: String,
    pub(super) literals: String,
}

/// Splits `text` into its views.
pub(super) fn split(text: &str) -> Views {
    let classes = classify(text.as_bytes());
    let only = |wanted: Class| {
        let mut view = String::with_capacity(text.len());
        for (at, character) in text.char_indices() {
            if character == '\n' || classes[at] == wanted {
                view.push(character);
            } else {
                // One blank for each byte keeps the offsets of the file.
                view.extend(std::iter::repeat_n(' ', character.len_utf8()));
            }
        }
        view
    };
    Views { code: only(Class::Code), comments: only(Class::Comment), literals: only(Class::Literal) }
}

fn classify(bytes: &[u8]) -> Vec<Class> {
    let mut classes = vec![Class::Code; bytes.len()];
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let (class, length) = if rest.starts_with(b"//") {
            (Class::Comment, rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len()))
        } else if rest.starts_with(b"/*") {
            (Class::Comment, block_comment(rest))
        } else if rest[0] == b'"' {
            (Class::Literal, quoted(rest, b'"'))
        } else if let Some(length) = raw_string(rest, at.checked_sub(1).map(|before| bytes[before])) {
            (Class::Literal, length)
        } else if is_character(rest) {
            (Class::Literal, quoted(rest, b'\''))
        } else {
            (Class::Code, 1)
        };
        let end = (at + length).min(bytes.len());
        classes[at..end].fill(class);
        at = end;
    }
    classes
}

/// Block comments nest in Rust.
fn block_comment(rest: &[u8]) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

fn quoted(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// `r"…"`, `r#"…"#`, and the same behind `b` or `c`.
fn raw_string(rest: &[u8], before: Option<u8>) -> Option<usize> {
    let inside_a_name = before.is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let after_prefix = match rest {
        [b'b' | b'c', b'r', ..] => 2,
        [b'r', ..] => 1,
        _ => return None,
    };
    if inside_a_name {
        return None;
    }
    let hashes = rest[after_prefix..].iter().take_while(|byte| **byte == b'#').count();
    let opening = after_prefix + hashes;
    if rest.get(opening) != Some(&b'"') {
        return None;
    }
    let closing: Vec<u8> = std::iter::once(b'"').chain(std::iter::repeat_n(b'#', hashes)).collect();
    let content = &rest[opening + 1..];
    let end = content.windows(closing.len()).position(|window| window == closing);
    Some(end.map_or(rest.len(), |end| opening + 1 + end + closing.len()))
}

/// A quote opens a character when the character behind it is followed by another quote; else it is a
/// lifetime.
fn is_character(rest: &[u8]) -> bool {
    match rest {
        [b'\'', b'\\', ..] => true,
        [b'\'', first, ..] => {
            let length = match first {
                0x00..0x80 => 1,
                0x80..0xE0 => 2,
                0xE0..0xF0 => 3,
                _ => 4,
            };
            rest.get(1 + length) == Some(&b'\'')
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words of code and comments.
    fn views(text: &str) -> (Vec<String>, Vec<String>) {
        let Views { code, comments, literals } = split(text);
        assert_eq!([code.len(), comments.len(), literals.len()], [text.len(); 3]);
        let words = |view: String| view.split_whitespace().map(str::to_owned).collect();
        (words(code), words(comments))
    }

    #[test]
    fn comments_are_not_code() {
        let (code, comments) = views("a // b\nc /* d /* e */ f */ g\n");
        assert_eq!(code, ["a", "c", "g"]);
        assert_eq!(comments, ["//", "b", "/*", "d", "/*", "e", "*/", "f", "*/"]);
    }

    #[test]
    fn literals_are_neither_code_nor_comments() {
        let (code, comments) = views("a \"b // \\\" c\" d r#\"e \" // f\"# g b\"h\" br\"i\\\" j");
        assert_eq!(code, ["a", "d", "g", "b", "j"]);
        assert!(comments.is_empty());
        assert_eq!(
            split("a /* \"b\" */ \"c\" 'd'").literals.split_whitespace().collect::<Vec<_>>(),
            ["\"c\"", "'d'"]
        );
    }

    #[test]
    fn lifetime_begins_no_character_and_a_quote_character_no_string() {
        let (code, _) = views("f<'a>(x: &'a str) '\"' y '\\'' z 'é' w");
        assert_eq!(code, ["f<'a>(x:", "&'a", "str)", "y", "z", "w"]);
    }

    #[test]
    fn raw_name_or_a_name_ending_in_r_begins_no_string() {
        let (code, _) = views("r#type bar\"text\" x");
        assert_eq!(code, ["r#type", "bar", "x"]);
    }
}
