//! The supervisor's hold on a command: as a child of its own, or by way of the process 1 of a PID namespace.

use super::alongside::Helpers;
use crate::{
    child_handle::ChildHandle,
    event::{Event, OnEvent},
    link::{Heard, Link},
    namespace::{
        message::{FromInit, ToInit},
        refusal::Refusal,
    },
    processes::Ended,
    readable::Readable,
    signals::Passed,
};
use rustix::process::Pid;
use std::sync::Arc;

/// A hold on a command.
#[derive(Debug)]
pub(crate) enum Hold {
    /// It is a child of this process.
    Child(ChildHandle),
    /// It is in a namespace of its own.
    Apart(Apart),
}

/// A hold by way of process 1 of its namespace.
#[derive(Debug)]
pub(crate) struct Apart {
    /// The child of this process that keeps the namespace.
    outside: Pid,
    link: Arc<Link<ToInit, FromInit>>,
    helpers: Arc<Helpers>,
    on_event: OnEvent,
    readable: Readable,
    link_open: bool,
    refusal: Option<Refusal>,
    ended: Option<Ended>,
}

impl Hold {
    /// The child of this process that ends as the command does, or, if it is not the command itself, when all is over.
    pub(crate) fn process(&self) -> Pid {
        match self {
            Self::Child(child) => child.pid,
            Self::Apart(apart) => apart.outside,
        }
    }

    /// Passes a signal on to a command that has not ended.
    pub(crate) fn pass_on(&self, passed: Passed, on_event: &OnEvent) {
        let outcome = match self {
            Self::Child(child) => child.pass_on(passed),
            Self::Apart(apart) => apart.link.say(&ToInit::Signal(passed)),
        };
        if let Err(refusal) = outcome {
            on_event.report(Event::NotPassedOn { signal: passed.signal, cause: refusal.into() });
        }
    }

    /// How the command ended, if another process than the kernel has said so: reaping tells the rest. Never blocks.
    pub(crate) fn ended(&mut self) -> Option<Ended> {
        match self {
            Self::Child(_) => None,
            Self::Apart(apart) => {
                while apart.link_open
                    && let Some(heard) = apart.link.hear()
                {
                    apart.note(heard);
                }
                apart.ended
            }
        }
    }

    /// Why there is no command, if the namespace is to blame. Never blocks.
    pub(crate) fn refusal(&mut self) -> Option<Refusal> {
        self.ended();
        match self {
            Self::Child(_) => None,
            Self::Apart(apart) => apart.refusal,
        }
    }

    /// Waits until there is something new; for ever where the kernel tells everything.
    ///
    /// # Cancel safety
    /// May be dropped and called again at will: what is heard is kept.
    pub(crate) async fn stirs(&mut self) {
        match self {
            Self::Apart(apart) if apart.link_open => {
                match apart.readable.find(|| apart.link.hear()).await {
                    Ok(heard) => apart.note(heard),
                    // Only where the runtime shuts down, which waits for nothing.
                    Err(_) => apart.link_open = false,
                }
            }
            Self::Apart(_) | Self::Child(_) => std::future::pending().await,
        }
    }
}

impl Apart {
    /// By way of the child `outside`, over `link`, which also tells of `helpers`.
    pub(crate) fn new(
        outside: Pid,
        link: Arc<Link<ToInit, FromInit>>,
        helpers: Arc<Helpers>,
        on_event: OnEvent,
        readable: Readable,
    ) -> Self {
        Self { outside, link, helpers, on_event, readable, link_open: true, refusal: None, ended: None }
    }

    fn note(&mut self, heard: Heard<FromInit>) {
        match heard {
            Heard::Message(FromInit::Ended(ended), _) => self.ended = Some(ended),
            Heard::Message(FromInit::Refused(refusal), _) => self.refusal = Some(refusal),
            Heard::Message(FromInit::HelperEnded(helper, ended), _) => self.helpers.has_ended(helper, ended),
            Heard::Message(FromInit::NotPassedOn(signal, errno), _) => {
                self.on_event.report(Event::NotPassedOn { signal, cause: errno.into() });
            }
            Heard::Message(FromInit::Ready, _) => {}
            Heard::End => self.link_open = false,
        }
    }
}
