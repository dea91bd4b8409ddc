//! `cargo xtask test-drivers`: runs the suites of every driver on real servers, one after another, and prints a table.
//! A requested driver that could not be run has failed.
#![forbid(unsafe_code)]

mod cases;

use cases::{Cases, Suite};
use clap::{Parser, ValueEnum};
use servers::{
    built::{CLIENT_GO, CLIENT_GO_VERSION, OLD_CLIENT_GO},
    cassandra::{Cassandra, Plan},
    dynamodb::DynamoDbLocal,
    etcd::{Cluster, Program},
    kubernetes::{self, Kubernetes},
    mysql::MariaDb,
    objects::{CREDENTIALS, ObjectServer, Product},
    owned::run,
    postgres::{Pooler, Postgres},
    replicated::Replicated as _,
    target,
};
use std::{
    env,
    fmt::Display,
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

/// The suites of every driver, on real servers.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask test-drivers")]
struct CommandLine {
    /// Only these drivers, separated by commas; all if not given.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Driver>,
    /// The number of nodes of a cluster that is started: one, or three that replicate.
    #[arg(long, default_value = "1", value_parser = clap::value_parser!(u8).range(1..=9))]
    nodes: u8,
    /// Also on servers that take long to build or to fetch.
    #[arg(long)]
    all_servers: bool,
    /// Only builds kube-apiserver (`cargo xtask servers kubernetes`).
    #[arg(long, hide = true)]
    build_kubernetes: bool,
}

fn main() -> ExitCode {
    let CommandLine { only, nodes, all_servers, build_kubernetes } = CommandLine::parse();
    let succeeded = if build_kubernetes {
        kubernetes::build()
            .inspect(|program| println!("{}", program.display()))
            .inspect_err(|why| eprintln!("servers: {why}"))
            .is_ok()
    } else {
        run_drivers(&only, nodes, all_servers)
    };
    if succeeded { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The drivers whose suites need a server, and one without. All others run with the tests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Driver {
    /// On Apache Cassandra, or the cluster at `VVM_TEST_SCYLLA=host:port`.
    Scylla,
    /// On PostgreSQL 17 (`VVM_TEST_POSTGRES_PROGRAMS=folder` names the programs of another), or the database
    /// at `VVM_TEST_POSTGRES=postgres://user@host:port/database`.
    Postgres,
    /// On MariaDB 10.11 (`VVM_TEST_MYSQL_PROGRAMS=folder` names the programs of another), or the database at
    /// `VVM_TEST_MYSQL=mysql://user@host:port/database`.
    Mysql,
    /// On one member of the installed etcd and on three of etcd 3.7.3, which is built once, or the cluster at
    /// `VVM_TEST_ETCD=host:port,…`.
    Etcd,
    /// On kube-apiserver, or the namespace at `VVM_TEST_KUBERNETES=k8s://namespace?kubeconfig=…`. Needs `kubectl`.
    Kubernetes,
    /// On DynamoDB Local, or the endpoint `VVM_TEST_DYNAMODB=http://host:port`.
    Dynamodb,
    /// On versitygw, which is built once, or the bucket at `VVM_TEST_S3=s3://bucket/prefix?region=…`.
    S3,
    /// In folders. Runs with the tests, too.
    Sled,
}

// The variables with the places of servers that run already.

const SCYLLA: &str = "VVM_TEST_SCYLLA";
const POSTGRES: &str = "VVM_TEST_POSTGRES";
const MYSQL: &str = "VVM_TEST_MYSQL";
const ETCD: &str = "VVM_TEST_ETCD";
const KUBERNETES: &str = "VVM_TEST_KUBERNETES";
/// Credentials come from the environment, as for [`S3`].
const DYNAMODB: &str = "VVM_TEST_DYNAMODB";
const S3: &str = "VVM_TEST_S3";

/// A server that loses writes.
const RACY: &str = "VVM_TEST_S3_RACY";

/// Another one, which is recognized by its answers.
const S3MOCK: &str = "VVM_TEST_S3_MOCK";

/// Runs the drivers in `only`, or all. Returns whether every case passed. `all_servers` adds those that take long.
fn run_drivers(only: &[Driver], nodes: u8, all_servers: bool) -> bool {
    let asked_for = if only.is_empty() { Driver::value_variants() } else { only };
    let mut table = Vec::new();
    for driver in asked_for {
        println!("==> {}", driver.name());
        let outcome = driver.run(nodes, all_servers);
        if let Err(why) = &outcome {
            eprintln!("{}: {why}", driver.name());
        }
        table.push((driver.name(), outcome));
    }
    println!();
    for (name, outcome) in &table {
        match outcome {
            Ok(Outcome { suites, end_to_end, place, .. }) => {
                println!("{name:8} {suites}, on {place}");
                if let Some(end_to_end) = end_to_end {
                    println!("{name:8} {end_to_end}, of `vvm run` end to end");
                }
            }
            Err(_) => println!("{name:8} NOT RUN: see above"),
        }
    }
    // The last lines, which `cargo xtask ci` repeats among its own last ones.
    for (name, outcome) in &table {
        outcome
            .iter()
            .flat_map(|outcome| &outcome.left_out)
            .for_each(|what| println!("left out: {name}: {what}"));
    }
    table.iter().all(|(_, outcome)| outcome.as_ref().is_ok_and(Outcome::all_passed))
}

struct Outcome {
    suites: Cases,
    /// The end-to-end cases; `None` if the server is not started by this program, or has no time for them.
    end_to_end: Option<Cases>,
    place: String,
    /// What this machine lacks, or was not asked for, and why.
    left_out: Vec<String>,
}

impl Outcome {
    fn all_passed(&self) -> bool {
        self.suites.all_passed() && self.end_to_end.as_ref().is_none_or(Cases::all_passed)
    }

    fn of_suites(suites: Cases, place: String) -> Self {
        Self { suites, end_to_end: None, place, left_out: Vec::new() }
    }
}

impl Driver {
    fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// Returns the variable that names a running server, the modules of its tests, and what is left out there, if any.
    fn named(self) -> Option<(&'static str, &'static [&'static str], &'static str)> {
        Some(match self {
            Self::Sled => return None,
            Self::Scylla => (SCYLLA, &["scylla"], "passwords and TLS"),
            Self::Postgres => {
                let modules = &["postgres::suites", "postgres::handles", "postgres::hints"];
                (POSTGRES, modules, "TLS and fail-over")
            }
            Self::Mysql => (MYSQL, &["mysql::suites"], "TLS and fail-over"),
            Self::Etcd => (ETCD, &["etcd::suites", "etcd::handles"], "TLS and failures"),
            Self::Kubernetes => {
                let modules = &["kubernetes::suites", "kubernetes::leases", "kubernetes::hints"];
                (KUBERNETES, modules, "credentials and roles")
            }
            Self::S3 => {
                let not_run = "servers that lose writes";
                (S3, &["objects::suites", "objects::handles"], not_run)
            }
            Self::Dynamodb => (DYNAMODB, &["dynamodb"], "credential helpers"),
        })
    }

    fn run(self, nodes: u8, all_servers: bool) -> Result<Outcome, String> {
        if let Some((variable, modules, lacks)) = self.named()
            && let Ok(place) = env::var(variable)
        {
            let cases = suites(modules, &[(variable, &place)])?;
            let left_out = vec![format!(
                "`vvm run` end to end, and {lacks}: on servers of this program alone (unset {variable})"
            )];
            return Ok(Outcome { left_out, ..Outcome::of_suites(cases, place) });
        }
        match self {
            Self::Scylla => on_cassandra(nodes),
            Self::Postgres => on_postgres(),
            Self::Mysql => on_mysql(),
            Self::Etcd => on_etcd(),
            Self::Kubernetes => on_kubernetes(all_servers),
            Self::S3 => on_object_stores(all_servers),
            Self::Dynamodb => on_dynamodb(),
            Self::Sled => on_sled(),
        }
    }
}

fn text(error: impl Display) -> String {
    error.to_string()
}

/// Returns what adds the way out to an error: a server that runs already.
fn or_set<E: Display>(example: &str) -> impl Fn(E) -> String {
    move |error| format!("{error}\nOr set {example} to a server that runs already.")
}

/// `vvm run` refuses it.
fn on_sled() -> Result<Outcome, String> {
    let only = &["sled", "processes"];
    let suites = Suite { tests: &["storage"], only, threads: 4, environment: &[] }.run()?;
    Ok(Outcome::of_suites(suites, "sled 0.34.7, in temporary folders".into()))
}

fn on_dynamodb() -> Result<Outcome, String> {
    let way_out = or_set("VVM_TEST_DYNAMODB=http://host:port");
    let local = DynamoDbLocal::start(&target()).map_err(way_out)?;
    let (endpoint, at) = (local.endpoint(), local.address().to_string());
    // It accepts any.
    let suites = suites(&["dynamodb"], &[&[(DYNAMODB, &*endpoint)], &CREDENTIALS[..]].concat())?;
    let url = format!("dynamodb://eu-west-1/{}?endpoint={endpoint}", cases::STORAGE);
    let processes = cases::on_server(&url, &at, &CREDENTIALS)?;
    let end_to_end = Some(processes + cases::credentials(&url, &at, &CREDENTIALS)?);
    Ok(Outcome { end_to_end, ..Outcome::of_suites(suites, "DynamoDB Local 2.6.1".into()) })
}

/// Runs all cases for a cluster of so many nodes: on an open one, and on one that requires a certificate and a password.
fn on_cassandra(nodes: u8) -> Result<Outcome, String> {
    let way_out = or_set("VVM_TEST_SCYLLA=host:port");
    let mut open = Cassandra::start(nodes, &target()).map_err(&way_out)?;
    let cases = suites(&["scylla"], &[(SCYLLA, &open.contact_points())])?;
    let (mut end_to_end, mut left_out) = (None, Vec::new());
    if let [_] = open.nodes() {
        let url = open.url(cases::STORAGE);
        end_to_end = Some(cases::on_server(&url, &open.contact_points(), &[])?);
    } else {
        left_out.push(
            "`vvm run` end to end: on one node alone, since several on two cores delay each other".into(),
        );
    }
    drop(open);
    let locked = Plan { nodes: 1, is_locked: true }.start(&target()).map_err(way_out)?;
    let locks = locked.locks().unwrap_or(Path::new("")).display().to_string();
    let environment =
        [("VVM_TEST_SCYLLA_LOCKED", &*locked.contact_points()), ("VVM_TEST_SCYLLA_LOCKS", &*locks)];
    let suites = cases + suites(&["scylla_locked"], &environment)?;
    Ok(Outcome { suites, end_to_end, place: format!("Apache Cassandra 5.0.5, nodes: {nodes}"), left_out })
}

/// The suites and `vvm` on a primary, the suites behind a pooler, and TLS and fail-over on servers of the tests.
fn on_postgres() -> Result<Outcome, String> {
    let way_out = or_set("VVM_TEST_POSTGRES=postgres://user@host:port/database");
    let databases = [cases::STORAGE, "pooled", "workers"];
    let server = Postgres::start(&target(), &databases, &[]).map_err(&way_out)?;
    let (variable, programs) = server.programs();
    let direct = [(POSTGRES, &*server.url("postgres")), (variable, &*programs)];
    let modules = [
        "postgres::suites",
        "postgres::handles",
        "postgres::hints",
        "postgres::encrypted",
        "postgres::failover",
    ];
    let mut cases = suites(&modules, &direct)?;
    let (mut place, mut left_out) = (server.version().to_owned(), Vec::new());
    match Pooler::start(&server).map_err(way_out)? {
        Some(pooler) => {
            place += &format!(", and {}, transaction pooling", pooler.version());
            let modules = ["postgres::suites", "postgres::pooled"];
            cases = cases + suites(&modules, &[(POSTGRES, &pooler.url("pooled"))])?;
        }
        None => left_out.push("behind a pooler (install Debian's package pgbouncer)".to_owned()),
    }
    // Cases use TTLs of all lengths.
    let url = format!("{}?max_ttl=86400s", server.url(cases::STORAGE));
    let at = server.address().to_string();
    let processes = cases::on_server(&url, &at, &[])?;
    let database = format!("{}?sslmode=disable", server.url("workers"));
    let workers = run_workers(&database, &cases::storage(&url, &at), &mut left_out)?;
    Ok(Outcome { suites: cases, end_to_end: Some(processes + workers), place, left_out })
}

fn on_mysql() -> Result<Outcome, String> {
    let way_out = or_set("VVM_TEST_MYSQL=mysql://user@host:port/database");
    let server = MariaDb::start(&target(), &["suites", cases::STORAGE], &[]).map_err(way_out)?;
    let (variable, programs) = server.programs();
    let environment = [(MYSQL, &*server.url("suites")), (variable, &*programs)];
    let suites = suites(&["mysql"], &environment)?;
    // Cases use TTLs of all lengths. Cases set a password, which this user has not.
    let url = format!("{}?max_ttl=86400s", server.url(cases::STORAGE).replace("root@", "root:@"));
    let end_to_end = Some(cases::on_server(&url, &server.address().to_string(), &[])?);
    Ok(Outcome { end_to_end, ..Outcome::of_suites(suites, server.version().to_owned()) })
}

/// The suites on one member of the installed etcd and on three of a built one, where to be had, and `vvm` on one.
fn on_etcd() -> Result<Outcome, String> {
    let installed = Program::installed().map_err(|error| error.to_string());
    let built = Program::built().map_err(|error| error.to_string());
    let (mut programs, mut places, mut left_out) = (Vec::new(), Vec::new(), Vec::new());
    for (members, program) in [(1, installed), (3, built)] {
        match program {
            Ok(program) => programs.push((members, program)),
            Err(error) => left_out.push(format!("members: {members} ({error})")),
        }
    }
    let Some((newest, others)) = programs.split_last() else {
        return Err(or_set("VVM_TEST_ETCD=host:port,…")(left_out.join("\n")));
    };
    let start =
        |program: &Program, members| Cluster::start(program, members).map_err(|error| error.to_string());
    let mut on = |(members, program): &(usize, Program)| {
        let path = program.path().display().to_string();
        let cluster = start(program, *members)?;
        places.push(format!("{}, members: {members}", program.version()));
        suites(&["etcd"], &[(ETCD, &cluster.addresses()), (Program::NAMED, &path)])
    };
    let mut suites = on(newest)?;
    for other in others {
        suites = suites + on(other)?;
    }
    let single = start(&newest.1, 1)?;
    let url = format!("etcd://{}/{}", single.addresses(), cases::STORAGE);
    let end_to_end = Some(cases::on_server(&url, &single.addresses(), &[])?);
    Ok(Outcome { suites, end_to_end, place: places.join("; "), left_out })
}

/// The suites and `vvm` on an API server with roles. `all_servers` adds an old client-go.
fn on_kubernetes(all_servers: bool) -> Result<Outcome, String> {
    let way_out = or_set("VVM_TEST_KUBERNETES=k8s://namespace?kubeconfig=PATH");
    let server = Kubernetes::start().map_err(way_out)?;
    let suites = suites(&["kubernetes"], &[(KUBERNETES, &server.url("default"))])?;
    let at = server.address().to_string();
    let url = format!("{}&server=https://{at}", server.url("default"));
    let processes = cases::on_server(&url, &at, &[])?;
    let (mut place, mut left_out) = (server.version(), Vec::new());
    let mut end_to_end = processes;
    match CLIENT_GO.build() {
        Ok(program) => {
            place += &format!("; `vvm run` beside {CLIENT_GO_VERSION}");
            let old = all_servers.then(|| OLD_CLIENT_GO.build()).transpose().map_err(text)?;
            if old.is_none() {
                left_out.push("`vvm run` beside client-go 0.26.15 (--all-servers)".to_owned());
            }
            end_to_end =
                end_to_end + beside_client_go(&program, old.as_deref(), &server, &cases::storage(&url, &at))?;
        }
        Err(error) => left_out.push(format!("`vvm run` beside {CLIENT_GO_VERSION} ({error})")),
    }
    Ok(Outcome { suites, end_to_end: Some(end_to_end), place, left_out })
}

fn beside_client_go(
    program: &Path,
    old: Option<&Path>,
    server: &Kubernetes,
    storage: &[(&'static str, &str); 2],
) -> Result<Cases, String> {
    let (program, kubeconfig) = (program.display().to_string(), server.kubeconfig().display().to_string());
    let old = old.map(|old| old.display().to_string());
    let theirs = [("VVM_TEST_CLIENT_GO", &*program), ("VVM_TEST_KUBECONFIG", &*kubeconfig)];
    let old = old.as_deref().map(|old| ("VVM_TEST_OLD_CLIENT_GO", old));
    let environment = &[&storage[..], &theirs, old.as_slice()].concat();
    let modules = if old.is_some() { &["present", "old"][..] } else { &["present"] };
    Suite { tests: &["beside_client_go"], only: modules, threads: 1, environment }.run()
}

/// The suites on versitygw, and servers to be refused. `all_servers` adds S3Mock, also refused, MinIO and Azurite.
fn on_object_stores(all_servers: bool) -> Result<Outcome, String> {
    let way_out = or_set("VVM_TEST_S3=s3://bucket/prefix?region=…");
    let in_objects =
        |modules: &[&str], places: &[(&'static str, &str)]| suites(modules, &[places, &CREDENTIALS].concat());
    let server = ObjectServer::start(Product::Versitygw).map_err(&way_out)?;
    let (mut places, mut left_out) = (vec![Product::Versitygw.to_string()], Vec::new());
    let torn = ObjectServer::start(Product::VersitygwBeside).map_err(&way_out)?;
    let mock = all_servers.then(|| ObjectServer::start(Product::S3Mock)).transpose().map_err(&way_out)?;
    let mut urls = vec![(S3, server.url("suites")), (RACY, torn.url("racy"))];
    match &mock {
        Some(mock) => urls.push((S3MOCK, mock.url("racy"))),
        None => left_out.push("MinIO, Azurite, and S3Mock, which must be refused (--all-servers)".to_owned()),
    }
    let urls: Vec<_> = urls.iter().map(|(name, url)| (*name, &**url)).collect();
    let mut suites = in_objects(&["objects"], &urls)?;
    drop((torn, mock));
    for other in [Product::MinIo, Product::Azurite].into_iter().filter(|_| all_servers) {
        let server = ObjectServer::start(other).map_err(&way_out)?;
        suites =
            suites + in_objects(&["objects::suites", "objects::handles"], &[(S3, &server.url("suites"))])?;
        places.push(other.to_string());
    }
    // Cases use TTLs from 2 s.
    let url = format!("{}&min_ttl=2s", server.url(cases::STORAGE));
    let end_to_end = Some(cases::on_server(&url, &server.address().to_string(), &CREDENTIALS)?);
    Ok(Outcome { suites, end_to_end, place: places.join("; "), left_out })
}

fn suites(only: &[&str], environment: &[(&str, &str)]) -> Result<Cases, String> {
    // Three nodes of Cassandra on two cores are busy with each other.
    let is_cluster = |(name, value): &(&str, &str)| *name == SCYLLA && value.contains(',');
    let threads = if environment.iter().any(is_cluster) { 2 } else { 4 };
    Suite { tests: &["on_servers"], only, threads, environment }.run()
}

/// The folder of the workers, below the root of the repository, in which cargo's commands run.
const SOURCES: &str = "examples/workers";

fn run_workers(
    database: &str,
    storage: &[(&'static str, &str); 2],
    left_out: &mut Vec<String>,
) -> Result<Cases, String> {
    let mut environment = storage.to_vec();
    environment.push(("VVM_TEST_WORKERS_DATABASE", database));
    let made = [("in_python", "VVM_TEST_WORKERS_PYTHON", python()), ("in_go", "VVM_TEST_WORKERS_GO", go())];
    let mut modules = vec!["in_rust"];
    for (module, variable, worker) in &made {
        match worker {
            Ok(path) => {
                modules.push(module);
                environment.push((variable, path));
            }
            Err(error) => left_out.push(format!("the worker {module} ({error})")),
        }
    }
    // With `guardian`, cargo builds `vvm`, too. It has no such modules.
    let tests = &["guardian", "stale_writes"];
    let suite = Suite { tests, only: &modules, threads: 3, environment: &environment };
    let cases = suite.run()?;
    // Two in Rust, and one in each other language.
    let expected = modules.len() + 1;
    match cases.count() {
        count if count == expected => Ok(cases),
        count => Err(format!("{count} cases of workers ran of {expected}")),
    }
}

/// Makes a virtual environment with what the Python worker requires, once. Returns its interpreter.
fn python() -> Result<String, String> {
    let requirements = Path::new(SOURCES).join("python/requirements.txt");
    let folder = place("python")?;
    let complete = folder.join("complete");
    let wanted = fs::read_to_string(&requirements).map_err(|error| error.to_string())?;
    let interpreter = folder.join("bin/python").display().to_string();
    if fs::read_to_string(&complete).is_ok_and(|made_for| made_for == wanted) {
        return Ok(interpreter);
    }
    let wanted_program = "Debian's packages python3 and python3-venv";
    let mut make = Command::new("python3");
    run(make.args(["-m", "venv", "--clear"]).arg(&folder), wanted_program).map_err(text)?;
    let mut install = Command::new(&interpreter);
    install.args(["-m", "pip", "install", "--quiet", "--requirement"]).arg(requirements);
    run(&mut install, wanted_program).map_err(text)?;
    fs::write(&complete, wanted).map_err(|error| error.to_string())?;
    Ok(interpreter)
}

fn go() -> Result<String, String> {
    let program = place("go")?.join("payroll");
    let mut build = Command::new("go");
    build.args(["build", "-buildvcs=false", "-o"]).arg(&program).arg(".");
    run(build.current_dir(Path::new(SOURCES).join("go")), "Go, 1.24 or later").map_err(text)?;
    Ok(program.display().to_string())
}

fn place(language: &str) -> Result<PathBuf, String> {
    let folder = target().join("servers/workers").join(language);
    std::path::absolute(folder).map_err(|error| error.to_string())
}
