//! Tries whether a server obeys the conditions of writes, and whether the prefix is the intended one. [`probe`] tries
//! single writes that must be refused. [`race`] has two parts. Writers that hold one condition write at one moment: a
//! server that compares and replaces in two steps acknowledges several of them. And one writer replaces an object again
//! and again beside readers: a server that keeps content and tag apart shows the content of one write with the tag of
//! the next one.

use super::{DriverError, config::Address, connection::Requests};
use crate::{
    cells::{CellCondition, CellWrite, Tag},
    opening::OpenError,
};
use bytes::Bytes;
use futures_util::future::{join, join_all};
use ielections::{Entropy as _, OsEntropy};
use object_store::path::Path;
use std::{
    collections::HashMap,
    ops::Range,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};
use vvm_clock::Clock as _;

const MARK: &[u8] = b"vvm elections, format 1\n";

const WRITERS: usize = 16;

/// Readers beside one writer, who must not see the content of one write with the tag of another.
const READERS: usize = 12;

/// How many objects are created, each of which is then replaced in turn. They are left there.
const OBJECTS: usize = 8;

#[derive(Clone, Copy, Debug)]
pub(super) struct RaceLimits {
    /// Replacements by many writers, which take half of the time at most.
    contended: usize,
    /// Replacements by one writer beside readers.
    watched: usize,
    /// At least as many, however long it takes: a busy machine could else accept a server whose fault only readers see.
    watched_at_least: usize,
    /// After this time, no other round begins.
    enough: Duration,
}

/// `init_storage`: a person waits.
pub(super) const INIT: RaceLimits =
    RaceLimits { contended: 8, watched: 64, watched_at_least: 64, enough: Duration::from_secs(10) };

pub(super) const DOCTOR: RaceLimits =
    RaceLimits { contended: 32, watched: 256, watched_at_least: 64, enough: Duration::from_secs(30) };

/// Reads the mark of `init`. Without it the prefix is mistyped, or the server was never raced.
pub(super) async fn look(address: &Address, requests: &Requests) -> Result<(), OpenError> {
    let got =
        requests.get(&requests.names.mark()).await.map_err(|failure| failure.into_open_error(address))?;
    match got.cell {
        Some(cell) if cell.value == MARK => Ok(()),
        Some(_) => Err(OpenError::refused(format!(
            "another program or a newer version of vvm uses {address}: use another prefix, or the newer version"
        ))),
        None => Err(OpenError::missing(format!(
            "nothing was initialised at {address}: correct the URL, since candidates of different prefixes \
             would lead beside each other; or run `vvm init-storage` with it, which also tries the server"
        ))),
    }
}

pub(super) async fn mark(address: &Address, requests: &Requests) -> Result<(), OpenError> {
    put(address, requests, &requests.names.mark(), &CellCondition::Absent).await.map(drop)
}

/// The mark must exist. Fails if a write is accepted that must be refused.
pub(super) async fn probe(address: &Address, requests: &Requests) -> Result<(), OpenError> {
    let (absent, mark) = (requests.names.probe("absent"), requests.names.mark());
    let wrong = CellCondition::Tag(requests.wrong_tag());
    for (name, expected, condition) in [
        (&absent, &wrong, "If-Match with a wrong tag, where there is no object"),
        (&mark, &wrong, "If-Match with a wrong tag"),
        (&mark, &CellCondition::Absent, "If-None-Match, where there is an object"),
    ] {
        if put(address, requests, name, expected).await? == CellWrite::Refused {
            continue;
        }
        return Err(OpenError::refused(format!(
            "the server at {address} ignores {condition}: two candidates would lead. Use a server, or a version \
             of it, that obeys conditions of writes"
        )));
    }
    Ok(())
}

