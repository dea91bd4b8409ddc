//! Runs the recipes of `docs/recipes.md`, the three situations of the README, and what the READMEs of the clients show,
//! as these pages say: writes their files, installs what they install, starts their command as several machines, kills
//! `vvm` on the leader, and compares what the page says that one sees. A recipe whose parts this machine lacks is left
//! out by name. `cargo xtask ci --only recipes` runs them.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "clippy exempts tests, but not their helpers"
)]

use harness::{Level, Outage, Processes, Program, command_line, eventually, has_ended, settle};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    env,
    fs::{self, File},
    net::TcpListener,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};
use tempfile::TempDir;

const VVM: Program = Program::new(env!("CARGO_BIN_EXE_vvm"), Level::Guardian);

const PAGE: &str = "docs/recipes.md";

/// Folders of the page with a recipe's files, and what they are in a test's sandbox. The last one is this repository.
const FOLDERS: [(&str, &str); 4] = [
    ("/usr/local/bin", "bin"),
    ("/var/lib/backup", "."),
    ("/etc", "etc"),
    ("path/to/vvm", concat!(env!("CARGO_MANIFEST_DIR"), "/../..")),
];

/// A port in the recipes of services, replaced by one that is free.
const PORT: &str = "8080";

/// What stands for packages of Ruby, which are not to be had.
const STAND_IN: &str = "#!/bin/sh\nexec sleep 1d\n";

/// Makes a test of each section of the page, and one that no other section has a command.
macro_rules! recipes {
    ($($name:ident: $section:literal $(needs $($program:literal)*)?,)*) => {
        $(#[test]
        fn $name() {
            run($section, &[$($($program),*)?]);
        })*

        #[test]
        fn each_recipe_of_the_page_is_run() {
            let named: Vec<_> = [$($section),*].into_iter().filter(|section| !section.contains('#')).collect();
            let page = page(PAGE);
            let sections = page.split("\n## ").skip(1).map(|text| (text.lines().next().unwrap(), text));
            let recipes = sections.filter(|(_, text)| text.contains("```text"));
            assert_eq!(recipes.map(|(name, _)| name).collect::<Vec<_>>(), named);
        }
    };
}

recipes! {
    worker_of_the_readme: "README.md#A worker",
    nightly_job_of_the_readme: "README.md#A nightly job",
    warm_service_of_the_readme: "README.md#A warm service",
    cron: "Cron",
    systemd_timer: "systemd timer",
    celery_beat: "Celery beat" needs "python3",
    apscheduler: "APScheduler" needs "python3",
    solid_queue: "Solid Queue",
    sidekiq_scheduler: "Sidekiq scheduler",
    litestream: "Litestream" needs "python3",
    postgresql_migration: "PostgreSQL migration" needs "psql" "initdb" "pg_ctl",
    kubernetes_deployment: "Kubernetes Deployment",
    kubernetes_cronjob: "Kubernetes CronJob",
    go: "Go" needs "go" "curl",
    node: "Node" needs "node" "curl",
    warm_service: "Warm service" needs "python3",
    client_for_python: "clients/python/README.md#First fail-over" needs "python3",
    client_for_go: "clients/go/README.md#First fail-over" needs "go",
    client_for_node: "clients/node/README.md#First fail-over" needs "node" "npm",
    gunicorn: "clients/README.md#APScheduler in gunicorn" needs "python3",
    warm_celery_beat: "clients/README.md#Celery beat" needs "python3",
    go_scheduler: "clients/README.md#Go scheduler" needs "go" "psql" "initdb" "pg_ctl",
    node_service: "clients/README.md#Node service" needs "node" "npm" "psql" "initdb" "pg_ctl",
}

fn page(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)).unwrap()
}

struct Recipe {
    files: Vec<(String, String)>,
    before: Vec<String>,
    command: String,
    is_apart: bool,
    seen: Vec<Seen>,
}

#[derive(Clone)]
enum Seen {
    Printed(usize, String),
    Killed,
    /// A command of the reader's has this output, sooner or later.
    Asked(String, String),
}

