//! Banned words: pronouns that name no actor. Comments, documents, messages and names are searched.

use super::{Finding, Rule};
use crate::tidy::tree::Tree;

pub(super) const RULE: Rule = Rule {
    name: "words",
    fix: "name the actor: leader, candidate, host, guardian, caller, operator, storage",
    find,
};

const BANNED: [&str; 8] =
    ["whoever", "whomever", "whom", "somebody", "someone", "nobody", "anybody", "everybody"];

/// The user `nobody`, as tests of containment and permissions write it.
const USER: [(&str, &str); 4] = [("\"", "\""), ("`", "`"), ("user ", ""), ("reuid=", "")];

/// This file, which must spell them.
const HERE: &str = "xtask/src/tidy/rules/words.rs";

fn find(tree: &Tree) -> Vec<Finding> {
    let is_prose = |path: &str| [".rs", ".md"].iter().any(|ending| path.ends_with(ending)) && path != HERE;
    let mut findings = Vec::new();
    for file in tree.files().iter().filter(|file| is_prose(&file.path)) {
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

#[cfg(test)]
mod tests {
    use super::{super::tests::lines, *};

    #[test]
    fn banned_word_in_comment_message_name_and_document_is_found() {
        assert_eq!(lines(RULE, "a.rs", "// Whoever leads.\nfn leads() {}\n"), [1]);
        assert_eq!(lines(RULE, "a.rs", "const A: &str = \"nobody leads\";\n"), [1]);
        assert_eq!(lines(RULE, "a.rs", "fn somebody_leads() {}\nstruct ForEverybodyElse;\n"), [1, 2]);
        assert_eq!(lines(RULE, "docs/a.md", "To\nwhom? To SOMEONE or anybody.\n"), [2, 2, 2]);
    }

    #[test]
    fn user_nobody_and_longer_words_pass() {
        let text = "run_as(\"nobody\") // `nobody`, the user nobody\nconst NOBODY: u32 = 65534;\n";
        assert_eq!(lines(RULE, "a.rs", text), [0; 0]);
        assert_eq!(lines(RULE, "a.md", "whomsoever antibody\n"), [0; 0]);
        assert_eq!(lines(RULE, "a.toml", "# whoever\n"), [0; 0]);
    }
}
