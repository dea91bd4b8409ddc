//! `vvm pause` and `vvm resume`: no process leads a name in between. `requests::may_work` of `vvm-host` says what a
//! successful pause guarantees, and why. The part of this command is the order: it writes the pause, and then sees by
//! linearizable reads that each slot is clear. A read that the storage does not answer is repeated: the pause stands
//! meanwhile.

use crate::{
    announce::say,
    args::{NotADuration, TargetArgs, WakeArgs, parse_duration, parse_text},
    exit,
    inspection::{INTERVAL, InspectionError, new_ask, operate, print},
    liveness::{Liveness, Observation},
    runtime::stop_of_process_1,
    shown::{HumanDuration, Moment},
};
use clap::Args;
use ielections::{Holder, ReadError, TtlStorage, WriteError};
use std::{process::ExitCode, time::Duration};
use vvm_clock::{Clock, Instant, SystemWallClock, WallClock as _};
use vvm_host::operate::{InspectError, Purpose, StorageInspector};
use vvm_storage::{ElectionKey, Pause};

const ATTEMPTS: u32 = 5;
const RETRY_PAUSE: Duration = Duration::from_millis(500);

pub(crate) fn pause(args: &PauseArgs) -> ExitCode {
    operate(args.target.pair(), Purpose::ReadAndWrite, async |inspector| {
        pause_and_wait(inspector, args).await
    })
}

pub(crate) fn resume(args: &ResumeArgs) -> ExitCode {
    operate(args.target.pair(), Purpose::ReadAndWrite, async |inspector| end_pause(inspector, args).await)
}

async fn pause_and_wait(inspector: &StorageInspector, args: &PauseArgs) -> Result<u8, InspectionError> {
    let clock = &inspector.clock;
    let by = by(args)?;
    if !args.new {
        inspector.slots().await.map_err(|refusal| match refusal {
            unknown @ InspectError::UnknownName { .. } => {
                let why = format!("{unknown}, or pause it before its first start with --new");
                InspectionError::new(exit::UNKNOWN, why)
            }
            refusal => refusal.into(),
        })?;
    }
    let (pause, is_ours) = write(inspector, &by).await?;
    inspector.wake_candidates(args.wake.local_dir.as_ref());
    let since = Moment(pause.since_unix_epoch());
    match is_ours {
        true => print(inspector, format_args!("paused by {}", pause.by())),
        false => print(inspector, format_args!("paused already, by {}, since {since}", pause.by())),
    }
    let began = clock.now();
    let mut occupied = OccupiedSlots::default();
    let Wait::For(timeout) = args.wait else {
        // Only for what it says: the pause stands in any case.
        let _ = occupied.find(inspector).await;
        return Ok(0);
    };
    tokio::select! {
        biased;
        status = stop_of_process_1() => return Ok(status?),
        cleared = until_clear(inspector, &pause, &mut occupied, began.after(timeout)) => cleared?,
    }
    let took = HumanDuration(began.until(clock.now()));
    print(inspector, format_args!("no process leads, and none will until `vvm resume` (after {took})"));
    Ok(0)
}

async fn until_clear(
    inspector: &StorageInspector,
    pause: &Pause,
    occupied: &mut OccupiedSlots,
    give_up_at: Instant,
) -> Result<(), InspectionError> {
    let StorageInspector { name, clock, .. } = inspector;
    let mut is_first = true;
    loop {
        let unread = match stands_when_clear(inspector, pause, occupied).await {
            Ok(Some(true)) => return Ok(()),
            Ok(Some(false)) => {
                let why = format!("{name} was resumed by another operator meanwhile");
                return Err(InspectionError::new(exit::UNFINISHED, why));
            }
            Ok(None) => None,
            Err(refusal @ ReadError::Unavailable(_)) => Some(refusal),
            Err(refusal) => return Err(InspectionError::unconfirmed(refusal)),
        };
        let leaders = occupied.leaders(unread.as_ref());
        if std::mem::replace(&mut is_first, false) {
            say!("{name}: waiting until no process leads: {leaders} (Ctrl-C ends the wait, not the pause)");
        }
        if clock.now() >= give_up_at {
            let why = format!(
                "{name} is paused, but not all leaders have stopped: {leaders}. The pause stands, and no new \
                 leader begins; but a program that leads without vvm or a vvm_host::Host ignores a pause. To \
                 wait again, run `vvm pause` again; to end the pause, `vvm resume`"
            );
            return Err(InspectionError::new(exit::UNFINISHED, why));
        }
        clock.sleep_until(clock.now().after(INTERVAL).min(give_up_at)).await;
    }
}

