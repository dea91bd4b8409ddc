//! [`Network`]: proxies between each client and each server. They cut, delay or hold back bytes, lose
//! requests and answers, answer writes with errors, and repeat what a connection sent after its end.
//!
//! They forward bytes as they come, and do not read protocols. A write is recognized by a text or by the
//! leadership that it is for ([`answers`]), and the bytes of an error replace its answer.

mod answers;

use super::event::{Counts, Event};
use answers::Forgery;
pub(super) use answers::Protocol;
use ielections::Incarnation;
use rustls::{
    ClientConfig, RootCertStore,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use std::{
    error::Error,
    io,
    net::SocketAddr,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    runtime::Handle,
    sync::{mpsc, watch},
    task::JoinSet,
};
use tokio_rustls::TlsConnector;
use vvm_clock::{Clock, Instant, SystemClock};

#[derive(Clone)]
struct ConnectionContext {
    conditions: watch::Receiver<Conditions>,
    counts: Arc<Counts>,
    clock: SystemClock,
    protocol: Protocol,
    write: Arc<WriteUnderWay>,
}

impl ConnectionContext {
    /// Connects to a server, with TLS if its protocol has it.
    async fn connect(&self, server: SocketAddr) -> Option<Box<dyn Stream>> {
        let server = TcpStream::connect(server).await.ok()?;
        // Client libraries set it, too.
        let _best_effort = server.set_nodelay(true);
        Some(match self.protocol.tls() {
            Some(Tls { connector, name }) => Box::new(connector.connect(name.clone(), server).await.ok()?),
            None => Box::new(server),
        })
    }

    fn now(&self) -> Conditions {
        *self.conditions.borrow()
    }

    /// Whether to forge the answer to a write that begins now.
    fn forges(&self) -> bool {
        fastrand::f64() < self.now().forged
    }

    /// Returns when a message may arrive: after a delay of a slow link, or when a silent link is open again.
    async fn arrival(&mut self) {
        if let Link::Slow(most) = self.now().link {
            self.clock.sleep(most.mul_f64(fastrand::f64())).await;
        }
        // The sender may have been dropped.
        let _gone = self.conditions.wait_for(|conditions| conditions.link != Link::Silent).await;
    }

    async fn cut(&mut self) {
        let _gone = self.conditions.wait_for(|conditions| conditions.link == Link::Cut).await;
    }
}

/// All proxies. Dropping the value ends every connection.
pub(super) struct Network {
    conditions: Vec<watch::Sender<Conditions>>,
    writes: Vec<Arc<WriteUnderWay>>,
    proxies: JoinSet<()>,
    counts: Arc<Counts>,
    clock: SystemClock,
    protocol: Protocol,
}

impl Network {
    pub(super) fn new(clients: usize, protocol: Protocol, counts: Arc<Counts>, clock: SystemClock) -> Self {
        let conditions = (0..clients).map(|_| watch::Sender::new(Conditions::NORMAL)).collect();
        let writes = (0..clients).map(|_| Arc::default()).collect();
        Self { conditions, writes, proxies: JoinSet::new(), counts, clock, protocol }
    }

    pub(super) fn open(
        &mut self,
        runtime: &Handle,
        client: usize,
        listen: SocketAddr,
        server: SocketAddr,
    ) -> io::Result<()> {
        let listener = runtime.block_on(TcpListener::bind(listen))?;
        let context = ConnectionContext {
            conditions: self.conditions[client].subscribe(),
            counts: Arc::clone(&self.counts),
            clock: self.clock.clone(),
            write: Arc::clone(&self.writes[client]),
            protocol: self.protocol.clone(),
        };
        self.proxies.spawn_on(serve(listener, server, context), runtime);
        Ok(())
    }

    /// What a client and its proxies tell each other about its write.
    pub(super) fn write_of(&self, client: usize) -> Arc<WriteUnderWay> {
        Arc::clone(&self.writes[client])
    }

    pub(super) fn set(&self, client: usize, conditions: Conditions) {
        self.conditions[client].send_replace(conditions);
    }

    pub(super) fn set_all(&self, conditions: Conditions) {
        (0..self.conditions.len()).for_each(|client| self.set(client, conditions));
    }
}

async fn serve(listener: TcpListener, server: SocketAddr, context: ConnectionContext) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            Some(_ended) = connections.join_next() => {}
            accepted = listener.accept() => {
                // The client may have closed the connection already.
                let Ok((client, _)) = accepted else { continue };
                if context.now().link == Link::Cut {
                    context.counts.add(Event::ConnectionRefused);
                    reset(&client);
                } else {
                    connections.spawn(connection(client, server, context.clone()));
                }
            }
        }
    }
}

