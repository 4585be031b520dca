# SPDX-License-Identifier: Apache-2.0
"""LabelEncoder of ai.onnx.ml, which is told what its types are by the attributes it has.

ONNX Runtime's CPU provider has no int32, and int16 for the values of strings alone: those rows have a dictionary for
reference.
"""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

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


def looked_up(x, keys_tensor, values_tensor, default_tensor=None):
    keys, values = numpy_helper.to_array(keys_tensor).tolist(), numpy_helper.to_array(values_tensor)
    fallback = values.dtype.type(-1) if default_tensor is None else numpy_helper.to_array(default_tensor)[0]
    if values.dtype.kind == "f" and default_tensor is None:
        fallback = values.dtype.type(-0.0)
    table = dict(zip(keys, values, strict=True))
    return [np.array([table.get(key, fallback) for key in x.ravel().tolist()], values.dtype).reshape(x.shape)]


NARROW = {"INT32": [5, -3, 2**31 - 1, 7, 0, -(2**31)], "INT16": [5, -3, 2**15 - 1, 7, 0, -(2**15)]}
VALUES = {"INT64": WHOLE, "FLOAT": [0.5, 1, 2, 3, 4, 5], "DOUBLE": [0.5, 1, 2, 3, 4, 5], **NARROW}
for keys, listed in NARROW.items():
    asked = D([[5, 6, -3], [listed[2], 0, listed[5]], [7, 7, -1]], keys.lower())
    for values, given in VALUES.items():
        encode(asked, (4,), keys_tensor=tensor(keys, listed), values_tensor=tensor(values, given), reference=looked_up)
        encode(asked, (4,), keys_tensor=tensor(keys, listed), values_tensor=tensor(values, given),
               default_tensor=tensor(values, [9]), reference=looked_up)
for values, given in NARROW.items():
    encode(D([5, 6, 7]), (4,), keys_tensor=tensor("INT64", WHOLE), values_tensor=tensor(values, given),
           reference=looked_up)
    encode(D([1.5, 3.0], "float"), (4,), keys_tensor=tensor("FLOAT", VALUES["FLOAT"]),
           values_tensor=tensor(values, given), default_tensor=tensor(values, [-9]), reference=looked_up)
