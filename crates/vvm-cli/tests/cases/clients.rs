//! The clients of `vvm run --warm`, in `clients`: an app of each language stands by, leads, writes with its fence and
//! stops when it is told to, and each client passes its own tests.
//!
//! A language that this machine lacks is left out by name.

use crate::VVM;
use harness::{Trial, eventually};
use rustix::process::{Signal, kill_process};
use std::{
    env, fs,
    io::{BufRead as _, BufReader, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    path::PathBuf,
    process::Command,
    sync::{Arc, Mutex},
    thread,
};

/// The variable with the address of the [`Receiver`].
const RECEIVER: &str = "RECEIVER";

const PYTHON: Language = Language {
    folder: "python",
    found: &["python3", "-c", "import sys; assert sys.version_info >= (3, 9)"],
    tests: &["python3", "-W", "ignore::ResourceWarning", "-m", "unittest"],
    ran: "Ran ",
};
const GO: Language = Language {
    folder: "go",
    found: &["go", "version"],
    tests: &["go", "test", "-count=1", "-v", "./..."],
    ran: "--- PASS: Test",
};
const NODE: Language = Language {
    folder: "node",
    found: &["node", "--eval", "process.exit(parseInt(process.versions.node) >= 18 ? 0 : 1)"],
    tests: &["node", "--test"],
    ran: "ok 1 - ",
};

struct Language {
    folder: &'static str,
    /// Ends with 0 if this machine has it.
    found: &'static [&'static str],
    tests: &'static [&'static str],
    /// What the tests print if there are any.
    ran: &'static str,
}

impl Language {
    fn folder(&self) -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../clients").join(self.folder)
    }

    fn is_found(&self) -> bool {
        let found = command(self.found).output().is_ok_and(|ran| ran.status.success());
        if !found {
            println!("left out: the client in clients/{}: `{}` fails", self.folder, self.found.join(" "));
        }
        found
    }

    fn passes_its_own_tests(&self) {
        if !self.is_found() {
            return;
        }
        let ran = command(self.tests).current_dir(self.folder()).output().unwrap();
        let said = String::from_utf8_lossy(&ran.stdout).into_owned() + &String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success() && said.contains(self.ran), "{said}");
    }
}

/// No registry is asked: the clients have no dependencies.
fn command(line: &[&str]) -> Command {
    let mut command = Command::new(line[0]);
    command.args(&line[1..]).env_remove("VVM_SOCKET");
    command.envs([("PYTHONDONTWRITEBYTECODE", "1"), ("GOPROXY", "off"), ("GOTOOLCHAIN", "local")]);
    command
}

/// What the apps write to. It refuses what has a smaller fence than it has seen.
struct Receiver {
    address: SocketAddr,
    /// The fences of all writes, and whether they were taken.
    writes: Arc<Mutex<Vec<(u64, bool)>>>,
}

impl Receiver {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let writes = Arc::new(Mutex::new(Vec::new()));
        let receiver = Self { address, writes: Arc::clone(&writes) };
        // It ends with the process of the test.
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut line = String::new();
                // An app may be killed before it has sent its line.
                if BufReader::new(&stream).read_line(&mut line).is_err() {
                    continue;
                }
                let Ok(fence) = line.trim().parse::<u64>() else { continue };
                let mut writes = writes.lock().unwrap();
                let is_taken = writes.iter().all(|(seen, _)| *seen <= fence);
                writes.push((fence, is_taken));
                // In one piece, because an app may take the first one for the whole answer.
                let _ = stream.write_all(if is_taken { b"taken\n" } else { b"refused\n" });
            }
        });
        receiver
    }

    fn write(&self, fence: u64) -> String {
        let mut stream = TcpStream::connect(self.address).unwrap();
        writeln!(stream, "{fence}").unwrap();
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).unwrap();
        answer
    }

    /// Returns the fences.
    fn taken(&self) -> Vec<u64> {
        let writes = self.writes.lock().unwrap();
        assert!(writes.iter().all(|(_, is_taken)| *is_taken), "{writes:?}");
        writes.iter().map(|(fence, _)| *fence).collect()
    }
}

