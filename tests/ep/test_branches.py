# SPDX-License-Identifier: Apache-2.0
"""If whose condition is computed on the device: both branches in one program, once runs have waited for it.

The expected values are those of ONNX Runtime's CPU provider. Feeds take the branches in turn, from the same addresses.
"""

import concurrent.futures
import os

import numpy as np
import onnxruntime as ort
import provider
import pytest
from ort_version import HOLDS_CONTROL_FLOW, OLD_CONTROL_FLOW
from test_control_flow import compare, exact, flag, floats, model, number
from test_provider import child, finished

held = pytest.mark.skipif(not HOLDS_CONTROL_FLOW, reason=OLD_CONTROL_FLOW)
joined = pytest.mark.skipif(os.environ.get("MILLPOND_DEVICE") == "cuda" and os.environ.get("MILLPOND_BRANCHES") != "on",
                            reason='both branches are in one graph on a GPU where MILLPOND_BRANCHES is "on"')

HEAD = """
g (float[n] x) => (float[m] y) {
  limit = Constant <value = float {0}> ()
  sum = ReduceSum <keepdims = 0> (x)
  c = Greater (sum, limit)
  d = Less (sum, limit)
  o = Softmax <axis = 0> (x)
"""

MODELS = {
    "computed": "y = If (c) <then_branch = t () => (float[a] p) { q = Exp (x) p = Softmax <axis = 0> (q) },"
    " else_branch = e () => (float[b] r) { r = Neg (x) }>",
    "outer": "u = If (c) <then_branch = t () => (float[a] p) { p = Identity (o) },"
    " else_branch = e () => (float[b] r) { r = Neg (o) }> y = Add (u, o)",
    "input": "u = If (c) <then_branch = t () => (float[a] p) { p = Identity (x) },"
    " else_branch = e () => (float[b] r) { s = Exp (x) r = Softmax <axis = 0> (s) }> y = Softmax <axis = 0> (u)",
    "output": "y = If (c) <then_branch = t () => (float[a] p) { p = Identity (x) },"
    " else_branch = e () => (float[b] r) { r = Identity (o) }>",
    "nested": "y = If (c) <then_branch = t () => (float[a] p) { s = Exp (x) big = ReduceMax <keepdims = 0> (s)"
    " two = Constant <value = float {2.5}> () k = Greater (big, two)"
    " p = If (k) <then_branch = i () => (float[f] v) { v = Sub (s, x) },"
    " else_branch = j () => (float[h] w) { w = Softmax <axis = 0> (s) }> },"
    " else_branch = e () => (float[b] r) { r = Neg (o) }>",
    "two": "u, v = If (c) <then_branch = t () => (float[a] p, float[a] q) { p = Exp (x) q = Neg (p) },"
    " else_branch = e () => (float[b] r, float[b] s) { r = Neg (o) s = Identity (r) }>"
    " w = If (d) <then_branch = f () => (float[h] k) { k = Mul (u, v) },"
    " else_branch = l () => (float[i] j) { j = Sub (v, u) }> y = Add (w, u)",
    "constant": "z = Constant <value = float[6] {1, 2, 3, 4, 5, 6}> ()"
    " u = If (c) <then_branch = t () => (float[6] p) { p = Identity (z) },"
    " else_branch = e () => (float[b] r) { r = Neg (x) }> y = Add (u, o)",
}
OTHERS = {  # that stay segments
    "shapes": "y = If (c) <then_branch = t () => (float[a] p) { p = Exp (x) },"
    " else_branch = e () => (float[b] r) { r = Concat <axis = 0> (x, o) }>",
    "sizes": "y = If (c) <then_branch = t () => (float[a] p) { k = Greater (x, o) p = Compress <axis = 0> (x, k) },"
    " else_branch = e () => (float[b] r) { r = Neg (x) }>",
}


def made(name):
    return model(HEAD + {**MODELS, **OTHERS}[name] + "\n}")


