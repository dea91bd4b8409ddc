//! A scanner that splits a Rust file into code, comments and literals, and finds the lines of tests.
//!
//! It is no parser: code in a macro's tokens counts as code, names are not resolved, and a `cfg(test)`
//! attribute on a struct's field marks the rest of the struct.

use std::ops::Range;

/// One parsed file. All views have the columns and lines of the file.
#[derive(Debug)]
pub(super) struct RustSource {
    code: String,
    comments: String,
    literals: String,
    line_starts: Vec<usize>,
    tests: Vec<Range<usize>>,
    test_modules: Vec<String>,
}

impl RustSource {
    pub(super) fn new(text: &str) -> Self {
        let Views { code, comments, literals } = split(text);
        let found = find(text, &code);
        let line_starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Self { code, comments, literals, line_starts, tests: found.spans, test_modules: found.modules }
    }

    pub(super) fn mark_all_as_test(&mut self) {
        self.tests.push(0..usize::MAX);
    }

    /// Names of modules in files of their own that only tests use.
    pub(super) fn test_modules(&self) -> &[String] {
        &self.test_modules
    }

    /// Returns the code, with blanks for comments and the contents of literals.
    pub(super) fn code(&self) -> &str {
        &self.code
    }

    /// Returns the comments, with blanks for everything else.
    pub(super) fn comments(&self) -> &str {
        &self.comments
    }

    /// Returns the literals with their quotes, and blanks for everything else.
    pub(super) fn literals(&self) -> &str {
        &self.literals
    }

    /// Returns the span from `start` to the end of the item that begins there.
    pub(super) fn item(&self, start: usize) -> Range<usize> {
        item_behind(&self.code, start)
    }

    /// Returns the line, counted from 1, of a byte.
    pub(super) fn line(&self, at: usize) -> usize {
        self.line_starts.partition_point(|start| *start <= at)
    }

    /// Whether the line, counted from 1, belongs to a test.
    pub(super) fn is_test(&self, line: usize) -> bool {
        let start = self.line_starts.get(line.saturating_sub(1)).copied().unwrap_or(usize::MAX);
        let next = self.line_starts.get(line).copied().unwrap_or(usize::MAX);
        self.tests.iter().any(|test| test.start < next && start < test.end)
    }

    /// Iterates over the lines of code, tests included, with `wanted` as a whole word.
    pub(super) fn lines_with(&self, wanted: &str) -> impl Iterator<Item = usize> {
        words(&self.code, wanted).map(|at| self.line(at))
    }
}

