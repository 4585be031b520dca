# SPDX-License-Identifier: Apache-2.0
"""If, Loop and Scan: every version, bodies in bodies, captured values, shapes that change, faults.

The expected values are those of ONNX Runtime's CPU provider. Models are in ONNX's text form; OPSET stands for the
version that a test asks for.
"""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnxruntime as ort
import provider
import pytest
import tolerance
from onnx import helper, numpy_helper, parser
from registered import registry, schema
from test_provider import child, finished

OPSET, IR_VERSION = 18, 9
VERSIONS = {
    "If": (7, 11, 13, 16, 19, 21, 23, 24, 25),
    "Loop": (7, 11, 13, 16, 19, 21, 23, 24, 25),
    "Scan": (9, 11, 16, 19, 21, 23, 24, 25),
}
TYPES = ("float", "float16", "double", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool")
NUMPY = {"float": np.float32, "double": np.float64, "bool": np.bool_}


def ir_version(opset):
    return 9 if opset < 21 else 10 if opset < 23 else 11


def model(text, opset=OPSET):
    head = f'<ir_version: {ir_version(opset)}, opset_import: ["" : {opset}, "ai.onnx.ml" : 1]>\n'
    return parser.parse_model(head + text).SerializeToString()


def exact(model_bytes, **settings):
    """A session without TF32."""
    return provider.session(model_bytes, provider_options={"use_tf32": "0", **settings})


def on_device(session):
    """{operator: how many nodes} on the device, bodies included."""
    return provider.assignment(session).get(provider.NAME, {})


def compare(result, expected):
    assert len(result) == len(expected)
    for got, want in zip(result, expected, strict=True):
        assert got.dtype == want.dtype and got.shape == want.shape
        if want.dtype.kind == "f":
            limits = tolerance.FLOAT16 if want.dtype == np.float16 else tolerance.FLOAT32
            np.testing.assert_allclose(got, want, **limits)
        else:
            np.testing.assert_array_equal(got, want)


def check(model_bytes, *feeds, takes=()):
    """Runs each feed on both providers; `takes` are the operators that must be on the device."""
    reference = ort.InferenceSession(model_bytes, providers=[provider.CPU])
    session = exact(model_bytes, fusion="0")
    there = on_device(session)
    assert set(takes) <= set(there), there
    for feed in feeds:
        compare(session.run(None, feed), reference.run(None, feed))
    check_islands(model_bytes, reference, feeds)
    return session


def check_islands(model_bytes, reference, feeds):
    """In islands, which hold the node with its bodies, or are in the bodies; captured from the third run on."""
    for fusion in ("1", "2"):
        session = exact(model_bytes, fusion=fusion)
        for feed in [feed for feed in feeds for _ in range(4)] + list(feeds):
            compare(session.run(None, feed), reference.run(None, feed))


def floats(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def flag(value):
    return np.array(value, np.bool_)


def number(value):
    return np.array(value, np.int64)


# ---- If ----

BRANCHES = """
choose (bool c, float[n] x) => (float[m] y) {
  z = Add (x, x)
  y = If (c) <
    then_branch = twice () => (float[a] p) { p = Mul (z, x) },
    else_branch = both () => (float[b] q) { q = Concat <axis = 0> (z, x) }>
}
"""


@pytest.mark.parametrize("opset", VERSIONS["If"])
def test_if_of_every_version(opset):
    feeds = [{"c": flag(value), "x": floats(count)} for value in (True, False) for count in (4, 0, 7)]
    check(model(BRANCHES, opset), *feeds, takes=["If", "Mul", "Concat"])


def test_condition_computed_on_the_device():
    text = """
    choose (float[4] x) => (float[4] y) {
      limit = Constant <value = float {0}> ()
      sum = ReduceSum <keepdims = 0> (x)
      c = Greater (sum, limit)
      y = If (c) <
        then_branch = more () => (float[4] p) { p = Exp (x) },
        else_branch = less () => (float[4] q) { q = Neg (x) }>
    }
    """
    check(model(text), {"x": floats(4, seed=1)}, {"x": -np.abs(floats(4))}, {"x": np.abs(floats(4))}, takes=["If"])


def test_condition_that_a_body_uses_too():
    """One value that the node wants on the host and a body on the device."""
    text = """
    choose (bool[1] given, float[4] x) => (float[4] y) {
      c = Not (given)
      y = If (c) <
        then_branch = more () => (float[4] p) { t = Cast <to = 1> (c) p = Mul (x, t) },
        else_branch = less () => (float[4] q) { t = Cast <to = 1> (given) u = Cast <to = 1> (c) v = Sub (t, u)
                                               q = Mul (x, v) }>
    }
    """
    feeds = [{"given": np.array([value]), "x": floats(4)} for value in (True, False)]
    check(model(text), *feeds, takes=["If", "Mul"])


def test_branch_that_hands_captured_values_on():
    text = """
    choose (bool c, float[4] x) => (float[4] y, float[4] z) {
      s = Exp (x)
      y, z = If (c) <
        then_branch = one () => (float[4] p, float[4] q) { p = Identity (s) q = Identity (x) },
        else_branch = other () => (float[4] p2, float[4] q2) { p2 = Identity (x) q2 = Neg (s) }>
    }
    """
    check(model(text), *[{"c": flag(value), "x": floats(4)} for value in (True, False)], takes=["If"])


def test_bodies_without_work_for_the_device_stay_on_the_cpu():
    text = """
    choose (bool c, float[n, 2] x) => (float[n, 1] y) {
      y = If (c) <
        then_branch = one () => (float[n, 1] p) {
          p = ai.onnx.ml.LinearRegressor <coefficients: floats = [0.5, 2.0]> (x)
        },
        else_branch = other () => (float[n, 1] q) {
          t = ai.onnx.ml.LinearRegressor <coefficients: floats = [1.0, -1.0]> (x)
          q = ai.onnx.ml.LinearRegressor <coefficients: floats = [3.0]> (t)
        }>
    }
    """
    session = check(model(text), *[{"c": flag(value), "x": floats(2, 2)} for value in (True, False)])
    assert "If" not in on_device(session)


# ---- Loop ----

POWERS = """
grow (int64 count, bool go, float[n] x) => (float[n] y, float[k, n] all, int64[k] numbers) {
  y, all, numbers = Loop (count, go, x) <
    body = step (int64 i, bool c, float[n] v) => (bool again, float[n] next, float[n] out, int64 number) {
      t = Cast <to = 1> (i)
      u = Add (v, t)
      next = Sub (u, x)
      out = Mul (next, x)
      number = Identity (i)
      again = Identity (c)
    }>
}
"""


def growth(count, size=5, go=True):
    return {"count": number(count), "go": flag(go), "x": floats(size)}


@pytest.mark.parametrize("opset", VERSIONS["Loop"])
def test_loop_of_every_version(opset):
    check(model(POWERS, opset), growth(4), growth(1, 3), growth(0), growth(17, 1), takes=["Loop", "Add", "Mul"])


def test_loop_that_never_begins():
    check(model(POWERS), growth(0), growth(5, go=False), growth(3, 0), growth(0, 0), takes=["Loop"])


def test_long_loop_over_large_values():
    check(model(POWERS), growth(200, 1000), takes=["Loop"])


def test_loop_ends_by_a_condition_of_the_device():
    """As many iterations as halving takes; the trip count is left out."""
    text = """
    halve (float x) => (float y, float[k] all) {
      yes = Constant <value = bool {1}> ()
      y, all = Loop (, yes, x) <
        body = step (int64 i, bool c, float v) => (bool again, float next, float out) {
          half = Constant <value = float {0.5}> ()
          one = Constant <value = float {1}> ()
          next = Mul (v, half)
          again = Greater (next, one)
          out = Identity (next)
        }>
    }
    """
    check(model(text), *[{"x": np.array(value, np.float32)} for value in (100, 0.1, 1e6)], takes=["Loop", "Mul"])


def test_loop_arithmetic_of_the_iteration_stays_on_the_host():
    text = """
    pick (int64 count, float[10, 3] x) => (float[k, 3] rows) {
      yes = Constant <value = bool {1}> ()
      rows = Loop (count, yes) <
        body = step (int64 i, bool c) => (bool again, float[3] row) {
          three = Constant <value = int64 {3}> ()
          seven = Constant <value = int64 {7}> ()
          at = Add (i, three)
          again = Less (at, seven)
          taken = Gather <axis = 0> (x, at)
          row = Exp (taken)
        }>
    }
    """
    session = check(model(text), {"count": number(9), "x": floats(10, 3)}, {"count": number(2), "x": floats(10, 3)})
    assert {"Gather", "Exp", "Loop"} <= set(on_device(session))
    assert "Less" not in on_device(session) and "Add" not in on_device(session)


def test_trip_count_that_is_a_value_of_the_loop_too():
    """One value that the node wants on the host and as a value it carries, and that the body captures."""
    text = """
    sum (int64 given, int64[2] x) => (int64 y, int64[2] z, int64[k, 2] all) {
      two = Constant <value = int64 {2}> ()
      count = Add (given, two)
      yes = Constant <value = bool {1}> ()
      y, z, all = Loop (count, yes, count, x) <
        body = step (int64 i, bool c, int64 v, int64[2] w) => (bool again, int64 next, int64[2] w2, int64[2] out) {
          next = Add (v, count)
          w2 = Mul (w, next)
          out = Sub (w2, given)
          again = Identity (c)
        }>
    }
    """
    feeds = [{"given": number(value), "x": np.array([3, -1])} for value in (1, 3, -2)]
    check(model(text), *feeds)


def test_carried_value_that_changes_its_shape():
    text = """
    grow (int64 count, float[n] x) => (float[m] y) {
      yes = Constant <value = bool {1}> ()
      y = Loop (count, yes, x) <
        body = step (int64 i, bool c, float[p] v) => (bool again, float[q] next) {
          t = Exp (x)
          next = Concat <axis = 0> (v, t)
          again = Identity (c)
        }>
    }
    """
    check(model(text), *[{"count": number(n), "x": floats(3)} for n in (0, 1, 6)], takes=["Loop", "Concat"])


def test_results_of_different_shapes_are_refused():
    """They cannot be put together; the sentence says so, and the session lives on."""
    text = """
    grow (int64 count, float[n] x) => (float[m] y, float all) {
      yes = Constant <value = bool {1}> ()
      y, all = Loop (count, yes, x) <
        body = step (int64 i, bool c, float[p] v) => (bool again, float[q] next, float[r] out) {
          next = Concat <axis = 0> (v, x)
          out = Exp (next)
          again = Identity (c)
        }>
    }
    """
    proto = parser.parse_model(f'<ir_version: 9, opset_import: ["" : {OPSET}]>\n' + text)
    proto.graph.output[1].type.tensor_type.ClearField("shape")
    session = exact(proto.SerializeToString())
    assert "Loop" in on_device(session)
    for count in (3, 2):
        with pytest.raises(Exception, match=r"(?i)iteration|shape|inconsistent"):
            session.run(None, {"count": number(count), "x": floats(3)})
        one = session.run(None, {"count": number(1), "x": floats(3)})
        np.testing.assert_allclose(one[1][0], np.exp(one[0]), rtol=1e-5)


@pytest.mark.parametrize("kind", TYPES)
def test_loop_carries_every_type(kind):
    text = f"""
    carry (int64 count, {kind}[2, 3] x) => ({kind}[2, 3] y, {kind}[k, 3, 2] all) {{
      yes = Constant <value = bool {{1}}> ()
      y, all = Loop (count, yes, x) <
        body = step (int64 i, bool c, {kind}[2, 3] v) => (bool again, {kind}[2, 3] next, {kind}[3, 2] out) {{
          out = Transpose <perm = [1, 0]> (v)
          u = Transpose <perm = [1, 0]> (out)
          w = Concat <axis = 0> (u, v)
          ends = Constant <value = int64[2] {{1, 3}}> ()
          next = Gather <axis = 0> (w, ends)
          again = Identity (c)
        }}>
    }}
    """
    values = np.arange(6).reshape(2, 3).astype(NUMPY.get(kind, kind))
    check(model(text), *[{"count": number(n), "x": values} for n in (0, 3)], takes=["Loop", "Transpose"])


def test_carried_strings_stay_on_the_cpu():
    text = """
    words (int64 count, float[2] x, string[2] w) => (float[2] y, string[2] last) {
      yes = Constant <value = bool {1}> ()
      y, last = Loop (count, yes, x, w) <
        body = step (int64 i, bool c, float[2] v, string[2] u) => (bool again, float[2] next, string[2] out) {
          zero = Constant <value = int64[2] {1, 0}> ()
          next = Exp (v)
          out = Gather (u, zero)
          again = Identity (c)
        }>
    }
    """
    for count in (0, 3):
        feed = {"count": number(count), "x": -np.abs(floats(2)), "w": np.array(["a", "b"], object)}
        session = exact(model(text))
        y, words = session.run(None, feed)
        want = ort.InferenceSession(model(text), providers=[provider.CPU]).run(None, feed)
        np.testing.assert_allclose(y, want[0], rtol=1e-5)
        assert words.tolist() == want[1].tolist() == (["a", "b"] if count == 0 else ["b", "a"])
        assert "Exp" in on_device(session) and "Loop" not in on_device(session)


def test_captured_strings():
    """A string that is only used within the body, beside work for the device."""
    text = """
    words (int64 count, float[2] x, string[2] w) => (float[2] y) {
      yes = Constant <value = bool {1}> ()
      y = Loop (count, yes, x) <
        body = step (int64 i, bool c, float[2] v) => (bool again, float[2] next) {
          same = Equal (w, w)
          t = Cast <to = 1> (same)
          next = Add (v, t)
          again = Identity (c)
        }>
    }
    """
    feed = {"count": number(3), "x": floats(2), "w": np.array(["a", "b"], object)}
    check(model(text, 19), feed, takes=["Add"])


# ---- Scan ----

SCAN = """
sums (float[3] start, float[{a}, 3] x, float[3, {a}] w) => (float[3] last, float[3, {a}] sums, float[{a}, 3] squares) {{
  last, sums, squares = Scan <num_scan_inputs = 2, {attributes}
    body = step (float[3] sum, float[3] row, float[3] column) => (float[3] next, float[3] out, float[3] square) {{
      t = Mul (row, column)
      next = Add (sum, t)
      out = Identity (next)
      square = Mul (t, t)
    }}> (start, x, w)
}}
"""
AXES = "scan_input_axes = [0, 1], scan_output_axes = [1, 0],"
BACKWARDS = AXES + "scan_input_directions = [1, 0], scan_output_directions = [0, 1],"


def scan_feed(count):
    return {"start": floats(3), "x": floats(count, 3, seed=1), "w": floats(3, count, seed=2)}


@pytest.mark.parametrize("opset", VERSIONS["Scan"])
def test_scan_of_every_version(opset):
    text = SCAN.format(a="n", attributes=AXES)
    check(model(text, opset), scan_feed(5), scan_feed(1), scan_feed(64), takes=["Scan", "Mul"])


def test_scan_backwards():
    check(model(SCAN.format(a="n", attributes=BACKWARDS)), scan_feed(6), scan_feed(2), takes=["Scan"])


def test_scan_of_version_8_stays_on_the_cpu():
    """ONNX Runtime makes no kernel of that version for a plugin. Its body is on the device all the same."""
    body = helper.make_graph(
        [helper.make_node("Exp", ["row"], ["e"]), helper.make_node("Mul", ["e", "sum"], ["next"])],
        "step",
        [helper.make_tensor_value_info(name, 1, [3]) for name in ("sum", "row")],
        [helper.make_tensor_value_info(name, 1, [3]) for name in ("next", "e")],
    )
    nodes = [helper.make_node("Scan", ["lengths", "start", "x"], ["last", "all"], body=body, num_scan_inputs=1)]
    inputs = [helper.make_tensor_value_info(name, 1, shape) for name, shape in (("start", [2, 3]), ("x", [2, 5, 3]))]
    inputs.append(helper.make_tensor_value_info("lengths", 7, [2]))
    outputs = [helper.make_tensor_value_info(name, 1, shape) for name, shape in (("last", [2, 3]), ("all", [2, 5, 3]))]
    graph = helper.make_graph(nodes, "batches", inputs, outputs)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 8)], ir_version=3)
    for lengths in ([5, 3], [1, 5]):
        feed = {"start": floats(2, 3), "x": floats(2, 5, 3), "lengths": np.array(lengths)}
        session = check(proto.SerializeToString(), feed, takes=["Exp", "Mul"])
    assert "Scan" not in on_device(session)


