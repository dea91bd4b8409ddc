"""`cargo xtask dist`: builds what a release has, twice if asked for, and tries it.

The Debian package, the wheel and the image are written here, and not by cargo-deb, maturin and a Containerfile: these
write one archive each of files that are made here anyway.

Every file follows from a commit and the toolchain: none has a time, an owner or a folder of this machine. Panics, C
assertions and line tables would name folders, so each compiler gets a map to fixed names. `--target` is always named, so
that these flags apply to the program and not to build scripts. docs/installing.md is the page for users.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Optional

from archives import NAME, File, deb, image, packed, program, sha256, sums, tar, wheel


class Failed(Exception):
    """Why a release can't be built, differs, or does not work."""


CARGO = os.environ.get("CARGO", "cargo")
# Cargo's own folder, which has the sources of dependencies.
CARGO_HOME = Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo")

# A machine by Linux's name, and by the name that Debian and Go use.
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}

# Which storages a program has: the first word of an archive's name, and features of vvm-cli.
STORAGES = {"vvm-sqlite": "", "vvm": "scylla,postgres,mysql,etcd,kubernetes,object-store,dynamodb"}

# A shell, the name of its file, and the folder where Debian has it.
COMPLETIONS = [
    ("bash", "vvm.bash", "usr/share/bash-completion/completions/vvm"),
    ("zsh", "_vvm", "usr/share/zsh/vendor-completions/_vvm"),
    ("fish", "vvm.fish", "usr/share/fish/vendor_completions.d/vvm.fish"),
]

# How the names of files with licences begin, and where Debian and its descendants describe their C library.
LICENCES = ("LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE")
GLIBC = Path("/usr/share/doc/libc6/copyright")

# What is tried, the end of the file that it needs, and the script that tries it.
TRIALS = {
    "deb": (".deb", ["sh", "try.sh", "deb"]),
    "wheel": (".whl", ["sh", "try.sh", "wheel"]),
    "image": (".oci.tar", ["sh", "try.sh", "image"]),
    "names": (".deb", ["python3", "names.py"]),
}
# The time in which a user has installed the program and seen it fail over, and the time after which a trial that says
# nothing has hung; in seconds.
LIMIT, SILENCE = 60.0, 30.0


def output(*command: object, **options: object) -> bytes:
    """Runs a command to its end, and returns what it printed."""
    words = [str(word) for word in command]
    try:
        ended = subprocess.run(words, capture_output=True, **options)
    except OSError as cause:
        raise Failed(f"`{shlex.join(words)}` could not be started: {cause}") from cause
    if ended.returncode != 0:
        said = ended.stderr.decode(errors="replace")
        raise Failed(f"`{shlex.join(words)}` failed (exit status {ended.returncode}):\n{said}")
    return ended.stdout


@dataclass(frozen=True)
class Source:
    """The sources of one release for one target."""

    root: Path
    commit: str
    # The commit's time, in seconds since 1970: the time of every file that is made.
    time: int
    version: str
    machine: str
    libc: str

    @staticmethod
    def read(root: Path, libc: str) -> Source:
        machine = platform.machine()
        if machine not in MACHINES:
            # A program must run here, because it prints its pages.
            raise Failed(f"machines are {' and '.join(MACHINES)}, and this one is {machine}")
        commit, seconds = output("git", "-C", root, "log", "-1", "--format=%H %ct").decode().split()
        manifest = (root / "Cargo.toml").read_text(encoding="utf-8")
        version = re.search(r'^\[workspace\.package\]\n(?:[^\[].*\n)*?version = "(.*)"$', manifest, re.MULTILINE)
        if version is None:
            raise Failed("Cargo.toml has no version")
        return Source(root, commit, int(seconds), version[1], machine, libc)

    @property
    def triple(self) -> str:
        return f"{self.machine}-unknown-linux-{self.libc}"

    @property
    def packages(self) -> Path:
        """Where the files of all targets are written, each in its folder."""
        return self.root / "target/packages"

    def file(self, path: str) -> bytes:
        return (self.root / path).read_bytes()

    def must_be_committed(self) -> None:
        """Checks that the work tree equals the commit."""
        if changes := output("git", "-C", self.root, "status", "--porcelain").decode():
            raise Failed(f"the work tree has changes, which a build from the commit lacks: commit them first\n{changes}")

    def copy_to(self, folder: Path) -> Source:
        """Returns the commit's files in another folder."""
        files = output("git", "-C", self.root, "archive", "--format=tar", self.commit)
        output("tar", "--extract", "--directory", folder, input=files)
        return replace(self, root=folder.resolve())


