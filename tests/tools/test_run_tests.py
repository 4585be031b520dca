# SPDX-License-Identifier: Apache-2.0
"""tools/run_tests.py: every test is in one step, parts cover all, tests that run alone do, what is left out is said."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import run_tests
from run_tests import Step, chosen_of, is_in, left_out, steps_of

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build/none"
# Steps with files of others, in another way.
AGAIN = ("asan-ops", "memcheck-ops", "models-name", "ops-islands", "ops-name", "random-nodes")
# On a GPU they would be the same, or compile for long.
ONLY_IN_ALL = {"tests/python/test_wheel.py", "tests/models/test_fused_texts.py", "tests/models/test_passes.py"}
LONG = ("tests/install/", "tests/lanes/", "tests/ranks/")  # steps of `make test-all`
FOLDERS = ("bench", "docs", "ep", "install", "lanes", "models", "pool", "python", "ranks", "tools")
# Folders that have an environment of their own.
BY_TOOLS = {"genai": "tools/test_genai.py", "serving": "tools/test_serving.py"}
EMULATED_ONLY = {"serving"}  # of these
BESIDE = 4


def steps(mode):
    return [step for step in steps_of(BUILD, mode) if is_in(step, mode)]


def files_of(step):
    return [Path(word).relative_to(ROOT).as_posix() for word in map(str, step.command)
            if Path(word).name.startswith("test_") and word.startswith(f"{ROOT}/tests")]


# ---- the list of steps ----


@pytest.mark.parametrize("mode", ["test", "all"])
def test_each_file_is_in_one_step(mode):
    found = sorted(file for step in steps(mode) if step.name not in AGAIN for file in files_of(step))
    of_tools = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "tests/tools").glob("test_*.py"))
    there = [path.relative_to(ROOT).as_posix() for folder in FOLDERS
             for path in (ROOT / "tests" / folder).glob("test_*.py")]
    assert [str(ROOT / "tests/tools")] in [step.command[-1:] for step in steps(mode)]
    less = set() if mode == "all" else {file for file in there if file in ONLY_IN_ALL or file.startswith(LONG)}
    assert sorted([*found, *of_tools]) == sorted(set(there) - less)


def test_on_a_gpu_each_file_that_may_need_one_is_in_one_step():
    found = sorted(file for step in steps("gpu") if step.name not in AGAIN for file in files_of(step))
    there = [path.relative_to(ROOT).as_posix() for folder in ("ep", "models", "python", "ranks")
             for path in (ROOT / "tests" / folder).glob("test_*.py")]
    assert found == sorted(set(there) - ONLY_IN_ALL)


def test_no_folder_of_tests_is_forgotten():
    with_tests = {path.parent.name for path in (ROOT / "tests").rglob("test_*.py")}
    assert with_tests == {*FOLDERS, *BY_TOOLS}


@pytest.mark.parametrize("folder", BY_TOOLS)
def test_a_tool_runs_the_folder(folder):
    tool = ROOT / BY_TOOLS[folder]
    assert f'"tests/{folder}"' in tool.read_text(encoding="utf-8")
    for mode in ("all",) if folder in EMULATED_ONLY else ("all", "gpu"):
        assert tool in [word for step in steps(mode) for word in step.command]


def test_what_is_in_test_is_in_all():
    assert {step.name for step in steps("test")} <= {step.name for step in steps("all")}
    assert {step.name for step in steps("quick")} <= {step.name for step in steps("test")}


@pytest.mark.parametrize("mode", ["quick", "test"])
def test_what_is_left_out_is_said(mode):
    chosen, whole = steps(mode), steps("all")
    said = list(left_out(chosen, whole))
    same = {step.name: step.command for step in chosen}
    for step in whole:
        named = [words for words in said if words == step.name or words.endswith(f" of {step.name}")]
        assert len(named) == int(same.get(step.name) != step.command), (step.name, named)
    assert list(left_out(whole, whole)) == []


def test_the_rest_is_what_test_does_not_run_as_it_is():
    done = {step.name: step.command for step in steps("test")}
    rest = {step.name: step.command for step in run_tests.rest_of(BUILD)}
    for step in steps("all"):
        assert (done.get(step.name) == step.command) != (step.name in rest), step.name
        assert step.name in ("unit", *done) or rest[step.name] == step.command, step.name


def test_the_rest_has_the_seeds_that_test_has_not():
    def seeds(command):
        words = [str(word) for word in command]
        first = int(words[words.index("--seed") + 1]) if "--seed" in words else 1
        return list(range(first, first + int(words[words.index("--seeds") + 1])))

    commands = {name: seeds(step.command) for name, found in (("test", steps("test")), ("all", steps("all")),
                                                              ("rest", run_tests.rest_of(BUILD)))
                for step in found if step.name == "unit"}
    assert commands["test"] + commands["rest"] == commands["all"]


def test_only_and_except():
    names = [step.name for step in chosen_of(steps("all"), "ops,unit", "")]
    assert names == ["unit", "ops"]
    assert "unit" not in [step.name for step in chosen_of(steps("all"), "", "unit,ops")]
    assert [step.name for step in chosen_of(steps("gpu"), "ops,models", "models")] == ["ops"]
    for only, excluded in (("nonsense", ""), ("", "nonsense"), ("layers:x", "")):
        with pytest.raises(ValueError, match=r"nonsense|layers"):
            chosen_of(steps("test"), only, excluded)


def test_a_part_of_the_names():
    unit, ops = chosen_of(steps("test"), "unit:cuda_pool,ops:Softmax", "")
    assert unit.command[-1] == "cuda_pool" and ops.command[-2:] == ["-k", "Softmax"]
    assert list(left_out([unit, ops], [unit, ops])) == ["all but cuda_pool of unit", "all but Softmax of ops"]
    on_gpu = chosen_of(steps("gpu"), "ops:MatMul", "")[0]
    assert on_gpu.alone[-2:] == ["-k", "MatMul"]


def test_a_build_comes_once_and_before_what_needs_it():
    names = [step.name for step in run_tests.builds_of(chosen_of(steps("all"), "asan,fuzz-options,tsan", ""), BUILD)]
    assert names == ["build-asan", "asan", "fuzz-options", "build-tsan", "tsan"]


def test_a_build_takes_kernels_from_the_one_before(tmp_path):
    kernels = tmp_path / "libmillpond_host_kernels.a"
    kernels.touch()
    chosen = chosen_of(steps("all"), "asan,tsan", "")
    flags = {step.name: step.command[-1] for step in run_tests.builds_of(chosen, tmp_path, instances=4)}
    assert flags["build-asan"] == f"CMAKE_FLAGS=-DMILLPOND_HOST_KERNELS={kernels} -DMILLPOND_HOST_KERNELS_SAMPLE=4"
    assert flags["build-tsan"] == f"CMAKE_FLAGS=-DMILLPOND_HOST_KERNELS={kernels}"
    flags = {step.name: step.command[-1] for step in run_tests.builds_of(chosen, tmp_path)}
    assert flags["build-asan"] == "CMAKE_FLAGS=", "in full it compiles all of them"


def test_the_command_line(capsys):
    with pytest.raises(SystemExit):
        run_tests.main(["--build", str(BUILD), "--rest"])
    with pytest.raises(SystemExit):
        run_tests.main(["--build", str(BUILD), "--only", "nonsense"])
    assert "no step nonsense" in capsys.readouterr().err
    assert run_tests.main(["--build", str(BUILD), "--list"]) == 0
    listed = capsys.readouterr().out
    for step in [*steps("all"), *steps("gpu")]:
        assert re.search(rf"^{step.name} +.*{'gpu' if is_in(step, 'gpu') else 'all'}", listed, re.M), step.name
    assert "needs compute-sanitizer" in listed


# ---- parts ----


def test_parts_of_pytest_cover_each_test_once(tmp_path):
    (tmp_path / "test_some.py").write_text("""