/// Starts two hosts with this app. They lead in turn: after a step-down, after TERM, and after `kill -9`.
fn lead_in_turn(trial: &Trial, app: &[&str], variables: &[(&str, &str)]) {
    let receiver = Receiver::start();
    let start = || {
        // So long that a leadership ends only by `stopped`.
        let options = ["--warm", "--ttl", "120s", "--stop-timeout", "1h"];
        let run = trial.run(app.iter().copied()).with(options);
        let run = run.environment(RECEIVER, &receiver.address.to_string());
        variables.iter().fold(run, |run, (name, value)| run.environment(name, value)).start()
    };
    let mut first = start();
    first.stdout.wait_for("writes taken");
    is_refused_outside(trial, app, variables);
    let mut second = start();
    second.stderr.wait_for("waiting for leadership");
    trial.must("step-down", &[]);
    first.stdout.wait_for("stops step_down");
    second.stdout.wait_for("writes taken");
    first.stderr.wait_for("waiting for leadership");
    second.signal(Signal::TERM);
    second.stdout.wait_for("stops terminating");
    assert_eq!(second.finish().signal(), Signal::TERM.as_raw());
    first.stdout.wait_for("writes taken");
    kill_process(first.host(), Signal::KILL).unwrap();
    first.finish();
    eventually("the record is released", || trial.slot_state() == "free");
    let taken = receiver.taken();
    assert_eq!(taken.len(), 3);
    assert!(taken.is_sorted_by(|earlier, later| earlier < later), "{taken:?}");
    assert_eq!(receiver.write(taken[1]), "refused\n");
}

/// An app that `vvm` did not start is told so: it has no socket, one that nothing listens on, or that of another app.
fn is_refused_outside(trial: &Trial, app: &[&str], variables: &[(&str, &str)]) {
    let socket = trial.processes().0.into_iter().find_map(|process| {
        let variables = fs::read(format!("/proc/{process}/environ")).ok()?;
        let mut variables = variables.split(|byte| *byte == 0);
        let socket = variables.find_map(|variable| variable.strip_prefix(b"VVM_SOCKET="))?;
        String::from_utf8(socket.to_owned()).ok()
    });
    for (socket, says) in [
        (None, "VVM_SOCKET is not set"),
        (Some("/nowhere/socket".to_owned()), "no host at VVM_SOCKET (/nowhere/socket)"),
        (socket, "only descendants of the app may connect to VVM_SOCKET. Start it by `vvm run --warm"),
    ] {
        let mut outside = command(app);
        outside.envs(variables.iter().copied()).envs(socket.map(|socket| ("VVM_SOCKET", socket)));
        let ended = outside.output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(!ended.status.success() && said.contains(says), "{says}: {said}");
    }
}

/// An app in a time namespace has another clock, and must not lead.
fn refuses_another_clock(trial: &Trial, app: &[&str], variables: &[(&str, &str)]) {
    let through = ["unshare", "--time", "--boottime", "100000"];
    if !command(&[&through[..], &["true"]].concat()).output().is_ok_and(|ran| ran.status.success()) {
        println!("left out: this machine lets us make no time namespace");
        return;
    }
    let run = trial.run(through.into_iter().chain(app.iter().copied()));
    let run = run.with(["--warm", "--restart-backoff", "1h"]);
    let run = variables.iter().fold(run, |run, (name, value)| run.environment(name, value));
    let mut running = run.start();
    running.stderr.wait_for("starting the app again in");
    let finished = running.stop();
    let own = "CLOCK_BOOTTIME is not the host's: start `vvm` in the time namespace of this program";
    for says in [own, "of the app has left without \"hello\""] {
        assert!(finished.says(says), "{says}: {:#?}", finished.stderr);
    }
}

/// The work of this app fails, for it has no receiver: the host says how, and so does the history.
fn failure_is_told(trial: &Trial, app: &[&str], variables: &[(&str, &str)], reason: &str) {
    let options = ["--warm", "--ttl", "120s", "--after-stop", "keep", "--restart-backoff", "1h"];
    let run = trial.run(app.iter().copied()).with(options);
    let mut running = variables.iter().fold(run, |run, (name, value)| run.environment(name, value)).start();
    running.stderr.wait_for(&format!("slot 1: stopping the app: the app failed: {reason}"));
    running.stderr.wait_for("starting the app again in");
    let history = trial.must("history", &[]);
    assert!(history.contains(&format!("the app failed: {reason}")), "{history}");
    running.stop();
}

const SAVE_IN_PYTHON: &str = r#"
import asyncio, os, socket, vvm

def save(fence):
    host, port = os.environ["RECEIVER"].split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(b"%d\n" % fence)
        print("writes", connection.makefile().readline(), end="", flush=True)
"#;

const IN_PYTHON: &str = r#"
with vvm.connect() as host:
    host.ready()
    while term := host.next_term():
        with term:
            save(term.fence())
            while not term.wait(60):
                pass
            print("stops", term.reason, flush=True)
"#;

const IN_ASYNCIO: &str = r#"
async def serve(term):
    save(term.fence())
    try:
        await asyncio.Event().wait()
    finally:
        print("stops", term.reason, flush=True)

async def main():
    with vvm.connect() as host:
        host.ready()
        async for term in host:
            async with term:
                await serve(term)

asyncio.run(main())
"#;

const IN_GO: &str = r#"
package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"net"
	"os"

	"vvm/warm"
)

