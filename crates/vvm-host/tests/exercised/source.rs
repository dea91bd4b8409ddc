//! The source of a case: its test, and all of its file that it uses.

use std::{
    collections::{BTreeSet, VecDeque},
    fs, io,
    path::Path,
};

/// A function or a constant at the top of a file of tests.
#[derive(Debug)]
struct Item {
    name: String,
    text: String,
    is_test: bool,
}

/// What stands in the source of a file of tests, as rustfmt writes it: an item begins at the margin, and ends with the
/// next line there.
fn items(source: &str) -> Vec<Item> {
    let mut items = Vec::new();
    let mut lines = source.lines();
    let mut is_test = false;
    while let Some(line) = lines.next() {
        if line == "#[test]" {
            is_test = true;
            continue;
        }
        let mut words = line.trim_start_matches("pub(crate) ").split([' ', '(', ':', '<', '{']);
        let (Some(keyword), Some(name)) = (words.next(), words.next()) else { continue };
        if !["fn", "const", "impl", "struct"].contains(&keyword) {
            continue;
        }
        let mut text = line.to_owned();
        while !line.ends_with([';', '}'])
            && let Some(next) = lines.next()
        {
            text.push('\n');
            text.push_str(next);
            if next.starts_with(['}', ']', ')']) {
                break;
            }
        }
        items.push(Item { name: name.to_owned(), text, is_test: std::mem::take(&mut is_test) });
    }
    items
}

/// The words of a program.
pub(crate) fn words(text: &str) -> BTreeSet<&str> {
    text.split(|letter: char| !letter.is_alphanumeric() && letter != '_').collect()
}

/// The source of a case, with all of its file that it uses.
pub(crate) fn source_of(case: &str) -> Result<String, String> {
    let (file, name) = case.split_once("::").ok_or_else(|| format!("{case}: write file::case"))?;
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let source = fs::read_to_string(tests.join(format!("{file}.rs"))).or_else(|_| folder(&tests.join(file)));
    let source = source.map_err(|_| format!("{case}: there is no tests/{file}.rs"))?;
    let items = items(&source);
    let first = items.iter().find(|item| item.name == name && item.is_test);
    let first = first.ok_or_else(|| format!("{case}: there is no such test"))?;
    let (mut all, mut queue) = (vec![first], VecDeque::from([first]));
    while let Some(item) = queue.pop_front() {
        let used = words(&item.text);
        for next in items.iter().filter(|next| !next.is_test && used.contains(&*next.name)) {
            if !all.iter().any(|there| std::ptr::eq(*there, next)) {
                all.push(next);
                queue.push_back(next);
            }
        }
    }
    Ok(all.into_iter().map(|item| item.text.as_str()).collect::<Vec<_>>().join("\n"))
}

/// All that is in a folder.
fn folder(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    for entry in fs::read_dir(path)? {
        text.push_str(&fs::read_to_string(entry?.path())?);
    }
    Ok(text)
}
