//! Notifications to systemd: the guardian sends them, and no other process does.

use crate::VVM;
use harness::{Run, Trial};
use rustix::{
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg,
        sockopt::{set_socket_passcred, set_socket_timeout},
    },
    process::{Pid, Signal},
};
use std::{io::IoSliceMut, mem::MaybeUninit, os::unix::net::UnixDatagram};

struct Manager {
    socket: UnixDatagram,
    place: String,
}

impl Manager {
    fn of(trial: &Trial) -> Self {
        let path = trial.folder().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        set_socket_passcred(&socket, true).unwrap();
        set_socket_timeout(&socket, rustix::net::sockopt::Timeout::Recv, Some(harness::HANG_LIMIT)).unwrap();
        Self { socket, place: path.to_str().unwrap().into() }
    }

    fn starts(&self, run: Run) -> harness::Running {
        run.environment("NOTIFY_SOCKET", &self.place).start()
    }

    fn hears(&self) -> (String, Pid) {
        let mut text = [0; 512];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let into = &mut [IoSliceMut::new(&mut text)];
        let received = recvmsg(&self.socket, into, &mut ancillary, RecvFlags::empty()).unwrap();
        let sender = ancillary.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmCredentials(credentials) => Some(credentials.pid),
            _ => None,
        });
        (String::from_utf8(text[..received.bytes].to_vec()).unwrap(), sender.unwrap())
    }

    fn waits_for(&self, line: &str, guardian: Pid) -> String {
        let mut all = String::new();
        loop {
            let (text, sender) = self.hears();
            assert_eq!(sender, guardian, "{text}");
            all.push_str(&text);
            if text.lines().any(|told| told.starts_with(line)) {
                return all;
            }
        }
    }
}

#[test]
fn standby_is_ready_and_the_main_process_reports_each_change() {
    let trial = VVM.trial();
    let leader = trial.run_forever().up();

    let manager = Manager::of(&trial);
    let mut standby = manager.starts(trial.run_forever());
    let told = manager.waits_for("READY=1", standby.guardian);
    assert_eq!(told, "STATUS=waiting for leadership\nREADY=1\n");

    leader.stop();
    standby.stdout.wait_for("up");
    let told = manager.waits_for("STATUS=leading", standby.guardian);
    let epoch = told.strip_prefix("STATUS=leading: slot 1, epoch ").unwrap().trim().parse::<u64>().unwrap();
    assert!(epoch > 0, "{told}");

    standby.signal(Signal::TERM);
    let told = manager.waits_for("STOPPING=1", standby.guardian);
    assert!(told.contains(&format!("STATUS=stopping: slot 1, epoch {epoch}\n")), "{told}");
    assert!(!told.contains("READY=1"), "{told}");
    assert_eq!(standby.finish().signal(), 15);
}

/// An unreachable service manager is no error either. The command can't send notifications.
#[test]
fn missing_service_manager_is_no_error_and_the_command_gets_no_socket() {
    let trial = VVM.trial();
    for place in ["/no/such/socket", "vsock:1:2", "", "relative"] {
        let run = trial.run_script("echo \"told<$NOTIFY_SOCKET>\"").environment("NOTIFY_SOCKET", place);
        let finished = run.finish();
        assert_eq!((finished.code(), &finished.stdout[..]), (0, &["told<>".to_owned()][..]), "{place}");
    }
}

#[test]
fn loss_with_rejoin_is_not_reported_as_stopping() {
    let trial = VVM.trial();
    let manager = Manager::of(&trial);
    let run = trial.run_forever().with(["--ttl", harness::SHORT_TTL, "--on-loss", "rejoin"]);
    let mut running = manager.starts(run);
    running.stdout.wait_for("up");
    manager.waits_for("STATUS=leading", running.guardian);
    let lock = trial.lock_storage();
    let told = manager.waits_for("STATUS=waiting", running.guardian);
    assert!(told.contains("STATUS=stopping: slot 1") && !told.contains("STOPPING=1"), "{told}");
    drop(lock);
    running.stop();
}
