//! The paths that a Rust file names: one for each leaf of its `use` trees, and each path in an expression or
//! a type.

use crate::tidy::rust_source::{RustSource, words};
use std::ops::Range;

/// One path as it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Path {
    /// Without the last one if that is `self`; the last one is `*` for everything in a module.
    pub(super) segments: Vec<String>,
    /// Counted from 1.
    pub(super) line: usize,
    /// Of a `use`, the name that it brings into the file.
    pub(super) binds: Option<Binding>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Binding {
    pub(super) name: String,
    /// Whether other modules see the name as one of this module (`pub use`, with or without a scope).
    pub(super) is_public: bool,
}

/// Every path outside tests, and the code without its `use` items.
pub(super) fn of(rust: &RustSource) -> (Vec<Path>, String) {
    let code = rust.code();
    let mut paths = Vec::new();
    let mut rest = code.to_owned();
    for range in use_items(code) {
        let is_public = is_public(&code[..range.start]);
        let tree = &code[range.start + "use".len()..range.end];
        for (segments, name) in leaves(tree) {
            paths.push(Path {
                segments,
                line: rust.line(range.start),
                binds: Some(Binding { name, is_public }),
            });
        }
        rest.replace_range(range.clone(), &" ".repeat(range.len()));
    }
    paths.extend(expressions(&rest).map(|(at, segments)| Path {
        segments,
        line: rust.line(at),
        binds: None,
    }));
    paths.retain(|path| !rust.is_test(path.line));
    (paths, rest)
}

/// From the keyword to the semicolon, which is left out. (`use<'a>` in a type is no item.)
fn use_items(code: &str) -> Vec<Range<usize>> {
    words(code, "use")
        .filter(|at| code[at + "use".len()..].starts_with(char::is_whitespace))
        .filter_map(|at| Some(at..at + code[at..].find(';')?))
        .collect()
}

fn is_public(before: &str) -> bool {
    let before = before.trim_end();
    let scoped = before.strip_suffix(')').and_then(|open| open.rsplit_once('(')).map(|(front, _)| front);
    scoped.unwrap_or(before).trim_end().ends_with("pub")
}

/// Each path of a tree like `a::{b, c::{self, d as e}}`, with the name that it binds.
fn leaves(tree: &str) -> Vec<(Vec<String>, String)> {
    let tree = tree.trim();
    if let Some((head, group)) = tree.split_once('{') {
        let prefix: Vec<String> = segments(head);
        let group = group.strip_suffix('}').unwrap_or(group);
        let inside = split_at_commas(group).into_iter().flat_map(leaves);
        return inside
            .map(|(path, name)| {
                let whole: Vec<String> = prefix.iter().cloned().chain(path).collect();
                // `a::{self}` binds the name `a`.
                let name = if name == "self" { prefix.last().cloned().unwrap_or(name) } else { name };
                (whole, name)
            })
            .collect();
    }
    let (path, alias) = tree.split_once(" as ").map_or((tree, None), |(path, alias)| (path, Some(alias)));
    let mut path = segments(path);
    let Some(last) = path.last().cloned() else { return Vec::new() };
    if last == "self" {
        path.pop();
    }
    vec![(path, alias.map_or(last, |alias| alias.trim().to_owned()))]
}

fn segments(path: &str) -> Vec<String> {
    path.split("::").map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

fn split_at_commas(group: &str) -> Vec<&str> {
    let (mut depth, mut start, mut parts) = (0, 0, Vec::new());
    for (at, byte) in group.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            b',' if depth == 0 => {
                parts.push(&group[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&group[start..]);
    parts
}

/// `a::b::c` with where it begins, longest first, in code without `use` items.
fn expressions(code: &str) -> impl Iterator<Item = (usize, Vec<String>)> {
    let is_name = |letter: char| letter.is_alphanumeric() || letter == '_';
    code.match_indices("::").filter_map(move |(at, _)| {
        let first = code[..at].rfind(|letter| !is_name(letter)).map_or(0, |before| before + 1);
        let is_start = first < at && !code[..first].ends_with(':') && !code[..first].ends_with('.');
        let end =
            code[at..].find(|letter| !is_name(letter) && letter != ':').map_or(code.len(), |end| at + end);
        is_start.then(|| (first, segments(&code[first..end])))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(text: &str) -> Vec<String> {
        let (paths, _) = of(&RustSource::new(text));
        let shown = |path: Path| match path.binds {
            Some(Binding { name, is_public: true }) => format!("pub {} = {name}", path.segments.join("::")),
            Some(Binding { name, .. }) => format!("{} = {name}", path.segments.join("::")),
            None => path.segments.join("::"),
        };
        paths.into_iter().map(shown).collect()
    }

    #[test]
    fn each_leaf_of_a_use_tree_is_found_with_its_name() {
        assert_eq!(
            paths("use a::{b, c::{self, d as e}, f::*};\npub(crate) use super::g;\n"),
            ["a::b = b", "a::c = c", "a::c::d = e", "a::f::* = *", "pub super::g = g"]
        );
    }

    #[test]
    fn path_in_an_expression_is_found_once_and_tests_are_skipped() {
        let text = "fn a() { crate::b::c::<T>(d.e, Self::F) }\n#[cfg(test)]\nmod tests { use super::g; }\n";
        assert_eq!(paths(text), ["crate::b::c", "Self::F"]);
    }

    #[test]
    fn captured_lifetimes_are_not_a_use_item() {
        assert_eq!(paths("fn a<'b>() -> impl B + use<'b> { c }\n"), [""; 0]);
    }
}
