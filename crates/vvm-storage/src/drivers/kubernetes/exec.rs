//! [`ExecPlugin`]: the program that logs in for a kubeconfig with `exec`, as EKS and GKE have it.
//!
//! It runs beside the requests, in a task of the handle: a request waits for it no longer than for a connection, and
//! a slow plug-in is not started again by each request that gave up. A credential is renewed while it is still valid,
//! so that a plug-in that hangs delays nothing before it expires (I10). `close` kills it and waits for its end (I9).

use super::credential::{Credential, pem};
use crate::{drivers::tls::Pem, opening::OpenError};
use data_encoding::BASE64;
use jiff::Timestamp;
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Deserialize;
use serde_json::{Value, json};
use std::{
    ffi::OsString,
    path::Path,
    process::Stdio,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    process::{Child, Command},
    sync::Notify,
    task::JoinSet,
};
use vvm_clock::{Clock as _, DisplayDuration, Instant, SystemClock, SystemWallClock, WallClock as _};
use yaml_rust2::Yaml;

/// How long a plug-in may run. Those of clouds ask a server or two, with limits of 10 to 60 s of their own.
const LONGEST_RUN: Duration = Duration::from_secs(30);

/// From one start to the next: a plug-in that fails, or whose credential is refused, is asked no more often.
const PAUSE: Duration = Duration::from_secs(if cfg!(test) { 0 } else { 5 });

/// How long to wait for the end of a plug-in that was killed. Only one that hangs in the kernel takes longer.
const KILLED: Duration = Duration::from_secs(1);

/// A token has a few KiB, and so has a certificate.
const LONGEST_OUTPUT: usize = 1 << 20;

/// What is shown of its last words.
const SHOWN: usize = 300;

pub(super) struct ExecPlugin {
    plugin: Arc<Plugin>,
    shared: Arc<Shared>,
    tasks: Mutex<JoinSet<()>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<LoginState>,
    ended: Notify,
    /// The run has to end.
    stop: Notify,
}

#[derive(Default)]
struct LoginState {
    latest: Option<IssuedCredential>,
    /// Why there is none.
    failure: Option<(bool, String)>,
    is_running: bool,
    is_closed: bool,
    may_start_at: Option<Instant>,
}

struct IssuedCredential {
    credential: Credential,
    /// `None` if it says nothing of its end: it is used until it is refused.
    life: Option<Lifetime>,
    /// It is used until there is another: a server that has just started refuses a valid one, too.
    was_refused: bool,
}

struct Lifetime {
    renew_at: Instant,
    expires_at: Instant,
}

impl ExecPlugin {
    /// Of a user's `exec`. A relative path is one from the `folder` of the kubeconfig.
    pub(super) fn of(exec: &Yaml, cluster: &Yaml, folder: &Path) -> Result<Self, String> {
        let plugin = Arc::new(Plugin::of(exec, cluster, folder)?);
        Ok(Self { plugin, shared: Arc::default(), tasks: Mutex::default() })
    }

    /// Returns a credential that is valid now. The plug-in is started if there is none, or it expires soon.
    /// Dropped, the plug-in goes on, and the next call has its answer.
    pub(super) async fn get(&self, clock: &SystemClock) -> Result<Credential, OpenError> {
        let mut has_waited = false;
        loop {
            let mut ended = std::pin::pin!(self.shared.ended.notified());
            ended.as_mut().enable();
            {
                let mut state = self.shared.state();
                let now = clock.now();
                let is_due =
                    state.latest.as_ref().is_none_or(|IssuedCredential { life, was_refused, .. }| {
                        *was_refused || life.as_ref().is_some_and(|life| now >= life.renew_at)
                    });
                let may_start = state.may_start_at.is_none_or(|at| now >= at);
                // What a run has answered while this call waited is the answer to this call.
                if is_due && may_start && !state.is_running && !state.is_closed && !has_waited {
                    state.is_running = true;
                    state.may_start_at = Some(now.after(self.plugin.pause));
                    self.start(clock.clone());
                }
                let is_valid = |latest: &&IssuedCredential| {
                    latest.life.as_ref().is_none_or(|life| now < life.expires_at)
                };
                if let Some(latest) = state.latest.as_ref().filter(is_valid) {
                    return Ok(latest.credential.clone());
                }
                if !state.is_running {
                    return Err(match &state.failure {
                        Some((true, why)) => OpenError::passing(why),
                        Some((false, why)) => OpenError::refused(why),
                        None => OpenError::passing(self.plugin.failed("its last credential has expired")),
                    });
                }
            }
            ended.await;
            has_waited = true;
        }
    }

