//! Checks that every `vvm …` line and settings file in documents, help, messages and packaging is accepted.

use crate::{
    cli::{described, read},
    settings::Variables,
};
use ielections::{Epoch, Holder, Incarnation, Loss, Ttl, Version, record::Entry};
use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

struct ShownLine {
    place: String,
    words: Vec<String>,
}

pub(super) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the files of a folder whose names end like this, with their texts.
fn files(folder: &str, ending: &str) -> Vec<(String, String)> {
    let entries = fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().path());
    let named = entries.map(|path| (path.display().to_string(), path));
    let mut found = named.filter(|(name, _)| name.ends_with(ending)).collect::<Vec<_>>();
    found.sort();
    found.into_iter().map(|(name, path)| (name, fs::read_to_string(path).unwrap())).collect()
}

fn documents() -> Vec<(String, String)> {
    let folders = ["docs", "docs/storages", "docs/contributing", "packaging"];
    folders.iter().flat_map(|folder| files(folder, ".md")).chain(files("", "/README.md")).collect()
}

/// Returns the code of the blocks of documents in these languages, each with its document.
fn blocks(languages: &[&str]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (place, text) in documents() {
        for block in text.split("```").skip(1).step_by(2) {
            let (language, code) = block.split_once('\n').unwrap_or((block, ""));
            if languages.contains(&language) {
                found.push((place.clone(), code.to_owned()));
            }
        }
    }
    found
}

/// Splits a line into words as a shell does, up to the next command or comment.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    for letter in line.chars() {
        match (quote, letter) {
            (Some(open), close) if open == close => quote = None,
            (None, '\'' | '"') => quote = Some(letter),
            (None, ' ') => words.push(String::new()),
            _ => words.last_mut().unwrap().push(letter),
        }
    }
    words.retain(|word| !word.is_empty());
    let ends = |word: &String| matches!(word.as_str(), "|" | "&&" | "||" | ";" | "&" | ">" | "#");
    let length = words.iter().position(ends).unwrap_or(words.len());
    words.truncate(length);
    words
}

/// Returns the `vvm …` of a line. Drops what precedes it, as in `VVM_TTL=5s vvm run …` or `exec vvm run …`.
fn of_line(place: &str, line: &str) -> Option<ShownLine> {
    let words = words(line);
    let start = words.iter().position(|word| word == "vvm" || word.ends_with("/vvm"))?;
    let precedes =
        |word: &String| word.contains('=') || ["exec", "sudo", "if", "!", "then"].contains(&word.as_str());
    words[..start]
        .iter()
        .all(precedes)
        .then(|| ShownLine { place: place.to_owned(), words: words[start..].to_vec() })
}

/// A backslash continues a line.
fn of_documents() -> Vec<ShownLine> {
    let of_block = |(place, code): (String, String)| {
        let code = code.replace("\\\n", " ");
        let lines = code.lines().map(|line| line.trim_start().trim_start_matches("$ "));
        lines.filter_map(|line| of_line(&place, line)).collect::<Vec<_>>()
    };
    blocks(&["sh", "bash", "console"]).into_iter().flat_map(of_block).collect()
}

fn spans(place: &str, text: &str) -> Vec<ShownLine> {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let commands = text.split('`').skip(1).step_by(2).filter(|span| span.starts_with("vvm "));
    let shown = commands.map(|span| ShownLine {
        place: place.to_owned(),
        words: words(span).into_iter().filter(|word| word != "…").collect(),
    });
    shown.collect()
}

fn of_prose() -> Vec<ShownLine> {
    let of_document = |(place, text): (String, String)| {
        // Between the fences of blocks, paragraph by paragraph.
        let prose = text.split("```").step_by(2).flat_map(|prose| prose.split("\n\n"));
        prose.flat_map(|text| spans(&place, text)).collect::<Vec<_>>()
    };
    documents().into_iter().flat_map(of_document).collect()
}

