//! [`Network`]: proxies between each client and each server. They cut, delay or hold back bytes, lose requests and
//! answers, and repeat what a connection sent after its end. They forward bytes as they come, and read no protocols.

use super::event::{Counts, Event};
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
    tls: Option<Tls>,
    not_applied: Arc<LastNotApplied>,
}

impl ConnectionContext {
    async fn connect(&self, server: SocketAddr) -> Option<Box<dyn Stream>> {
        let server = TcpStream::connect(server).await.ok()?;
        // Client libraries set it, too.
        let _best_effort = server.set_nodelay(true);
        Some(match &self.tls {
            Some(Tls { connector, name }) => Box::new(connector.connect(name.clone(), server).await.ok()?),
            None => Box::new(server),
        })
    }

    fn now(&self) -> Conditions {
        *self.conditions.borrow()
    }

    /// Returns when a message may arrive: after a delay of a slow link, or when a silent link is open again.
    async fn arrival(&mut self) {
        if let Link::Slow(most) = self.now().link {
            self.clock.sleep(most.mul_f64(fastrand::f64())).await;
        }
        let _gone = self.conditions.wait_for(|conditions| conditions.link != Link::Silent).await;
    }

    async fn cut(&mut self) {
        let _gone = self.conditions.wait_for(|conditions| conditions.link == Link::Cut).await;
    }
}

/// All proxies. Dropping the value ends every connection.
pub(super) struct Network {
    conditions: Vec<watch::Sender<Conditions>>,
    not_applied: Vec<Arc<LastNotApplied>>,
    proxies: JoinSet<()>,
    counts: Arc<Counts>,
    clock: SystemClock,
    tls: Option<Tls>,
}

impl Network {
    pub(super) fn new(clients: usize, tls: Option<Tls>, counts: Arc<Counts>, clock: SystemClock) -> Self {
        let conditions = (0..clients).map(|_| watch::Sender::new(Conditions::NORMAL)).collect();
        let not_applied = (0..clients).map(|_| Arc::default()).collect();
        Self { conditions, not_applied, proxies: JoinSet::new(), counts, clock, tls }
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
            not_applied: Arc::clone(&self.not_applied[client]),
            tls: self.tls.clone(),
        };
        self.proxies.spawn_on(serve(listener, server, context), runtime);
        Ok(())
    }

    pub(super) fn not_applied(&self, client: usize) -> Arc<LastNotApplied> {
        Arc::clone(&self.not_applied[client])
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

/// When the client last learned that a write of its was not applied. Sent once more, it could be: what repeats messages
/// is between client and server, whose answer does not exclude it. So what was sent until then is not repeated.
#[derive(Default, Debug)]
pub(super) struct LastNotApplied(Mutex<Option<Instant>>);

impl LastNotApplied {
    pub(super) fn is_now(&self) {
        *self.lock() = Some(SystemClock::read());
    }

    fn is_before(&self, since: Instant) -> bool {
        self.lock().is_none_or(|last| last < since)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn connection(client: TcpStream, server: SocketAddr, context: ConnectionContext) {
    // If the server is down, the proxy refuses, too.
    let opened = SystemClock::read();
    let Some(stream) = context.connect(server).await else { return reset(&client) };
    let _best_effort = client.set_nodelay(true);
    let mut conditions = context.clone();
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = tokio::io::split(stream);
    let relay = Relay { context, to_client: to_client.into(), sent: Mutex::new(Some(Vec::new())) };
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
        if context.not_applied.is_before(opened) {
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

/// How long a server gets to begin with what it receives late, before it learns that the client is gone.
const BEGINS: Duration = Duration::from_millis(50);

struct Relay {
    context: ConnectionContext,
    to_client: tokio::sync::Mutex<OwnedWriteHalf>,
    /// All that was sent to the server, to repeat it. `None` if that is too much.
    sent: Mutex<Option<Vec<u8>>>,
}

impl Relay {
    /// Takes what the client sends, until it closes, also while nothing is forwarded.
    async fn take_in(
        &self,
        mut from: OwnedReadHalf,
        queue: mpsc::UnboundedSender<Vec<u8>>,
    ) -> io::Result<()> {
        let mut piece = vec![0; PIECE];
        loop {
            let length = from.read(&mut piece).await?;
            if length == 0 {
                return Ok(());
            }
            // The other side may have gone.
            let _gone = queue.send(piece[..length].to_vec());
        }
    }

    /// Sends what the client sent to the server, also after the client has closed.
    async fn send(
        &self,
        mut queue: mpsc::UnboundedReceiver<Vec<u8>>,
        mut to: WriteHalf<Box<dyn Stream>>,
    ) -> io::Result<()> {
        while let Some(bytes) = queue.recv().await {
            let is_late = self.context.now().link == Link::Silent;
            if is_late {
                self.context.clone().arrival().await;
            }
            if to.write_all(&bytes).await.is_err() {
                return self.give(&[], true).await;
            }
            self.keep(&bytes);
            if is_late {
                self.context.counts.add(Event::DeliveredLate);
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
            if self.context.now().link != Link::Open {
                self.context.clone().arrival().await;
                self.context.counts.add(Event::AnswerDelayed);
            }
            let closes = answer.is_empty();
            // The client may be gone while its writes are still in flight.
            let gone = self.give(answer, closes).await;
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
}

/// TLS with a server, whose clients speak to the proxy without it.
#[derive(Clone)]
pub(crate) struct Tls {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl Tls {
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
    /// The probability that what a connection sent is sent again after its end.
    pub(crate) repeated: f64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Link {
    Open,
    Cut,
    /// Answers are delayed, up to this long.
    Slow(Duration),
    /// Nothing arrives in either direction until the link is open again. Then all of it arrives.
    Silent,
}

impl Conditions {
    pub(crate) const NORMAL: Self = Self { link: Link::Open, repeated: 0.0 };

    pub(crate) const fn link(link: Link) -> Self {
        Self { link, ..Self::NORMAL }
    }

    pub(crate) const fn repeating(link: Link) -> Self {
        Self { link, repeated: 0.8 }
    }
}
