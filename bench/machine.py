# SPDX-License-Identifier: Apache-2.0
"""What a result was measured on, and where it is written: shared by the benchmarks, so that their files say it in the
same words."""

import json
import os
import platform
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


ARCHIVED = "$Format:%h$"  # `git archive` puts the commit here


def commit():
    done = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() or ("unknown" if ARCHIVED.startswith("$") else ARCHIVED)


def cpu():
    found = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    return f"{found.group(1) if found else platform.machine()}, {os.cpu_count()} threads"


def command(script):
    """The command as another would give it: with the names of files, but not where they lay."""
    return " ".join([script, *(re.sub(r"(^|=)/\S*/", r"\1", word) for word in sys.argv[1:])])


def environment():
    names = ("MILLPOND_DEVICE", "MILLPOND_HOST", "MILLPOND_HOST_MEMORY", "MILLPOND_POOL", "MILLPOND_LIMIT")
    return {name: os.environ[name] for name in names if name in os.environ}


def now():
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def save(result, name, out=None):
    """Writes bench/results/NAME.json, or the file `out` instead, and says so."""
    target = out or ROOT / "bench" / "results" / f"{name}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(f"written to {target if out else target.relative_to(ROOT)}")


def file_name(device):
    """A device's name as the name of a file: "NVIDIA H200" is nvidia-h200."""
    return re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-")
