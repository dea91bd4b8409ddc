//! What a service manager is told that has asked for it, as systemd does (sd_notify(3)): when we are ready,
//! how we stand, that we stop.
//!
//! The guardian says it, since it is the process that the manager knows. It is ready as soon as it waits for
//! leadership: a manager that waited for a standby to lead would take it for one that does not start.

use crate::notes::Stands;
use std::{
    env,
    ffi::OsStr,
    io,
    os::{
        linux::net::SocketAddrExt as _,
        unix::{
            ffi::OsStrExt as _,
            net::{SocketAddr, UnixDatagram},
        },
    },
};

/// Where it listens. Taken out of the environment of whatever we start: it is asked of nobody else.
pub(crate) const VARIABLE: &str = "NOTIFY_SOCKET";

/// A service manager that listens.
#[derive(Debug)]
pub(crate) struct ServiceManager {
    socket: UnixDatagram,
    address: SocketAddr,
    /// Being ready and stopping are said once.
    is_told_ready: bool,
    is_told_stopping: bool,
}

impl ServiceManager {
    /// The one that has started us, if it listens.
    pub(crate) fn of_environment() -> Option<Self> {
        // One that can't be reached is as good as none: nothing that we do depends on it.
        Self::at(&env::var_os(VARIABLE)?).ok()
    }

    fn at(place: &OsStr) -> io::Result<Self> {
        let address = match place.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
            _ => SocketAddr::from_pathname(place)?,
        };
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, address, is_told_ready: false, is_told_stopping: false })
    }

    /// Tells how we stand. Never blocks: a manager that does not listen hears it the next time.
    pub(crate) fn tell(&mut self, stands: Stands) {
        let is_stopping = matches!(stands, Stands::Ended | Stands::Stopping { for_good: true, .. });
        let mut text = format!("STATUS={stands}\n");
        if is_stopping && !self.is_told_stopping {
            text.push_str("STOPPING=1\n");
        } else if !is_stopping && !self.is_told_ready {
            text.push_str("READY=1\n");
        }
        if self.socket.send_to_addr(text.as_bytes(), &self.address).is_ok() {
            self.is_told_stopping |= is_stopping;
            self.is_told_ready |= !is_stopping;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ielections::Epoch;

    fn heard(listener: &UnixDatagram) -> String {
        let mut text = [0; 256];
        let length = listener.recv(&mut text).unwrap();
        String::from_utf8(text[..length].to_vec()).unwrap()
    }

    fn all_is_told(listener: &UnixDatagram, place: &str) {
        let mut manager = ServiceManager::at(OsStr::new(place)).unwrap();
        let leads = Stands::Leading { slot: 2, epoch: Epoch::new(17).unwrap() };
        manager.tell(Stands::Waiting);
        assert_eq!(heard(listener), "STATUS=waiting for leadership\nREADY=1\n");
        manager.tell(leads);
        assert_eq!(heard(listener), "STATUS=leading, slot 2, epoch 17\n");
        manager.tell(Stands::Stopping { slot: 2, epoch: Epoch::new(17).unwrap(), for_good: false });
        assert_eq!(heard(listener), "STATUS=stopping, slot 2, epoch 17\n");
        manager.tell(Stands::Stopping { slot: 2, epoch: Epoch::new(17).unwrap(), for_good: true });
        assert_eq!(heard(listener), "STATUS=stopping, slot 2, epoch 17\nSTOPPING=1\n");
        manager.tell(Stands::Ended);
        assert_eq!(heard(listener), "STATUS=ended\n");
    }

    #[test]
    fn a_manager_hears_each_change_and_once_that_we_are_ready_and_that_we_stop() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        all_is_told(&UnixDatagram::bind(&path).unwrap(), path.to_str().unwrap());
        // The same without a file.
        let name = format!("vvm-{}", path.display());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        all_is_told(&UnixDatagram::bind_addr(&address).unwrap(), &format!("@{name}"));
    }

    #[test]
    fn a_manager_that_was_away_hears_that_we_are_ready_later() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let mut manager = ServiceManager::at(path.as_os_str()).unwrap();
        manager.tell(Stands::Waiting);
        let listener = UnixDatagram::bind(&path).unwrap();
        manager.tell(Stands::Waiting);
        assert_eq!(heard(&listener), "STATUS=waiting for leadership\nREADY=1\n");
    }
}
