#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the style of the tree: clang-format, clang-tidy, ruff, pyright, codespell, and the layers.

    lint.py --build build/dev [--fix] [--only format,tidy,python,types,words,layers] [--sample N] [--jobs N]

clang-format, ruff, pyright and codespell come pinned from PyPI into .venv/lint, or where there is no network from the
path; clang-tidy comes from the path. What clang-tidy found clean is remembered in BUILD/tidy by the contents of the
file and of every header, so that a second run only looks at what changed; with --sample N it looks at one file in N.
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import setup  # noqa: E402  (beside this file)

ROOT = Path(__file__).resolve().parent.parent
C_FOLDERS = ["src", "include", "python", "tests", "bench", "tools"]
C_SUFFIXES = {".c", ".h", ".cu"}
PYTHON_FOLDERS = ["tools", "tests", "demo", "bench", "python"]
WORDS_PATHS = [*PYTHON_FOLDERS, "src", "include", "docs", "cmake", ".ci",
               "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "CMakeLists.txt", "Makefile"]
# Flags that only gcc knows, or that make clang-tidy repeat what the compilers already say.
TIDY_DROPS = {"-Werror"}
# How much of a function's paths the analyzer looks at; what it finds depends on it, so it is the same everywhere. Its
# own limit, nine times this, takes three times as long and has found nothing more.
TIDY_NODES = 25000
TIDY_LIMITS = [word for option in ("-analyzer-config", f"max-nodes={TIDY_NODES}") for word in ("-Xclang", option)]


def run(command):
    """Runs a command; returns (exit status, output)."""
    done = subprocess.run([str(word) for word in command], cwd=ROOT, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    return done.returncode, done.stdout.strip()


def existing(names):
    return [name for name in names if (ROOT / name).exists()]


def tool(name):
    """A pinned tool's path; None where it can neither be installed nor found."""
    venv = ROOT / ".venv" / "lint"
    if os.environ.get("MILLPOND_OFFLINE", "0") in ("", "0"):
        problem = setup.make_venv(venv, ROOT / "requirements-lint.txt")
        if problem is None:
            return venv / "bin" / name
    return shutil.which(name)


def c_files():
    return sorted(path for folder in C_FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in C_SUFFIXES)


def lint_format(args):
    mode = ["-i"] if args.fix else ["--dry-run", "-Werror"]
    return run([tool("clang-format"), *mode, *c_files()])


def tidy_key(entry, common):
    """Changes when the outcome for this file could."""
    key = hashlib.sha256(common)
    key.update(entry["command"].encode())
    key.update(Path(entry["file"]).read_bytes())
    return key.hexdigest()


def tidy_one(program, build, entry, stamp):
    """Findings of clang-tidy in one file, as text; "" for none."""
    arguments = [word for word in shlex.split(entry["command"]) if word not in TIDY_DROPS]
    flags = [word for word in arguments if word.startswith(("-D", "-I", "-std="))]
    for at, word in enumerate(arguments):
        if word == "-isystem":
            flags += [word, arguments[at + 1]]
    status, output = run([program, "--quiet", entry["file"], "--", *flags, *TIDY_LIMITS, "-Wno-unknown-warning-option"])
    if status == 0:
        stamp.touch()
        return ""
    return output


def lint_tidy(args):
    program = shutil.which("clang-tidy") or shutil.which("clang-tidy-14")
    if program is None:
        return 1, "clang-tidy is not there; install it (Debian: apt install clang-tidy)"
    database = args.build / "compile_commands.json"
    if not database.is_file():
        return 1, f"{database} is not there; build first: make"
    generated = str(args.build.resolve() / "generated")
    compiled = {entry["file"]: entry for entry in reversed(json.loads(database.read_text()))
                if not entry["file"].startswith(generated)}  # of a file that several targets have, the first
    entries = [compiled[file] for file in sorted(compiled)][:: args.sample]
    headers = sorted(path for folder in C_FOLDERS for path in (ROOT / folder).rglob("*.[hd]*") if path.is_file())
    rules = [ROOT / ".clang-tidy", ROOT / "tests/.clang-tidy"]
    common = b"".join(path.read_bytes() for path in [*rules, *headers])
    stamps = args.build / "tidy"
    stamps.mkdir(exist_ok=True)
    left = [(entry, stamp) for entry in entries if not (stamp := stamps / tidy_key(entry, common)).exists()]
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        outputs = list(pool.map(lambda item: tidy_one(program, args.build, *item), left))
    findings = "\n".join(text for text in outputs if text)
    return (1 if findings else 0), findings or f"{len(entries)} files, of which {len(left)} had changed"


def lint_python(args):
    return run([tool("ruff"), "check", *(["--fix"] if args.fix else []), *existing(PYTHON_FOLDERS)])


def lint_types(_):
    return run([sys.executable, ROOT / "tools/check_types.py", tool("pyright")])


def lint_words(_):
    return run([tool("codespell"), *existing(WORDS_PATHS)])


def lint_layers(_):
    return run([sys.executable, ROOT / "tools/check_layers.py"])


CHECKS = [
    ("layers", lint_layers, None),
    ("format", lint_format, "clang-format"),
    ("python", lint_python, "ruff"),
    ("types", lint_types, "pyright"),
    ("words", lint_words, "codespell"),
    ("tidy", lint_tidy, None),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", type=Path, default=ROOT / "build/dev", help="a configured build folder")
    parser.add_argument("--fix", action="store_true", help="rewrite files instead of naming them")
    parser.add_argument("--only", default="", help="names of checks, separated by commas")
    parser.add_argument("--sample", type=int, default=1, metavar="N", help="clang-tidy looks at one file in N")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    args = parser.parse_args()
    names = args.only.split(",") if args.only else ["format", "python"] if args.fix else [n for n, _, _ in CHECKS]
    failed = []
    for name, check, needs in CHECKS:
        if name not in names:
            continue
        if needs is not None and tool(needs) is None:
            status, output = 1, f"{needs} can neither be installed nor found"
        else:
            status, output = check(args)
        print(f"lint {name}: {'ok' if status == 0 else 'FAILED'}", flush=True)
        if output and (status != 0 or name == "tidy"):
            print(output, flush=True)
        if status != 0:
            failed.append(name)
    if failed:
        print(f"lint: {', '.join(failed)} failed; `make format` mends what a program can")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
