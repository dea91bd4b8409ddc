//! [`Connections`]: one [`Channel`] at a time, to the member that answers; connecting to a member, and the login.

use super::{
    CallError, DriverError, OF_A_LEARNER,
    channel::{Answers, Channel, LoginToken, Path},
    config::Address,
    messages::{
        AuthenticateRequest, AuthenticateResponse, ResponseHeader, StatusRequest, StatusResponse, TxnRequest,
        TxnResponse, WatchCreateRequest, WatchRequest, WatchResponse,
    },
};
use crate::{
    drivers::{
        config::{Host, PASSWORD, missing_password, password, unreachable},
        connection::{HostRotation, RequestLimiter, Stream, tcp},
        errors::HandleClosed,
        tls::{self, Tls},
    },
    opening::OpenError,
};
use prost::Message;
use rustls::pki_types::ServerName;
use std::{
    fmt, io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio_rustls::TlsConnector;
use vvm_clock::SystemClock;

const MOST: usize = 32;

const TXN: Path = "/etcdserverpb.KV/Txn";

pub(super) const STATUS: Path = "/etcdserverpb.Maintenance/Status";

/// A request's hold on the channel. Dropped before the answer, the next request tries another member: a member that is
/// cut off from the others accepts connections and answers nothing.
struct PendingCall<'a> {
    channel: Arc<Channel>,
    of: &'a Connections,
    is_answered: bool,
}

/// What the cluster has shown of itself. It never goes back.
#[derive(Clone, Copy, Default)]
struct ClusterRevision {
    cluster: Option<u64>,
    revision: i64,
}

pub(super) struct Connections {
    address: Address,
    limiter: RequestLimiter,
    channel: Mutex<Option<Arc<Channel>>>,
    next: HostRotation,
    tokens: Vec<Token>,
    shown: Mutex<ClusterRevision>,
}

impl Connections {
    pub(super) fn new(address: Address) -> Result<Self, OpenError> {
        let tokens = address.hosts.iter().map(|_| Token::default()).collect();
        let limiter = RequestLimiter::new(address.request_timeout, MOST)?;
        let (channel, next, shown) = (Mutex::default(), HostRotation::default(), Mutex::default());
        Ok(Self { address, limiter, channel, next, tokens, shown })
    }

    pub(super) fn address(&self) -> &Address {
        &self.address
    }

    /// Sends a transaction once and returns the answer. It fails with `Replaced` if the answer is of another
    /// cluster, or of a revision before one that this handle had been shown when it sent the request.
    /// Dropped, the transaction may be applied, now or later.
    pub(super) async fn transaction(&self, request: &TxnRequest) -> Result<TxnResponse, DriverError> {
        let mut before = *self.cluster_revision();
        let answer: TxnResponse = self.call(TXN, request).await?;
        // A write makes a revision. A read has no condition.
        let wrote = answer.succeeded && !request.compare.is_empty();
        before.revision += i64::from(wrote);
        self.compare(answer.header, before)?;
        Ok(answer)
    }

    /// [`transaction`](Self::transaction) of reads that may be stale: its revision may be an earlier one.
    pub(super) async fn stale(&self, request: &TxnRequest) -> Result<TxnResponse, DriverError> {
        let before = ClusterRevision { revision: 0, ..*self.cluster_revision() };
        let answer: TxnResponse = self.call(TXN, request).await?;
        self.compare(answer.header, before)?;
        Ok(answer)
    }

    /// Notes what an answer shows. Linearizable answers to requests that follow each other never go back, so
    /// an earlier revision is that of a cluster that was restored from a backup.
    fn compare(&self, header: Option<ResponseHeader>, before: ClusterRevision) -> Result<(), DriverError> {
        let header = header.unwrap_or_default();
        if before.cluster.is_some_and(|cluster| cluster != header.cluster_id) {
            return Err(DriverError::Replaced("another etcd cluster answers"));
        }
        if header.revision < before.revision {
            return Err(DriverError::Replaced("etcd has gone back to an earlier revision"));
        }
        let mut shown = self.cluster_revision();
        shown.cluster = Some(header.cluster_id);
        shown.revision = shown.revision.max(header.revision);
        Ok(())
    }

    /// Sends a request once and returns the answer. Another member is only tried before the request is sent.
    /// Dropped, the request may be applied, now or later.
    pub(super) async fn call<A: Message + Clone + 'static, B: Message + Default + 'static>(
        &self,
        path: Path,
        message: &A,
    ) -> Result<B, DriverError> {
        let _permit = self.limiter.acquire().await?;
        let mut pending = PendingCall { channel: self.channel().await?, of: self, is_answered: false };
        let channel = &pending.channel;
        let call = async {
            let token = self.token(channel).await?;
            let answer = channel.call(path, token.as_ref(), self.address.request_timeout, message).await;
            let answer = answer.map_err(DriverError::from);
            if let Err(DriverError::LoginExpired(_)) = &answer {
                self.tokens[channel.endpoint].forget(token.as_ref()).await;
            }
            answer
        };
        let answer = self.limiter.in_time(call).await;
        let answer = answer.unwrap_or_else(|silence| Err(DriverError::Unanswered(silence)));
        pending.is_answered = answer.as_ref().err().is_none_or(DriverError::leaves_connection_usable);
        answer
    }

