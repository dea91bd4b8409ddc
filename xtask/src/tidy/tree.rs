//! [`Tree`]: the files that git tracks or would track, and the packages of the workspace.

use crate::workspace::{self, Package, Workspace, WorkspaceError};
use proc_macro2::{Delimiter, LexError, Span, TokenStream, TokenTree};
use std::{collections::BTreeSet, fs, io, ops::RangeInclusive};

/// The tree, read once.
#[derive(Debug)]
pub(super) struct Tree {
    files: Vec<File>,
    packages: Vec<Package>,
}

/// One file.
#[derive(Debug)]
pub(super) struct File {
    /// Relative to the root, with `/`.
    pub(super) path: String,
    /// Empty for a file that is not text.
    pub(super) text: String,
    /// What the rules read of it, if it is Rust.
    pub(super) rust: Option<RustSource>,
}

/// The tree could not be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum TreeError {
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
    #[error("`git ls-files` failed: {0}. Run this in a git checkout")]
    Git(#[source] io::Error),
    #[error("{path} could not be read: {cause}")]
    File { path: String, cause: io::Error },
    #[error("{path} is not Rust: {cause}")]
    Rust { path: String, cause: LexError },
}

impl Tree {
    pub(super) fn read() -> Result<Self, TreeError> {
        let workspace = Workspace::read()?;
        let mut files = Vec::new();
        for path in workspace::files(&workspace.root).map_err(TreeError::Git)? {
            match fs::read(workspace.root.join(&path)) {
                Ok(bytes) => files.push((path, String::from_utf8(bytes).unwrap_or_default())),
                // The file is deleted, but still in the index.
                Err(cause) if cause.kind() == io::ErrorKind::NotFound => {}
                Err(cause) => return Err(TreeError::File { path, cause }),
            }
        }
        Self::new(files, workspace.packages)
    }

    fn new(texts: Vec<(String, String)>, packages: Vec<Package>) -> Result<Self, TreeError> {
        let mut files = Vec::new();
        for (path, text) in texts {
            let rust = path.ends_with(".rs").then(|| RustSource::read(&text)).transpose();
            match rust {
                Ok(rust) => files.push(File { path, text, rust }),
                Err(cause) => return Err(TreeError::Rust { path, cause }),
            }
        }
        let test_modules: BTreeSet<String> = files
            .iter()
            .filter_map(|file| Some((file, file.rust.as_ref()?)))
            .flat_map(|(file, rust)| rust.test_modules.iter().map(|name| child_module(&file.path, name)))
            .collect();
        let is_test = |path: &str| {
            let behind = |module: &String| {
                let rest = path.strip_prefix(module.as_str());
                rest.is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
            };
            lies_in_test_folder(path) || test_modules.iter().any(behind)
        };
        for file in files.iter_mut().filter(|file| is_test(&file.path)) {
            if let Some(rust) = &mut file.rust {
                rust.tests.push(1..=usize::MAX);
            }
        }
        Ok(Self { files, packages })
    }

    pub(super) fn files(&self) -> &[File] {
        &self.files
    }

    pub(super) fn packages(&self) -> &[Package] {
        &self.packages
    }

    /// Iterates over the Rust files, with their paths.
    pub(super) fn rust(&self) -> impl Iterator<Item = (&str, &RustSource)> {
        self.files.iter().filter_map(|file| Some((file.path.as_str(), file.rust.as_ref()?)))
    }
}

/// Returns the path of `mod name;` in the file at `parent`, without the extension.
fn child_module(parent: &str, name: &str) -> String {
    let (folder, file) = parent.rsplit_once('/').unwrap_or(("", parent));
    match file {
        "lib.rs" | "main.rs" | "mod.rs" => format!("{folder}/{name}"),
        other => format!("{folder}/{}/{name}", other.trim_end_matches(".rs")),
    }
}

/// Folders that cargo builds only for tests and measurements, and the package that only tests use.
fn lies_in_test_folder(path: &str) -> bool {
    path.starts_with("evidence/harness/") || path.split('/').any(|part| matches!(part, "tests" | "benches"))
}

