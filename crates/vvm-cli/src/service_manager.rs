//! Notifies the service manager (sd_notify(3)): ready, status, stopping. The guardian sends it, because the manager
//! knows only that process. A standby is ready: otherwise the manager would take it for a service that does not start.

use crate::leadership::{Activity, HostState};
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

#[derive(Debug)]
pub(crate) struct ServiceManager {
    socket: UnixDatagram,
    address: SocketAddr,
    is_told_ready: bool,
    is_told_stopping: bool,
}

impl ServiceManager {
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

    #[test]
    fn each_change_is_sent_and_ready_and_stopping_once() {
        let folder = tempfile::tempdir().unwrap();
        let name = format!("vvm-{}", folder.path().display());
        let mut manager = ServiceManager::at(OsStr::new(&format!("@{name}"))).unwrap();
        let leading = Some((2, Epoch::new(17).unwrap()));
        // No process listens: it is sent again.
        manager.tell(HostState { activity: Activity::Waiting, leading: None });
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let listener = UnixDatagram::bind_addr(&address).unwrap();
        for (activity, leading, sent) in [
            (Activity::Waiting, None, "STATUS=waiting for leadership\nREADY=1\n"),
            (Activity::Leading, leading, "STATUS=leading: slot 2, epoch 17\n"),
            (Activity::Restarting, leading, "STATUS=restarting: slot 2, epoch 17, no command runs\n"),
            (Activity::Stopping, leading, "STATUS=stopping: slot 2, epoch 17\n"),
            (Activity::StoppingForGood, leading, "STATUS=stopping: slot 2, epoch 17\nSTOPPING=1\n"),
            (Activity::Ended, None, "STATUS=ended\n"),
        ] {
            manager.tell(HostState { activity, leading });
            let mut text = [0; 256];
            let length = listener.recv(&mut text).unwrap();
            assert_eq!(str::from_utf8(&text[..length]).unwrap(), sent);
        }
    }
}
