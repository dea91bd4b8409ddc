//! Driver `object-store`: a bucket of Amazon S3, Google Cloud Storage or Azure, or of a server with one of their
//! interfaces. docs/storages/object-stores.md has URL, options, rights, costs and traps.
//!
//! **Objects.** [`Cells`](crate::cells::Cells) keep each slot in one object below the prefix of the URL. A write is one
//! conditional PUT: `If-None-Match: *` creates an object, `If-Match` with its ETag replaces it (on Google Cloud
//! Storage: its generation). Tag and content are read from one answer. A release writes a vacancy. **Nothing is ever
//! deleted**: servers apply a conditional DELETE without its condition. Retries of the client library are off, and a
//! second copy of a request is refused before it is sent.
//!
//! **Servers without conditions** are the main danger: they accept every write, and two candidates lead. Opening tries
//! three writes that must be refused, and needs the mark that [`init_storage`](crate::init_storage) leaves (`race.rs`).
//!
//! **Errors.** A write that may have reached the server may have been applied, unless an answer denies it.
//!
//! | answer | to a write | to a read |
//! |---|---|---|
//! | 200, 201 with a tag | written | the object |
//! | 200, 201 without a tag, or with the tag that was to be replaced: a proxy answers | `Unknown` | `Unavailable` |
//! | 412; 404 `NoSuchKey`, `BlobNotFound`; 409 `BlobAlreadyExists`, `PreconditionFailed` | refused | 404: no object |
//! | 404 `NoSuchBucket`, `ContainerNotFound` | `Replaced` | `Replaced` |
//! | any other 409, 429 | `NotApplied` | `Unavailable` |
//! | 303, 408, 400 `RequestTimeout`, 500 and above | `Unknown` | `Unavailable` |
//! | 401; 403 with a code, also of a wrong clock; 400 `ExpiredToken`, `InvalidToken`, `TokenRefreshRequired`. Opening fails for good | `NotApplied` | `Unavailable` |
//! | any other 4xx without a code: a proxy answers, before or after the store. Opening fails for good | `Unknown` | `Unavailable` |
//! | any other, redirects among them: none is followed | `Fatal` | `Fatal` |
//! | no connection, or no credentials: nothing was sent | `NotApplied` | `Unavailable` |
//! | no answer within the request timeout, a broken connection | `Unknown` | `Unavailable` |
//!
//! A bucket that takes writes in two regions is refused where its name shows that. Closing does not wait for the
//! sockets: the library's tasks end moments later.

mod config;
mod connection;
mod race;
mod requests;
mod rows;

use crate::{
    cells::{Cell, CellCondition, CellLimits, CellStorage, CellWrite},
    drivers::errors::{Closable, described, of_read},
    key::{ClusterName, Partition},
    opening::OpenError,
    sysvvm::{Description, MOST_LISTED, OpenedStorage, Provenance},
};
use async_trait::async_trait;
use bytes::Bytes;
use config::Address;
pub use config::{ObjectStoreBuilder, OpenOptions};
use connection::Requests;
use ielections::{ReadError, WriteError};
use object_store::HeaderMap;
use std::{error::Error, fmt::Display, time::Duration};

/// Object stores allow names of 1,024 bytes: the rest is for prefix, slashes and ending.
const MOST_KEY_BYTES: usize = 512;

/// A handle of a bucket, with connections of its own. [`Cells`](crate::cells::Cells) make a storage of it.
#[derive(Debug)]
pub struct ObjectCells {
    requests: Closable<Requests>,
    opened: OpenedStorage,
    min_ttl: Duration,
}

impl ObjectCells {
    /// Opens the bucket that `url` names. Refuses a server that ignores the conditions of writes, and a
    /// prefix that [`init_storage`](crate::init_storage) has not tried.
    ///
    /// # Errors
    /// See [`OpenError`].
    ///
    /// # Cancel safety
    /// Dropped, it leaves nothing open.
    pub async fn open(url: &str) -> Result<Self, OpenError> {
        let (address, requests) = connect(url)?;
        Self::on(&address, requests).await
    }

    /// Opens the bucket as [`open`](Self::open) does, for a user who may have no right to put objects: tries no write.
    ///
    /// # Errors
    /// See [`OpenError`].
    ///
    /// # Cancel safety
    /// Dropped, it leaves nothing open.
    pub async fn open_read_only(url: &str) -> Result<Self, OpenError> {
        let (address, requests) = connect(url)?;
        race::look(&address, &requests).await?;
        Ok(Self::new(&address, requests))
    }

