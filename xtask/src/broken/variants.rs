//! The list of bugs, `variants.txt`, which says how to read it.

#[derive(Default, Debug)]
pub(super) struct Variant {
    pub(super) name: &'static str,
    /// A world of the simulation has to find it.
    pub(super) in_simulation: bool,
    /// The part of `cargo xtask check` that has to find it.
    pub(super) by_check: Option<&'static str>,
    pub(super) by_test: Option<Test>,
    /// The cases of the public suites that have to find it, each of them.
    pub(super) by_cases: Vec<&'static str>,
    pub(super) changes: Vec<Change>,
}

/// A file below `tests` of a package, or its unit tests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Test {
    pub(super) package: &'static str,
    /// The name of the file; `--bins` or `--lib` for the unit tests of programs, or of the library.
    pub(super) file: &'static str,
    /// The module with the cases, or all of them.
    pub(super) module: Option<&'static str>,
}

impl Test {
    fn parse(text: &'static str) -> Option<Self> {
        let mut words = text.split(' ');
        let (package, file) = (words.next()?, words.next()?);
        Some(Self { package, file, module: words.next() })
    }
}

/// Lines that stand exactly once in their package, and what they are broken to.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) package: &'static str,
    pub(super) good: String,
    pub(super) broken: String,
}

/// A line of the list has no meaning where it stands.
#[derive(Debug, thiserror::Error)]
#[error("xtask/src/broken/variants.txt:{number}: what does this mean here? {line}")]
pub(crate) struct Unreadable {
    number: usize,
    line: &'static str,
}

pub(super) fn variants() -> Result<Vec<Variant>, Unreadable> {
    parse(include_str!("variants.txt"))
}

fn parse(list: &'static str) -> Result<Vec<Variant>, Unreadable> {
    let mut package = "";
    let mut variants: Vec<Variant> = Vec::new();
    for (number, line) in (1..).zip(list.lines()).filter(|(_, line)| !line.is_empty()) {
        let (word, rest) = match line.as_bytes()[0] {
            b'#' => continue,
            b'-' | b'+' => line.split_at(1),
            _ => line.split_once(' ').unwrap_or((line, "")),
        };
        let variant = variants.last_mut();
        match (word, variant) {
            ("package", _) => package = rest,
            ("bug", _) => variants.push(Variant { name: rest, ..Variant::default() }),
            ("simulation", Some(variant)) => variant.in_simulation = true,
            ("check", Some(variant)) => variant.by_check = Some(rest),
            ("test", Some(variant)) => variant.by_test = Test::parse(rest),
            ("cases", Some(variant)) => variant.by_cases.extend(rest.split(' ')),
            ("-", Some(variant)) => match variant.changes.last_mut() {
                Some(change) if change.broken.is_empty() => change.good += &format!("\n{rest}"),
                _ => {
                    let (good, broken) = (rest.to_owned(), String::new());
                    variant.changes.push(Change { package, good, broken });
                }
            },
            ("+", Some(variant)) => {
                let change = variant.changes.last_mut().ok_or(Unreadable { number, line })?;
                change.broken += if change.broken.is_empty() { "" } else { "\n" };
                change.broken += rest;
            }
            _ => return Err(Unreadable { number, line }),
        }
    }
    Ok(variants)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bug_waits_for_its_variable_and_states_what_finds_it() {
        for variant in variants().unwrap() {
            let is_tested = variant.by_test.is_some() || !variant.by_cases.is_empty();
            let is_found = variant.in_simulation || variant.by_check.is_some() || is_tested;
            let waits = variant.changes.iter().any(|change| change.broken.contains("BROKEN"));
            assert!(is_found && waits, "{}", variant.name);
        }
    }

    #[test]
    fn changes_of_several_lines_are_read_whole() {
        let list = "package a\n# note\nbug one\ncases x y\ncheck z\n-1\n-2\n+3\n-5\n+6\n\nbug two\ntest p f m\nsimulation";
        let [one, two] = &parse(list).unwrap()[..] else { panic!("not two bugs") };
        let changes: Vec<_> = one.changes.iter().map(|change| (&*change.good, &*change.broken)).collect();
        assert_eq!(changes, [("1\n2", "3"), ("5", "6")]);
        assert_eq!((one.by_check, &*one.by_cases, one.changes[0].package), (Some("z"), &["x", "y"][..], "a"));
        let test = Test { package: "p", file: "f", module: Some("m") };
        assert_eq!((two.by_test, two.in_simulation), (Some(test), true));
        assert_eq!(parse("bug one\n\n+3\n").unwrap_err().number, 3);
    }
}
