//! [`Modules`]: the imports between the modules of a crate, without tests.
//!
//! A module is a file. Names are followed through re-exports to the file that defines them, so a folder's own
//! file may re-export names of its children. This is a scanner, so it does not see names that macros
//! generate.

mod levels;
mod paths;

pub(super) use levels::circles;

use super::{
    rust_source::{RustSource, words},
    tree::Tree,
};
use paths::Path;
use std::collections::BTreeMap;

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
            let (paths, code) = paths::of(rust);
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
}
