//! `--storage URL`: the cost of elections on one storage, beside its bare statements. Each part has new slots in a
//! cluster named after this run. Their rows stay behind, released.

mod bare;
mod held;

use crate::{
    report::{Failure, Figure, Unit},
    setup::{Deadline, LEADERS, REFUSED, Scene},
};
use bare::{BareStatements, Verb};
use futures_util::future::try_join_all;
use ielections::{
    BatchOutcome, DocumentId, DocumentStorage as _, DocumentVersion, DocumentWrite, Entry, Fence, OnlyIf,
    ReleaseOutcome, Swap, Ttl, TtlStorage, Version,
};
use std::{num::NonZeroU32, time::Duration};
use vvm_clock::{Instant, SystemClock};
use vvm_storage::{ClusterName, ElectionKey};

pub(crate) fn measure(url: &str, quick: bool) -> Result<Vec<Figure>, Failure> {
    on(url, async |scene| {
        let mut bare = bare::open(url).await?;
        let mut figures = measure_verbs(scene, url, bare.as_deref_mut(), quick).await?;
        figures.extend(measure_renewals(scene, bare.as_deref_mut(), quick).await?);
        Ok(figures)
    })
}

/// Measures documents a second of one leader alone, which writes one batch after the other and does not renew.
pub(crate) fn measure_documents(url: &str, quick: bool) -> Result<Vec<Figure>, Failure> {
    on(url, async |scene| {
        if TtlStorage::documents(&*scene.storage).is_none() {
            return Err("this storage keeps no documents".into());
        }
        let leader = Leader::claim(scene, scene.key(0)).await?;
        let (mut last, mut batches) = (DocumentVersion::NONE, Vec::new());
        let began = SystemClock::read();
        let until = began.after(Duration::from_secs(if quick { 1 } else { 10 }));
        while SystemClock::read() < until {
            let (written, micros) = timed(leader.write_batch(last)).await;
            last = written?;
            batches.push(micros / 1e3);
        }
        let rate = per_second(batches.len() * BATCH as usize, began);
        leader.release().await?;
        let name = |what| format!("one leader writing batches of {BATCH}: {what}");
        Ok(vec![
            Figure::new(name("documents"), Unit::PerSecond, vec![rate]),
            Figure::new(name("each batch"), Unit::Milliseconds, batches),
        ])
    })
}

pub(crate) fn measure_held(url: &str, names: u32, quick: bool) -> Result<Vec<Figure>, Failure> {
    on(url, async |scene| held::measure(scene, names, quick).await)
}

pub(crate) fn measure_sqlite_verbs(quick: bool) -> Result<Vec<Figure>, Failure> {
    let folder = tempfile::tempdir()?;
    let url = format!("sqlite:{}?allow=overlay", folder.path().join("ours.db").display());
    on(&url, async |scene| measure_verbs(scene, &url, bare::open(&url).await?.as_deref_mut(), quick).await)
}

fn on(
    url: &str,
    measure: impl AsyncFnOnce(&Scene) -> Result<Vec<Figure>, Failure>,
) -> Result<Vec<Figure>, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        vvm_storage::init_storage(url).await?;
        let run = format!("bench-{}-{}", std::process::id(), SystemClock::read().as_nanos());
        let scene = Scene::open(url, &run, Deadline::Ignored).await?;
        let figures = measure(&scene).await?;
        scene.storage.close().await;
        Ok(figures)
    })
}

/// Microseconds of one acquisition, one renewal and one release.
type Sample = [f64; 3];