/// Returns the commands that messages and comments of the sources advise, with a URL of the driver that they are in.
fn of_messages() -> Vec<ShownLine> {
    let mut shown = Vec::new();
    for path in sources(&root().join("crates")) {
        let text = fs::read_to_string(&path).unwrap();
        let lines =
            text.lines().map(|line| line.trim_start().trim_start_matches('/').trim_start_matches('!'));
        // A backslash continues a text, and an empty comment ends a paragraph.
        let text = lines.collect::<Vec<_>>().join("\n").replace("\\\n", " ");
        let place = path.display().to_string();
        let driver = DRIVERS.iter().find(|(folder, _)| place.contains(folder));
        for mut found in text.split("\n\n").flat_map(|text| spans(&place, text)) {
            let url = found.words.iter_mut().find(|word| *word == "URL");
            url.into_iter().zip(driver).for_each(|(word, (_, url))| (*url).clone_into(word));
            shown.push(found);
        }
    }
    shown
}

/// Drivers of one kind of storage, and a URL of theirs.
const DRIVERS: [(&str, &str); 7] = [
    ("drivers/dynamodb", "dynamodb://eu-west-1/t"),
    ("drivers/etcd", "etcd://h/p"),
    ("drivers/kubernetes", "k8s://n"),
    ("drivers/mysql", "mysql://u@h/d"),
    ("drivers/objects", "s3://b/p?region=r"),
    ("drivers/postgres", "postgres://u@h/d"),
    ("drivers/scylla", "scylla://h/k"),
];

pub(super) fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|ending| ending == "rs")
            && !path.ends_with("tests/documented.rs")
        {
            found.push(path);
        }
    }
    found
}

fn of_help() -> Vec<ShownLine> {
    let mut shown = Vec::new();
    for command in described().get_subcommands() {
        let help = command.get_after_long_help().or(command.get_after_help()).map(ToString::to_string);
        let lines = help.iter().flat_map(|help| help.lines()).filter(|line| line.starts_with("  vvm "));
        shown.extend(lines.filter_map(|line| of_line(&format!("vvm {} --help", command.get_name()), line)));
    }
    shown
}

fn of_packaging() -> Vec<ShownLine> {
    let mut shown = Vec::new();
    for (place, text) in files("packaging", ".service") {
        let lines = text.lines().filter_map(|line| line.strip_prefix("ExecStart="));
        shown.extend(lines.map(|line| of_line(&place, line).unwrap()));
    }
    let list = |text: &str| serde_json::from_str::<Vec<String>>(text.trim()).unwrap();
    for (place, text) in files("packaging", "Containerfile") {
        let behind = |word| text.lines().find_map(|line| line.strip_prefix(word)).map(list).unwrap();
        shown.push(ShownLine { place, words: [behind("ENTRYPOINT "), behind("CMD ")].concat() });
    }
    for (place, text) in files("packaging/kubernetes/base", ".yaml") {
        for arguments in text.lines().filter_map(|line| line.trim_start().strip_prefix("args: ")) {
            let words = [vec!["vvm".to_owned()], list(arguments)].concat();
            shown.push(ShownLine { place: place.clone(), words });
        }
    }
    shown
}

/// Parses it as the program does, but without `--config`, whose file is not here: missing options are then no error.
/// Neither are they unless it `is_whole`.
fn check(shown: &ShownLine, is_whole: bool) -> Result<(), String> {
    let named = shown.words.iter().position(|word| word == "--config");
    let mut words = shown.words.clone();
    if let Some(place) = named {
        words.drain(place..(place + 2).min(words.len()));
    }
    let words = words.iter().map(|word| if word == "URL" { "sqlite:leader.db".into() } else { word.into() });
    let words = words.collect::<Vec<OsString>>();
    // Two pages have the storage of most lines in the environment.
    let is_set = ["README.md", "recipes.md"].iter().any(|page| shown.place.ends_with(page));
    let storage = is_set.then(|| ("VVM_STORAGE".into(), "sqlite:leader.db".into()));
    let Err(misuse) = read(words, &storage.into_iter().collect::<Variables>()) else { return Ok(()) };
    let text = format!("{:?}", misuse.refusal);
    let is_missing = text.contains("MissingRequiredArgument");
    let is_help = text.contains("DisplayHelp") || text.contains("DisplayVersion");
    if is_help || (named.is_some() || !is_whole) && is_missing {
        return Ok(());
    }
    Err(format!("{}: {:?}: {}", shown.place, shown.words, misuse.refusal))
}

