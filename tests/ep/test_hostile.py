# SPDX-License-Identifier: Apache-2.0
"""Hostile models (hostile.py), as many as --hostile says; `make test-hostile` tries as many as one likes."""

import os
import re
import subprocess
import sys
from pathlib import Path

import hostile_models
import pytest
from registered import registry

HERE = Path(__file__).resolve().parent
REWRITTEN = "com.ms.internal.nhwc"
# Those with no row that NumPy could feed, those that need more than one node, and those that need more than one process
# (tests/ranks).
LEFT_OUT = {"MemcpyFromHost", "MemcpyToHost", "If", "Loop", "Scan", "MatMulBlockQuantizedFp8Weight", "AllReduce",
            "AllGather", "AllToAll"}


def hostile(*words, **environment):
    paths = [str(HERE.parents[1] / "demo"), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = {**os.environ, **environment, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, str(HERE / "hostile.py"), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=1500)


def test_every_registered_operator_gets_hostile_models():
    wanted = {f"{domain}.{name}" if domain else name for domain, name in registry().operators()
              if domain != REWRITTEN and name not in LEFT_OUT}
    assert wanted <= set(hostile_models.rows())


def test_a_seed_is_one_model():
    for seed in (3, 44, 555):
        first, second = hostile_models.model(seed), hostile_models.model(seed)
        assert str(first) == str(second) and first.proto() == second.proto()


def test_sample(summary, request):
    models = request.config.getoption("--hostile")
    done = hostile("--count", models, "--seed", 1, "--jobs", 2)
    assert done.returncode == 0, done.stdout + done.stderr
    counts = done.stdout.splitlines()[-2]
    summary(f"hostile models: {counts}")
    check_counts({word: int(count) for count, word in re.findall(r"(\d+) ([^;]+)", counts)}, models)


def check_counts(found, models):
    """A provider that takes no node, or refuses what it is given, breaks no single model's rule."""
    assert sum(found.values()) == models, found
    assert found["equal"] > models // 4, found
    assert found.get("refused by us alone", 0) < models // 20 and found.get("slow", 0) == 0, found


@pytest.mark.parametrize("spoiled", [
    {"equal": 70, "elsewhere": 230},
    {"equal": 285, "refused by us alone": 15},
    {"equal": 299, "slow": 1},
    {"equal": 299},
])
def test_counts_that_say_that_the_sample_is_worth_little(spoiled):
    with pytest.raises(AssertionError):
        check_counts(spoiled, 300)


def test_a_worker_that_dies_is_reported_with_its_seed():
    """A worker whose plugin ends the process as soon as a session is made."""
    paths = [str(HERE), str(HERE.parents[1] / "demo")]
    code = f"""
import os, sys
sys.path[:0] = {paths!r}
import hostile, provider
provider.session = lambda *given, **named: os.abort()
hostile.work(["Relu"])
"""
    done = subprocess.run([sys.executable, "-c", code], input="7 1\n", capture_output=True, text=True, timeout=120)
    assert done.returncode != 0
    words = [line.split("\t")[:2] for line in done.stdout.splitlines()]
    assert words[-1] == ["begin", "ours loads"]
