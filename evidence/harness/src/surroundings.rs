//! What programs inherit from a test, the same wherever the test runs.
//!
//! `nohup`, or a shell that runs the tests in the background, ignores signals. Each `vvm` would inherit that
//! and honour it, and a test that sends such a signal would hang.

use nix::sys::signal::SigSet;
use rustix::{fs::Mode, process::umask};
use std::{
    env, fs,
    process::Command,
    sync::{Arc, Once, atomic::AtomicBool},
};

/// Sets the signals and the umask that programs inherit that this thread starts from now on: no signal is
/// ignored or blocked, and only the owner may write new files.
pub fn settle() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        umask(Mode::from_raw_mode(0o022));
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap().trim();
        let ignored = u64::from_str_radix(ignored, 16).unwrap();
        // Rust ignores PIPE, and undoes that in programs that it starts. Two signals are refused (KILL, STOP),
        // and so are those of faults, which no caller ignores.
        let others = (1..32).filter(|signal| ![4, 8, 9, 11, 13, 19].contains(signal));
        for signal in others.filter(|signal| ignored & (1 << (signal - 1)) != 0) {
            // A caught signal has its default action after an exec (execve(2)). The test still ignores it.
            signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false))).unwrap();
        }
    });
    SigSet::empty().thread_set_mask().unwrap();
}

/// Returns a command that inherits the same everywhere: also no setting, language, proxy or service manager.
pub(super) fn command(program: &str) -> Command {
    settle();
    let mut command = Command::new(program);
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy().to_lowercase();
        let others =
            ["lang", "language", "notify_socket", "no_color", "bash_env", "env", "shellopts", "bashopts"];
        // The password is the one of the server under test.
        let is_setting = text.starts_with("vvm_") && !text.contains("password");
        if is_setting
            || text.starts_with("lc_")
            || text.ends_with("_proxy")
            || others.contains(&text.as_str())
        {
            command.env_remove(name);
        }
    }
    // The text view needs to know a terminal.
    command.env("TERM", "xterm");
    command
}
