//! [`OpenError`]: why a storage could not be opened.

use super::available::Available;
use crate::StorageUrl;

/// Why a storage could not be opened. No message contains a secret of the URL.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no scheme.
    #[error("`{url}` names no storage: write `sqlite:{url}` for a file ({Available})")]
    NoScheme {
        /// The URL.
        url: StorageUrl,
    },
    /// No driver has this scheme.
    #[error("there is no storage `{scheme}:`: {Available}")]
    UnknownScheme {
        /// The scheme of the URL.
        scheme: String,
    },
    /// This build leaves the driver out.
    #[error(
        "this build has no driver for `{scheme}:`: build it with the cargo feature `{feature}` ({Available})"
    )]
    NotInThisBuild {
        /// The scheme of the URL.
        scheme: &'static str,
        /// The feature of its driver.
        feature: &'static str,
    },
    /// The scheme is known, and the rest of the URL is malformed.
    #[error("`{url}`: {why}")]
    Malformed {
        /// The URL.
        url: StorageUrl,
        /// The mistake, and how to write it.
        why: String,
    },
    /// The database file could not be opened.
    #[cfg(feature = "sqlite")]
    #[error(transparent)]
    Sqlite(#[from] crate::sqlite::OpenError),
    /// The database folder could not be opened.
    #[cfg(feature = "sled")]
    #[error(transparent)]
    Sled(#[from] crate::sled::OpenError),
    /// The keyspace could not be opened or created.
    #[cfg(feature = "scylla")]
    #[error(transparent)]
    Scylla(#[from] crate::scylla::OpenError),
    /// The database could not be opened, or its tables not be created.
    #[cfg(feature = "postgres")]
    #[error(transparent)]
    Postgres(#[from] crate::postgres::OpenError),
    /// The prefix could not be opened or created.
    #[cfg(feature = "etcd")]
    #[error(transparent)]
    Etcd(#[from] crate::etcd::OpenError),
    /// The namespace could not be used.
    #[cfg(feature = "kubernetes")]
    #[error(transparent)]
    Kubernetes(#[from] crate::kubernetes::OpenError),
    /// The table could not be opened or created.
    #[cfg(feature = "dynamodb")]
    #[error(transparent)]
    DynamoDb(#[from] crate::dynamodb::OpenError),
    /// The bucket could not be opened, or its server ignores conditions.
    #[cfg(feature = "object-store")]
    #[error(transparent)]
    Objects(#[from] crate::objects::OpenError),
}

impl OpenError {
    /// Whether the URL is wrong, for this build at least. No storage was contacted.
    pub fn is_misuse(&self) -> bool {
        match self {
            Self::NoScheme { .. }
            | Self::UnknownScheme { .. }
            | Self::NotInThisBuild { .. }
            | Self::Malformed { .. } => true,
            #[cfg(feature = "sqlite")]
            Self::Sqlite(_) => false,
            #[cfg(feature = "sled")]
            Self::Sled(_) => false,
            #[cfg(feature = "scylla")]
            Self::Scylla(error) => matches!(error, crate::scylla::OpenError::Url { .. }),
            #[cfg(feature = "postgres")]
            Self::Postgres(error) => matches!(error, crate::postgres::OpenError::Url { .. }),
            #[cfg(feature = "etcd")]
            Self::Etcd(error) => matches!(error, crate::etcd::OpenError::Url { .. }),
            #[cfg(feature = "kubernetes")]
            Self::Kubernetes(error) => matches!(error, crate::kubernetes::OpenError::Url { .. }),
            #[cfg(feature = "dynamodb")]
            Self::DynamoDb(error) => matches!(error, crate::dynamodb::OpenError::Url { .. }),
            #[cfg(feature = "object-store")]
            Self::Objects(error) => matches!(error, crate::objects::OpenError::Url { .. }),
        }
    }

    /// Whether the system refused a thread or a descriptor, and not the storage.
    pub fn is_of_system(&self) -> bool {
        match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite(error) => {
                matches!(
                    error,
                    crate::sqlite::OpenError::Thread(_) | crate::sqlite::OpenError::Descriptors(_)
                )
            }
            _ => false,
        }
    }

    /// Whether the obstacle may pass by itself, so that trying again can help.
    pub fn is_passing(&self) -> bool {
        match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite(error) => {
                matches!(error, crate::sqlite::OpenError::Locked(_) | crate::sqlite::OpenError::Full(_))
            }
            #[cfg(feature = "scylla")]
            Self::Scylla(error) => error.is_passing(),
            #[cfg(feature = "postgres")]
            Self::Postgres(error) => error.is_passing(),
            #[cfg(feature = "etcd")]
            Self::Etcd(error) => error.is_passing(),
            #[cfg(feature = "object-store")]
            Self::Objects(error) => error.is_passing(),
            #[cfg(feature = "kubernetes")]
            Self::Kubernetes(error) => error.is_passing(),
            #[cfg(feature = "dynamodb")]
            Self::DynamoDb(error) => {
                use crate::dynamodb::OpenError::{BeingCreated, CredentialsNotFetched, Request, Unreachable};
                matches!(
                    error,
                    CredentialsNotFetched(_) | Unreachable { .. } | BeingCreated(_) | Request { .. }
                )
            }
            _ => false,
        }
    }
}