import pytest
@pytest.mark.parametrize("n", range(7))
def test_a(n): pass
@pytest.mark.alone
def test_alone(): pass
""")
    (tmp_path / "test_more.py").write_text("def test_b(): pass\n")

    def collected(*options):
        command = [sys.executable, "-m", "pytest", "-q", "--co", "-p", "conftest", "-p", "no:cacheprovider",
                   f"--rootdir={tmp_path}", *options, str(tmp_path)]
        env = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=env, cwd=tmp_path)
        return [line for line in done.stdout.splitlines() if "::" in line]

    everything = collected()
    parts = [collected("--shard", f"{i}/3") for i in (1, 2, 3)]
    assert len(everything) == 9 and all(len(part) in (2, 3) for part in parts)
    assert sorted([*sum(parts, []), *collected("--alone")]) == sorted(everything)
    assert collected("--alone") == ["test_some.py::test_alone"]
    some, less = collected("--cases", "2"), collected("--cases", "9")
    assert set(less) < set(some) < set(everything)
    assert sorted(name.partition("::test_")[2] for name in less) == ["a[0]", "a[2]", "alone", "b"]


def test_files_with_marks_have_a_step_for_them():
    marked = {path.relative_to(ROOT).as_posix() for folder in ("ep", "models", "python", "ranks")
              for path in (ROOT / "tests" / folder).glob("test_*.py") if run_tests.has_alone(path)}
    alone = {Path(word).relative_to(ROOT).as_posix() for step in steps("gpu") for word in map(str, step.alone)
             if word.startswith(f"{ROOT}/tests/")}
    assert marked and marked == alone


PROGRAM = """
import pathlib, sys, time
folder, name = pathlib.Path(sys.argv[1]), "-".join(word.replace("/", "of") for word in sys.argv[2:])
(folder / f"{name}.runs").touch()
alone = "alone" in name
limit = time.monotonic() + 60
while not alone and len(list(folder.glob("*--shard*.r*"))) < 4 and time.monotonic() < limit:
    time.sleep(0.01)  # until the others have begun, too
