use super::*;
use futures_util::FutureExt as _;
use std::fs;
use tempfile::TempDir;

const VERSION: &str = "client.authentication.k8s.io/v1";

struct Login {
    folder: TempDir,
    clock: SystemClock,
    plugin: ExecPlugin,
}

impl Login {
    /// By a shell. `print` prints a status.
    fn by(script: &str, adapted: impl FnOnce(&mut Plugin)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let head =
            r#"{"apiVersion":"VERSION","kind":"ExecCredential","status":{"#.replace("VERSION", VERSION);
        let print = format!("print() {{ printf '%s%s}}}}\n' '{head}' \"$1\"; }}\n");
        let begins = format!("cd '{}'; echo run >> runs\n", folder.path().display());
        let mut plugin = Plugin {
            api_version: VERSION.into(),
            command: "/bin/sh".into(),
            arguments: vec!["-c".into(), begins + &print + script],
            environment: Vec::new(),
            install_hint: "install it".into(),
            cluster: None,
            longest_run: LONGEST_RUN,
            pause: PAUSE,
        };
        adapted(&mut plugin);
        let plugin = ExecPlugin { plugin: Arc::new(plugin), shared: Arc::default(), tasks: Mutex::default() };
        Self { folder, clock: SystemClock::start().unwrap(), plugin }
    }

    async fn token(&self) -> Result<String, OpenError> {
        self.plugin.get(&self.clock).await.map(|credential| credential.token.unwrap())
    }

    fn create(&self, file: &str) {
        fs::write(self.folder.path().join(file), "").unwrap();
    }

    /// Waits until the plug-in has written it.
    async fn written(&self, file: &str) -> String {
        loop {
            if let Ok(text) = fs::read_to_string(self.folder.path().join(file))
                && text.ends_with('\n')
            {
                return text;
            }
            self.clock.sleep(Duration::from_millis(5)).await;
        }
    }

    async fn runs(&self) -> String {
        self.written("runs").await.lines().count().to_string()
    }

    async fn ended(&self, processes: &str) {
        for process in processes.split_whitespace() {
            let stat = format!("/proc/{process}/stat");
            // One that its parent has not reaped is a zombie.
            while fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")) {
                self.clock.sleep(Duration::from_millis(5)).await;
            }
        }
    }
}

#[tokio::test]
async fn slow_plug_in_is_started_once_for_all_requests() {
    let slow = r#"until [ -e go ]; do sleep 0.01; done; print '"token":"t"'"#;
    let login = Login::by(slow, |_| {});
    assert!(login.token().now_or_never().is_none());
    login.written("runs").await;
    assert!(login.token().now_or_never().is_none());
    login.create("go");
    assert_eq!(login.token().await.unwrap(), "t");
    assert_eq!(login.token().await.unwrap(), "t");
    assert_eq!(login.runs().await, "1");
}

/// (I9, I10)
#[tokio::test]
async fn hanging_plug_in_ends_with_its_time_limit_with_close_and_with_the_handle() {
    let hangs = "sleep 1000 & echo $$ $! > processes; wait";
    let login = Login::by(hangs, |plugin| plugin.longest_run = Duration::from_millis(300));
    let error = login.token().await.unwrap_err();
    assert!(error.is_passing() && error.to_string().contains("killed after 300ms"), "{error}");
    login.ended(&login.written("processes").await).await;

    for is_closed in [true, false] {
        let mut login = Login::by(hangs, |_| {});
        assert!(login.token().now_or_never().is_none());
        let processes = login.written("processes").await;
        if is_closed {
            login.plugin.close().await;
            let first = processes.split(' ').next().unwrap();
            assert!(!Path::new("/proc").join(first).exists(), "its end is not waited for");
            assert!(login.token().await.unwrap_err().to_string().contains("closed"));
        } else {
            login.plugin = Login::by("", |_| {}).plugin;
        }
        login.ended(&processes).await;
    }
}