impl Recipe {
    fn of(section: &str) -> Self {
        let (path, section) = section.split_once('#').unwrap_or((PAGE, section));
        let page = page(path);
        let (_, text) = page.split_once(&format!("# {section}\n")).unwrap();
        let text = ["\n## ", "\n### "].iter().fold(text, |text, next| text.split(next).next().unwrap());
        let mut recipe = Self {
            files: Vec::new(),
            before: Vec::new(),
            command: String::new(),
            is_apart: text.contains("in a folder of its own"),
            seen: Vec::new(),
        };
        for block in text.split("```").skip(1).step_by(2) {
            let (language, code) = block.split_once('\n').unwrap();
            match (language, file_of(code)) {
                ("text", _) => recipe.seen = seen(code),
                (_, Some(path)) => recipe.files.push((path.to_owned(), code.to_owned())),
                ("sh", None)
                    if ["vvm run ", "vvm once ", "vvm elect "].iter().any(|vvm| code.contains(vvm)) =>
                {
                    code.clone_into(&mut recipe.command);
                }
                ("sh", None) => recipe.before.push(code.to_owned()),
                _ => panic!("{section}: a block of {language} names no file"),
            }
            let started = match language {
                "crontab" => job_of_a_crontab(code),
                "ini" => code.lines().find_map(|line| line.strip_prefix("ExecStart=")).map(unescaped),
                "yaml" => Some(shell_words(code.split_once("command: ").unwrap().1.lines().next().unwrap())),
                _ => None,
            };
            recipe.command = started.unwrap_or(recipe.command);
        }
        assert!(!recipe.command.is_empty() && !recipe.seen.is_empty(), "{section}");
        recipe
    }

    fn name(&self) -> &str {
        self.command.split_once("--name ").unwrap().1.split_whitespace().next().unwrap()
    }

    fn is_once(&self) -> bool {
        self.command.contains("vvm once ")
    }
}

fn file_of(code: &str) -> Option<&str> {
    let first = code.lines().find(|line| !line.starts_with("#!"))?;
    let comment = ["# ", "// ", "-- "].iter().find_map(|sign| first.strip_prefix(sign))?;
    Some(comment.split([' ', ':']).next().unwrap())
}

fn job_of_a_crontab(code: &str) -> Option<String> {
    let job = code.lines().find(|line| line.contains(" * * * "))?;
    let command = job.split_whitespace().skip(6).collect::<Vec<_>>().join(" ");
    assert!(!command.replace(r"\%", "").contains('%'), "cron ends the line at a bare %");
    Some(command.replace(r"\%", "%"))
}

/// Returns a command of a unit, as systemd runs it (systemd.service(5)).
fn unescaped(command: &str) -> String {
    command.replace("$$", "$").replace("%%", "%")
}

fn shell_words(list: &str) -> String {
    let list = list.trim().strip_prefix('[').unwrap().strip_suffix(']').unwrap();
    let mut quoted = false;
    let split = list.split(|letter| {
        quoted ^= letter == '\'';
        letter == ',' && !quoted
    });
    split.map(str::trim).collect::<Vec<_>>().join(" ")
}

fn seen(code: &str) -> Vec<Seen> {
    let mut all = Vec::new();
    for line in code.lines() {
        if let Some(asked) = line.strip_prefix("$ ") {
            all.push(Seen::Asked(asked.to_owned(), String::new()));
        } else if line.trim_start().starts_with("(kill -9 of vvm on ") {
            all.push(Seen::Killed);
        } else if let Some((machine, printed)) =
            line.strip_prefix("machine-").and_then(|rest| rest.split_once("  "))
        {
            all.push(Seen::Printed(machine.parse().unwrap(), printed.to_owned()));
        } else if let Some(Seen::Asked(_, output)) = all.last_mut() {
            output.push_str(line);
            output.push('\n');
        } else {
            panic!("what does this line show: {line}");
        }
    }
    all
}

fn is_like(line: &str, pattern: &str) -> bool {
    let mut parts = pattern.split('…');
    let Some(mut rest) = line.strip_prefix(parts.next().unwrap()) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        let Some((_, behind)) = rest.split_once(part) else { return false };
        rest = behind;
    }
    rest.ends_with(last)
}

fn are_like(printed: &str, pattern: &str) -> bool {
    let lines = printed.lines().zip(pattern.lines());
    printed.lines().count() == pattern.lines().count()
        && lines.into_iter().all(|(line, like)| is_like(line, like))
}

