#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the tests, step by step, and ends with one line that counts them all.

    run_tests.py --build build/dev [--quick | --all [--rest] [--part] | --gpu] [--only NAME[:PART],...]
                 [--except NAME,...] [--list]

Here is the one list of what is tested. Without --quick, --all or --gpu the steps of `make test` run, some of them on a
part of what they can try; --all runs every step that needs no GPU, in full, and --rest of those what `make test` does
not do. The line before the last names what was left out.

A step is a program, or several that share its tests. Its counts come from the last line of the form "3 passed,
0 failed, 1 skipped" (our runner's and pytest's both fit); a program without one counts as a single test, and exit
status 77 as skipped. Whole outputs lie in BUILD/test-logs; shown here are failures, reasons to skip, and lines
"summary: ..."; failures once more at the end, which is what pages of CI show. Steps run side by side as far as there
are cores for them; on a GPU, tests that fill its memory, or look at how full it is, run after all others, one process
at a time.
"""

import argparse
import collections
import concurrent.futures
import contextlib
import dataclasses
import glob
import importlib.util
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
SKIP_STATUS, NO_TESTS_STATUS = 77, 5  # the latter is pytest's
CORES = os.cpu_count() or 1
running = set()  # processes of steps, to be ended with us
failures = []  # lines about programs that failed, to be said again at the end
COUNT = re.compile(r"(\d+) (passed|failed|errors?|skipped)\b")
TALLY = re.compile(r"summary: (\d+) (.*)")
MARKED_ALONE = "mark.alone"
SHOWN_LINES_MAX, AGAIN_LINES_MAX = 60, 12  # of a program that failed: where it did, and at the end
MODES = ("quick", "test", "all", "gpu")


@dataclass
class Step:
    name: str
    what: str
    command: list
    modes: str = "test"  # of: quick, test, all, gpu; what is in test is in all, too
    needs: list = field(default_factory=list)  # what a machine may lack: the step is skipped then, but fails in CI
    limit_s: int = 900
    prepares: bool = False  # no test: its success counts nothing
    wheels: bool = False  # a C program that should find the libraries which Python packages carry
    cores: int = CORES  # that it keeps busy: steps run side by side as far as these allow; none: it waits for others
    shares: bool = False  # its processes take what there is, so it may start as soon as one core is free
    after: str = ""  # a step that must have ended
    shards: int = 0  # processes that share its tests, each given --shard I/N; these leave out the tests that run alone
    alone: list = field(default_factory=list)  # the command for those; none: it has no such tests
    takes: str | None = None  # what stands before a part of tests' names: "-k", or "" for nothing; None: takes none
    preset: str = ""  # of the build that it needs, besides the one under test
    less: str = ""  # what the whole has more of, where this is a part
    may_be_empty: bool = False


def addressed():
    """Words before a Python program that takes the libraries of build/asan."""
    build = ROOT / "build/asan"
    runtimes = " ".join(f"$(${{CC:-cc}} -print-file-name=lib{name}.so)" for name in ("asan", "ubsan"))
    return ["bash", "-c", f'exec env "LD_PRELOAD={runtimes}" "$@"', "bash", "ASAN_OPTIONS=detect_leaks=0",
            "UBSAN_OPTIONS=print_stacktrace=1", "PYTHONMALLOC=malloc", f"PYTHONPATH={build / 'python'}",
            f"MILLPOND_EP_LIBRARY={build / 'lib/libonnxruntime_providers_cuda_plugin.so'}"]


def pytest(*paths, gpu=True, before=(), dist="load", more=0):
    """A command; without a GPU, whose memory some tests look at, in as many processes as there are cores, and in some
    more where tests wait for a part of their time. `dist` says how they share the tests."""
    several = ["-n", str(CORES + more), f"--dist={dist}"] if not gpu and importlib.util.find_spec("xdist") else []
    return [*before, sys.executable, "-m", "pytest", "-q", "-rs", "--tb=short", "--no-header", "-p", "no:cacheprovider",
            "--durations=15", *several,
            *(path if str(path).startswith("-") else str(ROOT / path) for path in paths)]


def test_files(folder, *names, but=()):
    """The files of tests of a folder, or those of these names, which may have stars."""
    found = {path for name in names or ["*"] for path in (ROOT / folder).glob(f"test_{name}.py")}
    found -= {path for name in but for path in (ROOT / folder).glob(f"test_{name}.py")}
    return sorted(path.relative_to(ROOT).as_posix() for path in found)


def has_alone(file):
    return MARKED_ALONE in (ROOT / file).read_text(encoding="utf-8")


OPERATOR_TESTS = ("op_cases", "onnx_nodes", "nhwc", "prepared", "large")
RANDOM_TESTS = ("random*", "hostile")
MODELS_APART = ("fused_texts", "passes")  # have steps of their own
PROVIDER_TESTS = ("cli*", "monitor*", "onnx*")  # of the Python package


@dataclass(frozen=True)
class Amounts:
    """How much is tried of what has no end, or takes long."""

    seeds: int  # of adversarial mode
    operations: int  # of the pool's model
    hostile: int  # models
    graphs: int  # at random
    kernels: tuple  # for check_kernels.py
    cases_again: int  # of the operators' cases every so many once more, as islands
    graphs_again: int  # random graphs, and six times as many hostile models, node by node
    operators: int = 1  # of the operators' cases every so many
    cases: int = 1  # of those of other tests that have more than a few
    faults: int = 1  # of the calls that fail in turn every so many
    checked_modes: str = "eager,adversarial"  # of the emulated device, under the address sanitizer
    addressed: int = 1  # under the address sanitizer one C test in so many
    addressed_cases: int = 1  # and of the operators' cases
    watched: int = 1  # under valgrind
    raced: int = 1  # under the thread sanitizer
    recompiled: int = 1  # as clang compiles them
    instances: int = 1  # of each kernel one in so many is compiled anew by clang and for the address sanitizer
    threads_preset: str = "tsan"  # of the build under the thread sanitizer
    clang_preset: str = "clang"  # of clang's build: the same as the former, it serves both
    tidied: int = 1  # of the files in C clang-tidy looks at one in so many
    emulated: int = 1  # on an emulated AArch64
    lanes: int = 1  # one program of lanes that are threads in so many
    passes: int = 1  # of models with a pass left out one in so many
    named: int = 1  # of models on the provider by the other name one in so many
    wheels: str = ""  # tests of a release's wheels that are left out
    versions: tuple = ("--sample", "24")  # for test_versions.py


SOME = Amounts(seeds=1, operations=300_000, hostile=100, graphs=18, kernels=("--sample", "40"),
               cases_again=20, operators=4, cases=2, faults=4, graphs_again=9)
ON_GPU = dataclasses.replace(SOME, hostile=300, graphs=40, cases_again=6, operators=1, cases=1, faults=1)
WHOLE = Amounts(seeds=20, operations=4_000_000, hostile=2000, graphs=200, kernels=("--sample", "1"),
                cases_again=1, graphs_again=200)
# What `make test` has of seeds, operations, kernels, operators, cases, faults and random graphs is enough here.
PART = dataclasses.replace(
    SOME, checked_modes="eager", addressed=6, addressed_cases=32, watched=10, raced=7, recompiled=8, instances=12,
    threads_preset="clang-tsan", clang_preset="clang-tsan", tidied=6, emulated=6, lanes=48, passes=16, named=3,
    wheels="aarch64", versions=("--sample", "240", "--versions", "1.26.0"))


def steps_of(build, mode, whole=WHOLE):
    """Every step there is, in the order they run, as `mode` has it: the quick ones first. "rest" is "all" without what
    "test" has of the seeds. `whole`: how much that is."""
    tests = build / "tests"
    unit = str(tests / "unit_tests")
    extension = build / "python/millpond/_core.abi3.so"  # left out where Python's headers are missing
    tool = [sys.executable]
    gpu = mode == "gpu"
    n = whole if mode in ("all", "rest") else ON_GPU if gpu else SOME
    beside = min(CORES, 8)  # processes of a step on a GPU, where each has a context of some 500 MiB
    # Under compute-sanitizer, all of which on a machine have ten connections together; the operators take longest.
    checked, checked_ops = min(CORES, 3), min(CORES, 6)
    sanitizer = ["compute-sanitizer", "--tool", "memcheck", "--target-processes", "all", "--report-api-errors", "no",
                 "--error-exitcode", "9"]

    def less(text):
        """What the whole has more of; on a GPU there is no whole but that."""
        return text if n is not WHOLE and not gpu else ""

    def python(files, *options, before=(), waits=False, **more):
        """The part of a step that has to do with pytest. `waits`: many of the tests do."""
        command = pytest(*files, *options, gpu=gpu, before=before, more=int(waits))
        if gpu:
            marked = [file for file in files if has_alone(file)]
            alone = pytest(*marked, *options, "--alone", before=before) if marked else []
            more = {"shards": beside, "cores": 1, "alone": alone, **more}
        return {"command": command, "takes": "-k", **more}

    def every(option, many):
        """An option of pytest, where it is not all."""
        return [f"--{option}={many}"] if many > 1 else []

    def one_in(many):
        """Of C tests that may run beside others one in so many."""
        return ["--shard", f"1/{many}"] if many > 1 else []

    def part_of(many):
        """The same of pytest's."""
        return [f"--shard=1/{many}"] if many > 1 else []

    def all_but_one_of(many):
        return f"{many - 1} of {many} tests" if many > 1 else ""

    not_all_cases = f"{n.cases - 1} of {n.cases} cases of tests with several"
    not_compiled = f"{n.instances - 1} of {n.instances} instances of kernels"

    both = n.threads_preset == n.clang_preset

    def sanitized(preset, *words):
        return [ROOT / f"build/{preset}/tests/unit_tests", "--jobs", CORES, "--timeout", "300", *words]

    def fuzz(target):
        return [ROOT / f"build/asan/tests/fuzz_{target}", "--seconds", "30", "--save", ROOT / "build/asan",
                ROOT / f"tests/fuzz/corpus/{target}"]

    if gpu:  # the emulated device's modes are tested without one
        c_tests = {"command": [unit, "--modes", "cuda", "--jobs", beside, "--batch", "16"], "cores": beside,
                   "shards": 1, "alone": [unit, "--modes", "cuda", "--alone"]}
    elif mode == "rest" and n.seeds > SOME.seeds:
        c_tests = {"command": [unit, "--modes", "adversarial", "--seed", SOME.seeds + 1, "--seeds",
                               n.seeds - SOME.seeds, "--jobs", CORES]}
    else:
        c_tests = {"command": [unit, "--seeds", n.seeds, "--jobs", CORES]}

    steps = [
        Step("layers", "layers and house rules", [*tool, ROOT / "tools/check_layers.py"], "quick test gpu", cores=1),
        Step("readme", "links of the documents, tables of variables and options", [*tool, ROOT / "tools/check_docs.py"],
             "quick test gpu", cores=1),
        Step("figures", "figures in the documents are those of bench/results",
             [*tool, ROOT / "tools/figures.py", "--check"], "quick test", cores=1),
        Step("pictures", "pictures in the documents are as tools/pictures.py draws them",
             [*tool, ROOT / "tools/pictures.py", "--check"], "quick test", cores=1),
        Step("libraries", "what the libraries export and need",
             [*tool, ROOT / "tools/check_libraries.py", "--build", build], "quick test gpu", cores=1),
        Step("abi", "our ONNX Runtime ABI header against the table",
             [*tool, ROOT / "tests/ep/ort_abi_check.py", "--cc", os.environ.get("CC", "cc")], "quick test", cores=1),
        # These run side by side, the longest first.
        Step("bench", "the pool's benchmark: every case on the emulated device, its traces, its check",
             pytest(*test_files("tests/bench")), limit_s=600, cores=1, takes="-k"),
        Step("pool", "the pool's C API as a user has it; traces: the page in Chromium, the snapshot, the log",
             pytest(*test_files("tests/pool"), *every("cases", n.cases), gpu=False), cores=1,  # it waits for Chromium
             takes="-k", less=less(not_all_cases)),
        Step("fetch", "fetch the models", [*tool, ROOT / "tools/fetch_models.py", "--group", "test"],
             prepares=True, cores=0),
        Step("pool-model", f"the pool against its model: {n.operations:,} operations",
             [tests / "pool_model", "--ops", n.operations], cores=1,
             less=less(f"{WHOLE.operations - n.operations:,} of {WHOLE.operations:,} operations")),
        Step("tools", "what runs the tests: shards, tests that run alone, what is left out",
             pytest("tests/tools"), "quick test", cores=1, takes="-k"),
        Step("docs", "docs/operators.md lists what is registered",
             [*tool, ROOT / "tools/operators_doc.py", "--check"], cores=1),
        Step("lanes", "kernels as a GPU has them, each lane a thread, under the thread sanitizer",
             pytest(*test_files("tests/lanes"), f"--shard=1/{n.lanes}"), "all", cores=1, takes="-k",
             less=less(f"{n.lanes - 1} of {n.lanes} programs") if n.lanes > 1 else ""),
        Step("unit", "C tests on the GPU" if gpu else
             f"C tests: eager, threaded, adversarial with {n.seeds} seeds, GPU where there is one",
             **c_tests, modes="quick test gpu", wheels=True, takes="",
             less=less(f"{WHOLE.seeds - n.seeds} of {WHOLE.seeds} seeds")),
        Step("lint", "format, clang-tidy, Python style, spelling",
             [*tool, ROOT / "tools/lint.py", "--build", build, *every("sample", n.tidied)],
             "all", limit_s=1800,
             less=less(f"clang-tidy of {n.tidied - 1} of {n.tidied} files") if n.tidied > 1 else ""),
        Step("kernels", "kernel instances compiled by NVRTC for sm_75, 80, 90, 100",
             [*tool, ROOT / "tools/check_kernels.py", *n.kernels, "--known", build / "known-kernels.txt"],
             limit_s=2400, less=less("all but a sample")),
        Step("aarch64", "the C tests of fibers, the emulated device and the pool on an emulated AArch64",
             [*tool, ROOT / "tools/check_aarch64.py", "--seeds", "1", *one_in(n.emulated)], "all",
             needs=["aarch64-linux-gnu-gcc", "qemu-aarch64"], less=less(all_but_one_of(n.emulated))),
        Step("ops", "operators in ONNX Runtime and ONNX's node tests, with borders around every block of memory",
             **python(test_files("tests/ep", *OPERATOR_TESTS), "--borders", "--fusion=0",
                      *every("sample", n.operators)),
             modes="test gpu", limit_s=1800,
             less=less(f"{n.operators - 1} of {n.operators} cases")),
        Step("ops-islands", "the same as islands of single nodes",
             **python(test_files("tests/ep", *OPERATOR_TESTS), "--borders", "--fusion=2", f"--sample={n.cases_again}"),
             modes="test gpu", limit_s=1800,
             less=less(f"{n.cases_again - 1} of {n.cases_again} cases")),
        Step("random", f"{n.graphs} random graphs, some more with each pass left out, {n.hostile} hostile models, with "
             "borders, too",
             **python(test_files("tests/ep", *RANDOM_TESTS), "--borders", f"--graphs={n.graphs}",
                      f"--hostile={n.hostile}"), modes="test gpu", limit_s=1800,
             less=less(f"{WHOLE.graphs - n.graphs} of {WHOLE.graphs} graphs and "
                       f"{WHOLE.hostile - n.hostile} of {WHOLE.hostile} models")),
        Step("random-nodes", "random graphs and hostile models node by node",
             **python(test_files("tests/ep", *RANDOM_TESTS, but=("random_passes",)), "--borders", "--fusion=0",
                      f"--graphs={n.graphs_again}", f"--hostile={6 * n.graphs_again}"), modes="test gpu", limit_s=1800,
             less=less(f"{WHOLE.graphs_again - n.graphs_again} of {WHOLE.graphs_again} graphs")),
        Step("ep", "the provider in ONNX Runtime: options, threads, life times, graphs, streams, faults",
             **python(test_files("tests/ep", but=(*OPERATOR_TESTS, *RANDOM_TESTS)), *every("faults", n.faults),
                      *every("cases", n.cases), waits=True), modes="test gpu", limit_s=1800,
             less=less(f"{n.faults - 1} of {n.faults} calls that fail, {not_all_cases}")),
        Step("python", "the Python package: functions, errors, threads, ends of processes; adapters of what is there",
             **python(test_files("tests/python", but=("wheel", *PROVIDER_TESTS)), *every("cases", n.cases), waits=True),
             modes="test gpu", needs=[extension], limit_s=1200, less=less(not_all_cases)),
        # In processes of their own: the provider keeps the pool that the others want to open with their own options.
        Step("python-ort", "the Python package with ONNX Runtime: sessions, values, the command line, the monitor",
             **python(test_files("tests/python", *PROVIDER_TESTS), *every("cases", n.cases), waits=True),
             modes="test gpu", needs=[extension], limit_s=1200, less=less(not_all_cases)),
        Step("wheel", "the wheel: contents, what it links, README's example in a clean environment",
             pytest("tests/python/test_wheel.py"), "all", needs=[extension], limit_s=1200, cores=1),
        Step("blocks", "code blocks of the documents: those of a page in one process",
             pytest(*test_files("tests/docs"), gpu=False), needs=[extension], takes="-k", after="fetch"),
        Step("site", "the site of the documents, and pages that Millpond makes, in Chromium: two widths, light, dark",
             [*tool, ROOT / "tools/build_site.py", "--check", "--pages", build / "pages"], "all",
             needs=["chromium", extension], limit_s=900, cores=1),
        Step("install", "wheels of a release; what `make install` and `make deb` put where, programs built with it",
             pytest(*test_files("tests/install"), *([f"-k not {n.wheels}"] if n.wheels else []), gpu=False,
                    dist="loadfile", more=1), "all",
             limit_s=1800, takes="-k", less=less(f"the wheel for {n.wheels}") if n.wheels else ""),
        Step("models", "trained models", **python(test_files("tests/models", but=MODELS_APART)), modes="test gpu",
             limit_s=1800, after="fetch"),
        Step("models-name", "trained models on the provider by the name of ONNX Runtime's CUDA provider",
             **python(test_files("tests/models", but=MODELS_APART), "--name=CUDAExecutionProvider",
                      *part_of(n.named)), modes="all gpu", limit_s=1800, less=less(all_but_one_of(n.named))),
        Step("ops-name", "ONNX's node tests on the provider by that name",
             **python(test_files("tests/ep", "onnx_nodes"), "--name=CUDAExecutionProvider", "--sample=4"),
             modes="all gpu"),
        Step("ranks", "several processes: collective operators, models split by `millpond shard`",
             **python(test_files("tests/ranks"), shards=1), modes="all gpu", needs=[extension]),
        Step("passes", "trained models with each pass of the islands left out in turn",
             pytest("tests/models/test_passes.py", f"--shard=1/{n.passes}", gpu=False), "all", takes="-k",
             less=less(f"{n.passes - 1} of {n.passes} models and passes")),
        Step("fused", "fused kernels of trained models compiled by NVRTC for sm_75 to 120",
             pytest("tests/models/test_fused_texts.py"), "all", cores=1, takes="-k"),
        # Eager and adversarial mode run what is queued in the thread that queues it, or waits for it; threaded mode has
        # threads of its own. So the former are for one sanitizer and the latter for the other.
        Step("asan", "C tests under the address and undefined-behaviour sanitizers",
             sanitized("asan", "--modes", n.checked_modes, "--seeds", "1", *one_in(n.addressed)), "all", limit_s=1800,
             takes="", preset="asan",
             less=less(f"adversarial mode, {all_but_one_of(n.addressed)}, {not_compiled}")
             if n.checked_modes == "eager" else ""),
        Step("asan-ops", "operators in ONNX Runtime under the same, which sees what is read outside of a block",
             pytest(*test_files("tests/ep", *OPERATOR_TESTS, but=("large",)), "--borders", "-s", "--fusion=0",
                    f"--sample={n.addressed_cases}", gpu=False, before=addressed()), "all",
             limit_s=3600, takes="-k", preset="asan",
             less=less(f"{n.addressed_cases - 1} of {n.addressed_cases} cases")),
        Step("fuzz-options", "half a minute of any text as options, under the address sanitizer", fuzz("options"),
             "all", cores=1, preset="asan"),
        Step("fuzz-operations", "half a minute of any bytes as operations, under the address sanitizer",
             fuzz("operations"), "all", cores=1, preset="asan"),
        Step("tsan", "C tests under the thread sanitizer",
             sanitized(n.threads_preset, "--modes", "threaded", "--seeds", "1", *one_in(n.raced)), "all", limit_s=1800,
             needs=["clang"] if both else [], takes="", preset=n.threads_preset,
             less=less(f"{all_but_one_of(n.raced)}, gcc's build" if both else "")),
        Step("valgrind", "C tests of devices under valgrind, which sees what was never written",
             ["valgrind", "-q", "--error-exitcode=9", unit, "@eager", "--jobs", CORES, "--timeout", "300",
              *one_in(n.watched)], "all", ["valgrind"], limit_s=1800,
             less=less(all_but_one_of(n.watched))),
        # The order of work is not the compiler's.
        Step("clang", "C tests as clang compiles them, on a machine without a CUDA toolkit",
             sanitized(n.clang_preset, "--modes", "eager", *one_in(n.recompiled)), "all", ["clang"], takes="",
             preset=n.clang_preset,
             less=less(f"{all_but_one_of(n.recompiled)}, {not_compiled}, a build without a sanitizer" if both else "")),
        Step("genai", "onnxruntime-genai on the provider: models as its builder writes them, caches, sequences, graphs",
             [*tool, ROOT / "tools/test_genai.py", "--build", build, *(["--gpu"] if gpu else [])], "all gpu",
             takes="-k"),
        Step("genai-name", "the same by the other name" if gpu else
             "what genai's CUDA path does, on the provider by the name of ONNX Runtime's CUDA provider",
             [*tool, ROOT / "tools/test_genai.py", "--build", build,
              *(["--gpu", "--name=CudaPluginExecutionProvider"] if gpu else
                ["--name=CUDAExecutionProvider", "-k", "test_device_caches"])], "all gpu"),
        Step("serving", "Ray Serve, Dask, KServe and Triton's Python backend on the pool",
             [*tool, ROOT / "tools/test_serving.py", "--build", build], "all", takes="-k"),
        Step("versions", "the provider in other versions of ONNX Runtime",
             [*tool, ROOT / "tools/test_versions.py", "--build", build, *n.versions], "all",
             limit_s=2400, less=less("two of three versions, nine of ten cases")),
        Step("memcheck", "C tests on the GPU under compute-sanitizer", [*sanitizer, unit, "cuda", "--no-fork"],
             "gpu", ["compute-sanitizer"], wheels=True, cores=1, shards=checked,
             alone=[*sanitizer, unit, "cuda", "--no-fork", "--alone"]),
        Step("memcheck-ops", "operators on the GPU under compute-sanitizer",
             **python(["tests/ep/test_op_cases.py"], before=sanitizer, shards=checked_ops), modes="gpu",
             needs=["compute-sanitizer"], limit_s=1500),
    ]
    # On a GPU, each process takes memory, too.
    return steps if gpu else [dataclasses.replace(step, shares=step.cores > 1) for step in steps]


