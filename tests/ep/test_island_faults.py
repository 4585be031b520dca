# SPDX-License-Identifier: Apache-2.0
"""Islands on a device whose n-th call fails, for each n, while a session is made, runs, is captured and ends: a clear
error or the slower way, nothing lost, and the next run right."""

import ctypes
import functools
import gc

import numpy as np
import pool_c
import provider
import pytest
from onnx import TensorProto, helper, numpy_helper, parser
from ort_version import HOLDS_CONTROL_FLOW, OLD_CONTROL_FLOW
from test_provider import child, finished

OUT_OF_MEMORY, DEVICE = 1, 4  # of mp_status
RUNS = 4  # the third is captured
WIDTH = 96
EVENTS = 2  # that the pool may keep
STEP_MAX = 9  # with which each outcome is found

LIB = pool_c.LIB
LIB.mp__pool_device.restype = LIB.mp__host_device_breach.restype = ctypes.c_void_p
LIB.mp__host_device_objects.restype = ctypes.c_size_t
LIB.mp__host_device_fail.restype = ctypes.c_bool
LIB.mp__host_device_fail.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int]


def model():
    """Large and small constants, one in another form, values known from shapes, three outputs, two islands."""
    rng = np.random.default_rng(3)
    hidden = 8
    constants = {
        "w": rng.standard_normal((WIDTH, WIDTH)).astype(np.float32) / 10, "b": rng.standard_normal(WIDTH).astype("f4"),
        "one": np.float32(1), "zero": np.float32(0), "first": np.array([0]), "minus": np.array([-1]),
        "lw": rng.integers(-64, 65, (1, WIDTH, 4 * hidden)).astype(np.int8),
        "lr": rng.integers(-64, 65, (1, hidden, 4 * hidden)).astype(np.int8),
        "ls": np.array([0.01], np.float32), "lz": np.array([0], np.int8), "axes": np.array([1]),
    }
    lstm = ["steps", "lw", "lr", "", "", "", "", "", "ls", "lz", "ls", "lz"]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], "product"), helper.make_node("Add", ["h", "b"], ["s"], "bias"),
        helper.make_node("Relu", ["s"], ["r"], "relu"), helper.make_node("Shape", ["r"], ["shape"], "shape"),
        helper.make_node("Gather", ["shape", "first"], ["rows"], "rows"),
        helper.make_node("Squeeze", ["rows"], ["row"], "row"),
        helper.make_node("Cast", ["row"], ["limit"], "limit", to=TensorProto.FLOAT),
        helper.make_node("Range", ["zero", "limit", "one"], ["numbers"], "numbers"),
        helper.make_node("Unsqueeze", ["numbers", "axes"], ["column"], "column"),
        helper.make_node("Add", ["r", "column"], ["y"], "sum"), helper.make_node("Exp", ["s"], ["e"], "exp"),
        helper.make_node("Softmax", ["e"], ["z"], "softmax"),
        helper.make_node("NonZero", ["z"], ["which"], "which"),  # in no island, or by itself
        helper.make_node("Cast", ["which"], ["places"], "places", to=TensorProto.FLOAT),
        helper.make_node("ReduceMax", ["places"], ["most"], "most", keepdims=1),
        helper.make_node("Add", ["most", "one"], ["v"], "more"),
        helper.make_node("Unsqueeze", ["z", "axes"], ["steps"], "steps"),
        helper.make_node("DynamicQuantizeLSTM", lstm, ["u"], "lstm", domain="com.microsoft", hidden_size=hidden),
    ]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "faults", [info("x", TensorProto.FLOAT, ["n", WIDTH])],
        [info(name, TensorProto.FLOAT, None) for name in "yzuv"],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


def branches():
    """An If whose condition is computed on the device, with one within it."""
    text = """
      <ir_version: 9, opset_import: ["" : 18]>
      g (float[n, 96] x) => (float[n, 96] y, float[n, 96] z) {
        limit = Constant <value = float {0}> ()
        sum = ReduceSum <keepdims = 0> (x)
        c = Greater (sum, limit)
        u = If (c) <then_branch = t () => (float[n, 96] p) {
            d = Less (sum, limit)
            s = Softmax (x)
            p = If (d) <then_branch = i () => (float[n, 96] v) { v = Exp (s) },
                        else_branch = j () => (float[n, 96] w) { w = Softmax (s) }> },
          else_branch = e () => (float[n, 96] r) { r = Softmax (x) }>
        y = Add (u, x)
        z = Softmax (y)
      }
    """
    return parser.parse_model(text).SerializeToString()


