#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the tests, step by step, and ends with one line that counts them all.

    run_tests.py --build build/dev [--gpu] [--quick] [--only NAME[,NAME]] [--list]

A step is a program. Its counts come from its last line of the form "3 passed, 0 failed, 1 skipped" (our
runner's and pytest's both fit); a program without one counts as a single test, and exit status 77 as skipped.
Whole outputs lie in BUILD/test-logs; shown here are failures, reasons to skip, and lines "summary: ...".
"""

import argparse
import collections
import concurrent.futures
import contextlib
import glob
import importlib.util
import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SKIP_STATUS = 77
running = set()  # processes of steps, to be ended with us
COUNT = re.compile(r"(\d+) (passed|failed|errors?|skipped)\b")
SHOWN_LINES_MAX = 60


@dataclass
class Step:
    name: str
    what: str
    command: list
    modes: str = "cpu"  # of: cpu, quick, gpu
    needs: list = field(default_factory=list)  # what a machine may lack: the step is skipped then, but fails in CI
    limit_s: int = 900
    prepares: bool = False  # no test: its success counts nothing
    wheels: bool = False  # a C program that should find the libraries which Python packages carry
    beside: bool = False  # it keeps one core busy: runs beside the steps before and after it that do, too


def pytest(*paths, gpu=True):
    """A step of pytest; without a GPU, whose memory some tests look at, in as many processes as there are cores."""
    several = ["-n", str(os.cpu_count())] if not gpu and importlib.util.find_spec("xdist") else []
    return [sys.executable, "-m", "pytest", "-q", "-rs", "--tb=short", "--no-header", "-p", "no:cacheprovider",
            *several, *(path if path.startswith("-") else str(ROOT / path) for path in paths)]


OPERATOR_TESTS = ("op_cases", "onnx_nodes", "nhwc", "prepared", "large", "random_graphs", "hostile")
PROVIDER_TESTS = ("cli", "monitor", "onnx")  # of the Python package


def steps_of(build, gpu):
    """Every step there is, in the order they run: the quick ones first."""
    tests = build / "tests"
    unit = str(tests / "unit_tests")
    extension = build / "python/millpond/_core.abi3.so"  # left out where Python's headers are missing
    tool = [sys.executable]
    in_ci = "CI" in os.environ  # which has sanitizers and other versions to run, too, and half an hour for all
    seeds = "6" if in_ci else "20"
    sanitizer = ["compute-sanitizer", "--tool", "memcheck", "--target-processes", "all", "--report-api-errors", "no",
                 "--error-exitcode", "9"]
    return [
        Step("layers", "layers and house rules", [*tool, ROOT / "tools/check_layers.py"], "cpu quick gpu"),
        Step("readme", "links of the documents, tables of variables and options", [*tool, ROOT / "tools/check_docs.py"],
             "cpu quick gpu"),
        Step("libraries", "what the libraries export and need",
             [*tool, ROOT / "tools/check_libraries.py", "--build", build], "cpu quick gpu"),
        Step("abi", "our ONNX Runtime ABI header against the table",
             [*tool, ROOT / "tests/ep/ort_abi_check.py", "--cc", os.environ.get("CC", "cc")], "cpu quick"),
        Step("unit", f"C tests: eager, threaded, adversarial with {seeds} seeds, GPU where there is one",
             [unit, "--seeds", seeds, *(["--jobs", str(os.cpu_count())] if not gpu else [])],
             "cpu quick gpu", wheels=True),
        Step("kernels", "all kernel instances compiled by NVRTC for sm_75, 80, 90, 100",
             [*tool, ROOT / "tools/check_kernels.py", "--sample", "8" if in_ci else "1",
              "--known", build / "known-kernels.txt"], "cpu", limit_s=1800),
        Step("memcheck", "C tests on the GPU under compute-sanitizer", [*sanitizer, unit, "cuda", "--no-fork"],
             "gpu", ["compute-sanitizer"], wheels=True),
        Step("memcheck-ops", "operators on the GPU under compute-sanitizer",
             [*sanitizer, *pytest("tests/ep/test_op_cases.py")], "gpu", ["compute-sanitizer"], limit_s=1500),
        Step("docs", "docs/operators.md lists what is registered",
             [*tool, ROOT / "tools/operators_doc.py", "--check"], "cpu"),
        Step("pool", "the pool's C API as a user has it; traces: the page in Chromium, the snapshot, the log",
             pytest("tests/pool"), "cpu", beside=True),
        Step("aarch64", "the C tests of fibers, the emulated device and the pool on an emulated AArch64",
             [*tool, ROOT / "tools/check_aarch64.py"], "cpu", ["aarch64-linux-gnu-gcc", "qemu-aarch64"], beside=True),
        Step("pool-model", "the pool against its model: a million operations", [tests / "pool_model"], "cpu",
             beside=True),
        Step("bench", "the pool's benchmark: every case on the emulated device, its traces, its check",
             pytest("tests/bench"), "cpu", limit_s=600, beside=True),
        Step("fetch", "fetch the models", [*tool, ROOT / "tools/fetch_models.py", "--group", "test"], "cpu",
             prepares=True, beside=True),
        Step("ops", "operators in ONNX Runtime and ONNX's node tests, with borders around every block of memory",
             pytest(*(f"tests/ep/test_{name}.py" for name in OPERATOR_TESTS), "--borders", gpu=gpu), "cpu gpu",
             limit_s=1800),
        Step("ep", "the provider in ONNX Runtime: options, threads, life times, graphs, streams, faults",
             pytest("tests/ep", *(f"--ignore=tests/ep/test_{name}.py" for name in OPERATOR_TESTS), gpu=gpu), "cpu gpu",
             limit_s=1800),
        Step("python", "the Python package: functions, errors, threads, ends of processes; adapters of what is there",
             pytest("tests/python", "--ignore=" + str(ROOT / "tests/python/test_wheel.py"),
                    *(f"--ignore-glob=*/test_{name}*.py" for name in PROVIDER_TESTS), gpu=gpu), "cpu gpu",
             [extension], 1200),
        # In a process of their own: the provider keeps the pool that the others want to open with their own options.
        Step("python-ort", "the Python package with ONNX Runtime: sessions, values, the command line, the monitor",
             pytest(*sorted(str(path.relative_to(ROOT)) for name in PROVIDER_TESTS
                            for path in (ROOT / "tests/python").glob(f"test_{name}*.py")), gpu=gpu), "cpu gpu",
             [extension], 1200),
        Step("wheel", "the wheel: contents, what it links, README's example in a clean environment",
             pytest("tests/python/test_wheel.py"), "cpu", [extension], 1200),
        Step("models", "trained models", pytest("tests/models"), "cpu gpu", limit_s=1800),
    ]


def missing_of(step):
    """The first thing the step needs and does not find, or None."""
    for need in step.needs:
        if not (Path(need).exists() or ("/" not in str(need) and shutil.which(str(need)))):
            return need
    return None


def wheel_libraries():
    """Folders of the libraries in this Python's packages: CUDA's and OpenBLAS."""
    patterns = [f"{path}/{below}" for path in sys.path if path for below in ("nvidia/*/lib", "scipy_openblas32/lib")]
    return [folder for pattern in patterns for folder in sorted(glob.glob(pattern))]


def environment(build, gpu):
    # Tests start Python a thousand times, and .venv comes without bytecode: it is kept once, outside of the tree.
    env = dict(os.environ, PYTHONUNBUFFERED="1", PYTHONPYCACHEPREFIX=str(build / "bytecode"))
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    env.setdefault("MILLPOND_EP_LIBRARY", str(build / "lib/libonnxruntime_providers_cuda_plugin.so"))
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(build / "python"), env.get("PYTHONPATH")]))
    env["MILLPOND_DEVICE"] = "cuda" if gpu else env.get("MILLPOND_DEVICE", "host")
    return env


def run(step, log, env):
    """Runs the step with its output in `log`; returns its exit status, or None when its time was up."""
    if step.wheels:
        folders = [*wheel_libraries(), *env.get("LD_LIBRARY_PATH", "").split(":")]
        env = dict(env, LD_LIBRARY_PATH=":".join(folder for folder in folders if folder))
    with open(log, "w", encoding="utf-8") as out:
        try:
            process = subprocess.Popen([str(word) for word in step.command], cwd=ROOT, env=env, stdout=out,
                                       stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True)
        except OSError as error:  # it was not built, or cannot be run
            out.write(f"{error}\n")
            return 127
        running.add(process)
        try:
            return process.wait(step.limit_s)
        except (subprocess.TimeoutExpired, KeyboardInterrupt) as reason:
            stop(process)
            if isinstance(reason, KeyboardInterrupt):
                raise
            return None
        finally:
            running.discard(process)


def stop(process):
    """Ends a step with all that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def counts_of(status, lines):
    """(passed, failed, skipped) of a step."""
    if status == SKIP_STATUS:
        return 0, 0, 1
    for line in reversed(lines[-40:]):
        if line.startswith("====="):  # compute-sanitizer counts errors of its own; its status tells of them
            continue
        found = collections.Counter()
        for number, word in COUNT.findall(line):
            found[word.rstrip("s")] += int(number)
        if found:
            passed, failed, skipped = found["passed"], found["failed"] + found["error"], found["skipped"]
            if failed == 0 and (status != 0 or passed + skipped == 0):
                failed = 1  # every test was fine, but the program was not; or there was none
            return passed, failed, skipped
    return (1, 0, 0) if status == 0 else (0, 1, 0)


