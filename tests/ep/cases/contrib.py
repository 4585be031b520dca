# SPDX-License-Identifier: Apache-2.0
"""Small operators of com.microsoft that move or pick elements: windows, n-grams, paths; products of complex numbers."""

import numpy as np

from cases.kit import ALL, F32, INF, NAN, D, P, R, V, case

MS = {"opsets": (1,), "domain": "com.microsoft"}
IEEE = ("float", "float16", "double")


# ---- complex numbers ----
def complex_mul(a, b):
    a, b = (x.astype(np.float64)[..., 0] + 1j * x.astype(np.float64)[..., 1] for x in (a, b))
    made = a * b
    return [np.stack([made.real, made.imag], axis=-1)]


def complex_mul_conj(a, b):
    return complex_mul(a, b * np.asarray([1, -1], b.dtype))


PAIRS = [((3, 2), (3, 2)), ((2,), (2,)), ((2, 3, 2), (3, 2)), ((4, 1, 5, 2), (3, 1, 2)), ((0, 3, 2), (3, 2))]
PAIRS += [((33, 65, 2), (65, 2)), ((1027, 2), (2,)), ((2, 1, 8, 2), (1, 6, 1, 2)), ((2,), (7, 2))]
for left, right in PAIRS:
    for name, reference in (("ComplexMul", complex_mul), ("ComplexMulConj", complex_mul_conj)):
        case(name, [R(left), R(right)], IEEE, reference=reference, slack=2, **MS)
case("ComplexMul", [V([[1.0, 0.0], [0.0, 1.0], [-0.5, 2.0]]), V([[3.0, -4.0]])], IEEE, reference=complex_mul,
     runs=[[V([[1.0, 2.0]]), V([[1.0, 0.5], [2.0, 2.0]])]], **MS)


# ---- windows ----
def unfold(x, size, dim=-1, step=1):
    windows = np.lib.stride_tricks.sliding_window_view(x, size, axis=dim)
    return [windows[(slice(None),) * (dim % x.ndim) + (slice(None, None, step),)]]


for dim in (0, 1, 2, -1, -2):
    for size, step in ((1, 1), (2, 1), (4, 2), (4, 4), (3, 5), (4, 9)):
        kinds = ALL if dim == -1 and size == 4 else F32
        case("UnfoldTensor", [R((4, 5, 6))], kinds, reference=unfold, dim=dim, size=size,
             step=step, **MS)
        case("UnfoldTensor", [R((4, 5, 6))], ("double", "int32"), dim=dim, size=size, step=step, **MS)
case("UnfoldTensor", [R((64, 1030))], ("float", "float16", "int8"), size=400, step=160, reference=unfold, **MS)
case("UnfoldTensor", [R((32, 16, 9))], F32, dim=0, size=8, step=4, runs=[[R((8, 3, 2))], [R((20, 1, 1))]], **MS)
case("UnfoldTensor", [R((7,))], F32, size=7, step=3, **MS)
case("UnfoldTensor", [R((0, 7))], F32, size=3, reference=unfold, **MS)
case("UnfoldTensor", [R((2, 1, 2, 1, 2, 1, 2, 5))], F32, size=2, dim=6, note="rank 9", **MS)

# ---- n-grams ----
TOKENS = [[4, 1, 2, 3, 1, 2], [1, 1, 1, 1, 1, 1], [0, 5, 0, 5, 0, 5], [6, 5, 4, 3, 2, 1]]
for size in (1, 2, 3, 4, 6, 7, 9):
    case("NGramRepeatBlock", [D(TOKENS), R((4, 7))], F32, ngram_size=size, **MS)
long = [[(i * i) % 11 for i in range(1500)], [i % 17 for i in range(1500)]]
for size in (2, 5, 300):
    case("NGramRepeatBlock", [D(long), R((2, 50))], F32, ngram_size=size,
         runs=[[D([[3, 3, 3]]), R((1, 4))], [D([[2]]), R((1, 3))]], **MS)
case("NGramRepeatBlock", [D(np.zeros((0, 4))), R((0, 4))], F32, ngram_size=2, **MS)

# ---- the cheapest path ----
for rows, columns in ((1, 1), (1, 9), (9, 1), (5, 5), (7, 40), (40, 7), (100, 333), (600, 20)):
    case("DynamicTimeWarping", [P((rows, columns))], F32, **MS)
    case("DynamicTimeWarping", [R((1, rows, columns))], F32, runs=[[R((1, 3, 4))], [R((1, columns, rows))]], **MS)
case("DynamicTimeWarping", [V(np.ones((6, 9)))], F32, note="ties", **MS)
case("DynamicTimeWarping", [V([[1.0, INF, 1.0], [INF, INF, 1.0], [1.0, 1.0, 1.0]])], F32, note="walls", **MS)
case("DynamicTimeWarping", [V([[1.0, NAN, 1.0], [2.0, 1.0, 1.0], [1.0, 1.0, NAN]])], F32, note="no numbers", **MS)
