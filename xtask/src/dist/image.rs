//! A container image with nothing but the program and its licences: an archive of OCI's layout, which `podman
//! load` and `docker load` read. Neither a daemon nor another image is needed.

use super::{
    draft::DistError,
    tarball::File,
    tarball::sha256,
    tarball::{gzip, tar},
};
use serde_json::{Value, json};

/// The image's name without its version.
pub(super) const NAME: &str = "localhost/vvm";

/// Any user may run it; this one is no user of a usual machine.
const USER: &str = "65532:65532";

/// Returns the archive. `architecture` is Go's name.
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
    entry["annotations"] = json!({ "org.opencontainers.image.ref.name": format!("{NAME}:{version}") });
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
    use std::{collections::BTreeMap, io::Read as _};

    #[test]
    fn every_blob_is_named_by_its_sum_and_the_program_is_process_1() {
        let bytes = image("0.1.0", "amd64", &[File::program("usr/bin/vvm", "program")], 7).unwrap();
        let mut archive = tar::Archive::new(&*bytes);
        let mut found = BTreeMap::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let path = entry.path().unwrap().display().to_string();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            if let Some(sum) = path.strip_prefix("blobs/sha256/").filter(|sum| !sum.is_empty()) {
                assert_eq!(sum, sha256(&content));
            }
            found.insert(path, content);
        }
        let json = |path: &str| serde_json::from_slice::<Value>(&found[path]).unwrap();
        let blob = |descriptor: &Value| {
            format!("blobs/{}", descriptor["digest"].as_str().unwrap().replace(':', "/"))
        };
        let manifest = json(&blob(&json("index.json")["manifests"][0]));
        let config = json(&blob(&manifest["config"]));
        assert_eq!(config["config"]["Entrypoint"][0], "/usr/bin/vvm");
        assert!(found.contains_key(&blob(&manifest["layers"][0])));
    }
}