/// A folder in which a recipe runs, and its machines. Dropping it ends their processes.
struct Sandbox {
    /// Before its folder, in which the server runs.
    database: Option<Database>,
    folder: TempDir,
    port: String,
    path: String,
    machines: Vec<(Child, String)>,
    read: Vec<usize>,
    killed: Option<usize>,
}

impl Sandbox {
    fn new(recipe: &Recipe) -> Self {
        settle();
        let folder = tempfile::tempdir().unwrap();
        let bin = folder.path().join("bin");
        fs::create_dir(&bin).unwrap();
        symlink(VVM.path(), bin.join("vvm")).unwrap();
        let port = TcpListener::bind("localhost:0").unwrap().local_addr().unwrap().port().to_string();
        let path = format!("{}:{}", bin.display(), env::var("PATH").unwrap());
        let sandbox =
            Self { folder, port, path, machines: Vec::new(), read: Vec::new(), killed: None, database: None };
        for (file, text) in &recipe.files {
            let path = sandbox.folder.path().join(sandbox.placed(file).trim_start_matches('/'));
            let path = if file.starts_with('/') { PathBuf::from(sandbox.placed(file)) } else { path };
            sandbox.write(&path, &sandbox.placed(text));
        }
        for stand_in in ["bin/jobs", "bin/bundle"] {
            sandbox.write(&sandbox.folder.path().join(stand_in), STAND_IN);
        }
        sandbox
    }

    fn write(&self, path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        if text.starts_with("#!") {
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }
    }

    /// Returns a text of the page with folders and the port of this sandbox.
    fn placed(&self, text: &str) -> String {
        let text = text.replace(PORT, &self.port);
        FOLDERS.iter().fold(text, |text, (folder, here)| {
            text.replace(folder, &self.folder.path().join(here).display().to_string())
        })
    }

    fn shell(&self, script: &str, folder: &Path) -> Command {
        let mut shell = Command::new("sh");
        shell.args(["-c", &self.placed(script)]).current_dir(folder).stdin(Stdio::null());
        // `PYTHONUNBUFFERED` splits a line into two writes, and a line of `vvm` may get between them.
        let of_the_caller = |name: &str| ["VVM_", "PYTHON"].iter().any(|start| name.starts_with(start));
        for (name, _) in env::vars().filter(|(name, _)| of_the_caller(name)) {
            shell.env_remove(name);
        }
        let storage = format!("sqlite:{}?allow=overlay", self.folder.path().join("leader.db").display());
        shell.env("PATH", &self.path).env("VVM_STORAGE", storage).env("VERSION", "2");
        // So long that no wait of this test outlasts it: the next leader did not wait for it.
        shell.env("VVM_TTL", "5m");
        shell.env("VVM_LOCAL_DIR", self.folder.path().join("local"));
        if let Some(database) = &self.database {
            shell.env("DATABASE_URL", database.url());
        }
        shell
    }

