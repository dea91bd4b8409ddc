//! Completions and manual pages, generated from the description of the command line. The program prints them itself, so
//! that a packager needs no build step.

use crate::{announce::say, exit, inspection::InspectionError};
use clap::{Args, Command, builder::Resettable};
use clap_complete::Shell;
use std::{
    io::{self, Write as _},
    process::ExitCode,
};
use vvm_host::operate::InspectError;

pub(super) fn completions(args: &CompletionsArgs) -> ExitCode {
    write(&script(args.shell))
}

fn script(shell: Shell) -> Vec<u8> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut for_people(), "vvm", &mut text);
    text
}

pub(super) fn man(args: &ManArgs) -> ExitCode {
    let cli = for_people();
    let command = match &args.command {
        None => cli.disable_help_subcommand(true),
        Some(name) => match cli.find_subcommand(name) {
            // Named like the pages of git: vvm-run(1).
            Some(command) => page_of(command),
            None => {
                let names = cli.get_subcommands().map(Command::get_name).collect::<Vec<_>>().join(", ");
                say!("there is no command `{name}`: write one of {names}, or none for vvm itself");
                return exit::MISUSE.into();
            }
        },
    };
    page(command).map_or_else(refuse, |text| write(&text))
}

/// Notes keep their line breaks, because they contain tables.
fn page(command: Command) -> io::Result<Vec<u8>> {
    let notes = command.get_after_long_help().or(command.get_after_help()).map(ToString::to_string);
    let command = command.after_help(Resettable::Reset).after_long_help(Resettable::Reset);
    let mut text = Vec::new();
    clap_mangen::Man::new(command).source(concat!("vvm ", env!("CARGO_PKG_VERSION"))).render(&mut text)?;
    if let Some(notes) = notes {
        writeln!(text, ".SH NOTES\n.nf")?;
        for line in notes.lines() {
            // `\&` has no width, and keeps a dot from starting a command.
            writeln!(text, "\\&{}", line.replace('\\', "\\e").replace('-', "\\-"))?;
        }
        writeln!(text, ".fi")?;
    }
    Ok(text)
}

fn for_people() -> Command {
    let cli = super::described();
    let visible = cli.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    let described = Command::new("vvm").version(env!("CARGO_PKG_VERSION")).subcommand_required(true);
    described.about(cli.get_about().cloned().unwrap_or_default()).subcommands(visible)
}

fn page_of(command: &Command) -> Command {
    let name = command.get_name();
    command.clone().display_name(format!("vvm-{name}")).bin_name(format!("vvm {name}"))
}

fn write(text: &[u8]) -> ExitCode {
    let mut output = io::stdout().lock();
    output.write_all(text).and_then(|()| output.flush()).map_or_else(refuse, |()| ExitCode::SUCCESS)
}

fn refuse(cause: io::Error) -> ExitCode {
    InspectionError::from(InspectError::Output(cause)).conclude().into()
}

/// Print a completion script for a shell.
///
/// For bash, write it to a folder that bash-completion reads; for zsh, to a folder of $fpath, as _vvm; for
/// fish, to its folder of completions.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Example:
  vvm completions bash > /usr/share/bash-completion/completions/vvm
  vvm completions zsh > /usr/share/zsh/vendor-completions/_vvm

Exit status: 0; 64 wrong arguments; 71 the system refused")]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub(crate) shell: Shell,
}

/// Print a manual page in roff, of vvm or of one of its commands.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Example:
  vvm man > /usr/share/man/man1/vvm.1
  vvm man run > /usr/share/man/man1/vvm-run.1

Exit status: 0; 64 wrong arguments; 71 the system refused")]
pub(crate) struct ManArgs {
    /// The command; without it, vvm itself
    #[arg(value_name = "COMMAND")]
    pub(crate) command: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum as _;
    use std::process;

    fn commands() -> Vec<String> {
        for_people().get_subcommands().map(|command| command.get_name().to_owned()).collect()
    }

    #[test]
    fn completions_have_no_internal_command() {
        for shell in Shell::value_variants() {
            let script = String::from_utf8(script(*shell)).unwrap();
            assert!(script.contains("step-down"), "{shell}");
            assert!(!script.contains("stage-") && !script.contains("demo-worker"), "{shell}");
        }
    }

    fn bash(script: &str, arguments: &[&str]) -> String {
        let mut bash = process::Command::new("bash");
        // It warns of a language that the machine doesn't have.
        let bash = bash.env("LC_ALL", "C").args(["-c", script, "bash"]).args(arguments);
        let output = bash.output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn bash_completes_commands_and_options() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vvm");
        std::fs::write(&path, script(Shell::Bash)).unwrap();
        let path = path.to_str().unwrap();
        let complete = "source \"$1\"; shift; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); \
                        _vvm vvm \"${COMP_WORDS[COMP_CWORD]}\" \"${COMP_WORDS[COMP_CWORD-1]}\"; echo \
                        \"${COMPREPLY[@]}\"";
        assert_eq!(bash(complete, &[path, "vvm", "run", "--stor"]).trim(), "--storage");
        assert_eq!(bash(complete, &[path, "vvm", "run", "--conf"]).trim(), "--config");
        let offered = bash(complete, &[path, "vvm", ""]);
        for command in commands() {
            assert!(offered.split_whitespace().any(|word| word == command), "{command}: {offered}");
        }
    }

    #[test]
    fn manual_pages_have_notes_and_pass_groff() {
        let cli = for_people();
        for name in commands() {
            let text = page(page_of(cli.find_subcommand(&name).unwrap())).unwrap();
            let text = String::from_utf8(text).unwrap();
            assert!(
                text.contains(".SH NAME\n") && (text.contains(".SH NOTES\n") || name == "demo"),
                "{text}"
            );
            check(&text, &format!("vvm-{name}"));
        }
        check(&String::from_utf8(page(cli.disable_help_subcommand(true)).unwrap()).unwrap(), "vvm");
    }

    fn check(page: &str, name: &str) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, page).unwrap();
        match process::Command::new("groff").args(["-k", "-man", "-Tutf8", "-ww"]).arg(&path).output() {
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                assert!(output.status.success() && said.is_empty(), "{name}: {said}");
                let shown = String::from_utf8(output.stdout).unwrap();
                assert!(shown.contains(name), "{shown}");
            }
            Err(missing) => println!("not checked: groff is missing: {missing}"),
        }
    }
}
