//! Rules about what people read: words, tests and numbers of lines that documents name, paths, and links.

use super::{
    Finding, Rule,
    tree::{File, Tree},
};

pub(super) const WORDS: Rule = Rule {
    name: "words",
    fix: "name the actor: leader, candidate, host, guardian, caller, operator, storage",
    find: find_words,
};

/// Pronouns that name no actor. Comments, documents, messages and names are searched.
const BANNED: [&str; 8] =
    ["whoever", "whomever", "whom", "somebody", "someone", "nobody", "anybody", "everybody"];

/// The user `nobody`, as tests of containment and permissions write it.
const USER: [(&str, &str); 4] = [("\"", "\""), ("`", "`"), ("user ", ""), ("reuid=", "")];

/// This file, which must spell them.
const HERE: [&str; 2] = ["xtask/src/tidy/texts.rs", "xtask/src/tidy.rs"];

fn find_words(tree: &Tree) -> Vec<Finding> {
    let is_prose = |path: &str| path.ends_with(".rs") || path.ends_with(".md");
    let mut findings = Vec::new();
    for file in tree.files().iter().filter(|file| is_prose(&file.path) && !HERE.contains(&&*file.path)) {
        for (index, line) in file.text.lines().enumerate() {
            let found = banned(line).map(|word| Finding::new(&file.path, index + 1, format!("`{word}`")));
            findings.extend(found);
        }
    }
    findings
}

/// Returns the banned words of a line. Parts of names in `snake_case` and `CamelCase` are words, too.
fn banned(line: &str) -> impl Iterator<Item = &'static str> {
    let lower = line.to_ascii_lowercase();
    let is_word = |at: usize, length: usize| {
        let (before, word, behind) = (&line[..at], &line[at..at + length], &line[at + length..]);
        let capital = |text: &str| text.starts_with(|first: char| first.is_ascii_uppercase());
        let begins = !before.ends_with(|last: char| last.is_alphabetic())
            || capital(word) && before.ends_with(|last: char| last.is_lowercase());
        let ends = !behind.starts_with(|next: char| next.is_alphabetic())
            || capital(behind) && word.ends_with(|last: char| last.is_lowercase());
        let user = word == "NOBODY"
            || word == "nobody"
                && USER.iter().any(|(left, right)| before.ends_with(left) && behind.starts_with(right));
        begins && ends && !user
    };
    let found = BANNED.into_iter().flat_map(|word| lower.match_indices(word).map(move |(at, _)| (at, word)));
    let found = found.filter(|(at, word)| is_word(*at, word.len())).map(|(_, word)| word);
    found.collect::<Vec<_>>().into_iter()
}

/// Every test that a document names exists, and every row for users has its tests.
pub(super) const PROOFS: Rule = Rule {
    name: "proofs",
    fix: "name tests that exist, or a command, in the last column of the table",
    find: find_proofs,
};

/// The last column of each table in them names tests or commands in backticks. A name without a space is a
/// function of the tree; a command of several words is not checked.
const DOCUMENTS: [&str; 2] = ["docs/contributing/peers.md", "docs/contributing/shown-by.md"];

/// A page for users without names of tests. The second of `DOCUMENTS` has its rows, in the same order.
const FOR_USERS: &str = "docs/what-happens-if.md";

fn find_proofs(tree: &Tree) -> Vec<Finding> {
    let documents = tree.files().iter().filter(|file| DOCUMENTS.contains(&file.path.as_str()));
    let mut findings: Vec<Finding> = documents.flat_map(|file| proofs_of(tree, file)).collect();
    let (told, shown) = (first_cells(tree, FOR_USERS), first_cells(tree, DOCUMENTS[1]));
    if told != shown {
        let differs = told.iter().zip(&shown).position(|(told, shown)| told != shown);
        let place = differs.unwrap_or(told.len().min(shown.len()));
        let row = told.get(place).or(shown.get(place)).copied().unwrap_or_default();
        let what = format!("`{}` and this page differ from the row `{row}` on", DOCUMENTS[1]);
        findings.push(Finding::new(FOR_USERS, 1, what));
    }
    findings
}

