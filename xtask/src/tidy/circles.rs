//! Imports inside a crate run downward: the children of a folder, each with everything below it, do not
//! depend on each other in a circle. Tests are exempt.
//!
//! A module is a file. Names are followed through re-exports to the file that defines them, so a folder's own
//! file may re-export names of its children. Names that macros generate are not seen.

use super::{
    Finding, Rule,
    tree::{Path, RustSource, Tree},
};
use std::collections::{BTreeMap, BTreeSet};

pub(super) const RULE: Rule = Rule {
    name: "circles",
    fix: "move what both sides need below both, or pass it as an argument or a trait",
    find,
};

fn find(tree: &Tree) -> Vec<Finding> {
    let folders = tree.packages().iter().map(|package| package.folder());
    let folders =
        folders.filter(|folder| ["crates", "evidence"].iter().any(|house| folder.starts_with(house)));
    folders.flat_map(|folder| in_crate(tree, &format!("{}/src/", folder.display()))).collect()
}

fn in_crate(tree: &Tree, folder: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (place, imports) in circles(Modules::read(tree, folder).imports()) {
        let parts: BTreeSet<_> =
            imports.iter().map(|import| import.from[..=place.len()].join("::")).collect();
        let parts = parts.into_iter().collect::<Vec<_>>().join("`, `");
        findings.push(Finding::new(folder, 1, format!("`{parts}` import each other in a circle")));
        findings.extend(imports.iter().map(|import| {
            let what = format!("`{}` is imported from `{}`", import.name, import.source());
            Finding::new(import.file, import.line, what)
        }));
    }
    findings
}

/// The modules of one crate.
#[derive(Debug)]
struct Modules<'tree> {
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
}

/// One file imports a name from another one.
#[derive(Debug, PartialEq, Eq)]
struct Import<'tree> {
    /// The file and line of the import.
    file: &'tree str,
    line: usize,
    /// The imported name.
    name: String,
    /// The modules at both ends.
    from: Vec<&'tree str>,
    to: Vec<&'tree str>,
}

impl Import<'_> {
    /// The module that has the name.
    fn source(&self) -> String {
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
    fn read(tree: &'tree Tree, folder: &str) -> Self {
        let mut files: Vec<Module<'tree>> = Vec::new();
        for (file, rust) in tree.rust().filter(|(_, rust)| !rust.is_test(1)) {
            let Some(name) = file.strip_prefix(folder).and_then(module_name) else { continue };
            files.push(Module { file, name, rust });
        }
        let places = files.iter().enumerate().map(|(place, module)| (module.name.clone(), place)).collect();
        Self { files, places }
    }

    /// Each import of one file from another, once for each name.
    fn imports(&self) -> Vec<Import<'tree>> {
        let mut imports: Vec<Import<'tree>> = Vec::new();
        for (from, module) in self.files.iter().enumerate() {
            for path in &module.rust.paths {
                // A re-export is not a dependency of its file.
                let passes_on = |name: &str| !module.rust.names.contains(name);
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
        let paths = self.files[at].rust.paths.iter();
        let globs = paths.filter(|path| path.binds.as_ref().is_some_and(|it| it.name == "*"));
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
        let mut paths = self.files[at].rust.paths.iter();
        paths.find(|path| path.binds.as_ref().is_some_and(|binds| binds.name == name))
    }

    fn has(&self, at: usize, name: &str) -> bool {
        self.defines(at, name) || self.binding(at, name).is_some() || self.child(at, name).is_some()
    }

    fn defines(&self, at: usize, name: &str) -> bool {
        self.files[at].rust.items.contains(name)
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

/// Returns, for each folder whose children depend on each other, the imports of one child from another that make
/// circles, and those between two circles. What is below a child is a part of it.
fn circles(imports: Vec<Import<'_>>) -> BTreeMap<Vec<&str>, Vec<Import<'_>>> {
    let mut folders: BTreeMap<Vec<&str>, Vec<Import<'_>>> = BTreeMap::new();
    for import in imports {
        let depth = import.from.iter().zip(&import.to).take_while(|(from, to)| from == to).count();
        // The file of a folder is none of its children.
        if depth < import.from.len().min(import.to.len()) {
            folders.entry(import.from[..depth].to_vec()).or_default().push(import);
        }
    }
    folders.retain(|folder, imports| {
        let depth = folder.len();
        let mut before = usize::MAX;
        while imports.len() < before {
            before = imports.len();
            let import_something: BTreeSet<_> = imports.iter().map(|import| import.from[depth]).collect();
            let are_imported: BTreeSet<_> = imports.iter().map(|import| import.to[depth]).collect();
            imports.retain(|import| {
                import_something.contains(import.to[depth]) && are_imported.contains(import.from[depth])
            });
        }
        !imports.is_empty()
    });
    folders
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Package;

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

    fn found(imports: &[(&'static str, &'static str)]) -> Vec<String> {
        let circles = circles(imports.iter().map(|(from, to)| import(from, to)).collect());
        let tied = circles.into_values().flatten();
        tied.map(|import| format!("{} -> {}", import.file, import.name)).collect()
    }

    #[test]
    fn tree_of_imports_has_no_circle() {
        assert_eq!(found(&[("", "a"), ("a", "b/x"), ("a/x", "b"), ("b", "b/x"), ("b/y", "b/x")]), [""; 0]);
        let of_its_folder = [("a", "a/x"), ("a/x", "a"), ("a/x/y", "a"), ("b", "a"), ("a/x", "")];
        assert_eq!(found(&of_its_folder), [""; 0], "a child may import from the file of its folder");
    }

    #[test]
    fn parts_that_depend_on_each_other_by_different_files_are_a_circle() {
        let folders = [("a/x", "b/x"), ("a/y", "b/x"), ("b/y", "a/z"), ("b", "c"), ("d", "a")];
        assert_eq!(found(&folders), ["a/x -> b/x", "a/y -> b/x", "b/y -> a/z"]);
        let siblings = [("a/x", "a/y"), ("a/x", "a/y/z"), ("a/y", "a/x"), ("a/x", "b")];
        assert_eq!(found(&siblings), ["a/x -> a/y", "a/x -> a/y/z", "a/y -> a/x"]);
    }

    /// The findings in a crate with the module `high`, which imports from `low`, and this text of `low`.
    fn found_with(low: &str) -> Vec<String> {
        let package = Package { manifest: "crates/a/Cargo.toml".into(), ..Package::named("a") };
        let files = [
            ("crates/a/src/lib.rs", "mod high;\nmod low;\n"),
            (
                "crates/a/src/high.rs",
                "use crate::low::{run, stop};\npub struct Name;\nfn a() { run(); stop() }\n",
            ),
            ("crates/a/src/low.rs", low),
        ];
        let found = find(&Tree::with_packages(&files, vec![package]));
        found.iter().map(|Finding { path, line, what }| format!("{path}:{line}: {what}")).collect()
    }

    #[test]
    fn circle_is_found_with_its_imports() {
        assert_eq!(
            found_with("pub fn run(name: crate::high::Name) {}\npub fn stop() {}\n"),
            [
                "crates/a/src/:1: `high`, `low` import each other in a circle",
                "crates/a/src/high.rs:1: `run` is imported from `low`",
                "crates/a/src/high.rs:1: `stop` is imported from `low`",
                "crates/a/src/low.rs:1: `Name` is imported from `high`",
            ]
        );
        let tests = "pub fn run() {}\npub fn stop() {}\n#[cfg(test)]\nmod tests { use crate::high::Name; }\n";
        assert_eq!(found_with(tests), [""; 0]);
    }
}
