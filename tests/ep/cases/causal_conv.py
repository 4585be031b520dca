# SPDX-License-Identifier: Apache-2.0
"""Causal convolutions of com.microsoft with the state that the next run needs."""

import numpy as np

from cases.attention import MS, NARROW
from cases.kit import F32, D, R, case


def convolved(x, weight, bias, past, dilation=1, activation="none"):
    """x of channels by tokens, past of channels by state: the output, and tokens with the past before them."""
    taps, rows = weight.shape[-1], x.shape[1]
    tokens = np.concatenate([past, x], 1).astype(np.float64)
    out = sum(weight[:, 0, j, None] * tokens[:, j * dilation : j * dilation + rows] for j in range(taps))
    out = out if bias is None else out + bias[:, None]
    return (out if activation == "none" else out / (1 + np.exp(-out))), tokens


def windowed(x, weight, bias=None, past=None, state_window=1, channels_last=0, **attrs):
    """States after each of the last tokens, which the CPU provider does not keep."""
    shape, length = x.shape, (weight.shape[2] - 1) * attrs.get("dilation", 1)
    if channels_last:
        x = x.reshape(*x.shape[:2], -1).swapaxes(1, 2)
        past = None if past is None else past.reshape(*past.shape[:3], -1).swapaxes(2, 3)
    state = np.zeros((*x.shape[:2], length)) if past is None else past[-1]
    outs, states = np.zeros(x.shape), np.zeros((state_window, *x.shape[:2], length))
    for b in range(len(x)):
        outs[b], tokens = convolved(x[b], weight, bias, state[b], **attrs)
        for w in range(state_window):
            end = x.shape[2] - state_window + w + 1
            if end > 0 or w == state_window - 1:
                states[w, b] = tokens[:, end : end + length]
    if channels_last:
        outs, states = outs.swapaxes(1, 2), states.swapaxes(2, 3)
        return [outs.reshape(shape), states.reshape(state_window, shape[0], length, *shape[2:])]
    return [outs, states]


def even(batch, channels, rows, taps, dilation=1, last=None, bias=True, past=True, types=F32, **attrs):
    """`last`: the channels' dimensions, behind the tokens."""
    state = (taps - 1) * dilation
    shapes = [(batch, channels, rows), (batch, channels, state)]
    if last:
        shapes = [(batch, rows, *last), (batch, state, *last)]
        attrs["channels_last"] = 1
    windows = attrs.get("state_window", 0)
    if windows:
        shapes[1] = (windows, *shapes[1])
        attrs["reference"] = windowed
    inputs = [R(shapes[0]), R((channels, 1, taps)), R((channels,)) if bias else None, R(shapes[1]) if past else None]
    while inputs[-1] is None:
        inputs.pop()
    if dilation > 1:
        attrs["dilation"] = dilation
    case("CausalConvWithState", inputs, types, (1,), outputs=2, domain=MS, slack=8, **attrs)


for last in (None, (6,), (2, 3)):
    even(2, 6, 5, 4, last=last, types=NARROW, activation="silu")
    even(1, 6, 1, 4, last=last, types=NARROW, activation="swish")
    even(2, 6, 300, 3, last=last, bias=False, past=False)
    even(1, 6, 7, 3, dilation=4, last=last, bias=False)
    even(2, 6, 2, 3, dilation=4, last=last, past=False, activation="none")
    even(2, 6, 4, 1, last=last, past=False)
    even(2, 6, 0, 3, last=last)
    even(0, 6, 3, 3, last=last)
    for windows, rows in ((1, 4), (3, 5), (4, 2), (8, 1)):
        even(2, 6, rows, 4, last=last, state_window=windows, types=NARROW)
        even(1, 6, rows, 3, dilation=2, last=last, state_window=windows, past=False, activation="silu")
even(2, 3, 8, 4, types=NARROW, activation="silu")  # tokens of a channel in whole pieces
even(3, 5, 64, 3, past=False, types=NARROW)
even(1, 7, 520, 4, bias=False, state_window=1, types=NARROW)
even(1, 2, 16, 1, past=False)


def packed_conv(x, weight, starts, bias, state, counts=None, state_update_capacity=0, **attrs):
    outs, states = np.zeros(x.shape), np.zeros(state.shape)
    update = np.zeros((len(state), state_update_capacity, x.shape[1]))
    for b in range(len(starts) - 1):
        own = x[starts[b] : starts[b + 1]]
        out, tokens = convolved(own.T, weight, bias, state[b], **attrs)
        outs[starts[b] : starts[b + 1]] = out.T
        states[b] = tokens[:, len(own) :]
        taken = max(0, min(state_update_capacity, len(own), counts[b])) if counts is not None else 0
        update[b, :taken] = own[:taken]
    return [outs, states, update][: 3 if state_update_capacity else 2]


def packed(starts, channels, taps, dilation=1, bias=True, counts=None, types=F32, **attrs):
    state = (len(starts) - 1, channels, (taps - 1) * dilation)
    inputs = [R((starts[-1], channels)), R((channels, 1, taps)), D(starts, "int32"), R((channels,)) if bias else None,
              R(state)]
    if counts:
        inputs.append(D(counts, "int32"))
    if dilation > 1:
        attrs["dilation"] = dilation
    case("VarlenCausalConvWithState", inputs, types, (1,), outputs=3 if counts else 2, domain=MS, slack=8,
         reference=packed_conv, **attrs)


packed([0, 3, 4, 9], 6, 4, types=NARROW, activation="silu")
packed([0, 1, 2, 3, 4, 5], 40, 4, types=NARROW, bias=False)
packed([0, 300], 3, 3, dilation=5, activation="swish")
packed([0, 2, 4], 5, 1)
packed([0, 3, 4, 9], 6, 4, counts=[2, 8, -3], state_update_capacity=4, types=NARROW)
packed([0, 3, 4, 9], 6, 3, dilation=2, counts=[9, 1, 2], state_update_capacity=2)