/// What the rules read of a Rust file. Lines count from 1.
///
/// It is no parser: a macro's tokens count as code, names are not resolved, and a `cfg(test)` attribute on a
/// struct's field marks the rest of the struct.
#[derive(Debug, Default)]
pub(super) struct RustSource {
    /// The file with blanks for everything but comments and documentation.
    pub(super) comments: String,
    /// The names of items that it defines, tests included.
    pub(super) items: BTreeSet<String>,
    /// The names in code outside tests and `use` items.
    pub(super) names: BTreeSet<String>,
    /// Every path outside tests.
    pub(super) paths: Vec<Path>,
    tests: Vec<RangeInclusive<usize>>,
    /// Names of modules in files of their own, but for those that only tests use.
    modules: BTreeSet<String>,
    /// Names of modules in files of their own that only tests use.
    test_modules: BTreeSet<String>,
}

/// One path as it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Path {
    /// Without the last one if that is `self`; the last one is `*` for everything in a module.
    pub(super) segments: Vec<String>,
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

/// Keywords that a name follows.
const ITEMS: [&str; 8] = ["fn", "struct", "enum", "trait", "type", "const", "static", "union"];

impl RustSource {
    fn read(text: &str) -> Result<Self, LexError> {
        let stream: TokenStream = text.parse()?;
        let mut comments = text.as_bytes().to_vec();
        blank(&mut comments, stream.clone());
        let mut source =
            Self { comments: String::from_utf8(comments).unwrap_or_default(), ..Self::default() };
        source.see(&stream.into_iter().collect::<Vec<_>>(), false);
        // A module that is declared a second time, `pub` for tests.
        source.test_modules.retain(|name| !source.modules.contains(name));
        Ok(source)
    }

    pub(super) fn is_test(&self, line: usize) -> bool {
        self.tests.iter().any(|test| test.contains(&line))
    }

    fn see(&mut self, trees: &[TokenTree], in_test: bool) {
        let mut at = 0;
        while let Some(tree) = trees.get(at) {
            let rest = &trees[at..];
            let mut length = 1;
            match tree {
                TokenTree::Punct(hash) if hash.as_char() == '#' && !in_test => match rest {
                    [_, TokenTree::Group(attribute), ..] if is_for_tests(&attribute.stream()) => {
                        length = 2 + item(&rest[2..]);
                        self.see_test(&rest[..length]);
                    }
                    [_, _, TokenTree::Group(attribute), ..] if is_for_tests(&attribute.stream()) => {
                        self.tests.push(1..=usize::MAX);
                    }
                    _ => {}
                },
                TokenTree::Ident(word) if word == "use" && !in_test && !is_punct(rest.get(1), '<') => {
                    length = rest.iter().take_while(|tree| !is_punct(Some(tree), ';')).count();
                    let is_public = is_public(&trees[..at]);
                    let line = word.span().start().line;
                    let bound =
                        |(segments, name)| Path { segments, line, binds: Some(Binding { name, is_public }) };
                    self.paths.extend(leaves(&[], &rest[1..length]).into_iter().map(bound));
                }
                TokenTree::Ident(word) => {
                    let name = word.to_string();
                    if let (true, Some(TokenTree::Ident(item))) = (ITEMS.contains(&&*name), rest.get(1)) {
                        self.items.insert(item.to_string());
                    }
                    if let (false, "mod", [_, TokenTree::Ident(module), end, ..]) = (in_test, &*name, rest)
                        && is_punct(Some(end), ';')
                    {
                        self.modules.insert(module.to_string());
                    }
                    let is_first = !at.checked_sub(1).is_some_and(|before| {
                        is_punct(trees.get(before), ':') && trees.get(before - 1).is_some_and(is_joint)
                            || is_punct(trees.get(before), '.')
                    });
                    let segments = segments(rest);
                    if !in_test && is_first && segments.len() > 1 {
                        self.paths.push(Path { segments, line: word.span().start().line, binds: None });
                    }
                    if !in_test {
                        self.names.insert(name);
                    }
                }
                TokenTree::Group(group) => {
                    self.see(&group.stream().into_iter().collect::<Vec<_>>(), in_test);
                }
                _ => {}
            }
            at += length;
        }
    }

    /// Sees an item of tests, with its attributes.
    fn see_test(&mut self, item: &[TokenTree]) {
        if let (Some(first), Some(last)) = (item.first(), item.last()) {
            self.tests.push(first.span().start().line..=last.span().end().line);
        }
        if let [.., TokenTree::Ident(keyword), TokenTree::Ident(name), TokenTree::Punct(_)] = item
            && keyword == "mod"
        {
            self.test_modules.insert(name.to_string());
        }
        self.see(item, true);
    }
}