    fn start(&self, clock: SystemClock) {
        let (plugin, shared) = (Arc::clone(&self.plugin), Arc::clone(&self.shared));
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            let outcome = plugin.run(&clock, &shared.stop).await;
            let mut state = shared.state();
            state.is_running = false;
            let error = match outcome {
                Ok(latest) => {
                    (state.latest, state.failure) = (Some(latest), None);
                    None
                }
                Err(error) => {
                    state.failure = Some((error.is_passing(), error.to_string()));
                    Some(error)
                }
            };
            drop(state);
            shared.ended.notify_waiters();
            if let Some(error) = error {
                tracing::warn!(%error, "no new credential for Kubernetes");
            }
        });
    }

    /// The server refused it: the next request asks the plug-in for another.
    pub(super) fn was_refused(&self, refused: &Credential) {
        if let Some(latest) = self.shared.state().latest.as_mut().filter(|it| it.credential == *refused) {
            latest.was_refused = true;
        }
    }

    /// Kills the plug-in if it runs, and waits for its end.
    pub(super) async fn close(&self) {
        self.shared.state().is_closed = true;
        self.shared.stop.notify_one();
        let mut tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        while tasks.join_next().await.is_some() {}
    }

    pub(super) fn command(&self) -> &str {
        &self.plugin.command
    }
}

impl Shared {
    /// Each change leaves it whole.
    fn state(&self) -> MutexGuard<'_, LoginState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Plugin {
    api_version: String,
    command: String,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    install_hint: String,
    cluster: Option<ClusterInfo>,
    longest_run: Duration,
    pause: Duration,
}

/// What a plug-in with `provideClusterInfo` is told.
struct ClusterInfo {
    server: String,
    server_name: Option<String>,
    authority: Option<Pem>,
}

impl Plugin {
    fn of(exec: &Yaml, cluster: &Yaml, folder: &Path) -> Result<Self, String> {
        let api_version = exec["apiVersion"].as_str().unwrap_or_default().to_owned();
        if !["v1", "v1beta1"].iter().any(|it| api_version.strip_prefix(GROUP) == Some(it)) {
            return Err(format!(
                "its exec has the apiVersion `{api_version}`: write {GROUP}v1, or {GROUP}v1beta1"
            ));
        }
        if exec["interactiveMode"].as_str() == Some("Always") {
            return Err("its exec needs a terminal (interactiveMode): use another login".into());
        }
        let command = exec["command"].as_str().filter(|command| !command.is_empty());
        let mut command = command.ok_or("its exec has no command")?.to_owned();
        if command.contains('/') {
            command = folder.join(command).display().to_string();
        }
        let list = |name: &str| exec[name].as_vec().into_iter().flatten();
        let text = |value: &Yaml| value.as_str().map(str::to_owned);
        let arguments =
            list("args").map(|argument| text(argument).ok_or("an argument of its exec is no text"));
        let variable = |entry: &Yaml| Some((text(&entry["name"])?, text(&entry["value"])?));
        let environment = list("env")
            .map(|entry| variable(entry).ok_or("a variable of its exec has no name and value of text"));
        let is_told = exec["provideClusterInfo"].as_bool() == Some(true);
        let info = |authority| ClusterInfo {
            server: cluster["server"].as_str().unwrap_or_default().to_owned(),
            server_name: text(&cluster["tls-server-name"]),
            authority,
        };
        let extensions = cluster["extensions"].as_vec().into_iter().flatten();
        if is_told && extensions.filter_map(|it| it["name"].as_str()).any(|name| name == EXTENSION) {
            return Err(format!("its cluster has the extension {EXTENSION}, which is not supported"));
        }
        Ok(Self {
            api_version,
            command,
            arguments: arguments.collect::<Result<_, _>>()?,
            environment: environment.collect::<Result<_, _>>()?,
            install_hint: text(&exec["installHint"]).unwrap_or_default(),
            cluster: is_told.then(|| pem(cluster, folder, "certificate-authority").map(info)).transpose()?,
            longest_run: LONGEST_RUN,
            pause: PAUSE,
        })
    }

    async fn run(&self, clock: &SystemClock, stop: &Notify) -> Result<IssuedCredential, OpenError> {
        let passing = |why: &str| OpenError::passing(self.failed(why));
        let refused = |why: &str| OpenError::refused(self.failed(why));
        let started = Command::new(&self.command)
            .args(&self.arguments)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .env("KUBERNETES_EXEC_INFO", self.info()?)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn();
        let started = started.map_err(|cause| {
            refused(format!("it can't be started ({cause}). {}", self.install_hint).trim_end())
        });
        let mut running = RunningPlugin(started?);
        let output = tokio::select! {
            biased;
            () = stop.notified() => Err("this handle is closed".into()),
            output = running.output() => Ok(output),
            () = clock.sleep(self.longest_run) => {
                Err(format!("it was killed after {}, without an answer", DisplayDuration(self.longest_run)))
            }
        };
        running.end(clock).await;
        let Output { is_success, stdout, stderr } = match output {
            Ok(output) => output.map_err(|cause| passing(&format!("its answer can't be read: {cause}")))?,
            Err(why) => return Err(passing(&why)),
        };
        if stdout.len() > LONGEST_OUTPUT {
            return Err(refused(&format!("it prints more than {LONGEST_OUTPUT} bytes")));
        }
        if !is_success {
            let last = stderr.trim_ascii_end().rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
            let last = String::from_utf8_lossy(last).chars().take(SHOWN).collect::<String>();
            return Err(passing(&format!("it failed: {last}")));
        }
        let answered = SystemWallClock.since_unix_epoch();
        self.latest(&stdout, answered, clock.now()).map_err(|why| refused(&why))
    }

