# SPDX-License-Identifier: Apache-2.0
"""LpPool and GlobalLpPool; pools whose window is larger than the input."""

from cases.kit import F32, P, R, case

FLOATS = ("float", "double", "float16", "bfloat16")  # version 22 of GlobalLpPool is not on the CPU EP: 21 stays at 2

for p in (1, 2, 3):
    case("LpPool", [R((2, 3, 9, 8))], F32, (2, 11, 18), slack=2, kernel_shape=[3, 2], p=p)
    case("LpPool", [R((2, 3, 9, 8))], FLOATS, (22,), slack=2, kernel_shape=[3, 3], pads=[1] * 4, strides=[2, 2], p=p)
    case("GlobalLpPool", [R((2, 3, 9, 8))], F32, (2,), slack=4, p=p)
    case("GlobalLpPool", [R((2, 3, 37))], FLOATS[:3], (21,), slack=4, p=p)
case("LpPool", [R((2, 3, 20))], F32, (11, 22), slack=2, kernel_shape=[4], strides=[3])
case("LpPool", [R((1, 2, 5, 6, 7))], F32, (11, 22), slack=2, kernel_shape=[2, 3, 2], auto_pad="SAME_UPPER")
case("LpPool", [R((2, 3, 12, 11))], F32, (18, 22), slack=2, kernel_shape=[3, 2], dilations=[2, 3])
case("LpPool", [R((2, 3, 12, 12))], F32, (11, 22), slack=4, kernel_shape=[12, 12], note="the whole input")
case("GlobalLpPool", [P((2, 5, 3, 4, 2))], F32, (2, 21), slack=4)

# A window that is too large by less than a stride sees what there is; by less than two, nothing comes out.
for op in ("MaxPool", "AveragePool", "LpPool"):
    for kernel, stride in ((4, 1), (4, 2), (5, 2), (5, 3), (7, 5), (8, 5)):
        case(op, [R((2, 3, 3, 4))], F32, (22,), kernel_shape=[kernel, 2], strides=[stride, 1], note="too large")
    case(op, [R((1, 2, 3))], F32, (22,), kernel_shape=[5], strides=[2], ceil_mode=1, note="too large")
    case(op, [R((1, 2, 3))], F32, (22,), kernel_shape=[6], pads=[1, 1], note="too large")
case("MaxPool", [R((1, 2, 3))], F32, (22,), outputs=2, kernel_shape=[4], note="too large")
