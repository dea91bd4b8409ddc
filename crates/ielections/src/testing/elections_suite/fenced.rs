//! Documents under real leaderships, on a storage that keeps some: what a successor finds, what a deposed
//! leader can still do (I2), and what writing costs the renewals.
//!
//! What a batch is to the storage is the document contract suite's
//! ([`document_contract`](crate::testing::document_contract)).

use super::{ElectionsTestSuite, Process, Scene};
use crate::{
    Document, DocumentId, DocumentVersion, DocumentWrite, DocumentWriteError, Documents, Leadership, Loss,
    OnlyIf, Scan,
    testing::mock::{Fault, Verb},
};
use bytes::Bytes;
use futures_util::future::join;

/// Makes one test per case for the documents of a storage: `fenced_elections_suite!(MyStorage::fresh())`,
/// beside [`elections_test_suite!`](crate::elections_test_suite), whose terms are the same.
#[macro_export]
macro_rules! fenced_elections_suite {
    ($factory:expr) => {
        $crate::elections_test_suite! {
            @tests $factory;
            successors_go_on_with_the_documents
            a_write_on_the_wire_of_a_paused_leader_is_refused
            a_deposed_leader_is_told_who_leads
            a_write_whose_answer_was_lost_is_found_once
            a_write_that_lands_late_is_found_once
            renewals_go_on_beside_writes
        }
    };
}

fn documents(leadership: &Leadership) -> Documents {
    leadership.standing().documents().expect("a storage with documents")
}

fn id(name: &'static str) -> DocumentId {
    DocumentId::new(name).unwrap()
}

fn put(name: &'static str, body: impl Into<Bytes>) -> Vec<DocumentWrite> {
    vec![DocumentWrite::Put { id: id(name), body: body.into(), only_if: OnlyIf::Always }]
}

/// All of them, and by which batch.
async fn shown(documents: &Documents) -> Vec<(Bytes, u64)> {
    let page = documents.scan(&Scan { limit: usize::MAX, ..Scan::default() }).await.unwrap();
    assert_eq!(page.next, None);
    page.documents.into_iter().map(|Document { body, version, .. }| (body, version.get())).collect()
}

/// After a release, and after a crash.
pub async fn successors_go_on_with_the_documents(scene: &Scene<impl ElectionsTestSuite>) {
    let first = scene.process().await;
    let leadership = scene.lead(&first, "first").await;
    documents(&leadership).write(put("a", "first")).await.unwrap();
    documents(&leadership).write(put("b", "first")).await.unwrap();
    leadership.release().await;

    let second = scene.process().await;
    let leadership = scene.lead(&second, "second").await;
    let standing = documents(&leadership);
    assert_eq!(shown(&standing).await, [("first".into(), 1), ("first".into(), 2)]);
    let delete =
        DocumentWrite::Delete { id: id("a"), only_if: OnlyIf::Version(DocumentVersion::from_stored(1)) };
    assert_eq!(standing.write(vec![delete]).await.unwrap().get(), 3);
    second.crash();
    drop((standing, leadership));

    let third = scene.process().await;
    let leadership = scene.lead(&third, "third").await;
    assert_eq!(shown(&documents(&leadership)).await, [("first".into(), 2)]);
    assert_eq!(documents(&leadership).write(put("b", "third")).await.unwrap().get(), 4);
    leadership.release().await;
}

/// Paused for longer than its TTL, and not ended, since deadmen only record here: a batch was sent that
/// arrives when somebody else leads, before that one's first batch or after it.
/// Shows I2.
pub async fn a_write_on_the_wire_of_a_paused_leader_is_refused(scene: &Scene<impl ElectionsTestSuite>) {
    for (number, arrives_first) in [(0, true), (1, false)] {
        let (paused, network) = scene.faulty().await;
        let lead = async |process: &Process<_>, holder: &str| {
            let candidacy = crate::Candidacy { slots: vec![scene.key(number)], terms: scene.terms(holder) };
            process.elections.acquire(candidacy).await.unwrap().1
        };
        let leadership = lead(&paused, "paused").await;
        documents(&leadership).write(put("work", "begun")).await.unwrap();
        // What it sends from here on is on the wire: renewals, and one batch.
        for verb in Verb::RECORDS.into_iter().chain(Verb::DOCUMENTS) {
            network.fail_always(verb, Fault::Hang);
        }
        let standing = documents(&leadership);
        let successor = scene.process().await;
        let (written, next) =
            join(standing.write(put("work", "of the paused one")), lead(&successor, "successor")).await;
        assert!(
            matches!(written, Err(DocumentWriteError::Lost(_) | DocumentWriteError::Unknown { .. })),
            "{written:?}"
        );
        assert!(scene.now() > leadership.standing().kill_at());
        assert_eq!(network.counts().calls[&Verb::WriteDocuments], 2);
        assert!(network.under_way() >= 2, "the batch, and a renewal at least");

        if arrives_first {
            network.land_late().await;
            assert_eq!(shown(&documents(&next)).await, [("begun".into(), 1)]);
        }
        assert_eq!(documents(&next).write(put("work", "of the next one")).await.unwrap().get(), 2);
        network.land_late().await;
        assert_eq!(network.counts().landed_late, 0);
        assert!(network.counts().refused_late >= 2, "{:?}", network.counts());
        network.heal();
        // It goes on as if nothing had been.
        let written = standing.write(put("work", "of the one that woke up")).await;
        assert!(
            matches!(written, Err(DocumentWriteError::Lost(_) | DocumentWriteError::Deposed { .. })),
            "{written:?}"
        );
        assert_eq!(shown(&documents(&next)).await, [("of the next one".into(), 2)]);
        assert!(paused.trigger.check(), "nobody would have ended it");
        leadership.release().await;
        assert_eq!(scene.slot_of(number).await.entry().map(|entry| entry.epoch), Some(next.epoch()));
        next.release().await;
    }
}

