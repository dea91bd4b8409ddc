//! No file is longer than the limit of its kind.

use super::{Finding, Rule};
use crate::tidy::tree::Tree;

pub(super) const RULE: Rule =
    Rule { name: "length", fix: "split the file: one concept each, most under 200 lines", find };

const LONGEST: usize = 400;

/// The kinds of files with a limit. Lock files, licences and pictures have none.
const WRITTEN: [&str; 5] = [".rs", ".md", ".toml", ".yml", ".sh"];

fn find(tree: &Tree) -> Vec<Finding> {
    tree.files()
        .iter()
        .filter(|file| WRITTEN.iter().any(|ending| file.path.ends_with(ending)))
        .map(|file| (&file.path, file.text.lines().count()))
        .filter(|(_, length)| *length > LONGEST)
        .map(|(path, length)| Finding::new(path, LONGEST + 1, format!("{length} lines, over {LONGEST}")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{super::tests::lines, *};

    #[test]
    fn line_above_the_limit_is_found() {
        assert_eq!(lines(RULE, "a.rs", &"x\n".repeat(LONGEST)), [0; 0]);
        assert_eq!(lines(RULE, "a.rs", &"x\n".repeat(LONGEST + 1)), [LONGEST + 1]);
        assert_eq!(lines(RULE, "Cargo.lock", &"x\n".repeat(LONGEST + 1)), [0; 0]);
    }
}
