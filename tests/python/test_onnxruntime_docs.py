# SPDX-License-Identifier: Apache-2.0
"""docs/onnxruntime.md and docs/command_line.md: the examples are those of examples/, and run; the lines of Python do
what they say; the commands, options and exit codes are those there are."""

import os
import re
import subprocess
import sys
from pathlib import Path

import millpond
import numpy as np
import onnx_kit
import pytest

ROOT = Path(__file__).resolve().parents[2]
if not (ROOT / "docs/onnxruntime.md").exists():
    pytest.skip("the documents are not here", allow_module_level=True)
PAGE = (ROOT / "docs/onnxruntime.md").read_text(encoding="utf-8")
COMMANDS = (ROOT / "docs/command_line.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
EXAMPLES = [ROOT / "examples/onnxruntime_session.py", ROOT / "examples/onnxruntime_arrays.py"]


def code_of(path):
    return path.read_text(encoding="utf-8").partition('"""\n\n')[2]


def run(*command, **more):
    folders = [Path(millpond.__file__).parents[1], ROOT / "tests/python/shim", os.environ.get("PYTHONPATH", "")]
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(str(folder) for folder in folders if folder))
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, timeout=300,
                          env=env, **more)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_page_shows_the_example(path):
    assert code_of(path) in BLOCKS


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_example_runs(path):
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    pytest.importorskip("onnx", reason="the package onnx is not installed")
    out = run(sys.executable, path)
    if path.stem.endswith("session") and millpond.Pool().is_emulated:
        assert out == re.search(r"```text\n(on Millpond.*?)```", PAGE, re.DOTALL).group(1)
    elif path.stem.endswith("arrays"):
        assert re.fullmatch(r"no GPU here: .*\n|.*'onnxruntime': \d+.*\n", out)


def test_the_other_lines_do_what_they_say(tmp_path):
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    pieces = [block for block in BLOCKS if block not in map(code_of, EXAMPLES)]
    assert len(pieces) == 8 and "register_execution_provider_library" in pieces[-1]
    assert "CUDAExecutionProvider" in pieces[-2]
    nodes = [onnx_kit.Node("Add", ["x", "one"], ["h"], "add"), onnx_kit.Node("Abs", ["h"], ["y"], "abs")]
    one = {"one": np.ones(1, np.float32)}
    (tmp_path / "model.onnx").write_bytes(onnx_kit.model(nodes, {"x": [4]}, {"y": [4]}, one))
    (tmp_path / "batched.onnx").write_bytes(onnx_kit.model(nodes, {"x": ["rows", 4]}, {"y": ["rows", 4]}, one))
    start = """
import numpy as np, onnxruntime as ort, millpond, millpond.onnxruntime as mort
first = mort.session("model.onnx")
x, y = (mort.run(first, {"x": np.zeros(4, np.float32)})["y"] for _ in range(2))
stream = 1
"""
    end = "\nassert y.numpy().tolist() == [2] * 4 and z.shape == (10, 4)\n"
    run(sys.executable, "-c", start + "\n".join(pieces[:-2]) + end, cwd=tmp_path)
    uses_it = "assert session.get_providers()[0] == 'CUDAExecutionProvider'\n"
    run(sys.executable, "-c", pieces[-2] + uses_it, cwd=tmp_path)
    run(sys.executable, "-c", "import onnxruntime as ort, millpond\n" + pieces[-1] + "assert session\n", cwd=tmp_path)


def test_the_arguments_of_session_are_those_there_are():
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    import inspect

    import millpond.onnxruntime as mort

    table = PAGE.partition("## Sessions")[2].partition("What comes back")[0]
    named = re.findall(r"^\| `(\w+)[`=]", table, re.MULTILINE)
    assert named == list(inspect.signature(mort.session).parameters)[2:]


# ---- docs/command_line.md ----


def context_of(words):
    click = pytest.importorskip("click", reason="click is not installed")
    pytest.importorskip("rich", reason="rich is not installed")
    from millpond.cli import _app

    command = _app.group.get_command(click.Context(_app.group), words[0])
    return command.make_context(words[0], list(words[1:]))


def test_the_commands_are_those_there_are():
    pytest.importorskip("click", reason="click is not installed")
    from millpond.cli import _app

    assert re.findall(r"^\| \[`(\w+)`\]", COMMANDS, re.MULTILINE) == list(_app.COMMANDS)
    assert re.findall(r"^## (\w+)$", COMMANDS, re.MULTILINE) == list(_app.COMMANDS)


def test_command_lines_can_be_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = re.findall(r"^\$ .*?millpond (.*?)(?: &)?$", COMMANDS, re.MULTILINE)
    lines += re.findall(r"millpond (completion \w+)", COMMANDS)
    assert len(lines) == 17
    for line in lines:
        words = line.split()
        for word in words:
            if word.endswith(".onnx"):
                (tmp_path / word).write_bytes(onnx_kit.add_one())
            if word == "old.json":
                (tmp_path / word).write_text("{}", encoding="utf-8")
        context_of(words)


def test_options_are_those_there_are():
    import click
    from millpond.cli import _app

    for name in _app.COMMANDS:
        text = COMMANDS.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        named = set(re.findall(r"`(--[a-z-]+)", text)) - {"--json"}
        there = {option for parameter in _app.group.get_command(click.Context(_app.group), name).params
                 for option in (*parameter.opts, *parameter.secondary_opts)}
        assert named <= there, name
        if name in ("memory", "bench", "parity", "explain"):
            shared = {"--device", "--option", "--threads", "--input", "--shape", "--dim", "--fill", "--seed", "--mean",
                      "--std", "--warmup", "--json", "pid", "model", "models"}
            assert there - shared <= named, name


def test_exit_codes_are_those_there_are():
    from millpond import cli

    codes = [int(code) for code in re.findall(r"^\| (\d) \|", COMMANDS, re.MULTILINE)]
    assert codes == [cli.OK, cli.FAILED, cli.USAGE, cli.NOTHING]
