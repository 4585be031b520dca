#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Bytes a second of operators that memory bounds, over those of a plain device copy and beside PyTorch's kernels.

    bench/bench_bandwidth.py [--only TEXT] [--elements N] [--name NAME]

A model of one node runs on tensors bound on the device, many times without waiting in between; its bytes are those of
its inputs and outputs, each read or written once. A tensor has as many bytes in float16 as in float32, so that what a
call costs weighs the same in both. The copy is PyTorch's, or where that is missing a `Slice` of all. The goal is 0.85
of the copy for element-wise operators and 0.7 for the others. The results go to
bench/results/bandwidth-NAME.json.
"""

import argparse
import math
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / folder) for folder in ("demo", "tests/models", "tests/ep", "tools")]

import bench_models  # noqa: E402  (beside this file)
import machine  # noqa: E402
import onnxruntime as ort  # noqa: E402
import provider  # noqa: E402

try:
    import torch
except ImportError:
    torch = None

ELEMENTS = 1 << 27
TURNS, REPEATS = 10, 5
PERIOD = 1_000_003  # random values repeat after so many
POINTWISE, ROWS, MOVED = ("element-wise", 0.85), ("rows", 0.7), ("moved", 0.7)
TYPES = {"float": (np.float32, TensorProto.FLOAT), "float16": (np.float16, TensorProto.FLOAT16)}


@dataclass
class Row:
    """A node: shapes of its inputs of the row's type, further constant inputs, and what PyTorch would call."""

    op: str
    kind: tuple
    shapes: list
    peer: object = None  # a function of the inputs and `constants` as tensors
    constants: list = field(default_factory=list)  # further inputs; None for one left out
    attrs: dict = field(default_factory=dict)
    outputs: int = 1
    note: str = ""
    low: float = -2.0
    read: float = 1.0  # share of the first input that is read


