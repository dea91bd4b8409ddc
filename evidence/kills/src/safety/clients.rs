//! Workers that are written with a client of `vvm run --warm`: they log what they do without a fence, as the worker of
//! [`warm`](super::warm) does, and write with their fence to a [`Receiver`].

use super::candidates::Worker;
use servers::owned::run;
use std::{
    ffi::{OsStr, OsString},
    fs, io,
    net::{SocketAddr, UdpSocket},
    path::{Path, PathBuf},
    process::Command,
};

/// A language.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum Client {
    Python,
    Go,
    Node,
}

impl Client {
    /// Makes a worker ready below `folder`, which writes to the receiver at `to`.
    ///
    /// # Errors
    /// This machine lacks the language, or the worker can't be built.
    pub(super) fn worker(self, folder: &Path, to: SocketAddr) -> io::Result<Worker> {
        let clients = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../clients").canonicalize()?;
        let place = folder.join("app");
        fs::create_dir(&place)?;
        let written = |name: &str, text: &str| {
            let path = place.join(name);
            fs::write(&path, text).map(|()| path)
        };
        let (program, variable) = match self {
            Self::Python => {
                // Not a script that looks for it at each start.
                let mut ask = Command::new("python3");
                ask.args(["-c", "import sys; print(sys.executable)"]);
                let asked = run(&mut ask, "Python").map_err(io::Error::other)?;
                let worker = written("worker.py", include_str!("apps/worker.py"))?;
                (vec![asked.trim().into(), worker.into()], ("PYTHONPATH", clients.join("python")))
            }
            Self::Go => {
                let module = format!(
                    "module worker\n\ngo 1.21\n\nrequire vvm/warm v0.0.0\n\nreplace vvm/warm => {:?}\n",
                    clients.join("go").display().to_string()
                );
                written("go.mod", &module)?;
                written("main.go", include_str!("apps/main.go"))?;
                let offline = [("GOPROXY", "off"), ("GOTOOLCHAIN", "local")];
                let build = ["build", "-o", "worker", "."];
                let mut go = Command::new("go");
                go.args(build).envs(offline).current_dir(&place);
                run(&mut go, "Go").map_err(io::Error::other)?;
                (vec![place.join("worker").into()], ("SAFETY_CLIENT", clients.join("go")))
            }
            Self::Node => {
                let worker = written("worker.mjs", include_str!("apps/worker.mjs"))?;
                let client = clients.join("node/warm.js");
                (vec![OsString::from("node"), worker.into()], ("SAFETY_CLIENT", client))
            }
        };
        let arguments =
            [OsStr::new("work"), folder.as_os_str(), OsStr::new(&to.to_string())].map(OsString::from);
        let (name, value) = variable;
        Ok(Worker {
            line: program.into_iter().chain(arguments).collect(),
            variables: vec![(name, value.into()), ("PYTHONDONTWRITEBYTECODE", "1".into())],
        })
    }
}

/// What workers write to, as datagrams with their epoch. It refuses a smaller epoch than it has seen.
pub(super) struct Receiver {
    socket: UdpSocket,
    pub(super) taken: u64,
    pub(super) refused: u64,
    newest: u64,
}

impl Receiver {
    /// On a port of its own.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn start() -> io::Result<Self> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, taken: 0, refused: 0, newest: 0 })
    }

    pub(super) fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Receives what was sent so far.
    pub(super) fn receive(&mut self) {
        let mut bytes = [0; 32];
        while let Ok(length) = self.socket.recv(&mut bytes) {
            let text = str::from_utf8(&bytes[..length]).unwrap_or_default();
            let Ok(epoch) = text.parse::<u64>() else { continue };
            if epoch >= self.newest {
                self.newest = epoch;
                self.taken += 1;
            } else {
                self.refused += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_with_a_smaller_epoch_than_was_seen_is_refused() {
        let mut receiver = Receiver::start().unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        for epoch in ["7", "9", "7", "9", "no number"] {
            socket.send_to(epoch.as_bytes(), receiver.address().unwrap()).unwrap();
        }
        receiver.receive();
        assert_eq!((receiver.taken, receiver.refused, receiver.newest), (3, 1, 9));
    }
}