/// Iterates over the places of `wanted` in `text` that are not part of a longer name.
pub(super) fn words<'text>(text: &'text str, wanted: &str) -> impl Iterator<Item = usize> + use<'text> {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let bytes = text.as_bytes();
    let length = wanted.len();
    let (open_front, open_back) = match wanted.as_bytes() {
        [first, .., last] => (!is_name(*first), !is_name(*last)),
        [only] => (!is_name(*only), !is_name(*only)),
        [] => (true, true),
    };
    let found: Vec<usize> = text.match_indices(wanted).map(|(at, _)| at).collect();
    found.into_iter().filter(move |at| {
        let free_before = open_front || *at == 0 || !is_name(bytes[at - 1]);
        let free_behind = open_back || bytes.get(at + length).is_none_or(|byte| !is_name(*byte));
        free_before && free_behind
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Code,
    Comment,
    Literal,
}

/// The views of a text. Each is as long as the text, with blanks for the parts of the others.
struct Views {
    code: String,
    comments: String,
    literals: String,
}

/// Splits `text` into its views.
fn split(text: &str) -> Views {
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

/// The test items of one file.
#[derive(Debug, Default)]
struct TestItems {
    spans: Vec<Range<usize>>,
    /// Modules in files of their own.
    modules: Vec<String>,
}

/// `code` is `text` with comments and literals blanked out.
fn find(text: &str, code: &str) -> TestItems {
    let mut found = TestItems::default();
    for (start, _) in code.match_indices("#[cfg(").chain(code.match_indices("#![cfg(")) {
        let Some(attribute) = bracketed(code, start) else { continue };
        if !is_for_tests(&text[attribute.clone()]) {
            continue;
        }
        if code[start..].starts_with("#!") {
            found.spans.push(0..text.len());
            continue;
        }
        let item = item_behind(code, attribute.end);
        if let Some(name) = module_elsewhere(&code[item.clone()]) {
            found.modules.push(name.to_owned());
        }
        found.spans.push(start..item.end);
    }
    found
}

fn is_for_tests(attribute: &str) -> bool {
    let condition: String = attribute.chars().filter(|character| !character.is_whitespace()).collect();
    let positive = condition.replace("not(test)", "").replace("not(feature=\"testing\")", "");
    words(&positive, "test").next().is_some() || positive.contains("feature=\"testing\"")
}

/// Returns the span from `start` to the end of the first bracket pair.
fn bracketed(code: &str, start: usize) -> Option<Range<usize>> {
    let mut depth = 0;
    for (at, byte) in code.bytes().enumerate().skip(start) {
        match byte {
            b'[' => depth += 1,
            b']' if depth == 1 => return Some(start..at + 1),
            b']' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// Returns the span from `start` to the end of the item there, including further attributes.
fn item_behind(code: &str, start: usize) -> Range<usize> {
    let (mut round, mut curly) = (0_i32, 0_i32);
    for (at, byte) in code.bytes().enumerate().skip(start) {
        match byte {
            b'(' | b'[' => round += 1,
            b')' | b']' => round -= 1,
            b'{' => curly += 1,
            b'}' if curly <= 1 => return start..at + 1,
            b'}' => curly -= 1,
            b';' if round == 0 && curly == 0 => return start..at + 1,
            _ => {}
        }
    }
    start..code.len()
}

fn module_elsewhere(item: &str) -> Option<&str> {
    let declaration = item.trim().strip_suffix(';')?;
    let mut words = declaration.split_whitespace().rev();
    let name = words.next()?;
    (words.next()? == "mod").then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn word_inside_a_longer_one_is_not_found() {
        assert_eq!(words("unsafe_code unsafe", "unsafe").collect::<Vec<_>>(), [12]);
        assert_eq!(words("a.unwrap() b.unwrap_or()", ".unwrap()").collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn lines_count_from_one_and_tests_are_marked() {
        let source = RustSource::new(
            "fn work() { stop() }\n#[cfg(test)]\nmod tests {\n    fn check() { stop() }\n}\n",
        );
        let lines: Vec<usize> = source.lines_with("stop").collect();
        assert_eq!(lines, [1, 4]);
        assert_eq!(lines.into_iter().filter(|line| !source.is_test(*line)).collect::<Vec<_>>(), [1]);
    }

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

    fn tests_of(text: &str) -> (Vec<&str>, Vec<String>) {
        let found = find(text, &split(text).code);
        (found.spans.into_iter().map(|span| &text[span]).collect(), found.modules)
    }

    #[test]
    fn item_ends_with_its_own_brace() {
        let (spans, _) = tests_of("fn a() {}\n#[cfg(test)]\nmod tests { fn b() { c[0]; } }\nfn d() {}\n");
        assert_eq!(spans, ["#[cfg(test)]\nmod tests { fn b() { c[0]; } }"]);
    }

    #[test]
    fn brace_in_a_literal_is_ignored() {
        let (spans, _) = tests_of("#[cfg(test)]\nmod tests { const OPEN: char = '{'; }\nfn d() {}\n");
        assert_eq!(spans, ["#[cfg(test)]\nmod tests { const OPEN: char = '{'; }"]);
    }

    #[test]
    fn test_module_in_its_own_file_is_named() {
        let (_, modules) =
            tests_of("#[cfg(test)]\n#[path = \"x.rs\"]\nmod checks;\n#[cfg(test)] use a::b;\n");
        assert_eq!(modules, ["checks"]);
    }

    #[test]
    fn item_of_feature_testing_is_a_test_and_its_opposite_is_not() {
        assert_eq!(tests_of("#[cfg(feature = \"testing\")]\npub mod testing;\n").1, ["testing"]);
        assert_eq!(tests_of("#[cfg(any(test, feature = \"x\"))] mod a;\n").1, ["a"]);
        assert_eq!(tests_of("#[cfg(not(test))] mod work;\n").1, Vec::<String>::new());
        assert_eq!(tests_of("#[cfg(feature = \"mem\")] mod work;\n").1, Vec::<String>::new());
    }
}
