//! The files in `packaging/`: the systemd unit with its hardening, and the Kubernetes example.

use crate::VVM;
use std::{fs, path::PathBuf, process::Command};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../packaging")
}

fn shipped(name: &str) -> String {
    fs::read_to_string(folder().join(name)).unwrap()
}

/// Returns a setting of the unit.
fn setting<'unit>(unit: &'unit str, name: &str) -> &'unit str {
    let mut found = unit.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    let value = found.next().unwrap_or_else(|| panic!("no {name}"));
    assert!(found.next().is_none(), "{name} twice");
    value
}

#[test]
fn unit_has_the_settings_that_vvm_needs() {
    let unit = shipped("vvm@.service");
    for (name, value) in [
        ("Type", "notify"),
        ("NotifyAccess", "main"),
        ("KillMode", "mixed"),
        ("Delegate", "yes"),
        ("RestartPreventExitStatus", "64 78"),
        ("SuccessExitStatus", "143"),
    ] {
        assert_eq!(setting(&unit, name), value, "{name}");
    }
    // Longer than the default stop timeout of the command (8 s), or systemd would kill it during a clean
    // stop.
    assert!(setting(&unit, "TimeoutStopSec").parse::<u32>().unwrap() > 8);
}

/// Checked by systemd, if it is installed.
#[test]
fn unit_passes_systemd_analyze_verify() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("vvm@payroll.service");
    let hardening = folder.path().join("vvm@.service.d/hardening.conf");
    fs::create_dir(hardening.parent().unwrap()).unwrap();
    fs::write(&hardening, shipped("hardening.conf")).unwrap();
    let unit = shipped("vvm@.service").replace("/usr/bin/vvm", VVM.path());
    fs::write(&path, &unit).unwrap();
    let verify = |path: &PathBuf| {
        let output = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(path).output()?;
        std::io::Result::Ok((output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned()))
    };
    match verify(&path) {
        Ok((holds, said)) => {
            assert!(holds && said.is_empty(), "{said}");
            // A misspelled setting is reported, so the check works.
            fs::write(&path, unit.replace("KillMode=mixed", "KillMode=mixd")).unwrap();
            let (_, said) = verify(&path).unwrap();
            assert!(said.contains("mixd"), "{said}");
            fs::write(&path, &unit).unwrap();
            let security = ["security", "--offline=true", "--threshold=50", "--no-pager"];
            let rated = Command::new("systemd-analyze").args(security).arg(&path).output().unwrap();
            assert!(rated.status.success(), "{}", String::from_utf8_lossy(&rated.stdout));
            fs::write(&hardening, shipped("hardening.conf").replace("=strict", "=strickt")).unwrap();
            let (_, said) = verify(&path).unwrap();
            assert!(said.contains("strickt"), "the drop-in is not read: {said}");
        }
        Err(missing) => {
            println!("not checked: systemd-analyze is missing: {missing}")
        }
    }
}

/// Rendered by kubectl, if it is installed. `cargo xtask test-drivers --only kubernetes` applies the result.
#[test]
fn overlay_changes_namespace_and_image_and_pods_mount_the_settings_of_their_contents() {
    let overlay = folder().join("kubernetes/overlays/production");
    match Command::new("kubectl").arg("kustomize").arg(overlay).output() {
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            let rendered = String::from_utf8(output.stdout).unwrap();
            // Two deployments, services and sets of settings; account, role, and twice in its binding.
            assert_eq!(rendered.matches("\n  namespace: payroll\n").count(), 10, "{rendered}");
            for settings in ["payroll-", "payroll-router-"] {
                let mounted = format!("configMap:\n          name: {settings}");
                let (_, rest) = rendered.split_once(&mounted).unwrap();
                let name = format!("  name: {settings}{}", rest.lines().next().unwrap());
                assert!(rendered.contains(&format!("kind: ConfigMap\nmetadata:\n{name}\n")), "{name}");
            }
            assert!(rendered.contains("image: registry.example/payroll:1\n"), "{rendered}");
        }
        Err(missing) => println!("not checked: kubectl is missing: {missing}"),
    }
}

/// The liveness probe needs at least one TTL to fail. So a leader that hangs is ended at its deadline, which
/// logs the reason.
#[test]
fn probes_and_proxy_use_paths_that_vvm_answers() {
    let files = ["base/vvm.toml", "base/deployment.yaml", "router/haproxy.cfg"];
    let example = files.map(|file| shipped(&format!("kubernetes/{file}"))).concat();
    let number = |before: &str| {
        let mut found = example.split(before).skip(1);
        let behind = found.next().unwrap_or_else(|| panic!("no {before:?}"));
        let digits = behind.chars().take_while(char::is_ascii_digit).collect::<String>();
        (digits.parse::<u32>().unwrap(), found.next().is_none())
    };
    let (port, once) = number("http = \"0.0.0.0:");
    assert!(once);
    assert_eq!(number("{ name: vvm, containerPort: "), (port, true));
    assert_eq!(number("check port "), (port, true));
    assert_eq!(example.matches(", port: vvm }").count(), 2);
    for asked in ["readinessProbe:\n            httpGet: { path: /readyz,", "GET /leader\n"] {
        assert!(example.contains(asked), "{asked}");
    }
    let (_, liveness) = example.split_once("livenessProbe:").unwrap();
    let of_liveness =
        |key: &str| liveness.split(key).nth(1).unwrap().split_whitespace().next().unwrap().parse::<u32>();
    let patience = of_liveness("periodSeconds: ").unwrap() * of_liveness("failureThreshold: ").unwrap();
    assert!(patience >= number("ttl = \"").0, "{patience} s");
}
