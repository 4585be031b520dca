# SPDX-License-Identifier: Apache-2.0
"""How far results may lie apart, for numpy.testing.assert_allclose, and why."""

# float32 without TF32: short sums, in another order.
FLOAT32 = {"rtol": 1e-5, "atol": 1e-5}
# float16, whose last place is 2^-11.
FLOAT16 = {"rtol": 1e-3, "atol": 1e-6}
# Whole models in float32 where cuDNN may have chosen other algorithms (Winograd, another layout) for each of the two
# sessions: what tens of layers make of the last place.
OTHER_ALGORITHMS = {"rtol": 1e-3, "atol": 1e-4}
# TF32, which keeps 10 bits of a factor, in short sums.
TF32 = {"rtol": 2e-3, "atol": 2e-4}
