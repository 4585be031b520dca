# SPDX-License-Identifier: Apache-2.0
"""LSTM, GRU and RNN: directions, activations, optional inputs and outputs, and each way in which steps are queued."""

import numpy as np

from cases.kit import F32, D, K, R, case

IEEE = ("float", "float16", "double")
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
STATES = {"LSTM": 2, "GRU": 1, "RNN": 1}
ACTIVATIONS = {"LSTM": 3, "GRU": 2, "RNN": 1}


def weights(op, directions, size, hidden):
    """W and R, small enough that nothing saturates."""
    rows = GATES[op] * hidden
    return [R((directions, rows, size), -0.5, 0.5), R((directions, rows, hidden), -0.5, 0.5)]


def recurrent(op, steps, batch, size, hidden, types=F32, opsets=(22,), bias=True, state=False, lengths=None,
              peephole=False, slack=8, outputs=None, **attrs):
    directions = 2 if attrs.get("direction") == "bidirectional" else 1
    inputs = [R((steps, batch, size), -1, 1), *weights(op, directions, size, hidden)]
    inputs.append(R((directions, 2 * GATES[op] * hidden), -0.5, 0.5) if bias else None)
    inputs.append(D(lengths, "int32") if lengths else None)
    inputs += [R((directions, batch, hidden), -1, 1) if state else None] * STATES[op]
    if peephole:
        inputs.append(R((directions, 3 * hidden), -0.5, 0.5))
    while inputs[-1] is None:
        inputs.pop()
    case(op, inputs, types, opsets, outputs=outputs or 1 + STATES[op], slack=slack, hidden_size=hidden, **attrs)


for op in GATES:
    recurrent(op, 5, 2, 3, 4, IEEE, (7, 14, 22))
    recurrent(op, 5, 1, 6, 8, IEEE, state=True)
    for direction in ("forward", "reverse", "bidirectional"):
        recurrent(op, 4, 3, 5, 7, direction=direction, state=True)
        recurrent(op, 6, 3, 4, 16, direction=direction, lengths=[6, 2, 4], state=True)
        recurrent(op, 1, 1, 8, 24, direction=direction, state=True)
        recurrent(op, 3, 2, 4, 40, bias=False, direction=direction)
    # Many entries, and units that many blocks share.
    recurrent(op, 3, 40, 6, 16, IEEE, direction="bidirectional", lengths=[1 + i % 3 for i in range(40)])
    recurrent(op, 3, 2, 6, 370, direction="bidirectional", state=True)
    recurrent(op, 2, 18, 6, 400)
    recurrent(op, 5, 4, 3, 6, lengths=[5, 0, 3, 1], state=True)
    recurrent(op, 9, 5, 12, 64, IEEE)
    recurrent(op, 4, 2, 5, 6, clip=0.3)
    # No step at all: ONNX Runtime's CPU provider ends the process for GRU, and leaves LSTM's third output as it was.
    for direction in ("forward", "reverse", "bidirectional") if op != "GRU" else ():
        recurrent(op, 0, 3, 5, 7, direction=direction, state=True, outputs=2)
    # Each activation in each place it may have.
    for name, alpha, beta in (
        ("Relu", [], []),
        ("Affine", [0.5], [0.25]),
        ("LeakyRelu", [0.2], []),
        ("ThresholdedRelu", [0.1], []),
        ("ScaledTanh", [0.7], [1.3]),
        ("HardSigmoid", [0.3], [0.4]),
        ("Elu", [0.6], []),
        ("Softsign", [], []),
        ("Softplus", [], []),
    ):
        count = ACTIVATIONS[op]
        for place in range(count):
            names = ["Sigmoid" if i == 0 else "Tanh" for i in range(count)]
            names[place] = name
            extra = {key: value for key, value in (("activation_alpha", alpha), ("activation_beta", beta)) if value}
            recurrent(op, 4, 2, 5, 6, activations=names, **extra)
    many = (["LeakyRelu", "Tanh", "HardSigmoid"] * 2)[: 2 * ACTIVATIONS[op]]
    recurrent(op, 4, 2, 5, 6, direction="bidirectional", activations=many, activation_alpha=[0.1, 0.3, 0.2, 0.4],
              activation_beta=[0.45, 0.55])
