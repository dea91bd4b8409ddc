//! Makes every file of a release for one target.

use super::{
    build::{Storages, build},
    contents::Contents,
    deb::{self, Control, deb},
    error::{DistError, write},
    file::File,
    image::image,
    licences::licences,
    source::Source,
    sums::sums,
    tarball::{gzip, tar},
    wheel::wheel,
};
use std::{fmt, fs};

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
