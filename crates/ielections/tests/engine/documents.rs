mod ending;
mod settling;
mod writer;

use crate::{Bench, TTL, on};
use ielections::{
    DocumentWrite, Documents, Leadership, OnlyIf,
    testing::{
        elections_suite::Process,
        id,
        mock::{Fault, Verb},
        put, put_if,
    },
};
use std::{future::poll_fn, pin::Pin, task::Poll, time::Duration};
use vvm_clock::Clock as _;

const KEY: u32 = 0;
const ATTEMPT: Duration = TTL.checked_div(10).unwrap();
const PAUSE: Duration = TTL.checked_div(20).unwrap();

impl Bench {
    fn writes(&self, faults: impl IntoIterator<Item = Fault>) {
        faults.into_iter().for_each(|fault| self.faulty.fail_next(Verb::WriteDocuments, fault));
    }

    fn sent(&self) -> u64 {
        self.faulty.count(Verb::WriteDocuments)
    }

    fn always(&self, fault: Fault) {
        Verb::DOCUMENTS.into_iter().for_each(|verb| self.faulty.fail_always(verb, fault));
    }

    fn asked(&self) -> Vec<Verb> {
        let calls = self.faulty.log().into_iter().map(|call| call.verb);
        calls.filter(|verb| Verb::DOCUMENTS.contains(verb)).collect()
    }

    fn landed(&self) -> Vec<Vec<String>> {
        self.faulty.batches().iter().map(|batch| bodies(batch)).collect()
    }
}

async fn lead(process: &Process<u32>) -> Leadership {
    crate::lead(process, KEY).await
}

struct Led {
    bench: Bench,
    process: Process<u32>,
    leadership: Leadership,
    documents: Documents,
}

fn led(test: impl AsyncFnOnce(Led)) {
    let bench = Bench::new();
    let clock = bench.clock.clone();
    on(&clock, async {
        let process = bench.process();
        let leadership = lead(&process).await;
        let documents = documents(&leadership);
        test(Led { bench, process, leadership, documents }).await;
    });
}

fn documents(leadership: &Leadership) -> Documents {
    leadership.standing().documents().unwrap()
}

fn bodies(batch: &[DocumentWrite]) -> Vec<String> {
    let body = |write: &DocumentWrite| match write {
        DocumentWrite::Put { body, .. } => Some(String::from_utf8_lossy(body).into_owned()),
        DocumentWrite::Delete { .. } => None,
    };
    batch.iter().filter_map(body).collect()
}

async fn waits(call: &mut (impl Future + Unpin)) -> bool {
    poll_fn(|cx| Poll::Ready(Pin::new(&mut *call).poll(cx).is_pending())).await
}