def settings(source: Source) -> dict[str, str]:
    """Returns what the environment tells the compilers."""
    renamed = [(source.root, "/vvm"), (CARGO_HOME, "/cargo")]
    flags = ["-C", "target-feature=+crt-static"]
    flags += [f"--remap-path-prefix={folder}={name}" for folder, name in renamed]
    if source.libc == "gnu":
        flags += ["-C", f"link-arg={name_service(source)}"]
    return {
        "CARGO_ENCODED_RUSTFLAGS": "\x1f".join(flags),
        f"CFLAGS_{source.triple.replace('-', '_')}": " ".join(
            f"-ffile-prefix-map={folder}={name}" for folder, name in renamed
        ),
        "SOURCE_DATE_EPOCH": str(source.time),
    }


def build(source: Source, features: str) -> Path:
    """Builds the program, and returns its path."""
    target = source.root / "target"
    command = [CARGO, "rustc", "--locked", "--profile", "dist", "--package", "vvm-cli", "--bin", "vvm"]
    command += ["--target", source.triple, "--target-dir", str(target), "--features", features]
    # The profile has this setting, too, but not for a package with settings of its own.
    command += ["--", "-C", "strip=symbols"]
    ended = subprocess.run(command, cwd=source.root, env=os.environ | settings(source))
    if ended.returncode != 0:
        raise Failed(f"`{shlex.join(command)}` failed (exit status {ended.returncode})")
    return target / source.triple / "dist/vvm"


def name_service(source: Source) -> Path:
    """Compiles the part that keeps a static glibc from loading shared libraries; its source says why."""
    made = source.root / "target" / source.triple / "name_service.o"
    made.parent.mkdir(parents=True, exist_ok=True)
    code = source.root / "packaging/static/name_service.c"
    output(os.environ.get("CC", "cc"), "-c", "-O2", "-fPIE", "-o", made, code)
    return made


def licences(source: Source, features: str) -> File:
    """Returns the licences of all that is linked into a program: crates, Rust's standard library and the C library. The
    texts are those of the compiled sources. `features` are those of vvm-cli. A text that several crates share stands once.
    """
    of = ["--locked", "--features", features, "--manifest-path", source.root / "crates/vvm-cli/Cargo.toml"]
    told = output(CARGO, "metadata", "--format-version", "1", "--filter-platform", source.triple, *of)
    tree = output(CARGO, "tree", "--edges", "normal", "--prefix", "none", "--target", source.triple, *of)
    # Each line begins with a name and a version.
    linked = {tuple(line.split()[:2]) for line in tree.decode().splitlines()}
    text = "This program contains the following.\n\n"
    users: dict[str, list[str]] = {}
    for package in sorted(json.loads(told)["packages"], key=lambda one: (one["name"], one["version"])):
        name, version = package["name"], package["version"]
        # Ours have no source.
        if package["source"] is None or (name, f"v{version}") not in linked:
            continue
        terms = package["license"] or "see its text"
        text += f"{name} {version}: {terms} ({package['repository'] or 'crates.io'})\n"
        for path in sorted(Path(package["manifest_path"]).parent.iterdir()):
            if path.is_file() and path.name.upper().startswith(LICENCES):
                users.setdefault(licence_in(path), []).append(f"{name} {version}")
    for label, path in of_toolchain(source):
        text += f"{label}\n"
        users.setdefault(licence_in(path), []).append(label)
    for licence, labels in sorted(users.items()):
        text += f"\n{'=' * 80}\n{', '.join(labels)}\n\n{licence.rstrip()}\n"
    return File("LICENSES-OF-DEPENDENCIES.txt", text.encode())


def licence_in(path: Path) -> str:
    return path.read_bytes().decode(errors="replace")


def of_toolchain(source: Source) -> list[tuple[str, Path]]:
    """Returns the texts of Rust's standard library and of the C library, each with its name."""
    sysroot = output("rustc", "--print", "sysroot", cwd=source.root).decode().strip()
    documents = Path(sysroot) / "share/doc/rust"
    # Some toolchains have only the page in HTML.
    page = "COPYRIGHT" if (documents / "COPYRIGHT").is_file() else "COPYRIGHT.html"
    names = [page, "LICENSE-APACHE", "LICENSE-MIT"]
    label = "Rust's standard library: MIT OR Apache-2.0"
    found = [(label, documents / name) for name in names if (documents / name).is_file()]
    if source.libc == "gnu":
        remedy = "To use another one, build the program from its sources with `cargo xtask dist`"
        found.append((f"GNU C Library: LGPL-2.1-or-later. {remedy}", GLIBC))
    return found


