//! The bugs to plant: the hazards of the design, and what reviews and models found.

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
            broken: "        let attempt = Attempt { sent_at: now, ..attempt };\n\
                     \x20       self.held = attempt.entry;",
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
    Variant {
        name: "a confirmed renewal moves a deadline that a loss brought forward",
        changes: &[Change {
            file: "crates/deadman/src/armed.rs",
            good: "!old.is_final && now < old.at",
            broken: "now < old.at",
        }],
    },
    Variant {
        name: "killed at 0.95 TTL",
        changes: &[
            Change {
                file: "crates/ielections/src/timing.rs",
                good: "const KILL: u32 = 800;",
                broken: "const KILL: u32 = 950;",
            },
            Change {
                file: "crates/ielections/src/timing.rs",
                good: "const _: () = assert!(KILL * 110 < 1000 * 90);",
                broken: "",
            },
        ],
    },
    Variant {
        name: "a claim of unknown outcome counts as not applied",
        changes: &[Change {
            file: "crates/ielections/src/protocol/campaign/resolve.rs",
            good: "                target.unread = true;
                self.last_failure = Some(cause.to_string());
                self.queue(Intent::ReadBack)",
            broken: "                target.attempts.discard_last();
                self.last_failure = Some(cause.to_string());
                self.reconsider();
                self.pause(now)",
        }],
    },
    Variant {
        name: "an observer that compares incarnations instead of versions",
        changes: &[Change {
            file: "crates/ielections/src/protocol/campaign/view.rs",
            good: "if known.version == entry.version => {",
            broken: "if known.incarnation() == entry.incarnation() => {
                        *known = entry.clone();",
        }],
    },
    Variant {
        name: "a release that does not wait for the renewal in flight",
        changes: &[Change {
            file: "crates/ielections/src/engine/leading.rs",
            good: "if !leading.is_ending() || actor.calling {",
            broken: "if !leading.is_ending() {",
        }],
    },
    Variant {
        name: "an epoch from the wall clock alone",
        changes: &[Change {
            file: "crates/ielections/src/record/epoch.rs",
            good: "Self::new(counted.max(wall))",
            broken: "{
            let _ = counted;
            Self::new(wall.max(1))
        }",
        }],
    },
    Variant {
        name: "a renewal is forgotten when a read-back shows the old version",
        changes: &[Change {
            file: "crates/ielections/src/protocol/lease.rs",
            good: "if entry.version == self.held.version => self.pause(now),",
            broken: "if entry.version == self.held.version => {
                self.attempts.discard_last();
                self.pause(now)
            }",
        }],
    },
    Variant {
        name: "a claim is forgotten when a read-back shows the old state",
        changes: &[Change {
            file: "crates/ielections/src/protocol/campaign/resolve.rs",
            good: "// Undecided: the write may still be applied. Retry",
            broken: "target.attempts.discard_last();
            self.reconsider();
            // Retry",
        }],
    },
    Variant {
        name: "the next batch of documents is sent before the unknown one is settled",
        changes: &[Change {
            file: "crates/ielections/src/documents/writer/queue.rs",
            good: "                sent.stage = Stage::Unknown;
                self.failed(now, cause.to_string());
                Pace::AtOnce",
            broken: "                let cause: Arc<str> = cause.to_string().into();
                let unknown = DocumentWriteError::Unknown { cause };
                for (_, caller) in self.sent.take().into_iter().flat_map(|sent| sent.callers) {
                    answer(caller, Err(unknown.clone()));
                }
                let _ = now;
                Pace::AtOnce",
        }],
    },
    Variant {
        name: "a fence without the incarnation",
        changes: &[Change {
            file: "crates/ielections/src/storage/document_storage.rs",
            good: "entry.is_of(fence.incarnation, fence.epoch)",
            broken: "entry.epoch == fence.epoch",
        }],
    },
    Variant {
        name: "an answer that counts from before a stop of the process",
        changes: &[Change {
            file: "crates/ielections/src/engine/task.rs",
            good: "self.now = self.env.clock.now();",
            broken: "",
        }],
    },
    Variant {
        name: "a release when only the command's own process is reaped",
        changes: &[Change {
            file: "crates/containment/src/supervise.rs",
            good: "            if let Some(proof) = self.keeper.proof() {",
            broken: "            if self.outcome.ended.is_some() {
                return Ok(self.outcome);
            }
            if let Some(proof) = self.keeper.proof() {",
        }],
    },
    Variant {
        name: "a pause looked for by a stale read",
        changes: &[Change {
            file: "crates/vvm-host/src/requests.rs",
            good: "            pause = storage.storage.standing_pause(&storage.cluster) => pause,",
            broken: "            seen = storage.look_at_requests() => seen.map(|(seen, _)| seen.pause),",
        }],
    },
    Variant {
        name: "a guardian releases before the last descendant is reaped",
        changes: &[Change {
            file: "crates/vvm-host/src/host_end.rs",
            good: "if !self.proven || self.orderly {",
            broken: "if self.orderly {",
        }],
    },
    Variant {
        name: "a guardian releases by a ticket of an earlier epoch",
        changes: &[Change {
            file: "crates/vvm-host/src/left_behind.rs",
            good: "let mut may_have_released = false;",
            broken: "let (incarnation, epoch) = match storage.storage.get(&key).await {
            Ok(Slot::Held { entry, .. }) => (entry.incarnation(), entry.epoch),
            _ => (incarnation, epoch),
        };
        let mut may_have_released = false;",
        }],
    },
    Variant {
        name: "a guardian releases without the incarnation",
        changes: &[Change {
            file: "crates/vvm-host/src/left_behind.rs",
            good: "let mut may_have_released = false;",
            broken: "let incarnation = match storage.storage.get(&key).await {
            Ok(Slot::Held { entry, .. }) if entry.epoch == epoch => entry.incarnation(),
            _ => incarnation,
        };
        let mut may_have_released = false;",
        }],
    },
    Variant {
        name: "a guardian writes the history after its release",
        changes: &[Change {
            file: "crates/vvm-host/src/left_behind.rs",
            good: "if let Some(documents) = storage.storage.documents() {",
            broken: "let early = storage.storage.compare_and_delete(&key, incarnation, epoch).await;
        tracing::debug!(?early);
        if let Some(documents) = storage.storage.documents() {",
        }],
    },
    Variant {
        name: "a guardian knows only the last claim",
        changes: &[Change {
            file: "crates/vvm-host/src/host/preface.rs",
            good: "        storage.leads(&cx.slot, &cx.standing, ttl);\n",
            broken: "",
        }],
    },
];
