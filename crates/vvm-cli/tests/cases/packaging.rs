//! The files in `packaging/`: the systemd unit with its hardening, the Kubernetes example, and alerts and
//! dashboard for Prometheus, beside what a real leader exposes, and in promtool.

use super::http::{answer, start};
use crate::VVM;
use harness::{eventually, rendered_chart};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
    process::Command,
};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../packaging")
}

fn shipped(name: &str) -> String {
    fs::read_to_string(folder().join(name)).unwrap()
}

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
}

#[test]
fn unit_passes_systemd_analyze_verify() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("vvm@payroll.service");
    let hardening = folder.path().join("vvm@.service.d/hardening.conf");
    fs::create_dir(hardening.parent().unwrap()).unwrap();
    fs::write(&hardening, shipped("hardening.conf")).unwrap();
    let unit = shipped("vvm@.service").replace("/usr/bin/vvm", &format!("\"{}\"", VVM.path()));
    fs::write(&path, &unit).unwrap();
    let run = |arguments: &[&str]| Command::new("systemd-analyze").args(arguments).arg(&path).output();
    let verified = match run(&["verify", "--man=no"]) {
        Ok(verified) => verified,
        Err(missing) => return println!("not checked: systemd-analyze is missing: {missing}"),
    };
    let said = String::from_utf8_lossy(&verified.stderr);
    assert!(verified.status.success() && said.is_empty(), "{said}");
    let rated = run(&["security", "--offline=true", "--threshold=50", "--no-pager"]).unwrap();
    assert!(rated.status.success(), "{}", String::from_utf8_lossy(&rated.stdout));
    // A misspelled setting is reported, so the drop-in is read.
    fs::write(&hardening, shipped("hardening.conf").replace("=strict", "=strickt")).unwrap();
    let misspelled = run(&["verify", "--man=no"]).unwrap();
    assert!(String::from_utf8_lossy(&misspelled.stderr).contains("strickt"), "the drop-in is not read");
}

/// Rendered by kubectl, if it is installed. `cargo xtask test-drivers --only kubernetes` applies the result.
#[test]
fn overlay_changes_namespace_and_image_and_pods_mount_the_settings_of_their_contents() {
    let overlay = folder().join("kubernetes/overlays/production");
    let output = match Command::new("kubectl").arg("kustomize").arg(overlay).output() {
        Ok(output) => output,
        Err(missing) => return println!("not checked: kubectl is missing: {missing}"),
    };
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

/// The lines of objects, without comments, quotes, spaces behind commas, and order.
fn lines_of(text: &str) -> BTreeSet<String> {
    let lines = text.lines().map(|line| line.trim().replace('"', "").replace(", ", ","));
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#') && line != "---");
    // Its hash differs by renderer.
    lines.map(|line| if line.starts_with("checksum/") { "checksum/settings:".into() } else { line }).collect()
}

/// Rendered by helm, if it is installed, and without it. `cargo xtask test-drivers --only kubernetes` applies both.
#[test]
fn chart_has_the_objects_of_the_kustomization_line_by_line() {
    let parts = ["rbac", "deployment"].map(|part| shipped(&format!("kubernetes/base/{part}.yaml")));
    let base = lines_of(&(parts.concat() + &shipped("kubernetes/base/vvm.toml")));
    let mut charts = vec![rendered_chart("payroll")];
    let helm = |arguments: &[&str]| Command::new("helm").args(arguments).current_dir(folder()).output();
    match helm(&["lint", "--strict", "helm"]) {
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
            charts.push(String::from_utf8(helm(&["template", "payroll", "helm"]).unwrap().stdout).unwrap());
        }
        Err(missing) => println!("not rendered by helm, which is missing: {missing}"),
    }
    for chart in charts.iter().map(|chart| lines_of(chart)) {
        // The port of the router's example.
        assert_eq!(base.difference(&chart).collect::<Vec<_>>(), ["- { name: http,containerPort: 8080 }"]);
        let settings = ["annotations:", "checksum/settings:", "data:", "kind: ConfigMap", "vvm.toml: |"];
        assert_eq!(chart.difference(&base).collect::<Vec<_>>(), settings);
    }
}

