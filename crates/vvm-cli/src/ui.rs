//! `vvm ui`: a page of all names in a storage, for browsers. It reads alone, and only while a browser looks. The server
//! answers from [`Names`], and so waits for no storage. One loop reads: one [`Step`] at a time, at most one request a
//! second, however many browsers and names there are.

mod names;

use crate::{
    args::{parse_address, parse_name, parse_storage},
    exit,
    inspection::InspectionError,
    runtime::{self, stop_of_process_1},
};
use clap::Args;
use ielections::{ReadError, TtlStorage as _};
use names::{Answer, Names, Step};
use std::{
    cell::RefCell,
    io::{self, Write as _},
    net::SocketAddr,
    process::ExitCode,
    sync::Arc,
    time::Duration,
};
use tokio::sync::Notify;
use vvm_clock::{Clock, SystemClock, SystemWallClock, WallClock as _};
use vvm_host::operate::{HttpAnswer, HttpAnswers, HttpServer, InspectError, Purpose, StorageInspector, read};
use vvm_storage::{ElectionsTtlStorage, StorageUrl};

/// The time between two requests. With what a driver asks for by itself, such as how many connections a server has left
/// every 10 s, they are fewer than one a second.
const PACE: Duration = Duration::from_millis(1250);

const REOPEN_PAUSE: Duration = Duration::from_secs(5);

/// More than as many browsers open at once that poll at the same moment, each with its pictures.
const CONNECTIONS: usize = 256;

const PAGE: &str = include_str!("ui/page.html");

pub(crate) fn main(args: &UiArgs) -> ExitCode {
    let ended = runtime::run(serve(args)).map_err(InspectionError::from).flatten();
    ended.unwrap_or_else(|refusal| refusal.conclude()).into()
}

async fn serve(args: &UiArgs) -> Result<u8, InspectionError> {
    let mut server = HttpServer::bind(args.http)
        .map_err(|refusal| InspectionError::new(exit::SYSTEM, format!("--http: {refusal}")))?;
    server.most_connections = CONNECTIONS;
    let clock = Arc::new(SystemClock::start()?) as Arc<dyn Clock>;
    let storage = StorageUrl::from(&*args.storage);
    let names = Names::new(storage.to_string(), &args.names, clock.now(), SystemWallClock.since_unix_epoch());
    let view = View { names: RefCell::new(names), asked: Notify::new(), clock: Arc::clone(&clock) };
    let mut out = io::stdout().lock();
    writeln!(out, "http://{}/ shows the names in {storage}; Ctrl-C ends it", server.address)
        .and_then(|()| out.flush())
        .map_err(InspectError::Output)?;
    drop(out);
    tokio::select! {
        biased;
        never = server.serve(&view, &clock) => match never {},
        refusal = view.keep_open(args) => Err(refusal),
        status = stop_of_process_1() => Ok(status?),
    }
}

/// What the server answers from. No borrow lasts over a wait.
struct View {
    names: RefCell<Names>,
    asked: Notify,
    clock: Arc<dyn Clock>,
}

impl HttpAnswers for View {
    fn to(&self, path: &str, query: &str) -> HttpAnswer {
        let number = |name: &str| {
            let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs.into_iter().find(|(key, _)| *key == name).and_then(|(_, value)| value.parse().ok())
        };
        let (mut names, now) = (self.names.borrow_mut(), self.clock.now());
        match path {
            "/" => HttpAnswer::page(PAGE),
            "/healthz" => HttpAnswer::body("text/plain; charset=utf-8", "alive\n".into()),
            "/names" => {
                names.asked(now);
                self.asked.notify_one();
                HttpAnswer::body("application/json", names.json(number("after").unwrap_or(0), now))
            }
            "/timeline.svg" => {
                let wall = SystemWallClock.since_unix_epoch();
                let timeline = number("id").and_then(|id| names.timeline(id, now, wall));
                timeline.map_or_else(
                    || HttpAnswer::not_found("there is no name with this id"),
                    |timeline| HttpAnswer::body("image/svg+xml", timeline.to_svg()),
                )
            }
            _ => HttpAnswer::not_found("there is / /names /timeline.svg?id=N /healthz"),
        }
    }
}

