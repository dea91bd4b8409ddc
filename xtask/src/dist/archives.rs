//! Archives whose bytes follow from their files alone: sorted, of user 0, with the time of the commit. A Debian package,
//! a Python wheel and a container image are such archives.

use super::DistError;
use data_encoding::{BASE64URL_NOPAD, HEXLOWER};
use flate2::{Compression, write::GzEncoder};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::{
    collections::BTreeSet,
    io::{self, Cursor, Write as _},
};
use tar::{Builder, EntryType, Header};
use zip::{CompressionMethod, DateTime, ZipWriter, write::SimpleFileOptions};

/// Returns a tar archive of these files and their folders.
///
/// # Errors
/// A path has more than 100 bytes, which no file of ours has.
pub(super) fn tar(files: &[File], time: u64) -> Result<Vec<u8>, DistError> {
    let mut archive = Builder::new(Vec::new());
    for folder in folders(files) {
        append(&mut archive, EntryType::Directory, &format!("{folder}/"), 0o755, time, &[])?;
    }
    let mut sorted: Vec<&File> = files.iter().collect();
    sorted.sort_by(|left, right| left.path.cmp(&right.path));
    for file in sorted {
        append(&mut archive, EntryType::Regular, &file.path, file.mode(), time, &file.bytes)?;
    }
    Ok(archive.into_inner()?)
}

fn append(
    archive: &mut Builder<Vec<u8>>,
    kind: EntryType,
    path: &str,
    mode: u32,
    time: u64,
    bytes: &[u8],
) -> io::Result<()> {
    let mut header = Header::new_ustar();
    header.set_path(path)?;
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_mtime(time);
    header.set_size(bytes.len() as u64);
    header.set_uid(0);
    header.set_gid(0);
    header.set_username("root")?;
    header.set_groupname("root")?;
    header.set_cksum();
    archive.append(&header, bytes)
}

/// Compresses, without a time and a name in the result.
///
/// # Errors
/// None in practice: it writes to memory.
pub(super) fn gzip(bytes: &[u8]) -> Result<Vec<u8>, DistError> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes)?;
    Ok(encoder.finish()?)
}

/// Returns the sum of these bytes, in hexadecimal digits.
pub(super) fn sha256(bytes: &[u8]) -> String {
    HEXLOWER.encode(&Sha256::digest(bytes))
}

/// Returns the content of `SHA256SUMS` for these files.
pub(super) fn sums(files: &[File]) -> String {
    let mut lines: Vec<_> =
        files.iter().map(|file| (&file.path, format!("{}  {}\n", sha256(&file.bytes), file.path))).collect();
    lines.sort();
    lines.into_iter().map(|(_, line)| line).collect()
}

/// A file with its path, relative to the archive's root.
#[derive(Clone, Debug)]
pub(super) struct File {
    pub(super) path: String,
    pub(super) is_program: bool,
    pub(super) bytes: Vec<u8>,
}

impl File {
    pub(super) fn new(path: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        Self { path: path.into(), is_program: false, bytes: bytes.into() }
    }

    pub(super) fn program(path: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        Self { is_program: true, ..Self::new(path, bytes) }
    }

    pub(super) fn mode(&self) -> u32 {
        if self.is_program { 0o755 } else { 0o644 }
    }

    /// Returns the same file below a folder.
    pub(super) fn below(mut self, folder: &str) -> Self {
        self.path = format!("{folder}/{}", self.path);
        self
    }
}

/// Returns the folders of these files, each behind those that contain it.
pub(super) fn folders(files: &[File]) -> BTreeSet<&str> {
    let of = |file: &'_ File| file.path.match_indices('/').map(|(at, _)| at).collect::<Vec<_>>();
    files.iter().flat_map(|file| of(file).into_iter().map(|at| &file.path[..at])).collect()
}

/// The Debian package's name. A program of ours is called `vvm`; a package may have to share that name with others.
pub(super) const NAME: &str = "vvm-cli";

/// Returns a Debian package with these files, whose paths are relative to the root folder: an `ar` archive with a version,
/// a tar of control files and a tar of the files to install (deb(5)). It depends on nothing, because its program is
/// static, and has no scripts.
///
/// # Errors
/// See [`tar()`].
pub(super) fn deb(
    version: &str,
    architecture: &str,
    files: &[File],
    time: u64,
) -> Result<Vec<u8>, DistError> {
    let kib = files.iter().map(|file| file.bytes.len().div_ceil(1024)).sum::<usize>();
    let text = format!(
        "Package: {NAME}\nVersion: {version}\nArchitecture: {architecture}\n\
         Maintainer: the maintainers of vvm <maintainers@vvm.invalid>\n\
         Installed-Size: {kib}\nSection: admin\nPriority: optional\n\
         Description: run a command on one machine only\n \
         Leader election on a database that you already run. The program runs a command\n \
         while its process leads, and kills it before another process can lead.\n"
    );
    let control = gzip(&tar(&[File::new("control", text)], time)?)?;
    let data = gzip(&tar(files, time)?)?;
    let members =
        [("debian-binary", b"2.0\n".as_slice()), ("control.tar.gz", &control), ("data.tar.gz", &data)];
    Ok(ar(&members, time))
}