/// Blanks everything but comments. Documentation is an attribute whose tokens all have the comment's place.
fn blank(text: &mut [u8], stream: TokenStream) {
    let fill = |text: &mut [u8], span: Span| {
        for byte in text.get_mut(span.byte_range()).into_iter().flatten().filter(|byte| **byte != b'\n') {
            *byte = b' ';
        }
    };
    for tree in stream {
        let is_slash = matches!(&tree, TokenTree::Punct(punct) if punct.as_char() == '/');
        if !is_slash && text.get(tree.span().byte_range().start) == Some(&b'/') {
            continue;
        }
        match tree {
            TokenTree::Group(group) => {
                fill(text, group.span_open());
                fill(text, group.span_close());
                blank(text, group.stream());
            }
            other => fill(text, other.span()),
        }
    }
}

fn is_punct(tree: Option<&TokenTree>, wanted: char) -> bool {
    matches!(tree, Some(TokenTree::Punct(punct)) if punct.as_char() == wanted)
}

/// Whether it is the first half of `::`.
fn is_joint(tree: &TokenTree) -> bool {
    matches!(tree, TokenTree::Punct(punct) if punct.as_char() == ':' && punct.spacing() == proc_macro2::Spacing::Joint)
}

/// Whether an attribute is `cfg` with a condition that holds in tests only.
fn is_for_tests(attribute: &TokenStream) -> bool {
    let mut condition = attribute.to_string();
    condition.retain(|letter| !letter.is_whitespace());
    let positive = condition.replace("not(test)", "").replace("not(feature=\"testing\")", "");
    let mut words = positive.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
    positive.starts_with("cfg(") && (words.any(|word| word == "test") || positive.contains("=\"testing\""))
}

/// Returns how many trees the item at the beginning has, further attributes included.
fn item(trees: &[TokenTree]) -> usize {
    let ends = |tree: &TokenTree| {
        is_punct(Some(tree), ';')
            || matches!(tree, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace)
    };
    trees.iter().position(ends).map_or(trees.len(), |last| last + 1)
}

fn is_public(before: &[TokenTree]) -> bool {
    let before = match before {
        [front @ .., TokenTree::Group(group)] if group.delimiter() == Delimiter::Parenthesis => front,
        _ => before,
    };
    matches!(before, [.., TokenTree::Ident(word)] if word == "pub")
}

/// Returns `a`, `b` and `c` of the path `a::b::c` at the beginning.
fn segments(trees: &[TokenTree]) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = trees;
    while let [TokenTree::Ident(name), behind @ ..] = rest {
        found.push(name.to_string());
        match behind {
            [first, second, behind @ ..] if is_joint(first) && is_punct(Some(second), ':') => rest = behind,
            _ => break,
        }
    }
    found
}

/// Returns each path of a tree like `a::{b, c::{self, d as e}}`, with the name that it binds.
fn leaves(prefix: &[String], trees: &[TokenTree]) -> Vec<(Vec<String>, String)> {
    let (mut path, mut alias) = (prefix.to_vec(), None);
    for (at, tree) in trees.iter().enumerate() {
        match tree {
            TokenTree::Ident(word) if word == "as" => {
                alias = trees.get(at + 1).map(ToString::to_string);
                break;
            }
            TokenTree::Ident(word) => path.push(word.to_string()),
            TokenTree::Punct(star) if star.as_char() == '*' => path.push("*".into()),
            TokenTree::Group(group) => {
                let inside: Vec<TokenTree> = group.stream().into_iter().collect();
                let parts = inside.split(|tree| is_punct(Some(tree), ','));
                return parts.flat_map(|part| leaves(&path, part)).collect();
            }
            _ => {}
        }
    }
    if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
        path.pop();
    }
    let name = alias.or_else(|| path.last().cloned()).unwrap_or_default();
    if path.len() == prefix.len() && trees.is_empty() { Vec::new() } else { vec![(path, name)] }
}

#[cfg(test)]
impl Tree {
    /// A tree of these files and no packages.
    pub(super) fn of(files: &[(&str, &str)]) -> Self {
        Self::with_packages(files, Vec::new())
    }

