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

struct Shown {
    place: String,
    words: Vec<String>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn files(folder: &str, ending: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().path());
    let mut found = entries.filter(|path| path.to_str().unwrap().ends_with(ending)).collect::<Vec<_>>();
    found.sort();
    found
}

fn documents() -> Vec<PathBuf> {
    let folders = ["docs", "docs/storages", "docs/contributing", "packaging"];
    let found = folders.iter().flat_map(|folder| files(folder, ".md"));
    found.chain([root().join("README.md")]).collect()
}

fn blocks(text: &str, languages: &[&str]) -> Vec<(usize, Vec<String>)> {
    let mut found = Vec::new();
    let mut open: Option<(bool, Vec<String>)> = None;
    for (number, line) in text.lines().enumerate() {
        match (line.trim_start().strip_prefix("```"), open.take()) {
            (Some(language), None) => open = Some((languages.contains(&language), Vec::new())),
            (Some(_), Some((wanted, lines))) if wanted => found.push((number - lines.len() + 1, lines)),
            (None, Some((wanted, mut lines))) => {
                lines.push(line.to_owned());
                open = Some((wanted, lines));
            }
            (Some(_), Some(_)) | (None, None) => {}
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

/// Drops what precedes `vvm`, as in `VVM_TTL=5s vvm run …` or `exec vvm run …`.
fn from_vvm(words: Vec<String>) -> Option<Vec<String>> {
    let place = words.iter().position(|word| word == "vvm" || word.ends_with("/vvm"))?;
    let before = &words[..place];
    let is_start = before
        .iter()
        .all(|word| word.contains('=') || ["exec", "sudo", "if", "!", "then"].contains(&word.as_str()));
    is_start.then(|| words[place..].to_vec())
}

/// Returns the lines in blocks of documents. A backslash continues a line.
fn of_documents() -> Vec<Shown> {
    let mut shown = Vec::new();
    for path in documents() {
        let text = fs::read_to_string(&path).unwrap();
        for (number, lines) in blocks(&text, &["sh", "bash", "console"]) {
            let joined = lines.join("\n").replace("\\\n", " ");
            for line in joined.lines() {
                let line = line.trim_start().trim_start_matches("$ ");
                if let Some(words) = from_vvm(words(line)) {
                    shown.push(Shown { place: format!("{}:{number}", path.display()), words });
                }
            }
        }
    }
    shown
}

fn spans(place: &str, text: &str) -> Vec<Shown> {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let commands = text.split('`').skip(1).step_by(2).filter(|span| span.starts_with("vvm "));
    let shown = commands.map(|span| Shown {
        place: place.to_owned(),
        words: words(span).into_iter().filter(|word| word != "…").collect(),
    });
    shown.collect()
}

fn of_prose() -> Vec<Shown> {
    let mut shown = Vec::new();
    for path in documents() {
        let text = fs::read_to_string(&path).unwrap();
        // Between the fences of blocks, paragraph by paragraph.
        let prose = text.split("```").step_by(2).flat_map(|prose| prose.split("\n\n"));
        shown.extend(prose.flat_map(|text| spans(&path.display().to_string(), text)));
    }
    shown
}

/// Returns the commands that messages and comments of the sources advise, with a URL of the driver that they are in.
fn of_messages() -> Vec<Shown> {
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

fn sources(folder: &Path) -> Vec<PathBuf> {
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

fn of_help() -> Vec<Shown> {
    let mut shown = Vec::new();
    for command in described().get_subcommands() {
        let help = command.get_after_long_help().or(command.get_after_help()).map(ToString::to_string);
        for line in help.iter().flat_map(|help| help.lines()) {
            // Other lines are prose.
            if let Some(words) = line.strip_prefix("  vvm ").and_then(|_| from_vvm(words(line))) {
                shown.push(Shown { place: format!("vvm {} --help", command.get_name()), words });
            }
        }
    }
    shown
}

fn of_units() -> Vec<Shown> {
    let mut shown = Vec::new();
    for path in files("packaging", ".service") {
        let text = fs::read_to_string(&path).unwrap();
        for line in text.lines().filter_map(|line| line.strip_prefix("ExecStart=")) {
            let words = from_vvm(words(line)).unwrap();
            shown.push(Shown { place: path.display().to_string(), words });
        }
    }
    shown
}

fn of_containers() -> Vec<Shown> {
    let list = |text: &str| serde_json::from_str::<Vec<String>>(text.trim()).unwrap();
    let mut shown = Vec::new();
    for path in files("packaging", "Containerfile") {
        let text = fs::read_to_string(&path).unwrap();
        let behind = |word| text.lines().find_map(|line| line.strip_prefix(word)).map(list).unwrap();
        shown.push(Shown {
            place: path.display().to_string(),
            words: [behind("ENTRYPOINT "), behind("CMD ")].concat(),
        });
    }
    for path in files("packaging/kubernetes/base", ".yaml") {
        let text = fs::read_to_string(&path).unwrap();
        for arguments in text.lines().filter_map(|line| line.trim_start().strip_prefix("args: ")) {
            let words = [vec!["vvm".to_owned()], list(arguments)].concat();
            shown.push(Shown { place: path.display().to_string(), words });
        }
    }
    shown
}

/// Parses it as the program does, but without `--config`, whose file is not here: missing options are then no error.
fn check(shown: &Shown) -> Result<(), String> {
    check_line(shown, true)
}

/// As [`check`]; unless it `is_whole`, what it leaves out is no error.
fn check_line(shown: &Shown, is_whole: bool) -> Result<(), String> {
    let named = shown.words.iter().position(|word| word == "--config");
    let mut words = shown.words.clone();
    if let Some(place) = named {
        words.drain(place..(place + 2).min(words.len()));
    }
    // URL is a placeholder.
    let words = words.iter().map(|word| if word == "URL" { "sqlite:leader.db".into() } else { word.into() });
    let words = words.collect::<Vec<OsString>>();
    // Two pages have the storage of most lines in the environment.
    let is_set = ["README.md:", "recipes.md:"].iter().any(|page| shown.place.contains(page));
    let storage = is_set.then(|| ("VVM_STORAGE".into(), "sqlite:leader.db".into()));
    match read(words, &storage.into_iter().collect::<Variables>()) {
        Ok(_) => Ok(()),
        Err(misuse) => {
            let text = format!("{:?}", misuse.refusal);
            let is_missing = text.contains("MissingRequiredArgument");
            let is_help = text.contains("DisplayHelp") || text.contains("DisplayVersion");
            if is_help || (named.is_some() || !is_whole) && is_missing {
                Ok(())
            } else {
                Err(format!("{}: {:?}: {}", shown.place, shown.words, misuse.refusal))
            }
        }
    }
}

fn check_all(shown: &[Shown], at_least: usize) {
    assert!(shown.len() >= at_least, "only {} lines were found", shown.len());
    let wrong = shown.iter().filter_map(|shown| check(shown).err()).collect::<Vec<_>>();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn lines_in_documents_are_accepted() {
    check_all(&of_documents(), 4);
}

/// Advice leaves out what the operator knows, such as storage and name.
#[test]
fn commands_that_messages_and_prose_advise_are_accepted() {
    for (advised, at_least) in [(of_messages(), 40), (of_prose(), 40)] {
        assert!(advised.len() >= at_least, "only {} were found", advised.len());
        let wrong = advised.iter().filter_map(|shown| check_line(shown, false).err()).collect::<Vec<_>>();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
    let [wrong] = &spans("here", "it is not there: `vvm init-storage URL` creates it")[..] else { panic!() };
    assert!(check_line(wrong, false).is_err());
}

#[test]
fn lines_in_help_are_accepted() {
    check_all(&of_help(), 3);
}

#[test]
fn lines_in_packaging_are_accepted() {
    check_all(&of_units(), 1);
    check_all(&of_containers(), 2);
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

fn of_packaging() -> Vec<(PathBuf, String)> {
    let found =
        ["packaging/kubernetes/base", "packaging/settings"].iter().flat_map(|folder| files(folder, ".toml"));
    found.map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect()
}

#[test]
fn settings_files_in_packaging_are_accepted() {
    let files = of_packaging();
    assert!(files.len() >= 4, "{files:?}");
    for (path, settings) in files {
        assert!(settings.contains("command = "), "{settings}");
        assert!(!settings.contains(":9090\""), "{}: Prometheus's own port", path.display());
        check_settings(&path.display().to_string(), &settings);
    }
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

/// At least stop-timeout + TTL/4 + 5 s for pods, and stop-timeout + 5 s for units, as their comments say.
#[test]
fn grace_periods_cover_a_clean_stop() {
    let grace = number("kubernetes/base/deployment.yaml", "terminationGracePeriodSeconds: ");
    let stop = number("vvm@.service", "TimeoutStopSec=");
    for (path, settings) in of_packaging() {
        let stop_timeout = seconds(&settings, "stop-timeout");
        if path.ends_with("base/vvm.toml") {
            assert!(grace >= stop_timeout + seconds(&settings, "ttl") / 4 + 5);
        } else {
            assert!(stop >= stop_timeout + 5, "{}", path.display());
        }
    }
}

/// Blocks of TOML that name a storage are settings files.
#[test]
fn settings_files_in_documents_are_accepted() {
    let mut found = 0;
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap();
        for (number, lines) in blocks(&text, &["toml"]) {
            let settings = lines.join("\n");
            if settings.contains("storage = ") {
                check_settings(&format!("{}:{number}", document.display()), &settings);
                found += 1;
            }
        }
    }
    assert!(found > 0);
}

#[test]
fn wrong_line_is_found() {
    let line = |line: &str| check(&Shown { place: "here".into(), words: from_vvm(words(line)).unwrap() });
    assert!(line("vvm run --storage 'sqlite:x.db' --name \"two words\" -- ./worker --any # comment").is_ok());
    assert!(line("VVM_TTL=5s vvm run --config x.toml | cat").is_ok());
    for wrong in [
        "vvm run --config x.toml --tll 5s",
        "vvm start",
        "vvm run --storage sqlite:x.db --name x --ttl 5 -- x",
    ] {
        assert!(line(wrong).is_err(), "{wrong}");
    }
}

fn run_book() -> String {
    fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operations.md")).unwrap()
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