/// The write of a client that is under way: it has one at a time.
#[derive(Default, Debug)]
pub(super) struct WriteUnderWay(Mutex<Write>);

#[derive(Default, Debug)]
struct Write {
    incarnation: Option<Incarnation>,
    /// When the client last learned that a write of its was not applied.
    not_applied: Option<Instant>,
}

impl WriteUnderWay {
    /// The client writes for this leadership.
    pub(super) fn begins(&self, incarnation: Incarnation) {
        self.lock().incarnation = Some(incarnation);
    }

    pub(super) fn ends(&self) {
        self.lock().incarnation = None;
    }

    /// The write was not applied. Sent once more, it could be: what repeats messages is between client and server,
    /// and the answer of the server says nothing about it. So what was sent until now is not repeated.
    pub(super) fn forbids_repetition(&self) {
        self.lock().not_applied = Some(SystemClock::read());
    }

    fn may_repeat(&self, since: Instant) -> bool {
        self.lock().not_applied.is_none_or(|last| last < since)
    }

    fn incarnation(&self) -> Option<Incarnation> {
        self.lock().incarnation
    }

    /// Every change is one step, so a poisoned lock is no problem.
    fn lock(&self) -> MutexGuard<'_, Write> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Relays one connection until it ends or is cut.
async fn connection(client: TcpStream, server: SocketAddr, context: ConnectionContext) {
    // If the server is down, the proxy refuses, too.
    let opened = SystemClock::read();
    let Some(stream) = context.connect(server).await else { return reset(&client) };
    let _best_effort = client.set_nodelay(true);
    let mut conditions = context.clone();
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = tokio::io::split(stream);
    let (awaited, sent) = (Mutex::default(), Mutex::new(Some(Vec::new())));
    let relay = Relay { context, to_client: to_client.into(), awaited, sent };
    let (send, queue) = mpsc::unbounded_channel();
    tokio::select! {
        biased;
        () = conditions.cut() => conditions.counts.add(Event::ConnectionCut),
        _ended = async {
            tokio::join!(relay.take_in(from_client, send), relay.send(queue, to_server), relay.answer(from_server))
        } => {}
    }
    let Relay { context, sent, .. } = relay;
    // `None` if it was too much to keep.
    let sent = sent.into_inner().unwrap_or_else(PoisonError::into_inner).unwrap_or_default();
    if fastrand::f64() < context.now().repeated && !sent.is_empty() {
        context.clock.sleep(REPEATED_WITHIN.mul_f64(fastrand::f64())).await;
        if context.write.may_repeat(opened) {
            repeat(&context, server, &sent).await;
        }
    }
}

/// Sends what a connection has sent once more, and takes the answers. The server may close at any byte.
async fn repeat(context: &ConnectionContext, server: SocketAddr, sent: &[u8]) {
    let Some(stream) = context.connect(server).await else { return };
    let (mut from_server, mut to_server) = tokio::io::split(stream);
    let answers = async {
        let (mut piece, mut answered) = (vec![0; PIECE], false);
        while from_server.read(&mut piece).await.is_ok_and(|length| length > 0) {
            if !std::mem::replace(&mut answered, true) {
                context.counts.add(Event::Repeated);
            }
        }
    };
    let sending = async {
        let _gone = to_server.write_all(sent).await;
        context.clock.sleep(REPEATED_WITHIN).await;
        let _gone = to_server.shutdown().await;
    };
    tokio::select! {
        () = async { tokio::join!(answers, sending); } => {}
        () = context.clock.sleep(REPEATED_WITHIN * 2) => {}
    }
}

/// How long after the end of a connection its messages are repeated at most, and how long their answers take.
const REPEATED_WITHIN: Duration = Duration::from_secs(1);

/// How much of a connection is kept to be repeated.
const KEPT: usize = 1 << 20;

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Ends the connection by a reset, as a firewall does.
fn reset(client: &TcpStream) {
    let _best_effort = client.set_zero_linger();
}

/// More than any answer to a write: it comes in one piece.
const PIECE: usize = 1 << 16;

/// How long a server gets to begin a write that it receives late, before it learns that the client is gone.
const BEGINS: Duration = Duration::from_millis(50);

/// Bytes of the client, and whether they are of a write.
struct Sent {
    bytes: Vec<u8>,
    writes: bool,
}

struct Relay {
    context: ConnectionContext,
    to_client: tokio::sync::Mutex<OwnedWriteHalf>,
    /// What replaces the next answer.
    awaited: Mutex<Option<Forgery>>,
    /// All that was sent to the server, to repeat it. `None` if that is too much.
    sent: Mutex<Option<Vec<u8>>>,
}

impl Relay {
    /// Takes what the client sends, until it closes, also while nothing is forwarded.
    async fn take_in(&self, mut from: OwnedReadHalf, queue: mpsc::UnboundedSender<Sent>) -> io::Result<()> {
        let protocol = &self.context.protocol;
        let mut piece = vec![0; PIECE];
        let mut is_over = false;
        loop {
            let length = from.read(&mut piece).await?;
            let bytes = &piece[..length];
            if bytes.is_empty() {
                return Ok(());
            }
            if is_over {
                continue;
            }
            let incarnation = self.context.write.incarnation();
            let writes = protocol.is_write(bytes, incarnation.as_ref());
            if writes && self.context.forges() {
                let forgery = protocol.forge(bytes, incarnation.as_ref());
                if !forgery.is_sent {
                    self.give(&forgery.bytes, forgery.closes).await?;
                    is_over = forgery.closes;
                    continue;
                }
                *self.awaited() = Some(forgery);
            }
            // The other side may have gone.
            let _gone = queue.send(Sent { bytes: bytes.to_vec(), writes });
        }
    }

