//! Connects to a cluster. Finds the cause in the client library's nested connection errors. [`LibraryTasksEnd`] waits
//! until the connections of a session have ended (I9). The client library's tasks end by themselves after their session
//! is dropped, and it does not report the end of the last one. But each task keeps the configuration until it ends, and
//! a value of ours in it.

use super::{config::Address, statements::Levels};
use crate::{
    drivers::{
        config::{PASSWORD, missing_password, password},
        tls,
    },
    opening::OpenError,
};
use ::scylla::{
    client::{
        execution_profile::{ExecutionProfile, ExecutionProfileBuilder, ExecutionProfileHandle},
        session::Session,
        session_builder::SessionBuilder,
    },
    errors::{
        BrokenConnectionError, BrokenConnectionErrorKind, ConnectionError, ConnectionPoolError,
        ConnectionSetupRequestErrorKind, DbError, FrameHeaderParseError, MetadataError, NewSessionError,
        TranslationError,
    },
    policies::{
        address_translator::{AddressTranslator, UntranslatedPeer},
        load_balancing::DefaultPolicy,
        retry::FallthroughRetryPolicy,
    },
};
use async_trait::async_trait;
use futures_util::future::{Either, select};
use std::{error::Error, io, net::SocketAddr, pin::pin, sync::Arc, time::Duration};
use tokio::sync::watch;
use vvm_clock::{Clock, SystemClock};

const CONNECTION_TIMEOUT: Duration = Duration::from_secs(5);

/// How long nodes may disagree on the schema.
const AGREEMENT_TIMEOUT: Duration = Duration::from_secs(10);

/// A node that is silent for twice this is not used: before the third attempt of a renewal at the default TTL.
const KEEPALIVE: Duration = Duration::from_secs(1);

/// No retries: the second request would be refused by the first one's write. No timestamps: cells get the ballot's.
pub(super) fn sent_once(profile: ExecutionProfileBuilder, address: &Address) -> ExecutionProfileHandle {
    let profile = profile
        .retry_policy(Arc::new(FallthroughRetryPolicy::new()))
        .speculative_execution_policy(None)
        .serial_consistency(Some(address.levels.serial()))
        .consistency(address.levels.commit())
        .request_timeout(Some(address.request_timeout));
    profile.build().into_handle()
}

pub(super) async fn connect(address: &Address) -> Result<(Session, LibraryTasksEnd), OpenError> {
    let mut policy = DefaultPolicy::builder();
    if let Some(datacenter) = &address.datacenter {
        // A local level refers to the data centre of the node that coordinates.
        let elsewhere_too = address.levels == Levels::Global;
        policy = policy.prefer_datacenter(datacenter.clone()).permit_dc_failover(elsewhere_too);
    }
    let profile = ExecutionProfile::builder().load_balancing_policy(policy.build());
    let profile = sent_once(profile, address);
    let (watch, ending) = LibraryTaskToken::new();
    let mut builder = SessionBuilder::new()
        .known_nodes(&address.contact_points)
        .default_execution_profile_handle(profile)
        .connection_timeout(CONNECTION_TIMEOUT)
        .keepalive_interval(KEEPALIVE)
        .keepalive_timeout(KEEPALIVE)
        .address_translator(Arc::new(watch))
        // `schema` awaits agreement where it matters.
        .auto_await_schema_agreement(false)
        .schema_agreement_timeout(AGREEMENT_TIMEOUT)
        .keyspaces_to_fetch([address.keyspace.as_str()]);
    if let Some(user) = &address.user {
        builder = {
            let password = password(address.password_file.as_deref(), None)?;
            builder.user(user, password.ok_or_else(missing_password)?)
        };
    }
    if let Some(tls) = &address.tls {
        builder = builder.tls_context(Some(Arc::new(tls.read()?)));
    }
    let built = builder.build().await;
    // It keeps what `ending` waits for.
    drop(builder);
    match built {
        Ok(session) => Ok((session, ending)),
        Err(cause) => {
            ending.wait().await;
            Err(of_connecting(address, &cause))
        }
    }
}

