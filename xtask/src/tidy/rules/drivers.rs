//! Every driver of `vvm-storage` has the same file names, so that a reader of one knows all. Folders below
//! these files differ.

use super::{Finding, Rule};
use crate::tidy::tree::Tree;
use std::collections::{BTreeMap, BTreeSet};

pub(super) const RULE: Rule = Rule {
    name: "drivers",
    fix: "name the files of a driver as its siblings do; put other code into one of these files, or below it",
    find,
};

const DRIVERS: &str = "crates/vvm-storage/src/drivers/";

fn find(tree: &Tree) -> Vec<Finding> {
    let mut drivers: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for file in tree.files() {
        if let Some((driver, inside)) = file.path.strip_prefix(DRIVERS).and_then(|rest| rest.split_once('/'))
            && !inside.contains('/')
        {
            drivers.entry(driver).or_default().insert(inside);
        }
    }
    let every: BTreeSet<&str> = drivers.values().flatten().copied().collect();
    let mut findings = Vec::new();
    for (driver, files) in &drivers {
        for missing in every.difference(files) {
            let owners: Vec<&str> =
                drivers.iter().filter(|(_, files)| files.contains(missing)).map(|(name, _)| *name).collect();
            let what = format!("driver `{driver}` has no `{missing}`, which `{}` has", owners.join("`, `"));
            findings.push(Finding::new(format!("{DRIVERS}{driver}"), 1, what));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(paths: &[&str]) -> Vec<String> {
        let files: Vec<_> = paths.iter().map(|path| (*path, "")).collect();
        find(&Tree::of(&files)).into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn missing_file_of_a_driver_is_found() {
        let names = |driver: &str, file: &str| format!("{DRIVERS}{driver}/{file}");
        let (a, b, c) = (names("mem", "rows.rs"), names("sqlite", "rows.rs"), names("sqlite", "open.rs"));
        assert_eq!(found(&[&a, &b]), [""; 0]);
        assert_eq!(found(&[&a, &b, &names("sqlite", "driver/writer.rs")]), [""; 0]);
        assert_eq!(found(&[&a, &b, &c]), ["driver `mem` has no `open.rs`, which `sqlite` has"]);
    }
}
