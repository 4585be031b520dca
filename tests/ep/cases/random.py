# SPDX-License-Identifier: Apache-2.0
"""What can be compared of operators that draw: Dropout where nothing is dropped, draws with one outcome. How numbers
are spread and repeated is tested in C."""

import numpy as np

from cases.kit import ALL, F32, FLOATS, NEWEST, D, K, R, V, case

for shape in ((3, 4), (), (0, 2), (1027,)):
    case("Dropout", [R(shape)], FLOATS, (7, 10, 12, 13, NEWEST), outputs=2)
    case("Dropout", [R(shape)], F32, (7, 10), ratio=0.25)
case("Dropout", [R((3, 4)), K(np.float32(0.5), "float"), K(np.bool_(False), "bool")], FLOATS, (12, 13, 22), outputs=2)
case("Dropout", [R((3, 4)), D(np.float32(0), "float"), D(np.bool_(True), "bool")], F32, (12, 13, 22), outputs=2)
for low in (0.0, -2.5):
    case("RandomUniform", [], ("float",), (1,), shape=[3, 5], low=low, high=low)
    case("RandomUniformLike", [R((3, 5))], ("float", "float16", "double"), (1,), low=low, high=low)
    case("RandomNormal", [], ("float",), (1,), shape=[3, 5], mean=low, scale=1e-30)
    case("RandomNormalLike", [R((3, 5))], ("float", "float16", "double"), (1,), mean=low, scale=1e-30)
case("RandomUniformLike", [R((2, 0))], ALL, (1,), dtype=11)
case("RandomNormalLike", [R((2, 0))], ALL, (1,), dtype=1)
case("Multinomial", [V([[-90000.0, 0.0, -90000.0], [5.0, -60000.0, -60000.0]])], ("float", "float16"), (7,),
     sample_size=7)
case("Multinomial", [V([[0.0]])], F32, sample_size=3, dtype=7)
