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
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
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
    pub(super) address: SocketAddr,
    is_over: Arc<AtomicBool>,
    receiving: JoinHandle<Received>,
}

/// How many writes there were.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Received {
    pub(super) taken: u64,
    pub(super) refused: u64,
    newest: u64,
}

impl Received {
    fn write(&mut self, epoch: u64) {
        if epoch >= self.newest {
            self.newest = epoch;
            self.taken += 1;
        } else {
            self.refused += 1;
        }
    }
}

impl Receiver {
    /// Receives on a port of its own.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn start() -> io::Result<Self> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        // So often it looks whether it is over.
        socket.set_read_timeout(Some(Duration::from_millis(50)))?;
        let address = socket.local_addr()?;
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&is_over);
        let receiving = thread::Builder::new().name("receiver".into()).spawn(move || {
            let mut received = Received::default();
            let mut bytes = [0; 32];
            loop {
                match socket.recv(&mut bytes) {
                    Ok(length) => {
                        let epoch = str::from_utf8(&bytes[..length]).ok().and_then(|text| text.parse().ok());
                        epoch.into_iter().for_each(|epoch| received.write(epoch));
                    }
                    // All that was sent before is received.
                    Err(_) if ends.load(Ordering::Acquire) => return received,
                    Err(_) => {}
                }
            }
        })?;
        Ok(Self { address, is_over, receiving })
    }

    /// Ends it, once nothing more is there.
    pub(super) fn end(self) -> io::Result<Received> {
        self.is_over.store(true, Ordering::Release);
        self.receiving.join().map_err(|_| io::Error::other("the receiver has failed"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_with_a_smaller_epoch_than_was_seen_is_refused() {
        let receiver = Receiver::start().unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        for epoch in ["7", "9", "7", "9", "no number"] {
            socket.send_to(epoch.as_bytes(), receiver.address).unwrap();
        }
        assert_eq!(receiver.end().unwrap(), Received { taken: 3, refused: 1, newest: 9 });
    }
}