@pytest.mark.parametrize("rank", range(1, 7))
def test_scan_along_every_axis(rank):
    """Input axis `a` comes back as output axis `b`; both are transposes on the device."""
    dims = [2, 3, 4, 5, 2, 3][:rank]
    feed = {"x": floats(*dims)}
    for given in range(rank):
        for wanted in range(-rank, rank):
            inner = dims[:given] + dims[given + 1 :]
            outer = inner.copy()
            outer.insert(wanted if wanted >= 0 else wanted + rank, dims[given])
            body = helper.make_graph(
                [helper.make_node("Exp", ["row"], ["out"])],
                "step",
                [helper.make_tensor_value_info("row", 1, inner)],
                [helper.make_tensor_value_info("out", 1, inner)],
            )
            node = helper.make_node("Scan", ["x"], ["y"], body=body, num_scan_inputs=1, scan_input_axes=[given],
                                    scan_output_axes=[wanted])
            graph = helper.make_graph([node], "axes", [helper.make_tensor_value_info("x", 1, dims)],
                                      [helper.make_tensor_value_info("y", 1, outer)])
            proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)], ir_version=8)
            check(proto.SerializeToString(), feed, takes=["Scan"])
            if rank > 3 and wanted % 2 == 0 and given % 2 == 0:
                break


