# SPDX-License-Identifier: Apache-2.0
"""`millpond compile`: kernels for GPUs that are not here."""

import ctypes
import re
from pathlib import Path

import millpond
import numpy as np
import onnx_kit
import pytest
from cli_kit import refused, run, run_json
from millpond.cli import _app, _compile, _kernel_files, _libraries

pytest.importorskip("onnxruntime", minversion="1.26", reason="ONNX Runtime 1.26 is not installed")
if not _libraries.has_cuda():
    pytest.skip("this build has no CUDA backend, so nothing that compiles", allow_module_level=True)
NVRTC = {library.name: library for library in _libraries.libraries()}["NVRTC"]
if NVRTC.path is None:
    pytest.skip(NVRTC.why, allow_module_level=True)

ROOT = Path(__file__).resolve().parents[2]
OWN = 8  # kernels that the CUDA device itself brings


@pytest.fixture
def made(tmp_path):
    """Models: two groups of element-wise nodes around a Softmax of columns, a product of integers, two convolutions."""
    node = onnx_kit.Node
    chain = onnx_kit.model(
        [node("Add", ["x", "x"], ["a"], "add"), node("Sigmoid", ["a"], ["b"], "sigmoid"),
         node("Mul", ["a", "b"], ["c"], "mul"), node("Softmax", ["c"], ["d"], "softmax", attributes={"axis": 0}),
         node("Tanh", ["d"], ["e"], "tanh"), node("Sub", ["e", "x"], ["y"], "sub")],
        {"x": ["n", 64]}, {"y": ["n", 64]})
    bytes_of = (onnx_kit.UINT8, [64, 64])
    product = onnx_kit.model([node("MatMulInteger", ["x", "z"], ["y"], "product")], {"x": bytes_of, "z": bytes_of},
                             {"y": (onnx_kit.INT32, [64, 64])})
    weights = np.ones((8, 8, 3, 3), np.float32)
    same = {"pads": [1, 1, 1, 1]}
    convs = onnx_kit.model(
        [node("Conv", ["x", "w"], ["a"], "first", attributes=same), node("Relu", ["a"], ["b"], "relu"),
         node("Conv", ["b", "w"], ["y"], "second", attributes=same)],
        {"x": [1, 8, 6, 6]}, {"y": [1, 8, 6, 6]}, {"w": weights})
    for name, data in {"chain": chain, "product": product, "convs": convs}.items():
        (tmp_path / f"{name}.onnx").write_bytes(data)
    return tmp_path


def compile_to(folder, *arguments, **variables):
    """What the command says of each architecture, and the names of the files that are there then."""
    where = {"MILLPOND_CACHE_DIR": str(folder), "MILLPOND_KERNELS": "off"} | variables
    found = run_json("compile", *arguments, **where)
    assert found["folder"] == str(folder) and re.fullmatch(r"1\d\.\d+", found["nvrtc"])
    return found["kernels"], {path.name for path in _kernel_files.cached(folder)}


def counts(done):
    return [done[name] for name in ("ready", "cached", "compiled", "failed")]


def test_the_second_time_nothing_is_compiled(made):
    (first,), files = compile_to(made / "cache", made / "chain.onnx", "--for", "sm_90")
    assert first["arch"] == 90 and first["all"] == OWN + 3  # a kernel for each group, and the Softmax
    assert counts(first) == [0, 0, first["all"], 0] and len(files) == first["all"]
    (second,), after = compile_to(made / "cache", made / "chain.onnx", "--for", "90")
    assert counts(second) == [0, second["all"], 0, 0] and after == files
    where = {"MILLPOND_CACHE_DIR": str(made / "cache"), "MILLPOND_KERNELS": "off"}
    out, said = run("compile", made / "chain.onnx", "--for", "sm_90,sm_80", **where)
    assert said == ""
    cached, compiled = out.splitlines()
    assert re.fullmatch(r"11 kernels for sm_90: 0 ready, 11 cached, 0 compiled in \d+\.\d s", cached)
    assert re.fullmatch(r"11 kernels for sm_80: 0 ready, 0 cached, 11 compiled in \d+\.\d s", compiled)
    assert len(_kernel_files.cached(made / "cache")) == 22


def test_several_models_share_their_kernels(made):
    (one,), _ = compile_to(made / "one", made / "chain.onnx", "--for", "sm_90")
    (other,), _ = compile_to(made / "other", made / "convs.onnx", "--for", "sm_90")
    (both,), files = compile_to(made / "both", made / "chain.onnx", made / "convs.onnx", "--for", "sm_90")
    assert OWN < both["all"] <= one["all"] + other["all"] - OWN and len(files) == both["all"]


