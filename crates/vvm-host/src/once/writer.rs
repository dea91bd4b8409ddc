use super::{Decision, ID, Once, PastPeriod, PeriodError, Periods};
use crate::history::{end_timeout, later_ms, shortened, unix_ms};
use ielections::{
    DocumentId, DocumentReadError, DocumentWrite, DocumentWriteError, Documents, OnlyIf, ReadError, Standing,
    Timing, Ttl,
};
use std::{sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;
use vvm_clock::{Clock, Instant};
use vvm_orch::BoxError;

/// Reads and writes the periods for the leader. Each call goes on until it has succeeded, the leadership is over,
/// or the storage refuses for good (I10). The mark of a success is tried again after a refusal, too.
pub struct PeriodWriter {
    documents: Documents,
    id: DocumentId,
    once: Once,
    holder: String,
    clock: Arc<dyn Clock>,
    retry_pause: Duration,
    end_timeout: Duration,
}

/// The work that a [`PeriodWriter`] runs.
pub trait OnceWork: Sync {
    /// Waits before the attempt that follows `last`, which did not succeed and whose end is known.
    fn pause_after(&self, last: &PastPeriod) -> impl Future<Output = ()> + Send;

    /// Runs the work as attempt `number`. Nothing of it runs afterwards (I6).
    fn attempt(&self, number: u32) -> impl Future<Output = Result<AttemptEnd, BoxError>> + Send;

    /// Completes when the leader must not wait for the mark any longer.
    fn no_time_is_left(&self) -> impl Future<Output = ()> + Send;
}

/// How an attempt ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AttemptEnd {
    /// Whether the work ended before it was asked to stop. Stopped work may report success without having been done.
    pub by_itself: bool,
    /// Whether the work reports success.
    pub succeeded: bool,
    /// How it failed, for operators. `None` if nothing is noted, so that the next leader runs the work without a
    /// pause, as after the death of this one.
    pub how: Option<String>,
}

/// What a leadership did for its period.
#[derive(Debug)]
pub enum PeriodOutcome {
    /// Nothing, by this decision, which is no [`Decision::Run`].
    Nothing(Decision),
    /// Nothing, because it was stopped. An attempt may have been counted.
    Stopped,
    /// The work could not be started. The attempt was counted.
    NotStarted(BoxError),
    /// The work did not succeed.
    Failed {
        /// The number of the attempt.
        attempt: u32,
    },
    /// The work has succeeded, and the period is marked as done.
    Marked,
    /// The work has succeeded, and the period may not be marked as done.
    NotMarked {
        /// The number of the attempt.
        attempt: u32,
        /// Why it may not be.
        why: String,
    },
}

#[derive(Clone, Debug)]
struct CountedAttempt {
    periods: Periods,
    number: u32,
    began: Instant,
}

impl PeriodWriter {
    /// Writes under `standing`, whose TTL is `ttl`. Fails if the storage has no documents.
    pub fn new(
        standing: &Standing,
        holder: &str,
        clock: &Arc<dyn Clock>,
        ttl: Ttl,
        once: &Once,
    ) -> Result<Self, PeriodError> {
        let (Some(documents), Ok(id)) = (standing.documents(), DocumentId::new(ID)) else {
            return Err(PeriodError::NoDocuments);
        };
        let (once, holder, clock) = (once.clone(), holder.to_owned(), Arc::clone(clock));
        let (retry_pause, end_timeout) = (Timing::new(ttl).retry_pause(), end_timeout(ttl));
        Ok(Self { documents, id, once, holder, clock, retry_pause, end_timeout })
    }

