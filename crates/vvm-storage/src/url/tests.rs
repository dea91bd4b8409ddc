use super::*;

#[test]
fn scheme_and_place_are_parsed() {
    let file = |url: &str| {
        let place = parse(url).unwrap();
        (place.scheme.feature, place.path.to_owned(), place.allows_overlay, place.for_group)
    };
    for path in ["elections.db", "/var/lib/a b.db", "../x:y", "./a", "C:", " ", "ä%20#"] {
        assert_eq!(file(&format!("sqlite:{path}")), ("sqlite", path.into(), false, false));
        assert_eq!(file(&format!("sled:{path}")), ("sled", path.into(), false, false));
        let both = format!("sqlite:{path}?allow=overlay&mode=0660");
        assert_eq!(file(&both), ("sqlite", path.into(), true, true));
    }
    assert_eq!(file("sled:///var/lib/a").1, "/var/lib/a");
    let slashes = file("sqlite:///var/lib/a.db?mode=0660");
    assert_eq!(slashes, ("sqlite", "/var/lib/a.db".into(), false, true));
    for (url, feature) in [
        ("mem:", "mem"),
        ("scylla://host1,host2:9042/keyspace?datacenter=dc1", "scylla"),
        ("postgresql://me@host/db", "postgres"),
        ("postgres://me@host/db", "postgres"),
        ("mysql://me@host/db", "mysql"),
        ("mariadb://me@host/db", "mysql"),
        ("etcd://host/vvm", "etcd"),
        ("k8s://default", "kubernetes"),
        ("dynamodb://eu-west-1/elections?endpoint=http://localhost:8000", "dynamodb"),
        ("s3://bucket/elections?region=eu-west-1", "object-store"),
        ("gs://bucket/a", "object-store"),
        ("az://container/a?account=b", "object-store"),
    ] {
        assert_eq!(parse(url).unwrap().scheme.feature, feature, "{url}");
    }
}

#[tokio::test]
async fn driver_of_this_build_is_found() {
    let clock: Arc<dyn Clock> = Arc::new(vvm_clock::SystemClock::start().unwrap());
    for scheme in SCHEMES.iter().filter(|scheme| !matches!(scheme.feature, "mem" | "sled" | "sqlite")) {
        // No driver takes a URL with nothing behind the scheme.
        let error = open(&format!("{}://", scheme.name), Arc::clone(&clock)).await.expect_err(scheme.name);
        let is_left_out = error.to_string().contains(&format!("feature `{}`", scheme.feature));
        assert_eq!(is_left_out, !scheme.is_here, "{error}");
        assert!(error.is_misuse(), "{error}");
    }
}

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

#[test]
fn only_a_file_with_content_exists() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("elections.db");
    let url = format!("sqlite:{}", path.display());
    assert!(!exists("mem:").unwrap());
    assert!(!exists(&url).unwrap());
    std::fs::write(&path, "").unwrap();
    assert!(!exists(&url).unwrap());
    std::fs::write(&path, "not a database, which opening reports").unwrap();
    assert!(exists(&url).unwrap());
    assert!(exists("elections.db").is_err());
    let folder = format!("sled:{}", folder.path().display());
    assert!(!exists(&folder).unwrap());
    std::fs::write(path.with_file_name("db"), "sled's").unwrap();
    assert!(exists(&folder).unwrap());
}

#[test]
fn sharing_is_known_before_opening() {
    assert!(shared_between_processes("sqlite:elections.db").unwrap());
    assert!(shared_between_processes("scylla://host/keyspace").unwrap());
    assert!(shared_between_processes("dynamodb://eu-west-1/table").unwrap());
    for alone in ["mem:", "sled:folder"] {
        assert!(!shared_between_processes(alone).unwrap(), "{alone}");
    }
    assert!(shared_between_processes("elections.db").is_err());
}

#[test]
fn refusal_names_the_mistake_and_the_way_out() {
    let table = [
        ("", "write `sqlite:PATH` for a file (this build has "),
        ("elections.db", "/elections.db` for a file"),
        ("/var/lib/a:b.db", "write `sqlite:/var/lib/a:b.db` for a file"),
        (":memory:", "this build has "),
        ("mem:name", "write `mem:`"),
        ("mem://", "write `mem:`"),
        ("sqlite:", "the path is missing"),
        ("sqlite::memory:", "write `mem:`"),
        ("sqlite:?allow=overlay", "the path is missing"),
        ("sqlite:a.db?cache=shared", "no option `cache`; there are allow and mode"),
        ("sqlite:a.db?allow", "write allow=VALUE"),
        ("sled:", "the path is missing"),
        ("sled://host/elections", "write `sled:/var/lib/vvm/elections`"),
        ("sled:elections?mode=rw", "takes no options"),
        ("sqlite://host/elections.db", "write `sqlite:/var/lib/vvm/elections.db`"),
        ("sqlite:a.db?mode=0644", "mode=0600 or mode=0660"),
        ("sqlite:a.db?allow=nfs", "write allow=overlay"),
        ("sqlite:a?b.db?allow=overlay", "a path can't contain a `?`"),
        ("sqlit:a.db", "no storage `sqlit:`: this build has "),
        ("SQLITE:a.db", "no storage `SQLITE:`: this build has "),
        ("oracle://host/database", "no storage `oracle:`"),
    ];
    for (url, part) in table {
        let error = parse(url).err().unwrap().to_string();
        assert!(error.contains(part), "{url}: {error}");
    }
}

