//! The folder of the wake-up sockets: this user's own, and writable by no other user. A socket's file name begins with
//! a hash of the name that is led. Candidates for two names with the same hash wake each other in vain.

use ielections::{Entropy as _, OsEntropy};
use rustix::{fs::Access, process::geteuid};
use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _},
    path::{Path, PathBuf},
    str::FromStr,
};

/// The folder through which the processes of one machine wake each other after a release or a request. Safety
/// does not depend on it: without a folder, a standby notices a release by its next poll, within a second.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LocalDir {
    /// `/tmp/vvm-UID`, which is created if it does not exist.
    Usual,
    /// This folder, on local storage. It must be the user's own, and writable by no other user. It is created
    /// if it does not exist and its parent does.
    At(PathBuf),
    /// No folder: wake-ups are disabled.
    None,
}

/// Why a folder can't be used for wake-ups.
#[derive(Debug, thiserror::Error)]
pub enum UnfitFolder {
    /// A relative path differs from one process to the next.
    #[error("write an absolute path, or none")]
    Relative,
    /// Addresses of sockets are short (unix(7)).
    #[error(
        "at most {} bytes: addresses of sockets are short; name another folder, or none",
        LocalDir::MAX_BYTES
    )]
    TooLong,
    /// A file, or a symbolic link.
    #[error("{0} is no folder (a file, or a symbolic link): name a folder, or none")]
    NoFolder(PathBuf),
    /// It belongs to another user.
    #[error("{path} belongs to user {owner}, and we are user {us}: name a folder of our own, or none")]
    Foreign {
        /// The folder.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// The user of this process.
        us: u32,
    },
    /// Other users may write to it.
    #[error("others may write to {path} (mode {mode:o}): chmod 700 it, or name another folder, or none")]
    Open {
        /// The folder.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The system refuses it.
    #[error("{path} can't be used: {cause}; name another folder, or none")]
    Unusable {
        /// The folder.
        path: PathBuf,
        /// The refusal.
        cause: io::Error,
    },
}

/// The length of a socket's file name: the hash of a name, and a random number, in hexadecimal digits.
const FILE_NAME: usize = 16 + 16;

impl LocalDir {
    /// The longest path that leaves room for a file name: a socket's address has 107 bytes (unix(7)).
    pub(super) const MAX_BYTES: usize = 107 - 1 - FILE_NAME;

    fn path(&self) -> Option<PathBuf> {
        match self {
            Self::Usual => Some(format!("/tmp/vvm-{}", geteuid().as_raw()).into()),
            Self::At(path) => Some(path.clone()),
            Self::None => None,
        }
    }

    /// Checks whether the folder could be used, and creates nothing.
    pub fn check(&self) -> Result<(), UnfitFolder> {
        let Some(path) = self.path() else { return Ok(()) };
        if exists(&path)? {
            return Ok(());
        }
        let parent = path.parent().unwrap_or(&path);
        let may_make = rustix::fs::access(parent, Access::WRITE_OK | Access::EXEC_OK);
        may_make.map_err(|cause| UnfitFolder::Unusable { path: path.clone(), cause: cause.into() })
    }

    /// Creates the folder if it does not exist, and returns its path. `None` for [`LocalDir::None`].
    pub fn make(&self) -> Result<Option<PathBuf>, UnfitFolder> {
        let Some(path) = self.path() else { return Ok(None) };
        if path.as_os_str().len() > Self::MAX_BYTES {
            return Err(UnfitFolder::TooLong);
        }
        if !exists(&path)? {
            let made = fs::DirBuilder::new().mode(0o700).create(&path);
            // Another process may have created it meanwhile. It is checked in either case.
            let refusal = made.err().filter(|refusal| refusal.kind() != io::ErrorKind::AlreadyExists);
            if let Some(cause) = refusal {
                return Err(UnfitFolder::Unusable { path, cause });
            }
            exists(&path)?;
        }
        Ok(Some(path))
    }
}

impl FromStr for LocalDir {
    type Err = UnfitFolder;

    fn from_str(text: &str) -> Result<Self, UnfitFolder> {
        match text {
            "none" => Ok(Self::None),
            _ if !text.starts_with('/') => Err(UnfitFolder::Relative),
            _ if text.len() > Self::MAX_BYTES => Err(UnfitFolder::TooLong),
            _ => Ok(Self::At(text.into())),
        }
    }
}

/// Returns whether the folder exists, and fails if it is unfit. In `/tmp` any user may create something under this path
/// first, so links are not followed. Once it is ours, no other user can replace it, because `/tmp` is sticky.
fn exists(path: &Path) -> Result<bool, UnfitFolder> {
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(cause) => return Err(UnfitFolder::Unusable { path: path.into(), cause }),
    };
    let (us, mode) = (geteuid().as_raw(), found.mode() & 0o7777);
    if !found.is_dir() {
        return Err(UnfitFolder::NoFolder(path.into()));
    }
    if found.uid() != us {
        return Err(UnfitFolder::Foreign { path: path.into(), owner: found.uid(), us });
    }
    if mode & 0o022 != 0 {
        return Err(UnfitFolder::Open { path: path.into(), mode });
    }
    Ok(true)
}

#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    prefix: String,
}

impl Folder {
    pub(super) fn open(dir: &LocalDir, name: &str) -> Result<Option<Self>, UnfitFolder> {
        let path = dir.make()?;
        Ok(path.map(|path| Self { path, prefix: format!("{:016x}", hash(name)) }))
    }

    pub(super) fn new_socket(&self) -> PathBuf {
        self.path.join(format!("{}{:016x}", self.prefix, OsEntropy::default().next_u64()))
    }

    /// Returns the sockets of this name. Reads the whole folder: a limit would hide candidates behind the files of
    /// others. Only this user can add files, and ten thousand take a few milliseconds.
    pub(super) fn sockets(&self) -> Vec<PathBuf> {
        self.sockets_with(&self.prefix)
    }

    pub(super) fn sockets_with(&self, prefix: &str) -> Vec<PathBuf> {
        let files = fs::read_dir(&self.path).into_iter().flatten().flatten();
        let sockets = files.filter(|file| {
            let name = file.file_name();
            let is_named_so = name.to_str().is_some_and(|name| {
                name.len() == FILE_NAME
                    && name.starts_with(prefix)
                    && name.bytes().all(|byte| byte.is_ascii_hexdigit())
            });
            is_named_so && file.file_type().is_ok_and(|kind| kind.is_socket())
        });
        sockets.map(|file| file.path()).collect()
    }

    pub(super) fn unusable(&self, cause: io::Error) -> UnfitFolder {
        UnfitFolder::Unusable { path: self.path.clone(), cause }
    }
}

/// FNV-1a, which is the same in every version of this program.
pub(crate) fn hash(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
