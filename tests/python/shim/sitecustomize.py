# SPDX-License-Identifier: Apache-2.0
"""For processes that tests start: numba-cuda up to 0.30 cannot compile with NumPy 2.5, which has no row_stack."""

import numpy

if not hasattr(numpy, "row_stack"):
    numpy.row_stack = numpy.vstack