/// Advice in messages and prose leaves out what the operator knows, such as storage and name.
#[test]
fn lines_in_documents_help_packaging_messages_and_prose_are_accepted() {
    for (shown, are_whole, at_least) in [
        (of_documents(), true, 4),
        (of_help(), true, 3),
        (of_packaging(), true, 3),
        (of_messages(), false, 40),
        (of_prose(), false, 40),
    ] {
        assert!(shown.len() >= at_least, "only {} lines were found", shown.len());
        let wrong = shown.iter().filter_map(|line| check(line, are_whole).err()).collect::<Vec<_>>();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}

#[test]
fn wrong_line_is_found() {
    let line = |line: &str| check(&of_line("here", line).unwrap(), true);
    assert!(line("vvm run --storage 'sqlite:x.db' --name \"two words\" -- ./worker --any # comment").is_ok());
    assert!(line("VVM_TTL=5s vvm run --config x.toml | cat").is_ok());
    for wrong in [
        "vvm run --config x.toml --tll 5s",
        "vvm start",
        "vvm run --storage sqlite:x.db --name x --ttl 5 -- x",
    ] {
        assert!(line(wrong).is_err(), "{wrong}");
    }
    let [wrong] = &spans("here", "it is not there: `vvm init-storage URL` creates it")[..] else { panic!() };
    assert!(check(wrong, false).is_err());
}

fn check_settings(place: &str, settings: &str) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("vvm.toml");
    fs::write(&path, settings).unwrap();
    let words = ["vvm".into(), "run".into(), "--config".into(), path.into_os_string()];
    // The pods' settings have their storage in the environment.
    let storage = ("VVM_STORAGE".into(), "k8s://default".into());
    let variables = if settings.contains("storage = ") { Variables::new() } else { vec![storage] };
    let outcome = read(words.into(), &variables);
    assert!(outcome.is_ok(), "{place}: {outcome:?}");
}

fn settings_in_packaging() -> Vec<(String, String)> {
    ["packaging/kubernetes/base", "packaging/settings"]
        .iter()
        .flat_map(|folder| files(folder, ".toml"))
        .collect()
}

/// Blocks of TOML in documents that name a storage are settings files.
#[test]
fn settings_files_in_packaging_and_documents_are_accepted() {
    let files = settings_in_packaging();
    assert!(files.len() >= 4, "{files:?}");
    for (place, settings) in &files {
        assert!(settings.contains("command = "), "{settings}");
        assert!(!settings.contains(":9090\""), "{place}: Prometheus's own port");
        check_settings(place, settings);
    }
    let blocks = blocks(&["toml"]);
    let blocks = blocks.iter().filter(|(_, settings)| settings.contains("storage = ")).collect::<Vec<_>>();
    assert!(!blocks.is_empty());
    blocks.iter().for_each(|(place, settings)| check_settings(place, settings));
}

/// Variables in the environment file of the unit, also those in comments, are settings.
#[test]
fn variables_in_packaging_are_settings() {
    let text = fs::read_to_string(root().join("packaging/settings/payroll.env")).unwrap();
    let commands = described();
    let options = commands.find_subcommand("run").unwrap().get_arguments();
    let settings = options.filter_map(|option| Some(option.get_long()?.to_uppercase().replace('-', "_")));
    let settings = settings.chain(["STORAGE_PASSWORD".to_owned()]).collect::<Vec<_>>();
    let lines = text.lines().map(|line| line.trim_start_matches('#'));
    let named = lines.filter_map(|line| line.strip_prefix("VVM_")?.split_once('=')).collect::<Vec<_>>();
    assert!(named.len() >= 2, "{named:?}");
    for (name, _) in named {
        assert!(settings.iter().any(|setting| setting == name), "VVM_{name}");
    }
}

fn seconds(settings: &str, key: &str) -> u32 {
    let line = settings.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = \"")).unwrap();
    line.trim_end_matches("s\"").parse().unwrap()
}

