//! [`Modules`]: the imports between the modules of a crate, without tests.
//!
//! A module is a file. Names are followed through re-exports to the file that defines them, so a folder's own
//! file may re-export names of its children. This is a scanner, so it does not see names that macros
//! generate.

use super::tree::Tree;
use crate::tidy::rust_source::{RustSource, words};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

/// The modules of one crate.
#[derive(Debug)]
pub(super) struct Modules<'tree> {
    files: Vec<Module<'tree>>,
    /// By their names. The name of the root is empty.
    places: BTreeMap<Vec<&'tree str>, usize>,
}

/// One file.
#[derive(Debug)]
struct Module<'tree> {
    file: &'tree str,
    name: Vec<&'tree str>,
    rust: &'tree RustSource,
    paths: Vec<Path>,
    /// The code without `use` items.
    code: String,
}

/// One file imports a name from another one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Import<'tree> {
    /// The file and line of the import.
    pub(super) file: &'tree str,
    pub(super) line: usize,
    /// The imported name.
    pub(super) name: String,
    /// The modules at both ends.
    from: Vec<&'tree str>,
    to: Vec<&'tree str>,
}

impl Import<'_> {
    /// The module that has the name.
    pub(super) fn source(&self) -> String {
        if self.to.is_empty() { "crate".to_owned() } else { self.to.join("::") }
    }
}

/// The target of a path.
enum Target {
    Module(usize),
    Item(usize, String),
}

/// A limit for chains of re-exports, longer than any.
const DEEPEST: usize = 16;

impl<'tree> Modules<'tree> {
    /// Those of the crate whose sources lie in `folder`, which ends in `/src/`.
    pub(super) fn read(tree: &'tree Tree, folder: &str) -> Self {
        let mut files: Vec<Module<'tree>> = Vec::new();
        for (file, rust) in tree.rust().filter(|(_, rust)| !rust.is_test(1)) {
            let Some(name) = file.strip_prefix(folder).and_then(module_name) else { continue };
            let (paths, code) = of(rust);
            files.push(Module { file, name, rust, paths, code });
        }
        let places = files.iter().enumerate().map(|(place, module)| (module.name.clone(), place)).collect();
        Self { files, places }
    }

