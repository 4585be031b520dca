# SPDX-License-Identifier: Apache-2.0
"""LabelEncoder of ai.onnx.ml, which is told what its types are by the attributes it has."""

import numpy as np
from onnx import TensorProto, helper

from cases.kit import F32, INF, NAN, D, case

WHOLE, REAL = [5, -3, 2**40, 7, 0, -(2**62)], [1.5, -0.0, 3.25, -2.0, INF, NAN]
ASKED = {"keys_int64s": D([[5, 6, -3], [2**40, 0, -(2**62)], [7, 7, -1]]),
         "keys_floats": D([1.5, 0.0, -0.0, 3.0, 3.25, NAN, -INF, INF, -2.0], "float")}
ML = "ai.onnx.ml"


def encode(x, opsets, **attrs):
    case("LabelEncoder", [x], F32, opsets, domain=ML, **attrs)


for keys, listed in (("keys_int64s", WHOLE), ("keys_floats", REAL)):
    encode(ASKED[keys], (2, 4), **{keys: listed}, values_int64s=[10, 20, 30, 40, 50, 60])
    encode(ASKED[keys], (2, 4), **{keys: listed}, values_floats=[0.5, 1.5, 2.5, 3.5, 4.5, 5.5], default_float=-7.5)
    encode(ASKED[keys], (2, 4), **{keys: listed}, values_int64s=[10, 20, 30, 40, 50, 60], default_int64=2**50)
encode(D([1, 2, 3]), (2, 4), keys_int64s=[1, 2, 1], values_int64s=[10, 20, 30], note="a key twice")
encode(D(np.zeros((0, 2))), (2,), keys_int64s=[1], values_int64s=[2], note="empty")
many = np.random.default_rng(7).permutation(5000)
encode(D(many[:777] - 50), (4,), keys_int64s=many.tolist(), values_int64s=(many * 3).tolist(), note="a long table")


def tensor(kind, values):
    return helper.make_tensor("table", getattr(TensorProto, kind), [len(values)], values)


encode(D([1.5, 0.0, NAN, 8, -0.0], "double"), (4,), keys_tensor=tensor("DOUBLE", REAL),
       values_tensor=tensor("DOUBLE", [1.0, 2, 3, 4, 5, 6]))
encode(D([1.5, 0.0, NAN, 8, -0.0], "double"), (4,), keys_tensor=tensor("DOUBLE", REAL),
       values_tensor=tensor("DOUBLE", [1.0, 2, 3, 4, 5, 6]), default_tensor=tensor("DOUBLE", [0.1]))
encode(D([5, 6, 7]), (4,), keys_tensor=tensor("INT64", WHOLE), values_tensor=tensor("INT64", WHOLE),
       default_tensor=tensor("INT64", [9]))
encode(D([1.5, 3.0], "double"), (4,), keys_tensor=tensor("DOUBLE", REAL),
       values_tensor=tensor("INT64", [1, 2, 3, 4, 5, 6]))
