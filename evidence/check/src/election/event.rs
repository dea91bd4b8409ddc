//! [`Event`]: what may happen next, and its words in a story.

/// Something that happens to a process, to the call of one of its actors, or to the record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Event {
    pub(crate) what: What,
    /// The number of the process, of a late write, or of a server.
    pub(crate) process: usize,
    /// The number of its actor.
    pub(crate) actor: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum What {
    /// The next instant comes at which a timer ends, but messages come first.
    TimePasses,
    Woken,
    Killed,
    Unanswered,
    Answered,
    /// The request arrives; its answer takes longer.
    Arrives,
    Lands,
    Resume,
    Mend,
    HandBack,
    // From here on: bounded in number.
    /// The request, the answer or both may take any time, or be lost.
    Slow,
    /// The time of a call is over, and the request arrives later.
    Late,
    Twice,
    /// Answered as not applied, which is true.
    NotApplied,
    /// The outcome is unknown before the time of the call is over. The request may arrive later.
    Broken,
    Replaced,
    Crash,
    Pause,
    /// All messages of a process are lost until it is mended.
    Cut,
    /// A leader that has not lost its leadership releases it. No fault.
    Release,
    /// Another program deletes the record, and its epoch with it.
    Deleted,
    /// Another program deletes the record, and its epoch stays.
    Vacated,
    /// Another program writes a record of its own, and has not waited for it.
    Overwritten,
    /// Another program writes what is no record.
    Garbled,
    /// A standby copies the state of the primary. No fault.
    Replicates,
    /// A standby is promoted, with what it has. No fault: it stands for the end of the primary.
    Promotes,
}

impl What {
    pub(crate) fn is_bounded(self) -> bool {
        self as usize >= Self::Slow as usize
    }

    pub(crate) fn is_fault(self) -> bool {
        self.is_bounded() && !matches!(self, Self::Release | Self::Replicates | Self::Promotes)
    }

    /// What a story says after the name of the process, or of the request.
    pub(crate) fn told(self) -> &'static str {
        match self {
            Self::TimePasses => "time passes",
            Self::Woken => "'s timer ends",
            Self::Killed => " is killed by its deadman, and starts again",
            Self::Unanswered => " gets no answer in time",
            Self::Answered => " is answered",
            Self::Arrives => " arrives, and its answer is slow",
            Self::Lands => " arrives late",
            Self::Resume => " goes on",
            Self::Mend => " is connected again",
            Self::HandBack => " has stopped its work and hands back",
            Self::Slow => " is slow",
            Self::Late => " gets no answer in time, and is still under way",
            Self::Twice => " is answered, and a copy is under way",
            Self::NotApplied => " is answered as not applied",
            Self::Broken => " loses its connection",
            Self::Replaced => " is answered: the storage was replaced",
            Self::Crash => " crashes, and starts again",
            Self::Pause => " is stopped",
            Self::Cut => " is cut off",
            Self::Release => " stops its work and releases",
            Self::Deleted => "another program deletes the record and its epoch",
            Self::Vacated => "another program deletes the record",
            Self::Overwritten => "another program writes a record of its own",
            Self::Garbled => "another program writes what is no record",
            Self::Replicates => " copies the primary",
            Self::Promotes => " is promoted",
        }
    }
}
