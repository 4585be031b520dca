# SPDX-License-Identifier: Apache-2.0
"""Files of the tree that a program writes: written, or with --check only compared."""

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def settle(texts, check):
    """Writes {path: text} where files differ, or with `check` nothing; the paths that differed, within the tree."""
    stale = [path for path, text in texts.items() if not path.is_file() or path.read_text(encoding="utf-8") != text]
    for path in [] if check else stale:
        path.parent.mkdir(exist_ok=True)
        path.write_text(texts[path], encoding="utf-8")
    return [path.relative_to(ROOT).as_posix() for path in stale]


def main(description, make, what):
    """The command line of such a program; make() gives the texts, and `what` says what the files are those of."""
    parser = argparse.ArgumentParser(description=description.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="change nothing, and fail where that would")
    check = parser.parse_args().check
    texts = make()
    stale = settle(texts, check)
    if stale and check:
        print(f"{', '.join(stale)}: not {what}; tools/{Path(sys.argv[0]).name} without --check mends that")
        return 1
    print(f"{len(texts)} files are {what}{f', {len(stale)} of them written' if stale else ''}")
    return 0