    async fn token(&self, channel: &Channel) -> Result<Option<LoginToken>, DriverError> {
        self.tokens[channel.endpoint].get(channel, &self.address).await
    }

    /// A channel that is open as far as this side knows. Requests that find none connect at the same time: a wait for
    /// another's attempt would take of their own time.
    async fn channel(&self) -> Result<Arc<Channel>, DriverError> {
        if let Some(channel) = self.current().as_ref().filter(|channel| channel.is_open()) {
            return Ok(channel.clone());
        }
        let connected = Arc::new(self.connected().await?);
        let mut current = self.current();
        if self.limiter.is_closed() {
            return Err(HandleClosed.into());
        }
        match current.as_ref().filter(|channel| channel.is_open()) {
            Some(earlier) => Ok(earlier.clone()),
            None => Ok(current.insert(connected).clone()),
        }
    }

    async fn connected(&self) -> Result<Channel, DriverError> {
        if self.limiter.is_closed() {
            return Err(HandleClosed.into());
        }
        Ok(self.next.connected(self.address.hosts.len(), |member| self.connect(member)).await?)
    }

    /// Ends the connection, and with it the requests that run.
    pub(super) async fn close(&self) {
        self.limiter.close();
        let channel = self.current().take();
        if let Some(channel) = channel {
            channel.close().await;
        }
    }

    pub(super) fn clock(&self) -> &SystemClock {
        &self.limiter.clock
    }

    fn leave(&self, channel: &Arc<Channel>) {
        self.next.is_silent(channel.endpoint, self.address.hosts.len());
        self.current().take_if(|current| Arc::ptr_eq(current, channel));
    }

    fn current(&self) -> MutexGuard<'_, Option<Arc<Channel>>> {
        self.channel.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cluster_revision(&self) -> MutexGuard<'_, ClusterRevision> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PendingCall<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.of.leave(&self.channel);
        }
    }
}

impl fmt::Debug for Connections {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Connections({})", self.address)
    }
}

const WATCH: Path = "/etcdserverpb.Watch/Watch";

#[derive(Debug)]
pub(in crate::drivers) struct Watch {
    answers: Answers<WatchResponse>,
    _channel: Arc<Channel>,
}

impl Connections {
    /// Has a member watch these ranges, and returns once it does. Dropped, it leaves nothing open. A member without a
    /// leader answers looks, and only this failure shows that another member is to be asked.
    pub(super) async fn watch(&self, ranges: Vec<WatchCreateRequest>) -> Result<Watch, DriverError> {
        let channel = self.channel().await?;
        let beginning = async {
            let token = self.token(&channel).await?;
            let requests: Vec<_> =
                ranges.into_iter().map(|create| WatchRequest { create: Some(create) }).collect();
            let mut missing = requests.len();
            let mut answers = channel.stream(WATCH, token.as_ref(), requests).await?;
            while missing > 0 {
                let answer: WatchResponse = next(&mut answers).await?;
                if answer.canceled {
                    return Err(DriverError::of_cancelled_watch(format!(
                        "a watch: {}",
                        answer.cancel_reason
                    )));
                }
                missing -= usize::from(answer.created);
            }
            Ok(answers)
        };
        let answers = self.limiter.in_time(beginning).await;
        match answers.unwrap_or_else(|silence| Err(DriverError::NotBegun(silence))) {
            Ok(answers) => Ok(Watch { answers, _channel: channel }),
            Err(error) => {
                if !error.leaves_connection_usable() {
                    self.leave(&channel);
                }
                Err(error)
            }
        }
    }
}

impl Watch {
    /// Waits for the next changes. After an error the watch has ended. May be dropped and called again at will.
    pub(super) async fn next(&mut self) -> Result<WatchResponse, DriverError> {
        Ok(next(&mut self.answers).await?)
    }
}

async fn next<B>(answers: &mut Answers<B>) -> Result<B, CallError> {
    answers.message().await?.ok_or_else(|| CallError::Broken("the member ended the call".into()))
}

const AUTHENTICATE: &str = "/etcdserverpb.Auth/Authenticate";

/// The token of one member: members forget the tokens that they are not shown, each by itself. While one
/// request logs in, the others wait: a login is costly for the member.
#[derive(Default)]
struct Token(tokio::sync::Mutex<Option<LoginToken>>);

