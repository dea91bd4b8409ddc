//! A terminal, for one program that is all that runs on it: as under `ssh -t`, or in a window.

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

/// Its other side. Dropping it closes the terminal, which is a hangup for whoever runs on it.
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

    /// The line, run on it: the process that is started becomes the program.
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

    /// Takes what is on the screen, or whoever writes there would wait.
    pub(crate) fn read(&self) {
        let mut screen = [0; 4096];
        // Nothing there, or nobody any more, is the end.
        while rustix::io::read(&self.master, &mut screen).is_ok_and(|read| read > 0) {}
    }
}
