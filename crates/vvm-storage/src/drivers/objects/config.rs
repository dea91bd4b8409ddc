//! URL and options: `s3://…`, `gs://…` and `az://…`.

use crate::{
    drivers::config::{
        REQUEST_TIMEOUT, checked_request_timeout, duration, is_on_loopback, options, request_timeout,
    },
    opening::OpenError,
};
use object_store::{
    aws::{AmazonS3Builder, AmazonS3ConfigKey},
    azure::{AzureConfigKey, MicrosoftAzureBuilder},
    gcp::{GoogleCloudStorageBuilder, GoogleConfigKey},
};
use std::{fmt, path::PathBuf, time::Duration};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Platform {
    S3,
    Google,
    Azure,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Address {
    pub(super) platform: Platform,
    /// On Azure, the container.
    pub(super) bucket: String,
    /// Neither begins nor ends with a slash.
    pub(super) prefix: String,
    pub(super) region: Option<String>,
    pub(super) account: Option<String>,
    pub(super) endpoint: Option<String>,
    pub(super) is_http_allowed: bool,
    pub(super) tls_ca: Option<PathBuf>,
    pub(super) request_timeout: Duration,
    pub(super) min_ttl: Duration,
}

/// The caller's own configuration of a bucket.
#[derive(Clone)]
pub enum ObjectStoreBuilder {
    /// Amazon S3, or a server with its interface.
    S3(AmazonS3Builder),
    /// Google Cloud Storage.
    Google(GoogleCloudStorageBuilder),
    /// Azure Blob Storage.
    Azure(MicrosoftAzureBuilder),
}

impl fmt::Debug for ObjectStoreBuilder {
    /// Leaves out the builder's content, which has secrets.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::S3(_) => "S3",
            Self::Google(_) => "Google",
            Self::Azure(_) => "Azure",
        })
    }
}

/// What [`ObjectCells`](super::ObjectCells) need beside the caller's own configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpenOptions {
    /// The time limit of a request: 2 s unless given, from 100 ms to 60 s. Connecting may take half of it.
    pub request_timeout: Duration,
    /// The shortest TTL that is accepted: 5 s unless given. On S3 from 2 s, for a server nearby.
    pub min_ttl: Duration,
    /// A PEM file with the authorities that sign the server's certificate, beside those of the system.
    pub tls_ca: Option<PathBuf>,
    /// Permits clear text to other machines, for records and tokens. The builder's own setting does not count.
    pub allow_http: bool,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self { request_timeout: REQUEST_TIMEOUT, min_ttl: MIN_TTL, tls_ca: None, allow_http: false }
    }
}

/// An attempt may take a tenth of it, and a slow PUT takes 0.3 s. Google Cloud Storage takes one write a second to
/// an object, and a leader renews each quarter of its TTL.
const MIN_TTL: Duration = Duration::from_secs(5);

/// On a server nearby, as on other databases.
const SHORTEST_MIN_TTL: Duration = Duration::from_secs(2);

/// Leaves room for the longest key in an object's name of 1,024 bytes.
const MOST_PREFIX_BYTES: usize = 190;

const SECRETS: &str = "a URL must not contain secrets, because other users can read it: put them into the \
    environment (AWS_SECRET_ACCESS_KEY, GOOGLE_SERVICE_ACCOUNT, AZURE_STORAGE_ACCOUNT_KEY), or use a role of \
    the machine";

impl Platform {
    fn scheme(self) -> &'static str {
        match self {
            Self::S3 => "s3",
            Self::Google => "gs",
            Self::Azure => "az",
        }
    }

    fn example(self) -> &'static str {
        match self {
            Self::S3 => "s3://bucket/elections?region=eu-west-1",
            Self::Google => "gs://bucket/elections",
            Self::Azure => "az://container/elections?account=payroll",
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { platform, bucket, prefix, region, account, endpoint, .. } = self;
        write!(out, "{}://{bucket}/{prefix}", platform.scheme())?;
        let options = [("region", region), ("account", account), ("endpoint", endpoint)];
        let given = options.iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
        for ((name, value), separator) in given.zip(["?", "&", "&"]) {
            write!(out, "{separator}{name}={value}")?;
        }
        Ok(())
    }
}

