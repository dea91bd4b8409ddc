//! What is built from which sources: static programs, and what accompanies them: completions and manual pages that they
//! print themselves, units, and licences. The same commit and toolchain give the same bytes in any folder.
//!
//! Panics, C assertions and line tables would name folders of this machine: each compiler gets a map to fixed names.
//! `--target` is always named, so that these flags apply to the program and not to build scripts.

use super::{
    DistError,
    archives::{self, File, deb, gzip, image, sums, tar, wheel},
    licences::licences,
    output, read, write,
};
use crate::workspace::{Workspace, cargo};
use std::{
    env,
    ffi::OsString,
    fmt, fs, io,
    path::{Path, PathBuf},
    process::Command,
};

/// The sources of one release for one target.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) root: PathBuf,
    commit: String,
    /// The commit's time, in seconds since 1970: the time of every file that is made.
    pub(super) time: u64,
    pub(super) version: String,
    pub(super) target: Target,
}

/// A target.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) triple: String,
    pub(super) machine: Machine,
    pub(super) has_glibc: bool,
}

/// A kind of processor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Machine {
    pub(super) linux: &'static str,
    /// The name that Debian and Go use.
    pub(super) debian: &'static str,
}

/// A C library.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub(super) enum Libc {
    Gnu,
    Musl,
}

const MACHINES: [Machine; 2] =
    [Machine { linux: "x86_64", debian: "amd64" }, Machine { linux: "aarch64", debian: "arm64" }];

impl Target {
    /// Returns a target on a machine like this one: a program must run here, because it prints its pages.
    fn of(machine: &str, libc: Libc) -> Result<Self, DistError> {
        let known = MACHINES.into_iter().find(|known| known.linux == machine);
        let machine = known.ok_or_else(|| DistError::Machine(machine.into()))?;
        let name = if libc == Libc::Gnu { "gnu" } else { "musl" };
        let triple = format!("{}-unknown-linux-{name}", machine.linux);
        Ok(Self { triple, machine, has_glibc: libc == Libc::Gnu })
    }
}

impl Source {
    /// Reads the workspace and its last commit.
    ///
    /// # Errors
    /// No workspace, no commit, or a machine without a target.
    pub(super) fn read(libc: Libc) -> Result<Self, DistError> {
        let target = Target::of(env::consts::ARCH, libc)?;
        let root = Workspace::read()?.root;
        let root = fs::canonicalize(&root).map_err(|cause| DistError::File { path: root, cause })?;
        let said = output(git(&root).args(["log", "-1", "--format=%H %ct"]))?;
        let said = String::from_utf8_lossy(&said);
        let unknown = || DistError::Unexpected("git names no commit and its time".into());
        let (commit, time) = said.trim().split_once(' ').ok_or_else(unknown)?;
        let time = time.parse().map_err(|_| unknown())?;
        let version = version(&root)?;
        Ok(Self { root, commit: commit.to_owned(), time, version, target })
    }

    /// Checks that the work tree equals the commit.
    ///
    /// # Errors
    /// If it does not.
    pub(super) fn must_be_committed(&self) -> Result<(), DistError> {
        let changes = output(git(&self.root).args(["status", "--porcelain"]))?;
        let changes = String::from_utf8_lossy(&changes).into_owned();
        if changes.is_empty() { Ok(()) } else { Err(DistError::Changed(changes)) }
    }

    /// Returns the commit's files in another folder.
    ///
    /// # Errors
    /// They can't be read or written.
    pub(super) fn copy_to(&self, folder: &Path) -> Result<Self, DistError> {
        let failed = |cause: io::Error| DistError::File { path: folder.into(), cause };
        let files = output(git(&self.root).args(["archive", "--format=tar", &self.commit]))?;
        tar::Archive::new(&*files).unpack(folder).map_err(failed)?;
        let root = fs::canonicalize(folder).map_err(failed)?;
        Ok(Self { root, ..self.clone() })
    }

    /// Returns where the files of this target are written.
    pub(super) fn packages(&self) -> PathBuf {
        self.root.join("target/packages").join(&self.target.triple)
    }