/// By the first batch that it writes, before any renewal tells; and its leadership is lost with that.
pub async fn a_deposed_leader_is_told_who_leads(scene: &Scene<impl ElectionsTestSuite>) {
    let (process, storage) = scene.faulty().await;
    let leadership = scene.lead(&process, "leader").await;
    let standing = documents(&leadership);
    standing.write(put("work", "done")).await.unwrap();
    let thief = scene.strangers(leadership.epoch());
    storage.tamper(&scene.key(0), thief.clone()).await.unwrap();
    let written = standing.write(put("work", "undone")).await;
    assert_eq!(written, Err(DocumentWriteError::Deposed { current: Some(thief.epoch) }));
    assert_eq!(leadership.lost().await, Loss::Stolen { by: Box::new(thief) });
    let read = standing.get(&id("work")).await;
    assert!(read.is_err(), "{read:?}");
    leadership.release().await;
}

/// Written once, and its caller hears of it.
pub async fn a_write_whose_answer_was_lost_is_found_once(scene: &Scene<impl ElectionsTestSuite>) {
    doubtful(scene, Fault::LostAnswer).await;
}

/// As above, although it arrives only when the first look has found nothing.
pub async fn a_write_that_lands_late_is_found_once(scene: &Scene<impl ElectionsTestSuite>) {
    doubtful(scene, Fault::Late(scene.percent(2))).await;
}

async fn doubtful(scene: &Scene<impl ElectionsTestSuite>, fault: Fault) {
    let (process, storage) = scene.faulty().await;
    let leadership = scene.lead(&process, "leader").await;
    let standing = documents(&leadership);
    for number in 1..=3 {
        storage.fail_next(Verb::WriteDocuments, fault);
        let version = standing.write(put("work", number.to_string())).await.unwrap();
        assert_eq!(version.get(), number);
        assert_eq!(shown(&standing).await, [(number.to_string().into(), number)]);
    }
    let counts = storage.counts();
    assert!(counts.lost_answers + counts.landed_late + counts.refused_late >= 3, "{counts:?}");
    leadership.release().await;
}

/// As many as the storage takes, for as long as it takes to renew a few times: no renewal is refused or lost
/// by it.
pub async fn renewals_go_on_beside_writes(scene: &Scene<impl ElectionsTestSuite>) {
    let (process, storage) = scene.faulty().await;
    let leadership = scene.lead(&process, "leader").await;
    let standing = documents(&leadership);
    let until = scene.now().after(scene.ttl.get() * 3 / 2);
    let mut written = 0;
    while scene.now() < until {
        written = standing.write(put("work", scene.now().as_nanos().to_string())).await.unwrap().get();
        assert!(leadership.standing().ensure(scene.percent(20)).is_ok(), "renewed late");
        scene.pass(scene.percent(1) / 10).await;
    }
    assert_eq!(leadership.standing().loss(), None);
    assert!(written >= 3, "{written} batches");
    let renewals = scene.slot().await.entry().unwrap().version.write;
    assert!(renewals >= 3, "{renewals} renewals");
    // A first attempt is enough, unless a test machine stands still for a tenth of the TTL.
    let attempts = storage.counts().calls[&Verb::CompareAndSwap];
    let most = if scene.suite.mock_clock().is_some() { renewals } else { renewals * 2 };
    assert!((renewals..=most).contains(&attempts), "{attempts} attempts for {renewals} renewals");
    leadership.release().await;
}