def builds_of(steps, build, instances=1):
    """The steps, and before the first that needs a build of another preset one that makes it. Of each kernel one in
    `instances` is compiled in it; it takes the others from `build`."""
    kernels = build / "libmillpond_host_kernels.a"
    taken = f"-DMILLPOND_HOST_KERNELS={kernels}" if kernels.exists() else ""
    sampled = f"{taken} -DMILLPOND_HOST_KERNELS_SAMPLE={instances}" if taken and instances > 1 else ""
    # What two streams do to one block of memory is found by adversarial mode, so kernels are not compiled once more for
    # the thread sanitizer.
    flags = {"asan": sampled, "tsan": taken, "clang": sampled, "clang-tsan": sampled}
    made = set()
    for step in steps:
        if step.preset and step.preset not in made and missing_of(step) is None:
            made.add(step.preset)
            command = ["make", "--no-print-directory", "-C", ROOT, "build", f"PRESET={step.preset}",
                       f"CMAKE_FLAGS={flags.get(step.preset, '')}"]
            yield Step(f"build-{step.preset}", f"build of preset {step.preset}", command, limit_s=1800, prepares=True,
                       shares=True)
        yield step


def is_in(step, mode):
    return mode in step.modes.split() or (mode == "all" and "test" in step.modes.split())


