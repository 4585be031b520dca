# SPDX-License-Identifier: Apache-2.0
"""Operators of com.microsoft that weigh rows, streams and branches by gates, and hashes of n-grams."""

import numpy as np

from cases.attention import MS, NARROW
from cases.kit import F32, D, R, case

# Rows brought to root mean square 1: short and long ones, ends that are no pack, one lane and many.
for columns in (1, 6, 64, 130, 3000):
    for activation in ("silu", "swish", "sigmoid"):
        case("GatedRMSNorm", [R((2, 3, 2 * columns)), R((columns,)), R((2, 3, 2 * columns))], NARROW, (1,), domain=MS,
             activation=activation, slack=3)
case("GatedRMSNorm", [R((7,)), R((7,)), R((7,))], F32, (1,), domain=MS, epsilon=0.5)
case("GatedRMSNorm", [R((0, 8)), R((4,)), R((0, 8))], F32, (1,), domain=MS)
for branches, size in ((3, 4), (1, 7), (4, 130)):
    for scale in ((branches * size,), (branches, size), (size,), None):
        scales = [R(scale)] if scale else []
        case("BranchwiseRMSNorm", [R((2, 3, branches, size)), *scales], NARROW, (1,), domain=MS, slack=3)
        case("BranchwiseRMSNorm", [R((5, branches * size)), *scales], NARROW, (1,), domain=MS, slack=3, epsilon=0.25,
             num_branches=branches)
for kind in NARROW:
    case("BranchwiseRMSNorm", [R((5, 3, 4)), D([0.5, 1, 2, -1], kind)], NARROW, (1,), domain=MS, slack=3)
case("BranchwiseRMSNorm", [R((0, 3, 4))], F32, (1,), domain=MS)

for size in (4, 7, 130, 2100):
    inputs = [R((2, 3, 2, size)), R((2, 3, 2, size)), R((2, 3, size)), R((2, size)), R((2, size))]
    case("EngramGate", inputs, NARROW, (1,), domain=MS, slack=4)
    case("EngramGate", [*inputs, R((2, size))], NARROW, (1,), outputs=2, domain=MS, slack=4, epsilon=0.125)
case("EngramGate", [R((1, 1, 2, 3), 0, 0), R((1, 1, 2, 3)), R((1, 1, 3)), R((2, 3)), R((2, 3)), R((2, 3))], F32, (1,),
     outputs=2, domain=MS)
case("EngramGate", [R((0, 1, 2, 3)), R((0, 1, 2, 3)), R((0, 1, 3)), R((2, 3)), R((2, 3))], F32, (1,), domain=MS)

# Sums and products that are rounded in between.
for shape in ((2, 3, 8), (5, 7), (3,), (1, 1), (0, 4)):
    case("GatedAdd", [R(shape), R(shape), R((*shape[:-1], 1))], NARROW, (1,), domain=MS)
for shape in ((2, 3, 8), (7,), (), (0, 4)):
    case("ScaledSiLU", [R(shape)], NARROW, (1,), domain=MS, alpha=1.702)
    case("ScaledSiLU", [R(shape)], NARROW, (1,), domain=MS)
    for kind in NARROW:
        case("ScaledSiLU", [R(shape), D(-2.25, kind)], NARROW, (1,), domain=MS)

# Streams that become one, and one that is given to all of them.
for streams, size in ((3, 8), (4, 5), (1, 4), (2, 1), (9, 12)):
    for gate in ((streams,), (streams, 1), (streams, size)):
        case("HyperConnectionPreMix", [R((2, 3, streams, size)), R((2, 3, *gate))], NARROW, (1,), domain=MS, slack=2)
        case("HyperConnectionPreMix", [R((5, streams * size)), R((5, *gate))], NARROW, (1,), domain=MS, slack=2,
             num_branches=streams, reduction_scale=0.5)
        for mix in ([], [R((2, 3, streams, streams))]):
            case("HyperConnectionPostMix", [R((2, 3, streams, size)), R((2, 3, size)), R((2, 3, *gate)), *mix], NARROW,
                 (1,), domain=MS, slack=2)
        case("HyperConnectionPostMix", [R((3, streams * size)), R((3, size)), R((3, *gate)), R((3, streams, streams))],
             NARROW, (1,), domain=MS, slack=2, num_branches=streams)
    case("HyperConnectionPreMix", [R((5, streams * size)), R((5, streams * size))], F32, (1,), domain=MS, slack=2,
         num_branches=streams)
