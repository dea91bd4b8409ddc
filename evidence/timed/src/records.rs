//! Records of inconclusive attempts, in a folder that the program that runs the tests reads.

use std::{
    collections::BTreeMap,
    env,
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
    process,
};

/// The variable that names the folder.
pub const FOLDER: &str = "VVM_TIMED_RECORDS";

/// Adds a record. Without a folder, only the output of the test has it.
pub(crate) fn add(name: &str, line: &str) {
    if let Some(folder) = env::var_os(FOLDER) {
        add_in(&PathBuf::from(folder), name, line);
    }
}

fn add_in(folder: &Path, name: &str, line: &str) {
    let path = folder.join(process::id().to_string());
    let added = File::options().create(true).append(true).open(&path);
    let added = added.and_then(|mut file| file.write_all(format!("{name}\t{line}\n").as_bytes()));
    // Without the record, the run would look conclusive.
    added.unwrap_or_else(|error| {
        panic!("an inconclusive attempt is not recorded in {}: {error}", path.display())
    });
}

/// Removes the records from `folder`, and returns each test with its attempts.
pub fn take(folder: &Path) -> io::Result<BTreeMap<String, Vec<String>>> {
    let mut found = BTreeMap::<String, Vec<String>>::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        for line in fs::read_to_string(&path)?.lines() {
            let (name, attempt) = line.split_once('\t').unwrap_or((line, ""));
            found.entry(name.to_owned()).or_default().push(attempt.to_owned());
        }
        fs::remove_file(path)?;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_of_all_processes_are_found_once() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        add_in(folder.path(), "a", "one");
        add_in(folder.path(), "b", "two");
        fs::write(folder.path().join("another process"), "a\tthree\n")?;
        let found = take(folder.path())?;
        assert_eq!((found["a"].len(), &found["b"][..]), (2, &["two".to_owned()][..]));
        assert!(take(folder.path())?.is_empty());
        Ok(())
    }
}