/// Measures one acquisition, one renewal and one release, each beside its bare statement if there is one, by turns.
/// Acquisition and release go through an engine, renewal through [`TtlStorage`], since an engine renews when it is due.
/// An acquisition reads before it writes; the bare statement is the write alone.
async fn measure_verbs(
    scene: &Scene,
    url: &str,
    mut bare: Option<&mut (dyn BareStatements + 'static)>,
    quick: bool,
) -> Result<Vec<Figure>, Failure> {
    // The first rounds fill caches and prepare statements.
    const WARM_UP: u32 = 3;
    let rounds = if quick { 20 } else { 400 };
    // With its slot count settled, as by `vvm run`.
    let cluster = ClusterName::from(format!("{}-settled", scene.cluster).as_str());
    let count = NonZeroU32::MIN.saturating_add(WARM_UP + rounds - 1);
    scene.storage.settle_slot_count(&cluster, count).await?;
    let scene = &Scene { cluster, ..scene.clone() };
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..WARM_UP + rounds {
        let our = through_elections(scene, round).await?;
        let their = match &mut bare {
            Some(bare) => Some(directly(&mut **bare, round).await?),
            None => None,
        };
        if round >= WARM_UP {
            ours.push(our);
            theirs.extend(their);
        }
    }
    scene.elections.cleanup().await;
    Ok(figures_of_verbs(url.split(':').next().unwrap_or_default(), &ours, &theirs))
}

fn figures_of_verbs(scheme: &str, ours: &[Sample], theirs: &[Sample]) -> Vec<Figure> {
    let mut figures = Vec::new();
    for (index, verb) in ["acquire", "renew", "release"].into_iter().enumerate() {
        let of = |samples: &[Sample]| samples.iter().map(|sample| sample[index]).collect::<Vec<f64>>();
        let (our, their) = (of(ours), of(theirs));
        let ratios = our.iter().zip(&their).map(|(our, their)| our / their).collect();
        figures.push(Figure::new(format!("{verb} on {scheme}"), Unit::Microseconds, our));
        if their.is_empty() {
            continue;
        }
        figures.push(Figure::new(format!("{verb}, the bare statement"), Unit::Microseconds, their));
        figures.push(Figure::new(format!("{verb}, ratio of each pair"), Unit::Ratio, ratios));
    }
    figures
}

async fn through_elections(scene: &Scene, slot: u32) -> Result<Sample, Failure> {
    let key = scene.key(slot);
    let (won, acquire) = timed(scene.acquire(key.clone(), Ttl::DEFAULT)).await;
    let leadership = won?;
    let held = scene.storage.get(&key).await?.entry().cloned().ok_or(REFUSED)?;
    let renewed = held.renewed(held.version.next());
    let (swap, renew) = timed(scene.storage.compare_and_swap(&key, &held, &renewed)).await;
    if swap? != Swap::Swapped {
        return Err(REFUSED.into());
    }
    match timed(leadership.release()).await {
        (ReleaseOutcome::Released, release) => Ok([acquire, renew, release]),
        (other, _) => Err(format!("a record was not released: {other}").into()),
    }
}

async fn directly(bare: &mut dyn BareStatements, slot: u32) -> Result<Sample, Failure> {
    let mut sample = [0.0; 3];
    for (verb, micros) in [Verb::Claim, Verb::Renew(1), Verb::Release].into_iter().zip(&mut sample) {
        let (sent, took) = timed(bare.send(slot, verb)).await;
        sent?;
        *micros = took;
    }
    Ok(sample)
}

async fn timed<T>(call: impl Future<Output = T>) -> (T, f64) {
    let began = SystemClock::read();
    let outcome = call.await;
    (outcome, began.until(SystemClock::read()).as_secs_f64() * 1e6)
}

const BATCH: u32 = 32;

const BODY: [u8; 256] = [b'x'; 256];

struct Leader<'scene> {
    scene: &'scene Scene,
    key: ElectionKey,
    held: Entry,
    /// The last entry that it tried to write.
    version: Version,
}

impl<'scene> Leader<'scene> {
    async fn claim(scene: &'scene Scene, key: ElectionKey) -> Result<Self, Failure> {
        let held = scene.claim(&key, Ttl::DEFAULT).await?;
        Ok(Self { scene, key, version: held.version, held })
    }

    /// Renews. Returns the milliseconds taken; `None` if not confirmed. The next one continues from what a read shows.
    async fn renew(&mut self) -> Result<Option<f64>, Failure> {
        let began = self.scene.clock.now();
        self.version = self.version.next();
        let renewed = self.held.renewed(self.version);
        match self.scene.storage.compare_and_swap(&self.key, &self.held, &renewed).await {
            Ok(Swap::Swapped) => {
                self.held = renewed;
                Ok(Some(began.until(self.scene.clock.now()).as_secs_f64() * 1e3))
            }
            // An unanswered renewal may have written this.
            Ok(Swap::Mismatch(_)) | Err(_) => {
                let stands = self.scene.storage.get(&self.key).await?;
                self.held = stands.entry().cloned().ok_or(REFUSED)?;
                Ok(None)
            }
        }
    }

    /// Replaces the next documents, of which there are 1,024, in turn.
    async fn write_batch(&self, after: DocumentVersion) -> Result<DocumentVersion, Failure> {
        let first = (after.get() as u32).wrapping_mul(BATCH) % 1024;
        let put = |number: u32| {
            let id = DocumentId::new(number.to_be_bytes().to_vec())?;
            Ok(DocumentWrite::Put { id, body: BODY.to_vec().into(), only_if: OnlyIf::Always })
        };
        let batch = (first..first + BATCH).map(put).collect::<Result<Vec<_>, Failure>>()?;
        let fence = Fence { epoch: self.held.epoch, incarnation: self.held.incarnation(), after };
        match self.scene.storage.write_documents(&self.key, &fence, &batch).await? {
            BatchOutcome::Written => Ok(after.next()),
            BatchOutcome::Refused => Err(REFUSED.into()),
        }
    }

