//! `vvm step-down`: requests that a leader hands its slot over, and reports the outcome. A request has stages
//! (`vvm_storage::Stage`), each written by comparison with the one before. So a request that this command has withdrawn
//! before the leader began will never take effect. An interrupted command withdraws too: a request left behind would be
//! granted whenever its standby starts.

use crate::{
    announce::say,
    args::{TargetArgs, WakeArgs, parse_duration, parse_holder, parse_slots},
    exit,
    inspection::{INTERVAL, InspectionError, new_ask, operate, print, slot_of},
    runtime::{Signals, ends_a_candidate},
    shown::HumanDuration,
};
use clap::Args;
use ielections::{Entry, Epoch, Holder, ReadError, Slot, Terms, Timing, Ttl, TtlStorage as _, WriteError};
use std::{collections::BTreeSet, error::Error, num::NonZeroU32, process::ExitCode, time::Duration};
use vvm_clock::Instant;
use vvm_host::operate::{Purpose, StorageInspector, read};
use vvm_storage::{ElectionKey, ElectionsTtlStorage, Stage, StageChange, StepDown};

/// How long other candidates hold back for the named standby: five polls of a standby that polls once a second.
const FIRST_CHANCE: Duration = Duration::from_secs(5);

/// How long a standby has to accept, and then the leader to begin, once it has looked.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

const MAX_HOLDERS_SHOWN: usize = 8;

/// Returns how long a standby has to accept a request to a leader with this TTL, and then the leader to begin. One that
/// hears of requests at once reads seldom: if it hears nothing any more, the longest of these intervals passes first.
fn answer_limit(ttl: Ttl) -> Duration {
    Timing::new(ttl).soonest_renewal().min(Terms::LONGEST_QUIET) + ANSWER_TIMEOUT
}

pub(crate) fn main(args: &StepDownArgs) -> ExitCode {
    operate(args.target.pair(), Purpose::ReadAndWrite, async |inspector| request(inspector, args).await)
}

/// Nothing was changed.
fn refused(why: impl ToString) -> InspectionError {
    InspectionError::new(exit::NOT_ACQUIRED, why)
}

async fn request(inspector: &StorageInspector, args: &StepDownArgs) -> Result<u8, InspectionError> {
    let StorageInspector { storage, name, cluster, .. } = inspector;
    let key = slot(inspector, args).await?;
    let slot = key.slot;
    let Slot::Held { entry: leader, .. } = storage.get(&key).await? else {
        return Err(refused(format!("no process leads {name} slot {slot}")));
    };
    if args.to.as_ref() == Some(&leader.holder) {
        return Err(refused(format!("{} leads {name} slot {slot} already", leader.holder)));
    }
    if let Some(pause) = storage.standing_pause(cluster).await? {
        let by = pause.by();
        let why = format!("{name} is paused by {by}: no standby could lead next; `vvm resume` first");
        return Err(refused(why));
    }
    let mut wait = StepDownWait::new(inspector, args, (key, leader), Signals::catch()?);
    let request = wait.ask().await?;
    inspector.wake_candidates(args.wake.local_dir.as_ref());
    wait.follow_request(&request).await.map(|()| 0)
}

async fn slot(inspector: &StorageInspector, args: &StepDownArgs) -> Result<ElectionKey, InspectionError> {
    let keys = inspector.slots().await?;
    let (name, count) = (&inspector.name, keys.len());
    if args.slot.is_none() && count > 1 {
        let why = format!("{name} has {count} slots: name one with --slot N");
        return Err(InspectionError::new(exit::MISUSE, why));
    }
    slot_of(keys, args.slot.unwrap_or(NonZeroU32::MIN), name)
}

#[derive(PartialEq, Eq, Debug)]
enum Progress {
    Stands(StepDown),
    Begun,
    Replaced,
    Lost,
}

