//! `cargo xtask test-drivers`: runs the suites of every driver on real servers, one after another, and prints a table.
//!
//! A requested driver that could not be run has failed.
#![forbid(unsafe_code)]

mod cases;

use cases::{Cases, Suite};
use clap::{Parser, ValueEnum};
use servers::{
    built::{CLIENT_GO, CLIENT_GO_VERSION, OLD_CLIENT_GO},
    cassandra::Plan,
    dynamodb::DynamoDbLocal,
    etcd::{Cluster, Program},
    kubernetes::Kubernetes,
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
    time::Duration,
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
    /// How many seconds the last node's clock is ahead of the others. Then only the suite of elections runs.
    /// Needs Debian's package `faketime`.
    #[arg(long, default_value = "0")]
    ahead: u32,
    /// Also on servers that take long to build or to fetch.
    #[arg(long)]
    all_servers: bool,
}

fn main() -> ExitCode {
    let CommandLine { only, nodes, ahead, all_servers } = CommandLine::parse();
    let cluster = Plan { nodes, ahead: Duration::from_secs(ahead.into()), is_locked: false };
    let all_passed = run_drivers(&only, &cluster, all_servers);
    if all_passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
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
    /// On kube-apiserver, or the namespace at `VVM_TEST_KUBERNETES=k8s://namespace?kubeconfig=…`. Needs
    /// `kubectl`.
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

/// DynamoDB Local accepts any, and keeps separate tables for each access key.
const LOCAL_CREDENTIALS: [(&str, &str); 2] =
    [("AWS_ACCESS_KEY_ID", "local"), ("AWS_SECRET_ACCESS_KEY", "local")];

/// Runs the drivers in `only`, or all. Returns whether every case of every one passed. `all_servers` adds those that
/// take long to build or to fetch.
fn run_drivers(only: &[Driver], cluster: &Plan, all_servers: bool) -> bool {
    let asked_for = if only.is_empty() { Driver::value_variants() } else { only };
    let mut table = Vec::new();
    for driver in asked_for {
        println!("==> {}", driver.name());
        let outcome = driver.run(cluster, all_servers);
        if let Err(why) = &outcome {
            eprintln!("{}: {why}", driver.name());
        }
        table.push((driver.name(), outcome));
    }
    println!();
    for (name, outcome) in &table {
        match outcome {
            Ok(Outcome { suites, end_to_end, place }) => {
                println!("{name:8} {suites}, on {place}");
                match end_to_end {
                    Some(end_to_end) => println!("{name:8} {end_to_end}, of `vvm run` end to end"),
                    None => println!("{name:8} `vvm run` end to end: NOT RUN here"),
                }
            }
            Err(_) => println!("{name:8} NOT RUN: see above"),
        }
    }
    table.iter().all(|(_, outcome)| outcome.as_ref().is_ok_and(Outcome::all_passed))
}

/// The results of a driver.
struct Outcome {
    /// The suites of the driver itself.
    suites: Cases,
    /// The end-to-end cases; `None` if the server is not started by this program, or has no time for them.
    end_to_end: Option<Cases>,
    place: String,
}

impl Outcome {
    fn all_passed(&self) -> bool {
        self.suites.all_passed() && self.end_to_end.as_ref().is_none_or(Cases::all_passed)
    }

    fn of_suites(suites: Cases, place: String) -> Self {
        Self { suites, end_to_end: None, place }
    }
}

impl Driver {
    fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// Returns the variable that names a server that runs already, the modules of tests for it, and what is not run there.
    /// `None` if there is no server.
    fn named(self) -> Option<(&'static str, &'static [&'static str], &'static str)> {
        Some(match self {
            Self::Sled => return None,
            Self::Scylla => (SCYLLA, &["scylla"], "passwords and TLS, on a cluster of our own alone"),
            Self::Postgres => {
                let modules = &["postgres::suites", "postgres::handles", "postgres::hints"];
                (POSTGRES, modules, "TLS and fail-over, on servers of our own alone")
            }
            Self::Mysql => (MYSQL, &["mysql::suites"], "TLS and fail-over, on servers of our own alone"),
            Self::Etcd => {
                (ETCD, &["etcd::suites", "etcd::handles"], "TLS and failures, on clusters of our own alone")
            }
            Self::Kubernetes => {
                let modules = &["kubernetes::suites", "kubernetes::leases", "kubernetes::hints"];
                (KUBERNETES, modules, "credentials and roles, on a server of our own alone")
            }
            Self::S3 => {
                let not_run = "servers that lose writes, on servers of our own alone";
                (S3, &["objects::suites", "objects::handles"], not_run)
            }
            Self::Dynamodb => (DYNAMODB, &["dynamodb"], ""),
        })
    }

    /// Runs its cases. Returns the results, or why they could not be run.
    fn run(self, cluster: &Plan, all_servers: bool) -> Result<Outcome, String> {
        if let Some((variable, modules, not_run)) = self.named()
            && let Ok(place) = env::var(variable)
        {
            let cases = suites(modules, &[(variable, &place)])?;
            let left_out = if not_run.is_empty() { String::new() } else { format!("; not run: {not_run}") };
            return Ok(Outcome::of_suites(cases, place + &left_out));
        }
        match self {
            Self::Scylla => on_cassandra(cluster),
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
    let [id, secret] = LOCAL_CREDENTIALS;
    let suites = suites(&["dynamodb"], &[(DYNAMODB, &endpoint), id, secret])?;
    let url = format!("dynamodb://eu-west-1/{}?endpoint={endpoint}", cases::STORAGE);
    let processes = cases::on_server(&url, &at, &LOCAL_CREDENTIALS)?;
    let end_to_end = Some(processes + cases::credentials(&url, &at, &LOCAL_CREDENTIALS)?);
    Ok(Outcome { suites, end_to_end, place: "DynamoDB Local 2.6.1".into() })
}

/// Runs all cases for a cluster: on an open one, and on one that requires a certificate and a password.
fn on_cassandra(cluster: &Plan) -> Result<Outcome, String> {
    let way_out = or_set("VVM_TEST_SCYLLA=host:port");
    let mut open = cluster.start(&target()).map_err(&way_out)?;
    if !cluster.ahead.is_zero() {
        // Only these would be early by a clock of a server.
        let cases = suites(&["scylla::suites::elections"], &[(SCYLLA, &open.contact_points())])?;
        let place = format!("Apache Cassandra 5.0.5, {cluster}: elections alone");
        return Ok(Outcome::of_suites(cases, place));
    }
    let cases = suites(&["scylla"], &[(SCYLLA, &open.contact_points())])?;
    let end_to_end = match open.nodes() {
        // On one node only: three on two cores delay each other.
        [_] => {
            let url = open.url(cases::STORAGE);
            Some(cases::on_server(&url, &open.contact_points(), &[])?)
        }
        _ => None,
    };
    let place = format!("Apache Cassandra 5.0.5, {cluster}");
    drop(open);
    let locked =
        Plan { nodes: 1, ahead: Duration::ZERO, is_locked: true }.start(&target()).map_err(way_out)?;
    let locks = locked.locks().unwrap_or(Path::new("")).display().to_string();
    let environment =
        [("VVM_TEST_SCYLLA_LOCKED", &*locked.contact_points()), ("VVM_TEST_SCYLLA_LOCKS", &*locks)];
    let cases = cases + suites(&["scylla_locked"], &environment)?;
    Ok(Outcome { suites: cases, end_to_end, place })
}

/// The suites and `vvm` on a primary, the suites once more behind a pooler, and TLS and fail-over on servers
/// that the tests start.
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
    let mut place = server.version().to_owned();
    match Pooler::start(&server).map_err(way_out)? {
        Some(pooler) => {
            place += &format!(", and {}, transaction pooling", pooler.version());
            let modules = ["postgres::suites", "postgres::pooled"];
            cases = cases + suites(&modules, &[(POSTGRES, &pooler.url("pooled"))])?;
        }
        None => place += "; not run: behind a pooler (install Debian's package pgbouncer)",
    }
    // Cases use TTLs of all lengths.
    let url = format!("{}?max_ttl=86400s", server.url(cases::STORAGE));
    let at = server.address().to_string();
    let processes = cases::on_server(&url, &at, &[])?;
    let database = format!("{}?sslmode=disable", server.url("workers"));
    let (workers, left_out) = run_workers(&database, &cases::storage(&url, &at))?;
    place.extend(left_out.iter().map(|what| format!("; not run: {what}")));
    Ok(Outcome { suites: cases, end_to_end: Some(processes + workers), place })
}

/// The suites and `vvm` on a server, and what needs servers that the tests start.
fn on_mysql() -> Result<Outcome, String> {
    let way_out = or_set("VVM_TEST_MYSQL=mysql://user@host:port/database");
    let server = MariaDb::start(&target(), &["suites", cases::STORAGE], &[]).map_err(way_out)?;
    let (variable, programs) = server.programs();
    let environment = [(MYSQL, &*server.url("suites")), (variable, &*programs)];
    let suites = suites(&["mysql"], &environment)?;
    // Cases use TTLs of all lengths.
    // Cases set a password, which this user has not.
    let url = format!("{}?max_ttl=86400s", server.url(cases::STORAGE).replace("root@", "root:@"));
    let end_to_end = Some(cases::on_server(&url, &server.address().to_string(), &[])?);
    Ok(Outcome { suites, end_to_end, place: server.version().to_owned() })
}

/// The suites on one member of the installed etcd and on three of one that is built, as far as these are to
/// be had, and `vvm` on one member.
fn on_etcd() -> Result<Outcome, String> {
    let installed = Program::installed().map_err(|error| error.to_string());
    let built = Program::built().map_err(|error| error.to_string());
    let (mut programs, mut places) = (Vec::new(), Vec::new());
    for (members, program) in [(1, installed), (3, built)] {
        match program {
            Ok(program) => programs.push((members, program)),
            Err(error) => places.push(format!("not run: {members} members of etcd ({error})")),
        }
    }
    let Some((newest, others)) = programs.split_last() else {
        return Err(or_set("VVM_TEST_ETCD=host:port,…")(places.join("\n")));
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
    Ok(Outcome { suites, end_to_end, place: places.join("; ") })
}

/// The suites and `vvm` on an API server with roles. `all_servers` adds an old client-go.
fn on_kubernetes(all_servers: bool) -> Result<Outcome, String> {
    let way_out = or_set("VVM_TEST_KUBERNETES=k8s://namespace?kubeconfig=PATH");
    let server = Kubernetes::start().map_err(way_out)?;
    let suites = suites(&["kubernetes"], &[(KUBERNETES, &server.url("default"))])?;
    let at = server.address().to_string();
    let url = format!("{}&server=https://{at}", server.url("default"));
    let processes = cases::on_server(&url, &at, &[])?;
    let mut place = server.version();
    let beside = match CLIENT_GO.build() {
        Ok(program) => {
            place += &format!("; `vvm run` beside {}", CLIENT_GO_VERSION);
            let old = all_servers.then(|| OLD_CLIENT_GO.build()).transpose().map_err(text)?;
            place += if old.is_some() { " and 0.26.15" } else { "; not run: 0.26.15 (--all-servers)" };
            Some(beside_client_go(&program, old.as_deref(), &server, &cases::storage(&url, &at))?)
        }
        Err(error) => {
            place += &format!("; not run: `vvm run` beside {} ({error})", CLIENT_GO_VERSION);
            None
        }
    };
    let end_to_end = Some(beside.map_or(processes, |beside| processes + beside));
    Ok(Outcome { suites, end_to_end, place })
}

/// Runs `vvm` and client-go's leader election as candidates for one Lease.
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

/// The suites on versitygw, and servers that must be refused. `all_servers` adds S3Mock, which must be refused, too,
/// MinIO and Azurite.
fn on_object_stores(all_servers: bool) -> Result<Outcome, String> {
    let way_out = or_set("VVM_TEST_S3=s3://bucket/prefix?region=…");
    let in_objects =
        |modules: &[&str], places: &[(&'static str, &str)]| suites(modules, &[places, &CREDENTIALS].concat());
    let server = ObjectServer::start(Product::Versitygw).map_err(&way_out)?;
    let mut places = vec![Product::Versitygw.to_string()];
    let torn = ObjectServer::start(Product::VersitygwBeside).map_err(&way_out)?;
    let mock = all_servers.then(|| ObjectServer::start(Product::S3Mock)).transpose().map_err(&way_out)?;
    let mut urls = vec![(S3, server.url("suites")), (RACY, torn.url("racy"))];
    match &mock {
        Some(mock) => urls.push((S3MOCK, mock.url("racy"))),
        None => {
            places.push("not run: MinIO, Azurite, and S3Mock, which must be refused (--all-servers)".into());
        }
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
    Ok(Outcome { suites, end_to_end, place: places.join("; ") })
}

/// Runs these modules of the tests on servers.
fn suites(only: &[&str], environment: &[(&str, &str)]) -> Result<Cases, String> {
    // Three nodes of Cassandra on two cores are busy with each other.
    let is_cluster = |(name, value): &(&str, &str)| *name == SCYLLA && value.contains(',');
    let threads = if environment.iter().any(is_cluster) { 2 } else { 4 };
    Suite { tests: &["on_servers"], only, threads, environment }.run()
}

/// The folder of the workers, below the root of the repository, in which cargo's commands run.
const SOURCES: &str = "examples/workers";

/// Runs them on a database, under `vvm` on a storage. Returns the cases, and which workers were left out and
/// why.
fn run_workers(database: &str, storage: &[(&'static str, &str); 2]) -> Result<(Cases, Vec<String>), String> {
    let mut environment = storage.to_vec();
    environment.push(("VVM_TEST_WORKERS_DATABASE", database));
    let made = [("in_python", "VVM_TEST_WORKERS_PYTHON", python()), ("in_go", "VVM_TEST_WORKERS_GO", go())];
    let (mut modules, mut left_out) = (vec!["in_rust"], Vec::new());
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
        count if count == expected => Ok((cases, left_out)),
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

/// Builds the Go worker. Go keeps what it has built.
fn go() -> Result<String, String> {
    let program = place("go")?.join("payroll");
    let mut build = Command::new("go");
    build.args(["build", "-buildvcs=false", "-o"]).arg(&program).arg(".");
    run(build.current_dir(Path::new(SOURCES).join("go")), "Go, 1.24 or later").map_err(text)?;
    Ok(program.display().to_string())
}

/// Returns a folder below cargo's target folder, with an absolute path.
fn place(language: &str) -> Result<PathBuf, String> {
    let folder = target().join("servers/workers").join(language);
    std::path::absolute(folder).map_err(|error| error.to_string())
}