/// Reads what is not known yet. Returns whether the pause stands, once no leader works; none before.
async fn stands_when_clear(
    inspector: &StorageInspector,
    pause: &Pause,
    occupied: &mut OccupiedSlots,
) -> Result<Option<bool>, ReadError> {
    let StorageInspector { storage, cluster, clock, .. } = inspector;
    occupied.find(inspector).await?;
    occupied.look(storage, &**clock).await?;
    if !occupied.is_clear() {
        return Ok(None);
    }
    // After a resume in between, what was seen proves nothing.
    Ok(Some(storage.standing_pause(cluster).await?.as_ref() == Some(pause)))
}

async fn end_pause(inspector: &StorageInspector, args: &ResumeArgs) -> Result<u8, InspectionError> {
    let StorageInspector { storage, cluster, .. } = inspector;
    let mut was_paused = false;
    let said = loop {
        let Some(pause) = storage.standing_pause(cluster).await? else {
            if was_paused {
                break "resumed".to_owned();
            }
            // A misspelt name is not paused either.
            inspector.slots().await?;
            break "not paused".to_owned();
        };
        was_paused = true;
        // Else it is gone or replaced: read again.
        if with_retries(inspector, async || storage.resume(cluster, &pause).await).await? {
            let lasted = SystemWallClock.since_unix_epoch().saturating_sub(pause.since_unix_epoch());
            break format!("resumed; had been paused by {} for {}", pause.by(), HumanDuration(lasted));
        }
    };
    inspector.wake_candidates(args.wake.local_dir.as_ref());
    print(inspector, said);
    Ok(0)
}

async fn write(inspector: &StorageInspector, by: &Holder) -> Result<(Pause, bool), InspectionError> {
    // The same request in each attempt: if any of them is applied, the pause is ours.
    let ask = new_ask();
    let write = async || inspector.storage.pause(&inspector.cluster, by, ask).await;
    let (pause, is_ours) = with_retries(inspector, write).await?;
    let is_ours = is_ours || pause.is(ask);
    Ok((pause, is_ours))
}

async fn with_retries<T>(
    inspector: &StorageInspector,
    mut attempt: impl AsyncFnMut() -> Result<T, WriteError>,
) -> Result<T, InspectionError> {
    let (mut left, mut is_unknown) = (ATTEMPTS, false);
    loop {
        let refusal = match attempt().await {
            Ok(done) => return Ok(done),
            Err(refusal) => refusal,
        };
        left -= 1;
        is_unknown |= matches!(refusal, WriteError::Unknown(_));
        if left == 0 || !matches!(refusal, WriteError::NotApplied(_) | WriteError::Unknown(_)) {
            return Err(if is_unknown { InspectionError::unconfirmed(refusal) } else { refusal.into() });
        }
        inspector.clock.sleep(RETRY_PAUSE).await;
    }
}

fn by(args: &PauseArgs) -> Result<Holder, InspectionError> {
    let operator = args.by.clone().unwrap_or_else(|| {
        let user = std::env::var("USER").ok().filter(|user| !user.is_empty()).or_else(user_name);
        let user = user.unwrap_or_else(|| format!("user {}", rustix::process::getuid().as_raw()));
        format!("{user}@{}", rustix::system::uname().nodename().to_string_lossy())
    });
    let text =
        args.reason.as_ref().map_or_else(|| operator.clone(), |reason| format!("{operator}: {reason}"));
    Holder::new(text).map_err(|_| {
        let left = Holder::MAX_BYTES.saturating_sub(operator.len() + ": ".len());
        let why = format!("--reason: too long: at most {left} bytes beside {operator}");
        InspectionError::new(exit::MISUSE, why)
    })
}

fn user_name() -> Option<String> {
    let id = rustix::process::getuid().as_raw().to_string();
    std::fs::read_to_string("/etc/passwd").ok()?.lines().find_map(|user| {
        let mut fields = user.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == id).then(|| name.to_owned())
    })
}

/// Stop all leaders and keep candidates from leading, for maintenance.
///
/// Leaders stop their command as on TERM, release their slot, and wait with all candidates until vvm resume.
/// After this command has succeeded, no command runs until then: candidates check for a pause before they
/// start anything. Programs that use elections without a vvm_host::Host ignore a pause.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Example:
  vvm pause --storage sqlite:/var/lib/payroll/leader.db --name payroll --reason 'new schema'