/// Reads the slot first: if the request led to the end of the leadership, a later read shows that it has begun.
async fn progress(
    storage: &ElectionsTtlStorage,
    key: &ElectionKey,
    leader: Epoch,
    request: &StepDown,
) -> Result<Progress, ReadError> {
    let slot = storage.get(key).await?;
    let found = storage.requests(&key.cluster).await?.step_down;
    Ok(match found.filter(|found| found.incarnation() == request.incarnation()) {
        None => Progress::Replaced,
        Some(found) if found.stage == Stage::Begun => Progress::Begun,
        Some(_) if slot.last_epoch() != Some(leader) => Progress::Lost,
        Some(found) => Progress::Stands(found),
    })
}

struct StepDownWait<'a> {
    inspector: &'a StorageInspector,
    args: &'a StepDownArgs,
    key: ElectionKey,
    leader: Entry,
    began: Instant,
    give_up_at: Instant,
    signals: Signals,
    interrupted: bool,
}

impl<'a> StepDownWait<'a> {
    fn new(
        inspector: &'a StorageInspector,
        args: &'a StepDownArgs,
        (key, leader): (ElectionKey, Entry),
        signals: Signals,
    ) -> Self {
        let began = inspector.clock.now();
        let give_up_at = began.after(args.timeout);
        Self { inspector, args, key, leader, began, give_up_at, signals, interrupted: false }
    }

    /// Makes the request, and looks for it if the write had no answer (I7).
    async fn ask(&mut self) -> Result<StepDown, InspectionError> {
        let StorageInspector { storage, cluster, clock, .. } = self.inspector;
        let first_chance = Ttl::new(FIRST_CHANCE).map_err(|e| InspectionError::new(exit::MISUSE, e))?;
        let (ask, to) = (new_ask(), self.args.to.as_ref());
        let cause = match storage.ask_step_down(&self.key, self.leader.epoch, to, first_chance, ask).await {
            Ok(StageChange::Done(request)) => return Ok(request),
            Ok(StageChange::Overtaken(_)) => {
                return Err(refused("another operator requested a step-down at the same moment"));
            }
            Err(WriteError::Unknown(cause)) => cause,
            Err(refusal) => return Err(refusal.into()),
        };
        loop {
            if let Some(found) = self.tolerate_outage(storage.requests(cluster).await)? {
                let found = found.step_down.filter(|found| found.incarnation() == ask.incarnation);
                return found.ok_or_else(|| InspectionError::unconfirmed(cause));
            }
            if self.is_interrupted() {
                return Err(InspectionError::unconfirmed(cause));
            }
            clock.sleep(INTERVAL).await;
        }
    }

    async fn follow_request(&mut self, request: &StepDown) -> Result<(), InspectionError> {
        if let Some(to) = &self.args.to {
            self.say_standby(to).await;
        }
        self.until_begun(request).await?;
        say!("{} slot {}: {} stops its work", self.inspector.name, self.key.slot, self.leader.holder);
        self.wait_for_next_leader(request).await
    }

    /// Removes a request that has no effect any more. If this fails, it does no harm.
    async fn remove(&self, request: &StepDown) {
        let StorageInspector { storage, cluster, .. } = self.inspector;
        let _ = storage.remove_step_down(cluster, request).await;
    }

    /// Names the standby that it waits for, and the holders that have led if this one never has: it may be misspelt.
    async fn say_standby(&self, to: &Holder) {
        let StorageInspector { storage, name, .. } = self.inspector;
        let mut led = BTreeSet::from([self.leader.holder.to_string()]);
        let past = read(storage, &self.key).await.unwrap_or_default();
        led.extend(past.into_iter().map(|past| past.holder));
        let hint = if led.contains(to.as_str()) {
            String::new()
        } else {
            let shown: Vec<_> = led.iter().take(MAX_HOLDERS_SHOWN).map(String::as_str).collect();
            let more = if led.len() > MAX_HOLDERS_SHOWN { " and others" } else { "" };
            format!(". It is not among the last leaders of this slot: {}{more}", shown.join(", "))
        };
        let answer = HumanDuration(answer_limit(self.leader.ttl).min(self.args.timeout));
        say!("{name} slot {}: waiting up to {answer} for standby {to} to accept{hint}", self.key.slot);
    }

