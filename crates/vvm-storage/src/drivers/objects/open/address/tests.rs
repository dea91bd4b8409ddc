//! URLs of object stores.

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
