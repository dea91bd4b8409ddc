"""Archives whose bytes follow from their files alone: sorted, of user 0, with the time of the commit. A Debian package,
a Python wheel and a container image are such archives.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import tarfile
import zipfile
from typing import NamedTuple

# The Debian package's name. A program of ours is called `vvm`; a package may have to share that name with others.
NAME = "vvm-cli"
# The image's name without its version.
IMAGE = "localhost/vvm"
# Any user may run it; this one is no user of a usual machine.
USER = "65532:65532"


class File(NamedTuple):
    """A file with its path, relative to the archive's root."""

    path: str
    data: bytes
    mode: int = 0o644

    def below(self, folder: str) -> File:
        return self._replace(path=f"{folder}/{self.path}")


def program(path: str, data: bytes) -> File:
    return File(path, data, 0o755)


def tar(files: list[File], time: int) -> bytes:
    """Returns a tar archive of these files and their folders, each behind those that contain it."""
    folders = {file.path[:at] for file in files for at, letter in enumerate(file.path) if letter == "/"}
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.USTAR_FORMAT) as out:
        for path, data, mode in [*((folder, None, 0o755) for folder in sorted(folders)), *sorted(files)]:
            entry = tarfile.TarInfo(path)
            entry.type = tarfile.DIRTYPE if data is None else tarfile.REGTYPE
            entry.mode, entry.mtime, entry.size = mode, time, len(data or b"")
            entry.uname = entry.gname = "root"
            out.addfile(entry, io.BytesIO(data or b""))
    return archive.getvalue()


def packed(data: bytes) -> bytes:
    """Compresses, without a time and a name in the result."""
    return gzip.compress(data, 9, mtime=0)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def sums(files: list[File]) -> File:
    lines = (f"{sha256(file.data)}  {file.path}\n" for file in sorted(files))
    return File("SHA256SUMS", "".join(lines).encode())


def deb(version: str, architecture: str, files: list[File], time: int) -> bytes:
    """Returns a Debian package with these files, whose paths are relative to the root folder: an `ar` archive with a
    version, a tar of control files and a tar of the files to install (deb(5)). It depends on nothing, because its program
    is static, and has no scripts.
    """
    kib = sum(-(-len(file.data) // 1024) for file in files)
    control = f"""\
Package: {NAME}
Version: {version}
Architecture: {architecture}
Maintainer: the maintainers of vvm <maintainers@vvm.invalid>
Installed-Size: {kib}
Section: admin
Priority: optional
Description: run a command on one machine only
 Leader election on a database that you already run. The program runs a command
 while its process leads, and kills it before another process can lead.
"""
    members = {
        "debian-binary": b"2.0\n",
        "control.tar.gz": packed(tar([File("control", control.encode())], time)),
        "data.tar.gz": packed(tar(files, time)),
    }
    archive = b"!<arch>\n"
    for name, data in members.items():
        # ar(5). Names have at most 16 letters.
        archive += f"{name:<16}{time:<12}{0:<6}{0:<6}{100644:<8}{len(data):<10}`\n".encode()
        archive += data + b"\n" * (len(data) % 2)
    return archive


def wheel(version: str, architecture: str, vvm: bytes, client: list[File], licences: list[File]) -> File:
    """Returns a Python wheel with the program and the client for warm apps, so that `pip install vvm-cli` is enough: a zip
    archive with a list of its files and their sums (packaging.python.org, "Binary distribution format"), for machines of
    this architecture, by Linux's name. `client` is below the folder of packages. The licences have names without folders.
    """
    stem = f"vvm_cli-{version}"
    info = f"{stem}.dist-info"
    # A static program runs on both kinds of systems. These are the oldest that installers know.
    platforms = [f"manylinux_2_17_{architecture}", f"musllinux_1_1_{architecture}"]
    tags = "".join(f"Tag: py3-none-{platform}\n" for platform in platforms)
    metadata = f"""\
Metadata-Version: 2.4
Name: vvm-cli
Version: {version}
Summary: Runs a command only while this process leads, and never in two places at once
License-Expression: MIT OR Apache-2.0
{"".join(f"License-File: {file.path}{chr(10)}" for file in licences)}\
Requires-Python: >=3.9
Classifier: Operating System :: POSIX :: Linux
"""
    kind = f"Wheel-Version: 1.0\nGenerator: vvm-xtask\nRoot-Is-Purelib: false\n{tags}"
    files = [program(f"{stem}.data/scripts/vvm", vvm), *client]
    files += [file.below(f"{info}/licenses") for file in licences]
    files += [File(f"{info}/METADATA", metadata.encode()), File(f"{info}/WHEEL", kind.encode())]
    files.append(record(files, f"{info}/RECORD"))
    return File(f"{stem}-py3-none-{'.'.join(platforms)}.whl", zipped(files))


def record(files: list[File], path: str) -> File:
    """Returns the list of all files. It can't have its own sum."""
    lines = ""
    for file in files:
        digest = base64.urlsafe_b64encode(hashlib.sha256(file.data).digest()).decode().rstrip("=")
        lines += f"{file.path},sha256={digest},{len(file.data)}\n"
    return File(path, f"{lines}{path},,\n".encode())


def zipped(files: list[File]) -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as out:
        for file in files:
            # With the first time that a zip archive can name.
            entry = zipfile.ZipInfo(file.path)
            entry.external_attr = (0o100000 | file.mode) << 16
            out.writestr(entry, file.data, zipfile.ZIP_DEFLATED, 9)
    return archive.getvalue()


def image(version: str, architecture: str, files: list[File], time: int) -> bytes:
    """Returns a container image with nothing but the program and its licences: an archive of OCI's layout, which
    `podman load` and `docker load` read. Neither a daemon nor another image is needed. `architecture` is Go's name.
    """
    blobs: list[File] = []

    def blob(kind: str, data: bytes) -> dict[str, object]:
        """Keeps content that is named by its sum. Returns what refers to it."""
        blobs.append(File(f"blobs/sha256/{sha256(data)}", data))
        return {"mediaType": kind, "digest": f"sha256:{sha256(data)}", "size": len(data)}

    layer = tar(files, time)
    labels = {"title": "vvm", "version": version, "licenses": "MIT OR Apache-2.0"}
    config = {
        "architecture": architecture,
        "os": "linux",
        "config": {
            "User": USER,
            # No shell is between the runtime and vvm, which is process 1.
            "Entrypoint": ["/usr/bin/vvm"],
            "Cmd": ["run", "--config", "/etc/vvm/vvm.toml"],
            "Labels": {f"org.opencontainers.image.{name}": label for name, label in labels.items()},
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{sha256(layer)}"]},
        "history": [{"created_by": "cargo xtask dist"}],
    }
    kind = "application/vnd.oci.image.manifest.v1+json"
    manifest = {
        "schemaVersion": 2,
        "mediaType": kind,
        "config": blob("application/vnd.oci.image.config.v1+json", json.dumps(config).encode()),
        "layers": [blob("application/vnd.oci.image.layer.v1.tar+gzip", packed(layer))],
    }
    entry = blob(kind, json.dumps(manifest).encode())
    entry["annotations"] = {"org.opencontainers.image.ref.name": f"{IMAGE}:{version}"}
    index = {"schemaVersion": 2, "manifests": [entry]}
    layout = {"imageLayoutVersion": "1.0.0"}
    own = [File("index.json", json.dumps(index).encode()), File("oci-layout", json.dumps(layout).encode())]
    return tar(blobs + own, time)