@pytest.mark.parametrize("kind", TYPES)
def test_scan_moves_every_type(kind):
    text = f"""
    turn ({kind}[2, 3, 4] x) => ({kind}[2, 4, 3] y) {{
      y = Scan <num_scan_inputs = 1, scan_input_axes = [1], scan_output_axes = [-1],
        body = step ({kind}[2, 4] part) => ({kind}[2, 4] out) {{
          t = Transpose <perm = [1, 0]> (part)
          out = Transpose <perm = [1, 0]> (t)
        }}> (x)
    }}
    """
    values = (np.arange(24).reshape(2, 3, 4) * 3 % 17).astype(NUMPY.get(kind, kind))
    check(model(text), {"x": values}, takes=["Scan"])


def test_scan_of_nothing_is_refused():
    """ONNX Runtime's own Scan wants at least one step, on every provider."""
    session = check(model(SCAN.format(a="n", attributes=AXES)), scan_feed(2), takes=["Scan"])
    with pytest.raises(Exception, match="Scan"):
        session.run(None, scan_feed(0))
    check(model(SCAN.format(a="n", attributes=AXES)), scan_feed(2))


# ---- bodies in bodies ----

NESTED = """
table (int64 rows, int64 columns, float[4] x) => (float[r, c, 4] y) {
  yes = Constant <value = bool {1}> ()
  y = Loop (rows, yes) <
    body = row (int64 i, bool c) => (bool again, float[c, 4] line) {
      a = Cast <to = 1> (i)
      again = Identity (c)
      line = Loop (columns, yes) <
        body = column (int64 j, bool d) => (bool more, float[4] cell) {
          b = Cast <to = 1> (j)
          e = Greater (b, a)
          cell = If (e) <
            then_branch = upper () => (float[4] p) { s = Mul (x, b) p = Add (s, a) },
            else_branch = lower () => (float[4] q) { t = Mul (x, a) q = Sub (t, b) }>
          more = Identity (d)
        }>
    }>
}
"""