/// Returns an archive of ar(5). Names have at most 16 letters.
fn ar(members: &[(&str, &[u8])], time: u64) -> Vec<u8> {
    let mut archive = b"!<arch>\n".to_vec();
    for (name, bytes) in members {
        let header = format!("{name:<16}{time:<12}{:<6}{:<6}{:<8}{:<10}`\n", 0, 0, 100_644, bytes.len());
        archive.extend(header.as_bytes());
        archive.extend(*bytes);
        if bytes.len() % 2 == 1 {
            archive.push(b'\n');
        }
    }
    archive
}

/// A wheel's name and its content.
#[derive(Debug)]
pub(super) struct Wheel {
    pub(super) name: String,
    pub(super) bytes: Vec<u8>,
}

/// Returns a Python wheel with the program and the client for warm apps, so that `pip install vvm-cli` is enough: a zip
/// archive with a list of its files and their sums (packaging.python.org, "Binary distribution format"), for machines of this
/// architecture, by Linux's name. `client` is below the folder of packages. The licences have names without folders.
///
/// # Errors
/// None in practice: it writes to memory.
pub(super) fn wheel(
    version: &str,
    architecture: &str,
    program: &[u8],
    client: &[File],
    licences: &[File],
) -> Result<Wheel, DistError> {
    let stem = format!("vvm_cli-{version}");
    // A static program runs on both kinds of systems. These are the oldest that installers know.
    let platforms = [format!("manylinux_2_17_{architecture}"), format!("musllinux_1_1_{architecture}")];
    let tags: String = platforms.iter().map(|platform| format!("Tag: py3-none-{platform}\n")).collect();
    let info = format!("{stem}.dist-info");
    let licence_lines: String =
        licences.iter().map(|file| format!("License-File: {}\n", file.path)).collect();
    let metadata = format!(
        "Metadata-Version: 2.4\nName: vvm-cli\nVersion: {version}\n\
         Summary: Runs a command only while this process leads, and never in two places at once\n\
         License-Expression: MIT OR Apache-2.0\n{licence_lines}\
         Requires-Python: >=3.9\nClassifier: Operating System :: POSIX :: Linux\n"
    );
    let kind = format!("Wheel-Version: 1.0\nGenerator: vvm-xtask\nRoot-Is-Purelib: false\n{tags}");
    let mut files = vec![File::program(format!("{stem}.data/scripts/vvm"), program)];
    files.extend(client.iter().cloned());
    files.extend(licences.iter().map(|file| file.clone().below(&format!("{info}/licenses"))));
    files.push(File::new(format!("{info}/METADATA"), metadata));
    files.push(File::new(format!("{info}/WHEEL"), kind));
    files.push(record(&files, &format!("{info}/RECORD")));
    Ok(Wheel { name: format!("{stem}-py3-none-{}.whl", platforms.join(".")), bytes: zip(&files)? })
}

/// Returns the list of all files. It can't have its own sum.
fn record(files: &[File], path: &str) -> File {
    let line = |file: &File| {
        let sum = BASE64URL_NOPAD.encode(&Sha256::digest(&file.bytes));
        format!("{},sha256={sum},{}\n", file.path, file.bytes.len())
    };
    let lines: String = files.iter().map(line).collect();
    File::new(path, format!("{lines}{path},,\n"))
}

fn zip(files: &[File]) -> Result<Vec<u8>, DistError> {
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    for file in files {
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Deflated)
            .compression_level(Some(9))
            // The first that a zip archive can name.
            .last_modified_time(DateTime::default())
            .unix_permissions(file.mode());
        archive.start_file(&*file.path, options)?;
        archive.write_all(&file.bytes)?;
    }
    Ok(archive.finish()?.into_inner())
}

/// The image's name without its version.
const IMAGE: &str = "localhost/vvm";

/// Any user may run it; this one is no user of a usual machine.
const USER: &str = "65532:65532";

/// Returns a container image with nothing but the program and its licences: an archive of OCI's layout, which `podman load`
/// and `docker load` read. Neither a daemon nor another image is needed. `architecture` is Go's name.
///
/// # Errors
/// See [`tar()`].
pub(super) fn image(
    version: &str,
    architecture: &str,
    files: &[File],
    time: u64,
) -> Result<Vec<u8>, DistError> {
    let layer = tar(files, time)?;
    let packed = gzip(&layer)?;
    let config = json!({
        "architecture": architecture,
        "os": "linux",
        "config": {
            "User": USER,
            // No shell is between the runtime and vvm, which is process 1.
            "Entrypoint": ["/usr/bin/vvm"],
            "Cmd": ["run", "--config", "/etc/vvm/vvm.toml"],
            "Labels": {
                "org.opencontainers.image.title": "vvm",
                "org.opencontainers.image.version": version,
                "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
            },
        },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{}", sha256(&layer))] },
        "history": [{ "created_by": "cargo xtask dist" }],
    })
    .to_string();
    let config = Blob::new("application/vnd.oci.image.config.v1+json", config.into_bytes());
    let layer = Blob::new("application/vnd.oci.image.layer.v1.tar+gzip", packed);
    let kind = "application/vnd.oci.image.manifest.v1+json";
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": kind,
        "config": config.descriptor(),
        "layers": [layer.descriptor()],
    });
    let manifest = Blob::new(kind, manifest.to_string().into_bytes());
    let mut entry = manifest.descriptor();
    entry["annotations"] = json!({ "org.opencontainers.image.ref.name": format!("{IMAGE}:{version}") });
    let index = json!({ "schemaVersion": 2, "manifests": [entry] });
    let mut all: Vec<File> = [config, layer, manifest].into_iter().map(Blob::file).collect();
    all.push(File::new("index.json", index.to_string()));
    all.push(File::new("oci-layout", json!({ "imageLayoutVersion": "1.0.0" }).to_string()));
    tar(&all, time)
}

