use std::{fs, path::Path};

/// Renders the Helm chart with its own values, as far as its templates go, and without the program `helm`. What stands
/// between `with` and `end` is for values that are empty.
pub fn rendered_chart(release: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/helm");
    let values = fs::read_to_string(folder.join("values.yaml")).unwrap();
    let value = |name: &str| {
        let line = values.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        line.unwrap_or_else(|| panic!("no value {name}")).trim_matches('"').to_owned()
    };
    let mut text = String::new();
    for part in ["rbac", "deployment", "settings"] {
        let mut is_left_out = false;
        text.push_str("---\n");
        for line in fs::read_to_string(folder.join(format!("templates/{part}.yaml"))).unwrap().lines() {
            is_left_out |= line.contains("{{- with ");
            if !is_left_out && !line.trim_start().starts_with("{{-") {
                let mut parts = line.split("{{ ");
                text.push_str(parts.next().unwrap());
                for part in parts {
                    let (expression, rest) = part.split_once(" }}").unwrap();
                    let mut steps = expression.split(" | ");
                    let first = steps.next().unwrap();
                    let first = first.strip_prefix(".Values.").map_or_else(|| release.to_owned(), value);
                    let filled = steps.fold(first, |value, step| match step.strip_prefix("default ") {
                        Some(default) if value.is_empty() => default.trim_matches('"').to_owned(),
                        _ if step == "quote" => format!("\"{value}\""),
                        _ => value,
                    });
                    text.extend([&filled, rest]);
                }
                text.push('\n');
            }
            is_left_out &= !line.contains("{{- end");
        }
    }
    text
}
