//! Driver `object-store`: a bucket of Amazon S3, Google Cloud Storage or Azure, or of a server with one of
//! their interfaces. Several machines, without a server to operate.
//!
//! Tested on versitygw 1.8.0, MinIO of 2026-02-12 and, with `az:`, Azurite 3.35.0. Not tested on AWS, Google
//! Cloud or Azure, and `gs:` on no server. S3Mock 4.7.0, and versitygw with `--sidecar`, are refused.
//!
//! **Objects.** [`Cells`](crate::cells::Cells) keep each slot in one object below the prefix of the URL. A
//! write is one conditional PUT: `If-None-Match: *` creates an object, `If-Match` with its ETag replaces it
//! (on Google Cloud Storage: its generation). Tag and content come from one answer. A release writes a
//! vacancy. **Nothing is ever deleted or listed**: servers apply a conditional DELETE without its condition.
//! Retries of the client library are off, and a second copy of a request is refused before it is sent.
//!
//! **Servers without conditions** are the main danger: they accept every write, and two candidates lead.
//! Opening tries three writes that must be refused: with a wrong tag, of an absent object and of a present
//! one; and the creation of a present one. [`init_storage`](crate::init_storage) and `vvm doctor` race 16
//! writers, and count the writes that stand. They name the server that fails, and leave eight small objects
//! below `PREFIX/probe/race/`. A prefix is opened only after `init_storage` has left a mark there: so no
//! server is used that was not raced, and a mistyped prefix does not lead beside the intended one.
//!
//! **URL.** `s3://bucket/prefix?region=…`, `gs://bucket/prefix`, `az://container/prefix?account=…`. No place
//! is taken from the environment: two processes with different environments would use two storages, and both
//! would lead.
//!
//! | option | meaning |
//! |---|---|
//! | `region=eu-west-1` | `s3:` the region of the bucket; required without an endpoint |
//! | `account=payroll` | `az:` the storage account; required |
//! | `endpoint=https://host:9000` | this address instead of the platform's own |
//! | `allow=http` | send requests in clear text to an endpoint that is not on this machine |
//! | `tls_ca=/etc/ssl/ours.pem` | trust these authorities besides the system's |
//! | `min_ttl=2s` | `s3:` accept TTLs from 2 s, for a server nearby; default 5 s |
//! | `request_timeout=5s` | how long a request may take, from 100 ms to 60 s; default 2 s, half of it for connecting |
//!
//! **Credentials** come from the platform's own chain, as far as the client library knows it. `s3:` access
//! key, web identity (`AWS_WEB_IDENTITY_TOKEN_FILE`), container, or instance metadata; `~/.aws` is not read.
//! `gs:` `GOOGLE_SERVICE_ACCOUNT`, `GOOGLE_APPLICATION_CREDENTIALS`, gcloud's file, or instance metadata.
//! `az:` `AZURE_STORAGE_ACCOUNT_KEY`, `AZURE_STORAGE_SAS_TOKEN`, client secret, federated token, or managed
//! identity.
//!
//! **Permissions.** `s3:` `s3:GetObject` and `s3:PutObject` below the prefix, and `s3:ListBucket` on the
//! bucket: without it S3 answers 403 for an object that does not exist. `gs:` `storage.objects.create`,
//! `get`, `delete` (for replacing) and `list`. `az:` Storage Blob Data Contributor.
//!
//! **Cost.** A renewal is one PUT. A look at a slot is one GET. A claim is one PUT, and one GET
//! more if another candidate was sooner.
//!
//! **Errors.** A write that may have reached the server may have been applied, unless an answer denies it.
//!
//! | answer | to a write | to a read |
//! |---|---|---|
//! | 200, 201 with a tag | written | the object |
//! | 200, 201 without a tag, or with the one that was to be replaced: not of an object store | `Unknown` | `Unavailable` |
//! | 412; 404 `NoSuchKey`, `BlobNotFound`; 409 `BlobAlreadyExists` | refused | 404: no object |
//! | 404 `NoSuchBucket`, `ContainerNotFound` | `Replaced` | `Replaced` |
//! | any other 409, 429 | `NotApplied` | `Unavailable` |
//! | 303, 408, 400 `RequestTimeout`, 500 and above | `Unknown` | `Unavailable` |
//! | 401, 403 | `Fatal` | `Fatal` |
//! | any other, redirects among them: none is followed | `Fatal` | `Fatal` |
//! | no connection, or no credentials: nothing was sent | `NotApplied` | `Unavailable` |
//! | no answer within the request timeout, a broken connection | `Unknown` | `Unavailable` |
//!
//! **Limits.** A bucket that takes writes in two regions is refused where its name shows that. Versioning
//! keeps every renewal as a version. A lifecycle rule that deletes objects ends leaderships: `vvm doctor`
//! reports both. Closing does not wait for the sockets: the library's tasks end moments later.

mod driver;
mod errors;
mod open;
mod rows;

pub use driver::ObjectCells;
pub(crate) use driver::init;
pub use open::OpenError;
