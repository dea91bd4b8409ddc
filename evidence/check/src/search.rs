//! The search of a [`Model`]: breadth first, so the first story of a violation is a shortest one.

use foldhash::quality::FixedState;
use std::{
    collections::{BTreeSet, HashSet},
    hash::{BuildHasher as _, Hash, Hasher},
    panic, thread,
};
use vvm_clock::SystemClock;

/// A state, what can happen next, and what that does. Equal hashes stand for equal futures.
pub(crate) trait Model: Clone + Hash + Send + Sync {
    type Event: Copy + PartialEq + Send + Sync;

    /// What can happen next. The first is fair: answers come before timers, and both before faults.
    fn events(&self) -> Vec<Self::Event>;

    fn happen(&mut self, event: Self::Event, notes: &mut Notes);

    fn rebase(&mut self) {}

    /// Ends all faults, and lets all run fairly. The error is what does not come about.
    fn recovers(self) -> Result<(), String>;
}

/// What may happen in a model, each with its words in a story.
macro_rules! happenings {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $what:ident = $told:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub(crate) enum $name {
            $($(#[$doc])* $what,)*
        }

        impl $name {
            pub(crate) fn told(self) -> &'static str {
                match self {
                    $(Self::$what => $told,)*
                }
            }
        }
    };
}
pub(crate) use happenings;

/// One of so many states is healed, and has to recover.
pub(crate) const SAMPLE: u128 = 20;

/// Where a search begins, and how long its stories are at most.
#[derive(Clone)]
pub(crate) struct Part<M> {
    pub(crate) name: &'static str,
    pub(crate) faults: u8,
    pub(crate) depth: usize,
    /// Not rebased yet.
    pub(crate) began: M,
}

pub(crate) struct Found<E> {
    pub(crate) states: usize,
    pub(crate) steps: u64,
    pub(crate) depth: usize,
    pub(crate) recovered: u64,
    pub(crate) notes: Notes,
    pub(crate) path: Vec<E>,
}

#[derive(Default, Debug)]
pub(crate) struct Notes {
    pub(crate) reached: BTreeSet<&'static str>,
    pub(crate) story: Option<Vec<String>>,
    pub(crate) violation: Option<String>,
}

impl Notes {
    pub(crate) fn reach(&mut self, what: &'static str) {
        self.reached.insert(what);
    }

    pub(crate) fn tell(&mut self, what: impl FnOnce() -> String) {
        if let Some(story) = &mut self.story {
            story.push(what());
        }
    }

    /// Notes a broken invariant. The first one stands.
    pub(crate) fn violated(&mut self, invariant: &str, how: impl FnOnce() -> String) {
        if self.violation.is_none() {
            self.violation = Some(format!("{invariant}: {}", how()));
        }
    }
}

struct Origin<E> {
    from: u32,
    by: Option<E>,
}

/// Searches the parts side by side, and prints what was found. Returns whether no invariant was broken, all of
/// `reached` was reached, and one of `sample` states recovers.
pub(crate) fn search_all<M: Model>(
    parts: &[Part<M>],
    sample: u128,
    reached: &BTreeSet<&'static str>,
) -> bool {
    let one = |part: &Part<M>| {
        let began = SystemClock::read();
        let found = search(part, Some(sample));
        let took = SystemClock::read().since(began).as_secs_f64();
        println!(
            "{}, {} faults, {} events: {} states, {} steps, {} states recovered, {took:.1} s",
            part.name, part.faults, found.depth, found.states, found.steps, found.recovered,
        );
        found
    };
    let results: Vec<Found<M::Event>> = thread::scope(|scope| {
        let begun: Vec<_> = parts.iter().map(|part| scope.spawn(move || one(part))).collect();
        let joined = begun.into_iter().map(|search| search.join());
        joined.map(|found| found.unwrap_or_else(|panic| panic::resume_unwind(panic))).collect()
    });
    for (part, found) in parts.iter().zip(&results) {
        if let Some(violation) = &found.notes.violation {
            println!("{}: {violation}, after {} events:", part.name, found.path.len());
            story(&part.began, &found.path).iter().for_each(|line| println!("  {line}"));
        }
    }
    let are_held = !results.is_empty() && results.iter().all(|found| found.notes.violation.is_none());
    let were: BTreeSet<_> = results.iter().flat_map(|found| found.notes.reached.iter().copied()).collect();
    let missing: Vec<_> = reached.difference(&were).copied().collect();
    if are_held && !missing.is_empty() {
        println!("not reached, so nothing is shown about it: {}", missing.join("; "));
    }
    are_held && missing.is_empty()
}

