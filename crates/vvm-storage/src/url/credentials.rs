//! The secrets that a storage reads from the environment.

use super::{Place, parse};

/// Returns the environment variables with the storage's credentials. A process that is started here and does
/// not use the storage should not inherit them. Variables that only say where credentials are, are not
/// among them. Empty if `url` names no storage.
pub fn credentials(url: &str) -> &'static [&'static str] {
    match parse(url) {
        Ok(Place::Scylla(_) | Place::Postgres(_) | Place::Etcd(_)) => &["VVM_STORAGE_PASSWORD"],
        Ok(Place::DynamoDb(_)) => &[
            "AWS_ACCESS_KEY_ID",
            "AWS_SECRET_ACCESS_KEY",
            "SECRET_ACCESS_KEY",
            "AWS_SESSION_TOKEN",
            "AWS_CONTAINER_AUTHORIZATION_TOKEN",
        ],
        Ok(Place::Objects(url)) if url.starts_with("s3:") => {
            &["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"]
        }
        Ok(Place::Objects(url)) if url.starts_with("gs:") => &["GOOGLE_SERVICE_ACCOUNT_KEY"],
        Ok(Place::Objects(_)) => &[
            "AZURE_STORAGE_ACCOUNT_KEY",
            "AZURE_STORAGE_ACCESS_KEY",
            "AZURE_STORAGE_SAS_TOKEN",
            "AZURE_STORAGE_SAS_KEY",
            "AZURE_CLIENT_SECRET",
        ],
        Ok(Place::Mem | Place::Sqlite(_) | Place::Sled(_) | Place::Kubernetes(_)) | Err(_) => &[],
    }
}

/// Whether `url` has a password. All users of a machine can read the command line of a process, so it must
/// not stand there.
pub fn has_password(url: &str) -> bool {
    match parse(url) {
        #[cfg(feature = "postgres")]
        Ok(Place::Postgres(url)) => crate::postgres::has_password(url),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_those_of_the_storage_in_use() {
        let aws = credentials("dynamodb://eu-west-1/elections");
        assert!(aws.contains(&"AWS_SECRET_ACCESS_KEY") && !aws.contains(&"AWS_PROFILE"));
        assert_eq!(credentials("scylla://host/keyspace"), ["VVM_STORAGE_PASSWORD"]);
        #[cfg(feature = "postgres")]
        for (url, is_secret) in [("postgresql://me:secret@host/db", true), ("postgres://me@host/db", false)] {
            assert_eq!(has_password(url), is_secret, "{url}");
        }
        assert!(credentials("sqlite:elections.db").is_empty());
    }
}