/// Returns the first cell of each row of a document, headers included.
fn first_cells<'tree>(tree: &'tree Tree, path: &str) -> Vec<&'tree str> {
    let text = tree.files().iter().find(|file| file.path == path).map_or("", |file| &file.text);
    text.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next()).collect()
}

fn proofs_of(tree: &Tree, document: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in document.text.lines().enumerate().filter(|(_, line)| line.starts_with("| ")) {
        let Some(shown) = line.trim_end().trim_end_matches('|').rsplit(" | ").next() else { continue };
        if shown.trim() == "shown by" {
            continue;
        }
        let mut report = |what: String| findings.push(Finding::new(&document.path, index + 1, what));
        let tests: Vec<&str> = shown.split('`').skip(1).step_by(2).collect();
        if tests.is_empty() {
            report("no test or command shows this row".to_owned());
        }
        let exists = |test: &str| tree.rust().any(|(_, rust)| rust.items.contains(test));
        for test in tests.into_iter().filter(|test| !test.contains(' ') && !exists(test)) {
            report(format!("the test `{test}` does not exist"));
        }
    }
    findings
}

/// The page about the trusted base counts the lines that can cause two leaders. The counts stay true.
pub(super) const COUNTS: Rule = Rule {
    name: "trusted",
    fix: "correct the number of lines, rounded to 50, and the sum in the last row",
    find: find_counts,
};

const TRUSTED_BASE: &str = "docs/contributing/trusted-base.md";

/// The part's name in the row whose number is the sum of all others.
const SUM: &str = "all";

/// How many lines a stated number may differ from the real one.
const ROUNDED: usize = 50;

fn find_counts(tree: &Tree) -> Vec<Finding> {
    let Some(document) = tree.files().iter().find(|file| file.path == TRUSTED_BASE) else {
        return vec![Finding::new(TRUSTED_BASE, 1, "the page does not exist")];
    };
    let mut findings = Vec::new();
    let mut sum = 0;
    for (index, line) in document.text.lines().enumerate() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let ["", part, stated, places, ..] = cells[..] else { continue };
        let Ok(stated) = stated.replace(',', "").parse::<usize>() else { continue };
        let mut report = |what: String| findings.push(Finding::new(TRUSTED_BASE, index + 1, what));
        if part == SUM {
            if stated != sum {
                report(format!("the rows above have {sum} lines together"));
            }
            continue;
        }
        sum += stated;
        let mut lines = 0;
        for place in places.split('`').skip(1).step_by(2) {
            let of_place = |file: &&File| {
                let rest = file.path.strip_prefix(place);
                rest.is_some_and(|rest| rest.is_empty() || place.ends_with('/'))
            };
            match tree.files().iter().filter(of_place).map(lines_outside_tests).sum() {
                0 => report(format!("`{place}` has no line of Rust outside tests")),
                found => lines += found,
            }
        }
        if lines.abs_diff(stated) > ROUNDED {
            report(format!("these files have {lines} lines outside tests"));
        }
    }
    findings
}

fn lines_outside_tests(file: &File) -> usize {
    let lines = 1..=file.text.lines().count();
    file.rust.as_ref().map_or(0, |rust| lines.filter(|line| !rust.is_test(*line)).count())
}

/// No file depends on the machine of its author.
pub(super) const PATHS: Rule =
    Rule { name: "paths", fix: "write paths relative to the repository", find: find_paths };

/// Folders at the root of a file system that contain home folders or checkouts.
const FOLDERS: [&str; 4] = ["work", "root", "home", "Users"];

fn find_paths(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files() {
        for (index, line) in file.text.lines().enumerate() {
            if let Some(folder) = FOLDERS.into_iter().find(|folder| names_folder(line, folder)) {
                let what = format!("an absolute path below `{folder}` at the root");
                findings.push(Finding::new(&file.path, index + 1, what));
            }
        }
    }
    findings
}

/// Whether a path in `line` begins with `/folder/`.
fn names_folder(line: &str, folder: &str) -> bool {
    let wanted = format!("/{folder}/");
    line.match_indices(&wanted).any(|(at, _)| {
        !line[..at].ends_with(|before: char| {
            before.is_alphanumeric() || matches!(before, '_' | '-' | '.' | '}' | '*')
        })
    })
}

/// Every relative link in a document has an existing target, and an existing heading.
pub(super) const LINKS: Rule = Rule {
    name: "links",
    fix: "point the link at a file that is tracked and a heading that stands in it",
    find: find_links,
};

