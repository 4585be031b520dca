#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs Numba's own CUDA tests, with its own memory manager and with ours, and compares them test by test.

    run.py --out DIR [--only WORD,...] [--jobs N] [--minutes M] [--env KEY=VALUE] [--compare-only]

Each module of tests is a process of its own; those that are sensitive to load run alone, after the others. When the
time is up the rest is left: the same command goes on there. What fails with ours and passes without is run once more,
alone, with both. DIR has a file for each module and memory manager, and compare.json.

Exit status: 0 if nothing is worse with ours, 1 if something is, 3 if there is more to run.
"""

import argparse
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
SIDES = {"without": None, "with": "millpond.numba"}
ALONE = ("cudapy.test_ipc", "cudapy.test_multiprocessing", "benchmarks.test_kernel_launch")  # they have time limits
SLOW = ("test_array_methods", "test_atomics", "test_math", "test_ufuncs", "test_bfloat16", "test_warp_ops",
        "test_random", "test_bfloat16_bindings", "test_libdevice", "test_vector_type", "test_debuginfo",
        "test_fp8_bindings")  # begun first, so that none is waited for at the end
GOOD = ("passed", "xfailed")
BAD = ("failed", "error", "crashed")
OURS = "MillpondMemoryManager"
THE_END = "(the end of the process)"
# Numba skips these under any other memory manager, as they look into its own.
EXPECTED_SKIPS = ("Deallocation specific to Numba memory management", "Ownership not relevant with external memmgr")
RESTARTS_MAX = 8
GRACE_S = 20  # beyond the deadline, for what is nearly done


# ---- files: DIR/SIDE/MODULE.jsonl, and .done beside it once the module has come to its end ----


class Module:
    """The tests of one module under one memory manager."""

    def __init__(self, out, side, name):
        self.side, self.name = side, name
        self.log = out / side / f"{name}.jsonl"
        self.output = self.log.with_suffix(".txt")
        self.done = self.log.with_suffix(".done")
        self.log.parent.mkdir(parents=True, exist_ok=True)

    def records(self):
        if not self.log.exists():
            return []
        return [json.loads(line) for line in self.log.read_text(encoding="utf-8").splitlines()]

    def results(self):
        """{test: (outcome, reason)}; a test that was started and never ended has crashed."""
        found = {}
        for record in self.records():
            if "start" in record:
                found[record["start"]] = ("crashed", "")
            elif "test" in record:
                found[record["test"]] = (record["outcome"], record["reason"])
        return found

    def unfinished(self):
        """Whether the last thing that was begun is a test."""
        records = self.records()
        return bool(records) and "start" in records[-1]

    def note(self, **record):
        with open(self.log, "a", encoding="utf-8") as log:
            log.write(json.dumps(record) + "\n")

    def forget_unfinished(self):
        """Takes off the line of a test that was begun and not ended, so that it runs again."""
        if self.unfinished():
            lines = self.log.read_text(encoding="utf-8").splitlines()[:-1]
            self.log.write_text("".join(line + "\n" for line in lines), encoding="utf-8")

    def managers(self):
        return {name for record in self.records() for name in record.get("managers", [])}


def test_modules(words):
    """Names of Numba's test modules, without the common beginning; the slow ones first."""
    spec = importlib.util.find_spec("numba.cuda.tests")
    if spec is None:
        sys.exit("run.py: numba-cuda is not installed; pip install 'numba-cuda[cu13]'")
    top = Path(next(iter(spec.submodule_search_locations)))
    names = [".".join(path.relative_to(top).with_suffix("").parts) for path in sorted(top.rglob("test_*.py"))]
    names = [name for name in names if not words or any(word in name for word in words)]
    return sorted(names, key=lambda name: name.rpartition(".")[2] not in SLOW)


# ---- running ----


