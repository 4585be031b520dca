# SPDX-License-Identifier: Apache-2.0
"""Registration, names, options, errors, ends of processes; docs/genai.md. Each program in a process of its own."""

import re
import textwrap
from pathlib import Path

import core_kit
import genai_kit as kit
import onnxruntime_genai as og
import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/genai.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
EXAMPLE = ROOT / "examples/genai_tokens.py"
START = """
import sys, numpy as np, onnxruntime_genai as og, millpond, millpond.genai
folder = sys.argv[1]

def talk(model, count=8):
    params = og.GeneratorParams(model)
    params.set_search_options(max_length=count, do_sample=False)
    generator = og.Generator(model, params)
    generator.append_tokens(np.array([5, 9, 17], np.int32))
    while not generator.is_done():
        generator.generate_next_token()
    return generator

def tokens(model, count=8):
    return talk(model, count).get_sequence(0).tolist()
"""


def run(code, **variables):
    """What a program prints that has a model's folder; it ends with 0, and says nothing on stderr."""
    exact = {"NVIDIA_TF32_OVERRIDE": "0", **variables}
    return core_kit.run_python(START + textwrap.dedent(code), str(kit.folder("llama")), **exact)


def expected(count=8):
    return str(kit.sequences(kit.generator(kit.cpu(kit.folder("llama", reference=True)), [5, 9, 17],
                                           max_length=count))[0])


# ---- ends ----


@pytest.mark.parametrize("end", [
    "generator = talk(og.Model(millpond.genai.config(folder))); print(generator.get_sequence(0).tolist())",
    "model = og.Model(millpond.genai.config(folder)); print(tokens(model))",
    "model = og.Model(millpond.genai.config(folder)); print(tokens(model)); del model",
    "import builtins; builtins.kept = talk(og.Model(millpond.genai.config(folder)))\n"
    "print(builtins.kept.get_sequence(0).tolist())",
    "loop = []; loop += [loop, og.Model(millpond.genai.config(folder))]\n"
    "print(tokens(loop[1]))",
    "import threading\nmodel = og.Model(millpond.genai.config(folder))\n"
    "thread = threading.Thread(target=lambda: print(tokens(model))); thread.start(); thread.join()",
])
def test_the_end_of_a_process(end):
    assert run(end).strip() == expected()


def test_registered_and_not_used():
    wanted = "CUDAExecutionProvider" if kit.HAS_ADD_ON and kit.ON_GPU else "CudaPluginExecutionProvider"
    assert run("print(millpond.genai.register())").strip() == wanted


@pytest.mark.parametrize("order", ["genai first", "onnxruntime first"])
def test_beside_the_module_onnxruntime(order):
    """Both have the provider, and memory from one pool."""
    out = run(f"""
        import onnxruntime as ort, millpond.onnxruntime as mort
        def with_genai():
            global model
            model = og.Model(millpond.genai.config(folder))
            print(tokens(model))
        def with_ort():
            global session
            session = mort.session(folder + "/model.onnx")
            print(mort.placement(session).counts.keys())
        for step in [with_genai, with_ort] if "{order}" == "genai first" else [with_ort, with_genai]:
            step()
        before = {{client["name"]: client["allocs"] for client in millpond.Pool(client="look").clients()}}
        tokens(model)
        after = {{client["name"]: client["allocs"] for client in millpond.Pool(client="look").clients()}}
        assert after["onnxruntime"] > before["onnxruntime"], (before, after)
    """)
    assert expected() in out
    assert "CudaPluginExecutionProvider" in out


# ---- names, options, errors ----


@pytest.mark.skipif(kit.HAS_ADD_ON, reason="this package has genai's part for CUDA")
def test_the_name_of_the_cuda_provider_without_its_part():
    out = run("""
        try:
            millpond.genai.config(folder, name="CUDAExecutionProvider")
        except millpond.NotFoundError as error:
            print(error)
        og.register_execution_provider_library("CUDAExecutionProvider", millpond.get_library_path())
        config = og.Config(folder)
        config.clear_providers()
        config.append_provider("CUDAExecutionProvider")
        try:
            og.Model(config)
        except RuntimeError as error:
            print(error)
    """)
    ours, theirs = out.splitlines()
    assert "install that one, or register the provider as CudaPluginExecutionProvider" in ours
    assert "Cuda interface not available" in theirs


def test_names_that_do_not_fit():
    out = run("""
        def error_of(function, *given, **named):
            try:
                function(*given, **named)
            except millpond.Error as error:
                print(type(error).__name__, error)
        error_of(millpond.genai.register, "MyProvider")
        error_of(millpond.genai.register, library="/no/such/file.so")
        name = millpond.genai.register()
        assert millpond.genai.register() == millpond.genai.register(name) == name
        error_of(millpond.genai.register, "MyProvider")
    """).splitlines()
    assert out[0].startswith("InvalidArgumentError") and "'MyProvider'" in out[0]
    assert out[1].startswith("NotFoundError") and "/no/such/file.so" in out[1]
    assert re.search(r"is registered with onnxruntime-genai as (CUDA|CudaPlugin)ExecutionProvider", out[2])


def test_a_library_that_is_none(tmp_path):
    (tmp_path / "library.so").write_text("no library", encoding="utf-8")
    out = run(f"""
        try:
            millpond.genai.register(library={str(tmp_path / "library.so")!r})
        except millpond.Error as error:
            print(error)
    """)
    assert "refused a copy of" in out
    assert "TMPDIR" in out


@pytest.mark.parametrize(("options", "words"), [
    ({"fusionn": 1}, "has no option 'fusionn'; did you mean 'fusion'?"),
    ({"fusion": "x"}, 'fusion is "x"; use a whole number from 0 to 2'),
])
def test_options_that_are_none(options, words):
    with pytest.raises(RuntimeError, match=re.escape(words)):
        kit.ours(kit.folder("llama"), options)


def test_a_second_onnxruntime_is_told_what_to_do():
    """Without millpond.genai, by the library's own file."""
    out = run("""
        import millpond.onnxruntime
        millpond.onnxruntime.register()
        try:
            og.register_execution_provider_library("CudaPluginExecutionProvider", millpond.get_library_path())
        except RuntimeError as error:
            print(error)
    """)
    assert "another ONNX Runtime of this process" in out
    assert "a copy of the file" in out


# ---- the page ----


def test_the_page_shows_the_example_and_it_runs():
    assert EXAMPLE.read_text(encoding="utf-8").partition('"""\n\n')[2] == BLOCKS[0]
    code = "import runpy, sys\nsys.argv.pop(0)\nrunpy.run_path(sys.argv[0], run_name='__main__')"
    out = core_kit.run_python(code, str(EXAMPLE), str(kit.folder("llama")), "5", "9", "17")
    assert f"[{', '.join(out.split())}]" == expected(40)


@pytest.mark.parametrize("block", BLOCKS[1:], ids=lambda block: block.splitlines()[-1])
def test_the_other_lines_of_the_page_run(block):
    out = run(f"{block}\nprint(tokens(model))")
    assert out.splitlines()[-1] == expected()


def test_the_page_names_what_is_tested():
    assert f"tested with onnxruntime-genai {og.__version__.rpartition('.')[0]} " in PAGE
