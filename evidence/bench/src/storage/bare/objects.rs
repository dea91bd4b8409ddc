//! Object stores with the interface of S3: one conditional PUT for each verb, through the driver's client
//! library.

use super::{BareError, BareStatements, HOLDER, INCARNATION, TTL_NANOS};
use async_trait::async_trait;
use object_store::{
    ClientOptions, ObjectStore as _, PutMode, PutOptions, RetryConfig, UpdateVersion,
    aws::{AmazonS3, AmazonS3Builder, S3ConditionalPut},
    path::Path,
};
use std::collections::HashMap;

pub(super) struct Objects {
    bucket: AmazonS3,
    /// The tag of each object.
    written: HashMap<u32, UpdateVersion>,
}

impl Objects {
    /// Credentials are those of the environment. Options of the URL other than the endpoint are not needed
    /// for a server that this program starts.
    pub(super) fn open(url: &str) -> Result<Self, BareError> {
        let (place, options) = url.split_once('?').unwrap_or((url, ""));
        let (bucket, _prefix) = place.trim_start_matches("s3://").split_once('/').unwrap_or((place, ""));
        let endpoint = options.split('&').find_map(|option| option.strip_prefix("endpoint="));
        let bucket = AmazonS3Builder::from_env()
            .with_bucket_name(bucket)
            .with_region("us-east-1")
            .with_endpoint(endpoint.ok_or("bare statements need `endpoint=` in the URL")?)
            .with_conditional_put(S3ConditionalPut::ETagMatch)
            .with_client_options(ClientOptions::new().with_http1_only().with_allow_http(true))
            .with_retry(RetryConfig { max_retries: 0, ..RetryConfig::default() })
            .build()?;
        Ok(Self { bucket, written: HashMap::new() })
    }

    async fn put(&mut self, slot: u32, mode: PutMode, write: u8) -> Result<(), BareError> {
        let path = Path::from(format!("bench-bare/{}-{slot}", std::process::id()));
        let record = [INCARNATION.as_slice(), &[write], &TTL_NANOS.to_be_bytes(), HOLDER.as_bytes()].concat();
        let written = self.bucket.put_opts(&path, record.into(), PutOptions::from(mode)).await?;
        self.written.insert(slot, UpdateVersion { e_tag: written.e_tag, version: written.version });
        Ok(())
    }

    async fn replace(&mut self, slot: u32, write: u8) -> Result<(), BareError> {
        let last = self.written.remove(&slot).ok_or("an object that was not claimed")?;
        self.put(slot, PutMode::Update(last), write).await
    }
}

#[async_trait(?Send)]
impl BareStatements for Objects {
    async fn claim(&mut self, slot: u32) -> Result<(), BareError> {
        self.put(slot, PutMode::Create, 0).await
    }

    async fn renew(&mut self, slot: u32) -> Result<(), BareError> {
        self.replace(slot, 1).await
    }

    async fn release(&mut self, slot: u32) -> Result<(), BareError> {
        self.replace(slot, 2).await
    }
}