    /// Each import of one file from another, once for each name.
    pub(super) fn imports(&self) -> Vec<Import<'tree>> {
        let mut imports: Vec<Import<'tree>> = Vec::new();
        for (from, module) in self.files.iter().enumerate() {
            for path in &module.paths {
                // A re-export is not a dependency of its file.
                let passes_on = |name: &str| words(&module.code, name).next().is_none();
                if path.binds.as_ref().is_some_and(|binds| binds.is_public && passes_on(&binds.name)) {
                    continue;
                }
                let Some(Target::Item(to, name)) = self.resolve(from, &path.segments, 0) else { continue };
                let (from, to) = (&module.name, &self.files[to].name);
                let is_known =
                    |known: &Import<'_>| (&known.from, &known.to, &known.name) == (from, to, &name);
                if from != to && !imports.iter().any(is_known) {
                    let (from, to) = (from.clone(), to.clone());
                    imports.push(Import { file: module.file, line: path.line, name, from, to });
                }
            }
        }
        imports
    }

    /// Where a path written in the module at `from` leads; none out of the crate, and none for what is local.
    fn resolve(&self, from: usize, path: &[String], depth: usize) -> Option<Target> {
        let (first, rest) = path.split_first()?;
        let name = &self.files[from].name;
        match first.as_str() {
            _ if depth == DEEPEST => None,
            "crate" => self.inside(*self.places.get(&[][..])?, rest, depth),
            "self" => self.inside(from, rest, depth),
            "super" => {
                let parent = *self.places.get(name.split_last()?.1)?;
                let relative = match rest.first().map(String::as_str) {
                    Some("super") => return self.resolve(parent, rest, depth),
                    _ => rest,
                };
                self.inside(parent, relative, depth)
            }
            child if self.child(from, child).is_some() => self.inside(from, path, depth),
            bound => {
                let import = self.binding(from, bound)?;
                let whole: Vec<String> = import.segments.iter().chain(rest).cloned().collect();
                self.resolve(from, &whole, depth + 1)
            }
        }
    }

    /// Where a path leads that begins in the module at `at`.
    fn inside(&self, at: usize, path: &[String], depth: usize) -> Option<Target> {
        let Some((name, rest)) = path.split_first() else { return Some(Target::Module(at)) };
        if let Some(child) = self.child(at, name) {
            return self.inside(child, rest, depth);
        }
        if let Some(import) = self.binding(at, name) {
            let whole: Vec<String> = import.segments.iter().chain(rest).cloned().collect();
            // A macro is re-exported by its bare name.
            return match self.resolve(at, &whole, depth + 1) {
                None if import.segments.len() == 1 => Some(Target::Item(at, name.clone())),
                found => found,
            };
        }
        let globs =
            self.files[at].paths.iter().filter(|path| path.binds.as_ref().is_some_and(|it| it.name == "*"));
        let of_glob = globs.filter_map(|glob| {
            let module = glob.segments.split_last()?.1;
            match self.resolve(at, module, depth + 1)? {
                Target::Module(module) if self.has(module, name) => self.inside(module, path, depth + 1),
                _ => None,
            }
        });
        let local = || Some(Target::Item(at, name.clone()));
        if self.defines(at, name) { local() } else { of_glob.into_iter().next().or_else(local) }
    }

    fn child(&self, of: usize, name: &str) -> Option<usize> {
        let whole: Vec<&str> = self.files[of].name.iter().copied().chain([name]).collect();
        self.places.get(&whole).copied()
    }

    fn binding(&self, at: usize, name: &str) -> Option<&Path> {
        self.files[at].paths.iter().find(|path| path.binds.as_ref().is_some_and(|binds| binds.name == name))
    }

    fn has(&self, at: usize, name: &str) -> bool {
        self.defines(at, name) || self.binding(at, name).is_some() || self.child(at, name).is_some()
    }

    fn defines(&self, at: usize, name: &str) -> bool {
        const ITEMS: [&str; 8] = ["fn", "struct", "enum", "trait", "type", "const", "static", "union"];
        let code = self.files[at].rust.code();
        ITEMS.iter().any(|item| words(code, &format!("{item} {name}")).next().is_some())
    }
}

/// The name of a module by its file, below `src`; the root has an empty one. A binary beside a library is
/// none.
fn module_name(file: &str) -> Option<Vec<&str>> {
    let name = file.strip_suffix(".rs")?;
    match name {
        "lib" => Some(Vec::new()),
        "main" => None,
        _ => Some(name.strip_suffix("/mod").unwrap_or(name).split('/').collect()),
    }
}

/// Parts of one folder that depend on each other.
#[derive(Debug)]
pub(in crate::tidy) struct Circle<'tree> {
    /// Their modules, the one that most of the others depend on last.
    pub(in crate::tidy) parts: Vec<String>,
    /// The upward imports: without them there is no circle. A simple order keeps them few.
    pub(in crate::tidy) upward: Vec<Import<'tree>>,
}

/// A child of the folder, with everything below it.
type Part<'tree> = &'tree str;

/// Returns every circle in `imports`.
pub(in crate::tidy) fn circles<'tree>(imports: Vec<Import<'tree>>) -> Vec<Circle<'tree>> {
    let mut levels: BTreeMap<Vec<&str>, Vec<(Part<'_>, Part<'_>, Import<'_>)>> = BTreeMap::new();
    for import in imports {
        let depth = import.from.iter().zip(&import.to).take_while(|(from, to)| from == to).count();
        if let (Some(from), Some(to)) = (import.from.get(depth).copied(), import.to.get(depth).copied()) {
            levels.entry(import.from[..depth].to_vec()).or_default().push((from, to, import));
        }
    }
    levels.into_iter().flat_map(|(folder, imports)| of_folder(&folder, imports)).collect()
}

