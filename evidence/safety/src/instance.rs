//! One `vvm run`: started, and started again some time after it has ended.

use clock::{Instant, SystemClock};
use fastrand::Rng;
use rustix::process::{Pid, Signal, kill_process};
use std::{
    env, io,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

pub(crate) struct Instance {
    vvm: PathBuf,
    folder: PathBuf,
    number: usize,
    ttl: Duration,
    guardian: Child,
    restart_at: Option<Instant>,
}

impl Instance {
    pub(crate) fn start(vvm: &Path, folder: &Path, number: usize, ttl: Duration) -> io::Result<Self> {
        let guardian = spawn(vvm, folder, number, ttl)?;
        let (vvm, folder) = (vvm.to_path_buf(), folder.to_path_buf());
        Ok(Self { vvm, folder, number, ttl, guardian, restart_at: None })
    }

    /// Notices an end, and starts anew up to a second later.
    pub(crate) fn restart_if_due(&mut self, now: Instant, rng: &mut Rng) -> io::Result<()> {
        match self.restart_at {
            Some(at) if now >= at => {
                self.guardian = spawn(&self.vvm, &self.folder, self.number, self.ttl)?;
                self.restart_at = None;
            }
            Some(_) => {}
            None if self.guardian.try_wait()?.is_some() => {
                self.restart_at = Some(now.after(Duration::from_millis(rng.u64(..1000))));
            }
            None => {}
        }
        Ok(())
    }

    /// The guardian, while it is known to be ours: not reaped, so that its number can't be anybody else's.
    pub(crate) fn guardian(&self) -> Option<i32> {
        self.restart_at.is_none().then(|| self.guardian.id() as i32)
    }

    /// Ends it and waits.
    pub(crate) fn end(mut self) -> io::Result<()> {
        if let Some(pid) = self.guardian().and_then(Pid::from_raw) {
            // Gone already is as good.
            let _ = kill_process(pid, Signal::TERM);
            let kill_at = SystemClock::read().after(Duration::from_secs(5));
            while self.guardian.try_wait()?.is_none() {
                if SystemClock::read() >= kill_at {
                    self.guardian.kill()?;
                }
                SystemClock::block_for(Duration::from_millis(5));
            }
        }
        Ok(())
    }
}

fn spawn(vvm: &Path, folder: &Path, number: usize, ttl: Duration) -> io::Result<Child> {
    let storage = format!("sqlite:{}", folder.join("storage.db").display());
    Command::new(vvm)
        .args(["run", "--storage", &storage, "--name", "safety", "--stop-timeout", "200ms"])
        .args(["--holder", &format!("candidate-{number}"), "--ttl", &format!("{}ms", ttl.as_millis())])
        .arg("--")
        .arg(env::current_exe()?)
        .arg("work")
        .arg(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
}
