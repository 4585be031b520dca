# SPDX-License-Identifier: Apache-2.0
"""Sequences: ONNX Runtime's interface for providers gives no way to make one, nor to read one in a device's memory, so
their operators stay on the CPU. Tensors before and behind them are on the device all the same.
"""

import numpy as np
import onnxruntime as ort
import provider
import pytest
from test_control_flow import check, floats, model, number, on_device

SEQUENCE_OPERATORS = {
    "ConcatFromSequence",
    "SequenceAt",
    "SequenceConstruct",
    "SequenceEmpty",
    "SequenceErase",
    "SequenceInsert",
    "SequenceLength",
    "SplitToSequence",
}

CASES = {
    "construct and at": (
        """
        g (float[2, 3] x, float[4] y, int64 i) => (float[a] z) {
          p = Exp (x)
          q = Neg (y)
          s = SequenceConstruct (p, q, p)
          t = SequenceAt (s, i)
          d = ReduceMax <keepdims = 0> (p)
          z = Mul (t, d)
        }
        """,
        [{"x": floats(2, 3), "y": floats(4), "i": number(i)} for i in (0, 1, -1)],
        {"Exp", "Neg", "Mul"},
    ),
    "insert, erase and length": (
        """
        g (float[2] x, int64 i) => (float[2] z, int64 n) {
          p = Exp (x)
          e = SequenceEmpty ()
          s1 = SequenceInsert (e, p)
          q = Neg (p)
          s2 = SequenceInsert (s1, q)
          zero = Constant <value = int64 {0}> ()
          s3 = SequenceInsert (s2, x, zero)
          s4 = SequenceErase (s3, i)
          n = SequenceLength (s4)
          t = SequenceAt (s4, zero)
          z = Mul (t, q)
        }
        """,
        [{"x": floats(2), "i": number(i)} for i in (0, 1, 2)],
        {"Exp", "Neg", "Mul"},
    ),
    "split and concat": (
        """
        g (float[n, 4] x) => (float[m, 4] z) {
          p = Exp (x)
          s = SplitToSequence <axis = 0> (p)
          zero = Constant <value = int64 {0}> ()
          first = SequenceAt (s, zero)
          s2 = SequenceInsert (s, first)
          t = ConcatFromSequence <axis = 0> (s2)
          d = ReduceMax <keepdims = 0> (p)
          z = Mul (t, d)
        }
        """,
        [{"x": floats(rows, 4)} for rows in (1, 3, 6)],
        {"Exp", "Mul"},
    ),
    "stack on a new axis": (
        """
        g (float16[3] x) => (float16[2, 3] z) {
          p = Neg (x)
          s = SequenceConstruct (x, p)
          t = ConcatFromSequence <axis = 0, new_axis = 1> (s)
          z = Abs (t)
        }
        """,
        [{"x": floats(3).astype(np.float16)}],
        {"Neg", "Abs"},
    ),
    "carried by a loop": (
        """
        g (int64 count, float[2] x) => (float[m] z) {
          yes = Constant <value = bool {1}> ()
          e = SequenceEmpty ()
          s, last = Loop (count, yes, e, x) <
            body = step (int64 i, bool c, seq(float[2]) u, float[2] v) => (bool again, seq(float[2]) w, float[2] y) {
              y = Tanh (v)
              w = SequenceInsert (u, y)
              again = Identity (c)
            }>
          t = ConcatFromSequence <axis = 0> (s)
          d = ReduceMax <keepdims = 0> (x)
          z = Mul (t, d)
        }
        """,
        [{"count": number(n), "x": floats(2)} for n in (1, 4)],
        {"Tanh", "Mul"},
    ),
    "chosen by a condition": (
        """
        g (bool c, float[2] x) => (float[m] z) {
          p = Exp (x)
          s = If (c) <
            then_branch = one () => (seq(float[2]) a) { q = Neg (p) a = SequenceConstruct (p, q) },
            else_branch = two () => (seq(float[2]) b) { r = Abs (x) b = SequenceConstruct (r) }>
          t = ConcatFromSequence <axis = 0> (s)
          d = ReduceMax <keepdims = 0> (p)
          z = Mul (t, d)
        }
        """,
        [{"c": np.array(c), "x": floats(2)} for c in (True, False)],
        {"Exp", "Neg", "Abs", "Mul"},
    ),
    "captured by a body": (
        """
        g (int64 count, float[2] x) => (float[2] z) {
          p = Exp (x)
          s = SequenceConstruct (p, x)
          yes = Constant <value = bool {1}> ()
          z = Loop (count, yes, x) <
            body = step (int64 i, bool c, float[2] v) => (bool again, float[2] y) {
              one = Constant <value = int64 {1}> ()
              t = SequenceAt (s, one)
              y = Add (v, t)
              again = Identity (c)
            }>
        }
        """,
        [{"count": number(n), "x": floats(2)} for n in (0, 3)],
        {"Exp", "Add"},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_sequence(name):
    text, feeds, takes = CASES[name]
    session = check(model(text), *feeds, takes=takes)
    there = set(on_device(session))
    assert not there & SEQUENCE_OPERATORS
    if "seq(" in text or "captured" in name:
        assert not there & {"If", "Loop"}, "a node with a sequence among its values is not for a device"


def test_sequence_as_an_output():
    text = """
    g (float[2] x) => (seq(float[2]) s) {
      p = Exp (x)
      q = Neg (p)
      s = SequenceConstruct (p, q)
    }
    """
    x = floats(2)
    session = provider.session(model(text))
    [given] = session.run(None, {"x": x})
    [want] = ort.InferenceSession(model(text), providers=[provider.CPU]).run(None, {"x": x})
    assert {"Exp", "Neg"} <= set(on_device(session))
    np.testing.assert_allclose(given, want, rtol=1e-5)
