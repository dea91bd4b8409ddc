//! Processes of one user on one machine tell each other that something has changed: a slot was released, a
//! request was made. Whoever hears it looks at the storage at once, instead of within a second.
//!
//! What lives here: telling, and being told. Where neighbours meet stands in [`folder`]. What does not: what
//! was changed.
//!
//! There is no server. Every candidate binds a datagram socket in a folder that belongs to the user, and
//! telling is one datagram, without waiting, to each socket there that is of the same name. A process that is
//! gone leaves a file that refuses datagrams, which the next one to tell removes.
//!
//! **None of it is needed, and none of it is trusted.** A datagram is empty: there is nothing in it to be
//! believed. Whoever gets one looks at the storage sooner, at most every [`Terms::HINT_GAP`], and goes by
//! what it finds there, so that a datagram that is forged, repeated or of another storage with the same name
//! costs a look. One that is lost costs promptness: whoever was to hear it looks by itself, as it would
//! without any of this. Nothing here can open a slot (I5), stop work or keep it going (I1), and nothing waits
//! for anybody (I10): sending does not block, what is looked at is bounded, and a queue that is full belongs
//! to somebody who has hints enough.

pub(crate) mod folder;

pub use folder::{LocalDir, UnfitFolder};

use folder::Folder;
use ielections::Terms;
use std::{
    fmt, fs,
    future::pending,
    io,
    os::unix::{
        fs::{MetadataExt as _, PermissionsExt as _},
        net::UnixDatagram,
    },
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use vvm_clock::{Clock, Instant, SystemWallClock, WallClock as _};

/// How many sockets are told of one change: more candidates for one name than a machine has use for. The
/// others look by themselves.
const TOLD: usize = 256;

/// How many datagrams are taken off the queue before it is heeded that there are any; the kernel keeps ten
/// for a socket, unless it is told otherwise (`net.unix.max_dgram_qlen`).
const DRAINED: usize = 1024;

/// How old a socket that nobody listens at has to be before it is removed. One that is being made refuses for
/// a moment, too.
const ABANDONED: Duration = Duration::from_secs(60);

/// Whoever has something to tell.
#[derive(Debug)]
pub struct WakeSender {
    /// `None` tells nobody.
    to: Option<(Folder, UnixDatagram)>,
}

impl WakeSender {
    /// To the neighbours who campaign for `name` or lead it.
    pub fn to(dir: &LocalDir, name: &str) -> Result<Self, UnfitFolder> {
        let Some(folder) = Folder::of(dir, name)? else { return Ok(Self { to: None }) };
        let socket = UnixDatagram::unbound().and_then(|socket| {
            socket.set_nonblocking(true)?;
            Ok(socket)
        });
        let socket = socket.map_err(|cause| folder.unusable(cause))?;
        Ok(Self { to: Some((folder, socket)) })
    }

    /// Tells everybody that something has changed. Never waits.
    pub fn tell(&self) {
        self.tell_but(None);
    }

    fn tell_but(&self, own: Option<&Path>) {
        let Some((folder, socket)) = &self.to else { return };
        for path in folder.sockets().filter(|path| Some(path.as_path()) != own).take(TOLD) {
            match socket.send_to(&[], &path) {
                Err(refusal) if refusal.kind() == io::ErrorKind::ConnectionRefused => remove_abandoned(&path),
                // Its queue is full, it is gone by now, or it is none of ours.
                Ok(_) | Err(_) => {}
            }
        }
    }
}

/// Nobody listens there. Whatever can't be found out or removed stays, and costs the next one a call.
fn remove_abandoned(path: &Path) {
    let made = fs::symlink_metadata(path).ok().and_then(|found| u64::try_from(found.mtime()).ok());
    let now = SystemWallClock.since_unix_epoch();
    if made.is_some_and(|made| now > Duration::from_secs(made).saturating_add(ABANDONED)) {
        let _ = fs::remove_file(path);
    }
}

/// A candidate among its neighbours: tells them, and is told.
pub(crate) struct LocalWakeups {
    teller: WakeSender,
    /// `None` is never told anything.
    ear: Option<WakeReceiver>,
    clock: Arc<dyn Clock>,
}

struct WakeReceiver {
    socket: tokio::net::UnixDatagram,
    path: PathBuf,
    /// When it may be told the next time.
    heeds_at: Mutex<Instant>,
}

impl LocalWakeups {
    /// Those who campaign for `name` or lead it. The socket is there until the value is dropped.
    ///
    /// # Errors
    /// When the folder can't be used. [`alone`](Self::alone) can.
    ///
    /// # Panics
    /// Outside of a tokio runtime with I/O.
    pub(crate) fn meet(dir: &LocalDir, name: &str, clock: Arc<dyn Clock>) -> Result<Self, UnfitFolder> {
        let teller = WakeSender::to(dir, name)?;
        let Some((folder, _)) = &teller.to else { return Ok(Self::alone(clock)) };
        let ear = WakeReceiver::open(folder.new_socket()).map_err(|cause| folder.unusable(cause))?;
        Ok(Self { ear: Some(ear), teller, clock })
    }

    /// Nobody to tell, and nobody to be told by.
    pub(crate) fn alone(clock: Arc<dyn Clock>) -> Self {
        Self { teller: WakeSender { to: None }, ear: None, clock }
    }

    /// Tells everybody else that something has changed. Never waits.
    pub(crate) fn tell(&self) {
        self.teller.tell_but(self.ear.as_ref().map(|ear| ear.path.as_path()));
    }

    /// Resolves when somebody says that something has changed, at most every [`Terms::HINT_GAP`]: what is
    /// said meanwhile, the kernel keeps.
    ///
    /// # Cancel safety
    /// May be dropped and called again at will.
    pub(crate) async fn told(&self) {
        let Some(ear) = &self.ear else { return pending().await };
        let heeds_at = *ear.heeds_at.lock().unwrap_or_else(PoisonError::into_inner);
        self.clock.sleep_until(heeds_at).await;
        ear.hear().await;
        *ear.heeds_at.lock().unwrap_or_else(PoisonError::into_inner) =
            self.clock.now().after(Terms::HINT_GAP);
    }
}

impl WakeReceiver {
    fn open(path: PathBuf) -> io::Result<Self> {
        let socket = UnixDatagram::bind(&path)?;
        // From here on whatever fails takes the file along.
        let restricted = fs::set_permissions(&path, fs::Permissions::from_mode(0o600))
            .and_then(|()| socket.set_nonblocking(true))
            .and_then(|()| tokio::net::UnixDatagram::from_std(socket));
        match restricted {
            Ok(socket) => Ok(Self { socket, path, heeds_at: Mutex::new(Instant::ORIGIN) }),
            Err(cause) => {
                let _ = fs::remove_file(&path);
                Err(cause)
            }
        }
    }

    async fn hear(&self) {
        loop {
            if self.socket.readable().await.is_err() {
                // The runtime ends.
                return pending().await;
            }
            let heard = (0..DRAINED).take_while(|_| self.socket.try_recv(&mut []).is_ok()).count();
            if heard > 0 {
                return;
            }
        }
    }
}

impl Drop for WakeReceiver {
    fn drop(&mut self) {
        // One that can't be removed is removed by a neighbour.
        let _ = fs::remove_file(&self.path);
    }
}

impl fmt::Debug for LocalWakeups {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "LocalWakeups({:?})", self.ear.as_ref().map(|ear| &ear.path))
    }
}

#[cfg(test)]
mod tests;