def environment(module, extra):
    env = dict(os.environ, NUMBA_SUITE_LOG=str(module.log), PYTHONDONTWRITEBYTECODE="1", **extra)
    env["NUMBA_SUITE_DONE"] = "\n".join(module.results())
    env.pop("NUMBA_CUDA_MEMORY_MANAGER", None)
    if SIDES[module.side] is not None:
        env["NUMBA_CUDA_MEMORY_MANAGER"] = SIDES[module.side]
    paths = [str(HERE / "plugin")]
    if importlib.util.find_spec("filecheck") is None:
        paths.append(str(HERE / "stand_in"))
    env["PYTHONPATH"] = os.pathsep.join([*paths, *filter(None, [env.get("PYTHONPATH")])])
    return env


def start(module, extra):
    quiet = ["--benchmark-disable"] if importlib.util.find_spec("pytest_benchmark") else []
    command = [sys.executable, "-m", "pytest", "-q", "-rN", "-p", "no:cacheprovider", "-p", "numba_suite_plugin",
               *quiet, "-c", os.devnull, "--rootdir", str(module.log.parent), "-o", "consider_namespace_packages=true",
               "--pyargs", f"numba.cuda.tests.{module.name}"]
    with open(module.output, "a", encoding="utf-8") as output:
        return subprocess.Popen(command, env=environment(module, extra), stdout=output, stderr=subprocess.STDOUT,
                                stdin=subprocess.DEVNULL, cwd=module.log.parent)


class Queue:
    """Runs modules, at most `jobs` at a time, until the deadline."""

    def __init__(self, jobs, deadline, limit_s, extra):
        self.jobs, self.deadline, self.limit_s, self.extra = jobs, deadline, limit_s, extra

    def run(self, modules):
        """Whether all of them came to their end."""
        waiting = [module for module in modules if not module.done.exists()]
        restarts, running = Counter(), {}
        while waiting or running:
            while waiting and len(running) < self.jobs and time.monotonic() < self.deadline:
                module = waiting.pop(0)
                running[start(module, self.extra)] = (module, time.monotonic())
            if not running:
                return False  # the time is up
            time.sleep(0.1)
            for process, (module, began) in list(running.items()):
                if not self.is_over(process, began):
                    continue
                del running[process]
                restarts[module] += 1
                if not self.finish(process, module, restarts[module] > RESTARTS_MAX):
                    waiting.insert(0, module)
        return True

    def is_over(self, process, began):
        """Whether the process has ended, or was ended because its time was up."""
        if process.poll() is None and time.monotonic() < min(self.deadline + GRACE_S, began + self.limit_s):
            return False
        if process.poll() is None:
            process.kill()
            process.wait()
        return True

    def finish(self, process, module, last):
        """Whether the module is done; otherwise the rest of its tests needs another process."""
        if process.returncode == -signal.SIGKILL and time.monotonic() >= self.deadline + GRACE_S:
            module.forget_unfinished()
            return False
        if process.returncode not in (0, 1, 2, 5):  # pytest's own, with failures, an error on import, or no tests
            if module.unfinished() and not last:
                return False
            if not module.unfinished():
                module.note(test=THE_END, outcome="crashed", reason=f"exit status {process.returncode}")
        module.done.touch()
        return True


# ---- comparing ----


def compare(out, names):
    """(counts by side, [(test, reason)] worse with ours, [test] skipped as expected, managers by side)."""
    counts = {side: Counter() for side in SIDES}
    managers = {side: Counter() for side in SIDES}
    worse, skipped = [], []
    for name in names:
        sides = {side: Module(out, side, name) for side in SIDES}
        results = {side: module.results() for side, module in sides.items()}
        for side, module in sides.items():
            counts[side].update(outcome for outcome, _ in results[side].values())
            managers[side].update(module.managers())
        for test in {**results["without"], **results["with"]}:
            theirs, _ = results["without"].get(test, ("missing", ""))
            ours, reason = results["with"].get(test, ("missing", "not run"))
            if ours == "skipped" and any(text in reason for text in EXPECTED_SKIPS):
                skipped.append(f"{name}::{test}")
            elif (theirs in GOOD and ours not in GOOD) or (ours in BAD and theirs not in BAD):
                worse.append((name, test, ours, reason))
    return counts, worse, skipped, managers