    async fn until_begun(&mut self, request: &StepDown) -> Result<(), InspectionError> {
        let StorageInspector { storage, clock, .. } = self.inspector;
        let give_up_at = self.give_up_at;
        let within = |answer| clock.now().after(answer).min(give_up_at);
        let (mut deadline, mut stands) = (within(answer_limit(self.leader.ttl)), request.clone());
        loop {
            match self.tolerate_outage(progress(storage, &self.key, self.leader.epoch, request).await)? {
                Some(Progress::Begun) => return Ok(()),
                Some(Progress::Replaced) => {
                    let why = "another operator replaced the request by another step-down";
                    return Err(InspectionError::new(exit::UNFINISHED, why));
                }
                Some(Progress::Lost) => {
                    self.remove(request).await;
                    let leader = &self.leader.holder;
                    return Err(refused(format!("{leader} lost the slot before it began to step down")));
                }
                // The leader withdrew it after its lifetime, or a withdrawal had no answer.
                Some(Progress::Stands(found)) if found.stage == Stage::Withdrawn => {
                    self.remove(request).await;
                    return Err(self.withdrawn(stands.stage).await);
                }
                Some(Progress::Stands(found)) => {
                    if found.stage > stands.stage {
                        deadline = within(answer_limit(self.leader.ttl));
                    }
                    stands = found;
                }
                None => {}
            }
            if self.is_interrupted() || clock.now() >= deadline {
                if self.withdraw(&stands).await? {
                    return Err(self.withdrawn(stands.stage).await);
                }
                // The leader was faster, or the outcome is unknown: the next look shows it.
                deadline = clock.now().after(ANSWER_TIMEOUT);
            }
            clock.sleep(INTERVAL).await;
        }
    }

    async fn withdraw(&self, stands: &StepDown) -> Result<bool, InspectionError> {
        let StorageInspector { storage, cluster, .. } = self.inspector;
        match storage.advance_step_down(cluster, stands, Stage::Withdrawn).await {
            Ok(StageChange::Done(withdrawn)) => {
                self.remove(&withdrawn).await;
                Ok(true)
            }
            Ok(StageChange::Overtaken(_)) => Ok(false),
            Err(WriteError::NotApplied(_) | WriteError::Unknown(_)) if self.has_time() => Ok(false),
            Err(refusal) => {
                let why = format!("the request can't be withdrawn: {refusal}");
                Err(InspectionError::new(exit::UNFINISHED, why))
            }
        }
    }

    async fn withdrawn(&self, stage: Stage) -> InspectionError {
        if self.interrupted {
            let leader = &self.leader.holder;
            return refused(format!("withdrawn, so nothing was changed: {leader} leads on"));
        }
        self.unanswered(stage).await
    }

    async fn unanswered(&self, stage: Stage) -> InspectionError {
        let StorageInspector { storage, name, clock, .. } = self.inspector;
        let (leader, waited) = (&self.leader.holder, self.began.until(clock.now()));
        let ttl = self.leader.ttl.get();
        let is_silent = waited >= ttl / 4 + ttl / 10
            && storage
                .get(&self.key)
                .await
                .is_ok_and(|slot| slot.entry().is_some_and(|now| now.is_same_write(&self.leader)));
        let state = if is_silent {
            "has not renewed meanwhile, and may be dead: see `vvm status`"
        } else {
            "leads on"
        };
        let unchanged = format!("within {}, so nothing was changed: {leader} {state}", HumanDuration(waited));
        let limit = answer_limit(self.leader.ttl);
        if self.args.timeout < limit {
            let limit = HumanDuration(limit);
            return refused(format!("no answer {unchanged}. It may take {limit}: choose a longer --timeout"));
        }
        if stage > Stage::Asked {
            let why = "It is dead or hangs, or ignores such requests";
            return refused(format!("{leader} did not answer {unchanged}. {why}"));
        }
        let Some(to) = &self.args.to else {
            let way_out = "Start one first; an app of vvm run --warm must be ready";
            return refused(format!("no standby answered {unchanged}. {way_out}"));
        };
        let keys = self.inspector.slots().await.unwrap_or_default();
        let slots = storage.scan(&keys).await.unwrap_or_default();
        let leads = |slot: &Slot| slot.entry().is_some_and(|entry| entry.holder == *to);
        let hint = match keys.iter().zip(&slots).find(|(_, slot)| leads(slot)) {
            Some((key, _)) => format!("{to} leads {name} slot {}: name a standby", key.slot),
            None => format!("Was it started with --holder {to}? An app of vvm run --warm must be ready"),
        };
        refused(format!("standby {to} did not answer {unchanged}. {hint}"))
    }