fn find_links(tree: &Tree) -> Vec<Finding> {
    let documents = || tree.files().iter().filter(|file| file.path.ends_with(".md"));
    let mut findings = Vec::new();
    for document in documents() {
        for (line, target) in links(&document.text) {
            if target.contains(':') {
                continue;
            }
            let (path, heading) = target.split_once('#').unwrap_or((target, ""));
            let path = if path.is_empty() { document.path.clone() } else { resolve(&document.path, path) };
            let below = |file: &File| file.path.strip_prefix(&path).is_some_and(|rest| rest.starts_with('/'));
            let exists = path.is_empty() || tree.files().iter().any(|file| file.path == path || below(file));
            if !exists {
                findings.push(Finding::new(&document.path, line, format!("`{target}` leads nowhere")));
            } else if !heading.is_empty()
                && documents()
                    .any(|file| file.path == path && !headings(&file.text).any(|slug| slug == heading))
            {
                findings.push(Finding::new(
                    &document.path,
                    line,
                    format!("`{path}` has no heading `#{heading}`"),
                ));
            }
        }
    }
    findings
}

/// Iterates over lines of prose, numbered from 1. Fenced code is left out.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        (!fenced && !fence).then_some((index + 1, line))
    })
}

/// Returns the targets of `[text](target)`, and of `[name]: target` at the beginning of a line.
fn links(text: &str) -> impl Iterator<Item = (usize, &str)> {
    prose(text).flat_map(|(number, line)| {
        let inline = line.match_indices("](").filter_map(move |(at, opening)| {
            let target = &line[at + opening.len()..];
            // After an odd number of backticks, the link is part of quoted code.
            let quoted = line[..at].matches('`').count() % 2 == 1 && target.contains('`');
            (!quoted).then_some(&target[..target.find([')', ' '])?])
        });
        let named =
            line.strip_prefix('[').and_then(|line| line.split_once("]: ")).map(|(_, target)| target.trim());
        inline.chain(named).map(move |target| (number, target))
    })
}

fn resolve(document: &str, path: &str) -> String {
    let folder = document.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            name => parts.push(name),
        }
    }
    parts.join("/")
}

