# SPDX-License-Identifier: Apache-2.0
"""A Python for AArch64 with packages of its own, run by QEMU on another processor."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from install_kit import VARIABLES

EMULATOR = "qemu-aarch64"
PYTHON = "3.11"  # Debian 12's
DEBIAN = ("libc6", "libgcc-s1", "libstdc++6", "zlib1g", "libexpat1", "libffi8", "libssl3", "libbz2-1.0", "liblzma5",
          "libcrypt1", "libsqlite3-0", "libuuid1", f"libpython{PYTHON}-minimal", f"libpython{PYTHON}-stdlib",
          f"python{PYTHON}-minimal")
TAGS = [f"--platform=manylinux{tag}_aarch64" for tag in ("_2_28", "_2_27", "_2_17", "2014")]
# ONNX Runtime reads it, and ends where it finds another processor's.
PROCESSOR = """processor\t: {}
BogoMIPS\t: 50.00
Features\t: fp asimd evtstrm aes pmull sha1 sha2 crc32 cpuid
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x3
CPU part\t: 0xd08
CPU revision\t: 3

"""


def missing():
    """What keeps such a Python from being made here; None for nothing."""
    for program in (EMULATOR, "apt-get", "dpkg"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    return None


def command(*words, cwd=None):
    done = subprocess.run([str(word) for word in words], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(map(str, words))}\n{done.stdout}\n{done.stderr}"


class Machine:
    """Debian's Python for AArch64 below `folder`, and pip's packages beside it."""

    def __init__(self, folder):
        self.root, self.site = folder / "root", folder / "site"
        lists, packages = folder / "lists", folder / "packages"
        for each in (lists / "partial", packages, self.root / "proc"):
            each.mkdir(parents=True)
        apt = ["apt-get", "-qq", "-oAPT::Architecture=arm64", "-oAPT::Architectures=arm64",
               f"-oDir::State::Lists={lists}", "-oAPT::Sandbox::User=root"]
        command(*apt, "update")
        command(*apt, "download", *DEBIAN, cwd=packages)
        for package in packages.glob("*.deb"):
            command("dpkg", "-x", package, self.root)
        text = "".join(PROCESSOR.format(i) for i in range(os.cpu_count() or 1))
        (self.root / "proc/cpuinfo").write_text(text, encoding="utf-8")

    def install(self, *packages):
        command(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary=:all:", "--upgrade",
                f"--python-version={PYTHON}", "--implementation=cp", "--abi=abi3", f"--abi=cp{PYTHON.replace('.', '')}",
                "--abi=none", *TAGS, "--target", self.site, *packages)

    def run(self, program, *arguments):
        """Ends with what the Python program printed."""
        env = {key: value for key, value in os.environ.items() if key not in VARIABLES}
        env |= {"PYTHONPATH": str(self.site), "MILLPOND_DEVICE": "host", "PYTHONDONTWRITEBYTECODE": "1"}
        words = [EMULATOR, "-L", self.root, self.root / f"usr/bin/python{PYTHON}", "-c", program, *arguments]
        done = subprocess.run([str(word) for word in words], env=env, capture_output=True, text=True, check=False,
                              cwd="/", timeout=900)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return done.stdout


def needed(requirements):
    """Of the pinned packages those that the test program imports."""
    wanted = ("onnxruntime", "numpy", "flatbuffers", "packaging", "protobuf", "click", "rich", "Pygments",
              "markdown-it-py", "mdurl", "scipy-openblas32")
    lines = Path(requirements).read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line.partition("==")[0] in wanted]