def test_nested_bodies_capture_from_every_level():
    feeds = [{"rows": number(r), "columns": number(c), "x": floats(4)} for r, c in ((3, 4), (1, 1), (2, 7))]
    check(model(NESTED), *feeds, takes=["Loop", "If", "Mul", "Sub"])


def test_scan_within_a_loop_within_an_if():
    text = """
    deep (bool c, int64 count, float[2, 3] x) => (float[2, 3] y) {
      y = If (c) <
        then_branch = work () => (float[2, 3] p) {
          yes = Constant <value = bool {1}> ()
          p = Loop (count, yes, x) <
            body = step (int64 i, bool d, float[2, 3] v) => (bool again, float[2, 3] next) {
              again = Identity (d)
              next = Scan <num_scan_inputs = 1, scan_input_axes = [1], scan_output_axes = [1],
                body = inner (float[2] column) => (float[2] out) {
                  s = Softmax <axis = 0> (column)
                  out = Add (s, column)
                }> (v)
            }>
        },
        else_branch = none () => (float[2, 3] q) { q = Neg (x) }>
    }
    """
    feeds = [{"c": flag(c), "count": number(n), "x": floats(2, 3)} for c, n in ((True, 3), (False, 3), (True, 0))]
    check(model(text), *feeds, takes=["If", "Loop", "Scan", "Softmax"])


