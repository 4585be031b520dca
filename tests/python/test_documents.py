# SPDX-License-Identifier: Apache-2.0
"""Samples of output in the documents are what the pool writes."""

import re
from pathlib import Path

from core_kit import run_python

MEMORY = Path(__file__).resolve().parents[2] / "docs/memory.md"

FULL = """
    import millpond
    other = millpond.Pool("host:0", client="numba", options={"arena.max_mem": "4M"})
    pool = millpond.Pool("host:0", client="my program")
    kept = other.alloc(1048576), pool.alloc(1000192)
    try:
        pool.alloc(1300000)
    except millpond.OutOfMemoryError as error:
        print(error)
"""


def plain(text):
    """One line, without what depends on the machine."""
    return re.sub(r"the device has \d+ of \d+", "the device has N of N", " ".join(text.split()))


def test_message_of_a_request_that_fails():
    section = MEMORY.read_text(encoding="utf-8").partition("\n## When memory runs out\n")[2]
    sample = re.search(r"```text\n(.*?)```", section, re.DOTALL).group(1)
    assert plain(run_python(FULL)) == plain(sample)
