//! Runs the drivers one after another, and prints a table.
//!
//! A requested driver that could not be run has failed.

mod s3;
mod workers;

use crate::{
    cases::{Cases, Suite},
    end_to_end::{self, Selection},
};
use clap::ValueEnum;
use servers::{
    cassandra::Plan,
    client_go,
    dynamodb::DynamoDbLocal,
    etcd::{Cluster, Program},
    kubernetes::Kubernetes,
    postgres::{Pooler, Postgres},
    target,
};
use std::{env, ops::Add, path::Path};

/// The drivers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Driver {
    /// In this process's memory.
    Mem,
    /// On a file in a temporary folder.
    Sqlite,
    /// In a temporary folder.
    Sled,
    /// On Apache Cassandra, or the cluster at `VVM_TEST_SCYLLA=host:port`.
    Scylla,
    /// On PostgreSQL 17 (`VVM_TEST_POSTGRES_PROGRAMS=folder` names the programs of another), or the database
    /// at `VVM_TEST_POSTGRES=postgres://user@host:port/database`.
    Postgres,
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
}

/// The tests on a cluster without passwords.
const OPEN: &[&str] = &["scylla", "scylla_clocks", "scylla_documents"];

/// The address of a cluster that runs already.
const SCYLLA: &str = "VVM_TEST_SCYLLA";

/// The URL of a PostgreSQL that runs already, with a login that may create databases.
const POSTGRES: &str = "VVM_TEST_POSTGRES";

/// The members of an etcd that runs already.
const ETCD: &str = "VVM_TEST_ETCD";

/// The URL of a namespace of a Kubernetes that runs already, with its kubeconfig.
const KUBERNETES: &str = "VVM_TEST_KUBERNETES";

/// The endpoint of a DynamoDB that runs already, such as AWS's own. Credentials come from the environment.
const DYNAMODB: &str = "VVM_TEST_DYNAMODB";

/// DynamoDB Local accepts any, and keeps separate tables for each access key.
const LOCAL_CREDENTIALS: [(&str, &str); 2] =
    [("AWS_ACCESS_KEY_ID", "local"), ("AWS_SECRET_ACCESS_KEY", "local")];