    /// If it gives up, the request stays: others defer to the standby until the next leadership.
    async fn wait_for_next_leader(&mut self, request: &StepDown) -> Result<(), InspectionError> {
        let StorageInspector { storage, name, clock, .. } = self.inspector;
        let slot = self.key.slot;
        let mut released_at = None;
        loop {
            let found = self.tolerate_outage(storage.get(&self.key).await)?;
            let now = clock.now();
            match found {
                Some(Slot::Held { entry, .. }) if entry.epoch != self.leader.epoch => {
                    self.remove(request).await;
                    return self.report_next_leader(&entry, now, released_at.unwrap_or(now));
                }
                Some(Slot::Vacant(_)) => {
                    released_at.get_or_insert(now);
                }
                Some(Slot::Held { .. }) | None => {}
            }
            if now >= self.give_up_at || self.is_interrupted() {
                let (holder, after) = (&self.leader.holder, HumanDuration(self.began.until(now)));
                let why = match released_at {
                    None => format!("{name} slot {slot}: after {after} {holder} still stops its work"),
                    Some(_) => format!("{name} slot {slot}: released, but after {after} no process leads it"),
                };
                return Err(InspectionError::new(exit::UNFINISHED, why));
            }
            clock.sleep(INTERVAL).await;
        }
    }

    fn report_next_leader(
        &self,
        next: &Entry,
        now: Instant,
        released_at: Instant,
    ) -> Result<(), InspectionError> {
        let (name, slot) = (&self.inspector.name, self.key.slot);
        let (took, gap) = (HumanDuration(self.began.until(now)), HumanDuration(released_at.until(now)));
        let Entry { holder, epoch, .. } = next;
        let line = format!("{holder} leads slot {slot} now, epoch {epoch}");
        let missed = match &self.args.to {
            Some(to) if to != holder => format!("{to} had the first chance and did not take it"),
            None if *holder == self.leader.holder => "no standby of another holder came forward".to_owned(),
            Some(_) | None => {
                print(self.inspector, format_args!("{line}, after {took} ({gap} after the release)"));
                return Ok(());
            }
        };
        Err(InspectionError::new(exit::UNFINISHED, format!("{name}: {missed}: {line}, after {took}")))
    }

    fn tolerate_outage<T>(&self, outcome: Result<T, ReadError>) -> Result<Option<T>, InspectionError> {
        match outcome {
            Ok(found) => Ok(Some(found)),
            Err(ReadError::Unavailable(_)) if self.has_time() => Ok(None),
            Err(refusal) => Err(InspectionError::unconfirmed(refusal)),
        }
    }

    fn is_interrupted(&mut self) -> bool {
        let caught = self.signals.pending().unwrap_or_default();
        self.interrupted |= caught.iter().any(|caught| ends_a_candidate(caught.signal));
        self.interrupted
    }

    fn has_time(&self) -> bool {
        self.inspector.clock.now() < self.give_up_at
    }
}

/// Ask a leader to hand its slot over, to a given standby or to any.
///
/// A standby accepts first: the one named by --to, or any. Then the leader stops its command as on TERM,
/// releases the slot, and becomes a standby. The other candidates hold back for 5 s, so that the standby
/// named by --to comes first. Without --to, only the old leader holds back. If no standby answers, or the
/// leader does not, the request is withdrawn and nothing has changed.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Example:
  vvm step-down --storage sqlite:/var/lib/payroll/leader.db --name payroll --to machine-2