def show_skips(lines):
    reasons = collections.Counter()
    for line in lines:
        tap = re.match(r"ok \d+ - .* # SKIP (.*)", line)
        pytest_line = re.match(r"SKIPPED \[(\d+)\] (?:\S+: )?(.*)", line)
        if tap:
            reasons[tap.group(1)] += 1
        elif pytest_line:
            reasons[pytest_line.group(2)] += int(pytest_line.group(1))
    for reason, count in reasons.most_common(8):
        print(f"      skipped {count}: {reason[:160]}")


def show_failures(lines, log):
    """The lines that say what went wrong: marked ones if there are any, or else the end."""
    marked = []
    in_report = False  # of our runner: comment lines that follow "not ok"
    for line in lines:
        in_report = line.startswith("not ok ") or (in_report and line.startswith("# "))
        if in_report or re.match(r"FAILED |ERROR |E  ", line):
            marked.append(line)
    shown = marked or lines[-40:]
    for line in shown[:SHOWN_LINES_MAX]:
        print(f"      {line[:240]}")
    if len(shown) > SHOWN_LINES_MAX:
        print(f"      ... and {len(shown) - SHOWN_LINES_MAX} lines more")
    print(f"      whole output: {os.path.relpath(log, ROOT)}")


def execute(step, log, env):
    """Runs a step unless what it needs is missing; returns (that or None, exit status, seconds)."""
    missing = missing_of(step)
    if missing is not None:
        return missing, None, 0
    start = time.monotonic()
    return None, run(step, log, env), time.monotonic() - start


