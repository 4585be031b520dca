#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds the site of the documents with MkDocs, and checks it.

    build_site.py [--out build/site] [--check] [--pages build/pages]

Its tools come pinned from PyPI into build/venv-site, or where there is no network from this Python. --check: looks at
what was built, as tools/check_site.py does; --pages: and at pages that Millpond makes, which are written there, for
which this Python needs the package of a build.
"""

import argparse
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import setup  # noqa: E402  (beside this file)

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "requirements-site.txt"
SKIP_STATUS = 77
MODULES_NEEDED = ("mkdocs", "material", "mkdocstrings", "playwright")


def python():
    """A Python with the tools; None, and why there is none."""
    if os.environ.get("MILLPOND_OFFLINE", "0") in ("", "0"):
        venv = ROOT / "build/venv-site"
        problem = setup.make_venv(venv, REQUIREMENTS)
        return (venv / "bin/python", None) if problem is None else (None, problem)
    missing = [name for name in MODULES_NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        return None, f"MILLPOND_OFFLINE is set, and this Python lacks {', '.join(missing)}"
    return sys.executable, None


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "build/site", help="the site's folder")
    parser.add_argument("--check", action="store_true", help="look at what was built")
    parser.add_argument("--pages", type=Path, help="with --check: and at pages that Millpond makes, written there")
    args = parser.parse_args()
    program, problem = python()
    if problem is not None:
        print(f"build_site: {problem}")
        return SKIP_STATUS if "MILLPOND_OFFLINE" in problem else 1
    out = args.out.resolve()
    # The variable keeps Material from printing news of its makers.
    done = subprocess.run([program, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", out], cwd=ROOT,
                          env=dict(os.environ, NO_MKDOCS_2_WARNING="1"), check=False)
    if done.returncode != 0:
        print("build_site: MkDocs could not build it")
        return 1
    print(f"build_site: {out / 'index.html'}", flush=True)
    if not args.check:
        return 0
    pages = [args.pages] if args.pages else []
    for folder in pages:
        if subprocess.run([sys.executable, ROOT / "tools/sample_pages.py", folder], check=False).returncode != 0:
            print("build_site: the pages that Millpond makes could not be made")
            return 1
    return subprocess.run([program, ROOT / "tools/check_site.py", out, *pages], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
