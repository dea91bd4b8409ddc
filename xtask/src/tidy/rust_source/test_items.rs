//! Finds the parts of a file that are compiled only for tests: items under `#[cfg(test)]` and under the
//! feature `testing`, which has the public suites.

use std::ops::Range;

/// The test items of one file.
#[derive(Debug, Default)]
pub(super) struct TestItems {
    pub(super) spans: Vec<Range<usize>>,
    /// Modules in files of their own.
    pub(super) modules: Vec<String>,
}

/// `code` is `text` with comments and literals blanked out.
pub(super) fn find(text: &str, code: &str) -> TestItems {
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
    super::words(&positive, "test").next().is_some() || positive.contains("feature=\"testing\"")
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
pub(super) fn item_behind(code: &str, start: usize) -> Range<usize> {
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
    use super::super::lexer;
    use super::*;

    fn tests_of(text: &str) -> (Vec<&str>, Vec<String>) {
        let found = find(text, &lexer::split(text).code);
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
