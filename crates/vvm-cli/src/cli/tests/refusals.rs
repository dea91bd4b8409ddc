//! What the command line accepts and refuses, as option, variable and key of a file, and what it says then.

use crate::{
    cli::{Cli, Command, described, read},
    settings,
};
use std::{fs, path::Path};

fn parse(words: &[&str], variables: &[(&str, &str)]) -> Result<Cli, String> {
    let words = ["vvm"].iter().chain(words).map(Into::into).collect();
    let variables = variables.iter().map(|(name, value)| (name.into(), value.into())).collect();
    match read(words, &variables) {
        Ok((cli, _)) => Ok(cli),
        Err(misuse) => Err(format!("{}\n{}", misuse.refusal, misuse.origins.join("\n"))),
    }
}

#[track_caller]
fn refused(words: &[&str], variables: &[(&str, &str)], hints: &[&str]) {
    let Err(said) = parse(words, variables) else { panic!("accepted: {words:?} {variables:?}") };
    for hint in hints {
        assert!(said.contains(hint), "{words:?} {variables:?}: no {hint:?} in: {said}");
    }
}

/// A `vvm run` with these options in front. A later option of the same name is an error, so these replace.
fn run<'a>(options: &[&'a str]) -> Vec<&'a str> {
    let has = |name: &str| options.contains(&name);
    let mut words = vec!["run"];
    words.extend(options);
    for rest in [["--storage", "sqlite:x.db"], ["--name", "payroll"]] {
        if !has(rest[0]) {
            words.extend(rest);
        }
    }
    words.extend(["--", "true"]);
    words
}

const DURATION: (&str, &str) = ("20", "Write 20s");
const SWITCH: (&str, &str) = ("maybe", "");
const LINE_FOR_PEOPLE: (&str, &str) = ("two\nlines", "no control characters");

/// For each option: an invalid value, and a part of the message. The place of `--result-file` is checked when
/// `vvm run` starts.
const BAD: &[(&str, (&str, &str))] = &[
    ("storage", ("leader.db", "/leader.db` for a file")),
    ("name", LINE_FOR_PEOPLE),
    ("slots", ("0", "write a number from 1 to")),
    ("ttl", DURATION),
    ("acquire-timeout", DURATION),
    ("try", SWITCH),
    ("on-loss", (" ", "invalid value")),
    ("warm", SWITCH),
    ("after-stop", ("stay", "possible values: restart, keep")),
    ("start-timeout", DURATION),
    ("alive-within", ("0s", "write more than 0")),
    ("stop-signal", ("KILL", "write a signal that can be caught, like QUIT, WINCH or RTMIN+3")),
    ("stop-timeout", DURATION),
    ("quiet-time", DURATION),
    ("on-lead", (" ", "write a line for sh -c")),
    ("on-start", ("stop", "possible values: demote, keep")),
    ("hook-timeout", DURATION),
    ("on-exit", ("again", "possible values: release, restart")),
    ("restart-backoff", DURATION),
    ("restart-backoff-max", DURATION),
    ("restart-limit", ("-1", "write never, or a number")),
    ("pre-stop", (" ", "write a line for sh -c")),
    ("pre-stop-timeout", DURATION),
    ("check", ("http://localhost/", "curl -fsSo /dev/null http://localhost/")),
    ("check-interval", ("0", "write more than 0")),
    ("check-timeout", ("0s", "write more than 0")),
    ("check-failures", ("0", "write a number from 1 on")),
    ("holder", LINE_FOR_PEOPLE),
    ("local-dir", ("run/vvm", "write an absolute path, or none")),
    ("containment", ("cage", "possible values: auto, guardian, cgroup, pidns")),
    ("keep-credentials", SWITCH),
    ("new", SWITCH),
    ("http", ("8080", "like 127.0.0.1:8080")),
    ("successor", ("7400", "write an address of this machine and a port")),
    ("support", DURATION),
    ("successor-advertise", ("10.0.0.7", "like 127.0.0.1:8080")),
    ("log-format", ("xml", "possible values: text, json")),
    ("interval", ("0", "write 100ms or more")),
    ("json", SWITCH),
    ("exit-status", SWITCH),
    ("slot", ("0", "write a number from 1 to")),
    ("to", LINE_FOR_PEOPLE),
    ("timeout", DURATION),
    ("reason", ("two\nlines", "without control characters")),
    ("by", ("two\nlines", "without control characters")),
    ("wait", DURATION),
    ("no-wait", SWITCH),
    ("period", ("2026-11-29 ", "1 to 64 bytes, no control characters, no blank at an end")),
    ("attempts", ("0", "write a number from 1 on")),
    ("retry-after", DURATION),
    ("quiet", SWITCH),
    ("skip-if-newer-done", SWITCH),
    ("keep", ("31", "write a number from 32 to 400")),
    ("periods", SWITCH),
    ("svg", ("pictures/", "name a file")),
];

