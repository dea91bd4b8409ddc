//! A Debian package: an `ar` archive with a version, a tar of control files and a tar of the files to install
//! (deb(5)). It depends on nothing, because its program is static, and has no scripts.

use super::{
    draft::DistError,
    tarball::File,
    tarball::{gzip, tar},
};

/// What the control file says.
#[derive(Debug)]
pub(super) struct Control<'a> {
    pub(super) version: &'a str,
    pub(super) architecture: &'a str,
}

/// The package's name. A program of ours is called `vvm`; a package may have to share that name with others.
pub(super) const NAME: &str = "vvm-cli";

/// Returns the package with these files, whose paths are relative to the root folder.
///
/// # Errors
/// See [`tar()`].
pub(super) fn deb(control: &Control<'_>, files: &[File], time: u64) -> Result<Vec<u8>, DistError> {
    let kib = files.iter().map(|file| file.bytes.len().div_ceil(1024)).sum::<usize>();
    let Control { version, architecture } = control;
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

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::read::GzDecoder;
    use std::io::Read as _;

    fn package() -> Vec<u8> {
        let control = Control { version: "0.1.0", architecture: "amd64" };
        deb(&control, &[File::program("usr/bin/vvm", vec![1; 3000])], 1_700_000_000).unwrap()
    }

    /// Reads the members back, each with its name.
    fn members(mut rest: &[u8]) -> Vec<(String, Vec<u8>)> {
        rest = rest.strip_prefix(b"!<arch>\n").unwrap();
        let mut found = Vec::new();
        while !rest.is_empty() {
            let (header, behind) = rest.split_at(60);
            assert_eq!(&header[58..], b"`\n");
            let field = |from: usize, to| std::str::from_utf8(&header[from..to]).unwrap().trim().to_owned();
            let length: usize = field(48, 58).parse().unwrap();
            found.push((field(0, 16), behind[..length].to_vec()));
            rest = &behind[length + length % 2..];
        }
        found
    }

    #[test]
    fn package_has_its_three_members_in_order() {
        let members = members(&package());
        let names: Vec<&str> = members.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["debian-binary", "control.tar.gz", "data.tar.gz"]);
        assert_eq!(members[0].1, b"2.0\n");
    }

    #[test]
    fn control_file_names_package_version_size_and_no_dependency() {
        let mut control = Vec::new();
        GzDecoder::new(&*members(&package())[1].1).read_to_end(&mut control).unwrap();
        let mut archive = tar::Archive::new(&*control);
        let mut text = String::new();
        archive.entries().unwrap().next().unwrap().unwrap().read_to_string(&mut text).unwrap();
        for line in ["Package: vvm-cli", "Version: 0.1.0", "Architecture: amd64", "Installed-Size: 3"] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
        assert!(!text.contains("Depends"), "{text}");
    }

    #[test]
    fn same_files_give_the_same_package() {
        assert_eq!(package(), package());
    }
}