    pub(super) fn with_packages(files: &[(&str, &str)], packages: Vec<Package>) -> Self {
        let owned = |(path, text): &(&str, &str)| ((*path).to_owned(), (*text).to_owned());
        Self::new(files.iter().map(owned).collect(), packages).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_test(tree: &Tree, wanted: &str) -> bool {
        tree.rust().any(|(path, rust)| path == wanted && rust.is_test(1))
    }

    #[test]
    fn files_of_a_test_module_are_tests() {
        let tree = Tree::of(&[
            ("crates/a/src/lib.rs", "#[cfg(test)]\n#[path = \"x.rs\"]\nmod checks;\nmod work;\n"),
            (
                "crates/b/src/lib.rs",
                "#[cfg(feature = \"testing\")]\npub mod a;\n#[cfg(not(feature = \"testing\"))]\nmod a;\n",
            ),
            ("crates/b/src/a.rs", "fn work() {}\n"),
            ("crates/a/src/checks.rs", "fn check() {}\n"),
            ("crates/a/src/checks/deep.rs", "fn check() {}\n"),
            ("crates/a/src/work.rs", "#[cfg(test)] mod inner;\n"),
            ("crates/a/src/work/inner.rs", "fn check() {}\n"),
            ("crates/a/src/checkstand.rs", "fn work() {}\n"),
            ("crates/a/tests/whole.rs", "fn check() {}\n"),
        ]);
        assert!(is_test(&tree, "crates/a/src/checks.rs"));
        assert!(is_test(&tree, "crates/a/src/checks/deep.rs"));
        assert!(is_test(&tree, "crates/a/src/work/inner.rs"));
        assert!(is_test(&tree, "crates/a/tests/whole.rs"));
        assert!(!is_test(&tree, "crates/a/src/checkstand.rs"));
        assert!(!is_test(&tree, "crates/b/src/a.rs"));
        assert!(!tree.rust().any(|(path, rust)| path == "crates/a/src/work.rs" && rust.is_test(2)));
    }

    /// The lines of tests.
    fn tests_of(text: &str) -> Vec<usize> {
        let source = RustSource::read(text).unwrap();
        (1..=text.lines().count()).filter(|line| source.is_test(*line)).collect()
    }

    #[test]
    fn test_item_ends_with_its_own_brace() {
        assert_eq!(
            tests_of("fn a() {}\n#[cfg(test)]\nmod b {\n fn c() { d['{']; }\n}\nfn e() {}\n"),
            [2, 3, 4, 5]
        );
        assert_eq!(tests_of("#[cfg(any(test, feature = \"x\"))]\nuse a::b;\nfn c() {}\n"), [1, 2]);
        assert_eq!(tests_of("#![cfg(test)]\nfn a() {}\n"), [1, 2]);
    }

    #[test]
    fn item_of_feature_testing_is_a_test_and_its_opposite_is_not() {
        assert_eq!(tests_of("#[cfg(feature = \"testing\")]\npub mod testing;\n"), [1, 2]);
        for condition in ["not(test)", "feature = \"mem\"", "not(feature = \"testing\")"] {
            assert_eq!(tests_of(&format!("#[cfg({condition})] mod work;\n")), [0; 0]);
        }
    }

    #[test]
    fn comments_and_documentation_are_neither_code_nor_literals() {
        let text =
            "//! A\n/// B é\nfn c() { d(\"// e\", '\"') } // f\n/* g /* h */ i */ /** j */ struct K;\n";
        let source = RustSource::read(text).unwrap();
        assert_eq!(source.comments.len(), text.len());
        let words: Vec<&str> = source.comments.split_whitespace().collect();
        assert_eq!(words.join(" "), "//! A /// B é // f /* g /* h */ i */ /** j */");
        assert_eq!(source.items.into_iter().collect::<Vec<_>>(), ["K", "c"]);
    }

    fn paths(text: &str) -> Vec<String> {
        let shown = |path: Path| match path.binds {
            Some(Binding { name, is_public: true }) => format!("pub {} = {name}", path.segments.join("::")),
            Some(Binding { name, .. }) => format!("{} = {name}", path.segments.join("::")),
            None => path.segments.join("::"),
        };
        RustSource::read(text).unwrap().paths.into_iter().map(shown).collect()
    }

    #[test]
    fn each_leaf_of_a_use_tree_is_found_with_its_name() {
        assert_eq!(
            paths("use a::{b, c::{self, d as e}, f::*,};\npub(crate) use super::g;\n"),
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
