//! The link between two stages: a pair of connected sockets, typed in both directions.
//!
//! The messages stand with the stages that send them. How a stage gets its end stands in `launch`. Sequenced
//! packets carry one message each, whole or not at all, so that no reader waits for the rest of one.

mod frame;

pub(crate) use frame::{Frame, frame};

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

/// A message that fits a frame.
pub(crate) trait Message: Sized {
    fn to_frame(&self) -> Frame;
    /// `None` for a message that this version does not know.
    fn from_frame(frame: &Frame) -> Option<Self>;
}

/// One end of a link, over which `Out` is said and `In` is heard.
#[derive(Debug)]
pub(crate) struct Link<Out, In> {
    socket: OwnedFd,
    words: PhantomData<fn(Out) -> In>,
}

/// What a look at the link found.
#[derive(Debug)]
pub enum Received<In> {
    /// A message, and the descriptors that came with it.
    Message(In, Vec<OwnedFd>),
    /// The other end is gone, or runs another version. No message will come.
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
    pub(crate) fn send(&self, message: &Out) -> rustix::io::Result<()> {
        self.send_with(message, &[])
    }

    /// Says `message` and hands over descriptors, at most three.
    ///
    /// # Errors
    /// As [`say`](Self::say).
    pub(crate) fn send_with(&self, message: &Out, descriptors: &[BorrowedFd<'_>]) -> rustix::io::Result<()> {
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
    pub(crate) fn receive(&self) -> Option<Received<In>> {
        let mut bytes = [0; Frame::BYTES];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let received = loop {
            let into = &mut [IoSliceMut::new(&mut bytes)];
            match recvmsg(&self.socket, into, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
                // Reset is said once, by an end that went with words of ours unheard. Its own last words come
                // after it.
                Err(Errno::INTR | Errno::CONNRESET) => {}
                outcome => break outcome,
            }
        };
        match received {
            Ok(message) if message.bytes == Frame::BYTES => {}
            Err(Errno::AGAIN) => return None,
            Ok(_) | Err(_) => return Some(Received::End),
        }
        let mut descriptors = Vec::new();
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                descriptors.extend(received);
            }
        }
        let message = Frame::from_bytes(&bytes).and_then(|frame| In::from_frame(&frame));
        Some(message.map_or(Received::End, |message| Received::Message(message, descriptors)))
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
    use super::*;

    /// A number.
    #[derive(PartialEq, Eq, Debug)]
    struct Number(u64);

    impl Message for Number {
        fn to_frame(&self) -> Frame {
            frame(1, [self.0])
        }

        fn from_frame(frame: &Frame) -> Option<Self> {
            (frame.kind == 1).then_some(Self(frame.words[0]))
        }
    }

    fn two() -> (Link<Number, Number>, Link<Number, Number>) {
        let (near, far) = pair().unwrap();
        (near, Link::over(far))
    }

    #[test]
    fn a_message_arrives_whole_with_its_descriptors() {
        let (near, far) = two();
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        near.send_with(&Number(7), &[reader.as_fd()]).unwrap();
        drop(reader);
        let Some(Received::Message(heard, descriptors)) = far.receive() else { panic!("nothing heard") };
        assert_eq!(heard, Number(7));
        rustix::io::write(&writer, b"x").unwrap();
        let mut byte = [0];
        assert_eq!(rustix::io::read(&descriptors[0], &mut byte), Ok(1));
        assert!(far.receive().is_none());
    }

    #[test]
    fn a_full_link_refuses_and_never_blocks() {
        let (near, _far) = two();
        let refused = (0..1_000_000).find_map(|_| near.send(&Number(1)).err());
        assert_eq!(refused, Some(Errno::AGAIN));
    }

    #[test]
    fn the_end_of_the_other_is_heard_after_its_last_words() {
        let (near, far) = two();
        far.send(&Number(1)).unwrap();
        drop(far);
        near.wait();
        assert!(matches!(near.receive(), Some(Received::Message(Number(1), _))));
        assert!(matches!(near.receive(), Some(Received::End)));
        assert_eq!(near.send(&Number(2)), Err(Errno::PIPE));
    }

    #[test]
    fn the_last_words_of_an_end_that_did_not_listen_are_heard() {
        let (near, far) = two();
        near.send(&Number(1)).unwrap();
        far.send(&Number(2)).unwrap();
        drop(far);
        assert!(matches!(near.receive(), Some(Received::Message(Number(2), _))));
        assert!(matches!(near.receive(), Some(Received::End)));
    }
}
