//! Messages contain no debug output: `#[error]` attributes, `Display`, printed and logged lines.
//!
//! The search is textual. Reviewers must find debug output that reaches a message through a variable.

use super::{Finding, Rule};
use crate::tidy::{
    rust_source::{RustSource, words},
    tree::Tree,
};
use std::ops::Range;

pub(super) const RULE: Rule = Rule {
    name: "debug format",
    fix: "write the message with `{}`: give the type a `Display`, or write its parts",
    find,
};

/// Macros that print or log.
const PRINTING: [&str; 10] =
    ["print!", "println!", "eprint!", "eprintln!", "say!", "trace!", "debug!", "info!", "warn!", "error!"];

fn find(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, rust) in tree.rust() {
        let mut lines: Vec<usize> = messages(rust)
            .flat_map(|span| debug_formats(&rust.literals()[span.clone()]).map(move |at| span.start + at))
            .map(|at| rust.line(at))
            .filter(|line| !rust.is_test(*line))
            .collect();
        lines.sort_unstable();
        lines.dedup();
        findings.extend(lines.into_iter().map(|line| Finding::new(path, line, "`{:?}` in a message")));
    }
    findings
}

/// Returns the spans of the file that write messages.
fn messages(rust: &RustSource) -> impl Iterator<Item = Range<usize>> {
    let code = rust.code();
    let openings = ["#[error(", "Display for"].into_iter().chain(PRINTING);
    openings.flat_map(|opening| words(code, opening)).map(|at| match code[at..].starts_with("Display for") {
        true => rust.item(at),
        false => at..closed(code, at),
    })
}

/// Returns where the first bracket after `start` is closed.
fn closed(code: &str, start: usize) -> usize {
    let mut depth = 0;
    for (at, byte) in code.bytes().enumerate().skip(start) {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' if depth <= 1 => return at,
            b')' | b']' | b'}' => depth -= 1,
            _ => {}
        }
    }
    code.len()
}

/// Returns where each placeholder such as `{:?}`, `{name:#?}` or `{0:.3?}` ends.
fn debug_formats(literals: &str) -> impl Iterator<Item = usize> {
    literals.match_indices("?}").map(|(at, _)| at).filter(|at| {
        let placeholder = literals[..*at].rfind(['{', '}']).map(|open| &literals[open..*at]);
        placeholder.is_some_and(|placeholder| placeholder.starts_with('{') && placeholder.contains(':'))
    })
}

#[cfg(test)]
mod tests {
    use super::{super::tests::lines, *};

    #[test]
    fn debug_format_in_error_display_and_printed_line_is_found() {
        assert_eq!(lines(RULE, "a.rs", "#[error(\"it is {0:?}\")]\nstruct A;\n"), [1]);
        let display = "impl fmt::Display for A {\n fn fmt() {\n write!(out, \"{:.3?}\", a)\n }\n}\n";
        assert_eq!(lines(RULE, "a.rs", display), [3]);
        assert_eq!(lines(RULE, "a.rs", "fn a() {\n println!(\n \"{a:#?}\",\n );\n}\n"), [3]);
        assert_eq!(lines(RULE, "a.rs", "warn!(\"{}\", format!(\"{a:?}\"));\n"), [1]);
    }

    #[test]
    fn debug_impl_assertion_test_and_field_of_an_event_pass() {
        let debug = "impl fmt::Debug for A {\n fn fmt() { write!(out, \"{:?}\", a) }\n}\n";
        assert_eq!(lines(RULE, "a.rs", debug), [0; 0]);
        assert_eq!(
            lines(RULE, "a.rs", "assert!(a, \"{a:?}\");\nwarn!(epoch = ?epoch, \"lost?\");\n"),
            [0; 0]
        );
        assert_eq!(
            lines(RULE, "a.rs", "#[cfg(test)]\nmod tests { fn a() { println!(\"{a:?}\") } }\n"),
            [0; 0]
        );
        assert_eq!(lines(RULE, "tests/a.rs", "fn a() { println!(\"{a:?}\") }\n"), [0; 0]);
    }
}
