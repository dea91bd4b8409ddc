//! What accompanies a program: completions and manual pages that it prints itself, units, and licences.

use super::{
    build::{Storages, build},
    deb::{self, Control, deb},
    draft::{DistError, output, write},
    image::image,
    licences::licences,
    source::Source,
    tarball::{File, gzip, sums, tar},
    wheel::wheel,
};
use std::{fmt, fs, path::Path, process::Command};

/// A program with what accompanies it.
#[derive(Debug)]
pub(super) struct Contents {
    pub(super) program: Vec<u8>,
    /// Named as on Debian: `vvm.1`, `vvm-run.1`, ….
    pages: Vec<File>,
    /// Each with the path where Debian has it.
    completions: Vec<(File, &'static str)>,
    /// Of ourselves and of all that is linked, without folders.
    pub(super) licences: Vec<File>,
    unit: Vec<u8>,
    hardening: Vec<u8>,
    changes: Vec<u8>,
}

const COMPLETIONS: [(&str, &str, &str); 3] = [
    ("bash", "vvm.bash", "usr/share/bash-completion/completions/vvm"),
    ("zsh", "_vvm", "usr/share/zsh/vendor-completions/_vvm"),
    ("fish", "vvm.fish", "usr/share/fish/vendor_completions.d/vvm.fish"),
];

impl Contents {
    /// Collects them from the program at `path` and from the sources.
    ///
    /// # Errors
    /// The program does not run, or a file can't be read.
    pub(super) fn collect(source: &Source, path: &Path, third_party: String) -> Result<Self, DistError> {
        let says = |arguments: &[&str]| output(Command::new(path).args(arguments));
        let main = says(&["man"])?;
        let mut pages = vec![File::new("vvm.1", main.clone())];
        for name in commands(&String::from_utf8_lossy(&main)) {
            pages.push(File::new(format!("vvm-{name}.1"), says(&["man", &name])?));
        }
        let mut completions = Vec::new();
        for (shell, name, place) in COMPLETIONS {
            completions.push((File::new(name, says(&["completions", shell])?), place));
        }
        let mut licences = Vec::new();
        for name in ["LICENSE-APACHE", "LICENSE-MIT"] {
            licences.push(File::new(name, source.file(name)?));
        }
        licences.push(File::new("LICENSES-OF-DEPENDENCIES.txt", third_party));
        Ok(Self {
            program: super::draft::read(path)?,
            pages,
            completions,
            licences,
            unit: source.file("packaging/vvm@.service")?,
            hardening: source.file("packaging/hardening.conf")?,
            changes: source.file("CHANGELOG.md")?,
        })
    }

    /// Returns the files of an archive.
    pub(super) fn of_archive(&self) -> Vec<File> {
        let mut files = vec![File::program("vvm", self.program.clone())];
        files.extend(self.pages.iter().map(|page| page.clone().below("man")));
        files.extend(self.completions.iter().map(|(file, _)| file.clone().below("completions")));
        files.extend(self.licences.iter().cloned());
        files.push(File::new("systemd/vvm@.service", self.unit.clone()));
        files.push(File::new("systemd/hardening.conf", self.hardening.clone()));
        files.push(File::new("CHANGELOG.md", self.changes.clone()));
        files
    }

    /// Returns the files of a Debian package, relative to the root folder.
    ///
    /// # Errors
    /// None in practice: it compresses in memory.
    pub(super) fn of_debian(&self) -> Result<Vec<File>, DistError> {
        let mut files = vec![File::program("usr/bin/vvm", self.program.clone())];
        for page in &self.pages {
            files.push(File::new(format!("usr/share/man/man1/{}.gz", page.path), gzip(&page.bytes)?));
        }
        let completions = self.completions.iter();
        files.extend(completions.map(|(file, place)| File::new(*place, file.bytes.clone())));
        let documents = "usr/share/doc/vvm-cli";
        let copyright: Vec<u8> =
            self.licences.iter().flat_map(|file| [&*file.bytes, b"\n"].concat()).collect();
        files.push(File::new(format!("{documents}/copyright"), copyright));
        files.push(File::new(format!("{documents}/changelog.gz"), gzip(&self.changes)?));
        files.push(File::new(format!("{documents}/examples/hardening.conf"), self.hardening.clone()));
        files.push(File::new("usr/lib/systemd/system/vvm@.service", self.unit.clone()));
        Ok(files)
    }

