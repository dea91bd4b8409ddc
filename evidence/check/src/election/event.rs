use crate::search::happenings;

/// Something that happens to a process, to the call of one of its actors, or to the record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Event {
    pub(crate) what: What,
    /// The number of the process, of a late write, or of a server.
    pub(crate) process: usize,
    pub(crate) actor: usize,
}

happenings! {
    /// What may happen, and what a story says after the name of the process, or of the request.
    What {
        /// The next instant comes at which a timer ends, but messages come first.
        TimePasses = "time passes",
        Woken = "'s timer ends",
        Killed = " is killed by its deadman, and starts again",
        Unanswered = " gets no answer in time",
        Answered = " is answered",
        /// The request arrives; its answer takes longer.
        Arrives = " arrives, and its answer is slow",
        Lands = " arrives late",
        Resume = " goes on",
        Mend = " is connected again",
        HandBack = " has stopped its work and hands back",
        Tightened = " is told that guardian and keeper have the deadline of its successor",
        Delivered = " arrives late",
        Link = " exchanges datagrams again",
        // From here on: bounded in number.
        /// The request, the answer or both may take any time, or be lost.
        Slow = " is slow",
        /// The time of a call is over, and the request arrives later.
        Late = " gets no answer in time, and is still under way",
        Twice = " is answered, and a copy is under way",
        /// Answered as not applied, which is true.
        NotApplied = " is answered as not applied",
        /// The outcome is unknown before the time of the call is over. The request may arrive later.
        Broken = " loses its connection",
        Replaced = " is answered: the storage was replaced",
        Crash = " crashes, and starts again",
        Pause = " is stopped",
        /// All messages of a process are lost until it is mended.
        Cut = " is cut off",
        /// A leader that has not lost its leadership releases it. No fault.
        Release = " stops its work and releases",
        Deleted = "another program deletes the record and its epoch",
        /// Another program deletes the record, and its epoch stays.
        Vacated = "another program deletes the record",
        /// Another program writes a record of its own, and has not waited for it.
        Overwritten = "another program writes a record of its own",
        Garbled = "another program writes what is no record",
        PingLost = "'s timer ends, and what it sends is lost",
        PingLate = "'s timer ends, and what it sends is late",
        PingTwice = "'s timer ends, and a copy of what it sends is late",
        /// The answer to it.
        AnswerLost = "'s timer ends, and the answer is lost",
        AnswerLate = "'s timer ends, and the answer is late",
        AnswerTwice = "'s timer ends, and a copy of the answer is late",
        TightensLate = " waits for guardian and keeper",
        Unlink = " exchanges no datagrams",
        /// A standby asks to be withdrawn, and ends. No fault.
        Leaves = " wants to stop",
        /// A standby copies the state of the primary. No fault.
        Replicates = " copies the primary",
        /// A standby is promoted, with what it has. No fault: it stands for the end of the primary.
        Promotes = " is promoted",
    }
}

impl What {
    /// What may become of the datagrams that a timer causes: of which one, whether it is sent at once, and whether late.
    pub(crate) const DATAGRAMS: [(Self, (usize, bool, bool)); 6] = [
        (Self::PingLost, (0, false, false)),
        (Self::PingLate, (0, false, true)),
        (Self::PingTwice, (0, true, true)),
        (Self::AnswerLost, (1, false, false)),
        (Self::AnswerLate, (1, false, true)),
        (Self::AnswerTwice, (1, true, true)),
    ];

    pub(crate) fn fate(self) -> Option<(usize, bool, bool)> {
        Self::DATAGRAMS.into_iter().find(|(what, _)| *what == self).map(|(_, fate)| fate)
    }

    pub(crate) fn is_bounded(self) -> bool {
        self as usize >= Self::Slow as usize
    }

    pub(crate) fn is_fault(self) -> bool {
        self.is_bounded() && !matches!(self, Self::Release | Self::Leaves | Self::Replicates | Self::Promotes)
    }
}