if alone:
    time.sleep(0.3)  # long enough for one that should not to be seen
    assert [path.stem for path in folder.glob("*.runs")] == [name], "another one runs"
else:
    assert time.monotonic() < limit, "the others do not run"
(folder / f"{name}.runs").rename(folder / f"{name}.ran")
print("2 passed, 0 failed, 1 skipped")
"""


def fake(name, folder, **more):
    command = [sys.executable, "-c", PROGRAM, str(folder), name]
    return Step(name, "", command, cores=1, shards=2, alone=[*command, "alone"], **more)


def test_steps_run_side_by_side_and_some_tests_alone(tmp_path, capsys):
    spans, logs = tmp_path / "spans", tmp_path / "logs"
    spans.mkdir()
    logs.mkdir()
    planned = list(run_tests.with_alone_last([fake("a", spans), fake("b", spans)]))
    assert [step.name for step in planned] == ["a", "b", "a-alone", "b-alone"]
    planned = [run_tests.dataclasses.replace(step, cores=min(step.cores, BESIDE) if step.shards else BESIDE)
               for step in planned]
    counts = list(run_tests.run_all(planned, logs, dict(os.environ), cores=BESIDE))
    assert counts == [(4, 0, 2), (4, 0, 2), (2, 0, 1), (2, 0, 1)], capsys.readouterr().out
    assert len(list(spans.glob("*.ran"))) == 6


def test_which_steps_start_beside_others():
    single, double, waiting = (Step(name, "", [], cores=cores) for name, cores in (("a", 1), ("b", 2), ("c", 0)))
    elastic = run_tests.dataclasses.replace(double, shares=True)
    for running, step, starts in (
            ([], double, True), ([single], double, False), ([single], elastic, True), ([single], single, True),
            ([double], single, False), ([double], elastic, False), ([single, single], elastic, False),
            ([single, elastic], single, False), ([waiting], double, True), ([waiting, single], single, True),
            ([double], waiting, True)):
        assert run_tests.has_room(step, running, cores=2) is starts, (running, step)
    later = run_tests.dataclasses.replace(single, after="c")
    assert not run_tests.has_room(later, [waiting], cores=2) and run_tests.has_room(later, [single], cores=2)


def one(tmp_path, code, **more):
    """The counts of a step that is a Python program."""
    return next(run_tests.run_all([Step("x", "", [sys.executable, "-c", code], cores=1, **more)], tmp_path,
                                  dict(os.environ)))


def test_parts_without_tests(tmp_path):
    assert one(tmp_path, "raise SystemExit(5)", shards=2) == (0, 1, 0)  # none has any
    some = "import sys; print('3 passed') if sys.argv[-1] == '1/2' else sys.exit(5)"
    assert one(tmp_path, some, shards=2) == (3, 0, 0)
    assert one(tmp_path, "raise SystemExit(5)", may_be_empty=True) == (0, 0, 0)
    assert one(tmp_path, "raise SystemExit(5)") == (0, 1, 0)
    dies = "import sys; print('3 passed'); sys.exit(sys.argv[-1] == '1/2')"
    assert one(tmp_path, dies, shards=2) == (6, 1, 0)


def test_what_programs_counted_is_added_up(tmp_path, capsys):
    one(tmp_path, "print('summary: 4 apples\\nsummary: pears: 1; 2\\n1 passed')", shards=2)
    shown = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert "8 apples" in shown and shown.count("pears: 1; 2") == 2


def test_a_step_that_takes_too_long_is_stopped(tmp_path, capsys):
    assert one(tmp_path, "import time; time.sleep(600)", limit_s=1) == (0, 1, 0)
    assert "no end after 1 s" in capsys.readouterr().out


def test_what_failed_is_kept_for_the_end(tmp_path, monkeypatch):
    monkeypatch.setattr(run_tests, "failures", [])
    one(tmp_path, "print('1 passed')")
    assert not run_tests.failures
    one(tmp_path, "print('noise\\nFAILED test_x - why\\n1 failed'); raise SystemExit(1)")
    assert run_tests.failures[1].strip() == "FAILED test_x - why"
