# SPDX-License-Identifier: Apache-2.0
"""First results that wait for no compiler: what stands in for fused kernels, and when it no longer does.

The emulated device takes MILLPOND_HOST_COMPILE_MS for each fused kernel, as a GPU's compiler would.
"""

import time

import provider
import pytest
from test_profiler import child

START = """
    import time
    import numpy as np
    import graph_kit as kit
    from onnx import helper
    nodes = [helper.make_node("Mul", ["x", "x"], ["a"]), helper.make_node("Sigmoid", ["a"], ["b"]),
             helper.make_node("Add", ["b", "x"], ["y"])]
    model = small_models.model(nodes, {"x": [1000]}, {"y": [1000]})
    x = np.linspace(-3, 3, 1000, dtype=np.float32)
    wanted = 1 / (1 + np.exp(-x * x)) + x

    def right(session):
        return bool(np.allclose(session.run(None, {"x": x})[0], wanted, rtol=1e-5, atol=1e-6))

    def fused(events):
        return [event["name"].removeprefix("mp_k_") for event in kernels(events)]
"""


@pytest.fixture(scope="module", autouse=True)
def emulated():
    if not provider.is_emulated(provider.register()[0]):
        pytest.skip("only the emulated device can be told how long compiling takes")


def run(code, folder, **environment):
    return child(START + code, folder, **{"MILLPOND_STAND_IN": "on", **environment}).stdout.split()


def test_results_come_at_once_and_are_the_same(tmp_path):
    done = run("""
    session = profiled(folder, model)
    print(*(right(session) for _ in range(6)))
    time.sleep(1.5)
    print(*(right(session) for _ in range(6)))
    names = fused(ended(session))
    print(*names)
    """, tmp_path, MILLPOND_HOST_COMPILE_MS="1000")
    assert done[:12] == ["True"] * 12
    names = done[12:]
    assert names[:6] == ["fused_stand_in"] * 6 and len(names) == 12
    assert all(name.startswith("fused_mul_sigmoid_add_") for name in names[6:]), names


def test_rows_come_at_once(tmp_path):
    done = run("""
    nodes = [helper.make_node("Mul", ["x", "x"], ["a"]), helper.make_node("ReduceMean", ["a", "axes"], ["m"]),
             helper.make_node("Sub", ["a", "m"], ["b"]), helper.make_node("Exp", ["b"], ["y"])]
    model = small_models.model(nodes, {"x": [20, 50]}, {"y": [20, 50]}, {"axes": [-1]})
    x = x.reshape(20, 50)
    wanted = np.exp(x * x - np.mean(x * x, axis=1, keepdims=True))
    session = profiled(folder, model)
    print(*(right(session) for _ in range(3)))
    time.sleep(1.5)
    print(*(right(session) for _ in range(3)))
    print(*fused(ended(session)))
    """, tmp_path, MILLPOND_HOST_COMPILE_MS="1000")
    assert done[:6] == ["True"] * 6
    names = done[6:]
    assert names[:3] == ["fused_row_stand_in"] * 3 and len(names) == 6, names
    assert all(name.startswith("fused_mul_rowmean_sub_") for name in names[3:]), names


def test_a_graph_waits_for_the_compiler(tmp_path):
    done = run("""
    session = profiled(folder, model, {"enable_cuda_graph": "1"})
    bound = kit.Bound(session, {"x": np.zeros(1000, np.float32)}, {"y": [1000]}, None)
    print(*(np.allclose(bound.run(x=x), wanted, rtol=1e-5, atol=1e-6) for _ in range(5)))
    print(kit.is_captured(session, {"x": x}))
    print(*fused(ended(session)))
    """, tmp_path, MILLPOND_HOST_COMPILE_MS="700")
    assert done[:6] == ["True"] * 6
    names = done[6:]
    assert names[:2] == ["fused_stand_in"] * 2  # the runs that warm up
    assert all(name.startswith("fused_mul_sigmoid_add_") for name in names[2:]) and len(names) > 2, names


def test_it_can_be_switched_off(tmp_path):
    done = run("""
    session = profiled(folder, model)
    print(right(session))
    print(*fused(ended(session)))
    """, tmp_path, MILLPOND_HOST_COMPILE_MS="60000", MILLPOND_STAND_IN="off")
    assert done[0] == "True" and done[1].startswith("fused_mul_sigmoid_add_")


def test_the_process_may_end_meanwhile(tmp_path):
    began = time.monotonic()
    done = run("""
    session = provider.session(model)
    print(right(session))
    """, tmp_path, MILLPOND_HOST_COMPILE_MS="1500")
    assert done == ["True"] and time.monotonic() - began > 1.5  # what is being compiled is waited for
