//! The container image, run by podman: alone, and as the source of the program for a user's own image.
//!
//! Needs Debian's packages podman, runc and busybox-static, and root. Nothing is fetched: the user's image is
//! made of a static busybox.

use super::{Running, Transcript};
use crate::dist::{DistError, write};
use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// A kind of user's command that can be told to take all memory.
const WORKER: &str = "#!/bin/sh
echo \"I lead with epoch $VVM_LEADER_EPOCH, as process $$\"
[ -e /data/take-all-memory ] && exec busybox tail /dev/zero
exec busybox sleep 86400
";

/// How a user's image gets the program.
const CONTAINERFILE: &str = include_str!("../../../../packaging/Containerfile");

const SETTINGS: &str = "storage = \"sqlite:/data/payroll.db\"
name = \"payroll\"
ttl = \"3s\"
command = [\"/usr/bin/worker\"]
";

/// A base image with a shell, in place of a distribution's.
const BASE: &str = "FROM scratch\nCOPY busybox /bin/busybox\nCOPY busybox /bin/sh\nENV PATH=/bin:/usr/bin\n";

/// Groups by cgroupfs, because systemd may not be there. Podman's own limits may be above what root has here.
/// crun does not know the mixed groups of both versions that some systems have, and runc does.
const CONTAINERS: &str = "[engine]\ncgroup_manager = \"cgroupfs\"\nruntime = \"runc\"\n\
    [containers]\ndefault_ulimits = [\"nofile=1024:1024\", \"nproc=1024:1024\"]\n";

/// # Errors
/// It can't be loaded, or does not work.
pub(super) fn run(transcript: &Transcript, image: &Path, scratch: &Path) -> Result<(), DistError> {
    let podman = Podman::new(scratch)?;
    let said = transcript.show(podman.command(&["load", "--input"]).arg(image))?;
    let loaded = said.split_whitespace().find(|word| word.starts_with("localhost/vvm:"));
    let vvm = loaded.ok_or_else(|| DistError::Unexpected("podman load names no image".into()))?;
    alone(transcript, &podman, vvm)?;
    in_image_of_a_user(transcript, &podman, vvm)
}

/// The image has no command but vvm itself, so vvm runs `vvm watch`.
fn alone(transcript: &Transcript, podman: &Podman, vvm: &str) -> Result<(), DistError> {
    transcript.remark("The image alone: no shell, so its only command is vvm itself.");
    transcript.show(&mut podman.command(&["run", "--rm", vvm, "--version"]))?;
    let container = |name: &str, storage: &str, command: &[&str]| {
        let mut run = podman.run(name);
        run.args([vvm, "run", "--storage", storage, "--name", "watch", "--"]).args(command);
        run
    };
    transcript.remark("Its root folder is read-only.");
    transcript
        .show_status(&mut container("refused", "sqlite:/leader.db?allow=overlay", &["/usr/bin/vvm"]), 69)?;
    let storage = "sqlite:/data/watch.db";
    let watch = ["/usr/bin/vvm", "watch", "--storage", storage, "--name", "watch"];
    let mut running = transcript.start(&mut container("alone", storage, &watch), podman.log("alone"))?;
    running.wait_for("held by")?;
    transcript.remark("Process 1 is the guardian. It heeds TERM.");
    transcript.show(&mut podman.command(&["top", "alone", "pid", "ppid", "user", "args"]))?;
    transcript.show(&mut podman.command(&["stop", "--time", "20", "alone"]))?;
    ended_with(transcript, &mut running, 128 + 15)
}

fn in_image_of_a_user(transcript: &Transcript, podman: &Podman, vvm: &str) -> Result<(), DistError> {
    transcript.remark("An image of a user, with a shell and a command, by packaging/Containerfile.");
    let context = podman.scratch.join("context");
    write(&context.join("Base"), BASE.as_bytes())?;
    write(&context.join("Containerfile"), CONTAINERFILE.as_bytes())?;
    write(&context.join("worker"), WORKER.as_bytes())?;
    fs::set_permissions(context.join("worker"), Permissions::from_mode(0o755))?;
    fs::copy("/bin/busybox", context.join("busybox"))
        .map_err(|cause| DistError::File { path: "/bin/busybox".into(), cause })?;
    write(&podman.scratch.join("vvm.toml"), SETTINGS.as_bytes())?;
    let build = |file: &Path, tag: &str, arguments: &[&str]| {
        let mut build = podman.command(&["build", "--quiet", "--network=none", "--file"]);
        build.arg(file).args(["--tag", tag]).args(arguments).arg(&context);
        build
    };
    transcript.show(&mut build(&context.join("Base"), "localhost/base", &[]))?;
    let names = ["--build-arg", "BASE=localhost/base", "--build-arg", &format!("VVM={vvm}")];
    transcript.show(&mut build(&context.join("Containerfile"), "localhost/payroll", &names))?;
    let candidate = |name: &str| {
        let mut run = podman.run(name);
        run.arg("--volume").arg(format!("{}/vvm.toml:/etc/vvm/vvm.toml:ro", podman.scratch.display()));
        run.args(["--env", &format!("VVM_HOLDER={name}"), "localhost/payroll"]);
        run
    };
    let mut first = transcript.start(&mut candidate("first"), podman.log("first"))?;
    let said = first.wait_for("I lead with epoch")?;
    let mut second = transcript.start(&mut candidate("second"), podman.log("second"))?;
    second.wait_for("waiting for leadership")?;

    transcript.remark("The worker is killed: its container ends with its status, and the other one leads.");
    let worker = said.rsplit(' ').next().unwrap_or_default().trim();
    transcript.show(&mut podman.command(&["exec", "first", "/bin/busybox", "kill", "-9", worker]))?;
    ended_with(transcript, &mut first, 128 + 9)?;
    second.wait_for("I lead with epoch")?;

    transcript.remark("A whole container is killed: the other one leads when the TTL has passed.");
    let mut first = transcript.start(&mut candidate("third"), podman.log("third"))?;
    first.wait_for("waiting for leadership")?;
    transcript.show(&mut podman.command(&["kill", "--signal", "KILL", "second"]))?;
    first.wait_for("I lead with epoch")?;
    transcript.show(&mut podman.command(&["stop", "--time", "20", "third"]))?;
    ended_with(transcript, &mut first, 128 + 15)?;

    transcript.remark("The worker needs more than the 64 MiB of its container.");
    write(&podman.data().join("take-all-memory"), b"")?;
    let mut fourth = transcript.start(&mut candidate("fourth"), podman.log("fourth"))?;
    ended_with(transcript, &mut fourth, 128 + 9)
}

fn ended_with(transcript: &Transcript, running: &mut Running<'_>, expected: i32) -> Result<(), DistError> {
    let status = running.ended()?;
    transcript.remark(&format!("exit status {}", status.code().unwrap_or(-1)));
    if status.code() == Some(expected) {
        return Ok(());
    }
    Err(DistError::Unexpected(format!("{expected} was expected, and not {status}")))
}

/// Podman with folders of its own, which end with this value.
struct Podman {
    scratch: PathBuf,
}

impl Podman {
    fn new(scratch: &Path) -> Result<Self, DistError> {
        let podman = Self { scratch: scratch.into() };
        write(&scratch.join("containers.conf"), CONTAINERS.as_bytes())?;
        fs::create_dir_all(podman.data())?;
        // For a user of no machine.
        fs::set_permissions(podman.data(), Permissions::from_mode(0o777))?;
        fs::set_permissions(scratch, Permissions::from_mode(0o755))?;
        Ok(podman)
    }

    fn data(&self) -> PathBuf {
        self.scratch.join("data")
    }

    fn log(&self, name: &str) -> PathBuf {
        self.scratch.join(name).with_extension("log")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("podman");
        command
            .arg("--root")
            .arg(self.scratch.join("storage"))
            .arg("--runroot")
            .arg(self.scratch.join("run"));
        command.args(arguments).env("CONTAINERS_CONF", self.scratch.join("containers.conf"));
        // Podman's monitor leaves files where it was started.
        command.current_dir(&self.scratch);
        command
    }

    /// Returns a container with the least that vvm needs: any user, a read-only root folder, little memory.
    fn run(&self, name: &str) -> Command {
        let mut run = self.command(&["run", "--name", name, "--network=none", "--read-only"]);
        run.args(["--user=4711:4711", "--cap-drop=all", "--security-opt=no-new-privileges"]);
        run.args(["--memory=64m", "--memory-swap=64m", "--volume"]);
        run.arg(format!("{}:/data", self.data().display()));
        run
    }
}

impl Drop for Podman {
    fn drop(&mut self) {
        let quiet = |command: &mut Command| {
            // Nothing is lost but space in a folder of temporary files.
            let _ = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
        };
        quiet(&mut self.command(&["rm", "--all", "--force", "--time=0"]));
        quiet(&mut self.command(&["rmi", "--all", "--force"]));
        quiet(Command::new("umount").arg(self.scratch.join("storage/overlay")));
    }
}
