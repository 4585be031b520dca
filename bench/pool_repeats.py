# SPDX-License-Identifier: Apache-2.0
"""The repeats of one measurement, which may be made by several calls of bench_pool.py: a file keeps them.

The file says what was measured, and where: a call that goes on must agree in all of it. It is rewritten after each
repeat, so a call that is stopped loses the one it was at, and no more.
"""

import hashlib
import json
import os
import sys


def digest(paths):
    """A word for the contents of files."""
    total = hashlib.sha256()
    for path in paths:
        total.update(f"{path.name} {path.stat().st_size}\n".encode())
        total.update(path.read_bytes())
    return total.hexdigest()[:16]


class Repeats:
    """What each repeat has found, the oldest first: {"time": ..., "backends": {name: what it found}}."""

    def __init__(self, about, path=None):
        self.about, self.path, self.all = about, path, []
        if path is not None and path.exists():
            self.all = self._read()

    def _read(self):
        try:
            known = json.loads(self.path.read_text(encoding="utf-8"))
            there, found = dict(known["about"]), list(known["repeats"])
        except (ValueError, KeyError, TypeError):
            sys.exit(f"bench_pool: {self.path} holds no repeats of a measurement; name another file to resume")
        for word in {**there, **self.about}:
            theirs, ours = (about.get(word, "not there") for about in (there, self.about))
            if theirs != ours:
                sys.exit(f"bench_pool: {self.path} cannot be resumed here: its {word} is {theirs!r}, and here it is "
                         f"{ours!r}; go on as it was begun, or name another file")
        return found

    def add(self, time, backends):
        self.all.append({"time": time, "backends": backends})
        if self.path is not None:
            fresh = self.path.with_name(self.path.name + ".new")
            fresh.parent.mkdir(parents=True, exist_ok=True)
            fresh.write_text(json.dumps({"about": self.about, "repeats": self.all}), encoding="utf-8")
            os.replace(fresh, self.path)
