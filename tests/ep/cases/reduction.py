# SPDX-License-Identifier: Apache-2.0
"""Reductions and what is made of them: softmax, normalisation."""

import numpy as np

from cases.kit import ALL, F32, FEW, FLOATS, INF, NAN, NEWEST, D, K, P, R, V, case

# ---- reductions ----
REDUCED_BY = ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSum", "LogSumExp")
REDUCED = ("float", "float16", "bfloat16", "double", "int32", "int64", "int8", "uint8")
for name in map("Reduce{}".format, REDUCED_BY):
    source = {"ReduceLogSum": P, "ReduceProd": lambda shape: R(shape, 0.9, 1.1)}.get(name, R)
    old = 11 if name == "ReduceSum" else 13
    new = (13, NEWEST) if name == "ReduceSum" else (18, NEWEST)
    for axes, keep in (([1], 1), ([-1], 0), ([0], 1), ([0, 2], 0), ([0, 1, 2], 1), ([1, 2], 1)):
        case(name, [source((3, 4, 5)), K(axes)], REDUCED if axes == [1] else FEW, new, keepdims=keep, slack=2)
        case(name, [source((3, 4, 5))], F32, (1, old), axes=axes, keepdims=keep)
    case(name, [source((3, 4, 5))], FEW, (old, *new), note="all")
    case(name, [source((3, 4)), K(np.zeros(0, np.int64))], FEW, new, noop_with_empty_axes=1)
    case(name, [source((2, 3, 2, 1, 2, 1, 2, 2)), K([1, 3, 4, 7])], F32, new)
    long, short = [source((4, 1025)), K([1])], [source((2, 33)), K([1])]
    case(name, long, F32, new, slack=8, runs=[short, long])
    case(name, [source((1025, 4)), K([0])], F32, new, slack=8)
    case(name, [source(())], F32, new, note="scalar")
for name in ("ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd"):
    case(name, [R((3, 0)), K([0])], F32, note="empty kept")
case("ReduceSum", [R((3, 0)), K([1])], F32, note="empty sum")
case("ReduceProd", [R((3, 0)), K([1])], F32, note="empty product")
case("ReduceMax", [V([[NAN, 1], [2, 3]]), K([1])], F32, note="NaN")
for name in ("Softmax", "LogSoftmax"):
    for axis in (-1, 0, 1):
        case(name, [R((3, 4, 5))], FLOATS if axis == -1 else F32, (13,), axis=axis, slack=2)
        case(name, [R((3, 4, 5))], F32, (1, 11), axis=axis % 3, slack=2, note="flattens")
    case(name, [R((2, 1025))], ("float", "float16"), slack=2, runs=[[R((3, 7))], [R((2, 1025))]])
    case(name, [V([[1000.0, 1001.0], [-1000.0, -1000.0]])], ("float", "double"), note="large")
    case(name, [R((0, 3))], F32)
    case(name, [V([[-INF, 0.0, 1.0]])], F32, note="masked")
case("LayerNormalization", [R((3, 4, 5)), R((5,)), R((5,))], FLOATS, (17,), slack=4)
case("LayerNormalization", [R((3, 4, 5)), R((5,))], F32, (17,), slack=4, note="no bias")
case("LayerNormalization", [R((3, 4, 5)), R((4, 5)), R((4, 5))], F32, (17,), axis=1, epsilon=1e-3, slack=4)
case("LayerNormalization", [R((3, 4, 5)), R((5,)), R((5,))], F32, (17,), outputs=3, slack=4, note="mean and deviation")
case("LayerNormalization", [R((2, 1030)), R((1030,)), R((1030,))], ("float", "float16"), (17,), slack=8)

