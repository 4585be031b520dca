# SPDX-License-Identifier: Apache-2.0
"""Runs trained models on the emulated device and prints what fused kernels they made, a line each.

    fused_texts.py MODEL...

With MILLPOND_PASSES=+channels_last the graphs are rewritten as for a GPU.
"""

import argparse
import logging
import os
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS.parent / "demo"), str(TESTS.parent / "tools"), str(TESTS / "models")]

import feeds  # noqa: E402  (found by the line above)
import fetch_models  # noqa: E402
import provider  # noqa: E402


class Lines(logging.Handler):
    def __init__(self):
        super().__init__()
        self.found = set()

    def emit(self, record):
        line = record.getMessage()
        if line.startswith("fused_") and " reads " in line:
            self.found.add(line)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("models", nargs="+")
    args = parser.parse_args()
    lines = Lines()
    logger = logging.getLogger("millpond")
    logger.addHandler(lines)
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    root = fetch_models.default_dir()
    for name in args.models:
        session = provider.session(str(Path(root) / "models" / f"{name}.onnx"))
        for _, inputs in feeds.feeds(name, root):
            session.run(None, inputs)
        del session
    print("\n".join(sorted(lines.found)))


if __name__ == "__main__":
    os.environ.setdefault("MILLPOND_DEVICE", "host")
    main()