async fn put(
    address: &Address,
    requests: &Requests,
    name: &Path,
    expected: &CellCondition,
) -> Result<CellWrite, OpenError> {
    match requests.put(name, Bytes::from_static(MARK), expected).await {
        // It changed nothing and will not: others try the same at this moment.
        Err(DriverError::Busy(_)) => Ok(CellWrite::Refused),
        outcome => outcome.map_err(|failure| failure.into_open_error(address)),
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct RaceCounts {
    creations: usize,
    replacements: usize,
    reads: usize,
    /// Rounds of either kind in which several writers were acknowledged.
    won_twice: usize,
    /// Rounds after which another content stood than the acknowledged one.
    lost: usize,
    /// Reads of a content with the tag of a later one, by which a writer replaces what it has not seen. The
    /// tag of an earlier one does no harm: a write with it is refused.
    torn: usize,
    /// The product, if it is one whose conditions are known to race. A race may miss that.
    known: Option<&'static str>,
}

impl RaceCounts {
    pub(super) fn verdict(&self) -> Option<String> {
        let Self { creations, replacements, reads, won_twice, lost, torn, known } = self;
        let known = known.map(|name| format!("it answers like {name}, whose conditions are known to race; "));
        (known.is_some() || self.is_seen_to_fail()).then(|| {
            format!(
                "{}in {creations} creations and {replacements} replacements, several of {WRITERS} writers \
                 with one condition were acknowledged {won_twice} times, and {lost} times another content than \
                 the acknowledged one stood; {torn} of {reads} reads showed a content with the tag of a later \
                 one",
                known.unwrap_or_default()
            )
        })
    }

    fn is_seen_to_fail(&self) -> bool {
        self.won_twice + self.lost + self.torn > 0
    }

    pub(super) fn summary(&self) -> String {
        let Self { creations, replacements, reads, .. } = self;
        format!(
            "obeyed by {WRITERS} writers in {creations} creations and {replacements} replacements, and in \
             {reads} reads beside them"
        )
    }
}

/// Races creations of new objects, and replacements of each. Ends at the first thing that is seen to be wrong.
pub(super) async fn race(requests: &Requests, effort: RaceLimits) -> Result<RaceCounts, DriverError> {
    let began_at = requests.clock.now();
    let took = || requests.clock.now().since(began_at);
    let run = OsEntropy::default().next_u64();
    let mut raced = RaceCounts::default();
    let mut objects: Vec<_> = (0..OBJECTS)
        .map(|number| Object { name: requests.names.probe(&format!("race/{run:016x}-{number}")), tag: None })
        .collect();
    // Each object in turn: some stores take one write a second to an object.
    for round in 0..=effort.contended {
        for object in &mut objects {
            if raced.is_seen_to_fail() {
                return Ok(raced);
            }
            if took() < effort.enough / 2 {
                object.contend(requests, round, &mut raced).await?;
            }
        }
    }
    // The most at a time that still ends soon on a slow server.
    const AT_A_TIME: usize = 8;
    for watched in (0..effort.watched).step_by(AT_A_TIME) {
        if raced.is_seen_to_fail() || watched >= effort.watched_at_least && took() >= effort.enough {
            break;
        }
        let first = effort.contended + 1 + watched;
        // All objects at once, because a slow server takes its time for each.
        let watching = objects.iter_mut().map(|object| object.watch(requests, first..first + AT_A_TIME));
        for (replacements, reads, torn) in join_all(watching).await {
            raced.replacements += replacements;
            raced.reads += reads;
            raced.torn += torn;
        }
    }
    Ok(raced)
}

struct Object {
    name: Path,
    tag: Option<Tag>,
}

impl Object {
    async fn contend(
        &mut self,
        requests: &Requests,
        round: usize,
        raced: &mut RaceCounts,
    ) -> Result<(), DriverError> {
        let expected = self.tag.clone().map_or(CellCondition::Absent, CellCondition::Tag);
        let writes = join_all((0..WRITERS).map(async |writer| {
            let value = content(round, writer);
            let (written, answer) = requests.put_with_response(&self.name, value.clone(), &expected).await;
            (written.map(|written| (written, value)), answer.and_then(|answer| answer.known_to_race()))
        }));
        let (mut acknowledged, mut refused, mut failure) = (Vec::new(), 0, None);
        for (write, known) in writes.await {
            raced.known = raced.known.or(known);
            match write {
                Ok((CellWrite::Written(_), value)) => acknowledged.push(value),
                Ok((CellWrite::Refused, _)) => refused += 1,
                Err(error) => failure = Some(error),
            }
        }
        match failure {
            Some(error) if acknowledged.is_empty() && refused == 0 && expected == CellCondition::Absent => {
                return Err(error);
            }
            _ => {}
        }
        let kind =
            if expected == CellCondition::Absent { &mut raced.creations } else { &mut raced.replacements };
        *kind += usize::from(!acknowledged.is_empty());
        raced.won_twice += usize::from(acknowledged.len() > 1);
        // A server may be busy, or break off a read during a write: then the next round tries the same.
        let Ok(got) = requests.get(&self.name).await else { return Ok(()) };
        if let [written] = &acknowledged[..] {
            // Whatever an unanswered writer did: its condition held before this one's write or never.
            raced.lost += usize::from(got.cell.as_ref().is_none_or(|stands| stands.value != *written));
        }
        self.tag = got.cell.map(|cell| cell.tag).or(self.tag.take());
        Ok(())
    }

    async fn watch(&mut self, requests: &Requests, rounds: Range<usize>) -> (usize, usize, usize) {
        let is_over = AtomicBool::new(false);
        let name = self.name.clone();
        let writer = async {
            let mut written = HashMap::new();
            for round in rounds {
                let value = content(round, 0);
                let expected = self.tag.take().map_or(CellCondition::Absent, CellCondition::Tag);
                if let Ok(CellWrite::Written(Some(tag))) = requests.put(&self.name, value, &expected).await {
                    written.insert(tag.clone(), round);
                    self.tag = Some(tag);
                } else if let Ok(got) = requests.get(&self.name).await {
                    self.tag = got.cell.map(|cell| cell.tag);
                }
            }
            is_over.store(true, Ordering::Relaxed);
            written
        };
        let readers = (0..READERS).map(async |_| {
            let mut seen = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                let got = requests.get(&name).await;
                seen.extend(got.ok().and_then(|got| got.cell).map(|cell| (cell.tag, round_of(&cell.value))));
            }
            seen
        });
        let (written, seen) = join(writer, join_all(readers)).await;
        let is_torn = |(tag, round): &&(Tag, usize)| written.get(tag).is_some_and(|written| written > round);
        let torn = seen.iter().flatten().filter(is_torn).count();
        (written.len(), seen.iter().map(Vec::len).sum(), torn)
    }
}

/// Each writer has a content of its own in each round: equal ones would have one tag.
fn content(round: usize, writer: usize) -> Bytes {
    format!("{round} by writer {writer}").into()
}

fn round_of(value: &Bytes) -> usize {
    let text = String::from_utf8_lossy(value);
    text.split(' ').next().and_then(|round| round.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drivers::{
        objects::{connection, describe},
        tests::{ReceivedRequest, Scripted, answer},
    };
    use std::sync::Mutex;

    type Objects = Mutex<HashMap<String, Vec<String>>>;

    /// Shows the content before the last one with the tag of the last one.
    fn torn(asked: ReceivedRequest, objects: &Objects) -> String {
        let mut objects = objects.lock().unwrap();
        let place = asked.head[0].split(' ').nth(1).unwrap().to_owned();
        let contents = objects.entry(place).or_default();
        let mut shown = String::new();
        if asked.head[0].starts_with("PUT") {
            contents.push(asked.body);
        } else if let Some(before) = contents.get(contents.len().saturating_sub(2)) {
            shown.clone_from(before);
        } else {
            shown.push_str("<Error><Code>NoSuchKey</Code></Error>");
        }
        let (status, tag) = (if contents.is_empty() { 404 } else { 200 }, contents.len());
        let headers = format!("ETag: \"{tag}\"\r\nLast-Modified: Sun, 22 Nov 2026 00:00:00 GMT\r\n");
        answer(status, &headers, &shown)
    }

    /// The time of `contend` and of the watching is over when it begins.
    #[tokio::test]
    async fn server_with_torn_reads_is_seen_to_fail_however_slow_the_machine_is() {
        let objects = Objects::default();
        let server = Scripted::start(move |asked| Some(torn(asked, &objects))).await;
        let address = Address::parse(&format!("s3://bucket/prefix?endpoint={}", server.endpoint)).unwrap();
        let requests = connection::connect_with(&address, |name| {
            matches!(name, "AWS_ACCESS_KEY_ID" | "AWS_SECRET_ACCESS_KEY").then(|| "key".to_owned())
        });
        let requests = requests.unwrap();
        let raced = race(&requests, RaceLimits { enough: Duration::ZERO, ..INIT }).await.unwrap();
        assert!(raced.torn > 0 && raced.verdict().is_some(), "{raced:?}");
        let described = describe(&requests).await.unwrap();
        assert_eq!(described.setting("conditions"), Some("not obeyed"));
        assert!(described.concerns[0].contains("Use another server"), "{described:?}");
    }
}