# ---- a factor for each channel, and channels that are moved ----
SCALE, SHIFT, MEAN, VARIANCE = R((3,)), R((3,)), R((3,)), P((3,))
PER_CHANNEL = [SCALE, SHIFT, MEAN, VARIANCE]
case("BatchNormalization", [R((2, 3, 4, 5)), *PER_CHANNEL], FLOATS, (7, 9, 14, 15), slack=4)
for shape in ((2, 3, 7), (4, 3), (1, 3, 2, 3, 4), (0, 3, 4), (3, 3, 33, 31)):
    case("BatchNormalization", [R(shape), *PER_CHANNEL], F32, slack=4, epsilon=0.01, momentum=0.5)
case("BatchNormalization", [R((5,)), R((1,)), R((1,)), R((1,)), P((1,))], F32, (15,), slack=4, note="one dimension")
WIDE_CHANNELS = [D([0.5, -2.0, 3.0], "float"), D([1.0, 0.25, 0.0], "float"), D([0.1, 2.0, -1.0], "float")]
case("BatchNormalization", [R((2, 3, 4)), *WIDE_CHANNELS, D([1.0, 0.5, 4.0], "float")], ("float16", "bfloat16"), (15,),
     slack=4, note="statistics in float")
case("BatchNormalization", [R((2, 3, 4)), *PER_CHANNEL], F32, slack=4, runs=[[R((1, 3, 9)), *PER_CHANNEL]])
for shape in ((2, 3, 4, 5), (4, 3), (2, 3, 33, 31)):
    case("BatchNormalization", [R(shape), *PER_CHANNEL], F32, (14, 15), outputs=3, slack=8, training_mode=1,
         momentum=0.8, epsilon=0.01)
case("LRN", [R((2, 7, 4, 5))], FLOATS, (1, 13), slack=4, size=3)
for attrs in ({"size": 1}, {"size": 5, "alpha": 0.5}, {"size": 9, "alpha": 0.3, "beta": 0.4, "bias": 2.0}):
    case("LRN", [R((1, 7, 3, 5))], F32, (1, 13), slack=4, **attrs)
case("LRN", [R((0, 3, 4, 4))], F32, size=3)
MOVED = [t for t in ALL if t != "bfloat16"]
case("DepthToSpace", [R((2, 12, 3, 5))], MOVED, (1, 11, 13), blocksize=2)
case("DepthToSpace", [R((1, 18, 2, 3))], ("float", "uint8", "double"), (11, 13), blocksize=3, mode="CRD")
case("DepthToSpace", [R((2, 3, 4, 5))], F32, blocksize=1)
case("DepthToSpace", [R((0, 4, 4, 5))], F32, blocksize=2)
case("SpaceToDepth", [R((2, 3, 4, 6))], MOVED, (1, 13), blocksize=2)
case("SpaceToDepth", [R((1, 2, 6, 9))], F32, (1, 13), blocksize=3, runs=[[R((2, 1, 3, 3))]])
for block, shape in ((2, (2, 3, 8, 64)), (3, (1, 2, 6, 96)), (4, (3, 1, 4, 64)), (2, (1, 5, 10, 14))):  # packs; not
    case("SpaceToDepth", [R(shape)], ("float", "float16", "uint8", "double"), (13,), blocksize=block, note="packs")
case("BatchNormalization", [R((2, 3, 4, 5)), P((3,)), R((3,)), R((3,)), P((3,))], FLOATS, (9, 14, 15), slack=4)
case("InstanceNormalization", [R((2, 3, 4, 5)), P((3,)), R((3,))], FLOATS, (6,), slack=4)

# Flags other than 0 and 1.
for flag in (2, -1):
    case("ReduceSum", [R((3, 4, 5)), K([1])], F32, keepdims=flag)
    case("ReduceSum", [R((3, 4)), K([])], F32, noop_with_empty_axes=flag)
    case("ArgMax", [R((3, 4, 5))], F32, axis=1, keepdims=flag)
    case("TopK", [R((4, 9)), K([3])], F32, outputs=2, largest=flag)
    case("Unique", [R((3, 4))], F32, outputs=4, sorted=flag)
    case("MaxPool", [R((1, 1, 4))], F32, (22,), kernel_shape=[3], strides=[2], ceil_mode=flag)
