//! `cargo xtask tidy`: rules that no compiler checks, each of which has found a fault. It reads lines of text, and
//! knows tests by their place: `tests.rs`, folders `tests` and `testing`, and what follows `#[cfg(test)] mod … {`.

use crate::workspace::{self, Workspace};
use std::{fmt::Display, fs, io};

/// A file that git tracks or would track.
#[derive(Debug)]
struct File {
    path: String,
    text: String,
}

/// Returns every violation among these files, as `path:line: what`.
type Rule = fn(&[File]) -> Vec<String>;

/// The rules, each with its name and what to do about a violation.
const RULES: [(&str, Rule, &str); 7] = [
    ("imports", imports, "pass it as an argument or a trait; the list stands in xtask/src/tidy.rs"),
    ("words", words, "name the actor: leader, candidate, host, guardian, caller, operator, storage"),
    (
        "invariants",
        invariants,
        "name it, `(I3)`, in a comment of code that keeps it, and `Shows I3.` above a test",
    ),
    ("proofs", proofs, "name tests that exist, or a command, in the last column of the table"),
    ("paths", paths, "write paths relative to the repository"),
    ("book", book, "give each page of docs/ one line in docs/SUMMARY.md"),
    ("links", links, "point the link at a file that is tracked, and at a heading that stands in it"),
];

pub(crate) fn run() -> bool {
    workspace::holds("tidy", read().map(|files| report(&files)))
}

fn read() -> io::Result<Vec<File>> {
    let root = Workspace::read().map_err(io::Error::other)?.root;
    let mut files = Vec::new();
    for path in workspace::files(&root)? {
        match fs::read(root.join(&path)) {
            Ok(bytes) => files.push(File { path, text: String::from_utf8(bytes).unwrap_or_default() }),
            // Deleted, but still in the index.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(files)
}

fn report(files: &[File]) -> bool {
    let mut count = 0;
    for (name, find, fix) in RULES {
        let found = find(files);
        count += found.len();
        if !found.is_empty() {
            println!("{}\n    rule `{name}`: {fix}\n", found.join("\n"));
        }
    }
    println!("tidy: {} rules, {} files, {count} violations", RULES.len(), files.len());
    count == 0
}

impl File {
    fn violation(&self, line: usize, what: impl Display) -> String {
        format!("{}:{line}: {what}", self.path)
    }

    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    fn is_document(&self) -> bool {
        self.path.ends_with(".md")
    }

    fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        (1..).zip(self.text.lines())
    }

    fn product_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        let is_test =
            self.path.split('/').any(|part| matches!(part, "tests" | "testing" | "tests.rs" | "testing.rs"));
        let mut lines = self.lines().peekable();
        std::iter::from_fn(move || {
            let (number, line) = lines.next().filter(|_| !is_test)?;
            let opens_tests = |(_, next): &(usize, &str)| next.starts_with("mod ") && next.ends_with('{');
            let tests_begin = line == "#[cfg(test)]" && lines.peek().is_some_and(opens_tests);
            (!tests_begin).then_some((number, line))
        })
    }
}

/// What files must not mention: values stay free of I/O, shared parts know no driver. Cargo keeps crates apart.
const FORBIDDEN: [(&str, &[&str]); 5] = [
    ("crates/ielections/src/protocol", &["tokio::", "async_trait", "crate::engine"]),
    ("crates/containment/src/rules.rs", &["tokio::", "rustix::", "std::process"]),
    ("crates/vvm-cli/src/warm/machine.rs", &["tokio::", "rustix::", "std::process"]),
    ("crates/vvm-storage/src/cells", &["crate::drivers"]),
    ("crates/vvm-storage/src/drivers/sql", &["postgres::", "mysql::", "mysql_async::"]),
];

fn imports(files: &[File]) -> Vec<String> {
    let mut found = Vec::new();
    for (place, names) in FORBIDDEN {
        for file in files.iter().filter(|file| file.path.starts_with(place) && file.is_rust()) {
            for (number, line) in file.product_lines() {
                let code = line.split("//").next().unwrap_or_default();
                for name in names.iter().filter(|name| has_path(code, name)) {
                    found.push(file.violation(number, format!("`{name}` is not for this file")));
                }
            }
        }
    }
    found
}

/// Whether `code` has this path, and not one whose first name only ends so.
fn has_path(code: &str, path: &str) -> bool {
    let is_longer = |before: &str| before.ends_with(|last: char| last.is_alphanumeric() || last == '_');
    code.match_indices(path).any(|(at, _)| !is_longer(&code[..at]))
}

