# SPDX-License-Identifier: Apache-2.0
"""Small networks over lines, as texts and sounds have them: convolutions of one dimension and what stands between."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

CHANNELS = 32


class Network:
    """Nodes and constants, one after the other. All values are those of float16, in `kind`."""

    def __init__(self, kind, known):
        self.kind, self.known = kind, known
        self.nodes, self.constants = [], []
        self.random = np.random.default_rng(7)

    def const(self, value):
        name = f"k{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def ints(self, *values):
        return self.const(np.array(values, np.int64))

    def number(self, value):
        return self.const(np.array(value, self.kind))

    def weights(self, *dims):
        values = self.random.standard_normal(dims) / np.sqrt(max(1, np.prod(dims[1:])))
        return self.const(values.astype(np.float16).astype(self.kind))

    def op(self, op, *inputs, outputs=1, **attributes):
        made = [f"v{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), made, **attributes))
        return made[0] if outputs == 1 else made

    def conv(self, x, channels, made, kernel=1, bias=True, group=1, **attributes):
        inputs = [x, self.weights(made, channels // group, kernel), *([self.weights(made)] if bias else [])]
        return self.op("Conv", *inputs, group=group, **attributes)

    def turned(self, x):
        return self.op("Transpose", x, perm=[0, 2, 1])

    def row_norm(self, x):
        return self.op("LayerNormalization", x, self.weights(CHANNELS), self.weights(CHANNELS), axis=-1)

    def gelu(self, x):
        erf = self.op("Erf", self.op("Div", x, self.number(2**0.5)))
        return self.op("Mul", self.op("Mul", x, self.number(0.5)), self.op("Add", erf, self.number(1)))

    def group_norm(self, x, groups, channels):
        """As torch writes it."""
        rows = self.op("Reshape", x, self.ints(0, groups, -1))
        one, zero = (self.const(np.full(groups, value, self.kind)) for value in (1, 0))
        norm = self.op("Reshape", self.op("InstanceNormalization", rows, one, zero), self.op("Shape", x))
        return self.op("Add", self.op("Mul", norm, self.weights(channels, 1)), self.weights(channels, 1))

    def model(self, inputs, output):
        """Reads and gives float, whatever it computes with."""
        to = helper.np_dtype_to_tensor_dtype(np.dtype(self.kind))
        before = [helper.make_node("Cast", [name], [f"{name}_in"], to=to) for name in inputs]
        after = [helper.make_node("Cast", [output], ["y"], to=TensorProto.FLOAT)]
        shapes = {name: [d if self.known else f"{name}{i}" if d > 1 and i != fixed else d for i, d in enumerate(dims)]
                  for name, (dims, fixed) in inputs.items()}
        info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in shapes.items()]
        out = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
        graph = helper.make_graph(before + self.nodes + after, "lines", info, out, self.constants)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        return made.SerializeToString(), {name: dims for name, (dims, _) in inputs.items()}


def text(n):
    """SqueezeBERT: convolutions of single words in groups are all products; norms are over rows."""
    channels, heads = CHANNELS, 4
    x = n.turned("x_in")
    for _ in range(2):
        q, k, v = [n.op("Reshape", n.conv(x, channels, channels, group=4), n.ints(0, heads, channels // heads, -1))
                   for _ in range(3)]
        rows = [n.op("Transpose", value, perm=[0, 1, 3, 2]) for value in (q, v)]
        scores = n.op("Div", n.op("MatMul", rows[0], k), n.number((channels / heads) ** 0.5))
        seen = n.op("MatMul", n.op("Softmax", n.op("Add", scores, "m_in"), axis=-1), rows[1])
        seen = n.op("Reshape", n.op("Transpose", seen, perm=[0, 1, 3, 2]), n.ints(0, channels, -1))
        x = n.turned(n.row_norm(n.turned(n.op("Add", n.conv(seen, channels, channels), x))))
        wide = n.gelu(n.conv(x, channels, 2 * channels, group=4))
        x = n.turned(n.row_norm(n.turned(n.op("Add", n.conv(wide, 2 * channels, channels, group=4), x))))
    return n.model({"x": ([2, 12, channels], 2), "m": ([2, 1, 1, 12], 0)}, n.turned(x))


def vocoder(n):
    """HiFi-GAN: steps up, then sums of dilated convolutions."""
    channels = CHANNELS
    x = n.conv("x_in", 20, channels, 7, pads=[3, 3])
    for step in (4, 2):
        x = n.op("LeakyRelu", x, alpha=0.1)
        weights = n.weights(channels, channels // 2, 2 * step), n.weights(channels // 2)
        channels //= 2
        x = n.op("ConvTranspose", x, *weights, strides=[step], pads=[step // 2] * 2)
        sums = []
        for kernel in (3, 5):
            part = x
            for dilation in (1, 3):
                y = n.op("LeakyRelu", part, alpha=0.1)
                y = n.conv(y, channels, channels, kernel, dilations=[dilation], pads=[dilation * (kernel // 2)] * 2)
                y = n.conv(n.op("LeakyRelu", y, alpha=0.1), channels, channels, kernel, pads=[kernel // 2] * 2)
                part = n.op("Add", y, part)
            sums.append(part)
        x = n.op("Div", n.op("Add", *sums), n.number(2))
    return n.model({"x": ([1, 20, 9], 1)}, n.op("Tanh", n.conv(x, channels, 1, 7, pads=[3, 3])))


def separator(n):
    """Conv-TasNet: dilated convolutions of each channel between norms of one group."""
    channels, wide = CHANNELS, 48
    sound = n.op("Relu", n.conv("x_in", 1, channels, 16, bias=False, strides=[8]))
    x = n.conv(n.group_norm(sound, 1, channels), channels, channels)
    for dilation in (1, 2, 4):
        y = n.group_norm(n.op("PRelu", n.conv(x, channels, wide), n.number([[0.25]])), 1, wide)
        y = n.conv(y, wide, wide, 3, group=wide, dilations=[dilation], pads=[dilation] * 2)
        y = n.group_norm(n.op("PRelu", y, n.number([[0.25]])), 1, wide)
        x = n.op("Add", x, n.conv(y, wide, channels))
    masked = n.op("Mul", n.op("Sigmoid", n.conv(x, channels, channels)), sound)
    return n.model({"x": ([2, 1, 120], 1)}, n.op("ConvTranspose", masked, n.weights(channels, 1, 16), strides=[8]))


def gates(n):
    """WaveNet: one half of the channels gates the other, and parts of a convolution go different ways."""
    channels = CHANNELS
    x, skip = n.conv("x_in", 20, channels), None
    for dilation in (1, 2, 4):
        if dilation == 2:
            before = n.op("Pad", x, n.ints(0, 0, 2 * dilation, 0, 0, 0))
            both = n.conv(before, channels, 2 * channels, 3, dilations=[dilation])
        else:
            both = n.conv(x, channels, 2 * channels, 3, dilations=[dilation], pads=[dilation] * 2)
        a, b = n.op("Split", both, n.ints(channels, channels), outputs=2, axis=1)
        y = n.conv(n.op("Mul", n.op("Tanh", a), n.op("Sigmoid", b)), channels, 2 * channels)
        stay, go = [n.op("Slice", y, n.ints(i), n.ints(i + channels), n.ints(1)) for i in (0, channels)]
        x = n.op("Mul", n.op("Add", stay, x), n.number(0.5))
        skip = go if skip is None else n.op("Add", skip, go)
    y = n.conv(n.op("Relu", skip), channels, channels)
    return n.model({"x": ([1, 20, 33], 1)}, n.conv(n.op("Relu", y), channels, 20))


def speech(n):
    """wav2vec 2.0: convolutions in steps, a norm of each channel, then rows, with a convolution for their places."""
    channels, x = 1, n.op("Unsqueeze", "x_in", n.ints(1))
    for i, (kernel, step) in enumerate(((10, 5), (3, 2), (2, 2))):
        x = n.conv(x, channels, CHANNELS, kernel, bias=False, strides=[step])
        channels = CHANNELS
        if i == 0:
            x = n.group_norm(x, channels, channels)
        elif i == 1:
            x = n.turned(n.row_norm(n.turned(x)))
        x = n.gelu(x)
    x = n.op("Add", n.op("MatMul", n.row_norm(n.turned(x)), n.weights(channels, channels)), n.weights(channels))
    places = n.conv(n.turned(x), channels, channels, 8, group=4, pads=[4, 4])
    places = n.gelu(n.op("Slice", places, n.ints(0), n.ints(-1), n.ints(2), n.ints(1)))
    return n.model({"x": ([2, 420], -1)}, n.row_norm(n.op("Add", x, n.turned(places))))


def points(n):
    """PointNet: convolutions of single points, then the largest of all."""
    channels, x = 3, n.turned("x_in")
    for made in (24, 48):
        x = n.op("Relu", n.conv(x, channels, made))
        channels = made
    most = n.op("Reshape", n.op("ReduceMax", x, axes=[2], keepdims=1), n.ints(-1, channels))
    return n.model({"x": ([2, 40, 3], 2)}, n.op("Gemm", most, n.weights(10, channels), n.weights(10), transB=1))


NETWORKS = {made.__name__: made for made in (text, vocoder, separator, gates, speech, points)}