Exit status: 0 no command runs; 76 paused, but a leader may still work, or
perhaps paused; 64 wrong arguments; 66 no such storage or name; 69 the storage
refused; 71 the system refused")]
pub(crate) struct PauseArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// The reason, shown to operators
    #[arg(long, value_name = "TEXT", value_parser = parse_text)]
    pub(crate) reason: Option<String>,
    /// The author of the pause, shown to operators [default: USER@HOSTNAME]
    #[arg(long, value_name = "AUTHOR", value_parser = parse_text)]
    pub(crate) by: Option<String>,
    /// Also if no candidate has ever campaigned for the name: without this, a misspelt name would count as paused
    #[arg(long)]
    pub(crate) new: bool,
    /// How long to wait until all commands have stopped, or no
    #[arg(long, value_name = "DURATION|no", default_value = "60s", value_parser = parse_wait)]
    pub(crate) wait: Wait,
    #[command(flatten)]
    pub(crate) wake: WakeArgs,
}

/// End a pause: candidates may lead again.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Example:
  vvm resume --storage sqlite:/var/lib/payroll/leader.db --name payroll

Exit status: 0, also if it was not paused; 76 perhaps resumed; 64 wrong
arguments; 66 no such storage or name; 69 the storage refused; 71 the system
refused")]
pub(crate) struct ResumeArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    #[command(flatten)]
    pub(crate) wake: WakeArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wait {
    No,
    For(Duration),
}

fn parse_wait(text: &str) -> Result<Wait, NotADuration> {
    if text == "no" { Ok(Wait::No) } else { parse_duration(text).map(Wait::For) }
}

#[derive(Default)]
struct OccupiedSlots(Option<Vec<(ElectionKey, Observation)>>);

impl OccupiedSlots {
    async fn find(&mut self, inspector: &StorageInspector) -> Result<(), ReadError> {
        if self.0.is_some() {
            return Ok(());
        }
        // Read after the pause was written: a candidate that settles the count later sees the pause.
        let (settled, slots) = inspector.keys().await?;
        // Else no process has ever led it: candidates that settle the number see the pause.
        if settled.is_none() && !inspector.is_unknown(&inspector.storage.scan(&slots).await?) {
            say!(
                "{}: the slot count is not settled, so only slot 1 is checked: until now only programs \
                 led it that use elections without a vvm_host::Host, and these ignore a pause",
                inspector.name
            );
        }
        self.0 = Some(slots.into_iter().map(|key| (key, Observation::default())).collect());
        Ok(())
    }

    /// Reads each slot that is left, and drops those that are free or stale. The leader of a stale record is dead
    /// (I1), and no candidate takes it over while the name is paused. After a failure, slots that were not read are kept.
    async fn look(
        &mut self,
        storage: &dyn TtlStorage<ElectionKey>,
        clock: &dyn Clock,
    ) -> Result<(), ReadError> {
        let Some(slots) = &mut self.0 else { return Ok(()) };
        let mut place = 0;
        while let Some((key, observation)) = slots.get_mut(place) {
            let slot = storage.get(key).await?;
            match observation.add(&slot, clock.now()) {
                Liveness::Free | Liveness::Stale => drop(slots.swap_remove(place)),
                Liveness::Led | Liveness::Held => place += 1,
            }
        }
        Ok(())
    }

    fn is_clear(&self) -> bool {
        self.0.as_ref().is_some_and(Vec::is_empty)
    }

