# SPDX-License-Identifier: Apache-2.0
"""The code blocks of README.md and docs/, on the emulated device: those of a page in one process, in their order.

tools/document_blocks.py says how a block is marked; tools/check_docs.py sees to it that each is. Python that is not run
is compiled, and names of `millpond` in it are looked up.
"""

import ast
import functools
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import document_blocks
import fetch_models
import needs
import page_starts
import provider
import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = provider.library_path().resolve().parents[1]
PACKAGE = ROOT / "python/src/millpond"
BLOCKS = [block for page in document_blocks.pages() for block in document_blocks.blocks_of(page)]
SHELL = {"sh", "console"}


def groups(language):
    """(page, its blocks that are run together) of a language."""
    for page in document_blocks.pages():
        found = [block for block in BLOCKS if block.page == page and block.language == language and block.is_run]
        together = [block for block in found if block.mark == "run"]
        yield from ([(page, together)] if together else [])
        yield from ((page, [block]) for block in found if block.mark == "run: alone")


def cases(*languages):
    return [pytest.param(page, blocks, id=f"{Path(page).stem}-{blocks[0].line}")
            for language in languages for page, blocks in groups(language)]


@pytest.fixture
def folder(tmp_path):
    """A reader's folder: a model, and in it what a built tree has."""
    onnx = needs.package("onnx")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    ends = [helper.make_tensor_value_info(name, kind, [64, 1000]) for name in "xy"]
    nodes = [helper.make_node("Relu", ["x"], ["h"]), helper.make_node("Softmax", ["h"], ["y"])]
    graph = helper.make_graph(nodes, "example", ends[:1], ends[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9),
              tmp_path / "model.onnx")
    for name in ("include", "examples"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "build").mkdir()
    (tmp_path / "build/dev").symlink_to(BUILD)
    return tmp_path


def run(*command, cwd, **variables):
    """Runs a program as a reader with this build does; what it printed."""
    env = dict(os.environ, PYTHONPATH=str(BUILD / "python"), MILLPOND_DEVICE="host",
               MILLPOND_CACHE_DIR=str(cwd / "cache"), XDG_RUNTIME_DIR=str(cwd), **variables)
    done = subprocess.run([str(word) for word in command], cwd=cwd, env=env, capture_output=True, text=True,
                          check=False, timeout=300, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.parametrize(("page", "blocks"), cases("python"))
def test_python(page, blocks, folder):
    needs.package("onnxruntime")
    start = page_starts.PYTHON.get(page, "")
    run(sys.executable, "-c", start + "\n".join(block.code for block in blocks), cwd=folder)


@pytest.mark.parametrize(("page", "blocks"), cases("c"))
def test_c(page, blocks, folder):
    """Functions stand by themselves, all else in main()."""
    functions = [block.code for block in blocks if block.code.startswith("static ")]
    lines = [f"{{\n{block.code}\n}}\n" for block in blocks if not block.code.startswith("static ")]
    used = [re.match(r"static \w+ (\w+)\(", code)[1] for code in functions]
    program = [page_starts.C, *functions, page_starts.C_BEGIN, *lines, *(f"(void){name};\n" for name in used),
               page_starts.C_END]
    (folder / "page.c").write_text("".join(program), encoding="utf-8")
    run("cc", "-std=c11", "-Wall", "-Wextra", "-Werror", "page.c", "-Iinclude", "-Lbuild/dev/lib", "-lmillpond",
        f"-Wl,-rpath,{BUILD}/lib", "-o", "page", cwd=folder)
    run(folder / "page", cwd=folder)


def lines_of(block):
    """What a shell is given: of a console, the lines behind a prompt."""
    code = block.code if block.language == "sh" else "\n".join(re.findall(r"^\$ (.*)$", block.code, re.MULTILINE))
    return re.sub(r"&$", "& sleep 2", code, flags=re.MULTILINE)  # until it is there


@pytest.mark.parametrize(("page", "blocks"), cases("sh", "console"))
def test_shell(page, blocks, folder):
    lines = "\n".join(map(lines_of, blocks))
    for name in re.findall(r"[\w-]+\.onnx", lines):
        if not (folder / name).exists():
            model = fetch_models.default_dir() / "models" / name
            if not model.exists():
                needs.missing(f"{name} is not there; tools/fetch_models.py fetches it")
            (folder / name).symlink_to(model)
    (folder / "server.py").write_text(page_starts.SERVER, encoding="utf-8")
    programs = folder / "bin"
    programs.mkdir()
    for name, words in (("python", ""), ("millpond", "-m millpond")):
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n', encoding="utf-8")
        (programs / name).chmod(0o755)
    script = f"set -e\ntrap 'kill $(jobs -p) 2> /dev/null || true' EXIT\n{lines}\n"
    out = run("bash", "-c", script, cwd=folder, PATH=f"{programs}:{os.environ['PATH']}")
    assert len(out.splitlines()) >= len(blocks)


# ---- what is not run ----


@functools.cache
def names_in(module):
    """What a module of the package defines or imports, without importing it: its library may not be here."""
    path = PACKAGE / (f"{module}.py" if module else "__init__.py")
    if not path.exists():
        return set()
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
    return names


def absent(code):
    """Names of the package that the code uses and that are not there."""
    for found in re.finditer(r"\bmillpond\.(\w+)(?:\.(\w+))?", code):
        if (PACKAGE / f"{found[1]}.py").exists():
            if found[2] and found[2] not in names_in(found[1]):
                yield found[0]
        elif found[1] not in names_in(""):
            yield found[0]


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.language == "python"],
                         ids=lambda block: f"{Path(block.page).stem}-{block.line}")
def test_python_is_python(block):
    compile(block.code, f"{block.page}:{block.line}", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    assert list(absent(block.code)) == []


def test_what_is_not_there_is_found():
    assert list(absent("millpond.numba.used()\nmillpond.Pond()\nmillpond.numba.use()")) == ["millpond.numba.used",
                                                                                         "millpond.Pond"]
    block = document_blocks.Block("README.md", 1, "sh", "true", "", "")
    assert next(document_blocks.faults_of(block)).startswith("no comment")


def test_some_are_run():
    assert sum(block.is_run for block in BLOCKS) >= 25
    assert shutil.which("bash")
