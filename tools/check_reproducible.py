#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a release twice, from copies of the source in two folders, and says which bytes differ.

    check_reproducible.py [--kernels build/dev/libmillpond_host_kernels.a] [--keep DIR]

The copies lie at paths of different lengths, and are built with another umask, time zone and number of jobs. Takes the
files that git knows, as they are now. Some minutes with --kernels, which leaves the emulated device's kernels out of
the comparison, and some more without; with a compiler cache it would compare the cache with itself. Prints what came of
each file.
"""

import argparse
import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLACES = (("one", 0o022, "UTC", "1"), ("another/place/for/the/second", 0o077, "Asia/Kolkata", "3"))


def copy_of_source(folder):
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    for name in filter(None, listed.decode().split("\0")):
        if (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


def release(folder, umask, zone, jobs, kernels, seconds):
    """The folder with the files."""
    source = folder / "millpond"
    env = {**os.environ, "SOURCE_DATE_EPOCH": seconds, "TZ": zone, "CMAKE_BUILD_PARALLEL_LEVEL": jobs}
    command = [sys.executable, source / "tools/release.py", "--out", folder / "dist", "--changed",
               *(["--kernels", kernels.resolve()] if kernels else [])]
    done = subprocess.run([str(word) for word in command], cwd=source, env=env, umask=umask, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"check_reproducible: the release in {folder} failed\n{done.stdout}")
    return folder / "dist"


def parts(path):
    """What an archive holds: name -> sum; nothing of other files."""
    found = {}
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as archive:
            found = {each.filename: hashlib.sha256(archive.read(each)).hexdigest() for each in archive.infolist()}
    elif path.name.endswith(".tar.gz"):
        with tarfile.open(path) as archive:
            found = {each.name: hashlib.sha256(archive.extractfile(each).read()).hexdigest() for each in archive
                     if each.isfile()}
    elif path.suffix == ".deb":
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(["dpkg-deb", "-R", str(path), folder], check=True)
            found = {each.relative_to(folder).as_posix(): hashlib.sha256(each.read_bytes()).hexdigest()
                     for each in Path(folder).rglob("*") if each.is_file()}
    return found


def difference(first, second):
    """Where two files differ, in words."""
    one, other = parts(first), parts(second)
    names = sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))
    return f"differs in {', '.join(names)}" if names else "differs outside of the files in it (times, order, rights)"


def compare(one, other):
    names = sorted({path.name for path in (*one.iterdir(), *other.iterdir())})
    failed = 0
    for number, name in enumerate(names, 1):
        first, second = one / name, other / name
        there = first.exists() and second.exists()
        same = there and first.read_bytes() == second.read_bytes()
        print(f"{'ok' if same else 'not ok'} {number} - {name}")
        if not same:
            failed += 1
            print(f"# {difference(first, second) if there else 'is in one of the two only'}")
    print(f"{len(names) - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed or not names else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kernels", type=Path, help="archive of kernels that another build of this source made")
    parser.add_argument("--keep", type=Path, help="a folder for both, which is kept")
    args = parser.parse_args()
    seconds = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True,
                             check=True).stdout.strip()
    with contextlib.ExitStack() as stack:
        base = args.keep.resolve() if args.keep else Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for place, *_ in PLACES:  # both before the first build, which takes long enough for an edit
            copy_of_source(base / place / "millpond")
        made = [release(base / place, umask, zone, jobs, args.kernels, seconds)
                for place, umask, zone, jobs in PLACES]
        return compare(*made)


if __name__ == "__main__":
    sys.exit(main())