/// Pronouns that name no actor. Where `nobody` is a user, it stands in quotes, or behind one of `USERS`.
const PRONOUNS: [&str; 8] =
    ["whoever", "whomever", "whom", "somebody", "someone", "nobody", "anybody", "everybody"];
const USERS: [&str; 4] = ["\"", "`", "user ", "reuid="];

fn words(files: &[File]) -> Vec<String> {
    let mut found = Vec::new();
    // This file must spell them.
    let prose = |file: &&File| (file.is_rust() || file.is_document()) && file.path != "xtask/src/tidy.rs";
    for file in files.iter().filter(prose) {
        for (number, line) in file.lines() {
            let user_is_meant = USERS.iter().any(|before| line.contains(&format!("{before}nobody")));
            for word in line.split(|letter: char| !letter.is_alphabetic()) {
                let is_user = word == "NOBODY" || word == "nobody" && user_is_meant;
                if PRONOUNS.iter().any(|pronoun| word.eq_ignore_ascii_case(pronoun)) && !is_user {
                    found.push(file.violation(number, format!("`{word}`")));
                }
            }
        }
    }
    found
}

const INVARIANTS: std::ops::RangeInclusive<u32> = 1..=11;
const ARCHITECTURE: &str = "docs/contributing/architecture.md";

/// Each invariant is named where code keeps it, in a test that shows it, and on the page. No other one is named.
fn invariants(files: &[File]) -> Vec<String> {
    let mut found = Vec::new();
    let (mut kept, mut shown, mut explained) = (Vec::new(), Vec::new(), Vec::new());
    for file in files {
        let is_code =
            file.is_rust() && (file.path.starts_with("crates/") || file.path.starts_with("evidence/"));
        if file.path == ARCHITECTURE {
            explained.extend(named_invariants(&file.text));
        } else if is_code {
            for (number, line) in file.lines() {
                let named = named_invariants(line.split_once("//").unwrap_or_default().1);
                for unknown in named.iter().filter(|invariant| !INVARIANTS.contains(invariant)) {
                    found.push(file.violation(number, format!("there is no invariant I{unknown}")));
                }
                shown.extend(named.into_iter().filter(|_| line.contains("Shows I")));
            }
            let product = file.product_lines().filter(|(_, line)| !line.contains("Shows I"));
            let comments = product.filter_map(|(_, line)| Some(line.split_once("//")?.1));
            kept.extend(comments.flat_map(named_invariants).filter(|_| file.path.starts_with("crates/")));
        }
    }
    let places =
        [("no code says that it keeps", kept), ("no test shows", shown), ("no text explains", explained)];
    for (lacks, named) in places {
        for invariant in INVARIANTS.filter(|invariant| !named.contains(invariant)) {
            found.push(format!("{ARCHITECTURE}:1: {lacks} I{invariant}"));
        }
    }
    found
}

fn named_invariants(text: &str) -> Vec<u32> {
    let words = text.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
    words.filter_map(|word| word.strip_prefix('I')?.parse().ok()).collect()
}

fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// In the last column of their tables these pages name tests, or commands, which have several words.
const SHOWN_BY: [&str; 2] = ["docs/contributing/peers.md", "docs/contributing/shown-by.md"];
/// The page for users, whose rows are those of the second one.
const FOR_USERS: &str = "docs/what-happens-if.md";

fn proofs(files: &[File]) -> Vec<String> {
    let mut found = Vec::new();
    for page in files.iter().filter(|file| SHOWN_BY.contains(&&*file.path)) {
        for (number, row) in page.lines().filter(|(_, line)| line.starts_with("| ")) {
            let shown = row.trim_end_matches(['|', ' ']).rsplit(" | ").next().unwrap_or_default();
            if !shown.contains('`') && shown != "shown by" {
                found.push(page.violation(number, "no test or command shows this row"));
            }
            for test in quoted(shown).filter(|name| !name.contains(' ')) {
                let defines =
                    |text: &str| ["(", "<"].iter().any(|end| text.contains(&format!("fn {test}{end}")));
                if !files.iter().any(|file| file.is_rust() && defines(&file.text)) {
                    found.push(page.violation(number, format!("the test `{test}` does not exist")));
                }
            }
        }
    }
    let (told, shown) = (first_cells(files, FOR_USERS), first_cells(files, SHOWN_BY[1]));
    if told != shown {
        let equal = told.iter().zip(&shown).take_while(|(told, shown)| told == shown).count();
        found.push(format!("{FOR_USERS}:1: this page and {} differ from row {} on", SHOWN_BY[1], equal + 1));
    }
    found
}