/// Content that is named by its sum.
struct Blob {
    kind: &'static str,
    bytes: Vec<u8>,
}

impl Blob {
    fn new(kind: &'static str, bytes: Vec<u8>) -> Self {
        Self { kind, bytes }
    }

    fn descriptor(&self) -> Value {
        let digest = format!("sha256:{}", sha256(&self.bytes));
        json!({ "mediaType": self.kind, "digest": digest, "size": self.bytes.len() })
    }

    fn file(self) -> File {
        File::new(format!("blobs/sha256/{}", sha256(&self.bytes)), self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;
    use tar::Archive;

    fn files() -> Vec<File> {
        vec![File::program("b/vvm", "program"), File::new("b/a/notes", "text"), File::new("c", "")]
    }

    #[test]
    fn order_of_files_changes_nothing() {
        let reversed: Vec<File> = files().into_iter().rev().collect();
        assert_eq!(tar(&files(), 7).unwrap(), tar(&reversed, 7).unwrap());
        assert_eq!(gzip(b"text").unwrap(), gzip(b"text").unwrap());
        assert_eq!(gzip(b"text").unwrap()[4..8], [0; 4], "no time in the header");
    }

    #[test]
    fn every_entry_has_the_given_time_and_no_owner_of_this_machine() {
        let bytes = tar(&files(), 1_700_000_000).unwrap();
        let mut archive = Archive::new(&*bytes);
        let mut found = Vec::new();
        for entry in archive.entries().unwrap() {
            let entry = entry.unwrap();
            let header = entry.header();
            assert_eq!((header.uid().unwrap(), header.gid().unwrap()), (0, 0));
            assert_eq!(header.mtime().unwrap(), 1_700_000_000);
            let path = String::from_utf8(entry.path_bytes().into_owned()).unwrap();
            found.push((path, header.mode().unwrap()));
        }
        let expected = [("b/", 0o755), ("b/a/", 0o755), ("b/a/notes", 0o644), ("b/vvm", 0o755), ("c", 0o644)];
        assert_eq!(found, expected.map(|(path, mode)| (path.to_owned(), mode)));
    }

    #[test]
    fn sums_are_sorted_by_file() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let files = [File::new("b", "abc"), File::new("a", "")];
        assert_eq!(sums(&files), format!("{empty}  a\n{abc}  b\n"));
    }

    /// dpkg, pip and podman read the rest (`cargo xtask dist --try`).
    #[test]
    fn same_input_gives_the_same_bytes_and_lists_name_what_they_have() {
        let program = [File::program("usr/bin/vvm", vec![1; 3000])];
        let package = || deb("0.1.0", "amd64", &program, 7).unwrap();
        assert_eq!(package(), package());
        let (client, licence) = ([File::new("vvm/__init__.py", "code")], [File::new("LICENSE-MIT", "text")]);
        let made = || wheel("0.1.0", "x86_64", b"program", &client, &licence).unwrap();
        assert_eq!(made().name, "vvm_cli-0.1.0-py3-none-manylinux_2_17_x86_64.musllinux_1_1_x86_64.whl");
        assert_eq!(made().bytes, made().bytes);
        let mut opened = zip::ZipArchive::new(Cursor::new(made().bytes)).unwrap();
        let mut code = String::new();
        opened.by_name("vvm/__init__.py").unwrap().read_to_string(&mut code).unwrap();
        assert_eq!(code, "code");
        // printf program | sha256sum, in another alphabet.
        let line = "vvm_cli-0.1.0.data/scripts/vvm,sha256=ExDKLIky29EYZovZdEJVij4fVGteFcaWmd-9YCT1SNg,7\n";
        let found = record(&[File::program("vvm_cli-0.1.0.data/scripts/vvm", "program")], "RECORD");
        assert_eq!(found.bytes, format!("{line}RECORD,,\n").into_bytes());
        let image = || image("0.1.0", "amd64", &program, 7).unwrap();
        let bytes = image();
        assert_eq!(bytes, image());
        let mut archive = Archive::new(&*bytes);
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let path = entry.path().unwrap().display().to_string();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            if let Some(sum) = path.strip_prefix("blobs/sha256/").filter(|sum| !sum.is_empty()) {
                assert_eq!(sum, sha256(&content));
            }
        }
    }
}
