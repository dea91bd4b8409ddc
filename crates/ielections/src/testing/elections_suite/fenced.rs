//! Documents under real leaderships: the next leader finds them, a deposed leader can't write them (I2), and renewals
//! continue beside writes. The storage side is in [`document_contract`](crate::testing::document_contract).
#![allow(missing_docs, reason = "the name of a case says what it shows")]

use super::{ElectionsTestSuite, Process, Scene, scene::none_landed};
use crate::{
    Document, DocumentReadError, DocumentVersion, DocumentWrite, DocumentWriteError, Documents, Leadership,
    Loss, OnlyIf, Scan,
    testing::{
        self, id,
        mock::{Fault, Verb},
    },
};
use bytes::Bytes;
use futures_util::future::join;

/// Makes one test per case for the documents of a storage: `fenced_elections_suite!(MyStorage::fresh())`,
/// like [`elections_test_suite!`](crate::elections_test_suite).
#[macro_export]
macro_rules! fenced_elections_suite {
    ($factory:expr) => {
        $crate::fenced_elections_suite! { @cases tests $factory }
    };
    (@cases $($then:tt)*) => {
        $crate::elections_test_suite! {
            @$($then)*;
            the_next_leader_continues_with_the_documents
            a_write_in_flight_of_a_paused_leader_is_refused
            the_first_batch_of_a_deposed_leader_shows_the_next_epoch
            a_write_with_lost_answer_is_confirmed_once
            a_write_applied_late_is_confirmed_once
            renewals_go_on_beside_writes
        }
    };
}

/// The names of these cases, as the macro makes them.
pub const FENCED_CASES: &[&str] = fenced_elections_suite!(@cases names);

fn documents(leadership: &Leadership) -> Documents {
    leadership.standing().documents().expect("a storage with documents")
}

fn put(name: &str, body: impl AsRef<[u8]>) -> Vec<DocumentWrite> {
    vec![testing::put(name, body)]
}

async fn shown(documents: &Documents) -> Vec<(Bytes, u64)> {
    let page = documents.scan(&Scan { limit: usize::MAX, ..Scan::default() }).await.unwrap();
    assert_eq!(page.next, None);
    page.documents.into_iter().map(|Document { body, version, .. }| (body, version.get())).collect()
}

pub async fn the_next_leader_continues_with_the_documents(scene: &Scene<impl ElectionsTestSuite>) {
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

/// The leader is paused for longer than its TTL, and its deadman only records. A batch that it has sent
/// arrives when another process leads, before the first batch of that one or after it. Shows I2.
pub async fn a_write_in_flight_of_a_paused_leader_is_refused(scene: &Scene<impl ElectionsTestSuite>) {
    for (number, arrives_first) in [(0, true), (1, false)] {
        let (paused, network) = scene.faulty().await;
        let lead = async |process: &Process<_>, holder: &str| {
            let candidacy = crate::Candidacy { slots: vec![scene.key(number)], terms: scene.terms(holder) };
            process.elections.acquire(candidacy).await.unwrap().1
        };
        let leadership = lead(&paused, "paused").await;
        documents(&leadership).write(put("work", "begun")).await.unwrap();
        // From here on its calls stay in flight: renewals, and one batch.
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
        assert_eq!(network.count(Verb::WriteDocuments), 2);
        assert!(network.under_way() >= 2, "the batch, and a renewal at least");

        if arrives_first {
            network.land_late().await;
            none_landed(&network);
            assert_eq!(shown(&documents(&next)).await, [("begun".into(), 1)]);
        }
        assert_eq!(documents(&next).write(put("work", "of the next one")).await.unwrap().get(), 2);
        network.land_late().await;
        none_landed(&network);
        assert!(network.counts().refused_late >= 2, "{:?}", network.counts());
        network.heal();
        let written = standing.write(put("work", "of the one that woke up")).await;
        assert!(
            matches!(written, Err(DocumentWriteError::Lost(_) | DocumentWriteError::Deposed { .. })),
            "{written:?}"
        );
        assert_eq!(shown(&documents(&next)).await, [("of the next one".into(), 2)]);
        assert!(paused.trigger.check(), "the deadline did not pass");
        leadership.release().await;
        assert_eq!(scene.slot_of(number).await.entry().map(|entry| entry.epoch), Some(next.epoch()));
        next.release().await;
    }
}

/// The first batch shows it, before any renewal: the leadership is lost at once, and the storage is not asked again.
pub async fn the_first_batch_of_a_deposed_leader_shows_the_next_epoch(
    scene: &Scene<impl ElectionsTestSuite>,
) {
    let (process, storage, leadership) = scene.faulty_leader().await;
    let standing = documents(&leadership);
    standing.write(put("work", "done")).await.unwrap();
    let thief = scene.foreign_record(leadership.epoch());
    storage.tamper(&scene.key(0), thief.clone()).await.unwrap();
    let written = standing.write(put("work", "undone")).await;
    assert_eq!(written, Err(DocumentWriteError::Deposed { current: Some(thief.epoch) }));
    let shown = scene.now();
    assert_eq!(leadership.lost().await, Loss::Stolen { by: Box::new(thief) });
    assert!(scene.now() <= shown.after(scene.slack), "lost late");
    assert!(process.trigger.earliest().unwrap().0 <= scene.now().after(scene.timing.stopping()));
    let asked = storage.calls();
    let read = standing.get(&id("work")).await;
    assert!(matches!(read, Err(DocumentReadError::Deposed { .. } | DocumentReadError::Lost(_))), "{read:?}");
    standing.write(put("work", "too late")).await.unwrap_err();
    assert_eq!(storage.calls(), asked);
    leadership.release().await;
}

pub async fn a_write_with_lost_answer_is_confirmed_once(scene: &Scene<impl ElectionsTestSuite>) {
    doubtful(scene, Fault::LostAnswer).await;
}

/// As above, although it arrives after the first read-back.
pub async fn a_write_applied_late_is_confirmed_once(scene: &Scene<impl ElectionsTestSuite>) {
    doubtful(scene, Fault::Late(scene.percent(2))).await;
}

async fn doubtful(scene: &Scene<impl ElectionsTestSuite>, fault: Fault) {
    let (_process, storage, leadership) = scene.faulty_leader().await;
    let standing = documents(&leadership);
    for number in 1..=3 {
        storage.fail_next(Verb::WriteDocuments, fault);
        let version = standing.write(put("work", number.to_string())).await.unwrap();
        assert_eq!(version.get(), number);
        assert_eq!(shown(&standing).await, [(number.to_string().into(), number)]);
    }
    assert_eq!(storage.struck(fault), 3);
    leadership.release().await;
}

/// As many writes as the storage accepts, during several renewals: no renewal is refused or lost.
pub async fn renewals_go_on_beside_writes(scene: &Scene<impl ElectionsTestSuite>) {
    let (_process, storage, leadership) = scene.faulty_leader().await;
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
    // The first attempt suffices, unless the machine stands still for a tenth of the TTL.
    let attempts = storage.count(Verb::CompareAndSwap);
    let most = if scene.suite.mock_clock().is_some() { renewals } else { renewals * 2 };
    assert!((renewals..=most).contains(&attempts), "{attempts} attempts for {renewals} renewals");
    leadership.release().await;
}