fn parse(url: &str) -> Result<Address, String> {
    let platforms = [Platform::S3, Platform::Google, Platform::Azure];
    let found = platforms.into_iter().find_map(|platform| {
        let rest = url.strip_prefix(platform.scheme())?.strip_prefix("://")?;
        Some((platform, rest))
    });
    let (platform, rest) = found.ok_or("two slashes are missing: write s3://bucket/elections")?;
    let (place, text) = rest.split_once('?').unwrap_or((rest, ""));
    if place.contains('@') {
        return Err(SECRETS.into());
    }
    let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
    let mut address = Address::new(platform, bucket, prefix.trim_end_matches('/'), OpenOptions::default())?;
    for option in options(text) {
        let (name, value) = option?;
        match name {
            "region" if platform == Platform::S3 => address.region = Some(word(name, value)?),
            "account" if platform == Platform::Azure => address.account = Some(word(name, value)?),
            "endpoint" => address.endpoint = Some(endpoint(value)?),
            "allow" if value == "http" => address.is_http_allowed = true,
            "tls_ca" => address.tls_ca = Some(value.into()),
            "request_timeout" => address.request_timeout = request_timeout(value)?,
            "min_ttl" if platform == Platform::S3 => address.min_ttl = min_ttl(value)?,
            "access_key_id" | "secret_access_key" | "session_token" | "password" | "key" | "sas" => {
                return Err(SECRETS.into());
            }
            _ => {
                let own = match platform {
                    Platform::S3 => "region, min_ttl, ",
                    Platform::Google => "",
                    Platform::Azure => "account, ",
                };
                return Err(format!(
                    "there is no option `{name}` with this value; there are {own}endpoint, allow=http, \
                     tls_ca and request_timeout"
                ));
            }
        }
    }
    address.checked()
}

impl Address {
    pub(super) fn parse(url: &str) -> Result<Self, OpenError> {
        parse(url).map_err(|why| OpenError::of_url(url, why))
    }

    pub(super) fn of_builder(
        builder: &ObjectStoreBuilder,
        prefix: &str,
        options: OpenOptions,
    ) -> Result<Self, OpenError> {
        let OpenOptions { request_timeout, min_ttl, .. } = options;
        let (platform, bucket, region, account, place) = match builder {
            ObjectStoreBuilder::S3(of) => {
                let get = |key: AmazonS3ConfigKey| of.get_config_value(&key);
                let place = get(AmazonS3ConfigKey::S3Endpoint).or(get(AmazonS3ConfigKey::Endpoint));
                let (bucket, region) = (get(AmazonS3ConfigKey::Bucket), get(AmazonS3ConfigKey::Region));
                (Platform::S3, bucket, region, None, place)
            }
            ObjectStoreBuilder::Google(of) => {
                let get = |key: GoogleConfigKey| of.get_config_value(&key);
                let (bucket, place) = (get(GoogleConfigKey::Bucket), get(GoogleConfigKey::BaseUrl));
                (Platform::Google, bucket, None, None, place)
            }
            ObjectStoreBuilder::Azure(of) => {
                let get = |key: AzureConfigKey| of.get_config_value(&key);
                let (bucket, account) =
                    (get(AzureConfigKey::ContainerName), get(AzureConfigKey::AccountName));
                let place = get(AzureConfigKey::Endpoint);
                (Platform::Azure, bucket, None, account, place)
            }
        };
        let of_text = || {
            let bucket =
                bucket.ok_or("the builder has no bucket: name it with with_bucket_name, not in a URL")?;
            let least = if platform == Platform::S3 { SHORTEST_MIN_TTL } else { MIN_TTL };
            if !(least..=MIN_TTL).contains(&min_ttl) {
                return Err(format!("min_ttl is {min_ttl:?}: set it from {least:?} to {MIN_TTL:?}"));
            }
            let endpoint = place.as_deref().map(endpoint).transpose()?;
            Self { region, account, endpoint, ..Self::new(platform, &bucket, prefix, options)? }.checked()
        };
        checked_request_timeout(request_timeout)?;
        of_text().map_err(OpenError::misuse)
    }

    fn new(platform: Platform, bucket: &str, prefix: &str, options: OpenOptions) -> Result<Self, String> {
        let OpenOptions { request_timeout, min_ttl, tls_ca, allow_http: is_http_allowed } = options;
        let (bucket, prefix) = (checked_bucket(bucket)?, checked_prefix(prefix, platform)?);
        let (region, account, endpoint) = (None, None, None);
        Ok(Self {
            platform,
            bucket,
            prefix,
            region,
            account,
            endpoint,
            is_http_allowed,
            tls_ca,
            request_timeout,
            min_ttl,
        })
    }

