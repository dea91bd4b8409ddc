//! Workflow files and `.ci/run` only call xtask, so that every step can be run locally.

use super::{Finding, Rule};
use crate::tidy::tree::{File, Tree};

pub(super) const RULE: Rule = Rule {
    name: "workflows",
    fix: "let workflows run only `cargo xtask …` and put the logic into xtask; let `.ci/run` run the \
          README's test command, with `--all`",
    find,
};

const TEST_COMMAND: &str = "cargo xtask ci";
const SCRIPT: &str = ".ci/run";

fn find(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files().iter().filter(|file| file.path.starts_with(".github/workflows/")) {
        for (index, line) in file.text.lines().enumerate() {
            let command = line.trim_start().trim_start_matches("- ").strip_prefix("run:");
            if command.is_some_and(|command| !is_ours(command.trim())) {
                findings.push(Finding::new(&file.path, index + 1, format!("`{}`", line.trim())));
            }
        }
    }
    let runs_it = |file: &File| commands(&file.text).eq([format!("exec {TEST_COMMAND} --all")]);
    let says_it = |file: &File| file.text.lines().any(|line| line.trim() == TEST_COMMAND);
    let holds = |path: &str, condition: &dyn Fn(&File) -> bool| {
        tree.files().iter().any(|file| file.path == path && condition(file))
    };
    if !holds(SCRIPT, &runs_it) {
        findings.push(Finding::new(
            SCRIPT,
            1,
            format!("does not run `{TEST_COMMAND} --all` and nothing else"),
        ));
    }
    if !holds("README.md", &says_it) {
        findings.push(Finding::new(
            "README.md",
            1,
            format!("does not say `{TEST_COMMAND}` on a line of its own"),
        ));
    }
    findings
}

fn is_ours(command: &str) -> bool {
    command.starts_with("cargo xtask ") && !command.contains(['&', ';', '|', '$'])
}

/// Iterates over the lines of a script with commands, except `cd`.
fn commands(script: &str) -> impl Iterator<Item = String> {
    let setup =
        |line: &str| line.is_empty() || ["#", "set ", "cd "].iter().any(|start| line.starts_with(start));
    script.lines().map(|line| line.trim().to_owned()).filter(move |line| !setup(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(workflow: &str, script: &str, readme: &str) -> usize {
        let files = [(".github/workflows/ci.yml", workflow), (SCRIPT, script), ("README.md", readme)];
        find(&Tree::of(&files)).len()
    }

    const WORKFLOW: &str = "steps:\n  - uses: actions/checkout@v4\n  - run: cargo xtask ci\n";
    const README: &str = "```sh\ncargo xtask ci\n```\n";
    const RUN: &str = "#!/usr/bin/env bash\nset -e\ncd x\nexec cargo xtask ci --all\n";

    #[test]
    fn logic_in_a_workflow_file_is_found() {
        assert_eq!(found(WORKFLOW, RUN, README), 0);
        assert_eq!(found("steps:\n  - run: cargo test\n", RUN, README), 1);
        assert_eq!(found("steps:\n  - run: |\n      cargo xtask ci\n", RUN, README), 1);
        assert_eq!(found("steps:\n  - run: cargo xtask ci || true\n", RUN, README), 1);
        assert_eq!(found(WORKFLOW, &format!("sleep 1\n{RUN}"), README), 1);
    }

    #[test]
    fn readme_with_another_test_command_is_found() {
        assert_eq!(found(WORKFLOW, RUN, "cargo test\n"), 1);
    }
}