fn of_folder<'tree>(
    folder: &[&str],
    mut imports: Vec<(Part<'tree>, Part<'tree>, Import<'tree>)>,
) -> Vec<Circle<'tree>> {
    let mut arrows: BTreeMap<Part<'_>, BTreeSet<Part<'_>>> = BTreeMap::new();
    for (from, to, _) in &imports {
        arrows.entry(*from).or_default().insert(*to);
    }
    let reached: BTreeMap<Part<'_>, BTreeSet<Part<'_>>> =
        arrows.keys().map(|part| (*part, reachable(&arrows, part))).collect();
    let reaches = |from: Part<'_>, to: Part<'_>| reached.get(&from).is_some_and(|parts| parts.contains(&to));
    let mut left: BTreeSet<Part<'_>> = arrows.keys().copied().filter(|part| reaches(*part, *part)).collect();
    let mut circles = Vec::new();
    while let Some(part) = left.first().copied() {
        let members: BTreeSet<Part<'_>> =
            left.iter().copied().filter(|other| reaches(part, *other) && reaches(*other, part)).collect();
        left.retain(|other| !members.contains(other));
        let inside = imports
            .extract_if(.., |(from, to, _)| members.contains(from) && members.contains(to))
            .collect::<Vec<_>>();
        let order = order(members, &inside);
        let height = |part: &Part<'_>| order.iter().position(|placed| placed == part);
        let upward = inside.into_iter().filter(|(from, to, _)| height(from) > height(to));
        let name = |part: &Part<'_>| [folder, &[*part]].concat().join("::");
        circles.push(Circle {
            parts: order.iter().map(name).collect(),
            upward: upward.map(|(_, _, import)| import).collect(),
        });
    }
    circles
}

fn reachable<'tree>(
    arrows: &BTreeMap<Part<'tree>, BTreeSet<Part<'tree>>>,
    from: Part<'tree>,
) -> BTreeSet<Part<'tree>> {
    let mut found = BTreeSet::new();
    let mut open = vec![from];
    while let Some(part) = open.pop() {
        open.extend(arrows.get(&part).into_iter().flatten().copied().filter(|next| found.insert(*next)));
    }
    found
}

/// Orders parts from top to bottom, so that few imports run upward (Eades, Lin and Smyth 1993). The next part
/// is the one with the most imports, less those of it, among the rest.
fn order<'tree>(
    mut left: BTreeSet<Part<'tree>>,
    imports: &[(Part<'tree>, Part<'tree>, Import<'tree>)],
) -> Vec<Part<'tree>> {
    let mut order = Vec::new();
    while !left.is_empty() {
        let degree = |part: &Part<'_>| {
            let among = imports.iter().filter(|(from, to, _)| left.contains(from) && left.contains(to));
            among.map(|(from, to, _)| i32::from(from == part) - i32::from(to == part)).sum::<i32>()
        };
        let Some(next) = left.iter().copied().max_by_key(degree) else { break };
        left.remove(&next);
        order.push(next);
    }
    order
}

/// One path as it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Path {
    /// Without the last one if that is `self`; the last one is `*` for everything in a module.
    segments: Vec<String>,
    /// Counted from 1.
    line: usize,
    /// Of a `use`, the name that it brings into the file.
    binds: Option<Binding>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Binding {
    name: String,
    /// Whether other modules see the name as one of this module (`pub use`, with or without a scope).
    is_public: bool,
}