def commands(page: str) -> list[str]:
    """Returns the commands that the manual page of the program refers to, as `vvm\\-run(1)`."""
    return re.findall(r"^vvm-(.*)\(1\)$", page.replace("\\-", "-"), re.MULTILINE)


def contents(source: Source, name: str) -> list[File]:
    """Builds a program, and returns the packages that have it."""
    path = build(source, STORAGES[name])
    vvm, main = path.read_bytes(), output(path, "man")
    print(f"{len(vvm) / 1e6:5.1f} MB  program {name}")
    pages = [File("vvm.1", main)]
    pages += [File(f"vvm-{verb}.1", output(path, "man", verb)) for verb in commands(main.decode())]
    completions = [(File(file, output(path, "completions", shell)), place) for shell, file, place in COMPLETIONS]
    own = [File(licence, source.file(licence)) for licence in ["LICENSE-APACHE", "LICENSE-MIT"]]
    terms = [*own, licences(source, STORAGES[name])]
    unit, hardening = source.file("packaging/vvm@.service"), source.file("packaging/hardening.conf")
    changes = source.file("CHANGELOG.md")

    stem = f"{name}-{source.version}-{source.triple}"
    archive = [program("vvm", vvm), *terms, File("CHANGELOG.md", changes)]
    archive += [page.below("man") for page in pages]
    archive += [file.below("completions") for file, _ in completions]
    archive += [File("systemd/vvm@.service", unit), File("systemd/hardening.conf", hardening)]
    archive = [file.below(stem) for file in [*archive, sums(archive)]]
    made = [File(f"{stem}.tar.gz", packed(tar(archive, source.time)))]
    # One per machine: a static program needs neither C library.
    if name != "vvm" or source.libc != "gnu":
        return made

    documents = "usr/share/doc/vvm-cli"
    debian = [program("usr/bin/vvm", vvm), File("usr/lib/systemd/system/vvm@.service", unit)]
    debian += [File(f"usr/share/man/man1/{page.path}.gz", packed(page.data)) for page in pages]
    debian += [File(place, file.data) for file, place in completions]
    debian.append(File(f"{documents}/copyright", b"".join(term.data + b"\n" for term in terms)))
    debian.append(File(f"{documents}/changelog.gz", packed(changes)))
    debian.append(File(f"{documents}/examples/hardening.conf", hardening))
    client = ["vvm_warm/__init__.py", "vvm_warm/py.typed"]
    client = [File(file, source.file(f"clients/python/{file}")) for file in client]
    # No shell reads completions in a container.
    alone = [program("usr/bin/vvm", vvm), *(term.below(documents) for term in terms)]
    version, machine = source.version, MACHINES[source.machine]
    return [
        *made,
        File(f"{NAME}_{version}_{machine}.deb", deb(version, machine, debian, source.time)),
        wheel(version, source.machine, vvm, client, terms),
        File(f"vvm-{version}-{machine}.oci.tar", image(version, machine, alone, source.time)),
    ]


def make(source: Source) -> list[File]:
    """Builds both programs, and writes all files to the folder of the target, which is emptied first."""
    folder = source.packages / source.triple
    shutil.rmtree(folder, ignore_errors=True)
    made = [file for name in STORAGES for file in contents(source, name)]
    folder.mkdir(parents=True)
    for file in [*made, sums(made)]:
        (folder / file.path).write_bytes(file.data)
    for file in made:
        print(f"{len(file.data) / 1e6:5.1f} MB  {file.path}")
    print(sums(made).data.decode(), end="", flush=True)
    return made


def compare(source: Source, made: list[File]) -> None:
    """Builds again in another folder, and compares every file."""
    with tempfile.TemporaryDirectory(prefix="vvm-second-build-") as folder:
        copy = source.copy_to(Path(folder))
        if differ := differing(made, make(copy)):
            raise Failed(f"two builds differ in {', '.join(differ)}")
        print(f"the same {len(made)} files from {source.root} and {copy.root}")


def differing(first: list[File], second: list[File]) -> list[str]:
    """Returns the files that are not in both, or not the same."""
    return sorted(f"{one.path} {sha256(one.data)}" for one in set(first) ^ set(second))


