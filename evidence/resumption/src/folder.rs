//! The folder that is copied: made of random files, and compared at the end.

use fastrand::Rng;
use resumable_copy::plan::Plan;
use std::{collections::BTreeMap, error::Error, fs, os::unix::fs::MetadataExt as _, path::Path};

/// How many files, and how long they are at most: some thousand steps, some of files of one piece, some of
/// many.
const FILES: usize = 200;
const LONGEST: usize = 160 << 10;

/// Makes it.
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

/// Fails unless every file of the plan stands in both folders alike.
pub(crate) fn same(plan: &Plan, from: &Path, to: &Path) -> Result<(), Box<dyn Error>> {
    for file in &plan.files {
        if fs::read(from.join(&file.name))? != fs::read(to.join(&file.name))? {
            return Err(format!("{} was not copied as it is", file.name.display()).into());
        }
    }
    Ok(())
}

/// The files of the plan that stand there whole, each with what tells it from one that was made anew.
pub(crate) fn made(plan: &Plan, to: &Path) -> BTreeMap<usize, u64> {
    let inode = |at: usize| fs::metadata(to.join(&plan.files[at].name)).map(|found| found.ino());
    (0..plan.files.len()).filter_map(|at| Some((at, inode(at).ok()?))).collect()
}