/// The options come from the description that clap parses by. One that is missing in the table fails this.
#[test]
fn wrong_value_of_each_setting_is_refused_by_name_from_each_source() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("vvm.toml");
    let cli = described();
    let commands = cli.get_subcommands().filter(|command| settings::has_settings(command));
    let pairs =
        commands.flat_map(|command| settings::settings_of(command).map(move |option| (command, option)));
    let mut checked = 0;
    for (command, option) in pairs.filter(|(_, option)| option.name != "result-file") {
        let (command, name) = (command.get_name(), option.name);
        let found = BAD.iter().find(|(known, _)| *known == name);
        let (_, (value, hint)) = found.unwrap_or_else(|| panic!("{command} --{name}: add it to BAD"));
        let mut words = vec![command];
        words.extend(["--storage=sqlite:x.db"].iter().filter(|_| name != "storage"));
        let takes_name = !["init-storage", "list", "ui"].contains(&command) && name != "name";
        words.extend(["--name=payroll"].iter().filter(|_| takes_name));
        words.extend(["--period=p"].iter().filter(|_| command == "once" && name != "period"));
        let behind: &[&str] = if ["run", "once"].contains(&command) { &["--", "true"] } else { &[] };
        let typed = format!("--{name}={value}");
        let with_typed = [&words[..], &[&typed], behind].concat();
        let words = [&words[..], behind].concat();

        refused(&with_typed, &[], &[&format!("--{name}"), hint]);
        let variable = option.variable();
        let of_switch = if hint.is_empty() { "write true or false" } else { hint };
        refused(&words, &[(&variable, value)], &[&variable, of_switch]);
        fs::write(&file, format!("# The next line is wrong.\n{name} = {value:?}\n")).unwrap();
        let named = [("VVM_CONFIG", file.to_str().unwrap())];
        let of_switch = format!("write {name} = true or {name} = false");
        let hint = if hint.is_empty() { of_switch.as_str() } else { hint };
        refused(&words, &named, &[name, hint, "vvm.toml, line 2"]);
        // Variables with these names have another meaning.
        let taken = ["leader-", "test-", "stage-"].iter().any(|taken| name.starts_with(taken));
        assert!(!taken && name != "storage-password", "{command}: --{name}");
        checked += 1;
    }
    assert!(checked > 60, "{checked}");
}

/// Also in a build without sled.
#[test]
fn storage_of_one_process_is_refused_by_each_command_with_the_reason() {
    let cli = described();
    let takes_storage =
        |command: &&clap::Command| command.get_arguments().any(|option| option.get_id() == "storage");
    let mut refusals = 0;
    for command in cli.get_subcommands().filter(takes_storage) {
        // It creates a folder of sled, which the next process may open.
        for storage in ["sled:/var/lib/x", "mem:"].iter().filter(|_| command.get_name() != "init-storage") {
            let reason =
                "one process alone can open mem: or sled:, so that no other can lead in it, or look into it";
            refused(
                &[command.get_name(), "--storage", storage],
                &[],
                &["--storage", reason, "use sqlite:PATH"],
            );
            refusals += 1;
        }
    }
    assert!(refusals >= 20, "{refusals}");
}

