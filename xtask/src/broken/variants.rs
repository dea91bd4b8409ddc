//! The hazards of the design, as one broken line each.

/// One way to get it wrong.
#[derive(Debug)]
pub(super) struct Variant {
    pub(super) name: &'static str,
    pub(super) changes: &'static [Change],
}

/// A piece of code that stands exactly once in its file, and what it is broken to.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) file: &'static str,
    pub(super) good: &'static str,
    pub(super) broken: &'static str,
}

pub(super) const VARIANTS: &[Variant] = &[
    Variant {
        name: "release before stop",
        changes: &[Change {
            file: "crates/vvm-orch/src/shutdowner.rs",
            good: "let leadership = stopping.stop(services, leadership).await;",
            broken: "let released = leadership.release().await;
                     tracing::info!(?released);
                     let leadership: Option<ielections::Leadership> = None;
                     let _ = (&stopping, services);",
        }],
    },
    Variant {
        name: "lease counted from the response",
        changes: &[Change {
            file: "crates/ielections/src/protocol/lease.rs",
            good: "        self.held = attempt.entry;",
            broken: "        let attempt = Attempt { sent_at: now, ..attempt };\n        self.held = attempt.entry;",
        }],
    },
    Variant {
        name: "a lost renewal confirmed by the incarnation alone",
        changes: &[Change {
            file: "crates/ielections/src/protocol/attempts.rs",
            good: "attempt.entry.version == version",
            broken: "attempt.entry.version.incarnation == version.incarnation",
        }],
    },
    Variant {
        name: "an observer that waits its own TTL",
        changes: &[Change {
            file: "crates/ielections/src/protocol/campaign/look.rs",
            good: "if let Some(slot) = slot {",
            broken: "if let Some(slot) = slot {
                let mut slot = slot.clone();
                if let Slot::Held { entry, .. } = &mut slot {
                    entry.ttl = self.terms.ttl;
                }
                let slot = &slot;",
        }],
    },
    Variant {
        name: "deadman disarmed by drop",
        changes: &[Change {
            file: "crates/ielections/src/engine/leading.rs",
            good: "// Dropped: the record is left to expire, and the deadline stays armed (I4).",
            broken: "self.env.deadman.disarm(leading.armed);",
        }],
    },
];
