//! A Python wheel with the program, so that `pip install vvm-cli` is enough. It is a zip archive with a list
//! of its files and their sums (packaging.python.org, "Binary distribution format").
//!
//! No tool makes it: it has no Python code, and needs no tag of an interpreter.

use super::{draft::DistError, tarball::File};
use data_encoding::BASE64URL_NOPAD;
use sha2::{Digest as _, Sha256};
use std::io::{Cursor, Write as _};
use zip::{CompressionMethod, DateTime, ZipWriter, write::SimpleFileOptions};

/// A wheel's name and its content.
#[derive(Debug)]
pub(super) struct Wheel {
    pub(super) name: String,
    pub(super) bytes: Vec<u8>,
}

/// Returns a wheel of `program` for machines of this architecture, by Linux's name. The licences have names
/// without folders.
///
/// # Errors
/// None in practice: it writes to memory.
pub(super) fn wheel(
    version: &str,
    architecture: &str,
    program: &[u8],
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
         Requires-Python: >=3.7\nClassifier: Operating System :: POSIX :: Linux\n"
    );
    let kind = format!("Wheel-Version: 1.0\nGenerator: vvm-xtask\nRoot-Is-Purelib: false\n{tags}");
    let mut files = vec![File::program(format!("{stem}.data/scripts/vvm"), program)];
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;
    use zip::ZipArchive;

    fn made() -> Wheel {
        wheel("0.1.0", "x86_64", b"program", &[File::new("LICENSE-MIT", "text")]).unwrap()
    }

    #[test]
    fn wheel_fits_every_python_3_on_linux() {
        let tags = "py3-none-manylinux_2_17_x86_64.musllinux_1_1_x86_64";
        assert_eq!(made().name, format!("vvm_cli-0.1.0-{tags}.whl"));
    }

    #[test]
    fn record_lists_every_file_with_its_sum_and_size() {
        let mut archive = ZipArchive::new(Cursor::new(made().bytes)).unwrap();
        let mut text = String::new();
        archive.by_name("vvm_cli-0.1.0.dist-info/RECORD").unwrap().read_to_string(&mut text).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), archive.len());
        assert_eq!(lines.last(), Some(&"vvm_cli-0.1.0.dist-info/RECORD,,"));
        // printf program | sha256sum, in another alphabet.
        let program = "vvm_cli-0.1.0.data/scripts/vvm,sha256=";
        let line = lines.iter().find_map(|line| line.strip_prefix(program)).unwrap();
        let (sum, size) = line.split_once(',').unwrap();
        assert_eq!(BASE64URL_NOPAD.decode(sum.as_bytes()).unwrap(), Sha256::digest(b"program").to_vec());
        assert_eq!(size, "7");
    }

    #[test]
    fn program_is_executable_and_the_same_input_gives_the_same_bytes() {
        let mut archive = ZipArchive::new(Cursor::new(made().bytes)).unwrap();
        let program = archive.by_name("vvm_cli-0.1.0.data/scripts/vvm").unwrap();
        assert_eq!(program.unix_mode().map(|mode| mode & 0o777), Some(0o755));
        assert_eq!(made().bytes, made().bytes);
    }
}