def left_out(chosen, whole):
    """What of the whole list of steps the chosen ones do not do, in words."""
    names = {step.name for step in chosen}
    yield from (step.name for step in whole if step.name not in names)
    yield from (f"{step.less} of {step.name}" for step in chosen if step.less)


def rest_of(build, whole=WHOLE):
    """The steps of `make test-all` which `make test` does not run as they are; those of one core come first, so that
    others run beside the last of them, or last where a build comes before them."""
    done = {step.name: step.command for step in steps_of(build, "test") if is_in(step, "test")}
    steps = steps_of(build, "rest", whole)
    left = [step for step in steps if is_in(step, "all") and done.get(step.name) != step.command]
    return sorted(left, key=lambda step: 1 if step.cores > 1 else 2 if step.preset else 0)


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
    env.setdefault("MILLPOND_DEVICE", "cuda" if gpu else "host")
    env.setdefault("OPENBLAS_NUM_THREADS", "1")  # else each process that imports NumPy has threads that spin
    env.setdefault("MILLPOND_STAND_IN", "off")  # tests count runs until graphs are captured
    for name in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL"):  # of the make that started us, not for those that steps start
        env.pop(name, None)
    return env


def run(step, command, log, env):
    """Runs a program of the step with its output in `log`; returns its exit status, or None when its time was up."""
    if step.wheels:
        folders = [*wheel_libraries(), *env.get("LD_LIBRARY_PATH", "").split(":")]
        env = dict(env, LD_LIBRARY_PATH=":".join(folder for folder in folders if folder))
    with open(log, "w", encoding="utf-8") as out:
        try:
            process = subprocess.Popen([str(word) for word in command], cwd=ROOT, env=env, stdout=out,
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


def counts_of(status, lines, may_be_empty=False):
    """(passed, failed, skipped) of a program."""
    if status == SKIP_STATUS:
        return 0, 0, 1
    if status == NO_TESTS_STATUS and may_be_empty:
        return 0, 0, 0
    for line in reversed(lines[-40:]):
        if line.startswith("====="):  # compute-sanitizer counts errors of its own; its status tells of them
            continue
        found = collections.Counter()
        for number, word in COUNT.findall(line):
            found[word.rstrip("s")] += int(number)
        if found:
            passed, failed, skipped = found["passed"], found["failed"] + found["error"], found["skipped"]
            if failed == 0 and (status != 0 or (passed + skipped == 0 and not may_be_empty)):
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


def shown(line):
    return f"      {line[:240]}"


def failures_in(lines, log):
    """What is shown of a program that failed: marked lines if there are any, or else the end."""
    marked = []
    in_report = False  # of our runner: comment lines that follow "not ok"
    for line in lines:
        in_report = line.startswith("not ok ") or (in_report and line.startswith("# "))
        if in_report or re.match(r"FAILED |ERROR |E  ", line):
            marked.append(line)
    told = marked or lines[-40:]
    yield from map(shown, told[:SHOWN_LINES_MAX])
    if len(told) > SHOWN_LINES_MAX:
        yield shown(f"... and {len(told) - SHOWN_LINES_MAX} lines more")
    yield shown(f"whole output: {os.path.relpath(log, ROOT)}")


# ---- steps side by side ----


@dataclass
class Part:
    """A program of a step, and what came of it."""

    command: list
    log: Path
    status: int | None = None
    seconds: float = 0


def parts_of(step, logs):
    """The programs of a step."""
    if not step.shards:
        return [Part(step.command, logs / f"{step.name}.log")]
    names = [step.name] if step.shards == 1 else [f"{step.name}.{i + 1}" for i in range(step.shards)]
    return [Part([*step.command, "--shard", f"{i + 1}/{step.shards}"], logs / f"{name}.log")
            for i, name in enumerate(names)]


def with_alone_last(steps):
    """The steps, and behind them all a step for the tests of each that run alone: no other runs beside it."""
    yield from steps
    for step in steps:
        if step.alone:
            yield dataclasses.replace(step, name=f"{step.name}-alone", command=step.alone, shards=0, alone=[],
                                      cores=CORES, shares=False, what="those that fill the memory, or look at it",
                                      less="", may_be_empty=True)


def execute(step, part, env):
    start = time.monotonic()
    part.status = run(step, part.command, part.log, env)
    part.seconds = time.monotonic() - start


def run_all(steps, logs, env, cores=CORES):
    """Gives the counts of each step, in their order; programs start in that order, too, as soon as there are cores."""
    plan = [(step, [] if missing_of(step) is not None else parts_of(step, logs)) for step in steps]
    waiting = collections.deque((step, part) for step, parts in plan for part in parts)
    busy = {}  # future of a program: its step
    ended = set()
    with concurrent.futures.ThreadPoolExecutor(max(len(waiting), 1)) as threads:
        try:
            for step, parts in plan:
                print(f"{step.name:<15} {step.what}", flush=True)
                while not ended.issuperset(map(id, parts)):
                    start_waiting(waiting, busy, cores, threads, env)
                    done, _ = concurrent.futures.wait(busy, return_when=concurrent.futures.FIRST_COMPLETED)
                    for future in done:
                        ended.add(id(future.result()))
                        del busy[future]
                yield report(step, parts)
        except BaseException:  # an interrupt, or a reader who has had enough
            waiting.clear()
            threads.shutdown(wait=False, cancel_futures=True)
            for process in list(running):
                stop(process)
            raise


def start_waiting(waiting, busy, cores, threads, env):
    """Starts the programs that are next for which there are cores."""

    def work(step, part):
        execute(step, part, env)
        return part

    while waiting and has_room(waiting[0][0], busy.values(), cores):
        step, part = waiting.popleft()
        busy[threads.submit(work, step, part)] = step


def has_room(step, running_steps, cores):
    """Whether a step may start beside those that run."""
    free = cores - sum(min(other.cores, cores) for other in running_steps)
    if any(other.name == step.after for other in running_steps):
        return False
    return free == cores or step.cores <= free or (step.shares and free > 0)


def merged(lines):
    """What is shown of summaries: several programs may each have counted the same thing."""
    tallies = collections.Counter()
    for line in lines:
        tally = TALLY.match(line)
        if tally:
            tallies[tally.group(2)] += int(tally.group(1))
        elif line.startswith("summary: "):
            yield line.removeprefix("summary: ")
    yield from (f"{count} {what}" for what, count in tallies.items())


def report_part(step, part, several):
    """Prints what went wrong; returns the program's counts and lines."""
    lines = part.log.read_text(encoding="utf-8", errors="replace").splitlines()
    counts = (0, 0, 0) if step.prepares and part.status == 0 else counts_of(part.status, lines, several)
    said = []
    if part.status is None:
        said.append(shown(f"no end after {step.limit_s} s: stopped"))
    if part.status == SKIP_STATUS and lines:
        print(shown(f"skipped: {lines[-1]}"))
    if counts[1] > 0:
        said.extend(failures_in(lines, part.log))
    for line in said:
        print(line)
    if said:
        failures.extend([step.name, *said[:AGAIN_LINES_MAX]])
    return counts, lines


def report(step, parts):
    """Prints what came of a step; returns its counts. No parts: what it needs is missing."""
    if not parts:
        missing = missing_of(step)
        name = os.path.relpath(missing, ROOT) if "/" in str(missing) else missing
        fails = bool(os.environ.get("CI"))
        print(shown(f"{'failed' if fails else 'skipped'}: {name} is not there"), flush=True)
        failures.extend([step.name, shown(f"{name} is not there")] if fails else [])
        return 0, int(fails), int(not fails)
    reports = [report_part(step, part, step.may_be_empty or len(parts) > 1) for part in parts]
    passed, failed, skipped = (sum(column) for column in zip(*(counts for counts, _ in reports), strict=True))
    if passed + failed + skipped == 0 and not (step.prepares or step.may_be_empty):
        print("      there was no test")
        failed = 1
    lines = [line for _, some in reports for line in some]
    for line in merged(lines):
        print("      " + line)
    show_skips(lines)
    seconds = max(part.seconds for part in parts)
    print(f"      {passed} passed, {failed} failed, {skipped} skipped in {seconds:.1f} s", flush=True)
    return passed, failed, skipped


def run_step(step, log, env):
    """Runs one step and prints what came of it; returns its counts."""
    return next(run_all([dataclasses.replace(step, name=log.stem)], log.parent, env))


# ---- the command line ----


def chosen_of(steps, only, excluded):
    """The steps that --only and --except leave; raises ValueError for names that are none."""
    wanted = dict((*word.split(":", 1), "")[:2] for word in only.split(",") if word)
    unwanted = {word for word in excluded.split(",") if word}
    names = {step.name for step in steps}
    for name in sorted({*wanted, *unwanted} - names):
        raise ValueError(f"no step {name} here; --list names them")
    steps = [step for step in steps if step.name not in unwanted and (not wanted or step.name in wanted)]
    return [narrowed(step, wanted[step.name]) if wanted.get(step.name) else step for step in steps]


def narrowed(step, part):
    """The step with those of its tests alone that have this in their name."""
    if step.takes is None:
        raise ValueError(f"{step.name} takes no part of a test's name: --only {step.name}")
    words = [*filter(None, [step.takes]), part]
    return dataclasses.replace(step, command=[*step.command, *words], less=f"all but {part}",
                               alone=[*step.alone, *words] if step.alone else [])


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", type=Path, required=True, help="build folder, such as build/dev")
    modes = parser.add_mutually_exclusive_group()
    modes.add_argument("--quick", dest="mode", action="store_const", const="quick", default="test",
                       help="only the steps that take seconds")
    modes.add_argument("--all", dest="mode", action="store_const", const="all", help="all that needs no GPU, in full")
    modes.add_argument("--gpu", dest="mode", action="store_const", const="gpu",
                       help="the steps for a machine with a GPU, on that GPU")
    parser.add_argument("--only", default="", metavar="NAME[:PART],...",
                        help="these steps; of one with a part only the tests that have it in their name")
    parser.add_argument("--except", default="", dest="excluded", metavar="NAME,...", help="all steps but these")
    parser.add_argument("--rest", action="store_true", help="with --all: what `make test` has not run")
    parser.add_argument("--part", action="store_true", help="with --all: a part of what has no end, or takes long")
    parser.add_argument("--list", action="store_true", help="name the steps of every mode and stop")
    args = parser.parse_args(arguments)
    if args.mode != "all" and (args.rest or args.part):
        parser.error("--rest and --part go with --all")
    return args, parser


def show_list(build):
    """Each step with its modes and what it needs; as the mode is named that has most of it."""
    seen = {}
    for mode in ("all", "gpu"):
        for step in steps_of(build, mode):
            if is_in(step, mode):
                seen.setdefault(step.name, step)
    for step in seen.values():
        modes = " ".join(mode for mode in MODES if is_in(step, mode))
        needs = ", ".join([*(Path(need).name for need in step.needs), *filter(None, [step.preset])])
        print(f"{step.name:<15} {modes:<18} {step.what}{f' (needs {needs})' if needs else ''}")


def main(arguments=None):
    args, parser = parse(arguments)
    build = args.build.resolve()
    if args.list:
        show_list(build)
        return 0
    most = "gpu" if args.mode == "gpu" else "all"
    whole = [step for step in steps_of(build, most) if is_in(step, most)]
    amounts = PART if args.part else WHOLE
    steps = (rest_of(build, amounts) if args.rest else
             [step for step in steps_of(build, args.mode, amounts) if is_in(step, args.mode)])
    try:
        steps = chosen_of(steps, args.only, args.excluded)
    except ValueError as error:
        parser.error(str(error))
    logs = build / "test-logs"
    logs.mkdir(parents=True, exist_ok=True)
    started, totals = time.monotonic(), [0, 0, 0]
    built = list(builds_of(with_alone_last(steps), build, amounts.instances))
    for counts in run_all(built, logs, environment(build, args.mode == "gpu")):
        totals = [a + b for a, b in zip(totals, counts, strict=True)]
    if failures:
        print("\n".join(["failed:", *failures]))
    print(f"{time.monotonic() - started:.0f} s")
    missed = ", ".join(left_out(steps, whole))
    if missed:
        print(f"left out: {missed}; make test-{most} runs them")
    print(f"{totals[0]} passed, {totals[1]} failed, {totals[2]} skipped", flush=True)
    return 1 if totals[1] > 0 or totals[0] == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