def report(step, log, missing, status, seconds):
    """Prints what came of a step; returns its counts."""
    if missing is not None:
        name = os.path.relpath(missing, ROOT) if "/" in str(missing) else missing
        fails = bool(os.environ.get("CI"))
        print(f"      {'failed' if fails else 'skipped'}: {name} is not there", flush=True)
        return 0, int(fails), int(not fails)
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    counts = (0, 0, 0) if step.prepares and status == 0 else counts_of(status, lines)
    for line in lines:
        if line.startswith("summary: "):
            print("      " + line.removeprefix("summary: "))
    if status is None:
        print(f"      no end after {step.limit_s} s: stopped")
    if status == SKIP_STATUS and lines:
        print(f"      skipped: {lines[-1]}")
    if counts[1] > 0:
        show_failures(lines, log)
    show_skips(lines)
    print(f"      {counts[0]} passed, {counts[1]} failed, {counts[2]} skipped in {seconds:.1f} s", flush=True)
    return counts


def run_step(step, log, env):
    """Runs one step and prints what came of it; returns its counts."""
    print(f"{step.name:<13} {step.what}", flush=True)
    return report(step, log, *execute(step, log, env))


def run_beside(steps, logs, env):
    """Runs these steps as many at a time as there are cores; gives the counts of each."""
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        outcomes = [pool.submit(execute, step, logs / f"{step.name}.log", env) for step in steps]
        try:
            for step, outcome in zip(steps, outcomes, strict=True):
                print(f"{step.name:<13} {step.what}", flush=True)
                yield report(step, logs / f"{step.name}.log", *outcome.result())
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in list(running):
                stop(process)
            raise


def run_all(steps, logs, env):
    """Gives the counts of each step."""
    for beside, group in itertools.groupby(steps, lambda step: step.beside):
        if beside:
            yield from run_beside(list(group), logs, env)
        else:
            yield from (run_step(step, logs / f"{step.name}.log", env) for step in group)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", type=Path, required=True, help="build folder, such as build/dev")
    parser.add_argument("--gpu", action="store_true", help="the steps for a machine with a GPU, on that GPU")
    parser.add_argument("--quick", action="store_true", help="only the steps that take seconds")
    parser.add_argument("--only", default="", help="names of steps, separated by commas")
    parser.add_argument("--list", action="store_true", help="name the steps and stop")
    args = parser.parse_args()
    build = args.build.resolve()
    mode = "gpu" if args.gpu else "quick" if args.quick else "cpu"
    steps = [step for step in steps_of(build, args.gpu) if mode in step.modes.split()]
    if args.only:
        wanted = set(args.only.split(","))
        unknown = wanted - {step.name for step in steps}
        if unknown:
            parser.error(f"no such step: {', '.join(sorted(unknown))}; --list names them")
        steps = [step for step in steps if step.name in wanted]
    if args.list:
        for step in steps:
            print(f"{step.name:<13} {step.what}")
        return 0

    logs = build / "test-logs"
    logs.mkdir(parents=True, exist_ok=True)
    env = environment(build, args.gpu)
    totals = [0, 0, 0]
    for counts in run_all(steps, logs, env):
        totals = [a + b for a, b in zip(totals, counts, strict=True)]
    print(f"{totals[0]} passed, {totals[1]} failed, {totals[2]} skipped", flush=True)
    return 1 if totals[1] > 0 or totals[0] == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