    fn ask(&self, script: &str) -> Result<String, String> {
        let output = self.shell(script, self.folder.path()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let error =
            || format!("{script}: {}\n{text}{}", output.status, String::from_utf8_lossy(&output.stderr));
        if output.status.success() { Ok(text) } else { Err(error()) }
    }

    fn start(&mut self, recipe: &Recipe) {
        let machine = format!("machine-{}", self.machines.len() + 1);
        let mut folder = self.folder.path().to_owned();
        if recipe.is_apart {
            folder.push(&machine);
            for (file, text) in &recipe.files {
                self.write(&folder.join(file), &self.placed(text));
            }
        }
        let output = File::create(self.folder.path().join(format!("{machine}.output"))).unwrap();
        let mark = format!("{}-{machine}", self.folder.path().file_name().unwrap().display());
        let mut shell = self.shell(&recipe.command, &folder);
        shell.stdout(output.try_clone().unwrap()).stderr(output);
        let child = shell.env("VVM_HOLDER", &machine).env("TRIAL", &mark).spawn().unwrap();
        self.machines.push((child, mark));
        self.read.push(0);
    }

    fn output(&self, machine: usize) -> String {
        fs::read_to_string(self.folder.path().join(format!("machine-{machine}.output"))).unwrap()
    }

    fn leader(&self, recipe: &Recipe) -> Option<usize> {
        let status = format!("vvm status --no-wait --json --name {}", recipe.name());
        let shown = self.ask(&status).ok()?;
        let (_, holder) = shown.split_once("\"holder\": \"machine-")?;
        holder.split('"').next()?.parse().ok()
    }

    fn wait_for(&mut self, machine: usize, pattern: &str) {
        eventually(&format!("machine-{machine} prints `{pattern}`"), || self.has_printed(machine, pattern));
    }

    fn has_printed(&mut self, machine: usize, pattern: &str) -> bool {
        let output = self.output(machine);
        let mut at = self.read[machine - 1];
        for line in output[at..].split_inclusive('\n') {
            at += line.len();
            if line.ends_with('\n') && is_like(line.trim_end(), pattern) {
                self.read[machine - 1] = at;
                return true;
            }
        }
        false
    }

    fn request(&self) -> Result<String, String> {
        self.ask(&format!("python3 -c \"{REQUEST}\" {}", self.port))
    }

    fn kill_leader(&mut self, recipe: &Recipe) {
        let leader = self.leader(recipe).unwrap();
        let mark = &self.machines[leader - 1].1;
        let started = |pid: &Pid| command_line(*pid).starts_with("vvm ");
        let vvm = Processes::marked(mark).0.into_iter().find(started).unwrap();
        // A service manager of the recipe stays, and so does what it restarts. The host of a killed guardian ends after it has
        // released the record.
        let is_work = |pid: &Pid| !["sh ", "vvm "].iter().any(|of| command_line(*pid).starts_with(of));
        let work: Vec<Pid> = Processes::marked(mark).0.into_iter().filter(is_work).collect();
        kill_process(vvm, Signal::KILL).unwrap();
        self.killed = Some(leader);
        eventually("another machine leads", || self.leader(recipe).is_some_and(|next| next != leader));
        let left: Vec<String> = work.into_iter().filter(|pid| !has_ended(*pid)).map(command_line).collect();
        assert!(left.is_empty(), "alive beside the next leader: {left:?}");
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        for (machine, (_, mark)) in self.machines.iter().enumerate() {
            if std::thread::panicking() {
                println!("machine-{}:\n{}", machine + 1, self.output(machine + 1));
            }
            // Again until none is left: a shell restarts what was killed before it.
            eventually("no process is left", || {
                let left = Processes::marked(mark);
                left.kill();
                left.0.is_empty()
            });
        }
        for (child, _) in &mut self.machines {
            let _status = child.wait();
        }
    }
}

/// Writes the files of a section of the page, and runs what comes before its command. `None` if a part is missing.
fn prepared(section: &str, needs: &[&str]) -> Option<(Recipe, Sandbox)> {
    let mut recipe = Recipe::of(section);
    let mut sandbox = Sandbox::new(&recipe);
    let missing = |program: &&&str| sandbox.ask(&format!("command -v {program}")).is_err();
    if let Some(program) = needs.iter().find(missing) {
        println!("left out: {section}: there is no {program}");
        return None;
    }
    if needs.contains(&"initdb") {
        sandbox.database = Some(Database::start(sandbox.folder.path()));
    }
    if section == "systemd timer" {
        verify_units(&sandbox);
    }
    for before in std::mem::take(&mut recipe.before) {
        if before.contains("pip install")
            && let Err(error) = sandbox.use_packages(section, &before)
        {
            println!("left out: {section}: {error}");
            return None;
        }
        let steps = before.lines().filter(|line| !line.starts_with("pip install"));
        match sandbox.ask(&steps.collect::<Vec<_>>().join("\n")) {
            Err(error) if ["go get ", "npm install pg"].iter().any(|fetch| before.contains(fetch)) => {
                println!("left out: {section}: {error}");
                return None;
            }
            ended => drop(ended.unwrap()),
        }
    }
    Some((recipe, sandbox))
}

fn run(section: &str, needs: &[&str]) {
    let Some((recipe, mut sandbox)) = prepared(section, needs) else { return };
    let machines = recipe
        .seen
        .iter()
        .filter_map(|seen| if let Seen::Printed(machine, _) = seen { Some(*machine) } else { None });
    // Where the page names no machine, any of three may lead.
    let machines = machines.max().unwrap_or(3);
    for machine in 1..=machines {
        sandbox.start(&recipe);
        if machine == 1 && recipe.seen.iter().any(|seen| matches!(seen, Seen::Killed)) {
            eventually("machine-1 leads", || sandbox.leader(&recipe) == Some(1));
        }
    }
    for seen in &recipe.seen {
        match seen {
            Seen::Printed(machine, pattern) => sandbox.wait_for(*machine, pattern),
            Seen::Killed => sandbox.kill_leader(&recipe),
            Seen::Asked(asked, expected) => {
                eventually(&format!("`{asked}` prints\n{expected}"), || {
                    sandbox.ask(asked).is_ok_and(|printed| are_like(&printed, expected))
                });
            }
        }
    }
    if recipe.is_once() {
        sandbox.nothing_is_run_again(&recipe);
    }
}

impl Sandbox {
    /// Installs Python's packages into an environment that later runs find, too.
    fn use_packages(&mut self, section: &str, line: &str) -> Result<(), String> {
        let target = Path::new(env!("CARGO_BIN_EXE_vvm")).ancestors().nth(2).unwrap();
        let place = target.join("recipes").join(section.replace(' ', "-"));
        let bin = place.join("bin").display().to_string();
        let install = line.lines().find(|line| line.starts_with("pip install")).unwrap();
        let wanted = place.join("installed");
        if fs::read_to_string(&wanted).is_ok_and(|installed| installed == install) {
            self.path = format!("{bin}:{}", self.path);
            return Ok(());
        }
        self.ask(&format!(
            "python3 -m venv --clear '{}' && PATH='{bin}':\"$PATH\" && {install} --quiet",
            place.display()
        ))?;
        fs::write(wanted, install).unwrap();
        self.path = format!("{bin}:{}", self.path);
        Ok(())
    }

