# SPDX-License-Identifier: Apache-2.0
"""Windows and Fourier transforms."""

import numpy as np
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
# Powers of two against the CPU EP, in double with a strict limit. Other lengths take it time n * n, and in float it is
# far from exact there (7e-4 of the largest value at 3001): those have NumPy's transform for reference, in double.
# Plain loops are in tests/op/spectrum_test.c; they are the reference for half spectra of other lengths than
# dft_length has, too, where the CPU EP departs from NumPy.
SCALED = 100  # the CPU EP rounds 1 / n to a float
STRICT = 1e-4  # of a limit of 1e-9


def fourier(x, length=None, axis=-2, inverse=0, onesided=0):
    wide = x.astype(np.float64)
    numbers = wide[..., 0] + (1j * wide[..., 1] if x.shape[-1] == 2 else 0)
    at = int(axis) % x.ndim
    if inverse and onesided:
        made = np.fft.irfft(numbers, length or 2 * (x.shape[at] - 1), axis=at)
        return [made[..., np.newaxis]]
    made = (np.fft.ifft if inverse else np.fft.fft)(numbers, length or x.shape[at], axis=at)
    if onesided:
        made = made.take(range(made.shape[at] // 2 + 1), axis=at)
    return [np.stack([made.real, made.imag], axis=-1)]


for n in (1, 2, 4, 8, 16, 128, 2048, 4096, 8192):
    for parts in (1, 2):
        case("DFT", [R((2, n, parts))], ("double",), (20,))
        case("DFT", [R((2, n, parts))], F32, (17, 20), slack=2)
        case("DFT", [R((2, n, parts))], ("double",), (20,), slack=SCALED, inverse=1)
        case("DFT", [R((2, n, parts))], F32, (20,), slack=2, inverse=1)
    case("DFT", [R((2, n, 1))], ("double",), (17, 20), onesided=1)
    case("DFT", [R((2, n, 1))], F32, (17, 20), slack=2, onesided=1)
    if n > 1:
        case("DFT", [R((2, n, 2))], ("double",), (20,), slack=SCALED, inverse=1, onesided=1)
        case("DFT", [R((2, n, 2)), K(2 * n - 1)], ("double",), (20,), slack=SCALED, inverse=1, onesided=1)

# Small factors, primes; from 8193 on in several launches.
SHORT = ((2, 3), (2, 20), (3, 34), (2, 101), (1, 400), (2, 3001), (2, 5000))
LONG = ((2, 16384), (1, 44100), (1, 48000), (2, 9973), (1, 30030), (1, 100003), (1, 2**20))
for rows, n in SHORT + LONG:
    for types, slack in ((F32, 1), (("double",), STRICT)):
        for parts in (1, 2):
            case("DFT", [R((rows, n, parts))], types, (20,), slack=slack, reference=fourier)
            case("DFT", [R((rows, n, parts))], types, (20,), slack=slack, reference=fourier, inverse=1)
        case("DFT", [R((rows, n, 1))], types, (20,), slack=slack, reference=fourier, onesided=1)
        half = R((rows, n // 2 + 1, 2))
        case("DFT", [half, K(n)], types, (20,), slack=slack, reference=fourier, inverse=1, onesided=1)
for n in (9000, 8209):
    case("DFT", [R((2, n, 3, 2)), None, K(1)], F32, (20,), reference=fourier, note="across")
    case("DFT", [R((n, 2, 2)), None, K(0)], F32, (20,), reference=fourier, inverse=1, note="across")
    case("DFT", [R((1, 5000, 1)), K(n)], F32, (20,), reference=fourier, onesided=1, note="padded")
    case("DFT", [R((1, 9999, 2)), K(n)], F32, (20,), reference=fourier, note="cut")
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


def of_nothing(x, *rest, **attributes):
    """As ONNX Runtime's CPU provider has it from 1.31 on; before, that divided by 0."""
    return [np.zeros((2, 0, 2))]


for parts, inverse in ((1, 0), (2, 0), (2, 1)):
    case("DFT", [R((2, 0, parts))], F32, (17,), reference=of_nothing, axis=1, inverse=inverse, note="of nothing")
    case("DFT", [R((2, 0, parts)), None, K(1)], F32, (20,), reference=of_nothing, inverse=inverse, note="of nothing")


# ---- frames ----
def framed(signal, step, window, onesided=1):
    frames = np.lib.stride_tricks.sliding_window_view(signal, len(window), axis=1)[:, :: int(step)]
    return fourier(np.moveaxis(frames, -1, 2) * window[:, np.newaxis], onesided=onesided)


for length in (16, 20, 400, 512):
    slack = 64 if length == 400 else 4  # as above
    signal = R((2, 1203, 1))
    case("STFT", [signal, K(length // 4), R((length,))], ("float", "double"), (17,), slack=slack)
    case("STFT", [signal, K(length // 4), R((length,))], F32, (17,), slack=slack, onesided=0)
    case("STFT", [signal, K(length // 4), None, K(length)], F32, (17,), slack=slack)
    case("STFT", [signal, K(7, "int32"), R((length,)), K(length, "int32")], F32, (17,), slack=slack)
    # The CPU EP up to 1.30 gives garbage for complex signals.
    case("STFT", [R((2, 1203, 2)), K(100), R((length,))], F32, (17,), onesided=0, note="complex", reference=framed)
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


# ---- transforms of real numbers, as com.microsoft has them ----
def rfft(x, signal_ndim=1, onesided=1, normalized=0):
    made = np.fft.rfftn(x.astype(np.float64), axes=range(-signal_ndim, 0))
    return [np.stack([made.real, made.imag], axis=-1)]


def irfft(x, signal_ndim=1, onesided=1, normalized=0):
    wide = x.astype(np.float64)
    return [np.fft.irfftn(wide[..., 0] + 1j * wide[..., 1], axes=range(-signal_ndim, 0))]


MS = {"opsets": (1,), "domain": "com.microsoft"}
IEEE = ("float", "float16", "double")
for shape in ((2, 4), (3, 9), (16,), (5, 1, 30), (2, 101), (1, 400), (2, 4096), (1, 44100), (3, 1), (2, 2), (0, 8)):
    narrow = IEEE if shape[-1] < 500 else ("float", "double")
    half = (*shape[:-1], shape[-1] // 2 + 1, 2)
    case("Rfft", [R(shape)], narrow, slack=4, reference=rfft, signal_ndim=1, onesided=1, **MS)
    if shape[-1] > 1:
        case("Irfft", [R(half)], narrow, slack=4, reference=irfft, signal_ndim=1, onesided=1, **MS)
for shape in ((4, 6), (2, 5, 8), (3, 16, 20), (2, 3, 7, 10), (1, 64, 33), (2, 1, 4), (130, 2, 6), (3, 64, 128),
              (2, 32, 16, 64)):
    half = (*shape[:-1], shape[-1] // 2 + 1, 2)
    for dims in (2, 3):
        if len(shape) >= dims:
            case("Rfft", [R(shape)], IEEE, slack=4, reference=rfft, signal_ndim=dims, onesided=1, normalized=0, **MS)
            case("Irfft", [R(half)], IEEE, slack=4, reference=irfft, signal_ndim=dims, onesided=1, **MS)
case("Rfft", [R((2, 8))], F32, slack=4, reference=rfft, signal_ndim=1, runs=[[R((3, 12))], [R((1, 1000))]], **MS)
case("Irfft", [R((2, 5, 2))], F32, slack=4, reference=irfft, signal_ndim=1, runs=[[R((3, 7, 2))]], **MS)
case("Irfft", [R((3, 1, 2))], F32, reference=lambda x, **_: [np.zeros((3, 0))], signal_ndim=1, note="of nothing", **MS)