def test_weights_within_a_body():
    """An initializer of the body, and one of the graph that only the body uses."""
    proto = parser.parse_model(f'<ir_version: 9, opset_import: ["" : {OPSET}]>\n' + """
    layers (int64 count, float[2, 4] x) => (float[2, 4] y) {
      yes = Constant <value = bool {1}> ()
      y = Loop (count, yes, x) <
        body = step (int64 i, bool c, float[2, 4] v) => (bool again, float[2, 4] next) {
          h = MatMul (v, outer)
          s = Mul (h, inner)
          next = Tanh (s)
          again = Identity (c)
        }>
    }
    """)
    proto.graph.initializer.append(numpy_helper.from_array(floats(4, 4, seed=5), "outer"))
    body = next(node for node in proto.graph.node if node.op_type == "Loop").attribute[0].g
    body.initializer.append(numpy_helper.from_array(floats(4, seed=6), "inner"))
    check(proto.SerializeToString(), {"count": number(3), "x": floats(2, 4)}, takes=["Loop", "MatMul"])


# ---- many at once, and faults ----


# The values that a node on the CPU gives are copied by ONNX Runtime, into memory that it asks for without a stream.
FROM_THE_CPU = """
grow (int64 count, float[n, 4] x, float[n, 1] start) => (float[n, 4] y, float[n, 1] last, int64[k] numbers) {
  yes = Constant <value = bool {1}> ()
  y, last, numbers = Loop (count, yes, x, start) <
    body = step (int64 i, bool c, float[n, 4] v, float[n, 1] s)
        => (bool again, float[n, 4] next, float[n, 1] d, int64 number) {
      w = Mul (v, s)
      next = Tanh (w)
      d = ai.onnx.ml.LinearRegressor <coefficients: floats = [0.5, -1.5, 2.0, 1.0]> (next)
      number = Identity (i)
      again = Identity (c)
    }>
}
"""
THREADS, RUNS_A_THREAD = 6, 40


