//! No task and no thread starts without an owner that joins it (I9), and none past the environment that a simulation
//! owns. Examples are exempt: they show what a reader would write on a runtime of their own.

use super::{Finding, Rule};
use crate::tidy::tree::Tree;

pub(super) const RULE: Rule = Rule {
    name: "spawns",
    fix: "spawn through `ielections::Spawn`, or start a named `std::thread::Builder` thread and join it",
    find,
};

const SPAWNS: [&str; 5] = ["tokio::spawn", "task::spawn", "thread::spawn", "spawn_blocking", "spawn_local"];

fn find(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, rust) in tree.rust().filter(|(path, _)| !path.starts_with("examples/")) {
        for spawn in SPAWNS {
            let found = rust.working_lines_with(spawn);
            findings.extend(found.map(|line| Finding::new(path, line, format!("bare `{spawn}`"))));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::{super::tests::lines, *};

    #[test]
    fn a_bare_spawn_is_found_but_in_a_test() {
        let text = "fn a() { tokio::spawn(b); std::thread::spawn(c); }\n";
        assert_eq!(lines(RULE, "crates/vvm-orch/src/vvm.rs", text), [1, 1]);
        assert_eq!(lines(RULE, "crates/vvm-orch/tests/vvm.rs", text), [0; 0]);
        assert_eq!(lines(RULE, "examples/some/src/lib.rs", text), [0; 0]);
    }

    #[test]
    fn a_thread_with_a_name_and_the_environment_pass() {
        let text = "fn a() { thread::Builder::new().spawn(b); env.spawn.spawn(\"c\", d); scope.spawn(e); }\n";
        assert_eq!(lines(RULE, "crates/vvm-orch/src/vvm.rs", text), [0; 0]);
    }
}
