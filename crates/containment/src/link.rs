//! [`Link`]: a pair of connected sockets between two stages, typed in both directions. Sequenced packets carry one
//! message each, whole or not at all, so no reader waits for the rest of one.

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
        SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg,
        socketpair,
    },
};
use std::{
    io::{self, IoSlice, IoSliceMut},
    marker::PhantomData,
    mem::MaybeUninit,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixDatagram,
    },
};
use tokio::io::Interest;

/// The most descriptors of one message: a stage's standard input, its guardian, and a folder.
const MAX_DESCRIPTORS: usize = 3;

pub(crate) trait Message: Sized {
    fn to_frame(&self) -> Frame;
    fn from_frame(frame: &Frame) -> Option<Self>;
}

#[derive(Debug)]
pub(crate) struct Link<Out, In> {
    socket: OwnedFd,
    messages: PhantomData<fn(Out) -> In>,
}

/// What was received over a link.
#[derive(Debug)]
pub enum LinkMessage<In> {
    /// A message, and the descriptors that came with it.
    Message(In, Vec<OwnedFd>),
    /// The other end is gone, or sent no valid message, as another version does. Do not receive again.
    End,
}

/// Creates a link. The second end is for a process that the caller starts.
pub(crate) fn pair<Out: Message, In: Message>() -> io::Result<(Link<Out, In>, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (near, far) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    Ok((Link::over(near), far))
}

impl<Out: Message, In: Message> Link<Out, In> {
    pub(crate) fn over(socket: OwnedFd) -> Self {
        Self { socket, messages: PhantomData }
    }

    /// Never blocks. Sends nothing and fails with `AGAIN` if the other end lags far behind, with `PIPE` if it is gone.
    pub(crate) fn send(&self, message: &Out) -> rustix::io::Result<()> {
        self.send_with(message, &[])
    }

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

    /// Sends the first message. A process that has ended already is found when it is reaped.
    pub(crate) fn begin(&self, message: &Out, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        match self.send_with(message, descriptors) {
            Err(Errno::PIPE) => Ok(()),
            sent => Ok(sent?),
        }
    }

    /// Returns the next message; `None` if none has arrived. Never blocks.
    pub(crate) fn receive(&self) -> Option<LinkMessage<In>> {
        let mut bytes = [0; Frame::BYTES];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let received = loop {
            let into = &mut [IoSliceMut::new(&mut bytes)];
            match recvmsg(&self.socket, into, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
                // CONNRESET is reported once, if the other end closed with messages unread. Its last messages follow.
                Err(Errno::INTR | Errno::CONNRESET) => {}
                outcome => break outcome,
            }
        };
        match received {
            // Out of descriptors, the kernel delivers some, or none: without its group a level would hold in name only.
            Ok(message) if message.bytes == Frame::BYTES && !message.flags.contains(ReturnFlags::CTRUNC) => {}
            Err(Errno::AGAIN) => return None,
            Ok(_) | Err(_) => return Some(LinkMessage::End),
        }
        let mut descriptors = Vec::new();
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                descriptors.extend(received);
            }
        }
        let message = Frame::from_bytes(&bytes).and_then(|frame| In::from_frame(&frame));
        Some(message.map_or(LinkMessage::End, |message| LinkMessage::Message(message, descriptors)))
    }

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

/// One message in transit: a version, a kind and four numbers. A guardian reads its fixed size without allocating.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) words: [u64; 4],
}

/// Rises whenever a message changes its meaning. Both ends must be the same binary.
const VERSION: u8 = 4;

impl Frame {
    const BYTES: usize = 40;

    fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[0] = VERSION;
        bytes[1] = self.kind;
        for (place, word) in bytes[8..].chunks_exact_mut(8).zip(self.words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        if bytes[0] != VERSION {
            return None;
        }
        let mut words = [0; 4];
        for (word, place) in words.iter_mut().zip(bytes[8..].as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*place);
        }
        Some(Self { kind: bytes[1], words })
    }
}