    /// Opens the bucket with the caller's own configuration, below `prefix`, and checks it as [`open`](Self::open) does.
    ///
    /// It keeps bucket, region, endpoint and credentials of the builder, and how it signs and encrypts. It replaces retries
    /// by none and conditional writes by those that the driver needs, and makes connections of its own with the time limits
    /// of `options`: a write is sent once, and the driver knows what became of it. An `Arc<dyn ObjectStore>` can't be
    /// used, because it hides both. [`init_storage`](crate::init_storage) tries the server, by a URL.
    ///
    /// # Errors
    /// See [`OpenError`].
    ///
    /// # Cancel safety
    /// As [`open`](Self::open).
    ///
    /// # Examples
    /// ```no_run
    /// # async fn open(own: object_store::aws::AwsCredentialProvider) -> Result<(), vvm_storage::OpenError> {
    /// use object_store::aws::AmazonS3Builder;
    /// use vvm_storage::cells::Cells;
    /// use vvm_storage::objects::{ObjectCells, ObjectStoreBuilder, OpenOptions};
    ///
    /// let builder = AmazonS3Builder::new().with_bucket_name("payroll").with_region("eu-west-1");
    /// let builder = ObjectStoreBuilder::S3(builder.with_credentials(own));
    /// let cells = ObjectCells::open_with(builder, "elections", OpenOptions::default()).await?;
    /// let storage = Cells::new(cells);
    /// # drop(storage);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn open_with(
        builder: ObjectStoreBuilder,
        prefix: &str,
        options: OpenOptions,
    ) -> Result<Self, OpenError> {
        let address = Address::of_builder(&builder, prefix, options)?;
        Self::on(&address, connection::connect_by(&address, builder)?).await
    }

    async fn on(address: &Address, requests: Requests) -> Result<Self, OpenError> {
        race::look(address, &requests).await?;
        race::probe(address, &requests).await?;
        Ok(Self::new(address, requests))
    }

    fn new(address: &Address, requests: Requests) -> Self {
        let opened = OpenedStorage::at(address.to_string(), Provenance::Existing);
        Self { requests: Closable::new(requests), opened, min_ttl: address.min_ttl }
    }
}

/// Races the conditions of the server, and leaves a mark below the prefix. Creates no bucket.
pub(crate) async fn init(url: &str) -> Result<(), OpenError> {
    let (address, requests) = connect(url)?;
    let raced =
        race::race(&requests, race::INIT).await.map_err(|failure| failure.into_open_error(&address))?;
    if let Some(why) = raced.verdict() {
        return Err(OpenError::refused(format!(
            "the server at {address} accepts conflicting writes: {why}. Two candidates would lead. Use a server, \
             or a version of it, that obeys conditions of writes"
        )));
    }
    race::mark(&address, &requests).await?;
    race::look(&address, &requests).await?;
    race::probe(&address, &requests).await
}

fn connect(url: &str) -> Result<(Address, Requests), OpenError> {
    let address = Address::parse(url)?;
    let requests = connection::connect(&address)?;
    Ok((address, requests))
}

#[async_trait]
impl CellStorage for ObjectCells {
    fn limits(&self) -> CellLimits {
        CellLimits {
            min_ttl: self.min_ttl,
            max_key_bytes: MOST_KEY_BYTES,
            // Each renewal sends all of it.
            max_cell_bytes: 1 << 20,
        }
    }

    async fn read(&self, key: &Partition) -> Result<Option<Cell>, ReadError> {
        let requests = self.requests.get()?;
        let got = requests.get(&requests.names.cell(key)).await.map_err(DriverError::into_read_error)?;
        Ok(got.cell)
    }

    async fn write(
        &self,
        key: &Partition,
        value: Bytes,
        expected: CellCondition,
    ) -> Result<CellWrite, WriteError> {
        let requests = self.requests.get()?;
        let name = requests.names.cell(key);
        requests.put(&name, value, &expected).await.map_err(DriverError::into_write_error)
    }

    async fn settings(&self) -> Result<Option<Vec<Partition>>, ReadError> {
        let mut found = self.requests.get()?.list().await.map_err(DriverError::into_read_error)?;
        found.retain(|at| ClusterName::of_slot_count(at).is_some());
        found.sort_unstable();
        found.truncate(MOST_LISTED);
        Ok(Some(found))
    }