const PLAIN: &str = "name the port of CQL (9042); if the nodes use TLS there, add tls_ca=PATH";

fn of_connecting(address: &Address, cause: &NewSessionError) -> OpenError {
    let at = address.contact_points.join(", ");
    let unreachable = || {
        OpenError::passing(format!("no node answers at {at}: start one, or correct the addresses ({cause})"))
    };
    let protocol = |why: &str| {
        OpenError::refused(format!(
            "the nodes at {at} don't speak version 4 of CQL's protocol: Cassandra does from 3.0 on, unless \
             native_transport_allow_older_protocols forbids it ({why})"
        ))
    };
    let NewSessionError::MetadataError(MetadataError::ConnectionPoolError(ConnectionPoolError::Broken {
        last_connection_error: error,
    })) = cause
    else {
        return unreachable();
    };
    if let ConnectionError::ConnectionSetupRequestError(setup) = error {
        match &setup.error {
            ConnectionSetupRequestErrorKind::MissingAuthentication => {
                return OpenError::refused(format!(
                    "the cluster requires a login: add user=NAME, and put the password into {PASSWORD} or a \
                     file (password_file=PATH)"
                ));
            }
            ConnectionSetupRequestErrorKind::DbError(
                DbError::AuthenticationError | DbError::Unauthorized,
                _,
            ) => {
                return OpenError::refused(format!(
                    "the cluster does not accept user `{}` with this password: correct the user or \
                     {PASSWORD}",
                    address.user.as_deref().unwrap_or_default()
                ));
            }
            ConnectionSetupRequestErrorKind::DbError(DbError::ProtocolError, why) => return protocol(why),
            _ => {}
        }
    }
    let has_tls = address.tls.is_some();
    match of_stream(error) {
        Some(Stream::Tls(error)) => {
            OpenError::refused(format!("no TLS with the nodes at {at}: {} ({error})", tls::way_out(error)))
        }
        Some(Stream::Version(version)) => {
            protocol(&format!("it answers in version {version} of the protocol"))
        }
        Some(Stream::HungUp) => {
            let way_out = if has_tls {
                "the node may require a client certificate: give one with tls_certificate=PATH and \
                 tls_key=PATH, signed by an authority that the node trusts; or name the port at which nodes \
                 use TLS"
            } else {
                PLAIN
            };
            OpenError::passing(format!(
                "{at} closed the connection at the first request, as a node does while it starts or stops, \
                 and a proxy without a node. If this persists, {way_out}"
            ))
        }
        Some(Stream::NoCql) => {
            let way_out = if has_tls { "name the port at which nodes use TLS" } else { PLAIN };
            OpenError::refused(format!("the server at {at} does not answer in CQL: {way_out}"))
        }
        None => unreachable(),
    }
}

enum Stream<'a> {
    Tls(&'a rustls::Error),
    /// A frame of CQL in a version that the driver does not speak.
    Version(u8),
    /// The server closed the connection. It may be a node that is starting, or no node at all.
    HungUp,
    NoCql,
}

fn of_stream(error: &ConnectionError) -> Option<Stream<'_>> {
    match error {
        ConnectionError::IoError(error) => of_io(error),
        ConnectionError::BrokenConnection(error) => of_broken(error),
        ConnectionError::ConnectionSetupRequestError(setup) => match &setup.error {
            ConnectionSetupRequestErrorKind::BrokenConnection(error) => of_broken(error),
            _ => None,
        },
        _ => None,
    }
}