    fn leaders(&self, unread: Option<&ReadError>) -> String {
        let leaders = self.0.iter().flatten().filter_map(|(key, observation)| {
            let entry = observation.record()?;
            Some(format!("{} leads slot {} (epoch {})", entry.holder, key.slot, entry.epoch))
        });
        let leaders = leaders.collect::<Vec<_>>();
        if leaders.is_empty() {
            return unread.map_or_else(|| "it was not read yet".into(), ReadError::to_string);
        }
        leaders.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{args::tests::parsed, inspection::tests::Interrupted, liveness::tests::record};
    use ielections::{
        Slot,
        testing::{
            MockTtlStorage,
            mock::{Fault, FaultyStorage, Verb},
        },
    };
    use std::{iter::repeat_with, num::NonZeroU32, sync::Arc};
    use testing_time::MockClock;
    use vvm_clock::SystemClock;
    use vvm_storage::{ClusterName, ElectionsTtlStorage, SlotNumber, SysVvmStorage, mem::MemDatabase};

    #[tokio::test]
    async fn pause_succeeds_if_any_one_read_after_it_is_not_answered() {
        for wait in ["60s", "no"] {
            let words = ["--storage", "sqlite:x.db", "--name", "a", "--local-dir", "none", "--wait", wait];
            let args = parsed(&words);
            // Slot count, former pause; then slot count, slot and pause.
            for number in 1..=6 {
                let clock = Arc::new(SystemClock::start().unwrap());
                let beneath: Arc<dyn SysVvmStorage> = MemDatabase::new(clock.clone()).open();
                let storage = ElectionsTtlStorage::new(Arc::clone(&beneath));
                let cluster = ClusterName::from("a");
                storage.settle_slot_count(&cluster, NonZeroU32::MIN).await.unwrap();
                let blip = async { Err(ReadError::Unavailable("no route".into())) };
                let faulty = Interrupted::at(number, beneath, blip);
                let inspector = StorageInspector::on_storage(faulty, "a", clock);
                let outcome = pause_and_wait(&inspector, &args).await;
                let is_paused = storage.standing_pause(&cluster).await.unwrap().is_some();
                assert_eq!(outcome.is_ok(), is_paused, "{wait}, read {number}: {outcome:?}");
                assert_eq!(is_paused, number > 1, "{wait}, read {number}");
            }
        }
    }

    #[tokio::test]
    async fn pause_that_may_stand_is_not_called_refused() {
        let clock = MockClock::new();
        let inspector = {
            let clock = Arc::new(clock.clone());
            let storage = ElectionsTtlStorage::new(MemDatabase::new(clock.clone()).open());
            StorageInspector::on_storage(storage, "a", clock)
        };
        let full = || Err::<(), _>(WriteError::NotApplied("full".into()));
        for (first, status) in
            [(full(), exit::STORAGE), (Err(WriteError::Unknown("no answer".into())), exit::UNFINISHED)]
        {
            let mut answers = [first].into_iter().chain(repeat_with(full));
            let refusal = tokio::select! {
                refusal = with_retries(&inspector, async || answers.next().unwrap()) => refusal.unwrap_err(),
                () = async {
                    loop {
                        tokio::task::yield_now().await;
                        clock.advance(RETRY_PAUSE);
                    }
                } => unreachable!(),
            };
            assert!(matches!(refusal, InspectionError::Status(found, _) if found == status), "{refusal}");
        }
    }

    #[tokio::test]
    async fn slot_that_could_not_be_read_stays_occupied() {
        let clock = Arc::new(SystemClock::start().unwrap());
        let beneath = Arc::new(ElectionsTtlStorage::new(MemDatabase::new(clock.clone()).open()));
        let storage = FaultyStorage::new(beneath, clock.clone());
        let key = ElectionKey { cluster: ClusterName::from("a"), slot: SlotNumber::new(NonZeroU32::MIN) };
        storage.fail_next(Verb::Get, Fault::NotApplied);
        let mut occupied = OccupiedSlots(Some(vec![(key, Observation::default())]));
        let refusal = occupied.look(&storage, &*clock).await.unwrap_err();
        assert!(!occupied.is_clear());
        assert_eq!(occupied.leaders(Some(&refusal)), refusal.to_string());
        occupied.look(&storage, &*clock).await.unwrap();
        assert!(occupied.is_clear());
    }

    #[tokio::test]
    async fn pause_that_was_resumed_before_any_of_its_reads_is_no_success() {
        let args = parsed(&["--storage", "sqlite:x.db", "--name", "a", "--local-dir", "none"]);
        for number in 3..=6 {
            let clock = Arc::new(SystemClock::start().unwrap());
            let beneath: Arc<dyn SysVvmStorage> = MemDatabase::new(clock.clone()).open();
            let storage = ElectionsTtlStorage::new(Arc::clone(&beneath));
            let cluster = ClusterName::from("a");
            storage.settle_slot_count(&cluster, NonZeroU32::MIN).await.unwrap();
            let resume = async move {
                let pause = storage.standing_pause(&cluster).await?.expect("it is paused");
                assert!(storage.resume(&cluster, &pause).await.unwrap());
                Ok(())
            };
            let resumed = Interrupted::at(number, beneath, resume);
            let inspector = StorageInspector::on_storage(resumed, "a", clock);
            let outcome = pause_and_wait(&inspector, &args).await;
            assert_eq!(outcome.is_ok(), number > 5, "read {number}: {outcome:?}");
        }
    }

    #[tokio::test]
    async fn record_of_unknown_age_is_a_leader_until_it_has_stood_for_its_ttl() {
        let clock = MockClock::new();
        let key = ElectionKey { cluster: ClusterName::from("a"), slot: SlotNumber::new(NonZeroU32::MIN) };
        let leader = record("b", 1, 1);
        let (ttl, slot) = (leader.ttl.get(), Slot::Held { entry: leader, proven_age: None });
        let mut storage = MockTtlStorage::new();
        storage.expect_get().returning(move |_| Ok(slot.clone()));
        let mut occupied = OccupiedSlots(Some(vec![(key, Observation::default())]));
        for (passes, is_clear) in [(0, false), (1, false), (1, true)] {
            clock.advance(ttl / 2 * passes);
            occupied.look(&storage, &clock).await.unwrap();
            assert_eq!(occupied.is_clear(), is_clear);
        }
    }
}
