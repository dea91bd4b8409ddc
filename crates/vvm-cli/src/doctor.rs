//! `vvm doctor`: whether this machine and its connection to the storage are fit to lead.

mod clocks;
mod storage;

use crate::{
    args::{TargetArgs, parse_ttl},
    inspection::{conclude, inspect},
    runtime,
};
use clap::Args;
use ielections::Ttl;
use serde_json::{Map, Value, json};
use std::{
    fs,
    io::{self, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::ExitCode,
    time::Duration,
};
use tempfile::TempDir;
use vvm_clock::Readings;
use vvm_host::operate::{InspectError, Purpose, StorageInspector};

pub(crate) fn main(args: &DoctorArgs) -> ExitCode {
    // First: a namespace can be tried out only while this process has no other thread.
    let mut findings = vec![storage::containment(), storage::limits()];
    // Also a user without the right to write gets all findings.
    let examined = match inspect_storage(&args.target.storage, args) {
        Err(InspectError::NoStorage(_)) => examine_stand_in(args),
        examined => examined,
    };
    let shown = examined.and_then(|more| {
        findings.splice(0..0, more);
        show(args, &findings).map_err(InspectError::Output)
    });
    match shown {
        Ok(()) if verdict(&findings) == Health::Problem => ExitCode::FAILURE,
        Ok(()) => ExitCode::SUCCESS,
        Err(refusal) => conclude(&refusal).into(),
    }
}

fn inspect_storage(url: &str, args: &DoctorArgs) -> Result<Vec<Finding>, InspectError> {
    inspect((url, &args.target.name), Purpose::Look, async |inspector| examine(inspector, args).await)
}

/// Examines a temporary file beside the one that the first candidate will create.
fn examine_stand_in(args: &DoctorArgs) -> Result<Vec<Finding>, InspectError> {
    let stand_in = match stand_in(&args.target.storage) {
        Ok(stand_in) => stand_in,
        Err(problem) => return Ok(vec![problem]),
    };
    let runtime = runtime::start().map_err(InspectError::system)?;
    runtime.block_on(vvm_storage::init_storage(&stand_in.url))?;
    drop(runtime);
    let mut findings = inspect_storage(&stand_in.url, args)?;
    // In a new storage no candidate can have used the name.
    for finding in &mut findings {
        finding.says = stand_in.rename(&finding.says);
        if finding.about == "storage" {
            finding.health = Health::Good;
        }
    }
    let absent = format!("{} does not exist yet: the first `vvm run` creates it", args.target.storage);
    findings.insert(0, Finding::new("new storage", Health::Good, format!("{absent}; examined beside it:")));
    Ok(findings)
}

/// The shortest time over which the rates of two clocks are compared. Their readings err by microseconds.
const WINDOW: Duration = Duration::from_millis(500);

async fn examine(inspector: &StorageInspector, args: &DoctorArgs) -> Result<Vec<Finding>, InspectError> {
    let (before, enough_at) = (Readings::take(), inspector.clock.now().after(WINDOW));
    let measured = storage::measure(&inspector.storage, &inspector.clock, args).await;
    let (mut findings, newest_epoch) = storage::examine(inspector, args, &measured).await?;
    findings.extend(permissions(&args.target.storage));
    inspector.clock.sleep_until(enough_at).await;
    if let (Some(before), Some(after)) = (before, Readings::take()) {
        findings.extend(clocks::clocks(&before, &after, newest_epoch));
    }
    Ok(findings)
}

/// Returns the worst of all findings.
fn verdict(findings: &[Finding]) -> Health {
    findings.iter().map(|finding| finding.health).max().unwrap_or(Health::Good)
}

fn show(args: &DoctorArgs, findings: &[Finding]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let verdict = verdict(findings);
    if args.json {
        let findings = findings.iter().map(Finding::to_json).collect::<Vec<_>>();
        let ttl_ms = args.ttl.get().as_millis() as u64;
        let object = json!({
            "name": args.target.name, "ttl_ms": ttl_ms, "verdict": verdict.word(), "findings": findings,
        });
        return writeln!(out, "{object:#}");
    }
    for finding in findings {
        writeln!(out, "{:8} {:12} {}", finding.health.word(), finding.about, finding.says)?;
    }
    let sentence = match verdict {
        Health::Good => "Fit to lead.",
        Health::Caution => "Fit to lead, but see the lines marked caution.",
        Health::Problem => "Not fit to lead: see the lines marked problem.",
    };
    writeln!(out, "\n{sentence}")
}

/// Examine whether this machine and its connection to the storage are fit to lead.
///
/// Measures reads and conditional writes, on a record of its own that no candidate can lead, and compares
/// them with the time that the TTL leaves. Checks clocks, limits, levels of containment, and an SQLite file
/// that does not exist yet by a temporary file beside it.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Example:
  vvm doctor --storage sqlite:/var/lib/payroll/leader.db --name payroll --ttl 10s

Exit status: 0 fit to lead; 1 there are problems; 64 wrong arguments;
66 no such storage; 69 the storage refused; 71 the system refused")]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// The TTL to compare the figures with, as in vvm run
    #[arg(long, value_name = "DURATION", default_value = "20s", value_parser = parse_ttl)]
    pub(crate) ttl: Ttl,
    /// As JSON: one object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Health {
    Good,
    /// It works, with little room for mishaps.
    Caution,
    /// A leader here loses leaderships, or never acquires one.
    Problem,
}

