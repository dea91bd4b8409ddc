//! Finds the cause in the client library's nested connection errors.

use super::{Address, OpenError};
use crate::drivers::tls_options;
use ::scylla::errors::{
    BrokenConnectionError, BrokenConnectionErrorKind, ConnectionError, ConnectionPoolError,
    ConnectionSetupRequestErrorKind, DbError, FrameHeaderParseError, MetadataError, NewSessionError,
};
use std::{error::Error, io};

/// What to do if a connection without TLS fails.
const PLAIN: &str = "name the port of CQL (9042); if the nodes use TLS there, add tls_ca=PATH";

impl OpenError {
    pub(super) fn of_connecting(address: &Address, cause: NewSessionError) -> Self {
        let contact_points = address.contact_points.join(", ");
        let NewSessionError::MetadataError(MetadataError::ConnectionPoolError(ConnectionPoolError::Broken {
            last_connection_error: error,
        })) = &cause
        else {
            return Self::Unreachable { contact_points, cause: Box::new(cause) };
        };
        if let ConnectionError::ConnectionSetupRequestError(setup) = error {
            match &setup.error {
                ConnectionSetupRequestErrorKind::MissingAuthentication => return Self::UserWanted,
                ConnectionSetupRequestErrorKind::DbError(
                    DbError::AuthenticationError | DbError::Unauthorized,
                    _,
                ) => return Self::Credentials { user: address.user.clone().unwrap_or_default() },
                ConnectionSetupRequestErrorKind::DbError(DbError::ProtocolError, why) => {
                    return Self::Protocol { contact_points, why: why.clone() };
                }
                _ => {}
            }
        }
        match of_stream(error) {
            Some(Stream::Tls(error)) => {
                Self::Tls { contact_points, way_out: tls_options::way_out(error), why: error.to_string() }
            }
            Some(Stream::Version(version)) => Self::Protocol {
                contact_points,
                why: format!("it answers in version {version} of the protocol"),
            },
            Some(Stream::HungUp) => {
                let way_out = if address.tls.is_some() {
                    "the node may require a client certificate: give one with tls_certificate=PATH and \
                     tls_key=PATH, signed by an authority that the node trusts; or name the port at which \
                     nodes use TLS"
                } else {
                    PLAIN
                };
                Self::HungUp { contact_points, way_out }
            }
            Some(Stream::NoCql) => {
                let with_tls = "name the port at which nodes use TLS";
                let way_out = if address.tls.is_some() { with_tls } else { PLAIN };
                Self::NoCql { contact_points, way_out }
            }
            None => Self::Unreachable { contact_points, cause: Box::new(cause) },
        }
    }
}

/// What failed on a connection.
enum Stream<'a> {
    Tls(&'a rustls::Error),
    /// A frame of CQL in a version that the driver does not speak.
    Version(u8),
    /// The server closed the connection. It may be a node that is starting, or no node at all.
    HungUp,
    /// The answer is not CQL.
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
