//! What `vvm ui` costs on PostgreSQL, with many led names: requests to the server, CPU, and bytes to each browser.

use crate::{
    process::{self, ProcessTree, init_storage},
    report::{Failure, Figure, Unit},
    standbys::cost,
};
use harness::{Level, Lines};
use ielections::{Claim, Entry, Epoch, Holder, Incarnation, Swap, Ttl, TtlStorage as _, Vacant, Version};
use servers::{owned::DIES_WITH_ITS_OWNER, postgres::Postgres};
use std::{
    net::SocketAddr,
    num::NonZeroU32,
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use vvm_clock::{Clock, SystemClock};
use vvm_storage::{ClusterName, ElectionKey, ElectionsTtlStorage, SlotNumber};

pub(crate) fn measure(quick: bool) -> Result<Vec<Figure>, Failure> {
    let (names, watched) = if quick { (20, 5) } else { (1000, 30) };
    let watched = Duration::from_secs(watched);
    // Its workers have transactions of their own.
    let server = Postgres::start(&servers::target(), &[], &["autovacuum=off"])?;
    let url = server.url("postgres");
    init_storage(&url)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let clock = Arc::new(SystemClock::start()?) as Arc<dyn Clock>;
    let (storage, mut records) = runtime.block_on(lead(&url, names, &clock))?;

    let vvm = process::program(Level::Guardian)?;
    let mut ui = Command::new(DIES_WITH_ITS_OWNER[0]);
    ui.args(&DIES_WITH_ITS_OWNER[1..]).args([vvm.path(), "ui", "--http", "127.0.0.1:0", "--storage", &url]);
    let mut ui = ui.stdout(Stdio::piped()).spawn()?;
    let line = Lines::of("vvm ui", ui.stdout.take().ok_or("no output")?).wait_for("http://");
    let address = line.split('/').nth(2).ok_or("no address")?.parse::<SocketAddr>()?;
    let processes = ProcessTree::of(ui.id().try_into()?);

    let mut figures = Vec::new();
    for browsers in [1, 20] {
        let looked = async {
            browse(address, browsers, Duration::from_secs(10), &clock).await?;
            // No leader renews meanwhile, so all transactions are those of `vvm ui` and one or two of the count itself.
            let (_, counted) =
                tokio::try_join!(browse(address, browsers, watched, &clock), cost(&url, watched))?;
            let requests = counted.0 / Ttl::DEFAULT.get().as_secs_f64();
            let cpu_before = processes.used()?.cpu;
            let renewing = renew(&storage, &mut records, watched, &clock);
            let (bytes, ()) = tokio::try_join!(browse(address, browsers, watched, &clock), renewing)?;
            let cpu = (processes.used()?.cpu - cpu_before).div_duration_f64(watched) * 1e3;
            Ok::<_, Failure>((requests, cpu, bytes))
        };
        let (requests, cpu, bytes) = runtime.block_on(looked)?;
        let of = |what| format!("vvm ui, {names} names, {browsers} browsers: {what}");
        figures.push(Figure::new(of("requests a second"), Unit::Ratio, vec![requests]));
        figures.push(Figure::new(of("CPU a second"), Unit::Milliseconds, vec![cpu]));
        figures.push(Figure::new(of("bytes of an answer"), Unit::Bytes, bytes));
    }
    ui.kill()?;
    ui.wait()?;
    runtime.block_on(storage.close());
    Ok(figures)
}

type Records = Vec<(ElectionKey, Entry)>;

async fn lead(
    url: &str,
    names: u32,
    clock: &Arc<dyn Clock>,
) -> Result<(ElectionsTtlStorage, Records), Failure> {
    let storage = ElectionsTtlStorage::new(vvm_storage::open(url, Arc::clone(clock)).await?);
    let mut records = Vec::new();
    for number in 0..names {
        let cluster = ClusterName::from(&*format!("service-{number:04}"));
        storage.settle_slot_count(&cluster, NonZeroU32::MIN).await?;
        let version = Version { incarnation: Incarnation::from_bytes([7; 16]), write: 0 };
        let holder = Holder::new(format!("machine-{number:04}.example.org:4711"))?;
        let entry = Entry { holder, version, ttl: Ttl::DEFAULT, epoch: Epoch::new(1_795_000_000_000)? };
        let key = ElectionKey { cluster, slot: SlotNumber::FIRST };
        let Claim::Claimed = storage.insert_if_not_exist(&key, Vacant::default(), &entry).await? else {
            return Err(format!("{key} is led").into());
        };
        records.push((key, entry));
    }
    Ok((storage, records))
}

async fn renew(
    storage: &ElectionsTtlStorage,
    records: &mut Records,
    watched: Duration,
    clock: &Arc<dyn Clock>,
) -> Result<(), Failure> {
    let end = clock.now().after(watched);
    while clock.now() < end {
        let due = clock.now().after(Ttl::DEFAULT.get() / 4);
        for (key, held) in &mut *records {
            let next = held.renewed(held.version.next());
            let Swap::Swapped = storage.compare_and_swap(key, held, &next).await? else {
                return Err(format!("another process leads {key}").into());
            };
            *held = next;
        }
        clock.sleep_until(due).await;
    }
    Ok(())
}

/// Polls as so many pages do. Returns the bytes of each answer.
async fn browse(
    address: SocketAddr,
    browsers: u32,
    watched: Duration,
    clock: &Arc<dyn Clock>,
) -> Result<Vec<f64>, Failure> {
    let end = clock.now().after(watched);
    let browser = async || {
        let (mut number, mut bytes) = (0, Vec::new());
        while clock.now() < end {
            let mut stream = TcpStream::connect(address).await?;
            let request = format!("GET /names?after={number} HTTP/1.1\r\nHost: here\r\n\r\n");
            stream.write_all(request.as_bytes()).await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            let (_, body) = answer.split_once("\r\n\r\n").ok_or("no answer")?;
            let shown = serde_json::from_str::<serde_json::Value>(body)?;
            number = shown["number"].as_u64().ok_or("no number")?;
            bytes.push(answer.len() as f64);
            clock.sleep(Duration::from_secs(1)).await;
        }
        Ok::<_, Failure>(bytes)
    };
    let all = futures_util::future::try_join_all((0..browsers).map(|_| browser())).await?;
    // The first answer has everything.
    Ok(all.into_iter().flat_map(|bytes| bytes.into_iter().skip(1)).collect())
}