fn number(file: &str, key: &str) -> u32 {
    let text = fs::read_to_string(root().join("packaging").join(file)).unwrap();
    text.lines().find_map(|line| line.trim_start().strip_prefix(key)).unwrap().parse().unwrap()
}

/// At least stop-timeout + TTL/4 + 5 s, as their comments say.
#[test]
fn grace_periods_cover_a_clean_stop() {
    let grace = number("kubernetes/base/deployment.yaml", "terminationGracePeriodSeconds: ");
    let stop = number("vvm@.service", "TimeoutStopSec=");
    for (place, settings) in settings_in_packaging() {
        let granted = if place.ends_with("base/vvm.toml") { grace } else { stop };
        assert!(granted >= seconds(&settings, "stop-timeout") + seconds(&settings, "ttl") / 4 + 5, "{place}");
    }
}

fn run_book() -> String {
    fs::read_to_string(root().join("docs/operations.md")).unwrap()
}

/// Returns one of each kind. A new kind does not compile without an arm here.
fn losses() -> Vec<Loss> {
    let epoch = Epoch::new(1).unwrap();
    let entry = Entry {
        holder: Holder::new("web2").unwrap(),
        version: Version { incarnation: Incarnation::from_bytes([1; 16]), write: 0 },
        ttl: Ttl::DEFAULT,
        epoch,
    };
    let mut found = Vec::new();
    let mut next = Some(Loss::Stolen { by: Box::new(entry) });
    while let Some(loss) = next {
        next = match &loss {
            Loss::Stolen { .. } => Some(Loss::Vanished),
            Loss::Vanished => Some(Loss::EpochWentBack { held: epoch, found: None }),
            Loss::EpochWentBack { .. } => Some(Loss::StorageReplaced { cause: "it was".into() }),
            Loss::StorageReplaced { .. } => Some(Loss::StorageUnreachable { last_failure: None }),
            Loss::StorageUnreachable { .. } => {
                Some(Loss::SupportEnded { period: std::time::Duration::from_secs(5) })
            }
            Loss::SupportEnded { .. } => Some(Loss::Suspended),
            Loss::Suspended => Some(Loss::Closing),
            Loss::Closing => Some(Loss::HandedBack),
            Loss::HandedBack => Some(Loss::EngineEnded),
            Loss::EngineEnded => Some(Loss::Dropped),
            Loss::Dropped => None,
        };
        found.push(loss);
    }
    found
}

#[test]
fn operations_page_quotes_every_loss() {
    let book = run_book();
    // A quotation has `…` for omitted parts, and HOLDER for a name.
    let quoted = book.split('`').skip(1).step_by(2).collect::<Vec<_>>();
    for loss in losses() {
        let said = loss.to_string();
        let found = quoted.iter().any(|quotation| {
            let quotation = quotation.replace("HOLDER", "web2");
            let mut rest = said.as_str();
            let mut parts = quotation
                .split('…')
                .map(|part| part.trim_matches([' ', ':']))
                .filter(|part| !part.is_empty());
            quotation.len() > 10
                && parts.all(|part| rest.split_once(part).map(|(_, after)| rest = after).is_some())
        });
        assert!(found, "docs/operations.md does not quote: {said}");
    }
}

#[test]
fn operations_page_lists_every_exit_status() {
    let book = run_book();
    // The numbers after `Exit status:` in the help of any command, except 0 and the 128 of `128 + n`.
    let cli = described();
    let help = cli.get_subcommands().filter_map(|command| command.get_after_help()).map(ToString::to_string);
    let help =
        help.filter_map(|help| Some(help.split_once("Exit status:")?.1.to_owned())).collect::<String>();
    let numbers = help.split_whitespace().filter_map(|word| word.parse::<u8>().ok());
    let statuses = numbers.filter(|status| ![0, 128].contains(status)).collect::<BTreeSet<_>>();
    assert!(statuses.len() > 9, "{statuses:?}");
    let rows =
        book.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next()).collect::<Vec<_>>();
    for status in statuses {
        let has_row = rows.iter().any(|row| row.split(", ").any(|listed| listed == status.to_string()));
        assert!(has_row, "docs/operations.md has no row for exit status {status}");
    }
}
