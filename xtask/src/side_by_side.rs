//! Work on many items, some of them at a time.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

/// How many programs of tests run at once: of three, timed cases would be late on two cores.
pub(crate) const AT_ONCE: usize = 2;

/// Works on all items, so many at once: each begins when another one has ended. Returns the results in their order.
pub(crate) fn side_by_side<'a, T: Sync, R: Send>(
    items: &'a [T],
    at_once: usize,
    work: impl Fn(&'a T) -> R + Sync,
) -> Vec<R> {
    let (next, results) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let lane = || {
        while let at = next.fetch_add(1, Ordering::Relaxed)
            && let Some(item) = items.get(at)
        {
            let result = work(item);
            results.lock().unwrap_or_else(PoisonError::into_inner).insert(at, result);
        }
    };
    thread::scope(|scope| {
        for _ in 0..at_once.min(items.len()) {
            scope.spawn(lane);
        }
    });
    results.into_inner().unwrap_or_else(PoisonError::into_inner).into_values().collect()
}
