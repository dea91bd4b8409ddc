//! Where neighbours meet: a folder that is this user's, and in which nobody else can put anything.
//!
//! What lives here: which folder that is, whether it may be used, and which of its files are sockets of one
//! name. A file name begins with a hash of the name that is led, so that a machine with many names tells
//! those whom it concerns; two names of one hash tell each other for nothing.

use ielections::{Entropy as _, OsEntropy};
use rustix::{fs::Access, process::geteuid};
use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _},
    path::{Path, PathBuf},
    str::FromStr,
};

/// In which folder the processes of one machine tell each other at once that a slot was released, or a
/// request made. Whatever it is, leadership is safe; without one, a standby sees a release when it looks by
/// itself, within a second.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LocalDir {
    /// `/tmp/vvm-UID`, which is made when it is not there.
    Usual,
    /// This one, on local storage. It has to be the user's own, and no one else may write to it; it is made
    /// when it is not there, and its parent is.
    At(PathBuf),
    /// Nowhere.
    None,
}

/// A folder in which neighbours can't meet.
#[derive(Debug, thiserror::Error)]
pub enum UnfitFolder {
    /// A name that differs from one process to the next.
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
    /// It belongs to somebody else.
    #[error("{path} belongs to user {owner}, and we are user {us}: name a folder of our own, or none")]
    Foreign {
        /// Which folder.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
        /// Who we are.
        us: u32,
    },
    /// Others may write to it.
    #[error("others may write to {path} (mode {mode:o}): chmod 700 it, or name another folder, or none")]
    Open {
        /// Which folder.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The system refuses it.
    #[error("{path} can't be used: {cause}; name another folder, or none")]
    Unusable {
        /// Which folder.
        path: PathBuf,
        /// What the system says.
        cause: io::Error,
    },
}

/// How long a socket's file name is: the hash of a name, and a random number.
const FILE_NAME: usize = 16 + 16;

/// How many files are looked at in one folder, before those that are left go without: one more than a machine
/// should have candidates, by far, and about a millisecond.
const LOOKED_AT: usize = 4096;

impl LocalDir {
    /// The longest path that leaves room for a file name: 107 bytes are all there is (unix(7)).
    pub(super) const MAX_BYTES: usize = 107 - 1 - FILE_NAME;

    /// Its path.
    fn path(&self) -> Option<PathBuf> {
        match self {
            Self::Usual => Some(format!("/tmp/vvm-{}", geteuid().as_raw()).into()),
            Self::At(path) => Some(path.clone()),
            Self::None => None,
        }
    }

    /// Whether candidates could meet there, without making anything.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self) -> Result<(), UnfitFolder> {
        let Some(path) = self.path() else { return Ok(()) };
        if is_there(&path)? {
            return Ok(());
        }
        let parent = path.parent().unwrap_or(&path);
        let may_make = rustix::fs::access(parent, Access::WRITE_OK | Access::EXEC_OK);
        may_make.map_err(|cause| UnfitFolder::Unusable { path: path.clone(), cause: cause.into() })
    }

    /// Its path, once the folder is there and fit. `None` for [`LocalDir::None`].
    ///
    /// # Errors
    /// Why it is not.
    pub fn make(&self) -> Result<Option<PathBuf>, UnfitFolder> {
        let Some(path) = self.path() else { return Ok(None) };
        if path.as_os_str().len() > Self::MAX_BYTES {
            return Err(UnfitFolder::TooLong);
        }
        if !is_there(&path)? {
            let made = fs::DirBuilder::new().mode(0o700).create(&path);
            // Somebody else may have been faster, and that is looked at, too.
            let refusal = made.err().filter(|refusal| refusal.kind() != io::ErrorKind::AlreadyExists);
            if let Some(cause) = refusal {
                return Err(UnfitFolder::Unusable { path, cause });
            }
            is_there(&path)?;
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

/// Whether it is there. In `/tmp` whoever comes first decides what stands under a name, so it is looked at
/// without following links; once it is ours, nobody else can put something else there, for the folder above
/// it is sticky.
fn is_there(path: &Path) -> Result<bool, UnfitFolder> {
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

/// A folder that is there, seen by those who share a name.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    /// What the sockets of this name begin with.
    beginning: String,
}

impl Folder {
    /// For `name`. `None` for [`LocalDir::None`].
    pub(super) fn of(dir: &LocalDir, name: &str) -> Result<Option<Self>, UnfitFolder> {
        let path = dir.make()?;
        Ok(path.map(|path| Self { path, beginning: format!("{:016x}", hash(name)) }))
    }

    /// A path for a socket of our own.
    pub(super) fn new_socket(&self) -> PathBuf {
        self.path.join(format!("{}{:016x}", self.beginning, OsEntropy::default().next_u64()))
    }

    /// The sockets of this name, ours included. What else lies there is passed over.
    pub(super) fn sockets(&self) -> impl Iterator<Item = PathBuf> {
        use std::os::unix::fs::FileTypeExt as _;
        let files = fs::read_dir(&self.path).into_iter().flatten().take(LOOKED_AT).flatten();
        let ours = files.filter(|file| {
            let name = file.file_name();
            let is_named_so = name.len() == FILE_NAME
                && name.to_str().is_some_and(|name| name.starts_with(&self.beginning));
            is_named_so && file.file_type().is_ok_and(|kind| kind.is_socket())
        });
        ours.map(|file| file.path())
    }

    pub(super) fn unusable(&self, cause: io::Error) -> UnfitFolder {
        UnfitFolder::Unusable { path: self.path.clone(), cause }
    }
}

/// FNV-1a: the same in every version of this program.
fn hash(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