impl Token {
    /// Returns the token for the next request; `None` if the URL has no user. Logs in if there is none.
    /// Dropped, the login is cancelled, and the next request logs in.
    async fn get(&self, channel: &Channel, address: &Address) -> Result<Option<LoginToken>, DriverError> {
        let Some(user) = &address.user else { return Ok(None) };
        let mut token = self.0.lock().await;
        if token.is_none() {
            *token = Some(log_in(channel, address, user).await?);
        }
        Ok(token.clone())
    }

    /// Forgets a token that the member does not accept any more. A request that it has answered so is not sent again.
    async fn forget(&self, used: Option<&LoginToken>) {
        let mut token = self.0.lock().await;
        if token.as_ref() == used {
            *token = None;
        }
    }
}

async fn log_in(channel: &Channel, address: &Address, user: &str) -> Result<LoginToken, DriverError> {
    let password = password(address.password_file.as_deref(), None)?;
    let password = password.ok_or_else(missing_password)?;
    let request = AuthenticateRequest { name: user.to_owned(), password };
    let answer = channel.call(AUTHENTICATE, None, address.request_timeout, &request).await;
    let AuthenticateResponse { token } = answer.map_err(|error| match error {
        CallError::Status { code: 3 | 9, message } if !message.contains(OF_A_LEARNER) => {
            DriverError::NotConnected(OpenError::refused(format!(
                "etcd refuses the login of `{user}`: {message}. Correct the user, or {PASSWORD} or \
                 password_file"
            )))
        }
        // Nothing but the login was sent.
        CallError::Status { message: why, .. }
        | CallError::NotSent(why)
        | CallError::Disconnected(why)
        | CallError::Broken(why) => DriverError::NotBegun(format!("the login was not answered: {why}")),
    })?;
    let mut token = LoginToken::try_from(token)
        .map_err(|_| OpenError::passing("the login was answered with a token that is no header"))?;
    token.set_sensitive(true);
    Ok(token)
}

impl Connections {
    /// Connects to a member, in a part of a request's time, so that a silent one leaves time for the others.
    async fn connect(&self, endpoint: usize) -> Result<Channel, OpenError> {
        let Address { hosts, request_timeout, tls, .. } = &self.address;
        // There are a few members, and this is one of them.
        let parts = u32::try_from(hosts.len() + 1).unwrap_or(u32::MAX);
        let (host, within) = (&hosts[endpoint], *request_timeout / parts);
        let started = async {
            let channel = start(endpoint, host, tls.as_ref(), self.clock()).await?;
            // A peer shows that it speaks gRPC by any status. TLS 1.3 refuses a certificate with the first answer.
            match channel.call(STATUS, None, within, &StatusRequest {}).await {
                Ok(StatusResponse { .. }) | Err(CallError::Status { .. }) => Ok(channel),
                Err(error) => Err(no_answer(host, error)),
            }
        };
        let started = self.limiter.within(within, started).await;
        started.unwrap_or_else(|silence| Err(unreachable(ETCD, host, &silence)))
    }
}

const ETCD: &str = "etcd";

async fn start(
    endpoint: usize,
    host: &Host,
    tls: Option<&Tls>,
    clock: &SystemClock,
) -> Result<Channel, OpenError> {
    let tls = tls.map(connector).transpose()?;
    let stream = tcp(&host.name, host.port, clock).await.map_err(|cause| unreachable(ETCD, host, &cause))?;
    let (stream, scheme): (Box<dyn Stream>, _) = match tls {
        None => (Box::new(stream), "http"),
        Some(tls) => {
            let name = ServerName::try_from(host.name.clone());
            let name = name.map_err(|cause| unreachable(ETCD, host, &cause))?;
            let stream = tls.connect(name, stream).await.map_err(|cause| of_handshake(host, &cause))?;
            (Box::new(stream), "https")
        }
    };
    let origin = format!("{scheme}://{host}").parse().map_err(|cause| unreachable(ETCD, host, &cause))?;
    Channel::start(stream, endpoint, origin).await.map_err(|error| no_answer(host, error))
}

fn connector(tls: &Tls) -> Result<TlsConnector, OpenError> {
    let mut tls = tls.read()?;
    tls.alpn_protocols = vec![b"h2".to_vec()];
    Ok(TlsConnector::from(Arc::new(tls)))
}

const TLS_OR_NOT: &str = "if it requires TLS, add tls_ca=PATH, if also a certificate, tls_certificate=PATH, and if it \
                          does without, remove the options of TLS";

