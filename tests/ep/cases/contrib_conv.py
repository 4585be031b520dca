# SPDX-License-Identifier: Apache-2.0
"""Convolutions of com.microsoft: with channels last, with padding as an input."""

import numpy as np

from cases.kit import F32, D, K, R, case

MS = {"opsets": (1,), "domain": "com.microsoft"}
IEEE = ("float", "float16", "double")


def last(shape):
    return R((shape[0], *shape[2:], shape[1]))


def convolved(x, w, bias=None, group=1, strides=None, dilations=None, pads=None):
    """With channels first, by windows."""
    spatial = x.ndim - 2
    strides, dilations, pads = strides or [1] * spatial, dilations or [1] * spatial, pads or [0] * 2 * spatial
    padded = np.pad(x.astype(np.float64), [(0, 0), (0, 0), *zip(pads[:spatial], pads[spatial:], strict=True)])
    extent = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], dilations, strict=True)]
    axes = tuple(range(2, 2 + spatial))
    windows = np.lib.stride_tricks.sliding_window_view(padded, extent, axis=axes)
    every = tuple(slice(None, None, s) for s in strides) + tuple(slice(None, None, d) for d in dilations)
    windows = windows[(slice(None), slice(None), *every)]
    parts = []
    for part, weights in zip(np.split(windows, group, axis=1), np.split(w.astype(np.float64), group), strict=True):
        taps = tuple(range(2 + spatial, 2 + 2 * spatial))
        made = np.tensordot(part, weights, axes=((1, *taps), (1, *axes)))
        parts.append(np.moveaxis(made, -1, 1))
    out = np.concatenate(parts, axis=1)
    return out if bias is None else out + bias.reshape(-1, *[1] * spatial)


def nhwc_conv(x, w, bias=None, **attributes):
    """The weights, too, have their channels last."""
    made = convolved(np.moveaxis(x, -1, 1), np.moveaxis(w, -1, 1), bias, **attributes)
    return [np.moveaxis(made, 1, -1)]


ACTIVATIONS = {"": lambda x: x, "Relu": lambda x: np.maximum(x, 0), "Tanh": np.tanh,
               "LeakyRelu": lambda x: np.where(x < 0, 0.2 * x, x)}


def nhwc_fused_conv(x, w, bias=None, residual=None, activation="", activation_params=(), **attributes):
    made = np.moveaxis(convolved(np.moveaxis(x, -1, 1), w, bias, **attributes), 1, -1)
    return [ACTIVATIONS[activation](made if residual is None else made + residual)]


for size in (5, 7, 9, 11, 13):  # tiles of large windows, whole and in part
    for channels in (24, 21):
        pads = [size // 2, 0, size // 2 - 1, size // 2 + 2]
        wide = lambda *x, group=channels, pads=pads, **_: nhwc_conv(*x, group=group, pads=pads)  # noqa: E731
        case("NhwcConv", [last((2, channels, 19, 17)), last((channels, 1, size, size)), R((channels,))], IEEE, slack=8,
             reference=wide, group=channels, pads=pads, note=f"{channels} by {size} x {size}", **MS)


for attrs in (
    {},
    {"strides": [2, 2], "pads": [1, 1, 1, 1]},
    {"pads": [2, 0, 1, 3], "strides": [2, 3]},
    {"dilations": [2, 2], "pads": [2, 2, 2, 2]},
    {"kernel_shape": [3, 3], "strides": [1, 2]},
):
    known = {key: value for key, value in attrs.items() if key != "kernel_shape"}
    for group, into, out in ((1, 4, 6), (2, 4, 8), (4, 4, 4), (8, 8, 8), (1, 1, 3), (3, 3, 6)):
        x, w = last((2, into, 9, 10)), (out, into // group, 3, 3)
        plain = lambda *x, group=group, known=known, **_: nhwc_conv(*x, group=group, **known)  # noqa: E731
        case("NhwcConv", [x, last(w), R((out,))], IEEE, slack=4, reference=plain, group=group, **attrs, **MS)
        case("NhwcConv", [x, K(np.linspace(-1, 1, 9 * out * into // group).reshape(out, 3, 3, -1), "float"), None],
             F32, slack=4, reference=plain, group=group, **attrs, **MS)
        fused = lambda *x, group=group, known=known, **_: nhwc_fused_conv(*x, group=group, **known)  # noqa: E731
        case("NhwcFusedConv", [x, R(w), R((out,))], IEEE, slack=4, reference=fused, group=group, **attrs, **MS)
        case("NhwcFusedConv", [x, K(np.linspace(-1, 1, 9 * out * into // group).reshape(w), "float")], F32, slack=4,
             reference=fused, group=group, **attrs, **MS)
case("NhwcConv", [R((2, 5, 6, 8)), R((16, 1, 1, 8)), R((16,))], IEEE, slack=4, reference=nhwc_conv, note="1x1", **MS)
case("NhwcConv", [R((1, 9, 3)), R((4, 3, 3))], F32, slack=4, reference=nhwc_conv, note="one dimension", **MS)
case("NhwcConv", [R((1, 4, 5, 6, 2)), R((3, 2, 3, 2, 2))], F32, slack=4, reference=nhwc_conv, **MS)
case("NhwcConv", [R((0, 8, 8, 3)), R((4, 3, 3, 3))], F32, reference=lambda *_: [np.zeros((0, 6, 6, 4))], **MS)
case("NhwcConv", [R((1, 8, 8, 3)), R((4, 3, 3, 3))], F32, slack=4, reference=nhwc_conv,
     runs=[[R((2, 12, 5, 3)), R((4, 3, 3, 3))]], **MS)
X, W, B, Z = R((2, 7, 8, 4)), R((6, 4, 3, 3)), R((6,)), R((2, 7, 8, 6))
for name in ("Relu", "Tanh", "LeakyRelu"):
    attrs = {"activation_params": [0.2]} if name == "LeakyRelu" else {}
    for inputs in ([X, W], [X, W, B, Z], [X, W, None, Z]):
        case("NhwcFusedConv", inputs, IEEE, slack=4, reference=nhwc_fused_conv, pads=[1, 1, 1, 1], activation=name,
             **attrs, **MS)

# ---- ConvTransposeWithDynamicPads: as ConvTranspose on the CPU provider, which has it in float ----
X, W = R((2, 3, 4, 5)), R((3, 4, 3, 3))
for pads in ([0, 0, 0, 0], [1, 1, 1, 1], [0, 1, 2, 0]):
    for source in (K, D):
        case("ConvTransposeWithDynamicPads", [X, W, source(pads), R((4,))], IEEE, slack=4, **MS)
        case("ConvTransposeWithDynamicPads", [X, W, source(pads)], F32, slack=4, strides=[2, 2], **MS)
    case("ConvTransposeWithDynamicPads", [X, W, K(pads), R((4,))], F32, slack=4, strides=[2, 3],
         output_padding=[1, 2], **MS)
case("ConvTransposeWithDynamicPads", [X, R((3, 2, 2, 2)), K([1, 0, 0, 1])], F32, slack=4, strides=[2, 2],
     kernel_shape=[2, 2], **MS)
case("ConvTransposeWithDynamicPads", [R((1, 4, 4, 5)), R((4, 2, 2, 2)), D([1, 0, 0, 1]), R((4,))], F32, slack=4,
     group=2, strides=[2, 2], runs=[[R((1, 4, 4, 5)), R((4, 2, 2, 2)), D([0, 0, 0, 0]), R((4,))]], **MS)
case("ConvTransposeWithDynamicPads", [R((1, 3, 5)), R((3, 4, 3)), D([1, 0])], F32, slack=4, **MS)
