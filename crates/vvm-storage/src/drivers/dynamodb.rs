//! Driver `dynamodb`: a table of Amazon's DynamoDB. Several machines, no server of one's own.
//!
//! Tried on DynamoDB Local 2.6.1, and against a server of the tests for what that can't show; AWS itself was
//! not tried.
//!
//! **How the contract is kept.** One partition per slot, whose first item is the leader record. Each verb
//! that writes is one conditional `UpdateItem`, which DynamoDB applies whole or not at all and in one order;
//! the answer to one that was refused shows the item that was in its way
//! (`ReturnValuesOnConditionCheckFailure`). Reads are consistent; `peek` is not, and costs half. A release
//! removes the record from the item and leaves the epoch. Nothing but these updates writes to the table. The
//! client library's retries are off, so that nothing is sent twice: an update that was applied would be
//! refused by what it wrote itself.
//!
//! **Documents** are items of their slot's partition. A batch is one `TransactWriteItems`: a `ConditionCheck`
//! of the leader record for epoch and incarnation, an update of an item that has the number of the last batch
//! and the ids that it wrote, and a put or delete for each document, with its condition. While it runs, a
//! renewal or claim of the slot is refused as a conflict, and so is it while one of them runs: nothing is
//! done then, and it may be sent again. A look at the fence is a consistent read of the last batch and one
//! `TransactGetItems` of all that it wrote, so that no batch is half done when it is told; it fails, and is
//! to be tried again, while one is under way. Scans are consistent queries.
//!
//! **Never early.** Nothing ends a record but a write. Time to live, by which DynamoDB deletes items by its
//! own clock, is refused on every attribute that records have. No age is ever proven, so a standby that comes
//! anew waits one TTL of its own. Clocks matter for one thing alone: AWS refuses requests that are signed
//! with a clock more than minutes off.
//!
//! **Where.** `dynamodb://region/table?option=value&…`. The region has to be there, and is taken from nowhere
//! else: processes with two regions would have two tables, and two leaders.
//!
//! | option | meaning |
//! |---|---|
//! | `endpoint=http://localhost:8000` | another address than AWS's own: DynamoDB Local, or one of a private network |
//! | `profile=payroll` | the profile of `~/.aws/config` with the credentials |
//! | `request_timeout=5s` | how long a request may take, from 100 ms to 60 s: 2 s unless given, half of it for connecting. Elections and leaders' documents wait for a tenth of the TTL at most, so more is of use with longer TTLs than 20 s |
//!
//! Everything else is as with every program on AWS, by the SDK's own chain: credentials from the environment,
//! a profile, a web identity, or the role of the container or machine; `AWS_USE_FIPS_ENDPOINT` and its like.
//! `SSL_CERT_FILE` names other roots of trust than the system's. What is not built in is `aws sso login`.
//! Credentials that end are fetched again within a request, so their provider has to answer within an
//! attempt's time, a tenth of the TTL.
//!
//! **What it needs.** `dynamodb:UpdateItem`, `GetItem`, `BatchGetItem`, `DescribeTable` and
//! `DescribeTimeToLive` on the table, for documents also `ConditionCheckItem`, `PutItem`, `DeleteItem` and
//! `Query`, and `CreateTable` for who runs [`init_storage`](crate::init_storage), which creates a table that
//! is paid per request. (`DescribeContinuousBackups` lets `vvm doctor` say whether it can be restored.) A
//! partition key `pk` and a sort key `cc`, both binary, are what a table of one's own making must have.
//! Protect it against deletion: with the table go the epochs.
//!
//! **What it costs.** A claim, a renewal or a release is one write unit (up to 1 KB), a look at a slot half a
//! read unit, a read-back a whole one. Nothing else is asked. At the default TTL a leadership renews 720
//! times an hour, and each standby looks 3,600 to 4,800 times. A document that is written or deleted is two
//! write units for each KB of its item, of which a batch has two more (the check, and the number with the
//! ids). A look at the fence is two read units for each of the items that the last batch wrote and 4 KB, and
//! five more; a document that is read one for 4 KB, and so is a scan.
//!
//! **Errors.** What reached a server may have been applied unless the server says that it was not.
//!
//! | what went wrong | to a write | to a read |
//! |---|---|---|
//! | no connection could be made: name, network, TLS, or not within half the request timeout | `NotApplied` | `Unavailable` |
//! | credentials: their provider fails or takes too long | `NotApplied` | `Unavailable` |
//! | credentials: none, or badly configured | `Fatal` | `Fatal` |
//! | `ProvisionedThroughputExceeded`, `RequestLimitExceeded`, `Throttling` | `NotApplied` | `Unavailable` |
//! | `TransactionConflict` | `NotApplied` | – |
//! | `TransactionCanceled`, a reason is `ConditionalCheckFailed` | refused | – |
//! | …, a reason is `AccessDenied`, `ValidationError`, `ItemCollectionSizeLimitExceeded` | `Fatal` | `Fatal` |
//! | …, a reason is `TransactionConflict`, `ThrottlingError`, `ProvisionedThroughputExceeded` | `NotApplied` | `Unavailable` |
//! | …, for no reason that is known | `Unknown` | `Unavailable` |
//! | `AccessDenied`, `NotAuthorized`, `OptInRequired` | `Fatal` | `Fatal` |
//! | `UnrecognizedClient`, `InvalidSignature` (a wrong clock, too), `IncompleteSignature`, `MissingAuthenticationToken`, `ExpiredToken`, `RequestExpired` | `Fatal` | `Fatal` |
//! | `Validation`, `Serialization`, `UnknownOperation`, `InvalidEndpoint`, `ItemCollectionSizeLimitExceeded` | `Fatal` | `Fatal` |
//! | `ResourceNotFound`: the table was deleted | `Replaced` | `Replaced` |
//! | `ReplicatedWriteConflict`: it became a global table | `Replaced` | – |
//! | HTTP status 500 and above, whatever it says | `Unknown` | `Unavailable` |
//! | no answer within the request timeout | `Unknown` | `Unavailable` |
//! | connection broken before the answer, or an answer that can't be read | `Unknown` | `Unavailable` |
//! | any other | `Unknown` | `Unavailable` |
//! | an item that makes no sense, or a refusal that shows nothing in the way | `Fatal` | `Fatal` |
//!
//! **What it can't do.** A global table is refused, since each region would take its own writes; one that is
//! made global while it is in use is noticed when two regions collide, or when it is opened the next time. A
//! table that was restored from a backup has a new name: until all candidates use that name, the old one and
//! the new one have a leader each. Closing ends the sockets within moments, not before it returns: the
//! library's tasks end by themselves.

mod driver;
mod errors;
mod open;
mod rows;

pub use driver::DynamoDbStorage;
pub use open::OpenError;
pub(crate) use open::init;
