#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes all that a release consists of: wheels, source archive, Debian packages, a list of what they contain, and sums.

    release.py --out dist [--cuda] [--kernels build/dev/libmillpond_host_kernels.a] [--gpu-kernels build/dev]
               [--changed]

The list is millpond-VERSION.cdx.json (an SBOM in CycloneDX 1.6), the sums are SHA256SUMS. The same source gives the
same bytes, wherever it lies (tools/check_reproducible.py): times in archives are SOURCE_DATE_EPOCH, by default that of
the commit. Refuses a tree with changes that are not committed, unless --changed. Files of an older release in the
folder are deleted.
The wheels are for glibc 2.28 on x86-64 and AArch64, by the compiler of requirements-release.txt.
--cuda: fails where CUDA's headers are missing. --kernels: takes the emulated device's kernels from another build, for
this machine's processor.
--gpu-kernels: makes the wheel millpond-kernels, too, which takes the cores some twenty minutes.
"""

import argparse
import hashlib
import importlib.metadata
import json
import os
import platform
import re
import subprocess
import sys
import tomllib
import uuid
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import zig  # noqa: E402  (beside this file)
from version import version  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
SUMS = "SHA256SUMS"
OURS = ("millpond*", "libmillpond*", SUMS)
# Opened at run time, where they are; nothing of them is in a release.
OPENED = {
    "cuda-driver": "NVIDIA's driver, libcuda.so.1", "nvrtc": "CUDA's compiler at run time, of CUDA 12 or 13",
    "cublasLt": "CUDA's matrix products", "cudnn": "convolutions, version 9", "cupti": "CUDA's profiling interface",
}
REQUIREMENT = re.compile(r"([\w.-]+)([^;]*)")


def run(*command, **variables):
    done = subprocess.run([str(word) for word in command], cwd=ROOT, env=dict(os.environ, **variables), check=False)
    if done.returncode != 0:
        sys.exit(f"release: {Path(command[1]).name} ended with {done.returncode}")


def git(*words):
    """What git says, or None outside of a repository."""
    try:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def epoch():
    """The second that all times are."""
    given = os.environ.get("SOURCE_DATE_EPOCH") or git("log", "-1", "--format=%ct")
    if not given:
        sys.exit("release: this is no repository; give the time of the source as SOURCE_DATE_EPOCH (date +%s)")
    return int(given)


def sum_of(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


# ---- the list of contents ----


def requirement(text, scope):
    """A package of PyPI that is installed beside the wheel."""
    name, wanted = REQUIREMENT.match(text).groups()
    return {"type": "library", "bom-ref": f"pkg:pypi/{name.lower()}", "name": name, "purl": f"pkg:pypi/{name.lower()}",
            "scope": scope, "description": f"not in the release; the wheel wants {name}{wanted}".strip()}


def components(files):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = {}
    for path in files:
        found[f"file:{path.name}"] = {
            "type": "file", "bom-ref": f"file:{path.name}", "name": path.name,
            "hashes": [{"alg": "SHA-256", "content": sum_of(path)}],
            "licenses": [{"license": {"id": project["license"]}}]}
    optional = [each for extra in project["optional-dependencies"].values() for each in extra]
    for scope, texts in (("required", project["dependencies"]), ("optional", optional)):
        for text in texts:
            entry = requirement(text, scope)
            found.setdefault(entry["bom-ref"], entry)
    for name, what in OPENED.items():
        found[f"opened:{name}"] = {"type": "library", "bom-ref": f"opened:{name}", "name": name, "scope": "optional",
                                   "description": f"not in the release; opened where it is: {what}"}
    return [found[key] for key in sorted(found)]


def tools():
    """What the bytes depend on beside the source."""
    compiler = subprocess.run(["cc", "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]
    named = [(name, importlib.metadata.version(name)) for name in ("cmake", "ninja", "scikit-build-core")]
    named.append(("ziglang", zig.version()))
    return [{"type": "application", "name": "cc", "version": compiler},
            *({"type": "application", "name": name, "version": number} for name, number in named)]


def contents(files, seconds):
    made = {
        "bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "tools": {"components": tools()},
            "component": {"type": "library", "bom-ref": "millpond", "name": "millpond", "version": version(),
                          "purl": f"pkg:pypi/millpond@{version()}",
                          "licenses": [{"license": {"id": "Apache-2.0"}}]}},
        "components": components(files),
    }
    needed = [each["bom-ref"] for each in made["components"] if each["type"] == "library"]
    made["dependencies"] = [{"ref": "millpond", "dependsOn": needed}]
    digest = hashlib.sha256(json.dumps(made, sort_keys=True).encode()).hexdigest()
    return {**made, "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, digest)}"}


# ---- the release ----


def build(args, seconds):
    """The source archive, the wheels and the Debian packages."""
    given = {"SOURCE_DATE_EPOCH": str(seconds), "PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8", "TZ": "UTC"}
    cuda = ["--cuda"] if args.cuda else []
    kernels = ["--kernels", args.kernels.resolve()] if args.kernels else []
    for number, processor in enumerate(zig.PROCESSORS):
        ours = kernels if processor == platform.machine() else []
        rest = ["--no-sdist"] if number > 0 else []
        run(sys.executable, ROOT / "tools/wheel.py", "--out", args.out, "--processor", processor, *rest, *cuda, *ours,
            **given)
    run(sys.executable, ROOT / "tools/deb.py", "--out", args.out, *cuda, *kernels, **given)
    if args.gpu_kernels:
        run(sys.executable, ROOT / "tools/ready_kernels.py", "--build", args.gpu_kernels, "--out",
            args.gpu_kernels / "ready/files", "--wheel", args.out, **given)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cuda", action="store_true", help="the CUDA backend must be in it")
    parser.add_argument("--kernels", type=Path, help="archive of kernels that another build of this source made")
    parser.add_argument("--gpu-kernels", type=Path, metavar="BUILD",
                        help="the wheel of kernels for GPUs, too, compiled by this build")
    parser.add_argument("--changed", action="store_true", help="take what is not committed, too")
    args = parser.parse_args()
    args.out = args.out.resolve()
    changes = git("status", "--porcelain")
    if changes and not args.changed:
        sys.exit(f"release: there are changes that are not committed; commit them, or give --changed\n{changes}")
    os.umask(0o022)
    args.out.mkdir(parents=True, exist_ok=True)
    for pattern in OURS:
        for path in args.out.glob(pattern):
            path.unlink()
    seconds = epoch()
    build(args, seconds)
    files = sorted(path for pattern in OURS for path in args.out.glob(pattern))
    bom = args.out / f"millpond-{version()}.cdx.json"
    bom.write_text(json.dumps(contents(files, seconds), indent=2, sort_keys=True) + "\n", encoding="utf-8")
    lines = [f"{sum_of(path)}  {path.name}\n" for path in sorted([*files, bom], key=lambda path: path.name)]
    (args.out / SUMS).write_text("".join(lines), encoding="utf-8")
    print(f"# {len(lines)} files and {SUMS} in {args.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
