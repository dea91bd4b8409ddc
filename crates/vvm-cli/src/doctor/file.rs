//! Findings about the file of an SQLite storage, and a stand-in for a file that does not exist yet.

use super::finding::{Finding, Health};
use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};
use tempfile::TempDir;

/// A temporary storage, removed when this is dropped.
pub(super) struct StandIn {
    pub(super) url: String,
    /// How findings name it, and how they are to name it.
    names: [String; 2],
    _folder: TempDir,
}

impl StandIn {
    /// Names the file that does not exist yet instead.
    pub(super) fn rename(&self, text: &str) -> String {
        text.replace(&self.names[0], &self.names[1])
    }
}

/// Splits the URL of an SQLite storage into its path and its options.
fn file(url: &str) -> Option<(&Path, &str)> {
    let place = url.strip_prefix("sqlite:")?;
    let (path, options) = place.split_at(place.find('?').unwrap_or(place.len()));
    Some((Path::new(path), options))
}

/// Makes a folder for a temporary storage on the file system of the file that `url` names.
///
/// # Errors
/// With a finding, if that can't be done there.
pub(super) fn stand_in(url: &str) -> Result<StandIn, Finding> {
    const NAME: &str = "doctor.db";
    let (path, options) = file(url).unwrap_or((Path::new(url), ""));
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match tempfile::Builder::new().prefix(".vvm-doctor-").tempdir_in(folder) {
        Ok(made) => {
            // Relative if the path is: the doctor warns of that.
            let name = Path::new(made.path().file_name().unwrap_or_default()).join(NAME);
            let url = format!("sqlite:{}{options}", path.with_file_name(&name).display());
            let own = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            Ok(StandIn { url, names: [name.display().to_string(), own], _folder: made })
        }
        Err(cause) => {
            let says = format!(
                "{} does not exist and can't be created: {cause}. Create the folder {} or choose another",
                path.display(),
                folder.display()
            );
            Err(Finding::new("new storage", Health::Problem, says))
        }
    }
}

/// Cautions if every user can read or write the file. A reader can lock it, and so stop all elections in it.
pub(super) fn permissions(url: &str) -> Option<Finding> {
    let (path, _) = file(url)?;
    let mode = fs::metadata(path).ok()?.permissions().mode() & 0o777;
    let says = format!(
        "every user of this machine can read {} (mode {mode:03o}). A reader can lock it, and so stop \
         elections: chmod o-rwx",
        path.display()
    );
    (mode & 0o007 != 0).then(|| Finding::new("permissions", Health::Caution, says).with("mode", mode))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_that_every_user_can_read_is_a_caution() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        fs::write(&path, "").unwrap();
        let url = format!("sqlite:{}?allow=overlay", path.display());
        for (mode, is_caution) in [(0o600, false), (0o660, false), (0o644, true), (0o602, true)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(permissions(&url).is_some(), is_caution, "{mode:o}");
        }
        assert_eq!(permissions("dynamodb://region/table"), None);
    }
}