    /// Reads an `ExecCredential`. What is wrong with it shows none of its text, which may be a secret.
    fn latest(&self, stdout: &[u8], since_epoch: Duration, now: Instant) -> Result<IssuedCredential, String> {
        let of_parser = |cause: serde_json::Error| {
            format!("it prints no ExecCredential: line {}, column {}", cause.line(), cause.column())
        };
        let printed: ExecCredential = serde_json::from_slice(stdout).map_err(of_parser)?;
        if printed.api_version != self.api_version || printed.kind != KIND {
            return Err(format!("it prints no {KIND} of {}", self.api_version));
        }
        let ExecStatus { token, client_certificate_data, client_key_data, expiration_timestamp } =
            printed.status;
        let pem = |text: String, field: &str| Pem::Data(text.into(), format!("exec: {field}"));
        let own = match (client_certificate_data, client_key_data) {
            (Some(certificate), Some(key)) => {
                Some((pem(certificate, "clientCertificateData"), pem(key, "clientKeyData")))
            }
            (None, None) => None,
            _ => {
                return Err(
                    "it prints one of clientCertificateData and clientKeyData: both are needed".into()
                );
            }
        };
        let token = token.filter(|token| !token.is_empty());
        if token.is_none() && own.is_none() {
            return Err("it prints neither a token nor a certificate".into());
        }
        let life = |text: String| {
            let at = text.parse::<Timestamp>().map_err(|_| "its expirationTimestamp is no time")?;
            let at = u64::try_from(at.as_millisecond()).map(Duration::from_millis).unwrap_or_default();
            let left = at.checked_sub(since_epoch).filter(|left| !left.is_zero());
            let left =
                left.ok_or("the credential that it prints has expired: correct this machine's clock")?;
            // As Kubernetes renews the tokens of Pods.
            Ok::<_, &str>(Lifetime { renew_at: now.after(left * 4 / 5), expires_at: now.after(left) })
        };
        let life = expiration_timestamp.map(life).transpose()?;
        Ok(IssuedCredential { credential: Credential { token, own }, life, was_refused: false })
    }

    fn info(&self) -> Result<OsString, OpenError> {
        let mut spec = json!({ "interactive": false });
        if let Some(ClusterInfo { server, server_name, authority }) = &self.cluster {
            let mut told = json!({ "server": server });
            if let Some(name) = server_name {
                told["tls-server-name"] = Value::from(&**name);
            }
            if let Some(authority) = authority {
                told["certificate-authority-data"] = BASE64.encode(&authority.read()?).into();
            }
            spec["cluster"] = told;
        }
        let info = json!({ "apiVersion": self.api_version, "kind": KIND, "spec": spec });
        Ok(info.to_string().into())
    }

    fn failed(&self, why: &str) -> String {
        format!("login plug-in `{}` of the kubeconfig: {why}", self.command)
    }
}

const GROUP: &str = "client.authentication.k8s.io/";

const EXTENSION: &str = "client.authentication.k8s.io/exec";

const KIND: &str = "ExecCredential";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExecCredential {
    api_version: String,
    kind: String,
    status: ExecStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExecStatus {
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
    expiration_timestamp: Option<String>,
}

struct Output {
    is_success: bool,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

/// Dropped, it kills the plug-in and what that started, unless it left the process group.
struct RunningPlugin(Child);

impl RunningPlugin {
    async fn output(&mut self) -> std::io::Result<Output> {
        let (stdout, stderr) = (self.0.stdout.take(), self.0.stderr.take());
        let (stdout, stderr) = tokio::join!(read(stdout), read(stderr));
        let is_success = self.0.wait().await?.success();
        Ok(Output { is_success, stdout: stdout?, stderr: stderr? })
    }

    async fn end(&mut self, clock: &SystemClock) {
        self.kill();
        tokio::select! {
            _status = self.0.wait() => {}
            () = clock.sleep(KILLED) => {}
        }
    }

    /// Not after it was reaped: its number may be that of another group by then.
    fn kill(&self) {
        let process = self.0.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        if let Some(process) = process {
            let _has_ended = kill_process_group(process, Signal::KILL);
        }
    }
}

impl Drop for RunningPlugin {
    fn drop(&mut self) {
        self.kill();
    }
}

/// One byte more than is allowed shows that there is more. Then the plug-in finds the pipe closed.
async fn read(stream: Option<impl AsyncRead + Unpin>) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        stream.take(LONGEST_OUTPUT as u64 + 1).read_to_end(&mut bytes).await?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests;