def confirm(out, worse, queue):
    """Runs what is worse once more, alone and with both; returns what still is, and what is not."""
    again = out / "again"
    names = sorted({name for name, *_ in worse})
    queue.jobs = 1
    finished = queue.run([Module(again, side, name) for name in names for side in SIDES])
    if not finished:
        return worse, [], False
    _, still, _, _ = compare(again, names)
    kept = {(name, test) for name, test, *_ in still}
    return ([row for row in worse if row[:2] in kept], [row for row in worse if row[:2] not in kept], True)


def report(out, counts, worse, flaky, skipped, managers):
    for side in SIDES:
        total = sum(counts[side].values())
        parts = ", ".join(f"{count} {word}" for word, count in counts[side].most_common())
        who = ", ".join(f"{name} in {count} processes" for name, count in managers[side].most_common()) or "none"
        print(f"{side:8} {total} tests: {parts}; memory manager: {who}")
    if managers["without"] and (OURS not in managers["with"] or OURS in managers["without"]):
        worse.append(("run.py", "the memory managers", "error", "were not the ones that were asked for"))
    print(f"skipped by Numba itself under another memory manager: {len(skipped)}")
    for name, test, *_ in flaky:
        print(f"failed once, and passed alone: {name}::{test}")
    for name, test, outcome, reason in worse:
        last = reason.strip().splitlines()[-1] if reason.strip() else ""
        print(f"WORSE with millpond.numba: {name}::{test} {outcome}: {last[:200]}")
    print(f"summary: Numba's tests: {counts['without']['passed']} passed without, {counts['with']['passed']} with "
          f"millpond.numba; {len(worse)} worse, {len(skipped)} skipped by Numba")
    (out / "compare.json").write_text(json.dumps({
        "counts": {side: dict(counts[side]) for side in SIDES},
        "managers": {side: dict(managers[side]) for side in SIDES},
        "skipped": skipped,
        "passed_alone": [f"{name}::{test}" for name, test, *_ in flaky],
        "worse": [{"test": f"{name}::{test}", "outcome": outcome, "reason": reason}
                  for name, test, outcome, reason in worse],
    }, indent=1) + "\n", encoding="utf-8")


def arguments():
    parser = argparse.ArgumentParser(description="Numba's own CUDA tests with and without millpond.numba")
    parser.add_argument("--out", type=Path, required=True, help="folder of the results; given again, goes on there")
    parser.add_argument("--only", default="", help="modules with one of these words in their names, by commas")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) - 2), help="processes at a time")
    parser.add_argument("--minutes", type=float, default=60, help="stop after this time")
    parser.add_argument("--limit", type=float, default=420, help="seconds that one module may take")
    parser.add_argument("--env", action="append", default=[], metavar="KEY=VALUE", help="for every process")
    parser.add_argument("--compare-only", action="store_true", help="run nothing")
    return parser.parse_args()


def main():
    args = arguments()
    args.out = args.out.resolve()
    names = test_modules(list(filter(None, args.only.split(","))))
    extra = dict(pair.split("=", 1) for pair in args.env)
    queue = Queue(args.jobs, time.monotonic() + 60 * args.minutes, args.limit, extra)
    finished = True
    if not args.compare_only:
        groups = [[name for name in names if name not in ALONE], [name for name in names if name in ALONE]]
        for group, jobs in zip(groups, (args.jobs, 1), strict=True):
            queue.jobs = jobs
            finished = queue.run([Module(args.out, side, name) for name in group for side in SIDES]) and finished
    counts, worse, skipped, managers = compare(args.out, names)
    flaky = []
    if finished and worse and not args.compare_only:
        worse, flaky, finished = confirm(args.out, worse, queue)
    report(args.out, counts, worse, flaky, skipped, managers)
    if not finished:
        print("the time is up: the same command goes on")
        return 3
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
