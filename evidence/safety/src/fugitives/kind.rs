//! The workers, and the ways to end guardian and host.

/// A worker that tries to escape containment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    pub(super) title: &'static str,
    /// A shell script.
    pub(super) script: &'static str,
    /// The least number of its processes once it is set up.
    pub(super) processes: usize,
    pub(super) needs_root: bool,
    /// It forks as fast as it can.
    pub(super) storms: bool,
}

/// All of them.
pub(super) const KINDS: [Kind; 6] = [
    Kind::of("own session", "setsid sleep 1000 & wait", 2),
    Kind::of("double fork", "(setsid sh -c 'sleep 1000 & :' &); exec sleep 1001", 2),
    Kind {
        needs_root: true,
        ..Kind::of(
            "another user",
            "setpriv --reuid 65534 --clear-groups sleep 1000 &
             exec setpriv --reuid 65534 --clear-groups sleep 1001",
            2,
        )
    },
    Kind::of("ignores TERM", "trap '' TERM HUP INT QUIT; setsid sleep 1000 & sleep 1001 & wait", 3),
    Kind::of(
        "a tree of fifty",
        "for a in 1 2 3 4 5; do (for b in 1 2 3 4 5 6 7 8 9 10; do sleep 1000 & done; wait) & done; wait",
        56,
    ),
    Kind {
        storms: true,
        ..Kind::of(
            "a storm of forks",
            "(setsid sh -c 'storm() { while :; do (:) & done; }; storm' &)
             (setsid sh -c 'next() { (next &); }; next' &); exec sleep 1001",
            2,
        )
    },
];

impl Kind {
    const fn of(title: &'static str, script: &'static str, processes: usize) -> Self {
        Self { title, script, processes, needs_root: false, storms: false }
    }
}

/// How guardian or host end or stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ending {
    HostKilled,
    GuardianKilled,
    HostStopped,
    BothStopped,
}

impl Ending {
    pub(super) const ALL: [Self; 4] =
        [Self::HostKilled, Self::GuardianKilled, Self::HostStopped, Self::BothStopped];

    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::HostKilled => "host killed",
            Self::GuardianKilled => "guardian killed",
            Self::HostStopped => "host stopped",
            Self::BothStopped => "both stopped",
        }
    }
}