pub(crate) fn frame<const N: usize>(kind: u8, content: [u64; N]) -> Frame {
    let mut words = [0; 4];
    for (word, value) in words.iter_mut().zip(content) {
        *word = value;
    }
    Frame { kind, words }
}

/// Waits in an async runtime for a socket that other code reads. The runtime polls a copy of the descriptor, because
/// `AsyncFd` on a borrowed one would need `unsafe` code.
#[derive(Debug)]
pub struct ReadableLink(tokio::net::UnixDatagram);

impl ReadableLink {
    /// Watches `socket`, and makes it non-blocking. Must be called in the context of a runtime.
    pub fn new(socket: impl AsFd) -> io::Result<Self> {
        // The kind of socket does not matter: nothing is read through this handle.
        let copy = UnixDatagram::from(socket.as_fd().try_clone_to_owned()?);
        copy.set_nonblocking(true)?;
        tokio::net::UnixDatagram::from_std(copy).map(Self)
    }

    /// Waits until `look` returns a value. Fails if the runtime shuts down. Cancel safe: no value of `look` is lost.
    pub async fn find<Found>(&self, mut look: impl FnMut() -> Option<Found>) -> io::Result<Found> {
        let nothing = || io::Error::from(io::ErrorKind::WouldBlock);
        self.0.async_io(Interest::READABLE, || look().ok_or_else(nothing)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    fn both_ends() -> (Link<Number, Number>, Link<Number, Number>) {
        let (near, far) = pair().unwrap();
        (near, Link::over(far))
    }

    #[test]
    fn message_that_lost_a_descriptor_is_none() {
        let (near, far) = both_ends();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8 * MAX_DESCRIPTORS))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let descriptors = [near.as_fd(); 8 * MAX_DESCRIPTORS];
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)));
        let bytes = Number(7).to_frame().to_bytes();
        sendmsg(&near, &[IoSlice::new(&bytes)], &mut ancillary, SendFlags::empty()).unwrap();
        assert!(matches!(far.receive(), Some(LinkMessage::End)));
    }

    #[test]
    fn message_arrives_whole_with_its_descriptors() {
        let (near, far) = both_ends();
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        near.send_with(&Number(7), &[reader.as_fd()]).unwrap();
        drop(reader);
        let Some(LinkMessage::Message(received, descriptors)) = far.receive() else { panic!("no message") };
        assert_eq!(received, Number(7));
        rustix::io::write(&writer, b"x").unwrap();
        let mut byte = [0];
        assert_eq!(rustix::io::read(&descriptors[0], &mut byte), Ok(1));
        assert!(far.receive().is_none());
    }

    #[test]
    fn full_link_refuses_and_never_blocks() {
        let (near, _far) = both_ends();
        let refused = (0..1_000_000).find_map(|_| near.send(&Number(1)).err());
        assert_eq!(refused, Some(Errno::AGAIN));
    }

    #[test]
    fn end_is_received_after_the_last_message() {
        let (near, far) = both_ends();
        far.send(&Number(1)).unwrap();
        drop(far);
        near.wait();
        assert!(matches!(near.receive(), Some(LinkMessage::Message(Number(1), _))));
        assert!(matches!(near.receive(), Some(LinkMessage::End)));
        assert_eq!(near.send(&Number(2)), Err(Errno::PIPE));
    }

    #[test]
    fn last_message_of_an_end_with_unread_messages_is_received() {
        let (near, far) = both_ends();
        near.send(&Number(1)).unwrap();
        far.send(&Number(2)).unwrap();
        drop(far);
        assert!(matches!(near.receive(), Some(LinkMessage::Message(Number(2), _))));
        assert!(matches!(near.receive(), Some(LinkMessage::End)));
    }

    #[test]
    fn frame_survives_its_bytes_and_another_version_is_refused() {
        let frame = Frame { kind: 7, words: [1, u64::MAX, 0, 1 << 40] };
        let mut bytes = frame.to_bytes();
        assert_eq!(Frame::from_bytes(&bytes), Some(frame));
        bytes[0] += 1;
        assert_eq!(Frame::from_bytes(&bytes), None);
    }
}