def feeds():
    """Both branches in turn, with other numbers each time."""
    signs = (1, -1, -1, 1, 1, -1, 1, -1, 1, 1, -1, -1)
    return [{"x": sign * np.abs(floats(6, seed=i)) * (1 if i % 3 else 0.1)} for i, sign in enumerate(signs)]


def check_runs(ours, cpu):
    for feed in feeds():
        compare(ours.run(None, feed), cpu.run(None, feed))


@pytest.mark.parametrize("fusion", ["1", "2"])
@pytest.mark.parametrize("name", [*MODELS, *OTHERS])
def test_both_ways_from_run_to_run(name, fusion):
    cpu = ort.InferenceSession(made(name), providers=[provider.CPU])
    check_runs(exact(made(name), fusion=fusion), cpu)


def bound(session, x, *outputs):
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", x)
    for name, value in outputs:
        binding.bind_ortvalue_output(name, value)
    return binding


@held
@joined
@pytest.mark.parametrize("name", MODELS)
def test_graphs_of_the_user_take_both_branches(name):
    """Captured once; which branch is taken is decided by each replay."""
    cpu = ort.InferenceSession(made(name), providers=[provider.CPU])
    ours = exact(made(name), enable_cuda_graph="1")
    x = ort.OrtValue.ortvalue_from_numpy(np.zeros(6, np.float32), "cuda", 0)
    y = ort.OrtValue.ortvalue_from_numpy(np.zeros(6, np.float32), "cuda", 0)
    binding = bound(ours, x, ("y", y))
    for feed in feeds():
        x.update_inplace(feed["x"])
        ours.run_with_iobinding(binding)
        compare([y.numpy()], cpu.run(None, feed))


@pytest.mark.parametrize("name", MODELS)
def test_same_bits_as_segments(name):
    """The first runs are of segments, later ones of one program, then of its graph."""
    ours = exact(made(name))
    first = {}
    for _ in range(4):
        for i, feed in enumerate(feeds()[:6]):
            got = ours.run(None, feed)[0]
            fresh = exact(made(name)).run(None, feed)[0] if i not in first else first[i]
            assert np.array_equal(got.view(np.uint32), fresh.view(np.uint32))
            first[i] = fresh


HALVES = """
g (float16[n] x) => (float16[m] y) {
  limit = Constant <value = float16 {0}> ()
  sum = ReduceSum <keepdims = 0> (x)
  c = Greater (sum, limit)
  a = Mul (x, x)
  b = Sub (a, x)
  d = Mul (b, a)
  u = If (c) <then_branch = t () => (float16[k] p) { q = Mul (d, x) s = Add (q, b) p = Mul (s, a) },
              else_branch = e () => (float16[h] r) { q = Sub (d, a) s = Mul (q, x) r = Add (s, d) }>
  v = Mul (u, d)
  w = Add (v, b)
  y = Mul (w, x)
}
"""


@pytest.mark.parametrize("sign", [1, -1])
def test_same_bits_of_halves(sign):
    """Nodes are fused otherwise in segments than in one program, and what lies between them is rounded in both."""
    x = sign * np.abs(floats(700)).astype(np.float16)
    ours = exact(model(HALVES))
    runs = [ours.run(None, {"x": x})[0].view(np.uint16) for _ in range(5)]
    assert all(np.array_equal(run, runs[0]) for run in runs)
    if HOLDS_CONTROL_FLOW:  # otherwise there are islands before and behind, which have no branches
        alone = exact(model(HALVES), fusion="0").run(None, {"x": x})[0].view(np.uint16)
        assert np.array_equal(runs[0], alone)


RATES = """
g (float[n] x, int64 rate) => (float[m] y, float[k] z) {
  one = Constant <value = int64 {1}> ()
  c = Equal (rate, one)
  six = Constant <value = float[6] {1, 2, 3, 4, 5, 6}> ()
  four = Constant <value = float[4] {4, 3, 2, 1}> ()
  u = If (c) <then_branch = t () => (float[6] p) { p = Add (x, six) },
              else_branch = e () => (float[4] r) { s = Softmax <axis = 0> (x) r = Sub (s, four) }>
  y = Softmax <axis = 0> (u)
  z = Exp (x)
}
"""


