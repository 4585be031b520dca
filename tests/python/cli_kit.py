# SPDX-License-Identifier: Apache-2.0
"""Runs the command line as a program, and makes the models that it is given."""

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import millpond
import onnx_kit
import pytest

pytest.importorskip("click", reason="click is not installed")
pytest.importorskip("rich", reason="rich is not installed")

LIMIT_S = 120
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def environment(**variables):
    env = {key: value for key, value in os.environ.items() if not key.startswith(("MILLPOND_", "NO_COLOR", "FORCE_"))}
    folders = [str(Path(millpond.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    env["PYTHONPATH"] = os.pathsep.join(filter(None, folders))
    env["MILLPOND_DEVICE"] = os.environ.get("MILLPOND_DEVICE", "host")
    return env | variables


def run(*arguments, status=0, **variables):
    """Runs `millpond ...`; gives what it printed to stdout and to stderr. It must end with `status`."""
    command = [sys.executable, "-X", "faulthandler", "-m", "millpond", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_S,
                          env=environment(**variables), stdin=subprocess.DEVNULL)
    assert done.returncode == status, f"ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr or "--debug" in arguments
    return done.stdout, done.stderr


def program(code, **variables):
    """Runs a Python program; it must end well."""
    env = environment(**variables)
    env["PYTHONPATH"] = os.pathsep.join([env["PYTHONPATH"], str(Path(__file__).parent)])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=LIMIT_S,
                          env=env)
    assert done.returncode == 0, f"ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done


def run_json(*arguments, status=0, **variables):
    """What `millpond ... --json` printed."""
    return json.loads(run(*arguments, "--json", status=status, **variables)[0])


def refused(*arguments, status=2, **variables):
    """The sentence that a command ends with; it prints nothing else."""
    out, said = run(*arguments, status=status, **variables)
    assert out == "" and said.startswith("millpond: ") and said.count("\n") == 1, (out, said)
    return said


def on_terminal(*arguments, **variables):
    """What the command prints where stdout and stderr are a terminal."""
    command = [sys.executable, "-m", "millpond", *map(str, arguments)]
    ours, theirs = pty.openpty()
    env = environment(**{"TERM": "xterm-256color", "COLUMNS": "120", **variables})
    process = subprocess.Popen(command, stdout=theirs, stderr=theirs, stdin=theirs, env=env)
    os.close(theirs)
    pieces = []
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        pieces.append(piece)
    os.close(ours)
    assert process.wait(LIMIT_S) == 0
    return b"".join(pieces).decode()


def write_models(folder):
    """Puts tiny models into a folder."""
    shape = onnx_kit.model([onnx_kit.Node("Neg", ["image"], ["out"], "neg")], {"image": ["n", 3, "h", "w"]},
                           {"out": ["n", 3, "h", "w"]})
    last = onnx_kit.model([onnx_kit.Node("Cast", ["image"], ["out"], "cast", attributes={"to": onnx_kit.FLOAT})],
                          {"image": (onnx_kit.UINT8, [1, 4, 6, 3])}, {"out": [1, 4, 6, 3]})
    shapes = onnx_kit.model([onnx_kit.Node("Shape", ["x"], ["s"], "shape"),
                             onnx_kit.Node("Add", ["s", "one"], ["t"], "size"),
                             onnx_kit.Node("Expand", ["one", "t"], ["z"], "expand")],
                            {"x": ["n"]}, {"z": (onnx_kit.INT64, ["m"])}, {"one": [1]})
    made = {"add": onnx_kit.add_one(), "mixed": onnx_kit.mixed(), "picture": shape, "pixels": last, "shapes": shapes,
            "broken": b"\x08\x09nonsense"}
    for name, data in made.items():
        (folder / f"{name}.onnx").write_bytes(data)