    /// Sends what the client sent to the server, also after the client has closed.
    async fn send(
        &self,
        mut queue: mpsc::UnboundedReceiver<Sent>,
        mut to: WriteHalf<Box<dyn Stream>>,
    ) -> io::Result<()> {
        while let Some(Sent { bytes, writes }) = queue.recv().await {
            let is_late = self.context.now().link == Link::Silent;
            if is_late {
                self.context.clone().arrival().await;
            }
            if to.write_all(&bytes).await.is_err() {
                return self.give(&[], true).await;
            }
            self.keep(&bytes);
            if is_late && writes {
                self.context.counts.add(Event::WriteDelivered);
                self.context.clock.sleep(BEGINS).await;
            }
        }
        to.shutdown().await
    }

    async fn answer(&self, mut from: ReadHalf<Box<dyn Stream>>) -> io::Result<()> {
        let mut piece = vec![0; PIECE];
        loop {
            let length = from.read(&mut piece).await.unwrap_or_default();
            let answer = &piece[..length];
            let forgery = self.awaited().take();
            if self.context.now().link != Link::Open {
                self.context.clone().arrival().await;
                self.context.counts.add(Event::AnswerDelayed);
            }
            let is_end = answer.is_empty();
            let (given, closes) = match forgery {
                None => (answer.to_vec(), is_end),
                Some(Forgery { bytes, precedes: true, .. }) => ([&bytes, answer].concat(), is_end),
                Some(Forgery { bytes, closes, .. }) => (bytes, closes || is_end),
            };
            // The client may be gone while its writes are still in flight.
            let gone = self.give(&given, closes).await;
            if closes {
                return gone;
            }
        }
    }

    /// Gives the client an answer, and the end of the connection if it `closes`.
    async fn give(&self, bytes: &[u8], closes: bool) -> io::Result<()> {
        let mut to = self.to_client.lock().await;
        to.write_all(bytes).await?;
        if closes { to.shutdown().await } else { Ok(()) }
    }

    fn keep(&self, bytes: &[u8]) {
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        *sent = sent.take().filter(|sent| sent.len() < KEPT);
        if let Some(sent) = &mut *sent {
            sent.extend(bytes);
        }
    }

    fn awaited(&self) -> MutexGuard<'_, Option<Forgery>> {
        self.awaited.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// TLS with a server, whose clients speak to the proxy without it.
#[derive(Clone)]
pub(crate) struct Tls {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl Tls {
    /// With a server for `name`, certified by the authority in a file.
    pub(crate) fn of(authority: &Path, name: &'static str) -> Result<Self, Box<dyn Error>> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(authority)?)?;
        let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self { connector: TlsConnector::from(Arc::new(config)), name: ServerName::try_from(name)? })
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Conditions {
    pub(crate) link: Link,
    /// The probability that the answer to a write is forged.
    pub(crate) forged: f64,
    /// The probability that what a connection sent is sent again after its end.
    pub(crate) repeated: f64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Link {
    Open,
    /// Connections are cut, and new ones refused.
    Cut,
    /// Answers are delayed, up to this long.
    Slow(Duration),
    /// Nothing arrives in either direction until the link is open again. Then all of it arrives.
    Silent,
}

impl Conditions {
    pub(crate) const NORMAL: Self = Self { link: Link::Open, forged: 0.0, repeated: 0.0 };

    pub(crate) const fn link(link: Link) -> Self {
        Self { link, ..Self::NORMAL }
    }

    pub(crate) const fn forging(forged: f64) -> Self {
        Self { forged, ..Self::NORMAL }
    }

    pub(crate) const fn repeating(link: Link) -> Self {
        Self { link, repeated: 0.8, ..Self::NORMAL }
    }
}