/// Every path outside tests, and the code without its `use` items.
fn of(rust: &RustSource) -> (Vec<Path>, String) {
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

    fn imports(files: &[(&str, &str)]) -> Vec<String> {
        let tree = Tree::of(files);
        let modules = Modules::read(&tree, "crates/a/src/");
        let mut shown: Vec<String> = modules
            .imports()
            .into_iter()
            .map(|import| format!("{} -> {}: {}", import.from.join("/"), import.to.join("/"), import.name))
            .collect();
        shown.sort();
        shown
    }

    #[test]
    fn name_is_followed_through_re_exports_to_its_definition() {
        let found = imports(&[
            ("crates/a/src/lib.rs", "mod b;\nmod d;\npub use b::C;\n"),
            ("crates/a/src/b.rs", "mod c;\npub(crate) use c::*;\n"),
            ("crates/a/src/b/c.rs", "pub(crate) struct C;\nuse super::super::d::run;\nfn f() { run() }\n"),
            ("crates/a/src/d.rs", "use crate::{C, b};\nfn run() { b::C; }\n"),
        ]);
        assert_eq!(found, ["b/c -> d: run", "d -> b/c: C"]);
    }

    #[test]
    fn tests_and_names_of_other_crates_are_no_imports() {
        let found = imports(&[
            ("crates/a/src/lib.rs", "mod b;\nuse std::fmt;\nfn a() { fmt::b() }\n"),
            ("crates/a/src/b.rs", "#[cfg(test)]\nmod tests { use crate::a; fn b() { crate::a() } }\n"),
        ]);
        assert_eq!(found, [""; 0]);
    }

    #[test]
    fn name_of_a_module_is_no_import_and_use_of_its_item_is_one() {
        let found = imports(&[
            ("crates/a/src/lib.rs", "mod b;\nmod c;\n"),
            ("crates/a/src/b.rs", "use crate::c;\nfn b() { c::run(c::LIMIT) }\n"),
            ("crates/a/src/c.rs", "pub fn run() {}\npub const LIMIT: u8 = 1;\n"),
        ]);
        assert_eq!(found, ["b -> c: LIMIT", "b -> c: run"]);
    }

    fn import(from: &'static str, to: &'static str) -> Import<'static> {
        let split = |name: &'static str| name.split('/').filter(|part| !part.is_empty()).collect();
        Import { file: from, line: 1, name: to.to_owned(), from: split(from), to: split(to) }
    }

    fn found(imports: &[(&'static str, &'static str)]) -> Vec<(String, Vec<String>)> {
        let circles = circles(imports.iter().map(|(from, to)| import(from, to)).collect());
        let upward = |circle: &Circle<'_>| {
            circle.upward.iter().map(|import| format!("{} -> {}", import.file, import.name)).collect()
        };
        circles.iter().map(|circle| (circle.parts.join(" "), upward(circle))).collect()
    }

    #[test]
    fn tree_of_imports_has_no_circle() {
        assert_eq!(found(&[("", "a"), ("a", "b/x"), ("a/x", "b"), ("b", "b/x"), ("b/y", "b/x")]), []);
    }

    #[test]
    fn folders_that_depend_on_each_other_by_different_files_are_a_circle() {
        let circle = found(&[("a/x", "b/x"), ("a/y", "b/x"), ("b/y", "a/z")]);
        assert_eq!(circle, [("a b".to_owned(), vec!["b/y -> a/z".to_owned()])]);
    }

    #[test]
    fn child_may_import_from_the_file_of_its_folder() {
        assert_eq!(found(&[("a", "a/x"), ("a/x", "a"), ("a/x/y", "a"), ("b", "a"), ("a/x", "")]), []);
    }

    #[test]
    fn siblings_in_a_folder_that_depend_on_each_other_are_a_circle() {
        let circle = found(&[("a/x", "a/y"), ("a/x", "a/y/z"), ("a/y", "a/x")]);
        assert_eq!(circle, [("a::x a::y".to_owned(), vec!["a/y -> a/x".to_owned()])]);
    }
}

#[cfg(test)]
mod paths_tests {
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
