//! Two hosts that campaign for one name, each in namespaces of its own, and what their workers logged.

use super::relay::Relay;
use crate::{
    lost_machines::Lan,
    process::ProcessTree,
    report::Failure,
    takeovers::{Machine, NAMESPACE, ip},
};
use harness::forward;
use rustix::process::{Signal, kill_process};
use servers::owned::{self, Owned};
use std::{
    collections::BTreeSet,
    env,
    fs::{self, File},
    io,
    net::{SocketAddr, SocketAddrV4},
    os::unix::fs::FileExt as _,
    path::Path,
    process::Command,
    sync::Mutex,
    time::Duration,
};
use tempfile::TempDir;
use vvm_clock::{Instant, SystemClock};

pub(crate) type Side = usize;

#[derive(Clone, Copy, Debug)]
pub(super) enum Way {
    ToPeer,
    ToStorage,
}

const PORT: u16 = 7400;

/// Between two lines of a worker's log.
const BEAT: Duration = Duration::from_millis(5);

/// A worker whose log is older has ended.
const SILENT: Duration = Duration::from_secs(1);

/// The worker: notes since when, until when and under which epoch it works, until it is killed.
pub(crate) fn work(folder: &Path, side: Side) -> io::Result<()> {
    let epoch = env::var("VVM_LEADER_EPOCH").map_err(io::Error::other)?;
    let lock = File::create(folder.join("lock"))?;
    let is_alone = lock.try_lock().is_ok();
    let log = File::create_new(folder.join(format!("worker-{epoch}")))?;
    let first = SystemClock::read().as_nanos();
    loop {
        let last = SystemClock::read().as_nanos();
        log.write_all_at(format!("{side} {epoch} {is_alone} {first:020} {last:020}").as_bytes(), 0)?;
        SystemClock::block_for(BEAT);
    }
}

#[derive(Debug)]
pub(super) struct Span {
    side: Side,
    pub(super) epoch: u64,
    is_alone: bool,
    pub(super) first: Instant,
    pub(super) last: Instant,
}

fn parse(log: &str) -> Option<Span> {
    let mut words = log.split(' ');
    let (side, epoch) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let is_alone = words.next()? == "true";
    let mut instant = || Some(Instant::from_nanos(words.next()?.parse().ok()?));
    Some(Span { side, epoch, is_alone, first: instant()?, last: instant()? })
}

/// They are forwarded until this program ends, also while no pair has the address.
static FORWARDED: Mutex<BTreeSet<SocketAddrV4>> = Mutex::new(BTreeSet::new());

pub(super) struct Pair {
    pub(super) support: Duration,
    ttl: Duration,
    pub(super) is_named: bool,
    storage: (String, SocketAddr),
    /// Dropped before the machines that they are on.
    hosts: [Option<Owned>; 2],
    addresses: [String; 2],
    _relay: Option<Relay>,
    pub(super) machines: [Machine; 2],
    folder: TempDir,
    starts: usize,
    pub(super) losses: Vec<String>,
}

impl Pair {
    /// The pair with this number, of those at once. The storage has a URL and an address.
    pub(super) fn start(
        number: u8,
        storage: (String, SocketAddr),
        (ttl, support): (Duration, Duration),
        is_named: bool,
        is_chaos: bool,
    ) -> Result<Self, Failure> {
        let make = |place| Machine::make(4 * number + place);
        let machines = [make(0)?, make(1)?];
        for machine in &machines {
            let gateway = SocketAddrV4::new(machine.gateway.parse()?, storage.1.port());
            if FORWARDED.lock().is_ok_and(|mut forwarded| forwarded.insert(gateway)) {
                forward(gateway, storage.1);
            }
        }
        let (relay, addresses) = if is_chaos {
            let (relay, addresses) = Relay::between(&machines, [make(2)?, make(3)?], PORT)?;
            (Some(relay), addresses)
        } else {
            (None, Lan::between(machines.each_ref())?.addresses)
        };
        let (hosts, folder, losses) = ([None, None], tempfile::tempdir()?, Vec::new());
        let (_relay, starts) = (relay, 0);
        let mut pair = Self {
            support,
            ttl,
            is_named,
            storage,
            hosts,
            addresses,
            _relay,
            machines,
            folder,
            starts,
            losses,
        };
        pair.revive()?;
        Ok(pair)
    }

    fn name(&self) -> String {
        self.folder.path().file_name().unwrap_or_default().to_string_lossy().replace('.', "")
    }

