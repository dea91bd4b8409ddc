//! The bugs to plant: the hazards of the design, and what reviews and models found.
//!
//! All of them are in one build. `BROKEN` in a broken text stands for a condition that holds only in the run of
//! that variant, so that each broken text says what the good one does otherwise.

/// One way to get it wrong.
#[derive(Debug)]
pub(super) struct Variant {
    pub(super) name: &'static str,
    pub(super) changes: &'static [Change],
    pub(super) found_by: FoundBy,
}

/// What has to find it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FoundBy {
    /// A world of the simulation.
    Simulation,
    /// One test: its package, the file below `tests` (`None` is the library), and its name with modules. An
    /// empty name is the whole file.
    Test(&'static str, Option<&'static str>, &'static str),
}

/// A piece of code that stands exactly once in its package, and what it is broken to.
#[derive(Debug)]
pub(super) struct Change {
    /// The folder of the package.
    pub(super) package: &'static str,
    pub(super) good: &'static str,
    pub(super) broken: &'static str,
}

pub(super) const VARIANTS: &[Variant] = &[
    Variant {
        name: "release before stop",
        changes: &[
            Change {
                package: "crates/vvm-orch",
                good: "let leadership = stopping.stop(services, leadership).await;",
                broken: "let leadership = if BROKEN {
            let released = leadership.release().await;
            tracing::info!(?released);
            let _ = services;
            None
        } else {
            stopping.stop(services, leadership).await
        };",
            },
        ],
        found_by: FoundBy::Simulation,
    },
    Variant {
        name: "lease counted from the response",
        changes: &[
            Change {
                package: "crates/ielections",
                good: "        self.held = attempt.entry;",
                broken: "        let attempt = if BROKEN { Attempt { sent_at: now, ..attempt } } else { attempt };
        self.held = attempt.entry;",
            },
        ],
        found_by: FoundBy::Simulation,
    },
    Variant {
        name: "a lost renewal confirmed by the incarnation alone",
        changes: &[
            Change {
                package: "crates/ielections",
                good: "attempt.entry.version == version",
                broken: "attempt.entry.version == version || BROKEN && attempt.entry.version.incarnation == version.incarnation",
            },
        ],
        found_by: FoundBy::Simulation,
    },
    Variant {
        name: "an observer that waits its own TTL",
        changes: &[
            Change {
                package: "crates/ielections",
                good: "if let Some(slot) = slot {",
                broken: "if let Some(slot) = slot {
                let mut own = slot.clone();
                if BROKEN && let Slot::Held { entry, .. } = &mut own {
                    entry.ttl = self.terms.ttl;
                }
                let slot = &own;",
            },
        ],
        found_by: FoundBy::Simulation,
    },
    Variant {
        name: "deadman disarmed by drop",
        changes: &[
            Change {
                package: "crates/ielections",
                good: "// Dropped: the record is left to expire, and the deadline stays armed (I4).",
                broken: "if BROKEN {
                self.env.deadman.disarm(leading.armed);
            }",
            },
        ],
        found_by: FoundBy::Simulation,
    },
    Variant {
        name: "a confirmed renewal moves a deadline that a loss brought forward",
        changes: &[
            Change {
                package: "crates/deadman",
                good: "!old.is_final && now < old.at",
                broken: "(BROKEN || !old.is_final) && now < old.at",
            },
        ],
        found_by: FoundBy::Simulation,
    },
    Variant {
        name: "killed at 0.95 TTL",
        changes: &[
            Change {
                package: "crates/ielections",
                good: "sent_at.after(self.share(KILL))",
                broken: "sent_at.after(self.share(if BROKEN { 950 } else { KILL }))",
            },
        ],
        found_by: FoundBy::Simulation,
    },
    Variant {
        name: "a claim of unknown outcome counts as not applied",
        changes: &[
            Change {
                package: "crates/ielections",
                good: "                target.unread = true;
                self.last_failure = Some(cause.to_string());
                self.queue(Intent::ReadBack)",
                broken: "                self.last_failure = Some(cause.to_string());
                if BROKEN {
                    target.attempts.discard_last();
                    self.reconsider();
                    return self.pause(now);
                }
                target.unread = true;
                self.queue(Intent::ReadBack)",
            },
        ],
        found_by: FoundBy::Simulation,
    },
    Variant {
        name: "an observer that compares incarnations instead of versions",
        changes: &[
            Change {
                package: "crates/ielections",
                good: "if known.version == entry.version => {",
                broken: "if known.version == entry.version
                        || BROKEN && known.incarnation() == entry.incarnation() =>
                    {
                        *known = entry.clone();",
            },
        ],
        found_by: FoundBy::Simulation,
    },
    Variant {
        name: "a release that does not wait for the renewal in flight",
        changes: &[
            Change {
                package: "crates/ielections",
                good: "if !leading.is_ending() || actor.calling {",
                broken: "if !leading.is_ending() || !BROKEN && actor.calling {",
            },
        ],
        found_by: FoundBy::Simulation,
    },
    Variant {
        name: "an epoch from the wall clock alone",
        changes: &[
            Change {
                package: "crates/ielections",
                good: "Self::new(counted.max(wall))",
                broken: "Self::new(if BROKEN { wall.max(1) } else { counted.max(wall) })",
            },
        ],
        found_by: FoundBy::Simulation,
    },
    Variant {
        name: "a renewal is forgotten when a read-back shows the old version",
        changes: &[
            Change {
                package: "crates/ielections",
                good: "if entry.version == self.held.version => self.pause(now),",
                broken: "if entry.version == self.held.version => {
                if BROKEN {
                    self.attempts.discard_last();
                }
                self.pause(now)
            }",
            },
        ],
        found_by: FoundBy::Simulation,
    },
    Variant {
        name: "a claim is forgotten when a read-back shows the old state",
        changes: &[
            Change {
                package: "crates/ielections",
                good: "// Undecided: the write may still be applied. Retry",
                broken: "if BROKEN {
                target.attempts.discard_last();
                self.reconsider();
            }
            // Retry",
            },
        ],
        found_by: FoundBy::Simulation,
    },
    Variant {
        name: "the next batch of documents is sent before the unknown one is settled",
        changes: &[
            Change {
                package: "crates/ielections",
                good: "                sent.stage = Stage::Unknown;
                self.failed(now, cause.to_string());
                Pace::AtOnce",
                broken: "                if BROKEN {
                    let cause: Arc<str> = cause.to_string().into();
                    let unknown = DocumentWriteError::Unknown { cause };
                    for (_, caller) in self.sent.take().into_iter().flat_map(|sent| sent.callers) {
                        answer(caller, Err(unknown.clone()));
                    }
                    return Pace::AtOnce;
                }
                sent.stage = Stage::Unknown;
                self.failed(now, cause.to_string());
                Pace::AtOnce",
            },
        ],
        found_by: FoundBy::Simulation,
    },
    Variant {
        name: "a fence without the incarnation",
        changes: &[
            Change {
                package: "crates/ielections",
                good: "entry.is_of(fence.incarnation, fence.epoch)",
                broken: "entry.epoch == fence.epoch && (BROKEN || entry.incarnation() == fence.incarnation)",
            },
        ],
        found_by: FoundBy::Simulation,
    },
    Variant {
        name: "an answer that counts from before a stop of the process",
        changes: &[
            Change {
                package: "crates/ielections",
                good: "self.now = self.env.clock.now();",
                broken: "if !BROKEN {
                self.now = self.env.clock.now();
            }",
            },
        ],
        found_by: FoundBy::Simulation,
    },
    Variant {
        name: "a release when only the command's own process is reaped",
        changes: &[
            Change {
                package: "crates/containment",
                good: "            if let Some(proof) = self.keeper.proof() {",
                broken: "            if BROKEN && self.outcome.ended.is_some() {
                return Ok(self.outcome);
            }
            if let Some(proof) = self.keeper.proof() {",
            },
        ],
        found_by: FoundBy::Simulation,
    },
    Variant {
        name: "a pause looked for by a stale read",
        changes: &[
            Change {
                package: "crates/vvm-host",
                good: "pause = storage.storage.standing_pause(&storage.cluster) => pause,",
                broken: "pause = async {
                if BROKEN {
                    storage.look_at_requests().await.map(|(seen, _)| seen.pause)
                } else {
                    storage.storage.standing_pause(&storage.cluster).await
                }
            } => pause,",
            },
        ],
        found_by: FoundBy::Simulation,
    },
    Variant {
        name: "a guardian releases before the last descendant is reaped",
        changes: &[
            Change {
                package: "crates/vvm-host",
                good: "if !self.proven || self.orderly {",
                broken: "if !BROKEN && !self.proven || self.orderly {",
            },
        ],
        found_by: FoundBy::Simulation,
    },
    Variant {
        name: "a guardian releases by a ticket of an earlier epoch",
        changes: &[
            Change {
                package: "crates/vvm-host",
                good: "let mut may_have_released = false;",
                broken: "let (incarnation, epoch) = match if BROKEN { storage.storage.get(&key).await.ok() } else { None } {
            Some(Slot::Held { entry, .. }) => (entry.incarnation(), entry.epoch),
            _ => (incarnation, epoch),
        };
        let mut may_have_released = false;",
            },
        ],
        found_by: FoundBy::Simulation,
    },
    Variant {
        name: "a guardian releases without the incarnation",
        changes: &[
            Change {
                package: "crates/vvm-host",
                good: "let mut may_have_released = false;",
                broken: "let incarnation = match if BROKEN { storage.storage.get(&key).await.ok() } else { None } {
            Some(Slot::Held { entry, .. }) if entry.epoch == epoch => entry.incarnation(),
            _ => incarnation,
        };
        let mut may_have_released = false;",
            },
        ],
        found_by: FoundBy::Simulation,
    },
    Variant {
        name: "a guardian writes the history after its release",
        changes: &[
            Change {
                package: "crates/vvm-host",
                good: "if let Some(documents) = storage.storage.documents() {
            // Afterwards",
                broken: "if BROKEN {
            let early = storage.storage.compare_and_delete(&key, incarnation, epoch).await;
            tracing::debug!(?early);
        }
        if let Some(documents) = storage.storage.documents() {
            // Afterwards",
            },
        ],
        found_by: FoundBy::Simulation,
    },
    Variant {
        name: "a guardian knows only the last claim",
        changes: &[
            Change {
                package: "crates/vvm-host",
                good: "        storage.leads(&cx.slot, &cx.standing, ttl);
",
                broken: "        if !BROKEN {
            storage.leads(&cx.slot, &cx.standing, ttl);
        }
",
            },
        ],
        found_by: FoundBy::Simulation,
    },
    Variant {
        name: "a keeper ignores the control group",
        changes: &[Change {
            package: "crates/containment",
            good: "if is_childless && self.containment.has_no_member() {",
            broken: "if is_childless && (BROKEN || self.containment.has_no_member()) {",
        }],
        found_by: FoundBy::Test("vvm-containment", Some("beside_tokio"), ""),
    },
];
