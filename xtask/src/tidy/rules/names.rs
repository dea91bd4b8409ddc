//! No module is named `utils`, `common` or the like.

use super::{Finding, Rule};
use crate::tidy::tree::Tree;

pub(super) const RULE: Rule = Rule { name: "names", fix: "name the module after its one concept", find };

const VAGUE: [&str; 7] = ["utils", "util", "common", "helpers", "helper", "misc", "shared"];

fn find(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, rust) in tree.rust() {
        for part in path.split('/').map(|part| part.trim_end_matches(".rs")) {
            if VAGUE.contains(&part) {
                findings.push(Finding::new(path, 1, format!("`{part}` names no concept")));
            }
        }
        for name in VAGUE {
            for line in rust.lines_with(&format!("mod {name}")) {
                findings.push(Finding::new(path, line, format!("`{name}` names no concept")));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::{super::tests::lines, *};

    #[test]
    fn vague_name_of_file_folder_or_module_is_found() {
        assert_eq!(lines(RULE, "crates/a/src/utils.rs", ""), [1]);
        assert_eq!(lines(RULE, "crates/a/tests/common/server.rs", ""), [1]);
        assert_eq!(lines(RULE, "crates/a/src/lib.rs", "//! x\nmod helpers {}\n"), [2]);
        assert_eq!(lines(RULE, "crates/a/src/commonplace.rs", "mod utilities;\n"), [0; 0]);
    }
}