def same_in_threads(session, reference, feeds):
    wanted = [reference.run(None, feed) for feed in feeds]

    def work(start):
        for i in range(RUNS_A_THREAD):
            at = (start + i) % len(feeds)
            compare(session.run(None, feeds[at]), wanted[at])

    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(work, range(THREADS)))


# The states of a Scan are in memory that ONNX Runtime asks for without a stream, and gives back while the last
# iteration is under way.
STATES = """
states (float[n, 64] x, float[64] start) => (float[64] y, float[n, 64] all) {
  last, all = Scan <num_scan_inputs = 1,
    body = step (float[64] v, float[64] s) => (float[64] next, float[64] out) {
      a = Add (v, s)
      next = Tanh (a)
      out = Mul (next, s)
    }> (start, x)
  y = Neg (last)
}
"""


def scan_in_threads():
    """By ONNX Runtime's own Scan, which is that of sessions without islands."""
    session = exact(model(STATES), fusion="0")
    assert {"Scan", "Tanh"} <= set(on_device(session))
    reference = ort.InferenceSession(model(STATES), providers=[provider.CPU])
    feeds = [{"x": floats(size, 64, seed=size), "start": floats(64, seed=7 + size)} for size in (5, 3, 8, 1)]
    same_in_threads(session, reference, feeds)


def test_states_of_scans_from_many_threads():
    scan_in_threads()


@pytest.mark.parametrize("pool", ["", "arena.guard=1,arena.poison=1"])
@pytest.mark.parametrize("mode", ["threaded", "adversarial:3"])
def test_states_of_scans_of_a_device_with_queues(mode, pool):
    finished(child("import test_control_flow; test_control_flow.scan_in_threads()", MILLPOND_DEVICE="host",
                   MILLPOND_HOST=mode, MILLPOND_POOL=pool))


# Whether there is another iteration is computed on the device, and read by ONNX Runtime's own Loop.
UNTIL = """
until (float[n] x, int64 t) => (float[n] y, float[m, 1] all) <float[1] limit = {40}, bool[1] cond = {1}> {
  y, all = Loop (t, cond, x) <
    body = step (int64[1] i, bool[1] ci, float[n] v) => (bool[1] co, float[n] u, float[1] out) {
      out = Cast <to = 1> (i)
      w = Add (v, x)
      u = Add (w, out)
      s = ReduceMax <keepdims = 1> (u)
      co = Less (s, limit)
    }>
}
"""