    async fn release(&self) -> Result<(), Failure> {
        let Entry { version, epoch, .. } = &self.held;
        self.scene.storage.compare_and_delete(&self.key, version.incarnation, *epoch).await?;
        Ok(())
    }
}

/// Measures renewals a second of 64 leaders that renew as fast as they can, and how many were not confirmed. For some
/// drivers, beside 64 bare writers by turns.
async fn measure_renewals(
    scene: &Scene,
    mut bare: Option<&mut (dyn BareStatements + 'static)>,
    quick: bool,
) -> Result<Vec<Figure>, Failure> {
    // Short turns, so that other load and the server's own work hit both sides alike.
    let (turns, span) = if quick { (2, Duration::from_secs(1)) } else { (20, Duration::from_secs(2)) };
    let slots = 10_000..10_000 + LEADERS;
    let mut leaders = Vec::new();
    for slot in slots.clone() {
        leaders.push(Leader::claim(scene, scene.key(slot)).await?);
    }
    let mut writers = Vec::new();
    for slot in slots {
        let Some(bare) = &mut bare else { break };
        let Some(mut statements) = bare.another().await? else { break };
        statements.send(slot, Verb::Claim).await?;
        writers.push(BareWriter { statements, slot, writes: 0 });
    }
    let (mut rates, mut renewals, mut shares) = (Vec::new(), Vec::new(), Vec::new());
    let (mut bare_rates, mut bare_writes) = (Vec::new(), Vec::new());
    // A server is slow in its first seconds, and our connections are opened then: the first turn warms up.
    for turn in 0..=turns {
        let bare_begins = turn % 2 == 0;
        let before = if bare_begins { Some(write_bare(&mut writers, span).await?) } else { None };
        let began = SystemClock::read();
        let until = began.after(span);
        let found = try_join_all(leaders.iter_mut().map(|leader| renew(leader, until))).await?;
        let rate = per_second(found.iter().flatten().flatten().count(), began);
        let (bare_rate, writes) = match before {
            Some(before) => before,
            None => write_bare(&mut writers, span).await?,
        };
        if turn == 0 {
            continue;
        }
        if !writes.is_empty() {
            shares.push(rate / bare_rate);
            bare_rates.push(bare_rate);
        }
        rates.push(rate);
        renewals.extend(found.into_iter().flatten());
        bare_writes.extend(writes);
    }
    for leader in &leaders {
        leader.release().await?;
    }
    let confirmed: Vec<f64> = renewals.iter().copied().flatten().collect();
    let unconfirmed = (renewals.len() - confirmed.len()) as f64;
    let name = |what| format!("{LEADERS} leaders at once: {what}");
    let mut beside_bare = Vec::new();
    if !shares.is_empty() {
        beside_bare.push(Figure::new(format!("{LEADERS} bare writers at once"), Unit::PerSecond, bare_rates));
        beside_bare.push(Figure::new(
            format!("{LEADERS} bare writers at once: each write"),
            Unit::Milliseconds,
            bare_writes,
        ));
        beside_bare.push(Figure::new(name("share of the bare rate"), Unit::Ratio, shares));
    }
    let mut figures = vec![
        Figure::new(name("renewals"), Unit::PerSecond, rates),
        Figure::new(name("each renewal"), Unit::Milliseconds, confirmed),
        Figure::new(name("not confirmed"), Unit::Count, vec![unconfirmed]),
    ];
    figures.extend(beside_bare);
    Ok(figures)
}

async fn renew(leader: &mut Leader<'_>, until: Instant) -> Result<Vec<Option<f64>>, Failure> {
    let mut renewals = Vec::new();
    while leader.scene.clock.now() < until {
        renewals.push(leader.renew().await?);
    }
    Ok(renewals)
}

struct BareWriter {
    statements: Box<dyn BareStatements>,
    slot: u32,
    writes: u64,
}

/// Lets the bare writers renew for `span`. Returns how often a second, all of them, and the milliseconds of each write.
async fn write_bare(writers: &mut [BareWriter], span: Duration) -> Result<(f64, Vec<f64>), Failure> {
    let began = SystemClock::read();
    let until = began.after(span);
    let each = writers.iter_mut().map(async |writer: &mut BareWriter| {
        let mut millis = Vec::new();
        while SystemClock::read() < until {
            writer.writes += 1;
            let (sent, micros) = timed(writer.statements.send(writer.slot, Verb::Renew(writer.writes))).await;
            sent?;
            millis.push(micros / 1e3);
        }
        Ok::<_, Failure>(millis)
    });
    let writes: Vec<f64> = try_join_all(each).await?.into_iter().flatten().collect();
    Ok((per_second(writes.len(), began), writes))
}

fn per_second(renewals: usize, began: Instant) -> f64 {
    renewals as f64 / began.until(SystemClock::read()).as_secs_f64()
}