for kind in NARROW:
    mix = D(np.linspace(-1, 1, 8).reshape(2, 2, 2).tolist(), kind)
    gate = D([[1, 0.5], [2, -1]], kind)
    case("HyperConnectionPreMix", [R((2, 2, 4)), gate], NARROW, (1,), domain=MS, slack=2)
    case("HyperConnectionPostMix", [R((2, 2, 4)), R((2, 4)), gate, mix], NARROW, (1,), domain=MS, slack=2)
case("HyperConnectionPreMix", [R((0, 2, 4)), R((0, 2))], F32, (1,), domain=MS)
case("HyperConnectionPostMix", [R((0, 2, 4)), R((0, 4)), R((0, 2))], F32, (1,), domain=MS)

# Hashes of n-grams: pasts of each kind, ends and segments, products that wrap around, negative ids.
IDS = ("int64", "int32")
ODD = [1, 1000003, 20011, 300007]


def hashed(ids, sizes, past=None, offsets=None, end=None, segments=None, n=3, heads=2, **attrs):
    for kind in IDS:
        inputs = [None if x is None else D(x, kind) for x in (ids, ODD[:n], sizes, past, offsets, end)]
        inputs.append(None if segments is None else D(segments, "int32"))
        while inputs[-1] is None:
            inputs.pop()
        case("NGramHashMapping", inputs, (kind,), (1,), outputs=2, domain=MS, max_ngram_size=n, n_head_per_ngram=heads,
             pad_id=7, **attrs)


GENERATOR = np.random.default_rng(5)
TEXT = GENERATOR.integers(-90000, 90000, (2, 9))
TEXT[0, 3] = TEXT[1, 0] = TEXT[1, 7] = 55
PRIMES = [11, 101, 10007, 999983, 97, 89]
for past in (None, [[4, 55], [8, -6]]):
    for end in (None, 55):
        for segments in (None, [[0, 0, 1, 1, 1, 2, 2, 2, 2], [5] * 8 + [4]]):
            for resets in (0, 1):
                hashed(TEXT.tolist(), PRIMES[:4], past, [0, 11, 112, 5], end, segments, reset_on_eos=resets)
hashed(TEXT[:, :1].tolist(), PRIMES[:6], n=4)
hashed(TEXT[:, :1].tolist(), PRIMES[:1], [[3], [4]], n=2, heads=1)
hashed(np.zeros((2, 0)), PRIMES[:4], [[4, 5], [8, 6]])


def varlen(ids, starts, past=None, offsets=None, end=None, segments=None, past_segments=None, counts=None, outputs=2,
           **attrs):
    for kind in IDS:
        ints = [None if x is None else D(x, "int32") for x in (starts, segments, past_segments, counts)]
        own = [None if x is None else D(x, kind) for x in (ids, ODD[:3], PRIMES[:4], past, offsets, end)]
        inputs = [*own[:3], ints[0], *own[3:], *ints[1:]]
        while inputs[-1] is None:
            inputs.pop()
        case("VarlenNGramHashMapping", inputs, (kind,), (1,), outputs=outputs, domain=MS, max_ngram_size=3,
             n_head_per_ngram=2, pad_id=7, **attrs)


LINE, PARTS = TEXT.ravel().tolist(), [0, 0, 1, 1, 1, 2, 2, 2, 2, 5, 5, 5, 5, 4, 4, 4, 4, 4]
PASTS = [[4, 55], [8, -6], [1, 2]]
for past in (None, PASTS):
    for end in (None, 55):
        varlen(LINE, [0, 1, 7, 18], past, end=end, reset_on_eos=1)
        varlen(LINE, [0, 1, 7, 18], past, [0, 11, 112, -5], end, PARTS, outputs=3)
        varlen(LINE, [0, 1, 7, 18], past, None, end, PARTS, [[0, 0], [1, 0], [2, 1]], outputs=3, reset_on_eos=1)
        varlen(LINE, [0, 1, 7, 18], past, None, end, PARTS, None, [2, 3, -1], outputs=4, state_update_capacity=4)
