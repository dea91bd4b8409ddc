//! One step of a copy: a piece of one file.

use crate::{File, Plan, Progress};
use std::{
    fs, io,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
};

/// A step failed. The next leader repeats it.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// A file could not be read or written.
    #[error("{}: {cause}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        cause: io::Error,
    },
    /// A file has become shorter.
    #[error("{} has changed since the copy began: begin another one", .0.display())]
    Changed(PathBuf),
}

/// Copies the next piece of at most `piece` bytes, and returns the new progress. A piece may be copied twice: by the
/// next leader, if this one is killed or paused between the bytes and the document. Both write the same bytes to the
/// same place of a file that gets its final name when it is complete.
pub fn step(plan: &Plan, progress: &Progress, piece: usize) -> Result<Progress, StepError> {
    let Some(Piece { file, bytes, then }) = read(plan, progress, piece)? else { return Ok(progress.clone()) };
    let whole = progress.to.join(&file.name);
    let part = part_of(&whole);
    let is_last = then.files > progress.files;
    let copied = write(&part, &bytes, progress.offset)
        .and_then(|()| if is_last { fs::rename(&part, &whole) } else { Ok(()) });
    match copied {
        // An earlier leader took this step, and was killed before it wrote the document.
        Err(cause)
            if cause.kind() == io::ErrorKind::NotFound && is_last && has_length(&whole, file.bytes) => {}
        Err(cause) => return Err(StepError::File { path: part, cause }),
        Ok(()) => {}
    }
    Ok(then)
}

fn write(part: &Path, bytes: &[u8], offset: u64) -> io::Result<()> {
    // Only the first piece creates the file: a missing part was completed by an earlier leader.
    let begins = offset == 0;
    if let (true, Some(folder)) = (begins, part.parent()) {
        fs::create_dir_all(folder)?;
    }
    let out = fs::OpenOptions::new().write(true).create(begins).truncate(false).open(part)?;
    out.write_all_at(bytes, offset)?;
    // Synced before the document counts the bytes.
    out.sync_data()
}

fn has_length(file: &Path, bytes: u64) -> bool {
    fs::metadata(file).is_ok_and(|found| found.len() == bytes)
}

/// Returns the final progress of a copy without interruptions. Reads all files, and writes none.
pub fn undisturbed(plan: &Plan, begin: Progress, piece: usize) -> Result<Progress, StepError> {
    let mut progress = begin;
    while let Some(Piece { then, .. }) = read(plan, &progress, piece)? {
        progress = then;
    }
    Ok(progress)
}

struct Piece<'plan> {
    file: &'plan File,
    bytes: Vec<u8>,
    then: Progress,
}

fn read<'plan>(
    plan: &'plan Plan,
    progress: &Progress,
    most: usize,
) -> Result<Option<Piece<'plan>>, StepError> {
    let Some(file) = plan.files.get(progress.files) else { return Ok(None) };
    let path = progress.from.join(&file.name);
    let left = file.bytes.saturating_sub(progress.offset);
    let mut bytes = vec![0; usize::try_from(left).map_or(most, |left| left.min(most))];
    let opened = fs::File::open(&path).and_then(|from| from.read_exact_at(&mut bytes, progress.offset));
    match opened {
        Err(cause) if cause.kind() == io::ErrorKind::UnexpectedEof => return Err(StepError::Changed(path)),
        Err(cause) => return Err(StepError::File { path, cause }),
        Ok(()) => {}
    }
    let mut then = progress.clone();
    then.offset += bytes.len() as u64;
    then.bytes += bytes.len() as u64;
    then.steps += 1;
    let place = (file.name.as_os_str().as_encoded_bytes(), progress.offset.to_be_bytes());
    then.digest = progress.digest.with(place.0).with(&place.1).with(&bytes);
    if then.offset >= file.bytes {
        (then.files, then.offset) = (progress.files + 1, 0);
    }
    Ok(Some(Piece { file, bytes, then }))
}

fn part_of(whole: &Path) -> PathBuf {
    let mut name = whole.as_os_str().to_owned();
    name.push(".part");
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(files: &[(&str, usize)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, bytes) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, (0..*bytes).map(|at| at as u8).collect::<Vec<_>>()).unwrap();
        }
        folder
    }

    #[test]
    fn repeated_steps_give_the_same_copy() {
        let (from, to) =
            (folder(&[("a", 0), ("b", 10), ("in/c", 25), ("in/d", 20)]), tempfile::tempdir().unwrap());
        let plan = Plan::of(from.path()).unwrap();
        let begin = Progress::begin(from.path().into(), to.path().into(), &plan);
        let mut progress = begin.clone();
        let mut before = None;
        while !progress.is_done(&plan) {
            if let Some(before) = before.replace(progress.clone()) {
                // A leader is killed before it writes the document, and the next one repeats the step.
                assert_eq!(step(&plan, &before, 10).unwrap(), progress);
            }
            assert_eq!(step(&plan, &progress, 10).unwrap(), step(&plan, &progress, 10).unwrap());
            progress = step(&plan, &progress, 10).unwrap();
        }
        assert_eq!(progress, undisturbed(&plan, begin, 10).unwrap());
        assert_eq!((progress.steps, progress.bytes), (1 + 1 + 3 + 2, 55));
        let copied = Plan::of(to.path()).unwrap().files.into_iter();
        let copied = copied.filter(|file| file.name.extension().is_none_or(|name| name != "part"));
        assert!(copied.eq(plan.files.iter().cloned()));
        for file in &plan.files {
            let read = |folder: &Path| fs::read(folder.join(&file.name)).unwrap();
            assert_eq!(read(from.path()), read(to.path()), "{file:?}");
        }
    }

    #[test]
    fn missing_or_misplaced_step_changes_the_digest() {
        let from = folder(&[("a", 30)]);
        let plan = Plan::of(from.path()).unwrap();
        let begin = Progress::begin(from.path().into(), "elsewhere".into(), &plan);
        let first = read(&plan, &begin, 10).unwrap().unwrap().then;
        let skipping = Progress { offset: 10, ..begin.clone() };
        let done = undisturbed(&plan, begin, 10).unwrap();
        assert_ne!(undisturbed(&plan, skipping, 10).unwrap().digest, done.digest);
        let twice = Progress { offset: 0, ..first };
        assert_ne!(undisturbed(&plan, twice, 10).unwrap().digest, done.digest);
    }

    #[test]
    fn file_that_became_shorter_is_an_error() {
        let from = folder(&[("a", 30)]);
        let plan = Plan::of(from.path()).unwrap();
        fs::write(from.path().join("a"), "short").unwrap();
        let begin = Progress::begin(from.path().into(), "elsewhere".into(), &plan);
        assert!(matches!(undisturbed(&plan, begin, 10), Err(StepError::Changed(_))));
    }
}
