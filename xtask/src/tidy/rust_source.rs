//! A scanner that splits a Rust file into code, comments and literals, and finds the lines of tests.
//!
//! It is no parser: code in a macro's tokens counts as code, names are not resolved, and a `cfg(test)`
//! attribute on a struct's field marks the rest of the struct.

mod lexer;
mod test_items;

use lexer::Views;
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
        let Views { code, comments, literals } = lexer::split(text);
        let found = test_items::find(text, &code);
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
        test_items::item_behind(&self.code, start)
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
}