    /// Returns the files of a container image: no shell reads completions there.
    pub(super) fn of_image(&self) -> Vec<File> {
        let mut files = vec![File::program("usr/bin/vvm", self.program.clone())];
        let licences = self.licences.iter().cloned();
        files.extend(licences.map(|file| file.below("usr/share/doc/vvm-cli")));
        files
    }
}

/// Returns the commands that the manual page of the program refers to, as `vvm\-run(1)`.
fn commands(page: &str) -> Vec<String> {
    let plain = page.lines().map(|line| line.replace("\\-", "-"));
    plain.filter_map(|line| line.strip_prefix("vvm-")?.strip_suffix("(1)").map(str::to_owned)).collect()
}

/// The files that were made.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) files: Vec<File>,
    programs: Vec<(Storages, usize)>,
}

/// Builds both programs and writes all files to the folder of the target, which is emptied first.
///
/// # Errors
/// A program does not build or run, or a file can't be written.
pub(super) fn make(source: &Source) -> Result<Made, DistError> {
    let folder = source.packages();
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(|cause| DistError::File { path: folder.clone(), cause })?;
    }
    let mut made = Made { files: Vec::new(), programs: Vec::new() };
    for storages in Storages::EACH {
        let program = build(source, storages)?;
        let path = source.root.join("target").join(&source.target.triple).join("dist/vvm");
        let contents = Contents::collect(source, &path, licences(source, storages)?)?;
        made.programs.push((storages, program.len()));
        made.files.push(archive(source, storages, &contents)?);
        // One per machine: a static program needs neither C library.
        if storages == Storages::All && source.target.has_glibc {
            made.files.extend(packages(source, &contents)?);
        }
    }
    for file in &made.files {
        write(&folder.join(&file.path), &file.bytes)?;
    }
    write(&folder.join("SHA256SUMS"), sums(&made.files).as_bytes())?;
    Ok(made)
}

/// Returns an archive whose files are in one folder, with their sums.
fn archive(source: &Source, storages: Storages, contents: &Contents) -> Result<File, DistError> {
    let stem = format!("{}-{}-{}", storages.name(), source.version, source.target.triple);
    let mut files = contents.of_archive();
    files.push(File::new("SHA256SUMS", sums(&files)));
    let files: Vec<File> = files.into_iter().map(|file| file.below(&stem)).collect();
    Ok(File::new(format!("{stem}.tar.gz"), gzip(&tar(&files, source.time)?)?))
}

fn packages(source: &Source, contents: &Contents) -> Result<[File; 3], DistError> {
    let Source { version, time, .. } = source;
    let machine = source.target.machine;
    let control = Control { version, architecture: machine.debian };
    let debian = deb(&control, &contents.of_debian()?, *time)?;
    let wheel = wheel(version, machine.linux, &contents.program, &contents.licences)?;
    let image = image(version, machine.debian, &contents.of_image(), *time)?;
    Ok([
        File::new(format!("{}_{version}_{}.deb", deb::NAME, machine.debian), debian),
        File::new(wheel.name, wheel.bytes),
        File::new(format!("vvm-{version}-{}.oci.tar", machine.debian), image),
    ])
}

impl fmt::Display for Made {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mega = |bytes: usize| format!("{:.1} MB", bytes as f64 / 1e6);
        for (storages, bytes) in &self.programs {
            writeln!(out, "{:>8}  program {}", mega(*bytes), storages.name())?;
        }
        for file in &self.files {
            writeln!(out, "{:>8}  {}", mega(file.bytes.len()), file.path)?;
        }
        write!(out, "{}", sums(&self.files))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read_from_the_manual_page() {
        let page = ".SH SUBCOMMANDS\n.TP\nvvm\\-run(1)\nRuns a command\n.TP\nvvm\\-step\\-down(1)\nvvm(1)\n";
        assert_eq!(commands(page), ["run", "step-down"]);
    }
}