    fn opened(&self) -> Option<OpenedStorage> {
        Some(self.opened.clone())
    }

    async fn describe(&self) -> Result<Description, ReadError> {
        describe(&self.requests.get()?).await.map_err(DriverError::into_read_error)
    }

    async fn close(&self) {
        self.requests.close();
    }
}

async fn describe(requests: &Requests) -> Result<Description, DriverError> {
    let answer = requests.get(&requests.names.mark()).await?.answer;
    let software = answer.header("server").unwrap_or("an object store");
    let described = concerns(Description::new(software), &answer);
    Ok(match race::race(requests, race::DOCTOR).await {
        Ok(raced) => match raced.verdict() {
            Some(why) => described.with("conditions", "not obeyed").concerned(format!(
                "this server accepts conflicting writes, and two candidates would lead: {why}. Use another \
                 server, or a version of it that obeys If-Match and If-None-Match"
            )),
            None => described.with("conditions", raced.summary()),
        },
        Err(failure) => described.with("conditions", "not raced").concerned(format!(
            "whether the server obeys conditions was not tried: {failure}. Run `vvm doctor` with the rights \
             of a candidate"
        )),
    })
}

fn concerns(mut described: Description, answer: &Response) -> Description {
    if let Some(rule) = answer.header("x-amz-expiration") {
        described = described.concerned(format!(
            "a lifecycle rule deletes objects below the prefix, and with them leaderships: exclude the \
             prefix ({rule})"
        ));
    }
    if answer.header("x-amz-version-id").is_some_and(|version| version != "null") {
        described = described.with("versioning", "on").concerned(
            "the bucket keeps each renewal as a version, 720 an hour for each leader with the default TTL: \
             use a bucket without versioning, or a lifecycle rule that deletes noncurrent versions",
        );
    }
    described
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Response {
    status: u16,
    /// `NoSuchKey`, for example. Empty for success, and for an answer without one.
    code: String,
    message: String,
    headers: HeaderMap,
}

#[derive(Debug, thiserror::Error)]
enum DriverError {
    #[error(
        "no connection to the object store, or no credentials for it: check the endpoint and the network; set \
         the platform's variables (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, GOOGLE_SERVICE_ACCOUNT, \
         AZURE_STORAGE_ACCOUNT_KEY), or use a role of the machine ({0})"
    )]
    NotSent(String),
    #[error(
        "the object store denies the request: check the credentials, the machine's clock, and the rights to \
         get and put objects and to list the bucket, without which S3 denies a missing object ({0})"
    )]
    Denied(String),
    #[error(
        "there is no such bucket: it was deleted or renamed. Stop all candidates before you create it again \
         ({0})"
    )]
    NoBucket(String),
    #[error("the object store refuses the request: check the region and the endpoint ({0})")]
    Refused(String),
    #[error("no object store answers: check the endpoint, and proxies on the way ({0})")]
    NotOfStore(String),
    #[error("the object store is busy with other requests ({0})")]
    Busy(String),
    #[error("the object store did not confirm the request: {0}")]
    Unanswered(String),
}

impl DriverError {
    fn into_write_error(self) -> WriteError {
        match self {
            // A denial may pass: the clock is corrected, and the next request fetches credentials that were refused anew.
            Self::NotSent(_) | Self::Denied(_) | Self::Busy(_) => WriteError::NotApplied(self.into()),
            Self::Refused(_) => WriteError::Fatal(self.into()),
            // It existed when it was opened (I1).
            Self::NoBucket(_) => WriteError::Replaced(self.into()),
            Self::NotOfStore(_) | Self::Unanswered(_) => WriteError::Unknown(self.into()),
        }
    }

    fn into_open_error(self, place: impl Display) -> OpenError {
        match self {
            Self::NoBucket(said) => OpenError::refused(format!(
                "there is no bucket at {place}: create it, in one region and without versioning, or correct \
                 the URL ({said})"
            )),
            Self::Denied(_) | Self::Refused(_) | Self::NotOfStore(_) => {
                OpenError::refused(format!("{place}: {self}"))
            }
            Self::NotSent(_) | Self::Busy(_) | Self::Unanswered(_) => {
                OpenError::passing(format!("{place}: {self}. Try again"))
            }
        }
    }

