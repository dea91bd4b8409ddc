//! One context of a kubeconfig, and the [`Credential`] of its user. A Pod's token file is replaced, so it is reread.

use super::{
    credential::{Credential, pem},
    exec::ExecPlugin,
};
use crate::{
    drivers::tls::{ExpectedName, Tls},
    opening::OpenError,
};
use std::{
    fmt, fs,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use vvm_clock::{Clock, Instant, SystemClock};
use yaml_rust2::{Yaml, YamlLoader};

#[derive(Debug)]
pub(super) struct ContextSettings {
    pub(super) context: String,
    pub(super) server: String,
    pub(super) server_name: Option<String>,
    pub(super) tls: Tls,
    pub(super) token: Token,
}

/// Paths in the file are relative to its `folder`. Errors show no secret.
pub(super) fn find(text: &str, folder: &Path, context: Option<&str>) -> Result<ContextSettings, String> {
    let documents = YamlLoader::load_from_str(text).map_err(|error| format!("no YAML: {}", error.info()))?;
    let config = documents.first().ok_or("it is empty")?;
    let current = config["current-context"].as_str().filter(|name| !name.is_empty());
    let context = context.or(current).ok_or("it has no current-context: write context=NAME")?;
    let named = |list: &str, name: &str| {
        let entries = config[list].as_vec().into_iter().flatten();
        let mut entries = entries.filter(|entry| entry["name"].as_str() == Some(name));
        entries.next().ok_or_else(|| format!("it has no `{name}` among its {list}"))
    };
    let uses = &named("contexts", context)?["context"];
    let cluster = uses["cluster"].as_str().ok_or_else(|| format!("context `{context}` names no cluster"))?;
    let cluster = &named("clusters", cluster)?["cluster"];
    let no_user = Yaml::BadValue;
    let user = match uses["user"].as_str().filter(|user| !user.is_empty()) {
        Some(user) => &named("users", user)?["user"],
        None => &no_user,
    };
    refuse(cluster, user)?;
    let server = cluster["server"].as_str().ok_or("its cluster names no server")?;
    let own = match (pem(user, folder, "client-certificate")?, pem(user, folder, "client-key")?) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        _ => return Err("its user has one of client-certificate and client-key: both are needed".into()),
    };
    let authority = pem(cluster, folder, "certificate-authority")?;
    Ok(ContextSettings {
        context: context.to_owned(),
        server: server.to_owned(),
        server_name: cluster["tls-server-name"].as_str().map(str::to_owned),
        tls: Tls { authority, names: ExpectedName::OfAddress, own },
        token: token(user, cluster, folder)?,
    })
}

fn refuse(cluster: &Yaml, user: &Yaml) -> Result<(), String> {
    if cluster["insecure-skip-tls-verify"].as_bool() == Some(true) {
        return Err("insecure-skip-tls-verify lets any machine answer for the API server: remove it, and \
                    name the authority with certificate-authority"
            .into());
    }
    if !cluster["proxy-url"].is_badvalue() {
        return Err("proxy-url is not supported: name a server that is reached without a proxy".into());
    }
    let unsupported = ["auth-provider", "username"].into_iter().find(|method| !user[*method].is_badvalue());
    match unsupported {
        Some(method) => Err(format!(
            "its user logs in with `{method}`, which is not supported: use exec, a token, a tokenFile or a \
             client certificate (`kubectl create token` makes a token)"
        )),
        None => Ok(()),
    }
}

/// kubectl prefers the file, and both to a plug-in.
fn token(user: &Yaml, cluster: &Yaml, folder: &Path) -> Result<Token, String> {
    Ok(match (user["tokenFile"].as_str(), user["token"].as_str(), &user["exec"]) {
        (Some(path), ..) => Token::File(folder.join(path).into()),
        (None, Some(token), _) => Token::Is(token.to_owned()),
        (None, None, Yaml::BadValue | Yaml::Null) => Token::None,
        (None, None, exec) => Token::Plugin(ExecPlugin::of(exec, cluster, folder)?),
    })
}

/// For how long a token that was read is used. Kubernetes replaces one when a fifth of its life is left.
const READ_AGAIN: Duration = Duration::from_secs(60);

pub(super) enum Token {
    /// The user has a certificate, or nothing.
    None,
    Is(String),
    File(TokenFile),
    Plugin(ExecPlugin),
}

pub(super) struct TokenFile {
    path: PathBuf,
    read: Mutex<Option<(String, Instant)>>,
}

impl From<PathBuf> for TokenFile {
    fn from(path: PathBuf) -> Self {
        Self { path, read: Mutex::default() }
    }
}

impl Token {
    /// May be dropped and called again at will.
    pub(super) async fn get(&self, clock: &SystemClock) -> Result<Credential, OpenError> {
        let token = match self {
            Self::None => None,
            Self::Is(token) => Some(token.clone()),
            Self::File(file) => Some(file.get(clock)?),
            Self::Plugin(plugin) => return plugin.get(clock).await,
        };
        Ok(Credential { token, own: None })
    }

    /// The server refused it: the next request reads the file again, or asks the plug-in.
    pub(super) fn was_refused(&self, refused: &Credential) {
        match self {
            Self::None | Self::Is(_) => {}
            Self::File(file) => *file.read() = None,
            Self::Plugin(plugin) => plugin.was_refused(refused),
        }
    }
}

