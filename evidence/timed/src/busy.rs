//! A busy machine.

use crate::probes;
use std::{
    panic::{self, AssertUnwindSafe},
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

/// Runs `act` while so many threads spin on each processor.
pub fn loaded<T>(loops: usize, act: impl FnOnce() -> T) -> T {
    let over = AtomicBool::new(false);
    let result = thread::scope(|scope| {
        for processor in probes::processors().flat_map(|processor| std::iter::repeat_n(processor, loops)) {
            let over = &over;
            scope.spawn(move || {
                probes::pin(processor);
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let result = panic::catch_unwind(AssertUnwindSafe(act));
        over.store(true, Ordering::Relaxed);
        result
    });
    result.unwrap_or_else(|panic| panic::resume_unwind(panic))
}
