//! On a server that the runner starts. Its users are the contexts of its kubeconfig.

use super::{fresh, namespace, option, try_kubectl};
use crate::{is_refused, refused, says};
use ielections::ReadError;
use std::path::PathBuf;
use vvm_storage::{KEY_PREFIX_VVM_LEADER, OpenErrorKind, Partition, Step, SysVvmStorage as _, init_storage};

const RULES: &str = include_str!("../../../../../packaging/kubernetes/base/rbac.yaml");

const FLOW_SCHEMA: &str = include_str!("../../../../../packaging/kubernetes/flow-schema.yaml");

const KUSTOMIZATIONS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/kubernetes");

fn kubeconfig() -> PathBuf {
    option("kubeconfig").unwrap().into()
}

fn url(context: &str) -> String {
    format!("k8s://{}?kubeconfig={}&context={context}", namespace(), kubeconfig().display())
}

fn allow(user: &str) {
    let subject = format!("kind: User\n    apiGroup: rbac.authorization.k8s.io\n    name: {user}");
    let rules = RULES.replace("kind: ServiceAccount\n    name: payroll", &subject);
    assert!(rules.contains(&subject), "the subject has another form");
    // Another test may apply the same.
    let rules = rules.replace("name: vvm-leases", &format!("name: vvm-leases-{user}"));
    println!("{}", try_kubectl(&["apply", "-f", "-"], &rules).unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn user_without_a_role_is_told_which() {
    let error = refused(&url("stranger")).await;
    assert_eq!(error.kind(), OpenErrorKind::Refused, "{error:?}");
    says(&error, &["kubernetes/base/rbac.yaml", "get, create, update", "stranger"]);
    assert_eq!(init_storage(&url("stranger")).await.unwrap_err().to_string(), error.to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn shipped_rules_are_enough_by_token_and_by_certificate() {
    for user in ["worker", "client"] {
        allow(user);
        // The API server learns of a role a moment later.
        while let Err(error) = init_storage(&url(user)).await {
            says(&error, &["denies"]);
        }
        let storage = super::open(&url(user)).await;
        let described = storage.describe().await.unwrap();
        println!("{described:#?}");
        assert!(described.software.unwrap().starts_with("Kubernetes v"));
        assert_eq!(described.concerns, [""; 0]);
        let slot = [&[KEY_PREFIX_VVM_LEADER], fresh().as_bytes(), &[0, 0, 0, 1]].concat();
        storage.commit(Partition::from_bytes(slot), Step::settle(b"")).await.unwrap();
        storage.close().await;
        assert!(matches!(storage.read(Partition::from_bytes(*b"")).await, Err(ReadError::Fatal(_))));
    }
}

#[test]
fn shipped_kustomizations_are_accepted_and_use_the_service_account_of_the_rules() {
    let created = "apiVersion: v1\nkind: Namespace\nmetadata: {name: payroll}\n";
    for text in [FLOW_SCHEMA, created] {
        println!("{}", try_kubectl(&["apply", "--validate=strict", "-f", "-"], text).unwrap());
    }
    for (folder, namespace) in [("base", &*namespace()), ("overlays/production", "payroll")] {
        let there = |arguments: &[&str], input: &str| {
            try_kubectl(&[&["--namespace", namespace], arguments].concat(), input)
        };
        let rendered = there(&["kustomize", &format!("{KUSTOMIZATIONS}/{folder}")], "").unwrap();
        println!("{}", there(&["apply", "--validate=strict", "-f", "-"], &rendered).unwrap());
        let account = "jsonpath={.spec.template.spec.serviceAccountName}";
        let account = there(&["get", "deployment/payroll", "-o", account], "").unwrap();
        let can = format!("--as=system:serviceaccount:{namespace}:{account}");
        for verb in ["get", "create", "update", "list", "watch"] {
            let said = there(&["auth", "can-i", verb, "leases", &can], "");
            assert_eq!(said.as_deref().map(str::trim), Ok("yes"), "{verb} in {namespace}");
        }
        let said = there(&["auth", "can-i", "delete", "leases", &can], "");
        assert!(said.is_err(), "more than is needed");
    }
}

/// Rendered without helm, and by it, if it is installed. The server only checks it, and changes no object.
#[test]
fn shipped_chart_is_accepted() {
    let mut charts = vec![harness::rendered_chart("payroll")];
    let chart = format!("{KUSTOMIZATIONS}/../helm");
    let arguments = ["template", "payroll", &chart, "--namespace", &namespace()];
    match std::process::Command::new("helm").args(arguments).output() {
        Ok(rendered) => charts.push(String::from_utf8(rendered.stdout).unwrap()),
        Err(missing) => println!("not rendered by helm, which is missing: {missing}"),
    }
    let apply =
        ["apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict", "-f", "-"];
    for chart in charts {
        let accepted = try_kubectl(&apply, &chart).unwrap();
        assert_eq!(accepted.lines().count(), chart.matches("\nkind: ").count(), "{accepted}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn namespace_that_does_not_exist_is_named() {
    let url = url("admin").replacen(&format!("//{}?", namespace()), "//nowhere-at-all?", 1);
    let error = init_storage(&url).await.unwrap_err();
    assert_eq!(refused(&url).await.to_string(), error.to_string());
    says(&error, &["namespaces \"nowhere-at-all\" not found", "create it"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_token_authority_and_context_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(kubeconfig()).unwrap();
    let authority = kubeconfig().with_file_name("authority.pem").display().to_string();
    let at = |name: &str, text: String| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        format!("k8s://default?kubeconfig={}", path.display())
    };
    let absolute = text.replace("authority.pem", &authority);
    let token = at("token", absolute.replace("token: secret", "token: guessed"));
    let error = refused(&token).await;
    says(&error, &["does not accept our credentials"]);
    assert!(!error.to_string().contains("guessed"), "{error}");
    let strange = kubeconfig().with_file_name("stranger.pem").display().to_string();
    let strange = at("authority", absolute.replace(&authority, &strange));
    is_refused(&strange, OpenErrorKind::Refused, &["no TLS with"]).await;
    let other = format!("{}&context=none", at("context", absolute));
    says(&refused(&other).await, &["no `none` among its contexts"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn login_plug_in_gives_the_token() {
    let folder = tempfile::tempdir().unwrap();
    let printed = r#"{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"secret"}}"#;
    let exec =
        format!("exec: {{apiVersion: client.authentication.k8s.io/v1, command: echo, args: ['{printed}']}}");
    let text = std::fs::read_to_string(kubeconfig()).unwrap().replace("token: secret", &exec);
    let authority = kubeconfig().with_file_name("authority.pem").display().to_string();
    let path = folder.path().join("config");
    std::fs::write(&path, text.replace("authority.pem", &authority)).unwrap();
    let url = format!("k8s://{}?kubeconfig={}&context=admin", namespace(), path.display());
    let storage = super::open(&url).await;
    assert_eq!(storage.describe().await.unwrap().concerns, [""; 0]);
    storage.close().await;
}