Exit status: 0 done; 75 refused, nothing has changed; 76 the leader stepped
down, or may yet, but the requested state is not reached; 64 wrong arguments;
66 no such storage or name; 69 the storage refused; 71 the system refused")]
pub(crate) struct StepDownArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// The slot; required if there are several
    #[arg(long, value_name = "N", value_parser = parse_slots)]
    pub(crate) slot: Option<NonZeroU32>,
    /// The next leader: the --holder of a standby
    #[arg(long, value_name = "HOLDER", value_parser = parse_to)]
    pub(crate) to: Option<Holder>,
    #[command(flatten)]
    pub(crate) wake: WakeArgs,
    /// How long to wait for the next leader
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = parse_duration)]
    pub(crate) timeout: Duration,
}

fn parse_to(text: &str) -> Result<Holder, Box<dyn Error + Send + Sync>> {
    let to = parse_holder(text)?;
    if to.as_str().len() > StepDown::MAX_TO_BYTES {
        return Err(format!("write at most {} bytes", StepDown::MAX_TO_BYTES).into());
    }
    Ok(to)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{args::tests::parsed, inspection::tests::Interrupted, liveness::tests::record};
    use async_trait::async_trait;
    use std::{num::NonZeroU32, sync::Arc};
    use testing_time::MockClock;
    use vvm_clock::{Clock, SystemClock};
    use vvm_storage::{
        ClusterName, Partition, SlotNumber, Step, StepOutcome, SysVvmStorage, mem::MemDatabase,
        testing::Layer,
    };

    #[derive(Debug)]
    struct Unanswered(Arc<dyn SysVvmStorage>, bool);

    #[async_trait]
    impl Layer for Unanswered {
        fn beneath(&self) -> &dyn SysVvmStorage {
            &*self.0
        }

        async fn commit(&self, at: Partition, step: Step) -> Result<StepOutcome, WriteError> {
            if self.1 {
                self.0.commit(at, step).await?;
            }
            Err(WriteError::Unknown("no answer".into()))
        }
    }

    #[tokio::test]
    async fn request_without_an_answer_is_followed_if_it_stands_and_may_stand_otherwise() {
        for is_applied in [true, false] {
            let clock: Arc<dyn Clock> = Arc::new(MockClock::new());
            let beneath = MemDatabase::new(Arc::clone(&clock)).open();
            let storage = ElectionsTtlStorage::new(Arc::new(Unanswered(beneath, is_applied)).into_storage());
            let inspector = StorageInspector::on_storage(storage, "a", clock);
            let key = ElectionKey { cluster: inspector.cluster.clone(), slot: SlotNumber::FIRST };
            let args: StepDownArgs = parsed(&["--storage", "sqlite:x.db", "--name", "a"]);
            let leader = (key, record("former", 1, 1));
            let asked =
                StepDownWait::new(&inspector, &args, leader, Signals::of_children().unwrap()).ask().await;
            match asked {
                Ok(request) => assert!(is_applied && request.stage == Stage::Asked),
                Err(refusal) => {
                    let is_unfinished = matches!(refusal, InspectionError::Status(exit::UNFINISHED, _));
                    assert!(!is_applied && is_unfinished, "{refusal}");
                }
            }
        }
    }

    #[tokio::test]
    async fn handover_before_any_of_the_reads_is_never_a_loss() {
        for number in 1..=4 {
            let clock = Arc::new(SystemClock::start().unwrap());
            let beneath: Arc<dyn SysVvmStorage> = MemDatabase::new(clock).open();
            let storage = Arc::new(ElectionsTtlStorage::new(Arc::clone(&beneath)));
            let key = ElectionKey { cluster: ClusterName::from("a"), slot: SlotNumber::new(NonZeroU32::MIN) };
            let (former, next) = (record("former", 1, 1), record("next", 2, 1));
            storage.insert_if_not_exist(&key, Default::default(), &former).await.unwrap();
            let asked = storage.ask_step_down(&key, former.epoch, None, Ttl::DEFAULT, new_ask()).await;
            let Ok(StageChange::Done(request)) = asked else { panic!("{asked:?}") };
            let (of, at, stands, leader) = (storage, key.clone(), request.clone(), former.clone());
            let handover = async move {
                of.advance_step_down(&at.cluster, &stands, Stage::Begun).await.unwrap();
                of.compare_and_delete(&at, leader.incarnation(), leader.epoch).await.unwrap();
                let vacant = ielections::Vacant { last_epoch: Some(leader.epoch) };
                of.insert_if_not_exist(&at, vacant, &next).await.unwrap();
                Ok(())
            };
            let storage = Interrupted::at(number, beneath, handover);
            let found = progress(&storage, &key, former.epoch, &request).await.unwrap();
            // Three reads: a hand-over after them is seen by the next look.
            let expected = if number < 4 { Progress::Begun } else { Progress::Stands(request) };
            assert_eq!(found, expected, "before read {number}");
        }
    }

    #[tokio::test]
    async fn only_a_leader_that_has_renewed_meanwhile_is_said_to_lead_on() {
        for (write, said) in
            [(1, "former has not renewed meanwhile, and may be dead"), (2, "former leads on")]
        {
            let clock = MockClock::new();
            let time: Arc<dyn Clock> = Arc::new(clock.clone());
            let storage = ElectionsTtlStorage::new(MemDatabase::new(Arc::clone(&time)).open());
            let inspector = StorageInspector::on_storage(storage, "a", time);
            let key = ElectionKey { cluster: inspector.cluster.clone(), slot: SlotNumber::FIRST };
            let shown = record("former", 1, write);
            inspector.storage.insert_if_not_exist(&key, Default::default(), &shown).await.unwrap();
            let args: StepDownArgs = parsed(&["--storage", "sqlite:x.db", "--name", "a"]);
            let leader = (key, record("former", 1, 1));
            let waited = StepDownWait::new(&inspector, &args, leader, Signals::of_children().unwrap());
            clock.advance(answer_limit(shown.ttl));
            let refusal = waited.unanswered(Stage::Asked).await.to_string();
            assert!(refusal.contains(said), "{write}: {refusal}");
        }
    }

    #[tokio::test]
    async fn standby_that_looks_after_the_longest_interval_answers_in_time() {
        let clock = MockClock::new();
        let time: Arc<dyn Clock> = Arc::new(clock.clone());
        let storage = ElectionsTtlStorage::new(MemDatabase::new(Arc::clone(&time)).open());
        let inspector = StorageInspector::on_storage(storage, "a", time);
        let StorageInspector { storage, cluster, .. } = &inspector;
        let key = ElectionKey { cluster: cluster.clone(), slot: SlotNumber::FIRST };
        let ttl = Ttl::new(Duration::from_secs(3600)).unwrap();
        let leader = Entry { ttl, ..record("former", 1, 1) };
        storage.insert_if_not_exist(&key, Default::default(), &leader).await.unwrap();
        let asked = storage.ask_step_down(&key, leader.epoch, None, Ttl::DEFAULT, new_ask()).await;
        let Ok(StageChange::Done(request)) = asked else { panic!("{asked:?}") };
        let args: StepDownArgs = parsed(&["--storage", "sqlite:x.db", "--name", "a"]);
        let signals = Signals::of_children().unwrap();
        let mut requested = StepDownWait::new(&inspector, &args, (key, leader), signals);
        let answering = async {
            clock.sleep(Terms::LONGEST_QUIET).await;
            let accepted = storage.advance_step_down(cluster, &request, Stage::Accepted).await;
            let Ok(StageChange::Done(accepted)) = accepted else { panic!("{accepted:?}") };
            storage.advance_step_down(cluster, &accepted, Stage::Begun).await.unwrap();
        };
        let time_passes = async {
            loop {
                tokio::task::yield_now().await;
                clock.advance(INTERVAL);
            }
        };
        tokio::select! {
            biased;
            (begun, ()) = async { tokio::join!(requested.until_begun(&request), answering) } => begun.unwrap(),
            () = time_passes => {}
        }
    }

    #[tokio::test]
    async fn request_that_is_found_withdrawn_ends_as_one_without_an_answer() {
        for (by_leader, interrupted) in [(true, false), (false, false), (false, true)] {
            let clock = MockClock::new();
            let time: Arc<dyn Clock> = Arc::new(clock.clone());
            let beneath = MemDatabase::new(Arc::clone(&time)).open();
            let storage = ElectionsTtlStorage::new(Arc::clone(&beneath) as _);
            let key = ElectionKey { cluster: ClusterName::from("a"), slot: SlotNumber::FIRST };
            let leader = record("former", 1, 1);
            storage.insert_if_not_exist(&key, Default::default(), &leader).await.unwrap();
            let asked = storage.ask_step_down(&key, leader.epoch, None, Ttl::DEFAULT, new_ask()).await;
            let Ok(StageChange::Done(request)) = asked else { panic!("{asked:?}") };
            if by_leader {
                storage.advance_step_down(&key.cluster, &request, Stage::Withdrawn).await.unwrap();
            }
            let storage = ElectionsTtlStorage::new(Arc::new(Unanswered(beneath, true)).into_storage());
            let inspector = StorageInspector::on_storage(storage, "a", time);
            let args: StepDownArgs = parsed(&["--storage", "sqlite:x.db", "--name", "a"]);
            let signals = Signals::of_children().unwrap();
            let mut wait = StepDownWait::new(&inspector, &args, (key, leader), signals);
            wait.interrupted = interrupted;
            let time_passes = async {
                loop {
                    tokio::task::yield_now().await;
                    clock.advance(INTERVAL);
                }
            };
            let refusal = tokio::select! {
                biased;
                refused = wait.until_begun(&request) => refused.unwrap_err(),
                () = time_passes => unreachable!(),
            };
            let said = if interrupted { "withdrawn, so nothing was changed" } else { "no standby answered" };
            assert!(refusal.to_string().starts_with(said), "{by_leader}: {refusal}");
            assert!(matches!(refusal, InspectionError::Status(exit::NOT_ACQUIRED, _)));
        }
    }

    #[tokio::test]
    async fn withdrawal_without_an_answer_or_behind_the_leader_is_none() {
        for (answers, has_begun) in [(true, false), (true, true), (false, false)] {
            let clock: Arc<dyn Clock> = Arc::new(MockClock::new());
            let beneath = MemDatabase::new(Arc::clone(&clock)).open();
            let storage = ElectionsTtlStorage::new(Arc::clone(&beneath) as _);
            let key = ElectionKey { cluster: ClusterName::from("a"), slot: SlotNumber::FIRST };
            let leader = record("former", 1, 1);
            let asked = storage.ask_step_down(&key, leader.epoch, None, Ttl::DEFAULT, new_ask()).await;
            let Ok(StageChange::Done(request)) = asked else { panic!("{asked:?}") };
            if has_begun {
                storage.advance_step_down(&key.cluster, &request, Stage::Begun).await.unwrap();
            }
            let storage = match answers {
                true => storage,
                false => ElectionsTtlStorage::new(Arc::new(Unanswered(beneath, false)).into_storage()),
            };
            let inspector = StorageInspector::on_storage(storage, "a", clock);
            let args: StepDownArgs = parsed(&["--storage", "sqlite:x.db", "--name", "a"]);
            let signals = Signals::of_children().unwrap();
            let wait = StepDownWait::new(&inspector, &args, (key, leader), signals);
            let is_withdrawn = wait.withdraw(&request).await.unwrap();
            assert_eq!(is_withdrawn, answers && !has_begun, "{answers}, {has_begun}");
        }
    }
}