#[tokio::test]
async fn plug_in_that_fails_says_why_and_is_not_started_by_each_request() {
    let table = [
        ("echo s3cret", "no ExecCredential", false),
        ("echo; echo run sso login >&2; exit 3", "it failed: run sso login", true),
        ("yes s3cret; true", "prints more than", false),
        ("exec yes s3cret", "prints more than", false),
        ("yes >&2; exit 1", "it failed: y", true),
        ("print '' | sed s,/v1,/v1beta1,", "it prints no ExecCredential", false),
        ("print ''", "neither a token nor a certificate", false),
        (r#"print '"clientKeyData":"s3cret"'"#, "both are needed", false),
        (r#"print '"token":"s3cret","expirationTimestamp":"soon"'"#, "is no time", false),
        (
            r#"print '"token":"s3cret","expirationTimestamp":"2020-01-01T00:00:00Z"'"#,
            "correct this machine's clock",
            false,
        ),
    ];
    for (script, part, is_passing) in table {
        let login = Login::by(script, |plugin| plugin.pause = Duration::from_secs(3_600));
        for _ in 0..2 {
            let error = login.token().await.unwrap_err();
            let text = error.to_string();
            assert!(text.contains(part) && !text.contains("s3cret"), "{script}: {text}");
            assert_eq!(error.is_passing(), is_passing, "{script}: {text}");
        }
        assert_eq!(login.runs().await, "1", "{script}");
    }
    let login = Login::by("", |plugin| plugin.command = "vvm-no-such-plugin".into());
    let text = login.token().await.unwrap_err().to_string();
    assert!(text.contains("can't be started") && text.contains("install it"), "{text}");
}

/// (I10) The last credential is used meanwhile, whether the plug-in answers or hangs.
#[tokio::test]
async fn credential_is_used_while_the_next_is_made_before_it_expires_and_after_a_refusal() {
    let waits = r#"n=$(wc -l < runs); [ $n = 1 ] || until [ -e go$n ]; do sleep 0.01; done
                   print '"token":"'$n'","expirationTimestamp":"9999-01-01T00:00:00Z"'"#;
    let login = Login::by(waits, |_| {});
    let first = login.plugin.get(&login.clock).await.unwrap();
    let now = login.clock.now();
    login.plugin.shared.state().latest.as_mut().unwrap().life.as_mut().unwrap().renew_at = now;
    for (run, next) in [("1", "2"), ("2", "3")] {
        assert_eq!(login.token().await.unwrap(), run);
        while login.runs().await != next {
            login.clock.sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(login.token().await.unwrap(), run);
        login.create(&format!("go{next}"));
        while login.token().await.unwrap() != next {
            login.clock.sleep(Duration::from_millis(5)).await;
        }
        // A late refusal of another credential changes nothing.
        login.plugin.was_refused(&first);
        assert_eq!((login.token().await.unwrap(), login.runs().await), (next.into(), next.into()));
        login.plugin.was_refused(&login.plugin.get(&login.clock).await.unwrap());
    }
}

#[tokio::test]
async fn certificate_is_renewed_when_a_fifth_of_its_life_is_left() {
    let login = Login::by("", |_| {});
    let json = format!(
        r#"{{"apiVersion":"{VERSION}","kind":"{KIND}","status":{{"clientCertificateData":"c",
           "clientKeyData":"k","expirationTimestamp":"1970-01-01T00:01:50Z"}}}}"#
    );
    let now = login.clock.now();
    let latest = login.plugin.plugin.latest(json.as_bytes(), Duration::from_secs(10), now).unwrap();
    let Lifetime { renew_at, expires_at } = latest.life.unwrap();
    assert_eq!((renew_at.since(now).as_secs(), expires_at.since(now).as_secs()), (80, 100));
    assert!(latest.credential.token.is_none() && latest.credential.own.is_some());
}

#[tokio::test]
async fn plug_in_is_told_of_the_cluster_if_it_wants_to_know() {
    let text = r#"
exec:
  apiVersion: client.authentication.k8s.io/v1beta1
  command: bin/login
  args: [a b, c]
  env: [{name: PROFILE, value: p}]
  provideClusterInfo: true
cluster: {server: "https://a", tls-server-name: b, certificate-authority-data: WA==}
"#;
    let yaml = &yaml_rust2::YamlLoader::load_from_str(text).unwrap()[0];
    let folder = tempfile::tempdir().unwrap();
    let mut plugin = Plugin::of(&yaml["exec"], &yaml["cluster"], folder.path()).unwrap();
    assert_eq!(plugin.command, folder.path().join("bin/login").display().to_string());
    plugin.command = "/bin/sh".into();
    let shows = r#"printf %s "$PROFILE $0 $1 $KUBERNETES_EXEC_INFO" >&2; exit 1"#;
    plugin.arguments.splice(0..0, ["-c".into(), shows.into()]);
    let clock = SystemClock::start().unwrap();
    let error = plugin.run(&clock, &Notify::new()).await.err().unwrap().to_string();
    let (words, info) = error.split_once('{').unwrap();
    assert!(words.ends_with("it failed: p a b c "), "{words}");
    let info: Value = serde_json::from_str(&format!("{{{info}")).unwrap();
    let cluster =
        json!({ "server": "https://a", "tls-server-name": "b", "certificate-authority-data": "WA==" });
    assert_eq!(info["spec"], json!({ "interactive": false, "cluster": cluster }));
}
