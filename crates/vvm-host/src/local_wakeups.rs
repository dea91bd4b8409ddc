//! Wake-ups between processes of one user on one machine: after a release or a request, the others look at the storage
//! at once instead of within a second. No server: every candidate binds a datagram socket in a [`folder`] of the user.

pub(crate) mod folder;

pub use folder::{LocalDir, UnfitFolder};

use folder::Folder;
use std::{
    fmt, fs,
    future::pending,
    io,
    os::unix::{
        fs::{MetadataExt as _, PermissionsExt as _},
        net::UnixDatagram,
    },
    path::{Path, PathBuf},
    time::Duration,
};
use vvm_clock::{SystemWallClock, WallClock as _};

/// How many datagrams a receiver takes at once: more than a socket's usual queue (`net.unix.max_dgram_qlen`).
const DRAINED: usize = 1024;

/// How old a socket without receiver must be before it is removed: one that is being bound has none for a moment.
const ABANDONED: Duration = Duration::from_secs(60);

/// Wakes the candidates for one name.
#[derive(Debug)]
pub struct WakeSender {
    to: Option<(Folder, UnixDatagram)>,
}

impl WakeSender {
    /// Opens a sender to the candidates for `name`.
    pub fn to(dir: &LocalDir, name: &str) -> Result<Self, UnfitFolder> {
        let Some(folder) = Folder::open(dir, name)? else { return Ok(Self { to: None }) };
        let socket = unbound().map_err(|cause| folder.unusable(cause))?;
        Ok(Self { to: Some((folder, socket)) })
    }

    /// Wakes all candidates. Never waits.
    pub fn wake(&self) {
        self.wake_except(None);
    }

    fn wake_except(&self, own: Option<&Path>) {
        let Some((folder, socket)) = &self.to else { return };
        for path in folder.sockets().iter().filter(|path| Some(path.as_path()) != own) {
            // Its queue is full, it has no receiver, it is gone by now, or it is another user's.
            let _ = socket.send_to(&[], path);
        }
    }
}

fn unbound() -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Removes the sockets of all names that have no receiver, unless they are new. One that can't be removed stays.
fn sweep(folder: &Folder) -> io::Result<()> {
    let socket = unbound()?;
    for path in folder.sockets_with("") {
        let refusal = socket.connect(&path).err().map(|refusal| refusal.kind());
        if refusal == Some(io::ErrorKind::ConnectionRefused) && is_old(&path) {
            let _ = fs::remove_file(path);
        }
    }
    Ok(())
}

fn is_old(path: &Path) -> bool {
    let made = fs::symlink_metadata(path).ok().and_then(|found| u64::try_from(found.mtime()).ok());
    let now = SystemWallClock.since_unix_epoch();
    made.is_some_and(|made| now > Duration::from_secs(made).saturating_add(ABANDONED))
}

/// The wake-ups of one candidate: sends to the others, and receives from them. **Nothing depends on a wake-up, and
/// nothing in one is trusted.** A receiver only looks at the storage sooner, and limits how often. A forged or repeated
/// datagram costs a look, a lost one costs promptness: the receiver polls anyway. So a wake-up can't open a slot (I5),
/// and can't stop or prolong work (I1). Sending never waits (I10); a receiver whose queue is full has wake-ups enough.
pub(crate) struct LocalWakeups {
    sender: WakeSender,
    receiver: Option<WakeReceiver>,
}

struct WakeReceiver {
    socket: tokio::net::UnixDatagram,
    path: PathBuf,
}

impl LocalWakeups {
    /// Joins the candidates for `name`, until the value is dropped, and removes abandoned sockets.
    pub(crate) fn join(dir: &LocalDir, name: &str) -> Result<Self, UnfitFolder> {
        let sender = WakeSender::to(dir, name)?;
        let Some((folder, _)) = &sender.to else { return Ok(Self::disabled()) };
        let receiver = sweep(folder).and_then(|()| WakeReceiver::open(folder.new_socket()));
        let receiver = receiver.map_err(|cause| folder.unusable(cause))?;
        Ok(Self { receiver: Some(receiver), sender })
    }

    pub(crate) fn disabled() -> Self {
        Self { sender: WakeSender { to: None }, receiver: None }
    }

    pub(crate) fn wake(&self) {
        self.sender.wake_except(self.receiver.as_ref().map(|receiver| receiver.path.as_path()));
    }

    /// Waits for a wake-up. The kernel keeps those that come before the call.
    pub(crate) async fn woken(&self) {
        match &self.receiver {
            Some(receiver) => receiver.receive().await,
            None => pending().await,
        }
    }
}

impl WakeReceiver {
    fn open(path: PathBuf) -> io::Result<Self> {
        let socket = UnixDatagram::bind(&path)?;
        let restricted = fs::set_permissions(&path, fs::Permissions::from_mode(0o600))
            .and_then(|()| socket.set_nonblocking(true))
            .and_then(|()| tokio::net::UnixDatagram::from_std(socket));
        match restricted {
            Ok(socket) => Ok(Self { socket, path }),
            Err(cause) => {
                let _ = fs::remove_file(&path);
                Err(cause)
            }
        }
    }

    async fn receive(&self) {
        loop {
            if self.socket.readable().await.is_err() {
                // The runtime shuts down.
                return pending().await;
            }
            let received = (0..DRAINED).take_while(|_| self.socket.try_recv(&mut []).is_ok()).count();
            if received > 0 {
                return;
            }
        }
    }
}

impl Drop for WakeReceiver {
    fn drop(&mut self) {
        // Another candidate removes a file that stays.
        let _ = fs::remove_file(&self.path);
    }
}

impl fmt::Debug for LocalWakeups {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "LocalWakeups({:?})", self.receiver.as_ref().map(|receiver| &receiver.path))
    }
}

#[cfg(test)]
mod tests;
