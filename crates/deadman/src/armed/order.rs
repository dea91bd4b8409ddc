//! [`Order`]: places of deadlines, the earliest first, at constant cost for renewals (I11).
//!
//! A deadline that moves gets a second place. The set recognises the outdated one when it is the first.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
};
use vvm_clock::Instant;

/// A deadline's place in the order. Deadlines of one instant are ordered by generation. The generation also
/// distinguishes a deadline from a later one at the same index.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Place {
    pub(super) at: Instant,
    pub(super) generation: u64,
    pub(super) id: usize,
}

/// The places, ascending in each of two collections.
#[derive(Default)]
pub(super) struct Order {
    /// Places that came in order, as renewals with one TTL do. With 100,000 of them, cache misses dominate
    /// the cost of a heap, and a queue has none.
    in_order: VecDeque<Place>,
    others: BinaryHeap<Reverse<Place>>,
}

impl Order {
    pub(super) fn insert(&mut self, place: Place) {
        if self.in_order.back().is_none_or(|last| *last < place) {
            self.in_order.push_back(place);
        } else {
            self.others.push(Reverse(place));
        }
    }

    pub(super) fn first(&self) -> Option<Place> {
        let other = self.others.peek().map(|Reverse(place)| *place);
        self.in_order.front().copied().into_iter().chain(other).min()
    }

    pub(super) fn drop_first(&mut self) {
        match (self.in_order.front(), self.others.peek()) {
            (Some(first), Some(Reverse(other))) if other < first => drop(self.others.pop()),
            (None, _) => drop(self.others.pop()),
            (Some(_), _) => drop(self.in_order.pop_front()),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.in_order.len() + self.others.len()
    }
}

impl FromIterator<Place> for Order {
    fn from_iter<Places: IntoIterator<Item = Place>>(places: Places) -> Self {
        let mut sorted: Vec<Place> = places.into_iter().collect();
        sorted.sort_unstable();
        Self { in_order: sorted.into(), others: BinaryHeap::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*};

    fn place(nanos: u64) -> Place {
        Place { at: Instant::from_nanos(nanos), generation: 0, id: 0 }
    }

    proptest! {
        #[test]
        fn first_is_the_earliest_for_every_order_of_insertion(
            steps in vec(prop_oneof![3 => (0..50_u64).prop_map(Some), 2 => Just(None)], 0..60),
            begins_with in vec(0..50_u64, 0..10),
        ) {
            let mut order: Order = begins_with.iter().copied().map(place).collect();
            let mut model = begins_with;
            for step in steps {
                match step {
                    Some(nanos) => {
                        order.insert(place(nanos));
                        model.push(nanos);
                    }
                    None => {
                        order.drop_first();
                        model.sort_unstable();
                        model.drain(..model.len().min(1));
                    }
                }
                prop_assert_eq!(order.first(), model.iter().copied().min().map(place));
                prop_assert_eq!(order.len(), model.len());
            }
        }
    }

    #[test]
    fn places_in_ascending_order_need_no_heap() {
        let mut order = Order::default();
        for nanos in 0..1_000 {
            order.insert(place(nanos));
        }
        assert!(order.others.is_empty());
    }
}