fn first_cells<'a>(files: &'a [File], path: &str) -> Vec<&'a str> {
    let text = files.iter().find(|file| file.path == path).map_or("", |file| &file.text);
    text.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next()).collect()
}

/// Folders that contain home folders or checkouts.
const FOLDERS: [&str; 4] = ["work", "root", "home", "Users"];

fn paths(files: &[File]) -> Vec<String> {
    let mut found = Vec::new();
    for (file, folder) in files.iter().flat_map(|file| FOLDERS.map(|folder| (file, folder))) {
        let wanted = format!("/{folder}/");
        let joins = |last: char| last.is_alphanumeric() || "_-.}*".contains(last);
        for (number, line) in file.lines() {
            if line.match_indices(&wanted).any(|(at, _)| !line[..at].ends_with(joins)) {
                found.push(file.violation(number, format!("an absolute path below `{folder}` at the root")));
            }
        }
    }
    found
}

/// Each relative link of a document leads to a file, and to a heading of it.
fn links(files: &[File]) -> Vec<String> {
    let mut found = Vec::new();
    for document in files.iter().filter(|file| file.is_document()) {
        for (number, line) in prose(document) {
            for target in targets(line).filter(|target| !target.contains(':')) {
                let (path, heading) = target.split_once('#').unwrap_or((target, ""));
                let path = resolve(&document.path, path);
                let is_meant = |file: &&File| file.path == path || file.path.starts_with(&format!("{path}/"));
                let leads = match files.iter().find(is_meant) {
                    Some(file) if file.is_document() && !heading.is_empty() => {
                        headings(file).any(|slug| slug == heading)
                    }
                    found => found.is_some() || path.is_empty(),
                };
                if !leads {
                    found.push(document.violation(number, format!("`{target}` leads nowhere")));
                }
            }
        }
    }
    found
}

const SUMMARY: &str = "docs/SUMMARY.md";

/// Each page has one line in the summary of the book. That each line has a page is for `links`.
fn book(files: &[File]) -> Vec<String> {
    let mut named = Vec::new();
    for summary in files.iter().filter(|file| file.path == SUMMARY) {
        named.extend(prose(summary).flat_map(|(_, line)| targets(line)).map(|page| resolve(SUMMARY, page)));
    }
    let pages = files.iter().filter(|file| file.path.starts_with("docs/") && file.is_document());
    let pages = pages.filter(|page| page.path != SUMMARY);
    let lines = pages.map(|page| (page, named.iter().filter(|path| **path == page.path).count()));
    lines
        .filter(|(_, count)| *count != 1)
        .map(|(page, count)| page.violation(1, format!("{count} lines of {SUMMARY}")))
        .collect()
}

fn prose(document: &File) -> impl Iterator<Item = (usize, &str)> {
    let mut is_fenced = false;
    document.lines().filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        !is_fenced && !is_fence
    })
}

/// The targets of `[text](target)` outside quoted code, and of `[name]: target`.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    let inline = line.match_indices("](").filter_map(|(at, opening)| {
        let rest = &line[at + opening.len()..];
        let is_quoted = line[..at].matches('`').count() % 2 == 1 && rest.contains('`');
        (!is_quoted).then_some(&rest[..rest.find([')', ' '])?])
    });
    let named = line.strip_prefix('[').and_then(|line| line.split_once("]: "));
    inline.chain(named.map(|(_, target)| target.trim()))
}

/// An empty path is the document's.
fn resolve(document: &str, path: &str) -> String {
    if path.is_empty() {
        return document.to_owned();
    }
    let mut parts: Vec<&str> = document.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    parts.join("/")
}

