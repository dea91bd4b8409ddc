//! Only `clock` reads time: whatever else did would run past a suspend, and could not be simulated.

use super::{Finding, Rule};
use crate::tidy::{
    rust_source::{RustSource, words},
    tree::Tree,
};

pub(super) const RULE: Rule = Rule {
    name: "time",
    fix: "take a `vvm_clock::Clock` (in tests and tools `vvm_clock::SystemClock`) and its `Instant`",
    find,
};

/// Readings, forbidden in tests too.
const READINGS: [&str; 7] = [
    "Instant::now",
    "SystemTime::now",
    "clock_gettime",
    "gettimeofday",
    "time::Instant",
    "time::SystemTime",
    "UNIX_EPOCH",
];

/// Waits on a clock of their own, forbidden in what runs. A test may limit how long it waits.
const WAITS: [&str; 2] = ["tokio::time", "thread::sleep"];

fn find(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, rust) in tree.rust().filter(|(path, _)| !path.starts_with("crates/clock/")) {
        for reading in READINGS {
            let found = rust.lines_with(reading);
            findings
                .extend(found.map(|line| Finding::new(path, line, format!("`{reading}` outside `clock`"))));
        }
        for wait in WAITS {
            let found = rust.working_lines_with(wait);
            findings.extend(found.map(|line| Finding::new(path, line, format!("`{wait}` outside tests"))));
        }
        findings.extend(grouped_imports(rust).map(|(line, what)| Finding::new(path, line, what)));
    }
    findings
}

/// `use std::time::{Duration, Instant}`, also as `use std::{…, time::{…}}`, and `use tokio::{…, time}`.
fn grouped_imports(rust: &RustSource) -> impl Iterator<Item = (usize, String)> {
    let readings = groups(rust, "time::{").filter_map(|(line, group)| {
        let name = ["Instant", "SystemTime"].into_iter().find(|name| words(group, name).next().is_some())?;
        Some((line, format!("`time::{name}` outside `clock`")))
    });
    let waits = groups(rust, "tokio::{").filter_map(|(line, group)| {
        let takes_time = words(group, "time").next().is_some() && !rust.is_test(line);
        takes_time.then(|| (line, "`tokio::time` outside tests".to_owned()))
    });
    readings.chain(waits)
}

fn groups<'rust>(
    rust: &'rust RustSource,
    opening: &'static str,
) -> impl Iterator<Item = (usize, &'rust str)> {
    words(rust.code(), opening).map(move |at| {
        let group = &rust.code()[at..];
        (rust.line(at), &group[..group.find(';').unwrap_or(group.len())])
    })
}

#[cfg(test)]
mod tests {
    use super::{super::tests::lines, *};

    const FILE: &str = "crates/deadman/src/x.rs";

    #[test]
    fn readings_are_found_everywhere_but_in_clock() {
        let text = "fn a() { let b = std::time::SystemTime::now(); }\n";
        assert_eq!(lines(RULE, FILE, text), [1, 1]);
        assert_eq!(lines(RULE, "crates/clock/src/wall.rs", text), [0; 0]);
        assert_eq!(lines(RULE, "crates/deadman/tests/x.rs", "fn a() { Instant::now(); }\n"), [1]);
    }

    #[test]
    fn an_import_in_a_group_is_found() {
        assert_eq!(lines(RULE, FILE, "use std::{\n    fmt,\n    time::{Duration, Instant},\n};\n"), [3]);
        assert_eq!(lines(RULE, FILE, "use tokio::{sync, time};\n"), [1]);
    }

    #[test]
    fn durations_our_own_instants_and_mentions_pass() {
        let text = "//! Not Instant::now.\nuse vvm_clock::Instant;\nuse std::time::Duration;\nconst A: &str = \"Instant::now\";\n";
        assert_eq!(lines(RULE, FILE, text), [0; 0]);
    }

    #[test]
    fn only_tests_may_wait_by_the_runtime() {
        assert_eq!(lines(RULE, FILE, "async fn a() { tokio::time::sleep(b).await }\n"), [1]);
        assert_eq!(
            lines(RULE, "crates/deadman/tests/x.rs", "async fn a() { tokio::time::timeout(b, c).await }\n"),
            [0; 0]
        );
    }
}