    /// Returns a file of the sources.
    ///
    /// # Errors
    /// It can't be read.
    pub(super) fn file(&self, path: &str) -> Result<Vec<u8>, DistError> {
        read(&self.root.join(path))
    }
}

pub(super) fn git(root: &Path) -> Command {
    let mut git = Command::new("git");
    git.arg("-C").arg(root);
    git
}

/// Returns the version of the workspace, which all crates have.
fn version(root: &Path) -> Result<String, DistError> {
    let manifest = read(&root.join("Cargo.toml"))?;
    let manifest = String::from_utf8_lossy(&manifest);
    let lines = manifest.lines().skip_while(|line| *line != "[workspace.package]");
    let version = lines.filter_map(|line| line.strip_prefix("version = \"")?.strip_suffix('"')).next();
    version.map(str::to_owned).ok_or_else(|| DistError::Unexpected("Cargo.toml has no version".into()))
}

/// Returns cargo's own folder, which has the sources of dependencies.
fn cargo_home() -> PathBuf {
    let named = env::var_os("CARGO_HOME").map(PathBuf::from);
    named.unwrap_or_else(|| PathBuf::from(env::var_os("HOME").unwrap_or_default()).join(".cargo"))
}

/// Which storages a program has.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Storages {
    /// SQLite, and none on another machine.
    Sqlite,
    All,
}

impl Storages {
    const EACH: [Self; 2] = [Self::Sqlite, Self::All];

    /// Features of vvm-cli.
    fn features(self) -> &'static str {
        match self {
            Self::Sqlite => "",
            Self::All => "scylla,postgres,mysql,etcd,kubernetes,object-store,dynamodb",
        }
    }

    /// The first word of an archive's name.
    fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "vvm-sqlite",
            Self::All => "vvm",
        }
    }
}

/// Builds the program, and returns its path.
///
/// # Errors
/// It does not build.
fn build(source: &Source, storages: Storages) -> Result<PathBuf, DistError> {
    let triple = &source.target.triple;
    let target_folder = source.root.join("target");
    let mut command = cargo();
    command
        .args(["rustc", "--locked", "--profile", "dist", "--package", "vvm-cli", "--bin", "vvm"])
        .args(["--target", triple, "--target-dir"])
        .arg(&target_folder)
        .args(["--features", storages.features()])
        // The profile has this setting, too, but not for a package with settings of its own.
        .args(["--", "-C", "strip=symbols"])
        .current_dir(&source.root)
        .env("CARGO_ENCODED_RUSTFLAGS", rust_flags(source)?)
        .env(format!("CFLAGS_{}", triple.replace('-', "_")), c_flags(&source.root, &cargo_home()))
        .env("SOURCE_DATE_EPOCH", source.time.to_string());
    let status = command.status();
    let status = status.map_err(|cause| DistError::Start { program: "cargo".into(), cause })?;
    if !status.success() {
        let command = format!("cargo rustc --profile dist --target {triple}");
        return Err(DistError::Failed { command, status: status.to_string(), said: String::new() });
    }
    Ok(target_folder.join(triple).join("dist/vvm"))
}

/// Returns flags for rustc, separated as Cargo wants them.
fn rust_flags(source: &Source) -> Result<OsString, DistError> {
    let mut flags: Vec<OsString> = vec!["-C".into(), "target-feature=+crt-static".into()];
    for (folder, name) in renamed_folders(&source.root, &cargo_home()) {
        let mut flag = OsString::from("--remap-path-prefix=");
        flag.push(&folder);
        flag.push(format!("={name}"));
        flags.push(flag);
    }
    if source.target.has_glibc {
        let mut flag = OsString::from("link-arg=");
        flag.push(name_service(source)?);
        flags.extend(["-C".into(), flag]);
    }
    Ok(flags.join(OsString::from("\x1f").as_os_str()))
}

fn c_flags(root: &Path, cargo_home: &Path) -> String {
    renamed_folders(root, cargo_home)
        .map(|(folder, name)| format!("-ffile-prefix-map={}={name}", folder.display()))
        .join(" ")
}