for linear in (0, 1):
    for direction in ("reverse", "bidirectional"):
        recurrent("GRU", 5, 3, 4, 12, IEEE, direction=direction, linear_before_reset=linear, state=True)
        recurrent("GRU", 4, 20, 4, 48, direction=direction, linear_before_reset=linear, lengths=[1, 4, 2, 3] * 5)
        recurrent("GRU", 3, 2, 6, 400, direction=direction, linear_before_reset=linear)
for clip in (0.0, -1.0):
    recurrent("RNN", 4, 2, 5, 6, clip=clip)
recurrent("LSTM", 5, 2, 3, 6, IEEE, peephole=True, state=True)
recurrent("LSTM", 5, 2, 3, 6, peephole=True, state=True, direction="bidirectional", clip=0.4)
recurrent("LSTM", 5, 20, 3, 40, peephole=True, state=True, lengths=[5, 1, 3, 2] * 5)
recurrent("LSTM", 5, 2, 3, 6, input_forget=1)
recurrent("LSTM", 5, 2, 3, 6, input_forget=1, peephole=True)
X = [R((5, 2, 3), -1, 1), *weights("LSTM", 1, 3, 6)]
case("LSTM", X, F32, (22,), slack=8, hidden_size=6, outputs=1, note="Y alone")
case("LSTM", X, F32, (22,), slack=8, hidden_size=6, outputs=2,
     runs=[[R((2, 4, 3), -1, 1), *X[1:]], [R((9, 1, 3), -1, 1), *X[1:]]])


# DynamicQuantizeLSTM: weights of 8 bits with one scale for each direction or column.
def quantized(steps, batch, size, hidden, kind="int8", columns=False, zero=0, state=False, peephole=False, lengths=None,
              **attrs):
    directions = 2 if attrs.get("direction") == "bidirectional" else 1
    generator = np.random.default_rng(steps * 1000 + hidden)
    # The CPU provider's sums of int8 saturate where the machine lacks VNNI, unless weights are small.
    low, high = (-64, 64) if kind == "int8" else (0, 255)

    def weight(depth):
        return K(generator.integers(low, high + 1, (directions, depth, 4 * hidden)).tolist(), kind)

    shape = (directions, 4 * hidden) if columns else (directions,)
    scale = K(generator.uniform(0.002, 0.004, shape).astype(np.float32).tolist(), "float")
    middle = np.full(shape, zero if kind == "int8" else 128 + zero)
    given = R((directions, batch, hidden), -1, 1) if state else None
    inputs = [R((steps, batch, size), -1, 1), weight(size), weight(hidden), R((directions, 8 * hidden), -0.5, 0.5),
              D(lengths, "int32") if lengths else None, given, given,
              R((directions, 3 * hidden), -0.5, 0.5) if peephole else None, scale, K(middle.tolist(), kind), scale,
              K(middle.tolist(), kind)]
    case("DynamicQuantizeLSTM", inputs, F32, (1,), outputs=3, slack=8, domain="com.microsoft", hidden_size=hidden,
         **attrs)


quantized(5, 1, 6, 8)
quantized(4, 1, 16, 16, state=True, direction="bidirectional")
quantized(4, 3, 20, 24, "uint8", columns=True, state=True, direction="bidirectional")
quantized(3, 6, 7, 5, "uint8", zero=9, state=True, direction="reverse")
quantized(3, 2, 70, 36, columns=True, peephole=True)
quantized(3, 2, 21, 12, zero=-7)
quantized(2, 1, 300, 64, direction="bidirectional")
quantized(70, 1, 12, 18, state=True, direction="bidirectional")
quantized(3, 2, 9, 10, "uint8", clip=0.5, input_forget=1)