#[derive(Clone, PartialEq, Debug)]
struct Finding {
    about: &'static str,
    health: Health,
    /// For people, with the remedy if there is one.
    says: String,
    /// For programs.
    figures: Map<String, Value>,
}

impl Health {
    fn word(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Caution => "caution",
            Self::Problem => "problem",
        }
    }
}

impl Finding {
    fn new(about: &'static str, health: Health, says: impl Into<String>) -> Self {
        Self { about, health, says: says.into(), figures: Map::new() }
    }

    /// Adds a figure.
    fn with(mut self, name: &str, figure: impl Into<Value>) -> Self {
        self.figures.insert(name.into(), figure.into());
        self
    }

    /// Adds a duration, in milliseconds.
    fn with_duration(self, name: &str, duration: Duration) -> Self {
        self.with(&format!("{name}_ms"), duration.as_secs_f64() * 1e3)
    }

    fn to_json(&self) -> Value {
        let mut object = json!({"about": self.about, "health": self.health.word(), "says": self.says});
        self.figures.iter().for_each(|(name, figure)| object[name] = figure.clone());
        object
    }
}

/// A temporary storage, removed when this is dropped.
struct StandIn {
    url: String,
    /// How findings name it, and how they are to name it.
    names: [String; 2],
    _folder: TempDir,
}

impl StandIn {
    /// Names the file that does not exist yet instead.
    fn rename(&self, text: &str) -> String {
        text.replace(&self.names[0], &self.names[1])
    }
}

/// Splits the URL of an SQLite storage into its path and its options.
fn file(url: &str) -> Option<(&Path, &str)> {
    let place = url.strip_prefix("sqlite:")?;
    let (path, options) = place.split_at(place.find('?').unwrap_or(place.len()));
    Some((Path::new(path), options))
}

/// Makes a folder for a temporary storage on the file system of the file that `url` names.
///
/// # Errors
/// With a finding, if that can't be done there.
fn stand_in(url: &str) -> Result<StandIn, Finding> {
    const NAME: &str = "doctor.db";
    let (path, options) = file(url).unwrap_or((Path::new(url), ""));
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match tempfile::Builder::new().prefix(".vvm-doctor-").tempdir_in(folder) {
        Ok(made) => {
            // Relative if the path is: the doctor warns of that.
            let name = Path::new(made.path().file_name().unwrap_or_default()).join(NAME);
            let url = format!("sqlite:{}{options}", path.with_file_name(&name).display());
            let own = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            Ok(StandIn { url, names: [name.display().to_string(), own], _folder: made })
        }
        Err(cause) => {
            // It names the remedy.
            let refusal = vvm_storage::url::check_place(url).err().map(|refusal| refusal.to_string());
            let cause = refusal.unwrap_or_else(|| format!("{cause}: choose another folder"));
            let says = format!("{} does not exist and can't be created: {cause}", path.display());
            Err(Finding::new("new storage", Health::Problem, says))
        }
    }
}

/// Cautions if every user can read or write the file. A reader can lock it, and so stop all elections in it.
fn permissions(url: &str) -> Option<Finding> {
    let (path, _) = file(url)?;
    let mode = fs::metadata(path).ok()?.permissions().mode() & 0o777;
    let says = format!(
        "every user of this machine can read {} (mode {mode:03o}). A reader can lock it, and so stop \
         elections: chmod o-rwx",
        path.display()
    );
    (mode & 0o007 != 0).then(|| Finding::new("permissions", Health::Caution, says).with("mode", mode))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_that_every_user_can_read_is_a_caution() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        fs::write(&path, "").unwrap();
        let url = format!("sqlite:{}?allow=overlay", path.display());
        for (mode, is_caution) in [(0o600, false), (0o660, false), (0o644, true), (0o602, true)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(permissions(&url).is_some(), is_caution, "{mode:o}");
        }
        assert_eq!(permissions("dynamodb://region/table"), None);
    }
}