def rows(n):
    """The commonest operators of the trained models that memory bounds, at `n` elements."""
    side, wide = 1 << (n.bit_length() // 2), 1024
    square, long, image = [side, n // side], [n // wide, wide], [n >> 18, 64, 64, 64]
    i64 = np.int64
    f = torch.nn.functional if torch else None
    yield from (Row(op, POINTWISE, [[n], [n]], peer) for op, peer in (
        ("Add", lambda x, y: x + y), ("Mul", lambda x, y: x * y), ("Sub", lambda x, y: x - y)))
    yield Row("Div", POINTWISE, [[n], [n]], lambda x, y: x / y, low=0.5)
    yield Row("Add", POINTWISE, [long, [wide]], lambda x, y: x + y, note="bias")
    yield Row("Mul", POINTWISE, [long, [n // wide, 1]], lambda x, y: x * y, note="of rows")
    yield Row("Equal", POINTWISE, [[n], [n]], lambda x, y: x == y)
    yield from (Row(op, POINTWISE, [[n]], peer, low=0.1) for op, peer in (
        ("Sqrt", lambda x: x.sqrt()), ("Reciprocal", lambda x: x.reciprocal()), ("Sigmoid", lambda x: x.sigmoid()),
        ("Neg", lambda x: -x), ("Relu", lambda x: x.relu()), ("Floor", lambda x: x.floor()),
        ("Erf", lambda x: x.erf()), ("Sin", lambda x: x.sin()), ("Tanh", lambda x: x.tanh()),
        ("HardSigmoid", lambda x: f.hardsigmoid(x)), ("LeakyRelu", lambda x: f.leaky_relu(x))))
    yield Row("Pow", POINTWISE, [[n]], lambda x, y: x.pow(2), [np.float32(2)])
    yield Row("Clip", POINTWISE, [[n], [], []], lambda x, a, b: x.clamp(-1, 1))
    yield Row("PRelu", POINTWISE, [image, [64, 1, 1]], lambda x, a: f.prelu(x, a.reshape(-1)))
    yield Row("Where", POINTWISE, [[n], [n]], lambda x, y, c: torch.where(c, x, y),
              [np.resize([True, False, False], n)], note="condition first")
    yield Row("Cast", POINTWISE, [[n]], lambda x: x.to(torch.bfloat16), attrs={"to": TensorProto.BFLOAT16})
    yield Row("BatchNormalization", POINTWISE, [image, [64], [64], [64], [64]],
              lambda x, s, b, m, v: f.batch_norm(x, m, v, s, b), low=0.5)
    yield Row("ReduceMean", ROWS, [long], lambda x, a: x.mean(-1), [np.array([-1], i64)])
    yield Row("ReduceMean", ROWS, [long], lambda x, a: x.mean(0), [np.array([0], i64)], note="of columns")
    yield Row("ReduceSum", ROWS, [[n]], lambda x: x.sum(), note="of all")
    yield Row("ReduceMax", ROWS, [[8, n // 8]], lambda x, a: x.amax(-1), [np.array([-1], i64)], note="long rows")
    yield Row("GlobalAveragePool", ROWS, [image], lambda x: x.mean((2, 3)))
    yield Row("Softmax", ROWS, [long], lambda x: x.softmax(-1), attrs={"axis": -1})
    yield Row("Softmax", ROWS, [[n >> 14, 1 << 14]], lambda x: x.softmax(-1), attrs={"axis": -1}, note="16384")
    yield Row("LayerNormalization", ROWS, [long, [wide], [wide]],
              lambda x, s, b: f.layer_norm(x, (wide,), s, b), attrs={"axis": -1})
    yield Row("Transpose", MOVED, [square], lambda x: x.t().contiguous(), attrs={"perm": [1, 0]})
    yield Row("Transpose", MOVED, [[n >> 19, 128, 64, 64]], lambda x: x.permute(0, 2, 1, 3).contiguous(),
              attrs={"perm": [0, 2, 1, 3]}, note="heads")
    yield Row("Transpose", MOVED, [image], lambda x: x.permute(0, 2, 3, 1).contiguous(), attrs={"perm": [0, 2, 3, 1]},
              note="channels last")
    yield Row("Concat", MOVED, [[n // wide, wide // 2], [n // wide, wide // 2]], lambda x, y: torch.cat((x, y), 1),
              attrs={"axis": 1})
    yield Row("Split", MOVED, [long], lambda x: [part.contiguous() for part in x.chunk(2, 1)],
              attrs={"axis": 1, "num_outputs": 2}, outputs=2)
    yield Row("Slice", MOVED, [long], lambda x, *_: x[:, 4 : wide // 2 + 4].contiguous(),
              [np.array([4], i64), np.array([wide // 2 + 4], i64), np.array([1], i64)], read=0.5)
    yield Row("Expand", MOVED, [[n // wide, 1]], lambda x, _: x.expand(-1, wide).contiguous(),
              [np.array([n // wide, wide], i64)])
    picked = np.random.default_rng(1).permutation(n // wide).astype(i64)
    yield Row("Gather", MOVED, [long], lambda x, i: x[i], [picked])
    yield Row("Pad", MOVED, [[n // wide, wide - 8]], lambda x, _: f.pad(x, (4, 4)), [np.array([0, 4, 0, 4], i64)])


def model_of(row, kind):
    """The node's model, and its constants as PyTorch is given them."""
    numpy_type, proto = TYPES[kind]
    names = [f"x{i}" for i in range(len(row.shapes))]
    constants = [c.astype(numpy_type) if isinstance(c, np.floating) else c for c in row.constants]
    held = [numpy_helper.from_array(np.asarray(c), f"c{i}") for i, c in enumerate(constants)]
    order = [tensor.name for tensor in held] + names if row.op == "Where" else names + [t.name for t in held]
    outputs = [f"y{i}" for i in range(row.outputs)]
    node = helper.make_node(row.op, order, outputs, **row.attrs)
    inputs = [helper.make_tensor_value_info(x, proto, shape) for x, shape in zip(names, row.shapes, strict=True)]
    # Inputs of this size as a graph's own would pass the limit of a file.
    large = [tensor for tensor, c in zip(held, constants, strict=True) if np.size(c) > 1 << 20]
    inputs += [helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in large]
    results = [helper.make_empty_tensor_value_info(y) for y in outputs]
    graph = helper.make_graph([node], "one", inputs, results, [t for t in held if t not in large])
    opset = [helper.make_opsetid("", 21)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=10).SerializeToString()
    given = {t.name: np.asarray(c) for t, c in zip(held, constants, strict=True) if t in large}
    return model, given, constants


def seconds_of(queue, wait):
    """The least mean time of a call over a few turns; `wait` returns once all that is queued has run."""
    queue()
    wait()
    best = float("inf")
    for _ in range(REPEATS):
        started = time.perf_counter()
        for _ in range(TURNS):
            queue()
        wait()
        best = min(best, (time.perf_counter() - started) / TURNS)
    return best


def ours(model, inputs):
    """(seconds, bytes of all inputs and outputs)"""
    session = provider.session(model, options=provider.session_options(threads=1))
    where = provider.assignment(session)
    assert set(where) == {provider.NAME}, where
    binding, outputs = bench_models.bound(session, inputs)
    options = ort.RunOptions()
    options.add_run_config_entry("disable_synchronize_execution_providers", "1")
    seconds = seconds_of(lambda: session.run_with_iobinding(binding, options), binding.synchronize_outputs)
    return seconds, sum(out.tensor_size_in_bytes() for out in outputs)


def theirs(row, inputs, constants):
    values = [torch.from_numpy(x).cuda() for x in inputs.values() if x.dtype != np.bool_ and x.dtype != np.int64]
    values += [torch.from_numpy(np.asarray(c)).cuda() for c in constants]
    seconds = seconds_of(lambda: row.peer(*values), torch.cuda.synchronize)
    torch.cuda.empty_cache()
    return seconds


def copy_rate(n):
    """Bytes a second that a plain copy of 4 n bytes reads and writes."""
    if torch and torch.cuda.is_available():
        source = torch.zeros(n, device="cuda")
        target = torch.empty_like(source)
        seconds = seconds_of(lambda: target.copy_(source), torch.cuda.synchronize)
        return 8 * n / seconds
    bounds = [np.array([0], np.int64), np.array([n], np.int64)]
    model, _, _ = model_of(Row("Slice", MOVED, [[n]], None, bounds), "float")
    seconds, _ = ours(model, {"x0": np.zeros(n, np.float32)})
    return 8 * n / seconds


def measure(row, kind, rate):
    numpy_type, _ = TYPES[kind]
    generator = np.random.default_rng(2)
    inputs = {}
    for i, shape in enumerate(row.shapes):
        values = generator.random(min(math.prod(shape), PERIOD), np.float32) * (2 - row.low) + row.low
        inputs[f"x{i}"] = np.resize(values.astype(numpy_type), shape)
    model, given, constants = model_of(row, kind)
    seconds, written = ours(model, inputs | given)
    read = sum(x.nbytes for x in (inputs | given).values()) - (1 - row.read) * inputs["x0"].nbytes
    result = {"op": row.op, "note": row.note, "kind": row.kind[0], "type": kind, "ms": round(seconds * 1e3, 4),
              "of_copy": round((read + written) / seconds / rate, 3), "goal": row.kind[1]}
    if torch and torch.cuda.is_available():
        peer = theirs(row, inputs, constants)
        result |= {"torch_ms": round(peer * 1e3, 4), "over_torch": round(seconds / peer, 3)}
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="measure only operators whose name holds this")
    parser.add_argument("--elements", type=int, default=ELEMENTS, help="of the largest float32 tensor, a power of two")
    parser.add_argument("--name", help="name of the result file; by default after the device")
    args = parser.parse_args()
    device = provider.register()[0]
    rate = copy_rate(args.elements)
    result = {**bench_models.setting(device), "command": machine.command("bench/bench_bandwidth.py"),
              "elements": args.elements, "copy_gb_s": round(rate / 1e9, 1), "torch": torch and torch.__version__}
    print(f"{result['device']}: a copy moves {result['copy_gb_s']} GB/s; shares of that, and times over PyTorch's")
    found = []
    for pair in zip(*(rows(args.elements * 4 // np.dtype(numpy_type).itemsize) for numpy_type, _ in TYPES.values()),
                    strict=True):
        for row, kind in zip(pair, TYPES, strict=True):
            if args.only in row.op:
                one = measure(row, kind, rate)
                found.append(one)
                mark = " " if one["of_copy"] >= one["goal"] else "<"
                name = f"{one['op']} {one['note']}"
                print(f"{name:28s} {kind:8s} {one['ms']:9.3f} ms {one['of_copy']:6.2f} {mark} {one['goal']:.2f}"
                      f"  {one.get('over_torch', '')}", flush=True)
    result["rows"] = found
    machine.save(result, f"bandwidth-{args.name or machine.file_name(result['device'])}")


if __name__ == "__main__":
    main()
