//! No module is a drawer for what has no place.

use super::{Finding, Rule};
use crate::tidy::tree::Tree;

pub(super) const RULE: Rule =
    Rule { name: "names", fix: "name the module after the one concept that lives in it", find };

const DRAWERS: [&str; 7] = ["utils", "util", "common", "helpers", "helper", "misc", "shared"];

fn find(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, rust) in tree.rust() {
        for part in path.split('/').map(|part| part.trim_end_matches(".rs")) {
            if DRAWERS.contains(&part) {
                findings.push(Finding::new(path, 1, format!("`{part}` names no concept")));
            }
        }
        for drawer in DRAWERS {
            for line in rust.lines_with(&format!("mod {drawer}")) {
                findings.push(Finding::new(path, line, format!("`{drawer}` names no concept")));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::{super::tests::lines, *};

    #[test]
    fn drawers_are_found_as_files_folders_and_modules() {
        assert_eq!(lines(RULE, "crates/a/src/utils.rs", ""), [1]);
        assert_eq!(lines(RULE, "crates/a/tests/common/server.rs", ""), [1]);
        assert_eq!(lines(RULE, "crates/a/src/lib.rs", "//! x\nmod helpers {}\n"), [2]);
        assert_eq!(lines(RULE, "crates/a/src/commonplace.rs", "mod utilities;\n"), [0; 0]);
    }
}
