//! The folder that is copied: filled with random files, and compared at the end.

use fastrand::Rng;
use resumable_copy::Plan;
use std::{collections::BTreeMap, error::Error, fs, os::unix::fs::MetadataExt as _, path::Path};

/// How many files, and the longest in bytes: about four thousand steps, and files of one piece and of many.
const FILES: usize = 200;
const LONGEST: usize = 160 << 10;

/// Writes the files.
pub(crate) fn fill(folder: &Path, rng: &mut Rng) -> Result<(), Box<dyn Error>> {
    for number in 0..FILES {
        let inside = folder.join(format!("folder-{}", number % 7));
        fs::create_dir_all(&inside)?;
        let mut bytes = vec![0; rng.usize(..LONGEST)];
        rng.fill(&mut bytes);
        fs::write(inside.join(format!("file-{number}")), bytes)?;
    }
    Ok(())
}

/// Fails unless every file of the plan has the same contents in both folders.
pub(crate) fn check_equal(plan: &Plan, from: &Path, to: &Path) -> Result<(), Box<dyn Error>> {
    for file in &plan.files {
        if fs::read(from.join(&file.name))? != fs::read(to.join(&file.name))? {
            return Err(format!("the copy of {} differs", file.name.display()).into());
        }
    }
    Ok(())
}

/// Returns the complete files of the plan, each with its inode: a file that is made again has another.
pub(crate) fn complete(plan: &Plan, to: &Path) -> BTreeMap<usize, u64> {
    let inode = |at: usize| fs::metadata(to.join(&plan.files[at].name)).map(|found| found.ino());
    (0..plan.files.len()).filter_map(|at| Some((at, inode(at).ok()?))).collect()
}
