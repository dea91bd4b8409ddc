"""What `dist.py` and `archives.py` promise. dpkg, pip and podman read the rest (`cargo xtask dist --try`)."""

import io
import tarfile
import unittest
import zipfile
from pathlib import Path

import dist
from archives import File, deb, image, packed, program, record, sha256, sums, tar, wheel

FILES = [program("b/vvm", b"program"), File("b/a/notes", b"text"), File("c", b"")]


class Archives(unittest.TestCase):
    def test_order_of_files_changes_nothing(self):
        self.assertEqual(tar(FILES, 7), tar(FILES[::-1], 7))
        self.assertEqual(packed(b"text")[4:8], bytes(4), "no time in the header")

    def test_every_entry_has_the_given_time_and_no_owner_of_this_machine(self):
        found = tarfile.open(fileobj=io.BytesIO(tar(FILES, 1_700_000_000))).getmembers()
        self.assertEqual({(one.uid, one.gid, one.uname, one.mtime) for one in found}, {(0, 0, "root", 1_700_000_000)})
        modes = {"b": 0o755, "b/a": 0o755, "b/a/notes": 0o644, "b/vvm": 0o755, "c": 0o644}
        self.assertEqual({one.name: one.mode for one in found}, modes)
        self.assertEqual([one.name for one in found], list(modes))

    def test_sums_are_sorted_by_file(self):
        empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        found = sums([File("b", b"abc"), File("a", b"")])
        self.assertEqual(found.data.decode(), f"{empty}  a\n{abc}  b\n")

    def test_same_input_gives_the_same_bytes_and_lists_name_what_they_have(self):
        self.assertEqual(deb("0.1.0", "amd64", FILES, 7), deb("0.1.0", "amd64", FILES, 7))
        made = [wheel("0.1.0", "x86_64", b"program", FILES[1:2], FILES[2:]) for _ in range(2)]
        self.assertEqual(made[0], made[1])
        self.assertEqual(made[0].path, "vvm_cli-0.1.0-py3-none-manylinux_2_17_x86_64.musllinux_1_1_x86_64.whl")
        self.assertEqual(zipfile.ZipFile(io.BytesIO(made[0].data)).read("b/a/notes"), b"text")
        # printf program | sha256sum, in another alphabet.
        line = b"vvm,sha256=ExDKLIky29EYZovZdEJVij4fVGteFcaWmd-9YCT1SNg,7\n"
        self.assertEqual(record([program("vvm", b"program")], "RECORD").data, line + b"RECORD,,\n")
        bytes_of_image = image("0.1.0", "amd64", FILES, 7)
        self.assertEqual(bytes_of_image, image("0.1.0", "amd64", FILES, 7))
        archive = tarfile.open(fileobj=io.BytesIO(bytes_of_image))
        blobs = [one for one in archive.getmembers() if one.isfile() and one.name.startswith("blobs/sha256/")]
        self.assertEqual(len(blobs), 3)
        for blob in blobs:
            self.assertEqual(blob.name.split("/")[-1], sha256(archive.extractfile(blob).read()))


class Sources(unittest.TestCase):
    def test_file_that_differs_or_is_missing_is_named(self):
        self.assertEqual(dist.differing(FILES, FILES[::-1]), [])
        self.assertEqual(len(dist.differing(FILES, [*FILES[:2], File("c", b"other")])), 2)
        self.assertEqual(len(dist.differing(FILES, FILES[:2])), 1)

    def test_compilers_map_both_folders(self):
        source = dist.Source(Path("/a/vvm"), "commit", 7, "0.1.0", "aarch64", "musl")
        dist.CARGO_HOME = Path("/b/.cargo")
        settings = dist.settings(source)
        folders = "-ffile-prefix-map=/a/vvm=/vvm -ffile-prefix-map=/b/.cargo=/cargo"
        self.assertEqual(settings["CFLAGS_aarch64_unknown_linux_musl"], folders)
        self.assertIn("--remap-path-prefix=/a/vvm=/vvm", settings["CARGO_ENCODED_RUSTFLAGS"].split("\x1f"))

    def test_commands_are_read_from_the_manual_page(self):
        page = ".SH SUBCOMMANDS\n.TP\nvvm\\-run(1)\nRuns a command\n.TP\nvvm\\-step\\-down(1)\nvvm(1)\n"
        self.assertEqual(dist.commands(page), ["run", "step-down"])

    def test_command_that_says_nothing_is_ended_and_what_it_says_is_shown(self):
        self.assertEqual(dist.watch(["sh", "-c", "exit 3"]), 3)
        dist.SILENCE = 0.3
        with self.assertRaises(dist.Failed):
            dist.watch(["sh", "-c", "sleep 1000 | sleep 1000"])


if __name__ == "__main__":
    unittest.main()