    fn checked(mut self) -> Result<Self, String> {
        let example = self.platform.example();
        match self.platform {
            Platform::S3 if self.region.is_none() && self.endpoint.is_none() => {
                return Err(format!("the region is missing: write {example}"));
            }
            Platform::Azure if self.account.is_none() => {
                return Err(format!("the storage account is missing: write {example}"));
            }
            _ => {}
        }
        match self.endpoint.as_ref().and_then(|endpoint| endpoint.strip_prefix("http://")) {
            Some(place) if !self.is_http_allowed && !is_on_loopback(place) => Err(format!(
                "`http://{place}` is not on this machine, and records and tokens would be sent in clear \
                 text: write https://…, or add allow=http"
            )),
            Some(_) => {
                self.is_http_allowed = true;
                Ok(self)
            }
            None => Ok(self),
        }
    }
}

fn checked_bucket(bucket: &str) -> Result<String, String> {
    if bucket.ends_with(".mrap") {
        return Err(format!(
            "`{bucket}` is a multi-region access point: two regions would have two leaders; use a bucket"
        ));
    }
    if bucket.ends_with("--x-s3") {
        return Err(format!("`{bucket}` is a directory bucket, which is not supported: use another bucket"));
    }
    let is_name = (3..=222).contains(&bucket.len())
        && bucket
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-".contains(&byte));
    if !is_name {
        return Err(format!(
            "`{bucket}` is not a bucket: use 3 to 222 lower-case letters, digits, `-`, `.` or `_`"
        ));
    }
    Ok(bucket.to_owned())
}

fn checked_prefix(prefix: &str, platform: Platform) -> Result<String, String> {
    if prefix.is_empty() {
        return Err(format!("the prefix is missing: write {}", platform.example()));
    }
    let is_part = |part: &str| {
        !matches!(part, "" | "." | "..")
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    };
    if prefix.len() > MOST_PREFIX_BYTES || !prefix.split('/').all(is_part) {
        return Err(format!(
            "`{prefix}` is not a prefix: use at most {MOST_PREFIX_BYTES} letters, digits, `-`, `.`, `_`, and \
             single slashes"
        ));
    }
    Ok(prefix.to_owned())
}

fn min_ttl(value: &str) -> Result<Duration, String> {
    duration(value).filter(|least| (SHORTEST_MIN_TTL..=MIN_TTL).contains(least)).ok_or_else(|| {
        format!("`{value}` is not a valid shortest TTL: write min_ttl=2s for a server nearby, from 2s to 5s")
    })
}

fn word(name: &str, value: &str) -> Result<String, String> {
    let is_word =
        value.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    if is_word { Ok(value.to_owned()) } else { Err(format!("`{value}` is not a valid {name}")) }
}

