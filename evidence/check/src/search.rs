//! The search: breadth first, so the first story of a violation is a shortest one.

use crate::{
    event::{Event, What},
    rebase::Bytes,
    settings::Notes,
    world::World,
};
use std::collections::HashSet;

/// How far a search goes.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    /// The longest story, in events.
    pub(crate) depth: usize,
    /// How many states are met at most.
    pub(crate) states: usize,
    /// One of so many states has to recover. Zero means none.
    pub(crate) sample: u128,
}

#[derive(Default)]
pub(crate) struct Found {
    pub(crate) states: usize,
    pub(crate) steps: u64,
    pub(crate) depth: usize,
    pub(crate) recovered: u64,
    pub(crate) notes: Notes,
    /// The events up to the violation, if there is one.
    pub(crate) path: Vec<Event>,
    /// All states within the depth were met.
    pub(crate) is_complete: bool,
}

/// How a state was met first.
struct Origin {
    from: u32,
    by: Event,
}

/// Searches from `began`, which is not rebased yet.
pub(crate) fn search(began: &World, limits: &Limits) -> Found {
    let mut found = Found { is_complete: true, ..Found::default() };
    let (mut met, mut origins, mut bytes) = (HashSet::new(), Vec::new(), Bytes::default());
    let mut first = began.clone();
    first.rebase();
    met.insert(first.fingerprint(&mut bytes));
    origins.push(Origin { from: 0, by: Event { what: What::TimePasses, process: 0, actor: 0 } });
    let mut level = vec![(0, first)];
    while !level.is_empty() && found.depth < limits.depth {
        let mut next = Vec::new();
        for (at, world) in level.drain(..) {
            for event in world.events() {
                found.steps += 1;
                let mut then = world.clone();
                then.happen(event, &mut found.notes);
                then.rebase();
                let fingerprint = then.fingerprint(&mut bytes);
                let is_broken = found.notes.violation.is_some();
                if !is_broken && (met.contains(&fingerprint) || met.len() >= limits.states) {
                    found.is_complete &= met.len() < limits.states;
                    continue;
                }
                met.insert(fingerprint);
                let number = origins.len() as u32;
                origins.push(Origin { from: at, by: event });
                if !is_broken && limits.sample > 0 && fingerprint % limits.sample == 0 {
                    found.recovered += 1;
                    found.notes.reach("a state that recovers");
                    if !then.clone().recovers() {
                        found.notes.violation =
                            Some("progress: no leader within 3 TTL after the faults".into());
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

fn path(origins: &[Origin], mut at: u32) -> Vec<Event> {
    let mut path = Vec::new();
    while at != 0 {
        let Origin { from, by } = origins[at as usize];
        path.push(by);
        at = from;
    }
    path.reverse();
    path
}

/// Tells what happens on a path, with the names and instants that a state keeps if it is not rebased.
pub(crate) fn story(began: &World, path: &[Event]) -> Vec<String> {
    let mut notes = Notes { story: Some(Vec::new()), ..Notes::default() };
    let mut world = began.clone();
    path.iter().for_each(|event| world.happen(*event, &mut notes));
    notes.story.unwrap_or_default()
}

/// Walks a random path twice, with and without rebasing, and compares: what can happen at each state, what is
/// observed, and the state at the end.
///
/// # Errors
/// The path up to the first difference.
pub(crate) fn replay(began: &World, depth: usize, random: &mut fastrand::Rng) -> Result<(), Vec<Event>> {
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
        let is_same = copy.fingerprint(&mut bytes) == rebased.fingerprint(&mut bytes);
        if !is_same || notes.violation != others.violation || notes.reached != others.reached {
            return Err(path);
        }
    }
    Ok(())
}
