//! The workers of `examples/workers`, whose stale writes PostgreSQL has to refuse.

use crate::cases::{Cases, Suite};
use servers::target;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The folder of the workers, below the root of the repository, in which cargo's commands run.
const SOURCES: &str = "examples/workers";

/// Runs them on a database, under `vvm` on a storage. Returns the cases, and which workers were left out and
/// why.
pub(super) fn run(
    database: &str,
    storage: &[(&'static str, &str); 2],
) -> Result<(Cases, Vec<String>), String> {
    let mut environment = storage.to_vec();
    environment.push(("VVM_TEST_WORKERS_DATABASE", database));
    let made = [("in_python", "VVM_TEST_WORKERS_PYTHON", python()), ("in_go", "VVM_TEST_WORKERS_GO", go())];
    let (mut modules, mut left_out) = (vec!["in_rust"], Vec::new());
    for (module, variable, worker) in &made {
        match worker {
            Ok(path) => {
                modules.push(module);
                environment.push((variable, path));
            }
            Err(error) => left_out.push(format!("the worker {module} ({error})")),
        }
    }
    // With `guardian`, cargo builds `vvm`, too. It has no such modules.
    let tests = &["guardian", "stale_writes"];
    let suite = Suite { tests, only: &modules, threads: 3, environment: &environment };
    let cases = suite.run()?;
    // Two in Rust, and one in each other language.
    let expected = modules.len() + 1;
    match cases.count() {
        count if count == expected => Ok((cases, left_out)),
        count => Err(format!("{count} cases of workers ran of {expected}")),
    }
}

/// Makes a virtual environment with what the Python worker requires, once. Returns its interpreter.
fn python() -> Result<String, String> {
    let requirements = Path::new(SOURCES).join("python/requirements.txt");
    let folder = place("python")?;
    let complete = folder.join("complete");
    let wanted = fs::read_to_string(&requirements).map_err(|error| error.to_string())?;
    let interpreter = folder.join("bin/python").display().to_string();
    if fs::read_to_string(&complete).is_ok_and(|made_for| made_for == wanted) {
        return Ok(interpreter);
    }
    finish(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder))?;
    let mut install = Command::new(&interpreter);
    finish(install.args(["-m", "pip", "install", "--quiet", "--requirement"]).arg(requirements))?;
    fs::write(&complete, wanted).map_err(|error| error.to_string())?;
    Ok(interpreter)
}

/// Builds the Go worker. Go keeps what it has built.
fn go() -> Result<String, String> {
    let program = place("go")?.join("payroll");
    let mut build = Command::new("go");
    build.args(["build", "-buildvcs=false", "-o"]).arg(&program).arg(".");
    finish(build.current_dir(Path::new(SOURCES).join("go")))?;
    Ok(program.display().to_string())
}

/// Returns a folder below cargo's target folder, with an absolute path.
fn place(language: &str) -> Result<PathBuf, String> {
    let folder = target().join("servers/workers").join(language);
    std::path::absolute(folder).map_err(|error| error.to_string())
}

/// Runs a command to its end.
fn finish(command: &mut Command) -> Result<(), String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("`{program}` can't be started: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let printed = [output.stdout, output.stderr].concat();
    let printed = String::from_utf8_lossy(&printed);
    Err(format!("`{program}`: {}: {}", output.status, printed.trim().lines().last().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_that_is_missing_or_fails_is_named_with_its_last_line() {
        let missing = finish(&mut Command::new("no-such-program")).unwrap_err();
        assert!(missing.starts_with("`no-such-program` can't be started: "), "{missing}");
        let fails = finish(Command::new("sh").args(["-c", "echo first; echo last >&2; exit 3"]));
        assert_eq!(fails, Err("`sh`: exit status: 3: last".into()));
        assert_eq!(finish(&mut Command::new("true")), Ok(()));
    }
}
