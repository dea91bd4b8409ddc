//! The page about the trusted base counts the lines that can cause two leaders. The counts stay true.

use super::{
    Finding, Rule,
    tree::{File, Tree},
};

pub(super) const RULE: Rule = Rule {
    name: "trusted",
    fix: "correct the number of lines, rounded to 50, and the sum in the last row",
    find,
};

const DOCUMENT: &str = "docs/contributing/trusted-base.md";

/// The part's name in the row whose number is the sum of all others.
const SUM: &str = "all";

/// How many lines a stated number may differ from the real one.
const ROUNDED: usize = 50;

fn find(tree: &Tree) -> Vec<Finding> {
    let Some(document) = tree.files().iter().find(|file| file.path == DOCUMENT) else {
        return vec![Finding::new(DOCUMENT, 1, "the page does not exist")];
    };
    let mut findings = Vec::new();
    let mut sum = 0;
    for (index, line) in document.text.lines().enumerate() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let ["", part, stated, places, ..] = cells[..] else { continue };
        let Ok(stated) = stated.replace(',', "").parse::<usize>() else { continue };
        let mut report = |what: String| findings.push(Finding::new(DOCUMENT, index + 1, what));
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

#[cfg(test)]
mod tests {
    use super::*;

    fn found(rows: &str) -> Vec<(usize, String)> {
        let code = "fn a() {}\n".repeat(200) + "#[cfg(test)]\nmod tests {\n" + &"\n".repeat(100) + "}\n";
        let table = format!("| part | lines | where |\n|---|---|---|\n{rows}");
        let tree = Tree::of(&[(DOCUMENT, &table), ("crates/a/src/lib.rs", &code), ("crates/b.rs", "// b\n")]);
        find(&tree).into_iter().map(|finding| (finding.line, finding.what)).collect()
    }

    #[test]
    fn wrong_number_missing_place_and_wrong_sum_are_found() {
        assert_eq!(found("| a | 200 | `crates/a/src/` |\n| b | 0 | `crates/b.rs` |\n| all | 200 | |\n"), []);
        assert_eq!(
            found("| a | 300 | `crates/a/` |\n"),
            [(3, "these files have 200 lines outside tests".into())]
        );
        let missing = "`crates/a/src` has no line of Rust outside tests".to_owned();
        assert_eq!(found("| a | 0 | `crates/a/src` |\n"), [(3, missing)]);
        let sum = "the rows above have 200 lines together".to_owned();
        assert_eq!(found("| a | 200 | `crates/a/` |\n| all | 1,200 | |\n"), [(4, sum)]);
    }
}