def test_the_kernels_are_not_those_of_this_machine(made):
    """The same whatever its cores, by whose number plans choose; and those of graphs rewritten as for a GPU."""
    sets = [compile_to(made / threads, made / "product.onnx", "--for", "sm_90", MILLPOND_HOST_THREADS=threads)[1]
            for threads in ("1", "3")]
    assert sets[0] == sets[1]
    _, last = compile_to(made / "last", made / "convs.onnx", "--for", "sm_90")
    _, first = compile_to(made / "first", made / "convs.onnx", "--for", "sm_90", MILLPOND_PASSES="-channels_last")
    assert last - first


def test_shapes_and_options_count(made):
    _, files = compile_to(made / "one", made / "chain.onnx", "--for", "sm_90", "--shape", "x=2,64")
    _, unfused = compile_to(made / "two", made / "chain.onnx", "--for", "sm_90", "--option", "fusion=0")
    assert unfused - files  # a kernel for each node
    assert "the model has no input 'z'" in refused("compile", made / "chain.onnx", "--for", "sm_90", "--shape", "z=1",
                                                   MILLPOND_CACHE_DIR=str(made / "one"))


def test_architectures_that_there_are_not(made):
    for wrong in ("sm_42", "sm_90a", "hopper", "sm_90,"):
        said = refused("compile", made / "chain.onnx", "--for", wrong, MILLPOND_CACHE_DIR=str(made / "cache"))
        assert "NVRTC compiles for sm_75" in said and "sm_90" in said.partition("NVRTC")[2]
    assert "--for" in refused("compile", made / "chain.onnx")
    assert not (made / "cache").exists()


def test_without_a_cache(made):
    made.chmod(0o755)
    arguments = ("compile", made / "chain.onnx", "--for", "sm_90")
    assert "open to others" in refused(*arguments, status=3, MILLPOND_CACHE_DIR=str(made))
    assert "MILLPOND_CACHE=off" in refused(*arguments, status=3, MILLPOND_CACHE="off")


class Fails:
    """Stands for the library, some of whose functions fail as they do without NVRTC, or with a kernel at fault."""

    def __init__(self, archs, ahead):
        self.archs, self.ahead = archs, ahead

    def mp_kernel_record_start(self):
        pass

    def mp__cuda_compiler_version(self, major, minor):
        return 0

    def mp__cuda_compiler_archs(self, archs, count):
        archs[0] = 90
        ctypes.cast(count, ctypes.POINTER(ctypes.c_int))[0] = 1
        return self.archs

    def mp__cuda_ahead(self, arch, counts):
        found = ctypes.cast(counts, ctypes.POINTER(_compile.Counts))[0]
        found.all, found.compiled, found.failed = 3, 2, 1
        return self.ahead


@pytest.mark.parametrize(("archs", "ahead", "code", "printed"), [
    (5, 0, 3, ""), (0, 2, 1, "3 kernels for sm_90: 0 ready, 0 cached, 2 compiled in 0.0 s, 1 failed\n"),
])
def test_what_fails(made, monkeypatch, capsys, archs, ahead, code, printed):
    monkeypatch.setenv("MILLPOND_CACHE_DIR", str(made / "cache"))
    monkeypatch.setenv("MILLPOND_PASSES", "")
    monkeypatch.setattr(_compile._libraries, "pool_library", lambda: Fails(archs, ahead))
    monkeypatch.setattr(_compile._libraries, "has_cuda", lambda: True)
    monkeypatch.setattr(_compile, "_run", lambda model, given: None)
    monkeypatch.setattr(_compile._native, "last_sentence", lambda: "the library's sentence")
    assert _app.run(["compile", str(made / "chain.onnx"), "--for", "sm_90"]) == code
    out, said = capsys.readouterr()
    assert out == printed and said == "millpond: the library's sentence\n"


def test_counts_are_those_of_c():
    header = ROOT / "src/device/cuda/cuda_ahead.h"
    if not header.exists():
        pytest.skip("the source tree is not here")
    assert tuple(re.findall(r"^    int32_t (\w+);", header.read_text(encoding="utf-8"), re.M)) == _compile.COUNTS
    source = (ROOT / "src/device/cuda/cuda_jit.h").read_text(encoding="utf-8")
    assert f"CUDA_ARCHS_MAX = {_compile.ARCHS_MAX} " in source


def test_a_gpu_finds_them(made):
    """A session there adds no kernel to the folder."""
    _, gpus = _libraries.gpus()
    if not gpus or millpond.Pool().device.startswith("host"):
        pytest.skip("there is no GPU here")
    arch = str(gpus[0]["compute_capability"]).replace(".", "")
    _, files = compile_to(made / "cache", made / "chain.onnx", "--for", arch)
    run("run", made / "chain.onnx", "--device", "cuda:0", "--no-compare", "--runs", 1,
        MILLPOND_CACHE_DIR=str(made / "cache"), MILLPOND_KERNELS="off", MILLPOND_DEVICE="cuda")
    assert {path.name for path in _kernel_files.cached(made / "cache")} == files
