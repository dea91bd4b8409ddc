//! The link between two stages of `vvm`: a pair of connected sockets, and what may be said over it.
//!
//! What lives here: [`Link`], typed in both directions; the messages (module [`message`]) and their form ([`frame`]).
//!
//! What does not: who says what when (`guardian`, `host`, `worker`), and how a stage gets its end (`stage`).
//!
//! Why sequenced packets: one message is one packet, whole or not at all, so nobody has to wait for the rest of one.

mod frame;
pub(crate) mod message;

use frame::Frame;
use message::Message;
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
    },
};
use std::{
    io::{self, IoSlice, IoSliceMut},
    marker::PhantomData,
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

/// The most descriptors that go with one message: a stage's standard input, its guardian, and a folder.
const MAX_DESCRIPTORS: usize = 3;

/// One end of a link, over which `Out` is said and `In` is heard.
#[derive(Debug)]
pub(crate) struct Link<Out, In> {
    socket: OwnedFd,
    words: PhantomData<fn(Out) -> In>,
}

/// What a look at the link found.
#[derive(Debug)]
pub(crate) enum Heard<In> {
    /// A message, and the descriptors that came with it.
    Message(In, Vec<OwnedFd>),
    /// The other end is gone, or speaks another version; nothing will ever come.
    End,
}

/// Two ends of a new link, the second still without a process.
pub(crate) fn pair<Out: Message, In: Message>() -> io::Result<(Link<Out, In>, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (near, far) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    Ok((Link::over(near), far))
}

impl<Out: Message, In: Message> Link<Out, In> {
    /// The link whose end `socket` is.
    pub(crate) fn over(socket: OwnedFd) -> Self {
        Self { socket, words: PhantomData }
    }

    /// Says `message`. Never blocks.
    ///
    /// # Errors
    /// `AGAIN` when the other end has not listened for long, `PIPE` when it is gone. Nothing was said then.
    pub(crate) fn say(&self, message: &Out) -> rustix::io::Result<()> {
        self.say_with(message, &[])
    }

    /// Says `message` and hands over descriptors, at most three.
    ///
    /// # Errors
    /// As [`say`](Self::say).
    pub(crate) fn say_with(&self, message: &Out, descriptors: &[BorrowedFd<'_>]) -> rustix::io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(Errno::TOOBIG);
        }
        let bytes = message.to_frame().to_bytes();
        loop {
            match sendmsg(&self.socket, &[IoSlice::new(&bytes)], &mut ancillary, SendFlags::NOSIGNAL) {
                Err(Errno::INTR) => {}
                outcome => return outcome.map(drop),
            }
        }
    }

    /// What has been said, if anything has. Never blocks.
    pub(crate) fn hear(&self) -> Option<Heard<In>> {
        let mut bytes = [0; Frame::BYTES];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let received = loop {
            let into = &mut [IoSliceMut::new(&mut bytes)];
            match recvmsg(&self.socket, into, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
                // Reset is said once, by an end that went with words of ours unheard. Its own last words come after it.
                Err(Errno::INTR | Errno::CONNRESET) => {}
                outcome => break outcome,
            }
        };
        match received {
            Ok(message) if message.bytes == Frame::BYTES => {}
            Err(Errno::AGAIN) => return None,
            Ok(_) | Err(_) => return Some(Heard::End),
        }
        let mut descriptors = Vec::new();
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                descriptors.extend(received);
            }
        }
        let message = Frame::from_bytes(&bytes).and_then(|frame| In::from_frame(&frame));
        Some(message.map_or(Heard::End, |message| Heard::Message(message, descriptors)))
    }

    /// Blocks until something is said or the other end is gone.
    pub(crate) fn wait(&self) {
        let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
        while poll(&mut fds, None) == Err(Errno::INTR) {}
    }
}

impl<Out, In> AsFd for Link<Out, In> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::{
        message::{ToGuardian, ToHost},
        *,
    };
    use crate::containment::Level;
    use vvm_clock::Instant;

    #[test]
    fn a_message_arrives_whole_with_its_descriptors() {
        let (guardian, far) = pair::<ToHost, ToGuardian>().unwrap();
        let host = Link::<ToGuardian, ToHost>::over(far);
        let begin = ToHost::Begin {
            guardian: rustix::process::getpid(),
            terminal_group: None,
            level: Level::Guardian,
        };
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        guardian.say_with(&begin, &[reader.as_fd()]).unwrap();
        drop(reader);
        let Some(Heard::Message(heard, descriptors)) = host.hear() else { panic!("nothing heard") };
        assert_eq!(heard, begin);
        rustix::io::write(&writer, b"x").unwrap();
        let mut byte = [0];
        assert_eq!(rustix::io::read(&descriptors[0], &mut byte), Ok(1));
        assert!(host.hear().is_none());
    }

    #[test]
    fn a_full_link_refuses_and_never_blocks() {
        let (guardian, _far) = pair::<ToHost, ToGuardian>().unwrap();
        let message = ToHost::InForce(Some(Instant::NEVER));
        let refused = (0..1_000_000).find_map(|_| guardian.say(&message).err());
        assert_eq!(refused, Some(Errno::AGAIN));
    }

    #[test]
    fn the_end_of_the_other_is_heard_after_its_last_words() {
        let (guardian, far) = pair::<ToHost, ToGuardian>().unwrap();
        let host = Link::<ToGuardian, ToHost>::over(far);
        host.say(&ToGuardian::Deadline(None)).unwrap();
        drop(host);
        guardian.wait();
        assert!(matches!(guardian.hear(), Some(Heard::Message(ToGuardian::Deadline(None), _))));
        assert!(matches!(guardian.hear(), Some(Heard::End)));
        assert_eq!(guardian.say(&ToHost::InForce(None)), Err(Errno::PIPE));
    }

    #[test]
    fn the_last_words_of_one_who_did_not_listen_are_heard() {
        let (guardian, far) = pair::<ToHost, ToGuardian>().unwrap();
        let host = Link::<ToGuardian, ToHost>::over(far);
        guardian.say(&ToHost::InForce(None)).unwrap();
        host.say(&ToGuardian::Deadline(None)).unwrap();
        drop(host);
        assert!(matches!(guardian.hear(), Some(Heard::Message(ToGuardian::Deadline(None), _))));
        assert!(matches!(guardian.hear(), Some(Heard::End)));
    }
}
