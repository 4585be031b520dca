# SPDX-License-Identifier: Apache-2.0
"""The wheels of a release: for older systems and for AArch64, looked at by the tools of PyPI, installed, and used.

On another processor the one for AArch64 runs in QEMU, under Debian's Python for it, with PyPI's onnxruntime for it.
"""

import functools
import os
import platform
import sys

import aarch64_kit
import onnx
import pytest
import zig
from install_kit import ROOT, build_folder, run

OURS = platform.machine()
USE = """
import platform, sys
import millpond
import millpond.onnxruntime
import numpy as np
import onnxruntime as ort

pool = millpond.Pool("host:0")
block = pool.alloc(1000, stream=0)
assert pool.stats()["in_use"] >= 1000
session = millpond.onnxruntime.session(sys.argv[1])
feed = {"x": np.random.default_rng(0).random((2, 3, 17, 19), np.float32)}
expected = ort.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"]).run(None, feed)
found = session.run(None, feed)
assert all(np.allclose(a, b, 1e-5, 1e-5) for a, b in zip(found, expected))
print(platform.machine(), millpond.onnxruntime.placement(session))
"""


@pytest.fixture(scope="module")
def wheel_of(tmp_path_factory):
    """Gives the wheel for a processor, made when it is first wanted. Kernels of the build under test are taken where
    they are for the same processor."""
    if os.environ.get("MILLPOND_OFFLINE", "0") not in ("", "0"):
        pytest.skip("the compiler cannot be installed without network")
    out = tmp_path_factory.mktemp("dist")

    @functools.cache
    def make(processor):
        kernels = build_folder() / "libmillpond_host_kernels.a"
        given = ["--kernels", kernels] if processor == OURS and kernels.is_file() else []
        run(sys.executable, ROOT / "tools/wheel.py", "--out", out, "--no-sdist", "--processor", processor, *given)
        [made] = out.glob(f"*_{processor}.whl")
        return made

    return make


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A convolution, a pool, a product and what is between them."""
    make, path = onnx.helper.make_node, tmp_path_factory.mktemp("model") / "small.onnx"
    nodes = [make("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]), make("Relu", ["a"], ["b"]),
             make("GlobalAveragePool", ["b"], ["c"]), make("Flatten", ["c"], ["d"]), make("Gemm", ["d", "m"], ["e"]),
             make("Softmax", ["e"], ["y"])]
    floats = onnx.TensorProto.FLOAT
    weights = [onnx.helper.make_tensor(name, floats, shape, [(i * 37 % 17 - 8) / 8 for i in range(count)])
               for name, shape, count in (("w", [8, 3, 3, 3], 216), ("m", [8, 5], 40))]
    graph = onnx.helper.make_graph(nodes, "small", [onnx.helper.make_tensor_value_info("x", floats, [2, 3, 17, 19])],
                                   [onnx.helper.make_tensor_value_info("y", floats, [2, 5])], weights)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.mark.parametrize("processor", zig.PROCESSORS)
def test_what_tools_of_pypi_say(processor, wheel_of):
    folder, wheel = zig.tools(), wheel_of(processor)
    older = f"manylinux_{zig.GLIBC[0]}_{zig.GLIBC[1]}_{processor}"
    assert wheel.name.endswith(f"-{older}.whl")
    promised = run(folder / "auditwheel", "show", wheel).replace("\n", " ")
    found = promised.partition('platform tag: "manylinux_')[2].partition('"')[0]
    major, minor, machine = found.split("_", 2)
    assert (int(major), int(minor)) <= zig.GLIBC and machine == processor, promised
    assert "OK" in run(folder / "check-wheel-contents", wheel)
    assert "PASSED" in run(folder / "twine", "check", "--strict", wheel)


def test_the_wheel_for_this_processor(wheel_of, model, tmp_path):
    run(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", tmp_path, wheel_of(OURS))
    said = run(sys.executable, "-c", USE, model, PYTHONPATH=str(tmp_path))
    assert OURS in said and "6 on CudaPluginExecutionProvider" in said


@pytest.mark.skipif(OURS == "aarch64", reason="this processor is one itself")
def test_the_wheel_for_aarch64(wheel_of, model, tmp_path):
    lacks = aarch64_kit.missing()
    if lacks is not None:
        pytest.skip(lacks)
    machine = aarch64_kit.Machine(tmp_path)
    machine.install(*aarch64_kit.needed(ROOT / "requirements.txt"))
    machine.install(wheel_of("aarch64"))
    said = machine.run(USE, model)
    assert "aarch64" in said and "6 on CudaPluginExecutionProvider" in said