    /// All machines end with 0, but for one that was killed, and so does one that starts again. It runs nothing.
    fn nothing_is_run_again(&mut self, recipe: &Recipe) {
        for (machine, (child, _)) in self.machines.iter_mut().enumerate() {
            let status = child.wait().unwrap();
            assert!(
                status.success() || self.killed == Some(machine + 1),
                "machine-{}: {status}",
                machine + 1
            );
        }
        let done = self.ask("cat *.output log 2>/dev/null || true").unwrap();
        self.start(recipe);
        let status = self.machines.last_mut().unwrap().0.wait().unwrap();
        assert!(status.success(), "{status}");
        // Not what `vvm` says, and not what comes after it.
        let is_of_the_job = |line: &&str| !line.contains("vvm: ") && !line.starts_with("start version");
        let of_the_job = |text: &str| text.lines().filter(is_of_the_job).count();
        let again = self.ask("cat *.output log 2>/dev/null || true").unwrap();
        assert_eq!(of_the_job(&again), of_the_job(&done), "{again}");
        if recipe.command.contains("vvm once --quiet") {
            assert_eq!(self.output(self.machines.len()), "", "cron mails every line");
        }
    }
}

fn verify_units(sandbox: &Sandbox) {
    // As on the page: the sandbox puts its own folder in front.
    let units = "/etc/systemd/system";
    let verify =
        format!("systemd-analyze verify --man=no {units}/nightly.service {units}/nightly.timer 2>&1");
    if sandbox.ask("command -v systemd-analyze").is_err() {
        println!("not checked: units: there is no systemd-analyze");
        return;
    }
    assert_eq!(sandbox.ask(&verify), Ok(String::new()));
}

struct Database(PathBuf);

impl Database {
    fn start(folder: &Path) -> Self {
        let folder = folder.join("database");
        fs::create_dir(&folder).unwrap();
        let database = Self(folder);
        // The server refuses to run as root.
        database.control("initdb --auth=trust --username=postgres -D data >/dev/null");
        let start = "pg_ctl start --silent --wait -D data -l log -o \"-k $PWD -c listen_addresses=''\"";
        database.control(start);
        database
    }

    fn url(&self) -> String {
        format!("postgresql://postgres@/postgres?host={}", self.0.display())
    }

