# SPDX-License-Identifier: Apache-2.0
"""docs/numba.md: its program is the example, which runs; its other lines of Python do what they say."""

import dataclasses
import re
import subprocess
import sys
import typing

import millpond
import millpond.numba
from millpond import _numba_manager
from numba_kit import HERE, driver_of, environment

ROOT = HERE.parents[1]
PAGE = (ROOT / "docs/numba.md").read_text(encoding="utf-8")
EXAMPLE = ROOT / "examples/numba_pool.py"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def has_gpu():
    try:
        return millpond.Pool("cuda:0") is not None
    except millpond.Error:
        return False


def test_the_page_shows_the_example():
    code = EXAMPLE.read_text(encoding="utf-8").partition('"""\n\n')[2]
    assert code in BLOCKS


def test_the_example_runs():
    driver_of("numba.cuda")
    done = subprocess.run([sys.executable, str(EXAMPLE)], env=environment(), capture_output=True, text=True,
                          timeout=200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    wanted = r"'numba': \d{7}.*\n\d+ bytes of the GPU were enough for all of it\n" if has_gpu() else "no GPU here, .*\n"
    assert re.search(wanted, done.stdout), done.stdout


def test_the_settings_are_those_there_are(monkeypatch):
    table = PAGE.partition("## Settings")[2].partition("## NumPy")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == [
        field.name for field in dataclasses.fields(_numba_manager.Settings)
    ]
    (line,) = [block for block in BLOCKS if "configure(" in block]
    monkeypatch.setattr(_numba_manager, "settings", _numba_manager.Settings())
    monkeypatch.setattr(_numba_manager, "active", ())
    exec(line, {"millpond": millpond})
    assert _numba_manager.settings.options == {"arena.max_mem": "4G"}


def test_the_modes_are_those_there_are():
    table = PAGE.partition("## Streams")[2].partition("## Settings")[0]
    words = re.findall(r'^\| `"(\w+)"`', table, re.MULTILINE)
    assert words == list(typing.get_args(millpond.numba.Streams))