/// Returns folders of this machine, and their fixed names in the program.
fn renamed_folders(root: &Path, cargo_home: &Path) -> [(PathBuf, &'static str); 2] {
    [(root.into(), "/vvm"), (cargo_home.into(), "/cargo")]
}

/// Compiles the part that keeps a static glibc from loading shared libraries; its source says why.
fn name_service(source: &Source) -> Result<PathBuf, DistError> {
    let object = source.root.join("target").join(&source.target.triple).join("name_service.o");
    write(&object, b"")?;
    let compiler = env::var_os("CC").unwrap_or_else(|| "cc".into());
    let mut command = Command::new(compiler);
    command.args(["-c", "-O2", "-fPIE", "-o"]).arg(&object);
    output(command.arg(source.root.join("packaging/static/name_service.c")))?;
    Ok(object)
}

/// A program with what accompanies it.
#[derive(Debug)]
struct Contents {
    program: Vec<u8>,
    /// The client for warm apps in Python, below the folder of packages.
    client: Vec<File>,
    /// Named as on Debian: `vvm.1`, `vvm-run.1`, ….
    pages: Vec<File>,
    /// Each with the path where Debian has it.
    completions: Vec<(File, &'static str)>,
    /// Of ourselves and of all that is linked, without folders.
    licences: Vec<File>,
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
    fn collect(source: &Source, path: &Path, third_party: String) -> Result<Self, DistError> {
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
        let mut client = Vec::new();
        for name in ["vvm/__init__.py", "vvm/py.typed"] {
            client.push(File::new(name, source.file(&format!("clients/python/{name}"))?));
        }
        let mut licences = Vec::new();
        for name in ["LICENSE-APACHE", "LICENSE-MIT"] {
            licences.push(File::new(name, source.file(name)?));
        }
        licences.push(File::new("LICENSES-OF-DEPENDENCIES.txt", third_party));
        Ok(Self {
            program: read(path)?,
            client,
            pages,
            completions,
            licences,
            unit: source.file("packaging/vvm@.service")?,
            hardening: source.file("packaging/hardening.conf")?,
            changes: source.file("CHANGELOG.md")?,
        })
    }

    /// Returns the files of an archive.
    fn of_archive(&self) -> Vec<File> {
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
    fn of_debian(&self) -> Result<Vec<File>, DistError> {
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
    fn of_image(&self) -> Vec<File> {
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
        let path = build(source, storages)?;
        let contents = Contents::collect(source, &path, licences(source, storages.features())?)?;
        made.programs.push((storages, contents.program.len()));
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
    let debian = deb(version, machine.debian, &contents.of_debian()?, *time)?;
    let wheel = wheel(version, machine.linux, &contents.program, &contents.client, &contents.licences)?;
    let image = image(version, machine.debian, &contents.of_image(), *time)?;
    Ok([
        File::new(format!("{}_{version}_{}.deb", archives::NAME, machine.debian), debian),
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
    fn target_follows_from_machine_and_library() {
        let arm = Target::of("aarch64", Libc::Musl).unwrap();
        let expected = ("aarch64-unknown-linux-musl", "arm64", false);
        assert_eq!((&*arm.triple, arm.machine.debian, arm.has_glibc), expected);
        assert_eq!(Target::of("x86_64", Libc::Gnu).unwrap().triple, "x86_64-unknown-linux-gnu");
        assert!(Target::of("riscv64", Libc::Gnu).is_err());
    }

    #[test]
    fn c_compiler_maps_both_folders() {
        let flags = c_flags(Path::new("/a/vvm"), Path::new("/b/.cargo"));
        assert_eq!(flags, "-ffile-prefix-map=/a/vvm=/vvm -ffile-prefix-map=/b/.cargo=/cargo");
    }

    #[test]
    fn commands_are_read_from_the_manual_page() {
        let page = ".SH SUBCOMMANDS\n.TP\nvvm\\-run(1)\nRuns a command\n.TP\nvvm\\-step\\-down(1)\nvvm(1)\n";
        assert_eq!(commands(page), ["run", "step-down"]);
    }
}
