//! [`Deposit`]: opaque bytes that a supervisor leaves with its guardian, which returns them when it ends.

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, memfd_create};
use std::{
    fs::File,
    io::{self, Write as _},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::FileExt as _,
    },
};

/// A sealed file in memory. No process can change its content any more.
#[derive(Debug)]
pub struct Deposit(OwnedFd);

const SEALS: SealFlags =
    SealFlags::WRITE.union(SealFlags::GROW).union(SealFlags::SHRINK).union(SealFlags::SEAL);

impl Deposit {
    /// Writes `content` to a new file and seals it.
    ///
    /// # Errors
    /// If the system refuses a descriptor or memory.
    pub fn new(content: &[u8]) -> io::Result<Self> {
        let file = memfd_create("deposit", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        let mut file = File::from(file);
        file.write_all(content)?;
        fcntl_add_seals(&file, SEALS)?;
        Ok(Self(file.into()))
    }

    /// Returns the content.
    ///
    /// # Errors
    /// If the system refuses memory.
    pub fn read(&self) -> io::Result<Vec<u8>> {
        let length = usize::try_from(fstat(&self.0)?.st_size).unwrap_or_default();
        let mut content = vec![0; length];
        File::from(self.0.try_clone()?).read_exact_at(&mut content, 0)?;
        Ok(content)
    }
}

impl TryFrom<OwnedFd> for Deposit {
    type Error = io::Error;

    /// Takes a deposit that another process has passed on.
    ///
    /// # Errors
    /// `InvalidInput` if the file is not sealed.
    fn try_from(file: OwnedFd) -> io::Result<Self> {
        let is_sealed = fcntl_get_seals(&file).is_ok_and(|seals| seals.contains(SEALS));
        if is_sealed { Ok(Self(file)) } else { Err(io::ErrorKind::InvalidInput.into()) }
    }
}

impl From<Deposit> for OwnedFd {
    fn from(deposit: Deposit) -> Self {
        deposit.0
    }
}

impl AsFd for Deposit {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;

    #[test]
    fn deposit_is_read_whole_and_cannot_be_changed() {
        let content = (0..100_000_u32).flat_map(u32::to_le_bytes).collect::<Vec<_>>();
        let deposit = Deposit::new(&content).unwrap();
        assert_eq!(deposit.read().unwrap(), content);
        assert_eq!(rustix::io::pwrite(&deposit, b"x", 0), Err(Errno::PERM));
        assert_eq!(rustix::fs::ftruncate(&deposit, 0), Err(Errno::PERM));
        let passed_on = Deposit::try_from(OwnedFd::from(deposit)).unwrap();
        assert_eq!(passed_on.read().unwrap(), content);
    }

    #[test]
    fn file_without_seals_is_no_deposit() {
        assert!(Deposit::try_from(memfd_create("open", MemfdFlags::CLOEXEC).unwrap()).is_err());
        assert!(Deposit::try_from(OwnedFd::from(File::open("/dev/null").unwrap())).is_err());
    }
}
