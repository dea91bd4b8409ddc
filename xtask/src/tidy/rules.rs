//! The rules, one file each. What clippy can hold stands in `clippy.toml` and in the lints of the workspace.

mod arrows;
mod circles;
mod debug_format;
mod invariants;
mod leftovers;
mod links;
mod machine;
mod manifests;
mod names;
mod proofs;
mod selects;
mod words;
mod workflows;

pub(super) use invariants::table as invariants;

use super::{Finding, Rule};

/// In the order in which they are checked and printed.
pub(super) const ALL: [Rule; 13] = [
    arrows::RULE,
    circles::RULE,
    selects::RULE,
    leftovers::RULE,
    words::RULE,
    debug_format::RULE,
    names::RULE,
    invariants::RULE,
    proofs::RULE,
    machine::RULE,
    links::RULE,
    manifests::RULE,
    workflows::RULE,
];

#[cfg(test)]
mod tests {
    use super::{super::tree::Tree, *};

    /// The lines where a rule finds something in a single file.
    pub(super) fn lines(rule: Rule, path: &str, text: &str) -> Vec<usize> {
        let mut findings = (rule.find)(&Tree::of(&[(path, text)]));
        findings.sort();
        findings.into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn every_rule_has_a_unique_name_and_a_fix() {
        let mut names: Vec<_> = ALL.iter().map(|rule| rule.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ALL.len());
        assert!(ALL.iter().all(|rule| !rule.fix.is_empty()));
    }
}
