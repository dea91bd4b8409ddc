//! Three processes with one copy, and what is done to whoever of them leads.

use crate::{Args, LIFE, PAUSE, PIECE, REST, TTL_MS};
use fastrand::Rng;
use ielections::{Epoch, ReadError, Slot, TtlStorage as _};
use resumable_copy::progress::Progress;
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
const SIZE: usize = 3;
/// The pace of looking.
const LOOK: Duration = Duration::from_millis(5);

pub(crate) struct Crew {
    storage: ElectionsTtlStorage,
    clock: Arc<dyn Clock>,
    key: ElectionKey,
    program: OsString,
    arguments: Vec<OsString>,
    members: Vec<Child>,
    /// How many leaders were killed.
    pub(crate) deaths: u64,
    /// The last epoch that was seen; it only rises.
    pub(crate) epoch: u64,
}

impl Crew {
    pub(crate) async fn gather(
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
        let mut crew = Self {
            storage,
            clock,
            key: ElectionKey { cluster: name.into(), slot: SlotNumber::new(NonZeroU32::MIN) },
            program: program.into(),
            arguments: arguments.concat(),
            members: Vec::new(),
            deaths: 0,
            epoch: 0,
        };
        for _ in 0..SIZE {
            crew.recruit()?;
        }
        Ok(crew)
    }

    /// Kills leader after leader, `most` of them at most, until a process says that the copy is done; what it
    /// was then. `after_each` looks at what a leader has left behind.
    pub(crate) async fn kill_until_done(
        &mut self,
        most: u64,
        rng: &mut Rng,
        mut after_each: impl FnMut(),
    ) -> Result<Progress, Box<dyn Error>> {
        let mut give_up_at = SystemClock::read().after(REST);
        loop {
            let life = LIFE.mul_f64(rng.f64());
            let leader = loop {
                if let Some(done) = self.ended()? {
                    return Ok(done);
                }
                if SystemClock::read() >= give_up_at {
                    return Err(format!("the copy did not end within {REST:?}").into());
                }
                match self.new_leader().await? {
                    Some(leader) if self.deaths < most => break leader,
                    _ => self.clock.sleep(LOOK).await,
                }
            };
            self.clock.sleep(life).await;
            if self.kill(leader)? {
                after_each();
                self.recruit()?;
                give_up_at = SystemClock::read().after(REST);
            }
        }
    }

    /// Whoever leads under an epoch that was not seen before. Looks as a candidate does: a read that decides
    /// something would be a transaction on a cluster, and in the way of the leader's. It may show what stood
    /// a moment ago.
    async fn new_leader(&mut self) -> Result<Option<u32>, Box<dyn Error>> {
        let slots = match self.storage.scan(slice::from_ref(&self.key)).await {
            Ok(slots) => slots,
            Err(ReadError::Unavailable(_)) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let Some(entry) = slots.first().and_then(Slot::entry) else { return Ok(None) };
        let (epoch, holder) = (entry.epoch.get(), entry.holder.as_str());
        if epoch < self.epoch {
            return self.stands_at_last().await.map(|()| None);
        }
        if epoch == self.epoch {
            return Ok(None);
        }
        self.epoch = Epoch::new(epoch)?.get();
        let process = holder.strip_prefix("process ").and_then(|number| number.parse().ok());
        process.map(Some).ok_or_else(|| format!("{holder} is none of ours").into())
    }

    /// A smaller epoch than one that was seen: what a replica showed that is behind, or a violation (I2).
    async fn stands_at_last(&self) -> Result<(), Box<dyn Error>> {
        match self.storage.get(&self.key).await {
            Ok(slot) => match slot.last_epoch().map_or(0, Epoch::get) {
                epoch if epoch < self.epoch => Err(format!("epoch {epoch} after {}", self.epoch).into()),
                _ => Ok(()),
            },
            // Not answered: it is asked again with the next such look.
            Err(ReadError::Unavailable(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether it was there to be killed.
    fn kill(&mut self, process: u32) -> io::Result<bool> {
        let Some(at) = self.members.iter().position(|member| member.id() == process) else {
            return Ok(false);
        };
        if self.members[at].try_wait()?.is_some() {
            // Done, or ended by its deadman: it is met again among those who have ended.
            return Ok(false);
        }
        self.members[at].kill()?;
        self.members.swap_remove(at).wait()?;
        self.deaths += 1;
        Ok(true)
    }

    fn recruit(&mut self) -> io::Result<()> {
        let member = Command::new(&self.program)
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        self.members.push(member);
        Ok(())
    }

    /// What a process said that has ended by itself. One that did not get to the end of the copy is replaced:
    /// it lost its leadership, as a slow machine has it happen.
    fn ended(&mut self) -> Result<Option<Progress>, Box<dyn Error>> {
        for at in 0..self.members.len() {
            let Some(status) = self.members[at].try_wait()? else { continue };
            let finished = self.members.swap_remove(at).wait_with_output()?;
            if status.success() {
                return Ok(Some(serde_json::from_slice(&finished.stdout)?));
            }
            println!("a process ended with {status}: {}", String::from_utf8_lossy(&finished.stderr).trim());
            self.recruit()?;
            return Ok(None);
        }
        Ok(None)
    }

    /// Ends whoever is left.
    pub(crate) fn dismiss(mut self) {
        for member in &mut self.members {
            // Gone already is as good.
            let _ = member.kill();
            let _ = member.wait();
        }
    }
}