impl TokenFile {
    /// The file is read at most once a minute, unless the token was refused.
    fn get(&self, clock: &SystemClock) -> Result<String, OpenError> {
        let mut read = self.read();
        let now = clock.now();
        if let Some((token, since)) = &*read
            && now.since(*since) < READ_AGAIN
        {
            return Ok(token.clone());
        }
        let text = fs::read_to_string(&self.path).map_err(|cause| unusable(&self.path, cause))?;
        let token = text.trim().to_owned();
        if token.is_empty() {
            return Err(unusable(&self.path, "it is empty"));
        }
        *read = Some((token.clone(), now));
        Ok(token)
    }

    fn read(&self) -> MutexGuard<'_, Option<(String, Instant)>> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => out.write_str("no token"),
            Self::Is(_) => out.write_str("a token"),
            Self::File(file) => write!(out, "the token in {}", file.path.display()),
            Self::Plugin(plugin) => write!(out, "the login plug-in {}", plugin.command()),
        }
    }
}

pub(super) fn unusable(path: &Path, why: impl fmt::Display) -> OpenError {
    OpenError::refused(format!("{} can't be used: {why}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drivers::tls::Pem;

    const CONFIG: &str = r#"
apiVersion: v1
kind: Config
current-context: prod
clusters:
- name: a
  cluster: {server: "https://a:6443", certificate-authority: pki/ca.crt, tls-server-name: kubernetes}
- name: b
  cluster:
    server: https://b
    certificate-authority-data: WA==
contexts:
- context:
    cluster: a
    user: certified
    namespace: ignored
  name: prod
- {name: test, context: {cluster: b, user: token}}
- {name: file, context: {cluster: b, user: file}}
- {name: helper, context: {cluster: b, user: helper}}
- {name: old, context: {cluster: b, user: old}}
- {name: half, context: {cluster: b, user: half}}
- {name: lost, context: {cluster: c, user: half}}
users:
- {name: certified, user: {client-certificate: /c.crt, client-key-data: WA==}}
- {name: token, user: {token: secret}}
- {name: file, user: {token: other, tokenFile: t}}
- {name: helper, user: {auth-provider: {name: gcp}}}
- {name: old, user: {exec: {command: aws, apiVersion: client.authentication.k8s.io/v1alpha1}}}
- {name: half, user: {client-certificate: /c.crt}}
"#;

    fn found(context: Option<&str>) -> Result<ContextSettings, String> {
        find(CONFIG, Path::new("/k"), context)
    }

    #[test]
    fn current_context_or_another_is_found() {
        let current = found(None).unwrap();
        assert_eq!((&*current.context, &*current.server), ("prod", "https://a:6443"));
        assert_eq!(current.server_name.as_deref(), Some("kubernetes"));
        let key = Pem::Data(b"X".into(), "client-key-data".into());
        let own = Some((Pem::File("/c.crt".into()), key));
        let authority = Some(Pem::File("/k/pki/ca.crt".into()));
        assert_eq!(current.tls, Tls { authority, names: ExpectedName::OfAddress, own });
        assert!(matches!(current.token, Token::None));
        let test = found(Some("test")).unwrap();
        assert!(matches!(&test.token, Token::Is(token) if token == "secret"));
        assert!(matches!(&test.tls.authority, Some(Pem::Data(data, _)) if data == b"X"));
        assert!(matches!(found(Some("file")).unwrap().token, Token::File(_)));
    }

    #[test]
    fn refusal_says_what_to_do() {
        for (context, part) in [
            ("helper", "kubectl create token"),
            ("old", "k8s.io/v1beta1"),
            ("half", "both are needed"),
            ("lost", "no `c` among its clusters"),
            ("none", "no `none` among its contexts"),
        ] {
            let why = found(Some(context)).unwrap_err();
            assert!(why.contains(part), "{context}: {why}");
        }
        for (text, part) in [
            ("", "it is empty"),
            ("a: [", "no YAML"),
            ("clusters: []", "context=NAME"),
            ("[]", "context=NAME"),
        ] {
            let why = find(text, Path::new("/k"), None).unwrap_err();
            assert!(why.contains(part), "{text}: {why}");
        }
        let insecure = CONFIG.replace("tls-server-name: kubernetes", "insecure-skip-tls-verify: true");
        assert!(find(&insecure, Path::new("/k"), None).unwrap_err().contains("certificate-authority"));
    }

    #[test]
    fn file_is_read_again_after_a_refusal_and_not_before_a_minute() {
        let clock = SystemClock::start().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let token = TokenFile::from(path.clone());
        assert!(token.get(&clock).unwrap_err().to_string().contains("token can't be used"));
        fs::write(&path, "one\n").unwrap();
        assert_eq!(token.get(&clock).unwrap(), "one");
        fs::write(&path, "two\n").unwrap();
        assert_eq!(token.get(&clock).unwrap(), "one");
        let token = Token::File(token);
        token.was_refused(&Credential { token: None, own: None });
        let Token::File(file) = &token else { unreachable!() };
        assert_eq!(file.get(&clock).unwrap(), "two");
        assert!(!format!("{token:?}").contains("two"));
    }
}
