//! Servers that run on Java. Maven fetches them once, into the target folder.

use crate::owned;
use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Stdio,
};

/// A server's Maven coordinates.
#[derive(Clone, Copy, Debug)]
pub struct Artifact {
    /// Its group.
    pub group: &'static str,
    /// Its name.
    pub name: &'static str,
    /// Its version.
    pub version: &'static str,
}

/// The jars could not be fetched.
#[derive(Debug, thiserror::Error)]
pub enum JarsError {
    /// A program is missing.
    #[error("`{program}` can't be started ({cause}): install a JDK, 17 or later, and Maven")]
    Program {
        /// The program.
        program: &'static str,
        /// The system's error.
        cause: io::Error,
    },
    /// Maven failed.
    #[error(
        "Maven can't fetch {artifact}; its message is above. Correct its settings or the network, then run \
         this again"
    )]
    Fetch {
        /// The coordinates.
        artifact: String,
    },
    /// The target folder can't be written.
    #[error("{}: {cause}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        cause: io::Error,
    },
}

/// Fetches the jars of `artifact` and its dependencies into a folder below `target`, unless they are there.
/// Returns that folder.
///
/// # Errors
/// See [`JarsError`].
pub fn fetch(artifact: Artifact, target: &Path) -> Result<PathBuf, JarsError> {
    let Artifact { group, name, version } = artifact;
    let folder = target.join("servers").join(format!("{name}-{version}"));
    // Absolute, because Maven and servers have other working folders.
    let folder = std::path::absolute(&folder).map_err(|cause| JarsError::File { path: folder, cause })?;
    let (jars, complete) = (folder.join("lib"), folder.join("complete"));
    if complete.exists() {
        return Ok(jars);
    }
    let file = |path: &Path| {
        let path = path.to_owned();
        move |cause| JarsError::File { path, cause }
    };
    fs::create_dir_all(&folder).map_err(file(&folder))?;
    let pom = folder.join("pom.xml");
    let text = format!(
        "<project xmlns=\"http://maven.apache.org/POM/4.0.0\"><modelVersion>4.0.0</modelVersion>\
         <groupId>vvm</groupId><artifactId>servers</artifactId><version>1</version><dependencies><dependency>\
         <groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>\
         </dependency></dependencies></project>\n"
    );
    fs::write(&pom, text).map_err(file(&pom))?;
    let program = |cause| JarsError::Program { program: "mvn", cause };
    let fetched = owned::command("mvn")
        .map_err(program)?
        .args(["-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=lib"])
        .current_dir(&folder)
        .stdin(Stdio::null())
        .status()
        .map_err(program)?;
    if !fetched.success() {
        return Err(JarsError::Fetch { artifact: format!("{group}:{name}:{version}") });
    }
    fs::write(&complete, "").map_err(file(&complete))?;
    Ok(jars)
}
