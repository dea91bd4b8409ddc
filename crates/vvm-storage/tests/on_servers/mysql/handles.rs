use super::{OPTIONS, server, started};
use crate::{
    driver::{
        TTL, VACANT, age_is_that_of_the_last_write, described, entry, fresh, led,
        login_can_look_but_not_claim, many_create, renewed, storage_that_is_dropped_is_replaced,
        ttl_is_refused_until_the_bound_is_raised,
    },
    is_refused, refused, says,
};
use ielections::WriteError;
use servers::mysql::{Client, MariaDb};
use std::{
    fs,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    sync::{Arc, mpsc},
    thread,
};
use vvm_storage::{
    ElectionKey, OpenErrorKind, Partition, SlotNumber, Step, StepOutcome, SysVvmStorage, init_storage,
    mysql::MySqlStorage,
};

fn address() -> SocketAddr {
    let server = server();
    let (_, place) = server.split_once('@').unwrap();
    place.split_once('/').unwrap().0.parse().unwrap()
}

fn fresh_database() -> (String, String) {
    let name = fresh("database");
    Client::at(address(), "").unwrap().ask(&format!("CREATE DATABASE {name}")).unwrap();
    let server = server();
    let url = format!("{}/{name}?{OPTIONS}", server.rsplit_once('/').unwrap().0);
    (name, url)
}

async fn opened() -> (Client, MySqlStorage, String) {
    let (database, url) = fresh_database();
    init_storage(&url).await.unwrap();
    (Client::at(address(), &database).unwrap(), MySqlStorage::open(&url).await.unwrap(), url)
}

