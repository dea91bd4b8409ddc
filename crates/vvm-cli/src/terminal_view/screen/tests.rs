//! What a panic leaves of a terminal.

use super::*;
use rustix::{
    fs::{Mode, OFlags},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
};
use std::{
    fs::File,
    io::Read as _,
    process::{Command, Stdio},
};

/// Tells this test, in a process of its own, to panic.
const PART: &str = "TEST_PANICS_ON_ITS_SCREEN";

#[test]
fn panic_message_follows_the_restored_terminal() {
    if env::var_os(PART).is_some() {
        let _screen = Screen::enter(Palette::Plain).unwrap();
        panic!("on purpose");
    }
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let open = || {
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        rustix::fs::open(&name, flags, Mode::empty()).unwrap()
    };
    let held_open = open();
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "terminal_view::screen::tests::panic_message_follows_the_restored_terminal"])
        .arg("--nocapture")
        .env(PART, "yes")
        .stdin(Stdio::from(open()))
        .stdout(Stdio::from(open()))
        .stderr(Stdio::from(open()))
        .spawn()
        .unwrap();
    let mut terminal = File::from(master);
    let mut shown = String::new();
    while !shown.contains("test result") {
        let mut some = [0; 4096];
        let length = terminal.read(&mut some).unwrap();
        shown.push_str(&String::from_utf8_lossy(&some[..length]));
    }
    assert!(!child.wait().unwrap().success());
    let (_, after) = shown.split_once(ENTER).unwrap();
    let (before_leaving, after) = after.split_once(LEAVE).unwrap();
    assert!(!before_leaving.contains("panicked"), "{shown:?}");
    assert!(after.contains("on purpose"), "{shown:?}");
    assert!(!after.contains(LEAVE), "twice: {shown:?}");
    let modes = tcgetattr(&held_open).unwrap().local_modes;
    assert!(modes.contains(LocalModes::ICANON | LocalModes::ECHO), "{modes:?}");
}
