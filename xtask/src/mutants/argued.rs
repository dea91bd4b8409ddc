//! The mutants that may live, `argued.txt`, which says how to read it.

use std::collections::BTreeSet;

/// The text of a mutant, the line in which it begins, and the reason why no test has to notice it.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Argued {
    pub(super) mutant: &'static str,
    pub(super) line: &'static str,
    reason: &'static str,
}

/// A line of the list has no meaning where it stands.
#[derive(Debug, thiserror::Error)]
#[error("xtask/src/mutants/argued.txt:{number}: what does this mean here? {line}")]
pub(super) struct Unreadable {
    number: usize,
    line: &'static str,
}

/// Reads the list.
pub(super) fn argued() -> Result<Vec<Argued>, Unreadable> {
    parse(include_str!("argued.txt"))
}

fn parse(list: &'static str) -> Result<Vec<Argued>, Unreadable> {
    let mut argued: Vec<Argued> = Vec::new();
    for (number, line) in
        (1..).zip(list.lines()).filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
    {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match (word, argued.last_mut()) {
            ("mutant", last) if last.as_ref().is_none_or(|last| !last.reason.is_empty()) => {
                argued.push(Argued { mutant: rest, line: "", reason: "" });
            }
            ("at", Some(last)) if last.line.is_empty() => last.line = rest.trim(),
            ("since", Some(last)) if !last.line.is_empty() && last.reason.is_empty() => {
                last.reason = rest.trim()
            }
            _ => return Err(Unreadable { number, line }),
        }
    }
    Ok(argued)
}

/// Returns what is wrong: missed mutants without a line in the list, and lines without a missed mutant. A mutant is named by its
/// text and its line. Only lines about `seen` are judged.
pub(super) fn faults<'a>(
    argued: &'a [Argued],
    missed: &BTreeSet<(&'a str, &'a str)>,
    seen: impl Fn(&Argued) -> bool,
) -> Vec<(&'static str, &'a str, &'a str)> {
    let names: BTreeSet<_> = argued.iter().map(|argued| (argued.mutant, argued.line)).collect();
    let unargued = missed.difference(&names).map(|(mutant, line)| ("MISSED", *mutant, *line));
    let idle = argued.iter().filter(|argued| seen(argued) && !missed.contains(&(argued.mutant, argued.line)));
    unargued
        .chain(idle.map(|argued| ("NOT MISSED, so delete its line:", argued.mutant, argued.line)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_is_read_and_has_a_reason_for_each() {
        assert!(argued().unwrap().iter().all(|argued| !argued.reason.is_empty()));
        let list = "# note\nmutant a.rs: replace < with <= in f\nat   a < b\nsince equal\n\nmutant b\nat c\nsince d\n";
        let [first, _] = &parse(list).unwrap()[..] else { panic!("it has two") };
        let expected = Argued { mutant: "a.rs: replace < with <= in f", line: "a < b", reason: "equal" };
        assert_eq!(first, &expected);
        assert_eq!(parse("mutant a\nat b\nmutant c\n").unwrap_err().number, 3);
    }

    #[test]
    fn missed_mutant_needs_a_line_and_a_line_a_missed_mutant() {
        let of = |mutant| Argued { mutant, line: "x", reason: "y" };
        let argued = [of("a"), of("b"), of("elsewhere")];
        let missed = BTreeSet::from([("a", "x"), ("c", "x")]);
        let faults = faults(&argued, &missed, |argued| argued.mutant != "elsewhere");
        assert_eq!(faults.iter().map(|fault| fault.1).collect::<Vec<_>>(), ["c", "b"]);
    }
}