/// Returns the anchors of headings, as code hosts generate them.
fn headings(text: &str) -> impl Iterator<Item = String> {
    prose(text).filter(|(_, line)| line.starts_with('#')).map(|(_, line)| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept =
            title.chars().filter(|letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_'));
        kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines where a rule finds something in a single file.
    fn lines(rule: Rule, path: &str, text: &str) -> Vec<usize> {
        let mut findings = (rule.find)(&Tree::of(&[(path, text)]));
        findings.sort();
        findings.into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn banned_word_in_comment_message_name_and_document_is_found() {
        assert_eq!(lines(WORDS, "a.rs", "// Whoever leads.\nfn leads() {}\n"), [1]);
        assert_eq!(lines(WORDS, "a.rs", "const A: &str = \"nobody leads\";\n"), [1]);
        assert_eq!(lines(WORDS, "a.rs", "fn somebody_leads() {}\nstruct ForEverybodyElse;\n"), [1, 2]);
        assert_eq!(lines(WORDS, "docs/a.md", "To\nwhom? To SOMEONE or anybody.\n"), [2, 2, 2]);
    }

    #[test]
    fn user_nobody_and_longer_words_pass() {
        let text = "run_as(\"nobody\") // `nobody`, the user nobody\nconst NOBODY: u32 = 65534;\n";
        assert_eq!(lines(WORDS, "a.rs", text), [0; 0]);
        assert_eq!(lines(WORDS, "a.md", "whomsoever antibody\n"), [0; 0]);
        assert_eq!(lines(WORDS, "a.toml", "# whoever\n"), [0; 0]);
    }
    #[test]
    fn row_without_an_existing_test_is_found() {
        let table = "| complaint | here | shown by |\n|---|---|---|\n\
                     | `a` | b | `it_tightens`; `cargo x y` |\n\
                     | a | b | `it_loosens` |\n| a | b | c |\n";
        let code = "#[test]\nfn it_tightens() {}\n";
        let tree = Tree::of(&[(DOCUMENTS[0], table), ("crates/deadman/src/lib.rs", code)]);
        let found = find_proofs(&tree).into_iter().map(|finding| (finding.line, finding.what));
        let expected = [
            (4, "the test `it_loosens` does not exist".to_owned()),
            (5, "no test or command shows this row".to_owned()),
        ];
        assert_eq!(found.collect::<Vec<_>>(), expected);
    }
    #[test]
    fn row_for_users_without_a_row_of_tests_is_found() {
        let shown = "| what | shown by |\n|---|---|\n| a | `cargo x y` |\n";
        let found = |told| {
            let tree = Tree::of(&[(FOR_USERS, told), (DOCUMENTS[1], shown)]);
            find_proofs(&tree).into_iter().map(|finding| finding.what).collect::<Vec<_>>()
        };
        assert_eq!(found("| what | then |\n|---|---|\n| a | b |\n"), [""; 0]);
        let differ = "`docs/contributing/shown-by.md` and this page differ from the row `";
        for (told, row) in [("| what | then |\n", "a"), ("| what | b |\n| a | b |\n| c | b |\n", "c")] {
            assert_eq!(found(told), [format!("{differ}{row}` on")]);
        }
    }
    fn wrong_counts(rows: &str) -> Vec<(usize, String)> {
        let code = "fn a() {}\n".repeat(200) + "#[cfg(test)]\nmod tests {\n" + &"\n".repeat(100) + "}\n";
        let table = format!("| part | lines | where |\n|---|---|---|\n{rows}");
        let tree =
            Tree::of(&[(TRUSTED_BASE, &table), ("crates/a/src/lib.rs", &code), ("crates/b.rs", "// b\n")]);
        find_counts(&tree).into_iter().map(|finding| (finding.line, finding.what)).collect()
    }

    #[test]
    fn wrong_number_missing_place_and_wrong_sum_are_found() {
        assert_eq!(
            wrong_counts("| a | 200 | `crates/a/src/` |\n| b | 0 | `crates/b.rs` |\n| all | 200 | |\n"),
            []
        );
        assert_eq!(
            wrong_counts("| a | 300 | `crates/a/` |\n"),
            [(3, "these files have 200 lines outside tests".into())]
        );
        let missing = "`crates/a/src` has no line of Rust outside tests".to_owned();
        assert_eq!(wrong_counts("| a | 0 | `crates/a/src` |\n"), [(3, missing)]);
        let sum = "the rows above have 200 lines together".to_owned();
        assert_eq!(wrong_counts("| a | 200 | `crates/a/` |\n| all | 1,200 | |\n"), [(4, sum)]);
    }

    #[test]
    fn absolute_path_is_found_and_a_relative_one_passes() {
        let absolute = format!("see {}", ["", "home", "me", "notes"].join("/"));
        assert_eq!(lines(PATHS, "a.md", &absolute), [1]);
        assert_eq!(lines(PATHS, "a.md", "see docs/home/page.md and https://example.org/work/x\n"), [0; 0]);
    }

    fn links_in(text: &str) -> Vec<String> {
        let tree = Tree::of(&[
            ("docs/a.md", text),
            ("README.md", "# Two words, said\n"),
            ("docs/pictures/b.svg", ""),
        ]);
        find_links(&tree).into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn link_to_a_missing_file_is_found() {
        assert_eq!(
            links_in("[a](../README.md) ![b](pictures/b.svg) [c](pictures) [d](https://x.org/y)\n"),
            [""; 0]
        );
        assert_eq!(links_in("[a](README.md)\n"), ["`README.md` leads nowhere"]);
        assert_eq!(links_in("[a]: pictures/c.svg\n"), ["`pictures/c.svg` leads nowhere"]);
    }

    #[test]
    fn link_to_a_missing_heading_is_found() {
        assert_eq!(links_in("[a](../README.md#two-words-said)\n"), [""; 0]);
        assert_eq!(links_in("# Here\n[a](#here) [b](#there)\n"), ["`docs/a.md` has no heading `#there`"]);
    }

    #[test]
    fn link_in_code_is_ignored() {
        assert_eq!(links_in("```\n[a](b)\n```\n`[a](b)` and `x[0](y)`\n"), [""; 0]);
    }
}