/// The liveness probe needs a TTL or more to fail, so a leader that hangs is ended at its deadline, which logs why.
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

type Metrics = BTreeMap<String, BTreeSet<String>>;

const OF_PROMETHEUS: [&str; 5] = ["namespace", "instance", "job", "alertname", "alertstate"];

fn is_of_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

/// Returns the labels in `{a="x",b=~"y"}`, with or without the braces.
fn matched(labels: &str) -> impl Iterator<Item = String> {
    let names = labels.split('=').filter_map(|before| {
        let name = before.trim_end_matches('!').rsplit([',', '{', ' ']).next()?;
        (!name.is_empty() && name.chars().all(is_of_name)).then(|| name.to_owned())
    });
    names.collect::<Vec<_>>().into_iter()
}

fn exposed(text: &str) -> Metrics {
    let mut metrics = Metrics::new();
    for line in text.lines() {
        if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            let ending = match kind {
                "counter" => "_total",
                "info" => "_info",
                "histogram" => "_bucket",
                _ => "",
            };
            metrics.entry(format!("{name}{ending}")).or_default();
        } else if let Some((name, rest)) = line.split_once('{') {
            metrics.entry(name.to_owned()).or_default().extend(matched(rest.rsplit_once('}').unwrap().0));
        }
    }
    metrics
}

fn named(text: &str) -> Metrics {
    let mut metrics = Metrics::new();
    for (at, _) in text.match_indices("vvm_") {
        if text[..at].ends_with(is_of_name) {
            continue;
        }
        let length = text[at..].find(|letter| !is_of_name(letter)).unwrap_or(text.len() - at);
        let (name, rest) = text[at..].split_at(length);
        let labels =
            rest.strip_prefix('{').and_then(|rest| rest.split_once('}')).map_or("", |(inner, _)| inner);
        metrics.entry(name.to_owned()).or_default().extend(matched(labels));
    }
    metrics
}

/// Returns the labels in `by (a, b)`, `on (…)`, `ignoring (…)`, `{{ $labels.a }}` and `{{a}}`.
fn grouped(text: &str) -> BTreeSet<String> {
    let lists = ["by (", "on (", "ignoring ("].into_iter().flat_map(|word| text.split(word).skip(1));
    let lists = lists.filter_map(|rest| Some(rest.split_once(')')?.0.split(", ")));
    let shown = text.split("{{").skip(1).filter_map(|rest| Some(rest.split_once("}}")?.0.trim()));
    let shown = shown.map(|shown| shown.trim_start_matches("$labels.")).filter(|shown| !shown.contains('$'));
    lists.flatten().chain(shown).map(str::to_owned).collect()
}

fn unknown(text: &str, exposed: &Metrics) -> Vec<String> {
    let of_any: BTreeSet<&String> = exposed.values().flatten().collect();
    let is_known = |label: &String| of_any.contains(label) || OF_PROMETHEUS.contains(&label.as_str());
    let mut unknown: Vec<_> = grouped(text).into_iter().filter(|label| !is_known(label)).collect();
    for (metric, labels) in named(text) {
        match exposed.get(&metric) {
            Some(there) => {
                unknown.extend(labels.difference(there).map(|label| format!("{metric}{{{label}}}")))
            }
            None => unknown.push(metric),
        }
    }
    unknown
}

fn of_dashboard() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&shipped("prometheus/dashboard.json")).unwrap();
    let targets = dashboard["panels"].as_array().unwrap().iter().flat_map(|panel| {
        assert_ne!(panel["title"], "", "{panel}");
        panel["targets"].as_array().unwrap()
    });
    let of_targets = targets.flat_map(|target| [&target["expr"], &target["legendFormat"]]);
    let variables = dashboard["templating"]["list"].as_array().unwrap().iter().map(|list| &list["query"]);
    of_targets.chain(variables).map(|text| text.as_str().unwrap().to_owned()).collect()
}

