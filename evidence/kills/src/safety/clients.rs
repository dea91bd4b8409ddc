//! Workers written with a client of `vvm run --warm`, which log what they do, as the worker of [`warm`](super::warm).

use super::candidates::Worker;
use servers::owned::run;
use std::{
    ffi::{OsStr, OsString},
    fs, io,
    path::{Path, PathBuf},
    process::Command,
};

#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum Client {
    Python,
    Go,
    Node,
}

impl Client {
    /// Makes a worker ready below `folder`. Fails if this machine lacks the language, or it can't be built.
    pub(super) fn worker(self, folder: &Path) -> io::Result<Worker> {
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
        let arguments = [OsStr::new("work"), folder.as_os_str()].map(OsString::from);
        let (name, value) = variable;
        Ok(Worker {
            line: program.into_iter().chain(arguments).collect(),
            variables: vec![(name, value.into()), ("PYTHONDONTWRITEBYTECODE", "1".into())],
        })
    }
}