    /// Does the work if its period is not done and an attempt is left: counts the attempt, runs the work, and marks the
    /// period as done if the work has succeeded. Fails only before the work was started. Cancel safe if the work is.
    pub async fn run(
        &self,
        work: &impl OnceWork,
        stop: &CancellationToken,
    ) -> Result<PeriodOutcome, PeriodError> {
        let begun = tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(PeriodOutcome::Stopped),
            begun = self.begin(work) => begun?,
        };
        let counted = match begun {
            Ok(counted) => counted,
            Err(decision) => return Ok(PeriodOutcome::Nothing(decision)),
        };
        let attempt = counted.number;
        let ended = work.attempt(attempt).await;
        let end = match ended {
            Ok(end) => end,
            Err(refusal) => {
                self.note_end(&counted, &refusal.to_string()).await;
                return Ok(PeriodOutcome::NotStarted(refusal));
            }
        };
        if end.by_itself && end.succeeded {
            let marked = tokio::select! {
                biased;
                marked = self.mark(&counted) => marked.map_err(|error| error.to_string()),
                () = work.no_time_is_left() => Err("the storage did not confirm it in time".to_owned()),
            };
            return Ok(match marked {
                Ok(()) => PeriodOutcome::Marked,
                Err(why) => PeriodOutcome::NotMarked { attempt, why },
            });
        }
        if let Some(how) = end.how {
            self.note_end(&counted, &how).await;
        }
        Ok(PeriodOutcome::Failed { attempt })
    }

    async fn begin(&self, work: &impl OnceWork) -> Result<Result<CountedAttempt, Decision>, PeriodError> {
        // After the claim, even if it was read before: an earlier leader may have done the period meanwhile.
        let periods = self.read().await?;
        let decision = periods.decide_for(&self.once);
        let Decision::Run { attempt, last } = decision else { return Ok(Err(decision)) };
        if let Some(last) = last.filter(|last| last.end.is_some()) {
            work.pause_after(&last).await;
        }
        Ok(Ok(self.count(periods, attempt).await?))
    }

    async fn read(&self) -> Result<Periods, PeriodError> {
        let mut is_logged = false;
        loop {
            let cause = match self.documents.get(&self.id).await {
                Ok(document) => return Periods::from_document(document.as_ref()),
                Err(DocumentReadError::Storage(ReadError::Unavailable(cause))) => cause.to_string(),
                Err(DocumentReadError::Storage(refusal)) => {
                    return Err(PeriodError::Refused(refusal.to_string()));
                }
                Err(DocumentReadError::TooLarge(refusal)) => {
                    return Err(PeriodError::Refused(refusal.to_string()));
                }
                Err(over @ (DocumentReadError::Deposed { .. } | DocumentReadError::Lost(_))) => {
                    return Err(PeriodError::Over(over.to_string()));
                }
            };
            self.pause(&cause, &mut is_logged).await;
        }
    }

    /// Counts attempt `attempt`. The work may be started only after this has returned: if this process dies
    /// before, the attempt is counted or not, and if it dies after, it is.
    async fn count(&self, mut periods: Periods, attempt: u32) -> Result<CountedAttempt, PeriodError> {
        let own = PastPeriod {
            period: self.once.period.clone(),
            done: false,
            attempts: attempt,
            holder: self.holder.clone(),
            epoch: self.documents.epoch().get(),
            started_ms: unix_ms(),
            ended_ms: None,
            end: None,
        };
        periods.count(own, self.once.keep.get(), self.documents.limits().max_body_bytes);
        self.write(&periods).await?;
        Ok(CountedAttempt { periods, number: attempt, began: self.clock.now() })
    }

    /// Marks the period as done. To be called after the work has succeeded and nothing of it runs, and before the
    /// release: afterwards the fence refuses it. Goes on while this process leads, also if the storage refuses.
    async fn mark(&self, attempt: &CountedAttempt) -> Result<(), PeriodError> {
        let (marked, mut is_logged) = (self.ended(attempt, None)?, false);
        loop {
            match self.write(&marked).await {
                // An operator may correct it in time. If this gave up, the next leader would run the work again.
                Err(PeriodError::Refused(cause)) => self.pause(&cause, &mut is_logged).await,
                outcome => return outcome,
            }
        }
    }

    /// Notes how an attempt failed, for at most as long as the history may delay a release: it is counted in any case.
    async fn note_end(&self, attempt: &CountedAttempt, how: &str) {
        tokio::select! {
            biased;
            noted = async { self.write(&self.ended(attempt, Some(shortened(how)))?).await } => if let Err(refusal) = noted {
                tracing::debug!(%refusal, "the end of an attempt can't be noted");
            },
            () = self.clock.sleep(self.end_timeout) => {}
        }
    }

    fn ended(&self, attempt: &CountedAttempt, failure: Option<String>) -> Result<Periods, PeriodError> {
        let mut periods = attempt.periods.clone();
        let lasted = self.clock.now().since(attempt.began);
        let mut known = periods.periods.iter_mut();
        let own = known.find(|known| known.period == self.once.period).ok_or(PeriodError::NoEntry)?;
        own.ended_ms = Some(later_ms(own.started_ms, lasted));
        own.done = failure.is_none();
        own.end = failure;
        Ok(periods)
    }

    /// The whole document is written, so a repetition changes nothing (I7).
    async fn write(&self, periods: &Periods) -> Result<(), PeriodError> {
        let mut is_logged = false;
        loop {
            let (id, body, only_if) = (self.id.clone(), periods.body().into(), OnlyIf::Always);
            let cause = match self.documents.write(vec![DocumentWrite::Put { id, body, only_if }]).await {
                Ok(_) => return Ok(()),
                Err(DocumentWriteError::NotWritten { cause } | DocumentWriteError::Unknown { cause }) => {
                    cause
                }
                Err(over @ (DocumentWriteError::Deposed { .. } | DocumentWriteError::Lost(_))) => {
                    return Err(PeriodError::Over(over.to_string()));
                }
                Err(refusal) => return Err(PeriodError::Refused(refusal.to_string())),
            };
            self.pause(&cause, &mut is_logged).await;
        }
    }

    async fn pause(&self, cause: &str, is_logged: &mut bool) {
        if !std::mem::replace(is_logged, true) {
            let period = self.once.period.as_str();
            tracing::warn!(
                target: "vvm", event = "period_trouble", period, reason = cause,
                "period {period}: trouble with the storage: {cause}; trying again"
            );
        }
        self.clock.sleep(self.retry_pause).await;
    }
}