func save(fence int64) error {
	connection, err := net.Dial("tcp", os.Getenv("RECEIVER"))
	if err != nil {
		return err
	}
	defer connection.Close()
	fmt.Fprintln(connection, fence)
	answer, err := bufio.NewReader(connection).ReadString('\n')
	fmt.Print("writes ", answer)
	return err
}

func serve(ctx context.Context, term warm.Term) error {
	fence, err := term.Fence()
	if err != nil {
		return err
	}
	if err := save(fence); err != nil {
		return err
	}
	<-ctx.Done()
	fmt.Println("stops", context.Cause(ctx))
	return nil
}

func main() {
	build := func(context.Context) error { return nil }
	log.Fatal(warm.Run(context.Background(), build, serve))
}
"#;

const IN_NODE: &str = r#"
import { once } from "node:events";
import net from "node:net";

const warm = await import(process.env.CLIENT);

async function save(fence) {
  const [host, port] = process.env.RECEIVER.split(":");
  const connection = net.connect(port, host).setEncoding("utf8");
  connection.write(`${fence}\n`);
  const [answer] = await once(connection, "data");
  process.stdout.write(`writes ${answer}`);
}

await warm.run({}, async (term) => {
  await save(term.fence());
  await once(term.signal, "abort");
  console.log("stops", term.signal.reason.message.split(": ")[1]);
});
"#;

#[test]
fn python_app_leads_and_stops_when_it_is_told() {
    if PYTHON.is_found() {
        let path = PYTHON.folder().display().to_string();
        let app = format!("{SAVE_IN_PYTHON}{IN_PYTHON}");
        lead_in_turn(&VVM.trial(), &["python3", "-c", &app], &[("PYTHONPATH", &path)]);
        failure_is_told(
            &VVM.trial(),
            &["python3", "-c", &app],
            &[("PYTHONPATH", &path)],
            "KeyError('RECEIVER')",
        );
        refuses_another_clock(&VVM.trial(), &["python3", "-c", &app], &[("PYTHONPATH", &path)]);
    }
}

#[test]
fn asyncio_app_leads_and_stops_when_it_is_told() {
    if PYTHON.is_found() {
        let path = PYTHON.folder().display().to_string();
        let app = format!("{SAVE_IN_PYTHON}{IN_ASYNCIO}");
        lead_in_turn(&VVM.trial(), &["python3", "-c", &app], &[("PYTHONPATH", &path)]);
    }
}

#[test]
fn go_app_leads_and_stops_when_it_is_told() {
    if !GO.is_found() {
        return;
    }
    let trial = VVM.trial();
    let folder = trial.folder().join("app");
    fs::create_dir(&folder).unwrap();
    let client = GO.folder().canonicalize().unwrap();
    let module = format!(
        "module app\n\ngo 1.21\n\nrequire vvm/warm v0.0.0\n\nreplace vvm/warm => {:?}\n",
        client.display().to_string()
    );
    fs::write(folder.join("go.mod"), module).unwrap();
    fs::write(folder.join("main.go"), IN_GO).unwrap();
    let built = command(&["go", "build", "-o", "app", "."]).current_dir(&folder).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    lead_in_turn(&trial, &[folder.join("app").to_str().unwrap()], &[]);
    failure_is_told(&VVM.trial(), &[folder.join("app").to_str().unwrap()], &[], "dial tcp: missing address");
    refuses_another_clock(&trial, &[folder.join("app").to_str().unwrap()], &[]);
}

#[test]
fn node_app_leads_and_stops_when_it_is_told() {
    if NODE.is_found() {
        let client = NODE.folder().join("warm.js").display().to_string();
        let app = ["node", "--input-type=module", "--eval", IN_NODE];
        lead_in_turn(&VVM.trial(), &app, &[("CLIENT", &client)]);
        failure_is_told(
            &VVM.trial(),
            &app,
            &[("CLIENT", &client)],
            "TypeError: Cannot read properties of undefined",
        );
        refuses_another_clock(&VVM.trial(), &app, &[("CLIENT", &client)]);
    }
}

#[test]
fn clients_are_short_and_have_no_dependencies() {
    for (language, client, manifest, word) in [
        (PYTHON, "vvm/__init__.py", "pyproject.toml", "\ndependencies"),
        (GO, "warm.go", "go.mod", "require"),
        (NODE, "warm.js", "package.json", "ependencies\""),
    ] {
        let read = |name: &str| fs::read_to_string(language.folder().join(name)).unwrap();
        assert!(read(client).lines().count() <= 300, "{client}");
        assert!(!read(manifest).contains(word), "{manifest}");
    }
}

#[test]
fn python_client_passes_its_own_tests() {
    PYTHON.passes_its_own_tests();
}

#[test]
fn go_client_passes_its_own_tests() {
    GO.passes_its_own_tests();
}

#[test]
fn node_client_passes_its_own_tests() {
    NODE.passes_its_own_tests();
}
