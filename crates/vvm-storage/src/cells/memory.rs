//! [`Memory`]: what a handle knows, to be put into another one. So a check can run calls of a handle from any state.

use super::{
    CachedCell, CellStorage, Cells,
    history::{CellWentBack, Mark},
    placeholder::{LongestTtl, lock},
};
use crate::key::Partition;
use ielections::Entropy;
use std::{collections::HashMap, hash, sync::Arc};
use vvm_clock::WallClock;

/// What a handle knows. A new process knows nothing.
#[derive(Clone, Default, Debug)]
pub struct Memory {
    known: Vec<(Partition, CachedCell)>,
    ttls: Vec<(Partition, LongestTtl)>,
    marks: Vec<(Partition, Mark)>,
    unfit: Option<CellWentBack>,
}

/// Its debug text shows every field.
impl hash::Hash for Memory {
    fn hash<H: hash::Hasher>(&self, to: &mut H) {
        format!("{self:?}").hash(to);
    }
}

impl<C: CellStorage> Cells<C> {
    /// A handle that knows what another one knew. Incarnations and epochs of placeholders are made of `entropy` and
    /// `wall`.
    pub fn with(storage: C, memory: &Memory, entropy: Arc<dyn Entropy>, wall: Arc<dyn WallClock>) -> Self {
        let mut handle = Self::new(storage);
        (handle.placeholders.entropy, handle.placeholders.wall) = (entropy, wall);
        *handle.known() = map(&memory.known);
        *lock(&handle.placeholders.ttls) = map(&memory.ttls);
        *lock(&handle.history.marks) = map(&memory.marks);
        if let Some(unfit) = &memory.unfit {
            handle.history.unfit.get_or_init(|| unfit.clone());
        }
        handle
    }

    /// What this handle knows.
    pub fn memory(&self) -> Memory {
        Memory {
            known: list(&self.known()),
            ttls: list(&lock(&self.placeholders.ttls)),
            marks: list(&lock(&self.history.marks)),
            unfit: self.history.unfit.get().cloned(),
        }
    }
}

fn map<T: Clone>(list: &[(Partition, T)]) -> HashMap<Partition, T> {
    list.iter().cloned().collect()
}

fn list<T: Clone>(map: &HashMap<Partition, T>) -> Vec<(Partition, T)> {
    let mut list: Vec<_> = map.iter().map(|(at, one)| (at.clone(), one.clone())).collect();
    list.sort_by(|(one, _), (other, _)| one.cmp(other));
    list
}