/// The anchors of headings, as code hosts make them.
fn headings(document: &File) -> impl Iterator<Item = String> {
    prose(document).filter(|(_, line)| line.starts_with('#')).map(|(_, line)| {
        let title = line.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
        title.chars().filter(|letter| letter.is_alphanumeric() || matches!(letter, '-' | '_')).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(rule: Rule, files: &[(&str, &str)]) -> Vec<String> {
        let file = |(path, text): &(&str, &str)| File { path: (*path).into(), text: (*text).into() };
        let files: Vec<File> = files.iter().map(file).collect();
        rule(&files)
    }

    #[test]
    fn every_file_that_a_rule_names_exists() {
        let files = read().unwrap();
        let places = FORBIDDEN.iter().map(|(place, _)| *place);
        for place in places.chain(SHOWN_BY).chain([ARCHITECTURE, FOR_USERS, SUMMARY]) {
            assert!(files.iter().any(|file| file.path.starts_with(place)), "there is no {place}");
        }
    }

    #[test]
    fn forbidden_import_is_found_outside_tests() {
        let path = "crates/ielections/src/protocol/lease.rs";
        let text = "// tokio::\nuse tokio::time;\nuse my_tokio::x;\n#[cfg(test)]\nmod tests {\n use tokio::time;\n}\n";
        assert_eq!(found(imports, &[(path, text)]), [format!("{path}:2: `tokio::` is not for this file")]);
        assert_eq!(found(imports, &[("crates/a/src/lib.rs", text)]), [""; 0]);
    }

    #[test]
    fn pronoun_is_found_and_the_user_nobody_passes() {
        let text = "// Whoever leads.\nfn somebody_leads() {}\nrun_as(\"nobody\", NOBODY)\nantibody\n";
        assert_eq!(found(words, &[("a.rs", text)]), ["a.rs:1: `Whoever`", "a.rs:2: `somebody`"]);
        assert_eq!(found(words, &[("a.toml", text)]), [""; 0]);
    }

    #[test]
    fn invariant_missing_in_code_test_or_page_is_found_and_so_is_an_unknown_one() {
        let all: String = INVARIANTS.map(|invariant| format!("I{invariant}, ")).collect();
        let of = |code: &str, test: &str, page: &str| {
            let suite = format!("/// Shows {test}\nfn a() {{}}\n");
            let code = format!("// {code}\n");
            let files =
                [("crates/a/src/lib.rs", &*code), ("crates/a/tests/b.rs", &suite), (ARCHITECTURE, page)];
            found(invariants, &files)
                .into_iter()
                .map(|line| line.split_once(": ").unwrap().1.to_owned())
                .collect::<Vec<_>>()
        };
        let without_7 = all.replace("I7, ", "");
        assert_eq!(of(&all, &all, &all), [""; 0]);
        assert_eq!(of(&without_7, &all, &all), ["no code says that it keeps I7"]);
        assert_eq!(of(&all, &without_7, &all), ["no test shows I7"]);
        assert_eq!(of(&all, &all, &without_7), ["no text explains I7"]);
        assert_eq!(of(&format!("{all} I12"), &all, &all), ["there is no invariant I12"]);
    }

    #[test]
    fn row_without_an_existing_test_and_row_of_one_page_alone_are_found() {
        let table = "| what | shown by |\n|---|---|\n| a | `it_tightens`; `cargo x` |\n| b | `it_loosens` |\n| c | d |\n";
        let code = ("a.rs", "#[test]\nfn it_tightens() {}\n");
        let page = SHOWN_BY[1];
        assert_eq!(
            found(proofs, &[(page, table), code, (FOR_USERS, "| what | then |\n| a | b |\n| b | b |\n")]),
            [
                format!("{page}:4: the test `it_loosens` does not exist"),
                format!("{page}:5: no test or command shows this row"),
                format!("{FOR_USERS}:1: this page and {page} differ from row 4 on"),
            ]
        );
    }

    #[test]
    fn absolute_path_is_found_and_a_relative_one_passes() {
        let absolute = format!(
            "docs/home/page.md and https://example.org/work/x\nsee {}\n",
            ["", "home", "me"].join("/")
        );
        assert_eq!(
            found(paths, &[("a.md", &absolute)]),
            ["a.md:2: an absolute path below `home` at the root"]
        );
    }

    #[test]
    fn page_that_the_book_lacks_or_has_twice_is_found() {
        let summary = (SUMMARY, "[A](a.md)\n- [B](storages/b.md)\n- [C](c.md)\n- [C](c.md)\n");
        let pages =
            ["docs/a.md", "docs/storages/b.md", "docs/c.md", "docs/d.md", "e.md"].map(|page| (page, ""));
        assert_eq!(
            found(book, &[&[summary], &pages[..]].concat()),
            ["docs/c.md:1: 2 lines of docs/SUMMARY.md", "docs/d.md:1: 0 lines of docs/SUMMARY.md"]
        );
    }

    #[test]
    fn link_to_a_missing_file_or_heading_is_found_and_quoted_ones_are_ignored() {
        let text = "[a](../README.md#two-words-said) [b](c) [d](https://x.org/y)\n[a](#there)\n```\n[a](b)\n```\n`[a](b)`\n";
        assert_eq!(
            found(links, &[("docs/a.md", text), ("README.md", "# Two words, said\n")]),
            ["docs/a.md:1: `c` leads nowhere", "docs/a.md:2: `#there` leads nowhere"]
        );
    }
}