impl View {
    /// Opens the storage, reads it, and opens it again if it has to. Returns what makes no sense to repeat.
    async fn keep_open(&self, args: &UiArgs) -> InspectionError {
        let mut is_first = true;
        loop {
            if !is_first {
                self.clock.sleep(REOPEN_PAUSE).await;
                self.until_asked().await;
            }
            let failure = match StorageInspector::open(&args.storage, "", Purpose::Read).await {
                Ok(StorageInspector { storage, .. }) => {
                    let failure = self.read_opened(&storage).await;
                    storage.close().await;
                    failure
                }
                Err(refusal) => refusal.into(),
            };
            let may_pass = match &failure {
                InspectionError::Inspect(InspectError::Open(cause)) => cause.is_passing() || !is_first,
                InspectionError::Inspect(InspectError::Read(_)) => true,
                _ => !is_first,
            };
            if !may_pass {
                return failure;
            }
            self.names.borrow_mut().failed(failure.to_string());
            is_first = false;
        }
    }

    async fn read_opened(&self, storage: &ElectionsTtlStorage) -> InspectionError {
        let location = storage.opened().map(|opened| opened.location);
        self.names.borrow_mut().opened(location, storage.limits().scan_batch);
        match self.keep_reading(async |step| perform(storage, step).await).await {
            Ended::Failed(failure) => failure.into(),
            Ended::Unlisted => InspectionError::new(
                exit::MISUSE,
                "--storage: vvm can't list the names of this kind of storage: name them with --name NAME, \
                 once for each",
            ),
        }
    }

    /// Carries out steps while browsers ask, at most one request a second. Ends if this open storage is of no more use.
    async fn keep_reading(&self, mut perform: impl AsyncFnMut(&Step) -> Result<Answer, ReadError>) -> Ended {
        let mut due = self.clock.now();
        loop {
            self.clock.sleep_until(due).await;
            let step = self.names.borrow_mut().next_step(self.clock.now());
            let began = self.clock.now();
            due = began.after(PACE * step.requests());
            match perform(&step).await {
                Ok(Answer::Listed(None)) => return Ended::Unlisted,
                Ok(answer) => self.names.borrow_mut().add(step, answer, self.clock.now()),
                // A login may lack the right to it alone. Of any other cause, the next step tells.
                Err(failure @ (ReadError::Unavailable(_) | ReadError::Fatal(_)))
                    if matches!(step, Step::History(_)) =>
                {
                    let answer = Answer::Read(Err(failure.to_string()));
                    self.names.borrow_mut().add(step, answer, self.clock.now());
                }
                Err(failure @ ReadError::Unavailable(_)) => {
                    self.names.borrow_mut().failed(failure.to_string());
                }
                Err(failure) => return Ended::Failed(failure),
            }
            self.until_asked().await;
        }
    }

    async fn until_asked(&self) {
        while !self.names.borrow().is_asked(self.clock.now()) {
            self.asked.notified().await;
        }
    }
}

enum Ended {
    Failed(ReadError),
    Unlisted,
}

async fn perform(storage: &ElectionsTtlStorage, step: &Step) -> Result<Answer, ReadError> {
    Ok(match step {
        Step::List => Answer::Listed(storage.names().await?),
        Step::Count(cluster) => Answer::Counted(storage.slot_count(cluster).await?),
        Step::Scan(clusters) => {
            let clusters = clusters.iter().map(|(cluster, keys)| (cluster, keys.clone())).collect::<Vec<_>>();
            Answer::Scanned(storage.scan_clusters_with_requests(&clusters).await?)
        }
        Step::Ages(keys) => Answer::Aged(storage.shown_ages(keys).await?),
        Step::History(key) => Answer::Read(Ok(read(storage, key).await?)),
    })
}

/// Show all names of a storage on a page for browsers: who leads each, and who led in the last day.
///
/// It only reads, and only while a browser looks: at most one request a second, however many browsers and names there are.
/// No election needs it. The page shows names, holders and errors to every client that reaches the address.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Example:
  vvm ui --storage sqlite:/var/lib/payroll/leader.db

Its first line has the address. Ctrl-C ends it. sqlite:, postgres:, mysql:, etcd:, k8s: and buckets list their names;
for other storages give each with --name. At most 1000 names, and 64 slots of each, are shown.

Exit status: 64 wrong arguments, or a storage that can't list names; 66 no such
storage; 69 the storage refused; 71 the system refused, such as the address")]
pub(crate) struct UiArgs {
    /// The storage of the candidates, as given to vvm run
    #[arg(long, value_name = "URL", value_parser = parse_storage)]
    pub(crate) storage: String,
    /// Serve HTTP at this address; port 0 is any free port
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8686", value_parser = parse_address)]
    pub(crate) http: SocketAddr,
    /// Show this name alone; may be given several times
    #[arg(long = "name", value_name = "NAME", value_parser = parse_name)]
    pub(crate) names: Vec<String>,
}

#[cfg(test)]
mod tests;