    fn start_host(&mut self, side: Side) -> Result<(), Failure> {
        let (machine, folder, me) = (&self.machines[side], self.folder.path(), env::current_exe()?);
        let (url, server) = &self.storage;
        let url = url.replace(&server.to_string(), &format!("{}:{}", machine.gateway, server.port()));
        let (local, ttl) = (folder.join(side.to_string()), format!("{}ms", self.ttl.as_millis()));
        let mut command = owned::command("ip");
        command.args(["netns", "exec", &machine.namespace]).args(NAMESPACE);
        command.arg(me.with_file_name("vvm")).args(["run", "--name", &self.name(), "--storage", &url]);
        command.args(["--ttl", &ttl, "--http", &machine.http(), "--containment", "guardian"]);
        command.arg("--local-dir").arg(local).args(["--holder", &format!("host-{side}")]);
        if self.is_named {
            let successor = format!("{}:{PORT}", self.addresses[side]);
            let support = format!("{}ms", self.support.as_millis());
            command.args(["--successor", &successor, "--support", &support]);
        }
        command.arg("--").arg(me).arg("successors-work").arg(folder).arg(side.to_string());
        self.starts += 1;
        let log = folder.join(format!("log-{side}-{:06}", self.starts));
        self.hosts[side] = Some(Owned::start(command, &log)?);
        Ok(())
    }

    /// Starts the hosts that don't run. One that has ended by itself has lost its leadership.
    pub(super) fn revive(&mut self) -> Result<(), Failure> {
        for side in [0, 1] {
            if let Some(host) = &mut self.hosts[side] {
                let Some(status) = host.ended()? else { continue };
                let why = host.log_end();
                let why =
                    why.lines().find_map(|line| line.split_once(" lost: ")).map_or(&*why, |(_, why)| why);
                let why = why.split(": ").next().unwrap_or(why);
                self.losses.push(format!("{status}: {why}"));
            }
            self.start_host(side)?;
        }
        Ok(())
    }

    /// Waits until one leads, and the other one is named as its successor, or waits. Returns the leader, and its epoch.
    pub(super) fn ready(&mut self) -> Result<(Side, u64), Failure> {
        self.wait("a leader with a standby", |pair| {
            pair.revive()?;
            let Some(Span { side, epoch, .. }) = pair.works()? else { return Ok(None) };
            // Datagrams that are lost may keep it from being named for minutes.
            let is_ready = if pair._relay.is_some() {
                true
            } else if pair.is_named {
                pair.machines[side].has_named().unwrap_or(false)
            } else {
                pair.newest_log(1 - side).contains("waiting for leadership")
            };
            Ok(is_ready.then_some((side, epoch)))
        })
    }

    pub(super) fn next_after(&mut self, epoch: u64) -> Result<Span, Failure> {
        self.wait("the next command", |pair| Ok(pair.works()?.filter(|span| span.epoch > epoch)))
    }

    fn wait<T>(
        &mut self,
        what: &str,
        mut condition: impl FnMut(&mut Self) -> Result<Option<T>, Failure>,
    ) -> Result<T, Failure> {
        // A record that was not released, and the longest wait for the next naming.
        let limit = SystemClock::read().after(2 * self.ttl + Duration::from_secs(60));
        while SystemClock::read() < limit {
            if let Some(found) = condition(self)? {
                return Ok(found);
            }
            SystemClock::block_for(BEAT);
        }
        Err(format!("never: {what}\n{}\n---\n{}", self.newest_log(0), self.newest_log(1)).into())
    }

    fn works(&self) -> Result<Option<Span>, Failure> {
        let now = SystemClock::read();
        Ok(self.spans()?.pop().filter(|span| now.since(span.last) < SILENT))
    }

    /// Of all workers, in order of their epochs.
    pub(super) fn spans(&self) -> Result<Vec<Span>, Failure> {
        let mut spans: Vec<Span> = self.read("worker-")?.iter().filter_map(|log| parse(log)).collect();
        spans.sort_by_key(|span| span.epoch);
        Ok(spans)
    }

    /// Returns all files whose names begin so, in order of their names.
    fn read(&self, named: &str) -> Result<Vec<String>, Failure> {
        let mut files: Vec<_> = fs::read_dir(self.folder.path())?.flatten().collect();
        files.retain(|file| file.file_name().to_string_lossy().starts_with(named));
        files.sort_by_key(|file| file.file_name());
        Ok(files.iter().map(|file| fs::read_to_string(file.path())).collect::<Result<_, _>>()?)
    }

