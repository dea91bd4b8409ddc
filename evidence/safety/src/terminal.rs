//! A pseudo-terminal that one program leads, as under `ssh -t`.

use rustix::{
    fs::{Mode, OFlags, fcntl_getfl, fcntl_setfl},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
};
use std::{
    ffi::CString,
    io,
    os::fd::OwnedFd,
    process::{Command, Stdio},
};

/// The controlling side. Dropping it closes the terminal, which hangs up on its processes.
pub(crate) struct Terminal {
    master: OwnedFd,
    name: CString,
}

impl Terminal {
    pub(crate) fn open() -> io::Result<Self> {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        grantpt(&master)?;
        unlockpt(&master)?;
        fcntl_setfl(&master, fcntl_getfl(&master)? | OFlags::NONBLOCK)?;
        let name = ptsname(&master, Vec::new())?;
        Ok(Self { master, name })
    }

    /// Returns a command that runs `line` on it. The started process becomes the program.
    pub(crate) fn command(&self, line: &Command) -> io::Result<Command> {
        let side = || {
            let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
            Ok::<_, io::Error>(Stdio::from(rustix::fs::open(&*self.name, flags, Mode::empty())?))
        };
        let mut command = Command::new("setsid");
        command.arg("--ctty").arg(line.get_program()).args(line.get_args());
        command.envs(line.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.stdin(side()?).stdout(side()?).stderr(side()?);
        Ok(command)
    }

    /// Reads the output, so that its writers don't block.
    pub(crate) fn read(&self) {
        let mut screen = [0; 4096];
        // No output, or no writer left.
        while rustix::io::read(&self.master, &mut screen).is_ok_and(|read| read > 0) {}
    }
}