    fn control(&self, script: &str) {
        let as_owner = "if [ \"$(id -u)\" = 0 ]; then chmod 755 .. && chown 65534:65534 . && \
                        exec setpriv --reuid 65534 --regid 65534 --clear-groups sh -c \"$0\"; fi; exec sh -c \"$0\"";
        let status = Command::new("sh").args(["-c", as_owner, script]).current_dir(&self.0).status().unwrap();
        assert!(status.success(), "{script}: {status}");
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        if self.0.join("data/postmaster.pid").exists() {
            self.control("pg_ctl stop --silent --mode=immediate -D data");
        }
    }
}

#[test]
fn gunicorn_replaces_workers_and_a_leading_one_hands_over() {
    for level in ["guardian", "pidns"] {
        let Some((mut recipe, mut sandbox)) = prepared(GUNICORN, &["python3"]) else { return };
        sandbox.ask("echo 'max_requests = 1' >> gunicorn.conf.py").unwrap();
        recipe.command = format!("VVM_CONTAINMENT={level} {}", recipe.command);
        sandbox.start(&recipe);
        sandbox.wait_for(1, "report, epoch …");
        // One worker of four leads, so most requests reach others. A worker that ends may refuse. One request may end several.
        eventually("the worker that leads is replaced", || {
            let _ = sandbox.request();
            sandbox.output(1).matches(": leading, epoch ").count() >= 2
        });
        sandbox.wait_for(1, "…vvm: reports slot 1: leading, epoch …");
        sandbox.wait_for(1, "report, epoch …");
        assert!(!sandbox.output(1).contains("starting the app again"), "gunicorn itself lives on");
        let reports = sandbox.ask("python3 workers.py").unwrap();
        let leaderships = reports.strip_prefix("leaderships: ").and_then(|rest| rest.split(',').next());
        assert!(leaderships.unwrap().parse::<u32>().unwrap() >= 2, "{reports}");
    }
}

/// What serves on each machine answers while the storage is away, and leads again after it. `VVM_TEST_OUTAGE=60` keeps
/// the storage away for that many seconds more.
fn serves_while_the_storage_is_away(section: &str, needs: &[&str], works: &str) {
    let Some((mut recipe, mut sandbox)) = prepared(section, needs) else { return };
    recipe.command = format!("VVM_TTL=20s PORT={} {}", sandbox.port, recipe.command);
    sandbox.start(&recipe);
    sandbox.wait_for(1, works);
    let leader = sandbox.folder.path().join("leader.db");
    let serves_until = |sandbox: &mut Sandbox, pattern: &str| {
        eventually(&format!("`{pattern}` is printed"), || {
            sandbox.request().unwrap();
            sandbox.has_printed(1, pattern)
        });
    };
    let away = Outage::of_file(&leader);
    serves_until(&mut sandbox, "…: stopping the app: the leadership is lost");
    serves_until(&mut sandbox, "…: waiting for leadership …");
    let more = env::var("VVM_TEST_OUTAGE").ok().and_then(|seconds| seconds.parse().ok()).unwrap_or(0);
    for _ in 0..more {
        sandbox.request().unwrap();
        thread::sleep(Duration::from_secs(1));
    }
    drop(away);
    serves_until(&mut sandbox, "…: leading, epoch …");
    serves_until(&mut sandbox, works);
}

#[test]
fn website_in_gunicorn_answers_while_the_storage_is_away() {
    serves_while_the_storage_is_away(GUNICORN, &["python3"], "report, epoch …");
}

#[test]
fn website_in_node_answers_while_the_storage_is_away() {
    let needs = ["node", "npm", "psql", "initdb", "pg_ctl", "python3"];
    serves_while_the_storage_is_away("clients/README.md#Node service", &needs, "paid, epoch …");
}

const GUNICORN: &str = "clients/README.md#APScheduler in gunicorn";

const REQUEST: &str =
    "import sys, urllib.request as r; r.urlopen('http://localhost:' + sys.argv[1], timeout=5)";

#[test]
fn line_is_like_a_pattern_with_gaps() {
    assert!(is_like("2026Z vvm: beat: leading, epoch 17, as m", "…Z vvm: beat: leading, epoch …, as m"));
    assert!(is_like("at work", "at work") && !is_like("at work", "at") && !is_like("not at work", "at work"));
    assert!(!is_like("epoch 17, as m2", "epoch …, as m") && is_like("", "…"));
}
