# SPDX-License-Identifier: Apache-2.0
"""Windows and Fourier transforms."""

from onnx import TensorProto

from cases.kit import F32, FLOATS, D, K, R, case

# ---- windows ----
for op in ("HannWindow", "HammingWindow", "BlackmanWindow"):
    for periodic in (0, 1):
        case(op, [D(10)], F32, (17,), periodic=periodic, runs=[[D(1001)], [D(2)], [D(0)]])
    case(op, [K(37)], F32, (17,), output_datatype=TensorProto.DOUBLE, note="a constant")
    for dtype in ("DOUBLE", "INT8", "INT32", "INT64", "UINT8", "UINT64"):
        case(op, [D(16, "int32")], F32, (17,), output_datatype=getattr(TensorProto, dtype))

# ---- transforms ----
# Powers of two, other lengths by a matrix, and lengths beyond it. In double the limit is strict. In float the CPU EP
# itself is far from exact where the length is no power of two (7e-4 of the largest value at 3001): the slack. Plain
# loops are the strict reference there, in tests/op/spectrum_test.c; so they are for half spectra of other lengths than
# dft_length has, where the CPU EP departs from NumPy.
SCALED = 100  # the CPU EP rounds 1 / n to a float
LENGTHS = {1: 1, 2: 1, 3: 1, 4: 1, 8: 1, 16: 1, 20: 8, 101: 32, 128: 1, 400: 64, 2048: 2, 4096: 2, 8192: 2, 3001: 700}
for n, slack in LENGTHS.items():
    for parts in (1, 2):
        case("DFT", [R((2, n, parts))], ("double",), (20,))
        case("DFT", [R((2, n, parts))], F32, (17, 20), slack=slack)
        case("DFT", [R((2, n, parts))], ("double",), (20,), slack=SCALED, inverse=1)
        case("DFT", [R((2, n, parts))], F32, (20,), slack=slack, inverse=1)
    case("DFT", [R((2, n, 1))], ("double",), (17, 20), onesided=1)
    case("DFT", [R((2, n, 1))], F32, (17, 20), slack=slack, onesided=1)
    if n > 1:
        case("DFT", [R((2, n, 2))], ("double",), (20,), slack=SCALED, inverse=1, onesided=1)
        case("DFT", [R((2, n, 2)), K(2 * n - 1)], ("double",), (20,), slack=SCALED, inverse=1, onesided=1)
case("DFT", [R((3, 8, 5, 2))], FLOATS, (17, 20), slack=4)
for length in (16, 12):
    for axis in (0, 1, 2, -2, -4):
        shape = [3, 5, 4, 2]
        shape[axis] = length
        case("DFT", [R(tuple(shape)), None, K(axis)], F32, (20,), slack=8)
        case("DFT", [R(tuple(shape)), None, K(axis)], F32, (20,), slack=8, inverse=1)
    case("DFT", [R((70, length, 33, 1))], F32, (17,), slack=8, axis=1, onesided=1, note="rows side by side")
    case("DFT", [R((3, 10, 2)), K(length)], F32, (17, 20), slack=8, note="padded")
    case("DFT", [R((3, 30, 7, 1)), K(length, "int32"), K(1)], F32, (20,), slack=8, onesided=1, note="cut")
case("DFT", [R((2, 16, 1)), D(8)], F32, (17,), slack=8, runs=[[R((3, 5, 1)), D(12)], [R((1, 40, 1)), D(32)]])
case("DFT", [R((0, 16, 1))], F32, (20,), note="empty")

# ---- frames ----
for length in (16, 20, 400, 512):
    slack = 64 if length == 400 else 4  # as above
    signal = R((2, 1203, 1))
    case("STFT", [signal, K(length // 4), R((length,))], ("float", "double"), (17,), slack=slack)
    case("STFT", [signal, K(length // 4), R((length,))], F32, (17,), slack=slack, onesided=0)
    case("STFT", [signal, K(length // 4), None, K(length)], F32, (17,), slack=slack)
    case("STFT", [signal, K(7, "int32"), R((length,)), K(length, "int32")], F32, (17,), slack=slack)
    case("STFT", [R((2, 1203, 2)), K(100), R((length,))], F32, (17,), slack=slack, onesided=0, note="complex")
for length in (16, 20):
    case("STFT", [R((1, 160, 1)), K(8), R((length,))], FLOATS, (17,), slack=4)
case("STFT", [R((1, 64, 1)), D(16), R((32,)), D(32)], F32, (17,), slack=4, runs=[[R((3, 99, 1)), D(5), R((9,)), D(9)]])

# ---- mel ----
for bands, length, rate, low, high in ((8, 16, 8192, 0, 4096), (80, 400, 16000, 0, 8000), (40, 512, 22050, 80, 7600)):
    hertz = [K(low, "float"), K(high, "float")]
    case("MelWeightMatrix", [K(bands), K(length), K(rate), *hertz], F32, (17,))
    case("MelWeightMatrix", [D(bands, "int32"), D(length, "int32"), D(rate, "int32"), *hertz], F32, (17,),
         output_datatype=TensorProto.DOUBLE)
case("MelWeightMatrix", [D(700), D(4000), D(16000), D(20, "float"), D(8000, "float")], F32, (17,), note="many bands")
case("MelWeightMatrix", [D(12), D(64), D(8000), K(0, "float16"), K(4000, "float16")], F32, (17,),
     output_datatype=TensorProto.INT32)