#[tokio::test(flavor = "multi_thread")]
async fn database_that_is_not_ready_is_refused_with_the_way_out() {
    let (database, url) = fresh_database();
    is_refused(&url, OpenErrorKind::Missing, &["vvm init-storage"]).await;
    let mut other = Client::at(address(), &database).unwrap();
    for (comment, engine, part) in [
        ("", "InnoDB", "another program"),
        ("vvm elections, format 2", "InnoDB", "later version"),
        ("vvm elections, format 1", "MyISAM", "ENGINE = InnoDB"),
    ] {
        other.ask("DROP TABLE IF EXISTS sysvvm_leader").unwrap();
        let table = format!("CREATE TABLE sysvvm_leader (a INT) ENGINE = {engine}, COMMENT = '{comment}'");
        other.ask(&table).unwrap();
        says(&init_storage(&url).await.unwrap_err(), &[part]);
        says(&refused(&url).await, &[part]);
    }
    is_refused(&url.replace(&database, "vvm_test_missing"), OpenErrorKind::Refused, &["CREATE DATABASE"])
        .await;
    let silent = "mysql://root@127.0.0.1:1/elections";
    is_refused(silent, OpenErrorKind::Passing, &["no MariaDB or MySQL answers at"]).await;
    is_refused(&url.replace("root@", "root:wrong@"), OpenErrorKind::Refused, &["(1045)"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_may_create_at_once_and_again() {
    many_create(&fresh_database().1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ttl_beyond_the_bound_is_refused_until_the_bound_is_raised() {
    let (_, raised) = fresh_database();
    let plain = raised.replace("max_ttl=86400s", "connections=2");
    ttl_is_refused_until_the_bound_is_raised(&plain, &raised).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn row_that_another_transaction_locks_is_waited_for_one_second() {
    let (mut other, storage, _) = opened().await;
    let (at, held) = led(&storage, TTL).await;
    other.ask("BEGIN").unwrap();
    other.ask("SELECT epoch FROM sysvvm_leader FOR UPDATE").unwrap();
    let renewal = renewed(&storage, &at, &held, 2).await;
    let Err(WriteError::NotApplied(cause)) = renewal else { panic!("{renewal:?}") };
    assert!(cause.to_string().contains("(1205)"), "{cause}");
    // A look waits for no lock.
    assert_eq!(storage.peek(std::slice::from_ref(&at)).await.unwrap()[0].entry(), Some(&held));
    other.ask("COMMIT").unwrap();
    assert_eq!(renewed(&storage, &at, &held, 2).await.unwrap(), StepOutcome::Applied);
}

#[tokio::test(flavor = "multi_thread")]
async fn deadlock_is_not_applied() {
    let (mut other, storage, _) = opened().await;
    let (at, held) = led(&storage, TTL).await;
    for (code, is_unknown) in [("40001", 1213), ("HY000", 1180)] {
        other.ask("DROP TRIGGER IF EXISTS fails").unwrap();
        let failing = format!(
            "CREATE TRIGGER fails BEFORE UPDATE ON sysvvm_leader FOR EACH ROW \
             SIGNAL SQLSTATE '{code}' SET MYSQL_ERRNO = {is_unknown}, MESSAGE_TEXT = 'as the server says it'"
        );
        other.ask(&failing).unwrap();
        let renewal = renewed(&storage, &at, &held, 2).await;
        match is_unknown {
            1213 => assert!(matches!(renewal, Err(WriteError::NotApplied(_))), "{renewal:?}"),
            _ => assert!(matches!(renewal, Err(WriteError::Unknown(_))), "{renewal:?}"),
        }
    }
}

/// Waits until the server's end of the connections from these ports has arrived, and this runtime has learned of it.
async fn ends_have_arrived(ports: &[u16]) {
    let is_open = |line: &str| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let [_, local, _, state, ..] = fields[..] else { return false };
        let port = local.rsplit_once(':').and_then(|(_, port)| u16::from_str_radix(port, 16).ok());
        state == "01" && port.is_some_and(|port| ports.contains(&port))
    };
    while fs::read_to_string("/proc/net/tcp").unwrap().lines().any(is_open) {
        thread::yield_now();
    }
    // It learns of events in their order, and the server greets.
    let later = tokio::net::TcpStream::connect(address()).await.unwrap();
    later.readable().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn connection_that_the_server_ended_is_replaced_without_an_error_and_in_a_write_it_is_unknown() {
    let (mut other, storage, _) = opened().await;
    let (at, held) = led(&storage, TTL).await;
    let ours = "FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()";
    let mut end = |more: &str| -> Vec<u16> {
        let found = other.ask(&format!("SELECT id, host {ours} {more}")).unwrap();
        // It may have ended by itself.
        found.iter().for_each(|row| drop(other.ask(&format!("KILL {}", row[0]))));
        found.iter().map(|row| row[1].rsplit_once(':').unwrap().1.parse().unwrap()).collect()
    };
    let ports = end("");
    assert!(!ports.is_empty());
    ends_have_arrived(&ports).await;
    assert_eq!(renewed(&storage, &at, &held, 2).await.unwrap(), StepOutcome::Applied);
    let mut held = held;
    held.version.write = 2;
    let mut locker = Client::at(address(), "").unwrap();
    locker.ask("BEGIN").unwrap();
    let database = {
        let shown = storage.opened().unwrap().location;
        shown.rsplit_once('/').unwrap().1.to_owned()
    };
    locker.ask(&format!("SELECT epoch FROM {database}.sysvvm_leader FOR UPDATE")).unwrap();
    let storage = Arc::new(storage);
    loop {
        let renewal = tokio::spawn({
            let (storage, at, held) = (Arc::clone(&storage), at.clone(), held.clone());
            async move { renewed(&*storage, &at, &held, 3).await }
        });
        let mut has_ended = false;
        while !renewal.is_finished() {
            has_ended |= !end("AND info LIKE 'UPDATE sysvvm_leader%'").is_empty();
        }
        match renewal.await.unwrap() {
            Err(WriteError::Unknown(_)) if has_ended => break,
            // It waited for the lock in vain before its connection was ended.
            Err(WriteError::NotApplied(cause)) if cause.to_string().contains("(1205)") => {}
            other => panic!("{has_ended}: {other:?}"),
        }
    }
    locker.ask("ROLLBACK").unwrap();
    assert_eq!(storage.read(at).await.unwrap().entry(), Some(&held));
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_that_are_dropped_under_a_handle_are_replaced() {
    let (database, url) = fresh_database();
    let drops = async || {
        let tables = "DROP TABLE sysvvm_leader, sysvvm_history, sysvvm_setting, sysvvm_document";
        Client::at(address(), &database).unwrap().ask(tables).unwrap();
    };
    storage_that_is_dropped_is_replaced(&url, drops).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn view_shows_who_leads_which_slot_of_a_name() {
    let (mut other, storage, _) = opened().await;
    let key = ElectionKey { cluster: "zürich".into(), slot: SlotNumber::FIRST };
    let claim = Step::claim(&VACANT, &entry(5, 1, TTL));
    storage.commit(key.partition(), claim.clone()).await.unwrap();
    // Not a leader, though it has a record.
    storage.commit(Partition::from_bytes(*b"\x03zurich"), claim).await.unwrap();
    let shown = "SELECT name, slot, holder, epoch, ttl_seconds DIV 1, written_at_utc > 0 FROM sysvvm_leaders";
    let seconds = TTL.as_secs().to_string();
    assert_eq!(other.ask(shown).unwrap(), [["zürich", "1", "host", "5", &seconds, "1"]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn age_of_a_record_is_that_of_its_last_write_by_the_servers_clock() {
    let (mut other, storage, _) = opened().await;
    let ages = async || {
        other.ask("UPDATE sysvvm_leader SET written_at = written_at - INTERVAL 1 HOUR").unwrap();
    };
    age_is_that_of_the_last_write(&storage, ages).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn login_with_a_password_that_may_only_read_can_look_but_not_claim() {
    let (mut other, _storage, url) = opened().await;
    let login = fresh("login");
    other.ask(&format!("CREATE USER {login} IDENTIFIED BY 'p/ss'")).unwrap();
    other.ask(&format!("GRANT SELECT ON *.* TO {login}")).unwrap();
    let of_login = url.replace("root@", &format!("{login}:p%2Fss@"));
    login_can_look_but_not_claim(&of_login).await;
    // Until the grants are given that are printed.
    let error = init_storage(&of_login).await.unwrap_err();
    says(&error, &["this login lacks a right", "GRANT SELECT, INSERT, UPDATE, DELETE ON"]);
    let missing = error.to_string().split_once("As an administrator of the database: ").unwrap().1.to_owned();
    other.ask(&missing.replace("'HOST'", "'%'")).unwrap();
    init_storage(&of_login).await.unwrap();
    let replicas = async || described(&of_login).await.setting("replicas").unwrap().to_owned();
    assert!(replicas().await.starts_with("unknown, GRANT PROCESS"));
    other.ask(&format!("GRANT PROCESS ON *.* TO {login}")).unwrap();
    assert_eq!(replicas().await, "0");
    other.ask(&format!("ALTER USER {login} ACCOUNT LOCK")).unwrap();
    is_refused(&of_login, OpenErrorKind::Refused, &["refuses the connection: ", "locked"]).await;
    other.ask(&format!("DROP USER {login}")).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn server_describes_version_and_durability() {
    let described = described(&fresh_database().1).await;
    assert!(described.software.as_deref().unwrap().starts_with("MariaDB 1"), "{described:?}");
    assert_eq!(described.setting("innodb_flush_log_at_trx_commit"), Some("1"));
    assert_eq!(
        (described.setting("largest TTL"), described.setting("generation")),
        (Some("86400000 ms"), Some("1"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn server_that_shows_no_row_unless_it_is_asked_to_is_used() {
    let server = started(&[]);
    server.statement("SET GLOBAL sql_select_limit = 0").unwrap();
    let url = format!("{}?{OPTIONS}", server.url("elections"));
    init_storage(&url).await.unwrap();
    let storage = MySqlStorage::open(&url).await.unwrap();
    let (at, held) = led(&storage, TTL).await;
    assert_eq!(renewed(&storage, &at, &held, held.version.write + 1).await.unwrap(), StepOutcome::Applied);
}

#[tokio::test(flavor = "multi_thread")]
async fn server_that_would_forget_is_refused_and_one_that_begins_to_takes_no_write() {
    for (setting, part) in [
        ("--innodb-flush-log-at-trx-commit=2", "has innodb_flush_log_at_trx_commit = 2"),
        ("--sync-binlog=0", "has sync_binlog = 0"),
        ("--binlog-format=STATEMENT", "has binlog_format = STATEMENT"),
    ] {
        is_refused(&started(&[setting]).url("elections"), OpenErrorKind::Refused, &[part]).await;
    }
    let server = started(&[]);
    let url = format!("{}?{OPTIONS}", server.url("elections"));
    init_storage(&url).await.unwrap();
    let storage = MySqlStorage::open(&url).await.unwrap();
    let (at, mut held) = led(&storage, TTL).await;
    for (setting, safe, unsafe_value) in
        [("read_only", 0, 1), ("sync_binlog", 1, 0), ("innodb_flush_log_at_trx_commit", 1, 2)]
    {
        server.statement(&format!("SET GLOBAL {setting} = {unsafe_value}")).unwrap();
        // On the connection that was checked before, and on the next one.
        for _ in 0..2 {
            let renewal = renewed(&storage, &at, &held, held.version.write + 1).await;
            let is_passing = matches!(renewal, Err(WriteError::NotApplied(_)));
            assert!(is_passing || matches!(renewal, Err(WriteError::Fatal(_))), "{setting}: {renewal:?}");
        }
        server.statement(&format!("SET GLOBAL {setting} = {safe}")).unwrap();
        assert_eq!(
            renewed(&storage, &at, &held, held.version.write + 1).await.unwrap(),
            StepOutcome::Applied
        );
        held.version.write += 1;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_is_used_with_a_server_that_is_who_it_says() {
    let server = MariaDb::start_with_tls(Path::new("../../target"), &["elections"]).unwrap();
    let url = |host: &str, authority: &str| {
        let port = server.address().port();
        format!("mysql://root@{host}:{port}/elections?tls_ca={}", server.certificate(authority).display())
    };
    // Which of them a login is depends on the names that the machine has for itself.
    let mut other = server.client("").unwrap();
    other.ask("ALTER USER root@localhost, root@'127.0.0.1' REQUIRE SSL").unwrap();
    init_storage(&url("localhost", "authority.pem")).await.unwrap();
    for (url, part) in [
        (url("localhost", "stranger.pem"), "correct tls_ca"),
        (url("127.0.0.1", "authority.pem"), "tls_name=NAME"),
        (server.url("elections"), "tls_ca=PATH"),
    ] {
        is_refused(&url, OpenErrorKind::Refused, &[part]).await;
    }
    let plain = started(&[]);
    let authority = server.certificate("authority.pem");
    let url = format!("{}?tls_ca={}", plain.url("elections"), authority.display());
    is_refused(&url, OpenErrorKind::Refused, &["tls=off"]).await;
}

/// As a pooler that passes the server's greeting on, and then gives the client a connection that another one had.
#[tokio::test(flavor = "multi_thread")]
async fn connection_that_a_pooler_exchanges_takes_no_write() {
    let (_, storage, url) = opened().await;
    let (at, held) = led(&storage, TTL).await;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = listener.local_addr().unwrap();
    let (exchange, exchanges) = mpsc::channel::<TcpStream>();
    let pooler = thread::spawn(move || {
        let (client, _) = listener.accept().unwrap();
        let mut behind = TcpStream::connect(address()).unwrap();
        let answers = |behind: &TcpStream| {
            let (mut behind, mut client) = (behind.try_clone().unwrap(), client.try_clone().unwrap());
            thread::spawn(move || drop(std::io::copy(&mut behind, &mut client)))
        };
        let mut answering = vec![(behind.try_clone().unwrap(), answers(&behind))];
        let mut request = [0; 1 << 16];
        while let Ok(length @ 1..) = (&client).read(&mut request) {
            if let Ok(other) = exchanges.try_recv() {
                answering.push((other.try_clone().unwrap(), answers(&other)));
                behind = other;
            }
            behind.write_all(&request[..length]).unwrap();
        }
        for (behind, answers) in answering {
            drop(behind.shutdown(std::net::Shutdown::Both));
            answers.join().unwrap();
        }
    });
    let database = url.rsplit_once('/').unwrap().1;
    let pooled = MySqlStorage::open(&format!("mysql://root@{place}/{database}")).await.unwrap();
    assert_eq!(renewed(&pooled, &at, &held, 2).await.unwrap(), StepOutcome::Applied);
    let database = database.split('?').next().unwrap();
    exchange.send(Client::at(address(), database).unwrap().into_stream()).unwrap();
    let mut second = held.clone();
    second.version.write = 2;
    let renewal = renewed(&pooled, &at, &second, 3).await;
    let Err(WriteError::NotApplied(cause)) = renewal else { panic!("{renewal:?}") };
    assert!(cause.to_string().contains("this connection leads to another server"), "{cause}");
    assert_eq!(storage.read(at).await.unwrap().entry(), Some(&second));
    pooled.close().await;
    pooler.join().unwrap();
}
