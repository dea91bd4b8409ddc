//! Names of servers, looked up by the static program in a root folder that has nothing else.
//!
//! A static glibc reads /etc/hosts and asks DNS itself. Other services would be shared libraries, which
//! packaging/static/name_service.c keeps it from loading. A lookup is shown by the connection behind it.

use super::Transcript;
use crate::dist::{DistError, output, write};
use std::{
    fs,
    io::ErrorKind,
    net::{TcpListener, UdpSocket},
    path::Path,
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};
use vvm_clock::SystemClock;

/// Where names lead to, and where a name server answers.
const PLACE: [u8; 4] = [127, 0, 0, 9];
const NAME_SERVER: &str = "127.0.0.54";

/// Services that a static program could only load.
const SHARED_ONLY: &str = "hosts: mymachines resolve myhostname\npasswd: systemd\n";

/// What a root folder has, the host that is looked up in it, and whether the lookup succeeds.
struct Case {
    what: &'static str,
    files: &'static [(&'static str, &'static str)],
    host: &'static str,
    succeeds: bool,
}

const HOSTS: (&str, &str) = ("etc/hosts", "127.0.0.9 db1\n");
const RESOLVER: (&str, &str) = ("etc/resolv.conf", "nameserver 127.0.0.54\noptions attempts:1 timeout:2\n");

const CASES: [Case; 6] = [
    Case { what: "an address; no /etc", files: &[], host: "127.0.0.9", succeeds: true },
    Case { what: "a name in /etc/hosts", files: &[HOSTS], host: "db1", succeeds: true },
    Case { what: "a name by DNS", files: &[RESOLVER], host: "db1.example", succeeds: true },
    Case {
        what: "a name in /etc/hosts; nsswitch.conf names shared libraries only",
        files: &[HOSTS, ("etc/nsswitch.conf", SHARED_ONLY)],
        host: "db1",
        succeeds: true,
    },
    Case {
        what: "a name by DNS; nsswitch.conf names shared libraries only",
        files: &[RESOLVER, ("etc/nsswitch.conf", SHARED_ONLY)],
        host: "db1.example",
        succeeds: true,
    },
    Case { what: "an unknown name", files: &[RESOLVER], host: "db2.example", succeeds: false },
];

/// # Errors
/// A lookup has another outcome than it must have, or no name server can be started.
pub(super) fn run(transcript: &Transcript, package: &Path, scratch: &Path) -> Result<(), DistError> {
    output(Command::new("dpkg-deb").arg("-x").arg(package).arg(scratch.join("package")))?;
    let program = scratch.join("package/usr/bin/vvm");
    let server = UdpSocket::bind((NAME_SERVER, 53)).map_err(|cause| {
        DistError::Unexpected(format!("a name server can't listen on {NAME_SERVER}:53, as root may: {cause}"))
    })?;
    server.set_read_timeout(Some(Duration::from_millis(50)))?;
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let answering = scope.spawn(|| answer(&server, &ended));
        let held = CASES.iter().try_for_each(|case| of_case(transcript, case, &program, scratch));
        ended.store(true, Ordering::Relaxed);
        let _ = answering.join();
        held
    })
}

fn of_case(transcript: &Transcript, case: &Case, program: &Path, scratch: &Path) -> Result<(), DistError> {
    let root = scratch.join("root");
    if root.exists() {
        fs::remove_dir_all(&root)?;
    }
    for (path, text) in case.files {
        write(&root.join(path), text.as_bytes())?;
    }
    fs::create_dir_all(&root)?;
    fs::copy(program, root.join("vvm"))?;
    let listener = TcpListener::bind((std::net::Ipv4Addr::from(PLACE), 0))?;
    listener.set_nonblocking(true)?;
    let port = listener.local_addr()?.port();
    transcript.remark(case.what);
    let url = format!("postgres://me@{}:{port}/vvm?sslmode=disable", case.host);
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--root"]).arg(&root).args(["/vvm", "status", "--storage", &url]);
    let mut running = transcript.start(command.args(["--name", "payroll"]), scratch.join("status.log"))?;
    let mut connected = false;
    // It ends by itself: this server says nothing, and a connection is closed at once.
    while !connected && running.is_there()? {
        match listener.accept() {
            Ok(_) => connected = true,
            Err(refusal) if refusal.kind() == ErrorKind::WouldBlock => {
                SystemClock::block_for(Duration::from_millis(5));
            }
            Err(refusal) => return Err(refusal.into()),
        }
    }
    drop(listener);
    if !connected {
        running.ended()?;
    }
    transcript.remark(if connected { "it connected\n" } else { "it did not connect\n" });
    if connected == case.succeeds {
        return Ok(());
    }
    Err(DistError::Unexpected(format!("{}: another outcome was expected", case.what)))
}

/// Answers questions for `db1.example` with [`PLACE`], and that there is no other name.
fn answer(server: &UdpSocket, ended: &AtomicBool) {
    let mut question = [0; 512];
    while !ended.load(Ordering::Relaxed) {
        if let Ok((length, client)) = server.recv_from(&mut question)
            && let Some(reply) = question.get(..length).and_then(reply)
        {
            // A client that is gone asks no more.
            let _ = server.send_to(&reply, client);
        }
    }
}

/// Returns the answer to a question with one name (RFC 1035, section 4).
fn reply(question: &[u8]) -> Option<Vec<u8>> {
    const HEADER: usize = 12;
    let name_ends = HEADER + question.get(HEADER..)?.iter().position(|byte| *byte == 0)? + 1;
    let asked = question.get(HEADER..name_ends + 4)?;
    let is_known = asked.starts_with(b"\x03db1\x07example\x00");
    let wants_ipv4 = question.get(name_ends..name_ends + 2)? == [0, 1];
    // An answer, recursion available; code 3 is "no such name".
    let code = if is_known { 0 } else { 3 };
    let answers = u8::from(is_known && wants_ipv4);
    let mut reply = question.get(..2)?.to_vec();
    reply.extend([0x81, 0x80 | code, 0, 1, 0, answers, 0, 0, 0, 0]);
    reply.extend(asked);
    if answers == 1 {
        // The name above, type A, class IN, a minute, four bytes.
        reply.extend([0xc0, 0x0c, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
        reply.extend(PLACE);
    }
    Some(reply)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(name: &[u8], kind: u8) -> Vec<u8> {
        [b"ab\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00", name, &[0, kind, 0, 1]].concat()
    }

    #[test]
    fn one_name_has_an_address_and_others_do_not_exist() {
        let known = reply(&question(b"\x03db1\x07example\x00", 1)).unwrap();
        assert!(known.starts_with(b"ab\x81\x80") && known.ends_with(&PLACE));
        let version_6 = reply(&question(b"\x03db1\x07example\x00", 28)).unwrap();
        assert_eq!(version_6[7], 0, "no answer of this type");
        assert_eq!(reply(&question(b"\x03db2\x00", 1)).unwrap()[3], 0x83);
        assert_eq!(reply(b"short"), None);
    }
}