fn of_broken(error: &BrokenConnectionError) -> Option<Stream<'_>> {
    match error.downcast_ref()? {
        BrokenConnectionErrorKind::FrameHeaderParseError(error) => match error {
            FrameHeaderParseError::HeaderIoError(error)
            | FrameHeaderParseError::BodyChunkIoError(_, error) => of_io(error),
            // All versions of CQL so far. Any other first byte is not CQL.
            FrameHeaderParseError::VersionNotSupported(version) if (1..=6).contains(version) => {
                Some(Stream::Version(*version))
            }
            FrameHeaderParseError::ConnectionClosed(..) => Some(Stream::HungUp),
            _ => Some(Stream::NoCql),
        },
        BrokenConnectionErrorKind::WriteError(error) => of_io(error),
        // Broken before the first request was sent.
        BrokenConnectionErrorKind::ChannelError => Some(Stream::HungUp),
        _ => None,
    }
}

fn of_io(error: &io::Error) -> Option<Stream<'_>> {
    let inner: Option<&(dyn Error + 'static)> = error.get_ref().map(|inner| inner as _);
    if let Some(error) = inner.and_then(|inner| inner.downcast_ref()) {
        return Some(Stream::Tls(error));
    }
    match error.kind() {
        io::ErrorKind::UnexpectedEof
        | io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::NotConnected => Some(Stream::HungUp),
        _ => None,
    }
}

/// The last tasks end within milliseconds of their session. Only a request that is not polled keeps it longer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Part of every task's configuration: an address translator, which users may provide, and which translates nothing.
#[derive(Debug)]
pub(super) struct LibraryTaskToken {
    _alive: watch::Sender<()>,
}

#[derive(Clone, Debug)]
pub(super) struct LibraryTasksEnd(watch::Receiver<()>);

impl LibraryTaskToken {
    pub(super) fn new() -> (Self, LibraryTasksEnd) {
        let (alive, ending) = watch::channel(());
        (Self { _alive: alive }, LibraryTasksEnd(ending))
    }
}

impl LibraryTasksEnd {
    /// Waits until all tasks have ended, for [`TIMEOUT`] at most (I10).
    pub(super) async fn wait(mut self) {
        let ended = pin!(async move { while self.0.changed().await.is_ok() {} });
        // Without a clock the wait lasts as long as the longest request.
        let Ok(clock) = SystemClock::start() else { return ended.await };
        match select(ended, clock.sleep(TIMEOUT)).await {
            Either::Left(((), _)) => {}
            Either::Right(((), _)) => {
                tracing::warn!(
                    "connections to the database have not ended: a request that is not polled keeps them"
                );
            }
        }
    }
}

#[async_trait]
impl AddressTranslator for LibraryTaskToken {
    #[allow(elided_lifetimes_in_paths, reason = "written out, it would be another method than the trait's")]
    async fn translate_address(&self, peer: &UntranslatedPeer) -> Result<SocketAddr, TranslationError> {
        Ok(peer.untranslated_address())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::scylla::{
        policies::{
            retry::DowngradingConsistencyRetryPolicy, speculative_execution::SimpleSpeculativeExecutionPolicy,
        },
        statement::Consistency,
    };

    #[test]
    fn profile_of_a_caller_is_overridden_so_that_nothing_is_sent_twice() {
        let theirs = ExecutionProfile::builder()
            .retry_policy(Arc::new(DowngradingConsistencyRetryPolicy::new()))
            .speculative_execution_policy(Some(Arc::new(SimpleSpeculativeExecutionPolicy {
                max_retry_count: 2,
                retry_interval: Duration::ZERO,
            })))
            .serial_consistency(None)
            .consistency(Consistency::One)
            .request_timeout(None);
        let address = Address::parse("scylla://a/k?serial=local&datacenter=b").unwrap();
        let ours = sent_once(theirs, &address).to_profile();
        assert!(format!("{:?}", ours.get_retry_policy()).contains("Fallthrough"), "{ours:?}");
        assert!(ours.get_speculative_execution_policy().is_none());
        assert_eq!(ours.get_serial_consistency(), Some(address.levels.serial()));
        assert_eq!(ours.get_consistency(), Consistency::LocalQuorum);
        assert_eq!(ours.get_request_timeout(), Some(address.request_timeout));
    }
}
