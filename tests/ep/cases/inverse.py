# SPDX-License-Identifier: Apache-2.0
"""Inverses of matrices. NumPy is the reference for float16, in which the CPU provider computes with too few bits, and
for matrices that have no inverse, where it gives whatever the divisions by 0 come to."""

import numpy as np

from cases.kit import F32, NAN, R, V, case

MS = {"opsets": (1,), "domain": "com.microsoft"}
IEEE = ("float", "float16", "double")


def inverse(x):
    x, out = x.astype(np.float64), np.full(x.shape, np.nan)
    for at in np.ndindex(x.shape[:-2]):
        if np.isfinite(x[at]).all() and np.linalg.matrix_rank(x[at]) == x.shape[-1]:
            out[at] = np.linalg.inv(x[at])
    return [out]


def solid(*shape):
    """Far from having no inverse, with rows in such an order that the largest elements are off the diagonal."""
    generator = np.random.default_rng(shape)
    values = generator.uniform(-1, 1, shape) + 2 * np.sqrt(shape[-1]) * np.eye(shape[-1])
    return V(np.flip(values, axis=-2).tolist())


for shape in ((1, 1), (2, 2), (3, 3), (4, 4), (5, 7, 7), (2, 3, 16, 16), (40, 3, 3), (33, 33), (2, 64, 64), (100, 100),
              (2, 150, 150)):
    case("Inverse", [solid(*shape)], IEEE, slack=8, reference=inverse, **MS)
    case("Inverse", [solid(*shape)], ("float", "double"), slack=8, **MS)
case("Inverse", [solid(3, 3)], F32, slack=8, reference=inverse, runs=[[solid(2, 2)], [solid(130, 130)]], **MS)
case("Inverse", [V([[[0.0, 1.0], [1.0, 0.0]], [[0.0, 2.0], [-4.0, 0.0]]])], IEEE, reference=inverse,
     note="exchanged", **MS)
case("Inverse", [V([[[1.0, 2.0], [2.0, 4.0]], [[0.0, 0.0], [0.0, 0.0]], [[2.0, 0.0], [0.0, 4.0]]])], IEEE,
     reference=inverse, note="without an inverse", **MS)
case("Inverse", [V([[[NAN, 1.0], [1.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]]])], IEEE, reference=inverse, **MS)
case("Inverse", [R((0, 3, 3))], F32, reference=lambda x: [x], **MS)
case("Inverse", [R((2, 0, 0))], F32, reference=lambda x: [x], **MS)
