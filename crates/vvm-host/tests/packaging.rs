//! The systemd unit that is shipped.
#![allow(clippy::unwrap_used, reason = "clippy knows tests, but not their helpers")]

use std::{fs, path::PathBuf, process::Command};

fn shipped(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(name);
    fs::read_to_string(path).unwrap()
}

/// What a setting of the unit says.
fn setting<'unit>(unit: &'unit str, name: &str) -> &'unit str {
    let mut found = unit.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    let value = found.next().unwrap_or_else(|| panic!("no {name}"));
    assert!(found.next().is_none(), "{name} twice");
    value
}

#[test]
fn the_unit_says_what_vvm_relies_on() {
    let unit = shipped("vvm@.service");
    for (name, value) in [
        ("Type", "notify"),
        ("NotifyAccess", "main"),
        ("KillMode", "mixed"),
        ("Delegate", "yes"),
        ("RestartPreventExitStatus", "64 78"),
        ("SuccessExitStatus", "143"),
    ] {
        assert_eq!(setting(&unit, name), value, "{name}");
    }
    // Longer than the command has by default (8 s), or systemd would kill a clean stop.
    assert!(setting(&unit, "TimeoutStopSec").parse::<u32>().unwrap() > 8);
}

/// Asked of systemd itself, where there is one to ask.
#[test]
fn systemd_finds_nothing_wrong_with_the_unit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("vvm@payroll.service");
    let unit = shipped("vvm@.service").replace("/usr/bin/vvm", env!("CARGO_BIN_EXE_vvm"));
    fs::write(&path, &unit).unwrap();
    let verify = |path: &PathBuf| {
        let output = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(path).output()?;
        std::io::Result::Ok((output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned()))
    };
    match verify(&path) {
        Ok((holds, said)) => {
            assert!(holds && said.is_empty(), "{said}");
            // It would say so: a word of its own that does not exist.
            fs::write(&path, unit.replace("KillMode=mixed", "KillMode=mixd")).unwrap();
            let (_, said) = verify(&path).unwrap();
            assert!(said.contains("mixd"), "{said}");
        }
        Err(missing) => {
            println!("systemd-analyze is not here, which is all that this machine can show: {missing}")
        }
    }
}
