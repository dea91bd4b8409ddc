//! The search: breadth first, so the first story of a violation is a shortest one.

use crate::{
    observer::Violation,
    rebase::Bytes,
    world::{Event, Notes, Settings, World},
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
    pub(crate) violation: Option<(Violation, Vec<Event>)>,
    /// All states within the depth were met.
    pub(crate) is_complete: bool,
}

/// How a state was met first.
struct Origin {
    from: u32,
    by: Event,
}

/// Searches from `began`, which is not rebased yet.
pub(crate) fn search(began: &World, settings: &Settings, limits: &Limits) -> Found {
    let mut found = Found { is_complete: true, ..Found::default() };
    let (mut met, mut origins, mut bytes) = (HashSet::new(), Vec::new(), Bytes::default());
    let mut first = began.clone();
    first.rebase();
    met.insert(first.fingerprint(&mut bytes));
    origins.push(Origin { from: 0, by: Event::Advance });
    let mut level = vec![(0, first)];
    while !level.is_empty() && found.depth < limits.depth {
        let mut next = Vec::new();
        for (at, world) in level.drain(..) {
            for event in world.events(settings) {
                found.steps += 1;
                let mut then = world.clone();
                let mut outcome = then.happen(event, settings, &mut found.notes);
                if outcome.is_ok() {
                    then.rebase();
                    let fingerprint = then.fingerprint(&mut bytes);
                    if met.contains(&fingerprint) {
                        continue;
                    }
                    if limits.sample > 0 && fingerprint % limits.sample == 0 {
                        found.recovered += 1;
                        outcome = then.clone().recovers(settings);
                    }
                    if outcome.is_ok() && met.len() >= limits.states {
                        found.is_complete = false;
                        continue;
                    }
                    met.insert(fingerprint);
                }
                let number = origins.len() as u32;
                origins.push(Origin { from: at, by: event });
                if let Err(violation) = outcome {
                    found.states = met.len();
                    found.depth += 1;
                    found.violation = Some((violation, path(&origins, number)));
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
pub(crate) fn story(began: &World, path: &[Event], settings: &Settings) -> Vec<String> {
    let mut notes = Notes { story: Some(Vec::new()), ..Notes::default() };
    let mut world = began.clone();
    for event in path {
        if let Err(violation) = world.happen(*event, settings, &mut notes) {
            notes.tell(|| format!("{violation}"));
        }
    }
    notes.story.unwrap_or_default()
}

/// Walks a random path twice, with and without rebasing, and compares: what can happen at each state, what is
/// observed, and the state at the end.
///
/// # Errors
/// The path up to the first difference.
pub(crate) fn replay(
    began: &World,
    settings: &Settings,
    depth: usize,
    random: &mut fastrand::Rng,
) -> Result<(), Vec<Event>> {
    let (mut plain, mut rebased) = (began.clone(), began.clone());
    rebased.rebase();
    let (mut path, mut bytes) = (Vec::new(), Bytes::default());
    for _ in 0..depth {
        let events = plain.events(settings);
        if events != rebased.events(settings) {
            return Err(path);
        }
        let Some(event) = random.choice(&events) else { break };
        path.push(*event);
        let outcome = plain.happen(*event, settings, &mut Notes::default());
        let same = rebased.happen(*event, settings, &mut Notes::default());
        rebased.rebase();
        let mut copy = plain.clone();
        copy.rebase();
        if outcome.is_ok() != same.is_ok() || copy.fingerprint(&mut bytes) != rebased.fingerprint(&mut bytes)
        {
            return Err(path);
        }
        if outcome.is_err() {
            break;
        }
    }
    Ok(())
}
