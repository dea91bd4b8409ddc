//! Finds circles of imports, folder by folder. Each child of a folder, with everything below it, is one part,
//! and parts must not depend on each other in a circle. A child may import from the folder's own file,
//! because they are one concept.

use super::Import;
use std::collections::{BTreeMap, BTreeSet};

/// Parts of one folder that depend on each other.
#[derive(Debug)]
pub(in crate::tidy) struct Circle<'tree> {
    /// Their modules, the one that most of the others depend on last.
    pub(in crate::tidy) parts: Vec<String>,
    /// The upward imports: without them there is no circle. A simple order keeps them few.
    pub(in crate::tidy) upward: Vec<Import<'tree>>,
}

/// A child of the folder, with everything below it.
type Part<'tree> = &'tree str;

/// Returns every circle in `imports`.
pub(in crate::tidy) fn circles<'tree>(imports: Vec<Import<'tree>>) -> Vec<Circle<'tree>> {
    let mut levels: BTreeMap<Vec<&str>, Vec<(Part<'_>, Part<'_>, Import<'_>)>> = BTreeMap::new();
    for import in imports {
        let depth = import.from.iter().zip(&import.to).take_while(|(from, to)| from == to).count();
        if let (Some(from), Some(to)) = (import.from.get(depth).copied(), import.to.get(depth).copied()) {
            levels.entry(import.from[..depth].to_vec()).or_default().push((from, to, import));
        }
    }
    levels.into_iter().flat_map(|(folder, imports)| of_folder(&folder, imports)).collect()
}

fn of_folder<'tree>(
    folder: &[&str],
    mut imports: Vec<(Part<'tree>, Part<'tree>, Import<'tree>)>,
) -> Vec<Circle<'tree>> {
    let mut arrows: BTreeMap<Part<'_>, BTreeSet<Part<'_>>> = BTreeMap::new();
    for (from, to, _) in &imports {
        arrows.entry(*from).or_default().insert(*to);
    }
    let reached: BTreeMap<Part<'_>, BTreeSet<Part<'_>>> =
        arrows.keys().map(|part| (*part, reachable(&arrows, part))).collect();
    let reaches = |from: Part<'_>, to: Part<'_>| reached.get(&from).is_some_and(|parts| parts.contains(&to));
    let mut left: BTreeSet<Part<'_>> = arrows.keys().copied().filter(|part| reaches(*part, *part)).collect();
    let mut circles = Vec::new();
    while let Some(part) = left.first().copied() {
        let members: BTreeSet<Part<'_>> =
            left.iter().copied().filter(|other| reaches(part, *other) && reaches(*other, part)).collect();
        left.retain(|other| !members.contains(other));
        let inside = imports
            .extract_if(.., |(from, to, _)| members.contains(from) && members.contains(to))
            .collect::<Vec<_>>();
        let order = order(members, &inside);
        let height = |part: &Part<'_>| order.iter().position(|placed| placed == part);
        let upward = inside.into_iter().filter(|(from, to, _)| height(from) > height(to));
        let name = |part: &Part<'_>| [folder, &[*part]].concat().join("::");
        circles.push(Circle {
            parts: order.iter().map(name).collect(),
            upward: upward.map(|(_, _, import)| import).collect(),
        });
    }
    circles
}

fn reachable<'tree>(
    arrows: &BTreeMap<Part<'tree>, BTreeSet<Part<'tree>>>,
    from: Part<'tree>,
) -> BTreeSet<Part<'tree>> {
    let mut found = BTreeSet::new();
    let mut open = vec![from];
    while let Some(part) = open.pop() {
        open.extend(arrows.get(&part).into_iter().flatten().copied().filter(|next| found.insert(*next)));
    }
    found
}

/// Orders parts from top to bottom, so that few imports run upward (Eades, Lin and Smyth 1993). The next part
/// is the one with the most imports, less those of it, among the rest.
fn order<'tree>(
    mut left: BTreeSet<Part<'tree>>,
    imports: &[(Part<'tree>, Part<'tree>, Import<'tree>)],
) -> Vec<Part<'tree>> {
    let mut order = Vec::new();
    while !left.is_empty() {
        let degree = |part: &Part<'_>| {
            let among = imports.iter().filter(|(from, to, _)| left.contains(from) && left.contains(to));
            among.map(|(from, to, _)| i32::from(from == part) - i32::from(to == part)).sum::<i32>()
        };
        let Some(next) = left.iter().copied().max_by_key(degree) else { break };
        left.remove(&next);
        order.push(next);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    fn import(from: &'static str, to: &'static str) -> Import<'static> {
        let split = |name: &'static str| name.split('/').filter(|part| !part.is_empty()).collect();
        Import { file: from, line: 1, name: to.to_owned(), from: split(from), to: split(to) }
    }

    fn found(imports: &[(&'static str, &'static str)]) -> Vec<(String, Vec<String>)> {
        let circles = circles(imports.iter().map(|(from, to)| import(from, to)).collect());
        let upward = |circle: &Circle<'_>| {
            circle.upward.iter().map(|import| format!("{} -> {}", import.file, import.name)).collect()
        };
        circles.iter().map(|circle| (circle.parts.join(" "), upward(circle))).collect()
    }

    #[test]
    fn tree_of_imports_has_no_circle() {
        assert_eq!(found(&[("", "a"), ("a", "b/x"), ("a/x", "b"), ("b", "b/x"), ("b/y", "b/x")]), []);
    }

    #[test]
    fn folders_that_depend_on_each_other_by_different_files_are_a_circle() {
        let circle = found(&[("a/x", "b/x"), ("a/y", "b/x"), ("b/y", "a/z")]);
        assert_eq!(circle, [("a b".to_owned(), vec!["b/y -> a/z".to_owned()])]);
    }

    #[test]
    fn child_may_import_from_the_file_of_its_folder() {
        assert_eq!(found(&[("a", "a/x"), ("a/x", "a"), ("a/x/y", "a"), ("b", "a"), ("a/x", "")]), []);
    }

    #[test]
    fn siblings_in_a_folder_that_depend_on_each_other_are_a_circle() {
        let circle = found(&[("a/x", "a/y"), ("a/x", "a/y/z"), ("a/y", "a/x")]);
        assert_eq!(circle, [("a::x a::y".to_owned(), vec!["a/y -> a/x".to_owned()])]);
    }
}