class Walk:
    """Sessions of a model on the emulated device, each with another call that fails."""

    def __init__(self, status, made=None, runs=RUNS, **options):
        self.model, self.status, self.options, self.runs = made or model(), status, options, runs
        self.feeds = [{"x": np.random.default_rng(rows).standard_normal((rows, WIDTH)).astype(np.float32)}
                      for rows in (3, 7)]
        self.pool = pool_c.Pool("faults")
        self.device = ctypes.c_void_p(LIB.mp__pool_device(self.pool.handle))
        session = provider.session(self.model, provider_options={"fusion": "0"})
        self.wanted = [session.run(None, feed) for feed in self.feeds]
        self.refused = self.failed = self.unnoticed = 0

    def session(self):
        options = provider.session_options(threads=1, log_level=4)
        return provider.session(self.model, provider_options={"fusion": "1", **self.options}, options=options)

    def check(self, session, i):
        for got, want in zip(session.run(None, self.feeds[i]), self.wanted[i], strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)

    def told(self, error):
        """What the user reads."""
        text = str(error)
        assert "a test asked for it" in text or "memory" in text or "Allocation" in text, text

    def attempt(self, action):
        try:
            return action(), True
        except AssertionError:
            raise
        except Exception as error:  # noqa: BLE001  whatever ONNX Runtime makes of it
            self.told(error)
            return None, False

    def one(self, nth):
        """Whether there are that many calls."""
        LIB.mp__host_device_fail(self.device, nth, self.status)
        session, made = self.attempt(self.session)
        checks = [functools.partial(self.check, session, i // self.runs) for i in range(2 * self.runs)]
        good = [self.attempt(check)[1] for check in checks if made]
        checks.clear()
        waiting = LIB.mp__host_device_fail(self.device, 0, 0)
        self.refused += not made
        self.failed += not all(good)
        self.unnoticed += made and all(good) and not waiting
        for i in range(4) if made else ():
            self.check(session, i % 2)
        del session
        gc.collect()
        return not waiting

    def end(self, nth):
        """Whether the end of a session has that many calls."""
        session = self.session()
        for _ in range(self.runs):
            self.check(session, 0)
        LIB.mp__host_device_fail(self.device, nth, self.status)
        del session
        gc.collect()
        return not LIB.mp__host_device_fail(self.device, 0, 0)

    def left(self):
        """(bytes that are allocated, bytes that the pool has, objects of the device)"""
        gc.collect()
        self.pool.shrink()
        return self.pool.stats()["in_use"], self.pool.stats()["total"], LIB.mp__host_device_objects(self.device)

    def all(self, step=1):
        self.one(1 << 40)
        before = self.left()
        for part in (self.end, self.one):
            nth = 1
            while part(nth):
                after = self.left()
                told = f"{part.__name__}, call {nth}: {before}, then {after}"
                assert after[:2] == before[:2] and after[2] <= before[2] + EVENTS, told
                nth += step
        breach = LIB.mp__host_device_breach(self.device)
        assert breach is None, ctypes.string_at(breach)
        return nth


@pytest.fixture
def step(mode, status, pytestconfig):
    """From a call that fails to the next one."""
    full = 1 if (mode, status) == ("eager", DEVICE) else 3 if mode == "eager" else STEP_MAX
    return min(full * pytestconfig.getoption("--faults"), STEP_MAX)


@pytest.mark.parametrize("status", [DEVICE, OUT_OF_MEMORY])
@pytest.mark.parametrize("mode", ["eager", "threaded", "adversarial:3"])
def test_each_call_fails_in_turn(mode, status, step):
    done = child(f"""
        import test_island_faults
        walk = test_island_faults.Walk({status})
        calls = walk.all({step})
        least = max(1, 12 // {step})
        found = (walk.refused, walk.failed, walk.unnoticed)
        assert calls > 100 and all(each >= least for each in found), (calls, found)
    """, MILLPOND_DEVICE="host", MILLPOND_HOST=mode, MILLPOND_LOG="off")  # fmt: skip
    finished(done)


@pytest.mark.skipif(not HOLDS_CONTROL_FLOW, reason=OLD_CONTROL_FLOW)
@pytest.mark.parametrize("status", [DEVICE, OUT_OF_MEMORY])
@pytest.mark.parametrize("mode", ["eager", "threaded", "adversarial:3"])
def test_each_call_fails_in_turn_with_branches(mode, status, step):
    """Two runs wait for the condition, one plans both branches, the third of that is captured."""
    done = child(f"""
        import test_island_faults as faults
        walk = faults.Walk({status}, faults.branches(), runs=7)
        calls = walk.all({step})
        assert calls > 100 and walk.failed and walk.unnoticed, (calls, walk.failed, walk.unnoticed)
    """, MILLPOND_DEVICE="host", MILLPOND_HOST=mode, MILLPOND_LOG="off")  # fmt: skip
    finished(done)
