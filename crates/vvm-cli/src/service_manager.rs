//! Notifies the service manager (sd_notify(3)): ready, status, stopping.
//!
//! The guardian sends it, because the manager knows only that process. A standby is ready: otherwise the
//! manager would take it for a service that does not start.

use crate::notes::{Activity, HostState};
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

/// The variable with the address of the manager. The host and the command do not get it.
pub(crate) const VARIABLE: &str = "NOTIFY_SOCKET";

/// A service manager that wants notifications.
#[derive(Debug)]
pub(crate) struct ServiceManager {
    socket: UnixDatagram,
    address: SocketAddr,
    /// READY and STOPPING are sent once.
    is_told_ready: bool,
    is_told_stopping: bool,
}

impl ServiceManager {
    /// Returns the manager that started this process, if it wants notifications.
    pub(crate) fn of_environment() -> Option<Self> {
        // Nothing depends on a manager that can't be reached.
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

    /// Sends the state. Never blocks: a full socket gets the next one.
    pub(crate) fn tell(&mut self, state: HostState) {
        let is_stopping = matches!(state.activity, Activity::Ended | Activity::StoppingForGood);
        let mut text = format!("STATUS={state}\n");
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

    fn received(listener: &UnixDatagram) -> String {
        let mut text = [0; 256];
        let length = listener.recv(&mut text).unwrap();
        String::from_utf8(text[..length].to_vec()).unwrap()
    }

    fn check_all(listener: &UnixDatagram, place: &str) {
        let mut manager = ServiceManager::at(OsStr::new(place)).unwrap();
        let leading = Some((2, Epoch::new(17).unwrap()));
        for (activity, leading, sent) in [
            (Activity::Waiting, None, "STATUS=waiting for leadership\nREADY=1\n"),
            (Activity::Leading, leading, "STATUS=leading: slot 2, epoch 17\n"),
            (Activity::Holding, leading, "STATUS=holding: slot 2, epoch 17, no command runs\n"),
            (Activity::Stopping, leading, "STATUS=stopping: slot 2, epoch 17\n"),
            (Activity::StoppingForGood, leading, "STATUS=stopping: slot 2, epoch 17\nSTOPPING=1\n"),
            (Activity::Ended, None, "STATUS=ended\n"),
        ] {
            manager.tell(HostState { activity, leading });
            assert_eq!(received(listener), sent);
        }
    }

    #[test]
    fn each_change_is_sent_and_ready_and_stopping_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        check_all(&UnixDatagram::bind(&path).unwrap(), path.to_str().unwrap());
        // The same without a file.
        let name = format!("vvm-{}", path.display());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        check_all(&UnixDatagram::bind_addr(&address).unwrap(), &format!("@{name}"));
    }

    #[test]
    fn ready_is_sent_again_after_a_failure() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let mut manager = ServiceManager::at(path.as_os_str()).unwrap();
        manager.tell(HostState { activity: Activity::Waiting, leading: None });
        let listener = UnixDatagram::bind(&path).unwrap();
        manager.tell(HostState { activity: Activity::Waiting, leading: None });
        assert_eq!(received(&listener), "STATUS=waiting for leadership\nREADY=1\n");
    }
}