def test_a_branch_that_cannot_be_for_these_shapes():
    """As in a model for two sampling rates: the other branch is assumed, and an error is one, in the same run."""
    cpu = ort.InferenceSession(model(RATES), providers=[provider.CPU])
    ours = exact(model(RATES))
    wrong = 0
    for i in range(60):
        size = (6, 4)[i // 10 % 2]
        feed = {"x": floats(size, seed=i), "rate": number(int(size == 6) if i % 7 != 6 else int(size == 4))}
        if i % 7 != 6:
            compare(ours.run(None, feed), cpu.run(None, feed))
            continue
        wrong += 1
        for session in (cpu, ours):
            with pytest.raises(Exception, match=r"Add|Sub|broadcast"):
                session.run(None, feed)
    assert wrong > 6


def test_within_a_loop():
    text = """
    g (int64 trips, float[n] x) => (float[m] y) {
      go = Constant <value = bool {1}> ()
      y = Loop (trips, go, x) <body = b (int64 i, bool k, float[a] s) => (bool l, float[f] t) {
        l = Identity (k)
        limit = Constant <value = float {0}> ()
        sum = ReduceSum <keepdims = 0> (s)
        c = Greater (sum, limit)
        t = If (c) <then_branch = o () => (float[h] p) { q = Neg (s) p = Sub (q, x) },
                    else_branch = e () => (float[j] r) { r = Add (s, x) }>
      }>
    }
    """
    cpu = ort.InferenceSession(model(text), providers=[provider.CPU])
    ours = exact(model(text))
    for trips in (5, 9, 0, 5):
        for feed in feeds()[:4]:
            feed = {"trips": number(trips), **feed}
            compare(ours.run(None, feed), cpu.run(None, feed))


def test_condition_that_is_an_input_of_the_device():
    text = """
    g (bool c, float[n] x) => (float[m] y) {
      y = If (c) <then_branch = t () => (float[a] p) { p = Exp (x) },
                  else_branch = e () => (float[b] r) { r = Neg (x) }>
    }
    """
    cpu = ort.InferenceSession(model(text), providers=[provider.CPU])
    ours = exact(model(text))
    for i, feed in enumerate(feeds()):
        feed = {"c": flag(i % 3 == 0), **feed}
        compare(ours.run(None, feed), cpu.run(None, feed))


def test_threads():
    cpu = ort.InferenceSession(made("nested"), providers=[provider.CPU])
    ours = exact(made("nested"))
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: check_runs(ours, cpu), range(8)))


@held
@joined
def test_the_log_says_what_became_of_it():
    """One program with both branches, captured for the user; or segments, once and for all."""
    done = child("""
        import numpy as np, onnxruntime as ort, provider, test_branches
        ort.set_default_logger_severity(1)
        for name in ("nested", "shapes"):
            session = test_branches.exact(test_branches.made(name))
            for feed in test_branches.feeds():
                session.run(None, feed)
        session = test_branches.exact(test_branches.made("two"), enable_cuda_graph="1")
        x = ort.OrtValue.ortvalue_from_numpy(np.zeros(6, np.float32), "cuda", 0)
        y = ort.OrtValue.ortvalue_from_numpy(np.zeros(6, np.float32), "cuda", 0)
        for _ in range(4):
            session.run_with_iobinding(test_branches.bound(session, x, ("y", y)))
    """, MILLPOND_DEVICE="host", MILLPOND_LOG="info")  # fmt: skip
    text = finished(done).stderr + done.stdout
    assert text.count("has both branches in one program") == 2, text
    assert text.count("reads conditions back") == 1, text
    assert text.count("graph 0 is captured") == 1, text
