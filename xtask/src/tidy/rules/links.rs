//! Every relative link in a document has an existing target, and an existing heading.

use super::{Finding, Rule};
use crate::tidy::tree::{File, Tree};

pub(super) const RULE: Rule = Rule {
    name: "links",
    fix: "point the link at a file that is tracked and a heading that stands in it",
    find,
};

fn find(tree: &Tree) -> Vec<Finding> {
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

    fn found(text: &str) -> Vec<String> {
        let tree = Tree::of(&[
            ("docs/a.md", text),
            ("README.md", "# Two words, said\n"),
            ("docs/pictures/b.svg", ""),
        ]);
        find(&tree).into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn link_to_a_missing_file_is_found() {
        assert_eq!(
            found("[a](../README.md) ![b](pictures/b.svg) [c](pictures) [d](https://x.org/y)\n"),
            [""; 0]
        );
        assert_eq!(found("[a](README.md)\n"), ["`README.md` leads nowhere"]);
        assert_eq!(found("[a]: pictures/c.svg\n"), ["`pictures/c.svg` leads nowhere"]);
    }

    #[test]
    fn link_to_a_missing_heading_is_found() {
        assert_eq!(found("[a](../README.md#two-words-said)\n"), [""; 0]);
        assert_eq!(found("# Here\n[a](#here) [b](#there)\n"), ["`docs/a.md` has no heading `#there`"]);
    }

    #[test]
    fn link_in_code_is_ignored() {
        assert_eq!(found("```\n[a](b)\n```\n`[a](b)` and `x[0](y)`\n"), [""; 0]);
    }
}