def try_out(source: Source, kinds: list[str]) -> None:
    """Installs from the files that were made, and shows the first fail-over."""
    scripts = Path(__file__).parent
    for ending, (shell, script, *arguments) in (TRIALS[kind] for kind in kinds):
        found = sorted((source.packages / source.triple).glob(f"*{ending}"))
        if not found:
            raise Failed(f"`target/packages/*/*{ending}` is not there: run `cargo xtask dist` first")
        containerfile = source.root / "packaging/Containerfile"
        command = [shell, str(scripts / script), *arguments, str(found[0]), str(containerfile)]
        print(f"\n== {shlex.join(command)}\n", flush=True)
        start = time.monotonic()
        status = watch(command)
        took = time.monotonic() - start
        print(f"# {took:.1f} s", flush=True)
        if status != 0:
            raise Failed(f"`{shlex.join(command)}` failed (exit status {status}): see above")
        if took > LIMIT:
            raise Failed(f"it took longer than {LIMIT:.0f} s")


def watch(command: list[str]) -> int:
    """Runs a command, and shows what it says. If it hangs, it is ended with all that it started."""
    options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(command, start_new_session=True, **options) as trial:
        last = time.monotonic()
        try:
            while True:
                # Processes that outlive the command may keep its pipe open.
                status = trial.poll()
                is_ready = select.select([trial.stdout], [], [], 0.1 if status is None else 0)[0]
                if is_ready and (said := os.read(trial.stdout.fileno(), 1 << 16)):
                    last = time.monotonic()
                    sys.stdout.buffer.write(said)
                    sys.stdout.flush()
                elif status is not None:
                    return status
                elif time.monotonic() - last > SILENCE:
                    raise Failed(f"killed after {SILENCE:.0f} s without a word: {shlex.join(command)}")
        finally:
            # First by TERM, so that what it has set up is taken down.
            if trial.poll() is None:
                os.killpg(trial.pid, signal.SIGTERM)
                try:
                    trial.wait(10)
                except subprocess.TimeoutExpired:
                    os.killpg(trial.pid, signal.SIGKILL)


def create_draft(source: Source) -> None:
    """Makes a draft of a release on GitHub. The commit must have the tag of its version."""
    tag = f"v{source.version}"
    tags = output("git", "-C", source.root, "tag", "--points-at", "HEAD").decode().split()
    if tag not in tags:
        raise Failed(f"the commit must have the tag {tag}, and has {' '.join(tags) or 'no tag'}")
    paths = sorted(path for path in source.packages.glob("*/*") if path.name != "SHA256SUMS")
    if not paths:
        raise Failed(f"`{source.packages}` is not there: run `cargo xtask dist` first")
    of_all = source.packages / "SHA256SUMS"
    of_all.write_bytes(sums([File(path.name, path.read_bytes()) for path in paths]).data)
    notes = ["--title", tag, "--notes-file", "CHANGELOG.md"]
    output("gh", "release", "create", tag, "--draft", "--verify-tag", *notes, *paths, of_all, cwd=source.root)


def main() -> Optional[str]:
    """Returns why not everything could be built, is the same, or works."""
    if sys.version_info < (3, 9):
        return f"dist: Python 3.9 or later is needed, and this is {platform.python_version()}"
    parser = argparse.ArgumentParser(prog="cargo xtask dist", description=(__doc__ or "").split(": ")[1].split("\n")[0])
    parser.add_argument("--libc", choices=["gnu", "musl"], default="gnu", help="link this C library into the programs")
    action = parser.add_mutually_exclusive_group()
    action.add_argument(
        "--reproduce",
        action="store_true",
        help="build again in another folder, and fail if a file differs. Needs a work tree without changes",
    )
    action.add_argument(
        "--draft",
        action="store_true",
        help="build nothing: make a draft of a release on GitHub, with the files that are there",
    )
    action.add_argument(
        "--try",
        dest="trial",
        nargs="?",
        const="all",
        choices=["all", *TRIALS],
        help="build nothing: install from the files that are there, show the first fail-over, and look up names from an "
        "empty root folder; all of it, or one",
    )
    options = parser.parse_args()
    # Python's own answer to INT also ends what runs here.
    for ending in [signal.SIGTERM, signal.SIGHUP]:
        if signal.getsignal(ending) != signal.SIG_IGN:
            signal.signal(ending, signal.default_int_handler)
    try:
        source = Source.read(Path(__file__).resolve().parents[3], options.libc)
        if options.trial:
            try_out(source, list(TRIALS) if options.trial == "all" else [options.trial])
        elif options.draft:
            create_draft(source)
        else:
            if options.reproduce:
                source.must_be_committed()
            made = make(source)
            if options.reproduce:
                compare(source, made)
    except (Failed, OSError) as error:
        return f"dist: {error}"
    except KeyboardInterrupt:
        return "dist: interrupted"
    return None


if __name__ == "__main__":
    sys.exit(main())