impl std::fmt::Debug for PeriodWriter {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("PeriodWriter").field("once", &self.once).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        once::{LEAST_KEPT, read},
        status::tests::{in_steps, key},
    };
    use ielections::{
        Candidacy, Elections, Holder, Leadership, Terms, TtlStorage as _,
        testing::{
            env,
            mock::{Fault, FaultyStorage, Verb},
        },
    };
    use parking_lot::Mutex;
    use std::num::NonZeroU32;
    use testing_time::MockClock;
    use vvm_storage::{ElectionKey, ElectionsTtlStorage, mem::MemDatabase};

    struct Scene {
        mock: MockClock,
        storage: Arc<ElectionsTtlStorage>,
        faulty: Arc<FaultyStorage<ElectionKey>>,
        leadership: Leadership,
        writer: PeriodWriter,
    }

    const TTL: Ttl = Ttl::DEFAULT;
    const STEP: Duration = Duration::from_millis(100);
    const LEFT: Duration = Duration::from_secs(10);

    impl Scene {
        async fn new() -> Self {
            let mock = MockClock::new();
            let clock: Arc<dyn Clock> = Arc::new(mock.clone());
            let storage = Arc::new(ElectionsTtlStorage::new(MemDatabase::new(Arc::clone(&clock)).open()));
            let faulty = Arc::new(FaultyStorage::new(Arc::clone(&storage) as _, Arc::clone(&clock)));
            let terms = Terms::new(Holder::new("web1").unwrap(), TTL);
            let process = Elections::new(Arc::clone(&faulty) as _, env(&mock));
            let campaign = process.acquire(Candidacy { slots: vec![key()], terms });
            let (_, leadership) = in_steps(&mock, STEP, campaign).await.unwrap();
            let (attempts, keep) = (NonZeroU32::new(2).unwrap(), LEAST_KEPT.try_into().unwrap());
            let once = Once { period: "p".into(), attempts, keep, skip_if_newer_done: false };
            let writer = PeriodWriter::new(leadership.standing(), "web1", &clock, TTL, &once).unwrap();
            Self { mock, storage, faulty, leadership, writer }
        }

        async fn run(&self, work: &impl OnceWork) -> PeriodOutcome {
            let stop = CancellationToken::new();
            in_steps(&self.mock, STEP, self.writer.run(work, &stop)).await.unwrap()
        }

        async fn stored(&self) -> Option<PastPeriod> {
            read(self.storage.documents(), &key()).await.unwrap().list().first().cloned()
        }
    }

    /// Work that ends so, after which the storage refuses so many batches, or all.
    struct Played<'a> {
        scene: &'a Scene,
        by_itself: bool,
        succeeded: bool,
        refusals: Option<usize>,
        attempts: Mutex<Vec<(u32, PastPeriod)>>,
    }

    impl<'a> Played<'a> {
        fn of(scene: &'a Scene, by_itself: bool, succeeded: bool) -> Self {
            Self { scene, by_itself, succeeded, refusals: Some(0), attempts: Mutex::default() }
        }
    }

    impl OnceWork for Played<'_> {
        async fn pause_after(&self, _last: &PastPeriod) {}

        async fn attempt(&self, number: u32) -> Result<AttemptEnd, BoxError> {
            let stored = self.scene.stored().await.expect("an attempt is counted before its work");
            self.attempts.lock().push((number, stored));
            let faulty = &self.scene.faulty;
            match self.refusals {
                Some(refusals) => {
                    (0..refusals).for_each(|_| faulty.fail_next(Verb::WriteDocuments, Fault::Fatal));
                }
                None => faulty.fail_always(Verb::WriteDocuments, Fault::Fatal),
            }
            let Self { by_itself, succeeded, .. } = *self;
            Ok(AttemptEnd { by_itself, succeeded, how: Some("it has not succeeded".into()) })
        }

        async fn no_time_is_left(&self) {
            self.scene.mock.sleep(LEFT).await;
        }
    }

    /// The last row is work that reports success because it was stopped.
    #[tokio::test]
    async fn attempt_is_counted_before_the_work_and_marked_only_after_its_own_success() {
        for (by_itself, succeeded) in [(true, true), (true, false), (false, true)] {
            let scene = Scene::new().await;
            let is_done = by_itself && succeeded;
            for number in 1..=2 {
                let work = Played::of(&scene, by_itself, succeeded);
                let settled = scene.run(&work).await;
                let stored = scene.stored().await.unwrap();
                assert_eq!(stored.done, is_done, "{settled:?}");
                let attempts = work.attempts.into_inner();
                if is_done && number == 2 {
                    assert!(matches!(settled, PeriodOutcome::Nothing(Decision::Done(_))), "{settled:?}");
                    assert!(attempts.is_empty() && stored.attempts == 1, "{attempts:?}");
                    continue;
                }
                let [(attempt, during)] = &attempts[..] else { panic!("{attempts:?}") };
                assert_eq!((*attempt, during.attempts, stored.attempts), (number, number, number));
                assert!(!during.done && during.end.is_none(), "{during:?}");
                assert_eq!(during.epoch, scene.leadership.standing().epoch().get());
            }
            let work = Played::of(&scene, true, true);
            let settled = scene.run(&work).await;
            assert!(work.attempts.lock().is_empty(), "no attempt is left: {settled:?}");
        }
    }

    /// Shows I7. The work finds its count, or does not start.
    #[tokio::test]
    async fn count_of_unknown_outcome_is_written_again_before_the_work_starts() {
        let scene = Scene::new().await;
        scene.writer.read().await.unwrap();
        for verb in [Verb::WriteDocuments, Verb::FenceState] {
            scene.faulty.fail_always(verb, Fault::LostRequest);
        }
        let work = Played::of(&scene, true, true);
        let healing = async {
            // Longer than the fate of a batch is looked for.
            scene.mock.sleep(LEFT).await;
            scene.faulty.heal();
        };
        let (settled, ()) = tokio::join!(scene.run(&work), healing);
        assert!(matches!(settled, PeriodOutcome::Marked), "{settled:?}");
    }

    #[tokio::test]
    async fn mark_of_a_success_is_tried_again_after_refusals_while_time_is_left() {
        // Pauses lie between the attempts.
        let many = (LEFT.as_nanos() / Timing::new(TTL).retry_pause().as_nanos()) as usize / 2;
        for (refusals, is_marked) in [(Some(0), true), (Some(1), true), (Some(many), true), (None, false)] {
            let scene = Scene::new().await;
            let work = Played { refusals, ..Played::of(&scene, true, true) };
            let settled = scene.run(&work).await;
            let is_right = match &settled {
                PeriodOutcome::Marked => is_marked,
                PeriodOutcome::NotMarked { .. } => !is_marked,
                _ => false,
            };
            assert!(is_right, "{refusals:?}: {settled:?}");
            assert!(scene.stored().await.is_some_and(|stored| stored.done == is_marked), "{refusals:?}");
            // A mark needs the entry of its attempt.
            let nothing = CountedAttempt { periods: Periods::default(), number: 1, began: scene.mock.now() };
            assert_eq!(scene.writer.mark(&nothing).await, Err(PeriodError::NoEntry));
        }
    }

    #[tokio::test]
    async fn failure_that_can_not_be_noted_delays_the_release_only_for_a_moment() {
        let scene = Scene::new().await;
        let counted = scene.writer.count(Periods::default(), 1).await.unwrap();
        for verb in [Verb::WriteDocuments, Verb::FenceState] {
            scene.faulty.fail_always(verb, Fault::LostRequest);
        }
        let began = scene.mock.now();
        in_steps(&scene.mock, STEP, scene.writer.note_end(&counted, "it failed")).await;
        assert_eq!(began.until(scene.mock.now()), end_timeout(TTL));
    }
}