/// Every refusal of a URL with a planted secret, with each driver of this build. No server is contacted.
#[tokio::test]
async fn no_refusal_shows_a_secret() {
    const SECRET: &str = "hunter2";
    let urls = [
        "dynamodb://KEY:hunter2@eu-west-1/table",
        "dynamodb://hunter2@eu-west-1",
        "dynamodb://eu-west-1/table?password=hunter2",
        "dynamodb://eu-west-1/table?pass=hunter2",
        "dynamodb://eu-west-1/table?pwd=hunter2",
        "dynamodb://eu-west-1/table?secret_access_key=hunter2",
        "dynamodb://eu-west-1/table?endpoint=http://KEY:hunter2@host",
        "dynamodb://eu-west-1/table?endpoint=ftp://KEY:hunter2@host",
        "dynamodb://eu-west-1/table?endpoint=http://host&token=x&hunter2",
        "s3://KEY:hunter2@bucket/elections",
        "s3://bucket/elections?secret_access_key=hunter2",
        "s3://bucket/elections?endpoint=https://KEY:hunter2@host",
        "gs://bucket/elections?key=hunter2",
        "az://container/elections?account=a&sas=hunter2",
        "scylla://vvm:hunter2@host/keyspace",
        "scylla://vvm:a@hunter2@host",
        "scylla://vvm:a?hunter2@host/keyspace",
        "scylla://host/keyspace?password=hunter2",
        "scylla://host/keyspace?pass=hunter2",
        "scylla://host/keyspace?pwd=a&hunter2",
        "scylla://host/keyspace?user=vvm&passwd=hunter2",
        "scylla:vvm:hunter2@host/keyspace",
        "etcd://me:hunter2@host/vvm",
        "etcd://me:a,hunter2@host/vvm",
        "etcd://me:a/hunter2@host/vvm",
        "etcd://host/vvm?user=me&hunter2",
        "k8s://me:hunter2@ns",
        "k8s://hunter2@ns",
        "k8s://me:a?context=hunter2@ns",
        "k8s://ns?token=hunter2",
        "k8s://ns?context=a@b&hunter2@c",
        "k8s://ns?context=a@b&server=https://me:hunter2@host",
        "k8s://ns?server=https://me:hunter2@host",
        "k8s://ns?request_timeout=5s&hunter2",
        "mysql://me:hunter2@host",
        "mysql://me:a?hunter2@host/db",
        "mysql://me:a/hunter2@host:x/db",
        "mariadb://me:hunter2@host/db?ssl=hunter2",
        "mysql:me:hunter2@host/db",
        "postgres://me:a?b=hunter2@host/db",
        "postgres://me:hunter2@@host:x/db",
        "postgres://me:hunter2@host/db?x&hunter2",
        "gs://KEY:hunter2@bucket/elections",
        "az://me:hunter2@container/elections",
        "az://container/elections?account=a&hunter2",
        "etcd://host/vvm?password=hunter2",
        "etcd://host/vvm?user=vvm&passwd=hunter2",
        "postgres://me:hunter2@host/db?x=1",
        "postgresql://me:hunter2%@host/db",
        "postgres://me@host/db?pass=hunter2",
        "postgres://me@host/db?password=hunter2&x=1",
        "unknown://me:hunter2@host/db",
        "me:hunter2@host/db",
        "//me:hunter2@host/db",
        "mem://me:hunter2@x",
        "sled:a?key=hunter2",
        "sled://me:hunter2@host/a",
        "sqlite:a.db?key=hunter2",
        "sqlite://me:hunter2@host/a.db",
    ];
    let clock: Arc<dyn Clock> = Arc::new(vvm_clock::SystemClock::start().unwrap());
    for url in urls {
        let error = open(url, Arc::clone(&clock)).await.expect_err(url);
        assert!(error.is_misuse(), "{url}: {error}");
        let mut said = format!("{error} {error:?} {}", init_storage(url).await.expect_err(url));
        if let Err(error) = shared_between_processes(url) {
            said += &error.to_string();
        }
        assert!(!said.contains(SECRET), "{url}: {said}");
    }
}

#[test]
fn relative_path_means_a_file_in_the_current_folder() {
    let here = std::env::current_dir().unwrap();
    assert_eq!(meaning_of_relative_path("sqlite:a/b.db?mode=0660"), Some(here.join("a/b.db")));
    for url in ["sqlite:/a/b.db", "sqlite:///a/b.db", "mem:", "postgres://host/db", "sqlite:", "b.db"] {
        assert_eq!(meaning_of_relative_path(url), None, "{url}");
    }
}