def loops_until(runs=6):
    reference = ort.InferenceSession(model(UNTIL), providers=[provider.CPU])
    for fusion in ("0", "1"):
        session = exact(model(UNTIL), fusion=fusion)
        for i in range(runs):
            feed = {"x": floats(5, seed=i) + 1, "t": number(30)}
            compare(session.run(None, feed), reference.run(None, feed))


@pytest.mark.parametrize("mode", ["eager", "threaded", "adversarial:3"])
def test_conditions_of_a_device_with_queues(mode):
    finished(child("import test_control_flow; test_control_flow.loops_until()", MILLPOND_DEVICE="host",
                   MILLPOND_HOST=mode))


def run_in_threads():
    session = exact(model(FROM_THE_CPU))
    assert {"Loop", "Tanh"} <= set(on_device(session))
    assert not [operator for operator in on_device(session) if "Regressor" in operator]
    reference = ort.InferenceSession(model(FROM_THE_CPU), providers=[provider.CPU])
    sizes = ((3, 5), (1, 9), (8, 2), (0, 4))
    feeds = [{"count": number(count), "x": floats(size, 4), "start": floats(size, 1)} for count, size in sizes]
    same_in_threads(session, reference, feeds)


def test_loops_from_many_threads():
    run_in_threads()


@pytest.mark.parametrize("mode", ["threaded", "adversarial:3"])
def test_loops_from_many_threads_of_a_device_with_queues(mode):
    done = child("import test_control_flow; test_control_flow.run_in_threads()", MILLPOND_DEVICE="host",
                 MILLPOND_HOST=mode)
    finished(done)


def test_fault_within_a_body():
    """A node of the body that cannot run: the error names it, and the session lives on."""
    text = """
    products (int64 count, float[2, n] x, float[m, 2] w) => (float[2, 2] y) {
      yes = Constant <value = bool {1}> ()
      zero = Constant <value = float[2, 2] {0, 0, 0, 0}> ()
      y = Loop (count, yes, zero) <
        body = step (int64 i, bool c, float[2, 2] v) => (bool again, float[2, 2] next) {
          p = MatMul (x, w)
          next = Add (v, p)
          again = Identity (c)
        }>
    }
    """
    session = exact(model(text))
    good = {"count": number(2), "x": floats(2, 3), "w": floats(3, 2)}
    for _ in range(2):
        np.testing.assert_allclose(session.run(None, good)[0], 2 * good["x"] @ good["w"], **tolerance.FLOAT32)
        with pytest.raises(Exception, match="MatMul"):
            session.run(None, {**good, "w": floats(4, 2)})


def test_outputs_bound_to_the_device():
    session = exact(model(POWERS))
    binding = session.io_binding()
    feed = growth(3)
    binding.bind_cpu_input("count", feed["count"])
    binding.bind_cpu_input("go", feed["go"])
    binding.bind_ortvalue_input("x", ort.OrtValue.ortvalue_from_numpy(feed["x"], "cuda", 0))
    y = ort.OrtValue.ortvalue_from_shape_and_type([5], np.float32, "cuda", 0)
    gathered = ort.OrtValue.ortvalue_from_shape_and_type([3, 5], np.float32, "cuda", 0)
    binding.bind_ortvalue_output("y", y)
    binding.bind_ortvalue_output("all", gathered)
    session.run_with_iobinding(binding)
    binding.synchronize_outputs()
    want = ort.InferenceSession(model(POWERS), providers=[provider.CPU]).run(None, feed)
    compare([y.numpy(), gathered.numpy()], want[:2])


def test_every_operator_is_registered():
    for name, versions in VERSIONS.items():
        for opset in (*versions, 26):
            since = schema(name, opset).since_version
            kinds = next(registry().types("", name, since))["V"]
            assert {"tensor(float)", "tensor(bool)", "tensor(bfloat16)"} - kinds <= {"tensor(bfloat16)"}
            assert ("tensor(float8e5m2)" in kinds) == (since >= 19), (name, since)