/// Searches one part without healing, and returns the length of the story of a violation.
pub(crate) fn length_of<M: Model>(part: &Part<M>) -> Option<usize> {
    let found = search(part, None);
    found.notes.violation.map(|_| found.path.len())
}

fn search<M: Model>(part: &Part<M>, sample: Option<u128>) -> Found<M::Event> {
    let mut found =
        Found { states: 0, steps: 0, depth: 0, recovered: 0, notes: Notes::default(), path: Vec::new() };
    let (mut met, mut origins, mut bytes) = (HashSet::new(), Vec::new(), Bytes::default());
    let mut first = part.began.clone();
    first.rebase();
    met.insert(fingerprint(&first, &mut bytes));
    origins.push(Origin { from: 0, by: None });
    let mut level = vec![(0, first)];
    while !level.is_empty() && found.depth < part.depth {
        let mut next = Vec::new();
        for (at, world) in level.drain(..) {
            for event in world.events() {
                found.steps += 1;
                let mut then = world.clone();
                then.happen(event, &mut found.notes);
                then.rebase();
                let fingerprint = fingerprint(&then, &mut bytes);
                let is_broken = found.notes.violation.is_some();
                if !met.insert(fingerprint) && !is_broken {
                    continue;
                }
                let number = origins.len() as u32;
                origins.push(Origin { from: at, by: Some(event) });
                if !is_broken && sample.is_some_and(|sample| fingerprint.is_multiple_of(sample)) {
                    found.recovered += 1;
                    found.notes.reach("a state that recovers");
                    if let Err(missing) = then.clone().recovers() {
                        found.notes.violated("progress", || missing);
                    }
                }
                if found.notes.violation.is_some() {
                    found.states = met.len();
                    found.depth += 1;
                    found.path = path(&origins, number);
                    return found;
                }
                next.push((number, then));
            }
        }
        level = next;
        found.depth += 1;
    }
    found.states = met.len();
    found
}

fn path<E: Copy>(origins: &[Origin<E>], mut at: u32) -> Vec<E> {
    let mut path = Vec::new();
    while let Origin { from, by: Some(by) } = &origins[at as usize] {
        path.push(*by);
        at = *from;
    }
    path.reverse();
    path
}

/// Tells what happens on a path, with the names and instants that a state keeps if it is not rebased.
pub(crate) fn story<M: Model>(began: &M, path: &[M::Event]) -> Vec<String> {
    let mut notes = Notes { story: Some(Vec::new()), ..Notes::default() };
    let mut world = began.clone();
    path.iter().for_each(|event| world.happen(*event, &mut notes));
    notes.story.unwrap_or_default()
}

/// Walks a random path twice, with and without rebasing, and compares: what can happen at each state, what is observed,
/// and the state at the end. The error is the path up to the first difference.
pub(crate) fn replay<M: Model>(
    began: &M,
    depth: usize,
    random: &mut fastrand::Rng,
) -> Result<(), Vec<M::Event>> {
    let (mut plain, mut rebased) = (began.clone(), began.clone());
    rebased.rebase();
    let (mut path, mut bytes) = (Vec::new(), Bytes::default());
    for _ in 0..depth {
        let events = plain.events();
        if events != rebased.events() {
            return Err(path);
        }
        let Some(event) = random.choice(&events) else { break };
        path.push(*event);
        let (mut notes, mut others) = (Notes::default(), Notes::default());
        plain.happen(*event, &mut notes);
        rebased.happen(*event, &mut others);
        rebased.rebase();
        let mut copy = plain.clone();
        copy.rebase();
        let is_same = fingerprint(&copy, &mut bytes) == fingerprint(&rebased, &mut bytes);
        if !is_same || notes.violation != others.violation || notes.reached != others.reached {
            return Err(path);
        }
    }
    Ok(())
}

/// 128 bits of a rebased state.
fn fingerprint<M: Model>(state: &M, bytes: &mut Bytes) -> u128 {
    bytes.0.clear();
    state.hash(bytes);
    let half = |seed| u128::from(FixedState::with_seed(seed).hash_one(&*bytes.0));
    half(1) << 64 | half(2)
}

#[derive(Default)]
struct Bytes(Vec<u8>);

impl Hasher for Bytes {
    fn write(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn finish(&self) -> u64 {
        FixedState::with_seed(0).hash_one(&*self.0)
    }
}