fn endpoint(value: &str) -> Result<String, String> {
    if value.contains('@') {
        return Err(SECRETS.into());
    }
    let wrong = || format!("`{value}` is not an endpoint: write endpoint=https://host:9000");
    let place = ["http://", "https://"].iter().find_map(|scheme| value.strip_prefix(scheme));
    let place = place.ok_or_else(wrong)?.trim_end_matches('/');
    if place.is_empty() || place.contains(['#', ' ', '\\']) {
        return Err(wrong());
    }
    Ok(value.trim_end_matches('/').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_read_with_its_options() {
        let address = parse(
            "s3://payroll-bucket/vvm/elections/?region=eu-west-1&endpoint=http://127.0.0.1:9000/\
         &request_timeout=500ms&min_ttl=2s",
        )
        .unwrap();
        assert_eq!((&*address.bucket, &*address.prefix), ("payroll-bucket", "vvm/elections"));
        assert_eq!(address.endpoint.as_deref(), Some("http://127.0.0.1:9000"));
        assert_eq!(address.request_timeout, Duration::from_millis(500));
        assert_eq!(address.min_ttl, Duration::from_secs(2));
        assert!(address.is_http_allowed, "on this machine");
        assert_eq!(
            address.to_string(),
            "s3://payroll-bucket/vvm/elections?region=eu-west-1&endpoint=http://127.0.0.1:9000"
        );
        assert_eq!(parse("gs://bucket/elections").unwrap().platform, Platform::Google);
        let azure = parse("az://container/elections?account=payroll").unwrap();
        assert_eq!(azure.to_string(), "az://container/elections?account=payroll");
    }

    #[test]
    fn builder_of_a_caller_is_read_or_refused() {
        let of = |s3: AmazonS3Builder, options| {
            Address::of_builder(&ObjectStoreBuilder::S3(s3), "vvm/elections", options)
        };
        let s3 = || AmazonS3Builder::new().with_bucket_name("payroll").with_endpoint("http://127.0.0.1:9000");
        let options = OpenOptions { min_ttl: SHORTEST_MIN_TTL, ..OpenOptions::default() };
        let address = of(s3(), options.clone()).unwrap();
        let url = "s3://payroll/vvm/elections?endpoint=http://127.0.0.1:9000&min_ttl=2s";
        assert_eq!(address, parse(url).unwrap());
        let short = OpenOptions { min_ttl: Duration::from_secs(1), ..OpenOptions::default() };
        for (builder, options, part) in [
            (AmazonS3Builder::new().with_url("s3://payroll"), options.clone(), "with_bucket_name"),
            (s3().with_bucket_name("abc.mrap"), options.clone(), "two leaders"),
            (s3().with_endpoint("http://10.0.0.1"), options.clone(), "clear text"),
            (AmazonS3Builder::new().with_bucket_name("payroll"), options.clone(), "region"),
            (s3(), short, "min_ttl"),
        ] {
            let refusal = of(builder, options).unwrap_err();
            assert!(refusal.is_misuse() && refusal.to_string().contains(part), "{refusal}");
        }
        let google = GoogleCloudStorageBuilder::new().with_bucket_name("payroll");
        let google = ObjectStoreBuilder::Google(google);
        assert!(Address::of_builder(&google, "elections", options).is_err(), "one write a second");
        let google = Address::of_builder(&google, "elections", OpenOptions::default()).unwrap();
        assert_eq!(google, parse("gs://payroll/elections").unwrap());
        let azure = MicrosoftAzureBuilder::new().with_account("payroll").with_container_name("container");
        let azure = ObjectStoreBuilder::Azure(azure);
        let azure = Address::of_builder(&azure, "elections", OpenOptions::default()).unwrap();
        assert_eq!(azure, parse("az://container/elections?account=payroll").unwrap());
    }

    #[test]
    fn each_mistake_is_named_with_what_to_write() {
        for (url, said) in [
            ("s3:bucket/elections", "s3://bucket"),
            ("s3://bucket/elections", "region=eu-west-1"),
            ("s3://bucket?region=eu-west-1", "prefix is missing"),
            ("s3://bucket/?region=eu-west-1", "prefix is missing"),
            ("s3://bucket/a//b?region=eu-west-1", "single slashes"),
            ("s3://bucket/a/../b?region=eu-west-1", "single slashes"),
            ("s3://Bucket/a?region=eu-west-1", "lower-case"),
            ("s3://bucket--usw2-az1--x-s3/a?region=eu-west-1", "directory bucket"),
            ("s3://abc.mrap/a?region=eu-west-1", "two leaders"),
            ("s3://bucket/a?region=EU", "not a valid region"),
            ("s3://bucket/a?account=b", "region, min_ttl, endpoint"),
            ("s3://bucket/a?endpoint=https://host&min_ttl=1s", "min_ttl=2s"),
            ("gs://bucket/a?min_ttl=2s", "no option `min_ttl`"),
            ("s3://bucket/a?allow=all", "allow=http"),
            ("s3://bucket/a?endpoint=http://10.0.0.1:9000", "clear text"),
            ("s3://bucket/a?endpoint=http://127.0.0.1.example.org", "clear text"),
            ("s3://bucket/a?endpoint=ftp://10.0.0.1", "https://host"),
            ("s3://bucket/a?endpoint=https://a:b@host", "must not contain secrets"),
            ("s3://key:secret@bucket/a", "must not contain secrets"),
            ("s3://bucket/a?secret_access_key=x", "must not contain secrets"),
            ("az://container/a", "account=payroll"),
            ("gs://bucket/a?region=eu-west-1", "no option `region`"),
        ] {
            let refusal = parse(url).expect_err(url);
            assert!(refusal.contains(said), "{url}: {refusal}");
        }
        let longest = format!("s3://bucket/{}?region=eu-west-1", "a".repeat(MOST_PREFIX_BYTES + 1));
        assert!(parse(&longest).is_err());
    }

    #[test]
    fn clear_text_is_sent_only_on_this_machine_unless_allowed() {
        for local in ["127.0.0.1:9000", "127.9.9.9", "[::1]:9000", "localhost:80/path"] {
            assert!(parse(&format!("s3://bucket/a?endpoint=http://{local}")).is_ok(), "{local}");
        }
        assert!(parse("s3://bucket/a?endpoint=http://10.0.0.1&allow=http").unwrap().is_http_allowed);
        assert!(!parse("s3://bucket/a?endpoint=https://10.0.0.1").unwrap().is_http_allowed);
    }
}
