//! `vvm completions` and `vvm man`.

use clap::Args;
use clap_complete::Shell;

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