    fn into_read_error(self) -> ReadError {
        of_read(self.into_write_error())
    }
}

impl Response {
    fn new(status: u16, headers: HeaderMap, body: &[u8]) -> Self {
        let text = String::from_utf8_lossy(body);
        let element = |name: &str| {
            let (_, rest) = text.split_once(&format!("<{name}>"))?;
            Some(rest.split_once("</")?.0.trim().to_owned())
        };
        let code = element("Code").unwrap_or_default();
        Self { status, code, message: element("Message").unwrap_or_default(), headers }
    }

    fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Whether it says that there is no such object in a bucket that exists.
    fn is_absent(&self) -> bool {
        self.status == 404 && matches!(&*self.code, "NoSuchKey" | "BlobNotFound")
    }

    fn is_refusal(&self) -> bool {
        self.status == 412
            || self.is_absent()
            || (self.status == 409 && matches!(&*self.code, "BlobAlreadyExists" | "PreconditionFailed"))
    }

    fn refuses_credentials(&self) -> bool {
        const CODES: [&str; 5] =
            ["ExpiredToken", "InvalidToken", "TokenRefreshRequired", "InvalidTokenId", "InvalidAccessKeyId"];
        self.status == 401 || CODES.contains(&&*self.code)
    }

    /// Maps an answer that is neither a success nor one of the above. What is not certain is unknown (I7).
    fn failure(&self) -> DriverError {
        let said = self.describe();
        match (self.status, &*self.code) {
            (404, "NoSuchBucket" | "ContainerNotFound") => DriverError::NoBucket(said),
            (409 | 429, _) => DriverError::Busy(said),
            (400, "RequestTimeout") | (408 | 500.., _) => DriverError::Unanswered(said),
            (400 | 401, _) if self.refuses_credentials() => DriverError::Denied(said),
            (400..500, "") => DriverError::NotOfStore(said),
            (403, _) => DriverError::Denied(said),
            // It may point to the outcome of a request that was applied.
            (303, _) => DriverError::Unanswered(said),
            // A success without a tag is not of an object store, but of a proxy.
            (200..300, _) => DriverError::Unanswered(format!("{said} without a tag")),
            _ => DriverError::Refused(said),
        }
    }

    /// S3Mock names itself in no header. But it sends the size of what was written, as AWS does only after appends, and
    /// no id of the request, which AWS, MinIO and versitygw send.
    fn known_to_race(&self) -> Option<&'static str> {
        let is_s3mock =
            self.header("x-amz-object-size").is_some() && self.header("x-amz-request-id").is_none();
        is_s3mock.then_some("S3Mock")
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    fn describe(&self) -> String {
        let Self { status, code, message, .. } = self;
        match (&**code, &**message) {
            ("", _) => format!("HTTP status {status}"),
            (code, "") => format!("HTTP status {status}, {code}"),
            (code, message) => format!("HTTP status {status}, {code}: {message}"),
        }
    }
}

fn unusable_credentials(error: &(dyn Error + 'static)) -> OpenError {
    OpenError::refused(format!(
        "the object store can't be used with these credentials: {}. Correct them in the environment",
        described(error)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, code: &str) -> Response {
        let body = format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>m</Message></Error>");
        Response::new(status, HeaderMap::new(), body.as_bytes())
    }

    /// MinIO and AWS answer 403 to some, as to a request that no policy allows.
    #[test]
    fn refused_credentials_are_told_from_a_missing_right() {
        let refuses = |status, code| answer(status, code).refuses_credentials();
        assert!(refuses(403, "InvalidTokenId") && refuses(403, "InvalidAccessKeyId"));
        assert!(refuses(400, "ExpiredToken") && refuses(401, ""));
        assert!(!refuses(403, "AccessDenied") && !refuses(403, "RequestTimeTooSkewed") && !refuses(403, ""));
    }

    #[test]
    fn denial_ends_an_opening_and_is_tried_again_later() {
        for (status, code) in [(403, "RequestTimeTooSkewed"), (400, "ExpiredToken"), (401, "")] {
            let failure = || answer(status, code).failure();
            let error = failure().into_open_error("s3://b");
            assert!(!error.is_passing() && error.to_string().contains("machine's clock"), "{error:?}");
            let error = failure().into_read_error();
            assert!(matches!(&error, ReadError::Unavailable(cause) if cause.to_string().contains("clock")));
        }
    }
}