#[test]
fn misuse_says_what_to_write() {
    let long = "x".repeat(256);
    let table: &[(&[&str], &str)] = &[
        (&["--ttl", "1ms"], "between 100ms and 24h"),
        (&["--stop-timeout", "soon"], "write a duration like 20s"),
        (&["--acquire-timeout", "never"], "write forever"),
        (&["--slots", "-1"], "from 1 to"),
        (&["--on-loss", "panic"], "possible values: exit, rejoin"),
        (&["--name", ""], "1 to 255 bytes"),
        (&["--name", "payroll "], "no blank at an end"),
        (&["--holder", "\u{a0}machine-1"], "no blank at an end"),
        (&["--holder", &long], "at most 255"),
        (&["--holder", ""], "no control characters"),
        (&["--no-such-option"], "--no-such-option"),
        (&["--try", "--acquire-timeout", "1s"], "cannot be used with"),
        (&["--storage", "sqlite:"], "the path is missing"),
        (&["--storage", "sqlite:x.db?allow=nfs"], "only overlayfs can be allowed: write allow=overlay"),
        (&["--storage", "redis://host"], "this build has sqlite:PATH"),
        (&["--storag", "sqlite:x"], "'--storage'"),
        (&["--stop-signal", "TSTP"], "it is for job control, and ends no command: write QUIT"),
        (&["--restart-limit", "3"], "--restart-limit has no effect without --on-exit restart:"),
        (&["--restart-backoff", "1s"], "--restart-backoff has no effect without --on-exit restart:"),
        (&["--check-interval", "1s"], "--check-interval has no effect without --check:"),
        (&["--pre-stop-timeout", "1s"], "--pre-stop-timeout has no effect without --pre-stop:"),
        (&["--warm", "--try"], "--try has no meaning with --warm: an app that waits"),
        (&["--warm", "--check", "true"], "--check has no meaning with --warm: the app says"),
    ];
    for (options, hint) in table {
        refused(&run(options), &[], &[hint]);
    }
    // Elsewhere is `local_wakeups` of vvm-host: what makes a folder unfit.
    refused(&run(&["--local-dir", "/dev/null"]), &[], &["--local-dir", "is no folder"]);
    refused(&["run", "--storage", "sqlite:x.db", "--name", "payroll"], &[], &["CMD"]);
    refused(&["run", "--", "true"], &[], &["--name <NAME>"]);
    let once = ["once", "--storage", "sqlite:x.db", "--name", "backup"];
    refused(&[&once[..], &["--", "true"]].concat(), &[], &["--period <TEXT>"]);
    let once_with =
        |options: &[&'static str]| [&once[..], &["--period", "p"], options, &["--", "true"]].concat();
    for (options, hint) in [
        (&["--try"][..], "vvm once takes no --try: a candidate that does not wait can't run the command"),
        (&["--slots", "2"], "vvm once takes no --slots: a period is done once"),
        (
            &["--on-exit", "restart"],
            "vvm once takes no --on-exit: a command that fails is started again by the next",
        ),
        (&["--warm"], "vvm once takes no --warm: an app that is warm works in each leadership"),
        (&["--alive-within", "5s"], "--alive-within has no effect with vvm once: leave it out"),
        (&["--restart-limit", "1"], "--restart-limit has no effect with vvm once"),
        (&["--check-interval", "1s"], "--check-interval has no effect without --check:"),
        (&["--successor", "10.0.0.7:7400"], "vvm once takes no --successor: the attempt after the loss"),
    ] {
        refused(&once_with(options), &[], &[hint]);
    }
    for (variable, hints) in [
        (("VVM_ON_EXIT", "restart"), ["takes no --on-exit", "--on-exit is set by VVM_ON_EXIT"]),
        (("VVM_WARM", "true"), ["takes no --warm", "--warm is set by VVM_WARM"]),
    ] {
        refused(&once_with(&[]), &[variable], &hints);
    }
    parse(&once_with(&["--slots", "1", "--on-exit", "release"]), &[("VVM_AFTER_STOP", "keep")]).unwrap();
    refused(&["man", "a", "b"], &[], &["unexpected argument"]);
    refused(&["completions", "tcsh"], &[], &["bash"]);
    let Err(said) = parse(&["status", "--ttl", "5s"], &[]) else { panic!("accepted") };
    assert!(said.contains("'--ttl'") && !said.contains("similar argument"), "{said}");
    let Err(said) = parse(&["stop"], &[]) else { panic!("accepted") };
    assert!(
        said.contains("vvm pause") && said.contains("vvm step-down") && !said.contains("history"),
        "{said}"
    );
    let Err(said) = parse(&run(&["--storag", "sqlite:x"]), &[]) else { panic!("accepted") };
    assert!(!said.contains("as a value"), "{said}");
    for command in ["run", "status", "doctor"] {
        let storage = "sqlit:a?pass=planted";
        let Err(said) = parse(&[command, "--storage", storage, "--name", "payroll"], &[]) else {
            panic!("accepted");
        };
        assert!(!said.contains("planted"), "{command}: {said}");
    }
    for accepted in [&["--acquire-timeout", "forever"], &["--http", "localhost:0"]] {
        parse(&run(accepted), &[]).unwrap();
    }
    let Err(said) = parse(&["--version"], &[]) else { panic!("no version") };
    assert!(said.contains("storages: sqlite"), "{said}");
}

#[test]
fn successor_is_refused_with_the_reason_where_it_can_not_be() {
    const SERVER: &str = "etcd://10.0.0.1,10.0.0.2,10.0.0.3/vvm";
    let successor = ["--storage", SERVER, "--successor", "10.0.0.7:7400"];
    parse(&run(&successor), &[]).unwrap();
    let elect = ["elect", "--name", "payroll", "--on-lead", "./lead", "--on-loss", "./lose"];
    parse(&[&elect[..], &successor].concat(), &[]).unwrap();
    for (options, hint) in [
        (
            &["--slots", "2"][..],
            "--slots can't be used with --successor: a successor is for a name with one slot",
        ),
        (&["--warm"], "--warm can't be used with --successor: a warm app is not told yet"),
        (&["--pre-stop", "./drain"], "--pre-stop can't be used with --successor: after a loss"),
        (&["--quiet-time", "3s"], "--quiet-time can't be used with --successor: a successor does not wait"),
        (&["--support", "1s"], "a support period of 1s does not fit a TTL of 20s"),
        (&["--support", "31s", "--ttl", "5m"], "it must be between 2 s and 30 s"),
        (&["--ttl", "16s"], "at most a quarter of the TTL: choose another --support, or a longer --ttl"),
    ] {
        refused(&run(&[&successor[..], options].concat()), &[], &[hint]);
        // A stage of the guardian is not asked again.
        if options[0] == "--slots" {
            refused(&[&elect[..], &successor, options].concat(), &[], &[hint]);
        }
    }
    let (variable, hint) = ([("VVM_WARM", "true")], "--warm is set by VVM_WARM");
    refused(&run(&successor), &variable, &[hint]);
    let local = run(&["--successor", "10.0.0.7:7400"]);
    refused(&local, &[], &["--successor needs a storage on a server"]);
    for listen in ["0.0.0.0:7400", "[::]:7400"] {
        let everywhere = ["--storage", SERVER, "--successor", listen];
        refused(&run(&everywhere), &[], &["no other machine reaches this one at", listen]);
        refused(&[&elect[..], &everywhere].concat(), &[], &["no other machine reaches this one at"]);
    }
    refused(&run(&["--support", "5s"]), &[], &["--support has no effect without --successor"]);
    let advertise = ["--successor-advertise", "10.0.0.7:7400"];
    refused(&run(&advertise), &[], &["--successor-advertise has no effect without --successor"]);
    parse(&run(&[&["--storage", SERVER, "--successor", "0.0.0.0:7400"], &advertise[..]].concat()), &[])
        .unwrap();
    parse(&run(&[]), &[("VVM_SUPPORT", "3s")]).unwrap();
}

fn settings_file(folder: &Path, text: &str) -> String {
    let path = folder.join("vvm.toml");
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn command_line_overrides_environment_and_environment_overrides_file() {
    let folder = tempfile::tempdir().unwrap();
    let rest = ["run", "--storage", "sqlite:x.db", "--config"];
    let parsed = |file: &str, options: &[&str], variables: &[(&str, &str)]| {
        let path = settings_file(folder.path(), file);
        match parse(&[&rest[..], &[&path], options].concat(), variables).unwrap().command {
            Command::Run(run) => run,
            other => panic!("{other:?}"),
        }
    };
    let name = |options: &[&str], variables: &[(&str, &str)]| {
        let options = [options, &["--", "true"]].concat();
        parsed("name = \"of-file\"\n", &options, variables).candidate.name
    };
    let of_environment = [("VVM_NAME", "of-environment")];
    assert_eq!(name(&["--name", "of-line"], &of_environment), "of-line");
    assert_eq!(name(&[], &of_environment), "of-environment");
    assert_eq!(name(&[], &[("VVM_NAME", "")]), "of-file", "an empty variable is unset");

    let command = "name = \"n\"\ncommand = [\"echo\", \"file\"]\n";
    assert_eq!(parsed(command, &[], &[]).command, ["echo", "file"]);
    assert_eq!(parsed(command, &["--", "true"], &[]).command, ["true"]);

    // Other commands use the same file, and ignore settings that they don't have.
    let shared = "storage = \"sqlite:x.db\"\nname = \"n\"\nkeep-credentials = true\ncommand = [\"true\"]\n";
    parse(&["status", "--config", &settings_file(folder.path(), shared)], &[]).unwrap();

    // Where two options conflict, the one of the closer source counts.
    let tries = |options: &[&str], variables: &[(&str, &str)]| {
        let options = [&["--name", "n"], options, &["--", "true"]].concat();
        parsed("try = true\n", &options, variables).candidate.try_once
    };
    assert!(tries(&[], &[]));
    assert!(!tries(&["--acquire-timeout", "1m"], &[]));
    assert!(!tries(&[], &[("VVM_ACQUIRE_TIMEOUT", "1m")]));
    // A switch that is off conflicts with nothing, and overrides one that is on.
    for off in ["0", "false", "no"] {
        assert!(!tries(&[], &[("VVM_TRY", off), ("VVM_ACQUIRE_TIMEOUT", "1m")]), "{off}");
    }
    for on in ["1", "true", "yes", "YES"] {
        let both = [("VVM_TRY", on), ("VVM_ACQUIRE_TIMEOUT", "1m")];
        refused(&run(&[]), &both, &["cannot be used with", "--try is set by VVM_TRY"]);
    }
    // A setting supplies a missing option, and settings that several commands share may be of no use.
    parse(&run(&["--restart-limit", "0"]), &[("VVM_ON_EXIT", "restart")]).unwrap();
    parse(&run(&[]), &[("VVM_CHECK_INTERVAL", "1s")]).unwrap();
}

#[test]
fn malformed_file_is_refused_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let table = [
        ("ttl = \"2s\"\ntlt = \"2s\"\n", "line 2: tlt: there is no such setting; did you mean ttl?"),
        ("stop_timeout = \"2s\"\n", "did you mean stop-timeout?"),
        ("quux = 1\n", "a key is an option of vvm without its dashes"),
        ("comand = [\"x\"]\n", "did you mean command?"),
        ("[run]\nttl = \"2s\"\n", "line 1: run: there is no such setting"),
        ("# a comment\n\nttl = 20\n", "line 3"),
        ("ttl = true\n", "line 1: ttl: write a text in quotes, as in ttl = \"20s\""),
        ("ttl = [\"2s\"]\n", "line 1: ttl: write a text in quotes"),
        ("ttl = 2.5\n", "line 1: ttl: write a text in quotes"),
        ("try = \"true\"\n", "line 1: try: write try = true or try = false"),
        ("command = \"./worker\"\n", "line 1: command: write command = [\"./worker\", \"--its-option\"]"),
        ("command = []\n", "line 1: command: write command = ["),
        ("command = [\"./worker\", 1]\n", "line 1: command: write command = ["),
        ("config = \"other.toml\"\n", "line 1: config: a settings file can't name another one"),
        ("ttl = 2s\n", "line 1: "),
        ("\n\nttl\n", "line 3: "),
        ("ttl = \"1s\"\nttl = \"2s\"\n", "line 2: duplicate key"),
        // Also if it is not used.
        ("name = 5\n", "line 1: name: write a text in quotes"),
        ("\nstorage = 5\n", "line 2: storage: write a text in quotes"),
        ("on-exit = \"bogus\"\n", "[possible values: release, restart]"),
        ("on-exit = \"bogus\"\n", "--on-exit is set in "),
        ("try = true\nacquire-timeout = \"1m\"\n", "cannot be used with"),
        ("try = true\nacquire-timeout = \"1m\"\n", "--acquire-timeout is set in "),
        ("try = true\nacquire-timeout = \"1m\"\n", ", line 1"),
    ];
    for (text, hint) in table {
        let path = settings_file(folder.path(), text);
        refused(&run(&["--config", &path]), &[], &[hint, "vvm.toml"]);
    }
    let path = settings_file(folder.path(), "storage = \"mem:\"\n");
    refused(&["run", "--config", &path, "--name", "n", "--", "true"], &[], &["use sqlite:PATH", "vvm.toml"]);
    let (missing, folder) = (folder.path().join("missing.toml"), folder.path().to_str().unwrap());
    for (path, cause) in
        [(missing.to_str().unwrap(), "No such file"), (folder, "directory"), ("/dev/zero", "too large")]
    {
        refused(&run(&["--config", path]), &[], &["--config", cause, "name a TOML file"]);
        refused(&run(&[]), &[("VVM_CONFIG", path)], &["VVM_CONFIG", cause, "name a TOML file"]);
    }
}

#[cfg(feature = "postgres")]
#[test]
fn password_is_refused_on_the_command_line() {
    for (password, hint) in [
        ("me:hunter2@a/elections", "all users of this machine can read a command line"),
        ("me@a/elections?password=hunter2", "VVM_STORAGE"),
    ] {
        let words = ["init-storage", "--storage", &format!("postgresql://{password}")];
        refused(&words, &[], &[hint, "Usage: vvm init-storage"]);
    }
}
