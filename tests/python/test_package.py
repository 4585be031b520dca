# SPDX-License-Identifier: Apache-2.0
"""The package as a whole: its names, its errors, and that the hints of the extension tell the truth."""

import ast
import inspect
import os
import pickle
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import millpond
import pytest
from core_kit import run_python

HEADER = Path(millpond.get_include()) / "millpond/millpond.h"
HINTS = Path(millpond.__file__).with_name("_core.pyi")

def test_names():
    assert millpond.__version__ == millpond.version() == re.search(
        r'MILLPOND_VERSION "(.*)"', HEADER.read_text(encoding="utf-8")).group(1)
    assert millpond.get_ep_name() == "CudaPluginExecutionProvider"
    assert Path(millpond.get_library_path()).is_file()
    assert Path(millpond.get_library_path()).with_name("libmillpond.so.0").is_file()
    for name in millpond.__all__:
        assert getattr(millpond, name) is not None
    assert set(millpond.__all__) <= set(dir(millpond))
    with pytest.raises(AttributeError, match="no attribute 'pond'"):
        _ = millpond.pond


def test_import_brings_no_framework():
    run_python("""
        import sys, millpond
        millpond.Pool().alloc(100)
        heavy = {"numba", "cupy", "torch", "onnxruntime", "cuda", "numpy", "click", "rich"} & set(sys.modules)
        assert not heavy, heavy
    """)


def hinted_names(body):
    """{name: its ast} of the functions and classes of type hints that exist at run time."""
    return {node.name: node for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)
            and not any(getattr(mark, "id", "") == "type_check_only" for mark in node.decorator_list)}


def parameters_of(node):
    names = [item.arg for item in node.args.posonlyargs + node.args.args + node.args.kwonlyargs]
    return [name for name in names if name not in ("self", "cls")]


def test_the_type_hints_tell_the_truth():
    from millpond import _core

    tree = ast.parse(HINTS.read_text(encoding="utf-8"))
    names = hinted_names(tree.body)
    assert set(names) == {name for name in dir(_core) if not name.startswith("_")}
    for name, node in names.items():
        found = getattr(_core, name)
        if isinstance(node, ast.FunctionDef):
            assert list(inspect.signature(found).parameters) == parameters_of(node), name
            continue
        methods = hinted_names(node.body)
        public = {key for key in vars(found) if not key.startswith("_")}
        assert {key for key in methods if not key.startswith("_")} == public, name
        for key, method in methods.items():
            if not key.startswith("_") and callable(getattr(found, key)):
                given = [word for word in inspect.signature(getattr(found, key)).parameters if word != "self"]
                assert given == parameters_of(method), (name, key)
                assert getattr(found, key).__doc__, (name, key)


@pytest.mark.parametrize(("name", "kind"), [("OutOfMemoryError", MemoryError), ("InvalidArgumentError", ValueError),
                                            ("NotFoundError", LookupError), ("UnsupportedError", NotImplementedError)])
def test_errors(name, kind):
    error = getattr(millpond, name)
    assert issubclass(error, kind)
    assert issubclass(error, millpond.Error)
    assert issubclass(error, RuntimeError)
    assert error.__module__ == "millpond"
    assert error.__doc__
    again = pickle.loads(pickle.dumps(error("a sentence")))
    assert type(again) is error
    assert str(again) == "a sentence"


@pytest.mark.parametrize("fails", [False, True])
def test_what_builds_a_wheel_says_is_kept_back(fails):
    """But for a build that fails."""
    tools = Path(__file__).resolve().parents[2] / "tools"
    code = f"""
        import os, sys
        sys.path.insert(0, {str(tools)!r})
        import wheel
        print("before", flush=True)
        with wheel.quiet(False):
            os.write(1, b"of a compiler\\n")
            print("of the backend")
            if {fails}:
                raise SystemExit(3)
        print("after")
    """
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False,
                          env=env)
    if fails:
        assert done.returncode == 3 and done.stdout == "before\n"
        assert done.stderr == "of a compiler\nof the backend\n"
    else:
        assert (done.returncode, done.stdout, done.stderr) == (0, "before\nafter\n", "")


def test_the_example_for_cupy_without_a_gpu(tmp_path):
    """One sentence, and no traceback."""
    (tmp_path / "cupy").mkdir()
    (tmp_path / "cupy/__init__.py").write_text(
        "from types import SimpleNamespace as Any\ncuda = Any(is_available=lambda: False, memory=Any())\n")
    example = Path(__file__).resolve().parents[2] / "examples/cupy_pool.py"
    path = os.pathsep.join([str(tmp_path), str(Path(millpond.__file__).parents[1])])
    done = subprocess.run([sys.executable, str(example)], capture_output=True, text=True, check=False,
                          env=dict(os.environ, PYTHONPATH=path))
    assert done.returncode == 1 and done.stderr.startswith("this example needs a GPU") and done.stderr.count("\n") == 1