/// Runs the drivers in `only`, or all. Returns whether every case of every one passed.
/// `all_servers` adds those that take long to build or to fetch.
pub(crate) fn run(only: &[Driver], cluster: &Plan, selection: Selection<'_>, all_servers: bool) -> bool {
    let asked_for = if only.is_empty() { Driver::value_variants() } else { only };
    let mut table = Vec::new();
    for driver in asked_for {
        println!("==> {}", driver.name());
        let outcome = driver.run(cluster, selection, all_servers);
        if let Err(why) = &outcome {
            eprintln!("{}: {why}", driver.name());
        }
        table.push((driver.name(), outcome));
    }
    println!();
    for (name, outcome) in &table {
        match outcome {
            Ok(Outcome { suites, end_to_end, place }) => {
                match suites {
                    Some(suites) => println!("{name:8} {suites}, on {place}"),
                    None => println!(
                        "{name:8} suites of the driver: NOT RUN, since only end-to-end cases were requested"
                    ),
                }
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
    /// The suites of the driver itself; `None` if only end-to-end cases were requested.
    suites: Option<Cases>,
    /// The end-to-end cases; `None` if processes can't share the storage, or the server is not started by
    /// this program.
    end_to_end: Option<Cases>,
    place: String,
}

impl Outcome {
    fn all_passed(&self) -> bool {
        let mut ran = self.suites.iter().chain(&self.end_to_end).peekable();
        ran.peek().is_some() && ran.all(|cases| cases.all_passed())
    }

    fn of_suites(suites: Cases, place: String) -> Self {
        Self { suites: Some(suites), end_to_end: None, place }
    }
}

impl Driver {
    fn name(self) -> &'static str {
        match self {
            Self::Mem => "mem",
            Self::Sqlite => "sqlite",
            Self::Sled => "sled",
            Self::Scylla => "scylla",
            Self::Postgres => "postgres",
            Self::Etcd => "etcd",
            Self::Kubernetes => "kubernetes",
            Self::Dynamodb => "dynamodb",
            Self::S3 => "s3",
        }
    }

    /// Runs its cases. Returns the results, or why they could not be run.
    fn run(self, cluster: &Plan, selection: Selection<'_>, all_servers: bool) -> Result<Outcome, String> {
        match self {
            Self::Mem | Self::Sqlite | Self::Sled => {
                let suite = Suite { tests: &["suites"], only: &[self.name()], threads: 4, environment: &[] };
                let suites = selection.or_all(|| suite.run())?;
                // Two processes can't share the other two.
                let end_to_end = (self == Self::Sqlite).then(|| selection.on_files()).transpose()?;
                Ok(Outcome { suites, end_to_end, place: "this machine".into() })
            }
            Self::Scylla => match env::var(SCYLLA) {
                Ok(address) => {
                    let cases = scylla(OPEN, &[(SCYLLA, &address)])?;
                    let place =
                        format!("{address}; not run: passwords and TLS, on a cluster of our own alone");
                    Ok(Outcome::of_suites(cases, place))
                }
                Err(_) => on_cassandra(cluster, selection),
            },
            Self::Postgres => match env::var(POSTGRES) {
                Ok(url) => {
                    let cases = postgres(&["suites", "handles", "hints"], &[(POSTGRES, &url)])?;
                    Ok(Outcome::of_suites(
                        cases,
                        format!("{url}; not run: TLS and fail-over, on servers of our own alone"),
                    ))
                }
                Err(_) => on_postgres(selection),
            },
            Self::Etcd => match env::var(ETCD) {
                Ok(members) => {
                    let cases = etcd(&["suites", "handles"], &[(ETCD, &members)])?;
                    let place = format!("{members}; not run: TLS and failures, on clusters of our own alone");
                    Ok(Outcome::of_suites(cases, place))
                }
                Err(_) => on_etcd(selection),
            },
            Self::Kubernetes => match env::var(KUBERNETES) {
                Ok(url) => {
                    let cases = kubernetes(&["suites", "leases", "hints"], &[(KUBERNETES, &url)])?;
                    let place =
                        format!("{url}; not run: credentials and roles, on a server of our own alone");
                    Ok(Outcome::of_suites(cases, place))
                }
                Err(_) => on_kubernetes(selection),
            },
            Self::S3 => s3::run(selection, all_servers),
            Self::Dynamodb => {
                let on = |environment: &[(&str, &str)]| {
                    Suite { tests: &["dynamodb"], only: &[], threads: 4, environment }.run()
                };
                match env::var(DYNAMODB) {
                    Ok(endpoint) => Ok(Outcome::of_suites(on(&[(DYNAMODB, &endpoint)])?, endpoint)),
                    Err(_) => {
                        let way_out = |error| {
                            format!(
                                "{error}\nOr set {DYNAMODB}=http://host:port to a server that runs already."
                            )
                        };
                        let local = DynamoDbLocal::start(&target()).map_err(way_out)?;
                        let [id, secret] = LOCAL_CREDENTIALS;
                        let suites = selection.or_all(|| on(&[(DYNAMODB, &local.endpoint()), id, secret]))?;
                        let url = format!(
                            "dynamodb://eu-west-1/{}?endpoint={}",
                            end_to_end::STORAGE,
                            local.endpoint()
                        );
                        let at = local.address().to_string();
                        let processes = selection.on_server(&url, &at, &LOCAL_CREDENTIALS)?;
                        let helpers =
                            selection.or_all(|| end_to_end::credentials(&url, &at, &LOCAL_CREDENTIALS))?;
                        let end_to_end = Some(helpers.map_or(processes, |helpers| processes + helpers));
                        Ok(Outcome { suites, end_to_end, place: "DynamoDB Local 2.6.1".into() })
                    }
                }
            }
        }
    }
}

/// Runs all cases for a cluster: on an open one, on a minority of its nodes, and on one that requires a
/// certificate and a password.
fn on_cassandra(cluster: &Plan, selection: Selection<'_>) -> Result<Outcome, String> {
    let way_out = |error| format!("{error}\nOr set {SCYLLA}=host:port to a cluster that runs already.");
    let mut open = cluster.start(&target()).map_err(way_out)?;
    if !cluster.ahead().is_zero() {
        // The other suites need answers in time, of which a node with such a clock loses some.
        let ahead = cluster.ahead().as_secs().to_string();
        let environment = [(SCYLLA, &*open.contact_points()), ("VVM_TEST_SCYLLA_AHEAD", &*ahead)];
        let cases = scylla(&["scylla_clocks"], &environment)?;
        let place = format!("Apache Cassandra 5.0.5, {cluster}: fail-over alone");
        return Ok(Outcome::of_suites(cases, place));
    }
    let cases = selection.or_all(|| scylla(OPEN, &[(SCYLLA, &open.contact_points())]))?;
    let end_to_end = match open.nodes() {
        // On one node only: three on two cores delay each other.
        [_] => {
            let url = open.url(end_to_end::STORAGE);
            Some(selection.on_server(&url, &open.contact_points(), &[])?)
        }
        _ => None,
    };
    let place = format!("Apache Cassandra 5.0.5, {cluster}");
    let Some(cases) = cases else { return Ok(Outcome { suites: None, end_to_end, place }) };
    let cases = match open.nodes() {
        [first, others @ ..] if others.len() > 1 => {
            for node in others {
                node.kill().map_err(|cause| format!("a node can't be killed: {cause}"))?;
            }
            let first = first.client_address().to_string();
            cases + scylla(&["scylla_minority"], &[(SCYLLA, &first)])?
        }
        _ => cases,
    };
    drop(open);
    let locked = Plan::of(1).locked().start(&target()).map_err(way_out)?;
    let locks = locked.locks().unwrap_or(Path::new("")).display().to_string();
    let environment =
        [("VVM_TEST_SCYLLA_LOCKED", &*locked.contact_points()), ("VVM_TEST_SCYLLA_LOCKS", &*locks)];
    let cases = cases + scylla(&["scylla_locked"], &environment)?;
    Ok(Outcome { suites: Some(cases), end_to_end, place })
}

/// The suites and `vvm` on a primary, the suites once more behind a pooler, and TLS and fail-over on servers
/// that the tests start.
fn on_postgres(selection: Selection<'_>) -> Result<Outcome, String> {
    let way_out = |error| format!("{error}\nOr point {POSTGRES}=postgres://user@host:port/database at one.");
    let databases = [end_to_end::STORAGE, "pooled", "workers"];
    let server = Postgres::start(&target(), &databases, &[]).map_err(way_out)?;
    let (variable, programs) = server.programs();
    let direct = [(POSTGRES, &*server.url("postgres")), (variable, &*programs)];
    let suites =
        selection.or_all(|| postgres(&["suites", "handles", "hints", "encrypted", "failover"], &direct))?;
    let mut place = server.version().to_owned();
    let suites = match (suites, Pooler::start(&server).map_err(way_out)?) {
        (Some(direct), Some(pooler)) => {
            place += &format!(", and {}, transaction pooling", pooler.version());
            Some(direct + postgres(&["suites", "pooled"], &[(POSTGRES, &pooler.url("pooled"))])?)
        }
        (direct, _) => {
            place += "; not run: behind a pooler (install Debian's package pgbouncer)";
            direct
        }
    };
    // Cases use TTLs of all lengths.
    let url = format!("{}?max_ttl=86400s", server.url(end_to_end::STORAGE));
    let at = server.address().to_string();
    let processes = selection.on_server(&url, &at, &[])?;
    let database = format!("{}?sslmode=disable", server.url("workers"));
    let workers = selection.or_all(|| workers::run(&database, &end_to_end::storage(&url, &at)))?;
    let end_to_end = match workers {
        Some((workers, left_out)) => {
            place.extend(left_out.iter().map(|what| format!("; not run: {what}")));
            processes + workers
        }
        None => processes,
    };
    Ok(Outcome { suites, end_to_end: Some(end_to_end), place })
}

/// The suites on one member of the installed etcd and on three of one that is built, as far as these are to
/// be had, and `vvm` on one member.
fn on_etcd(selection: Selection<'_>) -> Result<Outcome, String> {
    let installed = Program::installed().map_err(|error| error.to_string());
    let built = Program::built().map_err(|error| error.to_string());
    let (mut programs, mut places) = (Vec::new(), Vec::new());
    for (members, program) in [(1, installed), (3, built)] {
        match program {
            Ok(program) => programs.push((members, program)),
            Err(error) => places.push(format!("not run: {members} members of etcd ({error})")),
        }
    }
    let Some((_, newest)) = programs.last() else {
        return Err(format!(
            "{}\nOr set {ETCD}=host:port,… to a cluster that runs already.",
            places.join("\n")
        ));
    };
    let start = |program, members| Cluster::start(program, members).map_err(|error| error.to_string());
    let mut suites: Option<Cases> = None;
    for (members, program) in &programs {
        let path = program.path().display().to_string();
        let cases = selection.or_all(|| {
            let cluster = start(program, *members)?;
            etcd(&[], &[(ETCD, &cluster.addresses()), (Program::NAMED, &path)])
        })?;
        suites = suites.into_iter().chain(cases).reduce(Cases::add);
        places.push(format!("{}, members: {members}", program.version()));
    }
    let single = start(newest, 1)?;
    let url = format!("etcd://{}/{}", single.addresses(), end_to_end::STORAGE);
    let end_to_end = Some(selection.on_server(&url, &single.addresses(), &[])?);
    Ok(Outcome { suites, end_to_end, place: places.join("; ") })
}

fn etcd(only: &[&str], environment: &[(&str, &str)]) -> Result<Cases, String> {
    Suite { tests: &["etcd"], only, threads: 4, environment }.run()
}

/// The suites and `vvm` on an API server with roles.
fn on_kubernetes(selection: Selection<'_>) -> Result<Outcome, String> {
    let way_out =
        |error| format!("{error}\nOr point {KUBERNETES}=k8s://namespace?kubeconfig=PATH at one that runs.");
    let server = Kubernetes::start().map_err(way_out)?;
    let suites = selection.or_all(|| kubernetes(&[], &[(KUBERNETES, &server.url("default"))]))?;
    let at = server.address().to_string();
    let url = format!("{}&server=https://{at}", server.url("default"));
    let processes = selection.on_server(&url, &at, &[])?;
    let mut place = server.version();
    let beside = match selection.or_all(|| Ok::<_, String>(client_go::program()))? {
        Some(Ok(program)) => {
            place += &format!("; `vvm run` beside {}", client_go::VERSION);
            Some(beside_client_go(&program, &server, &end_to_end::storage(&url, &at))?)
        }
        Some(Err(error)) => {
            place += &format!("; not run: `vvm run` beside {} ({error})", client_go::VERSION);
            None
        }
        None => None,
    };
    let end_to_end = Some(beside.map_or(processes, |beside| processes + beside));
    Ok(Outcome { suites, end_to_end, place })
}

/// Runs `vvm` and client-go's leader election as candidates for one Lease.
fn beside_client_go(
    program: &Path,
    server: &Kubernetes,
    storage: &[(&'static str, &str); 2],
) -> Result<Cases, String> {
    let (program, kubeconfig) = (program.display().to_string(), server.kubeconfig().display().to_string());
    let theirs = [("VVM_TEST_CLIENT_GO", &*program), ("VVM_TEST_KUBECONFIG", &*kubeconfig)];
    let environment = &[&storage[..], &theirs].concat();
    Suite { tests: &["beside_client_go"], only: &[], threads: 1, environment }.run()
}

fn kubernetes(only: &[&str], environment: &[(&str, &str)]) -> Result<Cases, String> {
    Suite { tests: &["kubernetes"], only, threads: 4, environment }.run()
}

fn postgres(only: &[&str], environment: &[(&str, &str)]) -> Result<Cases, String> {
    Suite { tests: &["postgres"], only, threads: 4, environment }.run()
}

fn scylla(tests: &'static [&'static str], environment: &[(&str, &str)]) -> Result<Cases, String> {
    // Three nodes on two cores are busy with each other.
    let is_cluster = environment.iter().any(|(_, value)| value.contains(','));
    let threads = if is_cluster { 2 } else { 4 };
    Suite { tests, only: &[], threads, environment }.run()
}
