# SPDX-License-Identifier: Apache-2.0
"""The command line `millpond`; docs/command_line.md describes it.

Exit codes: 0 all is well; 1 it was done and something is wrong, or it failed; 2 the command line or an input is wrong;
3 it cannot be done here (a library, device or process is not there).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

OK, FAILED, USAGE, NOTHING = 0, 1, 2, 3
INTERRUPTED = 130  # as shells have it, 128 and the signal
BROKEN_PIPE = 141

NEEDED = "the command line needs the packages click and rich, and {} is not installed: pip install click rich"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and gives its exit code. Says what is wrong in one sentence, on stderr."""
    try:
        import click  # noqa: F401
        import rich  # noqa: F401
    except ModuleNotFoundError as error:
        print(f"millpond: {NEEDED.format(error.name)}", file=sys.stderr)
        return NOTHING
    from millpond.cli import _app

    try:
        code = _app.run(list(sys.argv[1:] if arguments is None else arguments))
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # the reader has had enough; nothing more is to be written at the end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