    fn newest_log(&self, side: Side) -> String {
        self.read(&format!("log-{side}-")).ok().and_then(|mut logs| logs.pop()).unwrap_or_default()
    }

    pub(super) fn said(&self, text: &str) -> usize {
        self.read("log-").unwrap_or_default().iter().map(|log| log.matches(text).count()).sum()
    }

    /// Returns the process above the guardian of a host, `unshare`.
    pub(super) fn process(&self, side: Side) -> i32 {
        self.hosts[side].as_ref().map_or(0, |host| host.id().cast_signed())
    }

    /// Drops what a host sends there. A link that is set down comes up a second later for its other end.
    pub(super) fn cut(&self, side: Side, ways: &[Way]) -> Result<(), Failure> {
        ways.iter().try_for_each(|way| self.route(side, *way, "add"))
    }

    pub(super) fn heal(&self, side: Side, ways: &[Way]) -> Result<(), Failure> {
        ways.iter().try_for_each(|way| self.route(side, *way, "del"))
    }

    fn route(&self, side: Side, way: Way, verb: &str) -> Result<(), Failure> {
        let Machine { namespace, gateway } = &self.machines[side];
        let to = match way {
            Way::ToPeer => &self.addresses[1 - side],
            Way::ToStorage => gateway,
        };
        ip(&format!("-n {namespace} route {verb} blackhole {to}/32"))
    }

    pub(super) fn stand_still(&self, side: Side, lasts: Duration) {
        let all = ProcessTree::of(self.process(side)).0;
        for signal in [Signal::STOP, Signal::CONT] {
            // The first one is `unshare`. Each may have ended.
            for process in all.iter().skip(1) {
                let _gone = kill_process(*process, signal);
            }
            if signal == Signal::STOP {
                SystemClock::block_for(lasts);
            }
        }
    }

    /// Sends a signal to the guardian. KILL ends all processes of its host at once, with their namespace.
    pub(super) fn signal(&mut self, side: Side, signal: Signal) -> Result<(), Failure> {
        let guardian = self.wait("a guardian", |pair| {
            // As the first process of its namespace, it ignores TERM before it heeds it.
            let heeds = signal == Signal::KILL || pair.newest_log(side).contains("waiting for leadership");
            let guardian = ProcessTree::of(pair.process(side)).0.get(1).copied().filter(|_| heeds);
            Ok((pair.has_ended(side)? || guardian.is_some()).then_some(guardian))
        })?;
        let _gone = guardian.map(|guardian| kill_process(guardian, signal));
        Ok(())
    }

    fn has_ended(&mut self, side: Side) -> io::Result<bool> {
        self.hosts[side].as_mut().map_or(Ok(true), |host| Ok(host.ended()?.is_some()))
    }

    pub(super) fn ends(&mut self, side: Side) -> Result<(), Failure> {
        self.wait("the end of a host", |pair| Ok(pair.has_ended(side)?.then_some(())))?;
        self.hosts[side] = None;
        Ok(())
    }

    pub(super) fn end_host(&mut self, side: Side, signal: Signal) -> Result<(), Failure> {
        self.signal(side, signal)?;
        self.ends(side)
    }

    pub(super) fn operate(&self, command: &str) -> Result<(), Failure> {
        let mut vvm = Command::new(env::current_exe()?.with_file_name("vvm"));
        vvm.args([command, "--storage", &self.storage.0, "--name", &self.name()]);
        owned::run(&mut vvm, "vvm beside it")?;
        Ok(())
    }

    /// Ends it. Returns what was wrong with its leaderships.
    pub(super) fn end(mut self) -> Result<Vec<String>, Failure> {
        self.end_host(0, Signal::KILL)?;
        self.end_host(1, Signal::KILL)?;
        let spans = self.spans()?;
        let taken = spans.iter().filter(|span| !span.is_alone);
        let mut wrong: Vec<String> = taken.map(|span| format!("{span:?} found the lock taken")).collect();
        let overlaps = spans.windows(2).filter(|both| both[1].first < both[0].last);
        wrong.extend(overlaps.map(|both| format!("{:?} overlaps {:?}", both[0], both[1])));
        if !wrong.is_empty() {
            wrong.push(format!("the logs are kept in {}", self.folder.keep().display()));
        }
        Ok(wrong)
    }
}