/// A connection that brought no first answer: nothing else was sent.
fn no_answer(host: &Host, error: CallError) -> OpenError {
    match error {
        CallError::Disconnected(why) | CallError::NotSent(why) => of_stream(host, alert(&why), &why),
        CallError::Broken(why) | CallError::Status { message: why, .. } => OpenError::refused(format!(
            "what answers at {host} does not speak etcd's protocol: name the port for clients (2379); {TLS_OR_NOT} \
             ({why})"
        )),
    }
}

fn of_handshake(host: &Host, cause: &io::Error) -> OpenError {
    let error = cause.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()).cloned();
    of_stream(host, error, &cause.to_string())
}

fn of_stream(host: &Host, error: Option<rustls::Error>, why: &str) -> OpenError {
    match error {
        Some(error) => {
            let way_out = tls::way_out(&error);
            OpenError::refused(format!("no TLS with {host}: {way_out} ({why})"))
        }
        // A server that expects TLS, or a certificate, may close the connection without a word.
        None => unreachable(ETCD, host, &format!("{why}; {TLS_OR_NOT}")),
    }
}

/// The alert of a member that refused our certificate after the handshake. HTTP/2 has kept its text alone.
fn alert(why: &str) -> Option<rustls::Error> {
    use rustls::AlertDescription as Alert;
    let text = why.strip_prefix("received fatal alert: ")?;
    let known = [Alert::CertificateRequired, Alert::CertificateExpired];
    let known = known.into_iter().find(|alert| text == format!("{alert:?}"));
    Some(rustls::Error::AlertReceived(known.unwrap_or(Alert::BadCertificate)))
}

#[cfg(test)]
mod tests {
    use super::{super::opening, *};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::{net::TcpListener, task::JoinSet};

    #[test]
    fn handshake_that_ends_without_a_word_names_both_ways_out() {
        let address = Address::parse("etcd://127.0.0.1/vvm").unwrap();
        let text = of_stream(&address.hosts[0], None, "tls handshake eof").to_string();
        assert!(text.contains("add tls_ca=PATH") && text.contains("remove the options of TLS"), "{text}");
    }

    async fn member_that_answers(
        status: &'static str,
        path: Path,
        counted: Arc<AtomicUsize>,
        members: &mut JoinSet<()>,
    ) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        members.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let counted = Arc::clone(&counted);
                connections.spawn(async move {
                    let mut connection = h2::server::handshake(stream).await.unwrap();
                    while let Some(Ok((asked, mut answer))) = connection.accept().await {
                        counted.fetch_add(usize::from(asked.uri().path() == path), Ordering::Relaxed);
                        let head = http::Response::builder().header("content-type", "application/grpc");
                        let head = head.header("grpc-status", status).header("grpc-message", LEARNER);
                        let head = head.body(()).unwrap();
                        answer.send_response(head, true).unwrap();
                    }
                });
            }
        });
        address
    }

    const LEARNER: &str = "etcdserver: rpc not supported for learner";

    #[tokio::test]
    async fn member_that_can_answer_nothing_is_passed_over_at_an_opening() {
        let password = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(password.path(), "secret").unwrap();
        let user = format!("?user=me&password_file={}", password.path().display());
        // 3.7 answers 9, and versions before it 14, as a member without a leader does.
        for (path, status) in [(TXN, "9"), (TXN, "14"), (AUTHENTICATE, "9"), (AUTHENTICATE, "14")] {
            let asked = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
            let mut members = JoinSet::new();
            let one = member_that_answers(status, path, Arc::clone(&asked[0]), &mut members).await;
            let other = member_that_answers(status, path, Arc::clone(&asked[1]), &mut members).await;
            let user = if path == AUTHENTICATE { &*user } else { "" };
            let address = Address::parse(&format!("etcd://{one},{other}/vvm{user}")).unwrap();
            let refusal = opening::check(&Connections::new(address).unwrap()).await.unwrap_err();
            assert!(refusal.is_passing(), "{refusal}");
            let asked = asked.each_ref().map(|count| count.load(Ordering::Relaxed));
            assert_eq!(asked, [1, 1], "{path} {status}");
        }
    }

    #[tokio::test]
    async fn watch_that_a_member_without_a_leader_refuses_is_begun_at_another_and_a_denied_one_is_not() {
        for (status, begun) in [("14", [1, 1]), ("7", [2, 0])] {
            let watches = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
            let mut members = JoinSet::new();
            let one = member_that_answers(status, WATCH, Arc::clone(&watches[0]), &mut members).await;
            let other = member_that_answers(status, WATCH, Arc::clone(&watches[1]), &mut members).await;
            let address = Address::parse(&format!("etcd://{one},{other}/vvm")).unwrap();
            let connections = Connections::new(address).unwrap();
            for _ in 0..2 {
                connections.watch(Vec::new()).await.unwrap_err();
            }
            assert_eq!(watches.each_ref().map(|count| count.load(Ordering::Relaxed)), begun, "{status}");
        }
    }
}
