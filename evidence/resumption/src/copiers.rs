//! Three processes that share one copy. The one that leads is killed again and again.

use crate::{Args, LONGEST_COPY, LONGEST_LEADERSHIP, PAUSE, PIECE, TTL_MS};
use fastrand::Rng;
use ielections::{Epoch, ReadError, Slot, TtlStorage as _};
use resumable_copy::Progress;
use std::{
    env,
    error::Error,
    ffi::OsString,
    io,
    num::NonZeroU32,
    path::Path,
    process::{Child, Command, Stdio},
    slice,
    sync::Arc,
    time::Duration,
};
use vvm_clock::{Clock, SystemClock};
use vvm_storage::{ElectionKey, ElectionsTtlStorage, SlotNumber};

/// How many processes share a copy.
const COUNT: usize = 3;
/// Between two looks at processes and storage.
const PACE: Duration = Duration::from_millis(5);

/// The processes, and a connection of our own to their storage.
pub(crate) struct Copiers {
    storage: ElectionsTtlStorage,
    clock: Arc<dyn Clock>,
    key: ElectionKey,
    program: OsString,
    arguments: Vec<OsString>,
    processes: Vec<Child>,
    /// How many leaders were killed.
    pub(crate) kills: u64,
    /// The last epoch that was seen. It only rises (I2).
    epoch: u64,
}

impl Copiers {
    /// Starts them.
    pub(crate) async fn start(
        args: &Args,
        own_storage: String,
        name: &str,
        from: &Path,
        to: &Path,
    ) -> Result<Self, Box<dyn Error>> {
        let url = args.storage.clone().unwrap_or(own_storage);
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::start()?);
        let storage = ElectionsTtlStorage::new(vvm_storage::open(&url, Arc::clone(&clock)).await?);
        let program = match &args.program {
            Some(program) => program.clone(),
            None => env::current_exe()?.with_file_name("resumable-copy"),
        };
        let arguments = [
            ["--storage".into(), url.into()],
            ["--from".into(), from.into()],
            ["--to".into(), to.into()],
            ["--name".into(), name.into()],
            ["--piece".into(), PIECE.to_string().into()],
            ["--pause-ms".into(), PAUSE.as_millis().to_string().into()],
            ["--ttl-ms".into(), args.ttl_ms.unwrap_or(TTL_MS).to_string().into()],
        ];
        let mut copiers = Self {
            storage,
            clock,
            key: ElectionKey { cluster: name.into(), slot: SlotNumber::new(NonZeroU32::MIN) },
            program: program.into(),
            arguments: arguments.concat(),
            processes: Vec::new(),
            kills: 0,
            epoch: 0,
        };
        for _ in 0..COUNT {
            copiers.start_one()?;
        }
        Ok(copiers)
    }

    /// Kills at most `most` leaders, one after the other, until a process has finished the copy. Returns what
    /// that process printed. Calls `after_each` after each kill.
    pub(crate) async fn kill_until_done(
        &mut self,
        most: u64,
        rng: &mut Rng,
        mut after_each: impl FnMut(),
    ) -> Result<Progress, Box<dyn Error>> {
        let mut give_up_at = SystemClock::read().after(LONGEST_COPY);
        loop {
            let life = LONGEST_LEADERSHIP.mul_f64(rng.f64());
            let leader = loop {
                if let Some(done) = self.ended()? {
                    return Ok(done);
                }
                if SystemClock::read() >= give_up_at {
                    return Err(format!("the copy did not end within {} s", LONGEST_COPY.as_secs()).into());
                }
                match self.new_leader().await? {
                    Some(leader) if self.kills < most => break leader,
                    _ => self.clock.sleep(PACE).await,
                }
            };
            self.clock.sleep(life).await;
            if self.kill(leader)? {
                after_each();
                self.start_one()?;
                give_up_at = SystemClock::read().after(LONGEST_COPY);
            }
        }
    }

    /// Returns the process id of a leader whose epoch was not seen before.
    ///
    /// Reads as a waiting candidate does, which may be stale: on a cluster, a linearizable read would be a
    /// transaction that delays the leader's own.
    async fn new_leader(&mut self) -> Result<Option<u32>, Box<dyn Error>> {
        let slots = match self.storage.scan(slice::from_ref(&self.key)).await {
            Ok(slots) => slots,
            Err(ReadError::Unavailable(_)) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let Some(entry) = slots.first().and_then(Slot::entry) else { return Ok(None) };
        let (epoch, holder) = (entry.epoch.get(), entry.holder.as_str());
        if epoch < self.epoch {
            return self.check_last_epoch().await.map(|()| None);
        }
        if epoch == self.epoch {
            return Ok(None);
        }
        self.epoch = Epoch::new(epoch)?.get();
        // The default holder of a `Host` is HOSTNAME:PID.
        let process = holder.rsplit_once(':').and_then(|(_, number)| number.parse().ok());
        process.map(Some).ok_or_else(|| format!("the holder {holder} does not end with a process id").into())
    }

    /// Fails if a linearizable read shows a smaller epoch than one that was seen (I2). A stale read may.
    async fn check_last_epoch(&self) -> Result<(), Box<dyn Error>> {
        match self.storage.get(&self.key).await {
            Ok(slot) => match slot.last_epoch().map_or(0, Epoch::get) {
                epoch if epoch < self.epoch => Err(format!("epoch {epoch} after {}", self.epoch).into()),
                _ => Ok(()),
            },
            // The next look that shows a smaller epoch reads again.
            Err(ReadError::Unavailable(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Kills a process. Returns whether it still ran.
    fn kill(&mut self, process: u32) -> io::Result<bool> {
        let Some(at) = self.processes.iter().position(|copier| copier.id() == process) else {
            return Ok(false);
        };
        if self.processes[at].try_wait()?.is_some() {
            // It finished, or its deadman ended it: `ended` finds it.
            return Ok(false);
        }
        self.processes[at].kill()?;
        self.processes.swap_remove(at).wait()?;
        self.kills += 1;
        Ok(true)
    }

    fn start_one(&mut self) -> io::Result<()> {
        let process = Command::new(&self.program)
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        self.processes.push(process);
        Ok(())
    }

    /// Returns what a process printed that has finished the copy. A process that ended before, because it
    /// lost its leadership on a slow machine, is replaced.
    fn ended(&mut self) -> Result<Option<Progress>, Box<dyn Error>> {
        for at in 0..self.processes.len() {
            let Some(status) = self.processes[at].try_wait()? else { continue };
            let finished = self.processes.swap_remove(at).wait_with_output()?;
            if status.success() {
                return Ok(Some(serde_json::from_slice(&finished.stdout)?));
            }
            println!("a process ended with {status}: {}", String::from_utf8_lossy(&finished.stderr).trim());
            self.start_one()?;
            return Ok(None);
        }
        Ok(None)
    }

    /// Kills all that still run.
    pub(crate) fn stop(mut self) {
        for process in &mut self.processes {
            // It may have ended already.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}