#[test]
fn every_metric_and_label_in_alerts_and_dashboard_is_exposed() {
    let trial = VVM.trial();
    let script = "test -e ran && exec sleep 60; touch ran; exit 3";
    let script = format!("cd {} && {{ {script}; }}", trial.folder().display());
    let (running, address) = start(trial.run_script(&script).with(["--on-exit", "restart"]));
    eventually("the command runs again", || answer(address, "/leader").0 == 200);
    let mut metrics = Metrics::new();
    eventually("an exit status", || {
        metrics = exposed(&answer(address, "/metrics").1);
        metrics["vvm_last_exit_status"].contains("name") && metrics["vvm_epoch"].contains("slot")
    });
    drop(running);
    let texts = [of_dashboard(), vec![shipped("prometheus/rules.yaml")]].concat();
    let unknown: Vec<_> = texts.iter().flat_map(|text| unknown(text, &metrics)).collect();
    assert_eq!(unknown, [""; 0], "of {metrics:#?}");
    let named = texts.iter().map(|text| named(text).len()).sum::<usize>();
    assert!(named > 30, "only {named} metrics were found");
}

#[test]
fn renamed_metric_and_label_are_found() {
    let metrics = exposed("# TYPE vvm_losses counter\nvvm_losses_total{name=\"n\",reason=\"x\"} 0\n");
    assert_eq!(unknown("sum by (name, reason) (vvm_losses_total{name=~\"$name\"})", &metrics), [""; 0]);
    assert_eq!(unknown("vvm_lost_total", &metrics), ["vvm_lost_total"]);
    assert_eq!(unknown("vvm_losses_total{name=\"n\",why=\"x\"}", &metrics), ["vvm_losses_total{why}"]);
    assert_eq!(unknown("sum by (why) (vvm_losses_total)", &metrics), ["why"]);
    assert_eq!(unknown("{{ $labels.why }}, {{slot}}, {{ $value }}", &metrics), ["slot", "why"]);
}

#[test]
fn each_alert_has_texts_and_a_section_of_the_run_book() {
    let rules = shipped("prometheus/rules.yaml");
    let run_book = fs::read_to_string(folder().join("../docs/operations.md")).unwrap();
    let headings = run_book.lines().filter_map(|line| line.strip_prefix("## ").or(line.strip_prefix("### ")));
    let kept = |letter: &char| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_');
    let anchors = headings
        .map(|heading| heading.to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-"));
    let anchors = anchors.collect::<BTreeSet<_>>();
    let alerts: Vec<_> = rules.split("- alert: ").skip(1).collect();
    assert!(alerts.len() > 10, "{}", alerts.len());
    let tests = shipped("prometheus/rules.test.yaml");
    for alert in alerts {
        let name = alert.lines().next().unwrap();
        for part in ["severity: ", "summary: ", "description: "] {
            assert!(alert.contains(part), "{name} has no {part}");
        }
        let (_, link) = alert.split_once("runbook_url: docs/operations.md#").unwrap();
        let anchor = link.lines().next().unwrap();
        assert!(anchors.contains(anchor), "{name}: {anchor} is not in {anchors:?}");
        assert!(run_book.contains(&format!("`{name}`")), "{name} is not in the run book");
        let fires = format!("alertname: {name}\n        exp_alerts:");
        assert!(tests.contains(&fires), "no test in which {name} fires");
    }
}

/// Checked by promtool, if it is installed (Debian's package `prometheus`).
#[test]
fn promtool_accepts_the_alerts_and_their_tests() {
    for arguments in [["check", "rules", "rules.yaml"], ["test", "rules", "rules.test.yaml"]] {
        match Command::new("promtool").args(arguments).current_dir(folder().join("prometheus")).output() {
            Ok(output) => {
                let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
                assert!(output.status.success(), "{said}");
            }
            Err(missing) => println!("not checked: promtool is missing: {missing}"),
        }
    }
}
