# SPDX-License-Identifier: Apache-2.0
"""Parts of networks as exporters write them: torch's for ONNX, with sizes that are known when the model runs."""

import math

import numpy as np
from onnx import TensorProto, helper, numpy_helper

TYPES = {np.float32: TensorProto.FLOAT, np.float16: TensorProto.FLOAT16}


class Model:
    """Nodes one behind the other; each call gives the name of its result."""

    def __init__(self, kind, opset=17, seed=0):
        self.kind, self.opset, self.random = kind, opset, np.random.default_rng(seed)
        self.nodes, self.weights, self.inputs, self.outputs, self.count = [], [], [], [], 0

    def name(self, word):
        self.count += 1
        return f"{word}_{self.count}"

    def input(self, name, *dims, kind=None):
        self.inputs.append(helper.make_tensor_value_info(name, kind or TYPES[self.kind], dims))
        return name

    def constant(self, value, kind=None):
        name = self.name("c")
        self.weights.append(numpy_helper.from_array(np.asarray(value, kind or self.kind), name))
        return name

    def ints(self, *values):
        return self.constant(values, np.int64)

    def weight(self, *dims, scale=1.0):
        """Of float16 values in any case, so that models of both types compute the same."""
        values = (self.random.standard_normal(dims) * scale / math.sqrt(dims[0])).astype(np.float16)
        return self.constant(values)

    def __call__(self, operator, *inputs, domain="", **attrs):
        out = self.name(operator)
        self.nodes.append(helper.make_node(operator, list(inputs), [out], f"/{out}", domain=domain, **attrs))
        return out

    def split(self, value, count, axis):
        outs = [self.name("part") for _ in range(count)]
        self.nodes.append(helper.make_node("Split", [value], outs, self.name("/Split"), axis=axis))
        return outs

    def linear(self, x, rows, columns, bias=True):
        product = self("MatMul", x, self.weight(rows, columns))
        return self("Add", self.weight(columns, scale=columns**0.5 / 4), product) if bias else product

    def dim(self, x, d):
        return self("Gather", self("Shape", x), self.constant(d, np.int64), axis=0)

    def shape(self, *parts):
        """A list of sizes: integers, and scalars that other nodes give."""
        lists = [self.ints(part) if isinstance(part, int) else self("Unsqueeze", part, self.ints(0)) for part in parts]
        return self("Concat", *lists, axis=0)

    def finish(self, *outputs):
        given = [helper.make_tensor_value_info(value, TYPES[self.kind], None) for value in outputs]
        graph = helper.make_graph(self.nodes, "g", self.inputs, given, self.weights)
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


def heads_of(m, x, heads, size, perm=(0, 2, 1, 3)):
    shape = m.shape(m.dim(x, 0), m.dim(x, 1), heads, size)
    return m("Transpose", m("Reshape", x, shape), perm=list(perm))


def merged(m, x, width):
    turned = m("Transpose", x, perm=[0, 2, 1, 3])
    return m("Reshape", turned, m.shape(m.dim(turned, 0), m.dim(turned, 1), width))


def bert(kind, heads=4, size=16):
    """Three projections, division by the root of a head's size, a mask of (1 - mask) * lowest."""
    m = Model(kind)
    width = heads * size
    x = m.input("x", "batch", "length", width)
    given = m.input("mask", "batch", "length", kind=TensorProto.INT64)
    q, k, v = (m.linear(x, width, width) for _ in range(3))
    wide = m("Cast", m("Unsqueeze", given, m.ints(1, 2)), to=TYPES[kind])
    mask = m("Mul", m("Sub", m.constant(1), wide), m.constant(np.finfo(kind).min))
    scores = m("MatMul", heads_of(m, q, heads, size), heads_of(m, k, heads, size, (0, 2, 3, 1)))
    scores = m("Add", m("Div", scores, m.constant(math.sqrt(size))), mask)
    out = m("MatMul", m("Softmax", scores, axis=-1), heads_of(m, v, heads, size))
    return m.finish(m.linear(merged(m, out, width), width, width))


def shared(kind, heads=4, size=16, layers=3):
    """Layers that have one set of weights."""
    m = Model(kind)
    width = heads * size
    x = m.input("x", "batch", "length", width)
    matrices = [m.weight(width, width) for _ in range(4)]
    rows = [m.weight(width) for _ in range(4)]
    for _ in range(layers):
        q, k, v = (m("Add", m("MatMul", x, matrices[i]), rows[i]) for i in range(3))
        scores = m("MatMul", heads_of(m, q, heads, size), heads_of(m, k, heads, size, (0, 2, 3, 1)))
        scores = m("Div", scores, m.constant(math.sqrt(size)))
        out = merged(m, m("MatMul", m("Softmax", scores, axis=-1), heads_of(m, v, heads, size)), width)
        x = m("Add", m("MatMul", out, matrices[3]), rows[3])
    return m.finish(x)


def gpt2(kind, heads=4, size=16):
    """One projection that is split, a causal mask cut out of a constant, and a mask that is added."""
    m = Model(kind)
    width = heads * size
    x = m.input("x", "batch", "length", width)
    mask = m.input("mask", "batch", 1, 1, "length")
    both = m("Gemm", m("Reshape", x, m.ints(-1, width)), m.weight(width, 3 * width), m.weight(3 * width))
    both = m("Reshape", both, m.shape(m.dim(x, 0), m.dim(x, 1), 3 * width))
    q, k, v = m.split(both, 3, 2)
    q, v = heads_of(m, q, heads, size), heads_of(m, v, heads, size)
    k = heads_of(m, k, heads, size, (0, 2, 3, 1))
    scores = m("Div", m("MatMul", q, k), m.constant(math.sqrt(size)))
    length = m("Unsqueeze", m.dim(x, 1), m.ints(0))
    seen = m("Slice", m.constant(np.tril(np.ones((1, 1, 64, 64), bool)), bool), m.ints(0), length, m.ints(2))
    seen = m("Slice", seen, m.ints(0), length, m.ints(3))
    scores = m("Add", m("Where", seen, scores, m.constant(-10000.0)), mask)
    out = m("MatMul", m("Softmax", scores, axis=-1), v)
    return m.finish(m.linear(merged(m, out, width), width, width))


def dynamo(kind, heads=4, size=16):
    """As torch's newer exporter writes attention: sizes by parts of shapes, heads counted by -1, keys transposed by way
    of three dimensions."""
    m = Model(kind, opset=18)
    width = heads * size
    x = m.input("x", "batch", "length", width)
    mask = m.input("mask", "batch", 1, "length", "length", kind=TensorProto.BOOL)
    shape = m("Concat", m("Shape", x, start=0, end=1), m("Shape", x, start=1, end=2), m.ints(-1), m.ints(size), axis=0)
    q, k, v = (m("Transpose", m("Reshape", m.linear(x, width, width), shape, allowzero=1), perm=[0, 2, 1, 3])
               for _ in range(3))
    sizes = m("Shape", k)
    last, rows = (m("Slice", sizes, m.ints(-d), m.ints(2**62 if d == 1 else 1 - d)) for d in (1, 2))
    lead = m("Slice", sizes, m.ints(-(2**63)), m.ints(-2))
    flat = m("Reshape", k, m("Concat", m.ints(-1), rows, last, axis=0))
    turned = m("Reshape", m("Transpose", flat, perm=[0, 2, 1]), m("Concat", lead, last, rows, axis=0))
    root = m.constant(size**-0.25)
    scores = m("MatMul", m("Mul", q, root), m("Mul", turned, root))
    added = m("Where", mask, m.constant(0), m.constant(-np.inf))
    out = m("MatMul", m("Softmax", m("Add", scores, added), axis=-1), v)
    return m.finish(merged(m, out, width))


def vit(kind, heads=4, size=16):
    """One projection viewed as [batch, length, 3, heads, size] and transposed as a whole; no mask; sqrt twice."""
    m = Model(kind)
    width = heads * size
    x = m.input("x", "batch", "length", width)
    both = m.linear(x, width, 3 * width)
    five = m("Reshape", both, m.shape(m.dim(x, 0), m.dim(x, 1), 3, heads, size))
    turned = m("Transpose", five, perm=[2, 0, 3, 1, 4])
    q, k, v = (m("Gather", turned, m.constant(i, np.int64), axis=0) for i in range(3))
    root = m("Sqrt", m.constant(1 / math.sqrt(size)))
    scores = m("MatMul", m("Mul", q, root), m("Mul", m("Transpose", k, perm=[0, 1, 3, 2]), root))
    out = m("MatMul", m("Softmax", scores, axis=-1), v)
    return m.finish(m.linear(merged(m, out, width), width, width))


def sdpa(kind, heads=4, size=16):
    """torch's scaled_dot_product_attention: the scale comes from a shape, and rows without keys become 0."""
    m = Model(kind)
    width = heads * size
    x = m.input("x", "batch", "length", width)
    seen = m.input("mask", "batch", 1, "length", "length", kind=TensorProto.BOOL)
    q, k, v = (heads_of(m, m.linear(x, width, width, bias=False), heads, size) for _ in range(3))
    size_of_q = m("Slice", m("Shape", q), m.ints(-1), m.ints(2**62))
    scale = m("Div", m.constant([1.0]), m("Sqrt", m("Cast", size_of_q, to=TYPES[kind])))
    root = m("Sqrt", m("Cast", scale, to=TYPES[kind]))
    turned = m("Mul", m("Transpose", k, perm=[0, 1, 3, 2]), root)
    added = m("Where", seen, m.constant(0), m.constant(-np.inf))
    weights = m("Softmax", m("Add", m("MatMul", m("Mul", q, root), turned), added), axis=-1)
    weights = m("Where", m("IsNaN", weights), m.constant(0), weights)
    return m.finish(merged(m, m("MatMul", weights, v), width))


def t5(kind, heads=4, size=16):
    """No scale, a bias of each head by distance, cross attention to a second sequence, softmax in float."""
    m = Model(kind)
    width = heads * size
    x, other = m.input("x", "batch", "length", width), m.input("other", "batch", "keys", width)
    bias = m.input("bias", 1, heads, "length", "keys")
    q = heads_of(m, m.linear(x, width, width, bias=False), heads, size)
    k = heads_of(m, m.linear(other, width, width, bias=False), heads, size, (0, 2, 3, 1))
    v = heads_of(m, m.linear(other, width, width, bias=False), heads, size)
    scores = m("Add", m("MatMul", q, k), bias)
    wide = m("Softmax", m("Cast", scores, to=TensorProto.FLOAT), axis=-1)
    out = m("MatMul", m("Cast", wide, to=TYPES[kind]), v)
    return m.finish(m.linear(merged(m, out, width), width, width, bias=False))


def rotated(m, x, cosine, sine, size):
    left, right = m.split(x, 2, 3)
    other = m("Concat", m("Neg", right), left, axis=-1)
    return m("Add", m("Mul", x, cosine), m("Mul", other, sine))


def llama(kind, heads=6, kv_heads=2, size=16):
    """Rotary positions, keys and values of the past, heads that share keys."""
    m = Model(kind)
    x = m.input("x", "batch", "length", heads * size)
    past = [m.input(name, "batch", kv_heads, "past", size) for name in ("past_key", "past_value")]
    tables = [m("Unsqueeze", m.input(name, "batch", "length", size), m.ints(1)) for name in ("cosine", "sine")]
    mask = m.input("mask", "batch", 1, "length", "keys")
    q = heads_of(m, m.linear(x, heads * size, heads * size, bias=False), heads, size)
    k, v = (heads_of(m, m.linear(x, heads * size, kv_heads * size, bias=False), kv_heads, size) for _ in range(2))
    k = m("Concat", past[0], rotated(m, k, *tables, size), axis=2)
    v = m("Concat", past[1], v, axis=2)

    def repeated(value):
        five = m("Unsqueeze", value, m.ints(2))
        batch, keys = m.dim(value, 0), m.dim(value, 2)
        wide = m("Expand", five, m.shape(batch, kv_heads, heads // kv_heads, keys, size))
        return m("Reshape", wide, m.shape(batch, heads, keys, size))

    turned = m("Transpose", repeated(k), perm=[0, 1, 3, 2])
    scores = m("Mul", m("MatMul", rotated(m, q, *tables, size), turned), m.constant(1 / math.sqrt(size)))
    weights = m("Softmax", m("Cast", m("Add", scores, mask), to=TensorProto.FLOAT), axis=-1)
    out = m("MatMul", m("Cast", weights, to=TYPES[kind]), repeated(v))
    return m.finish(m.linear(merged(m, out, heads * size), heads * size, heads * size, bias=False), k, v)


def repeated(m, value, times):
    """Heads that are shared, as torch repeats them, all sizes by what the value has when the model runs."""
    sizes = [m.dim(value, d) for d in range(4)]
    five = m("Reshape", m.shape(*sizes[:2], times, *sizes[2:]), m.ints(-1))
    whole = m("Equal", five, m.ints(-1, -1, -1, -1, -1))
    wide = m("Expand", m("Unsqueeze", value, m.ints(2)), m("Where", whole, m.ints(1, 1, 1, 1, 1), five))
    many = m("Mul", sizes[1], m.constant(times, np.int64))
    return m("Reshape", wide, m.shape(sizes[0], many, *sizes[2:]))


def turned_half(m, x):
    """-x[half:], x[:half] of the last of four dimensions, whose length is asked for."""
    half = m("Unsqueeze", m("Div", m.dim(x, 3), m.constant(2, np.int64)), m.ints(0))
    left = m("Slice", x, m.ints(0), half, m.ints(3), m.ints(1))
    right = m("Slice", x, half, m.ints(2**63 - 1), m.ints(3), m.ints(1))
    return m("Concat", m("Neg", right), left, axis=-1)


def rotated_part(m, x, cosine, sine, length):
    """Of each head only so many elements."""
    part = m("Slice", x, m.ints(0), m.ints(length), m.ints(3), m.ints(1))
    rest = m("Slice", x, m.ints(length), m.ints(2**63 - 1), m.ints(3), m.ints(1))
    turned = m("Add", m("Mul", part, cosine), m("Mul", turned_half(m, part), sine))
    return m("Concat", turned, rest, axis=-1)


def angles(m, x, length):
    """Cosines and sines of as many positions as x has rows."""
    rows = m("Range", m.constant(0, np.int64), m.dim(x, 1), m.constant(1, np.int64))
    column = m("Cast", m("Unsqueeze", rows, m.ints(0, 2)), to=TYPES[m.kind])
    half = m("Mul", column, m.constant(10.0 ** -np.arange(length // 2)))
    both = m("Concat", half, half, axis=-1)
    return [m("Unsqueeze", m(operator, both), m.ints(1)) for operator in ("Cos", "Sin")]


def attended(m, q, k, v, width):
    size = m("Sqrt", m("Cast", m.dim(q, 3), to=TYPES[m.kind]))
    scores = m("Div", m("MatMul", q, m("Transpose", k, perm=[0, 1, 3, 2])), size)
    return merged(m, m("MatMul", m("Softmax", scores, axis=-1), v), width)


def phi(kind, heads=6, kv_heads=2, size=16, length=8):
    """Heads are cut out of one product, counted by -1, a part of each is rotated, and those of keys are shared."""
    m = Model(kind)
    widths = [count * size for count in (heads, kv_heads, kv_heads)]
    x = m.input("x", "batch", "length", heads * size)
    rows = m.linear(x, heads * size, sum(widths))
    shape = m.shape(m.dim(x, 0), m.dim(x, 1), -1, size)
    ends = np.cumsum([0, *widths]).tolist()
    parts = [m("Slice", rows, m.ints(start), m.ints(end), m.ints(2), m.ints(1))
             for start, end in zip(ends, ends[1:], strict=False)]
    q, k, v = (m("Transpose", m("Reshape", part, shape), perm=[0, 2, 1, 3]) for part in parts)
    tables = angles(m, x, length)
    q, k = rotated_part(m, q, *tables, length), rotated_part(m, k, *tables, length)
    k, v = repeated(m, k, heads // kv_heads), repeated(m, v, heads // kv_heads)
    return m.finish(m.linear(attended(m, q, k, v, heads * size), heads * size, heads * size))


def qwen3(kind, heads=6, kv_heads=2, size=16):
    """Heads of queries and keys are normalised before they are rotated: of queries behind their transposition, as
    Gemma 3 has it, and of keys before that."""
    m = Model(kind)
    x = m.input("x", "batch", "length", heads * size)

    def rows_of(count):
        shape = m.shape(m.dim(x, 0), m.dim(x, 1), -1, size)
        return m("Reshape", m.linear(x, heads * size, count * size, bias=False), shape)

    tables = angles(m, x, size)
    q = root_mean_square(m, m("Transpose", rows_of(heads), perm=[0, 2, 1, 3]), size)
    k = m("Transpose", root_mean_square(m, rows_of(kv_heads), size), perm=[0, 2, 1, 3])
    q, k = (m("Add", m("Mul", side, tables[0]), m("Mul", turned_half(m, side), tables[1])) for side in (q, k))
    v = m("Transpose", rows_of(kv_heads), perm=[0, 2, 1, 3])
    k, v = repeated(m, k, heads // kv_heads), repeated(m, v, heads // kv_heads)
    return m.finish(m.linear(attended(m, q, k, v, heads * size), heads * size, heads * size, bias=False))


def twice(m, value):
    """Each element of the last of three dimensions twice, and a dimension of 1 before it."""
    tiled = m("Tile", m("Unsqueeze", m("Unsqueeze", value, m.ints(2)), m.ints(4)), m.ints(1, 1, 1, 1, 2))
    return m("Reshape", tiled, m("Concat", m("Slice", m("Shape", tiled), m.ints(0), m.ints(3)), m.ints(-1), axis=0))


def rotated_pairs(m, x, cosine, sine, length):
    """Of each head only so many elements, of which neighbours are pairs."""
    part = m("Slice", x, m.ints(0), m.ints(length), m.ints(3), m.ints(1))
    rest = m("Slice", x, m.ints(length), m.ints(2**63 - 1), m.ints(3), m.ints(1))
    first, second = (m("Slice", part, m.ints(start), m.ints(2**63 - 1), m.ints(3), m.ints(2)) for start in (0, 1))
    both = m("Concat", *(m("Unsqueeze", side, m.ints(-1)) for side in (m("Neg", second), first)), axis=-1)
    shape = m("Concat", m("Slice", m("Shape", both), m.ints(0), m.ints(-2)), m.ints(-1), axis=0)
    turned = m("Add", m("Mul", part, cosine), m("Mul", m("Reshape", both, shape), sine))
    return m("Concat", turned, rest, axis=-1)


def gptj(kind, heads=4, size=16, length=8, rows=64):
    """Neighbours are rotated before heads are put first, and scores are float whatever the model is."""
    m = Model(kind)
    width = heads * size
    x = m.input("x", "batch", "length", width)
    mask = m.input("mask", "batch", 1, "length", "length")
    shape = m.shape(m.dim(x, 0), m.dim(x, 1), -1, size)
    q, k, v = (m("Reshape", m.linear(x, width, width, bias=False), shape) for _ in range(3))
    angle = np.arange(rows)[:, None] * 10.0 ** -np.arange(length // 2)
    table = m.constant(np.concatenate([np.sin(angle), np.cos(angle)], axis=1).astype(np.float16))
    positions = m("Unsqueeze", m("Range", m.constant(0, np.int64), m.dim(x, 1), m.constant(1, np.int64)), m.ints(0))
    sine, cosine = (twice(m, part) for part in m.split(m("Gather", table, positions, axis=0), 2, axis=-1))
    q, k = (m("Transpose", rotated_pairs(m, side, cosine, sine, length), perm=[0, 2, 1, 3]) for side in (q, k))
    if kind == np.float16:
        q, k, mask = (m("Cast", side, to=TensorProto.FLOAT) for side in (q, k, mask))
    scores = m("Div", m("MatMul", q, m("Transpose", k, perm=[0, 1, 3, 2])), m.constant(size**0.5, np.float32))
    weights = m("Softmax", m("Add", scores, mask), axis=-1)
    if kind == np.float16:
        weights = m("Cast", weights, to=TensorProto.FLOAT16)
    heads_of_v = m("Transpose", v, perm=[0, 2, 1, 3])
    return m.finish(m.linear(merged(m, m("MatMul", weights, heads_of_v), width), width, width, bias=False))


def gptj_whole(kind):
    """All of each head is rotated, and nothing is put behind it."""
    return gptj(kind, length=16)


def bloom(kind, heads=4, size=16):
    """Products of batch and heads as one dimension, a bias of each head by the place of a key, and a mask of four
    dimensions; Q, K and V of a head lie side by side."""
    m = Model(kind)
    width = heads * size
    x = m.input("x", "batch", "length", width)
    places = m.input("places", "batch", "length")
    batch, length = m.dim(x, 0), m.dim(x, 1)
    every = m("Mul", batch, m.constant(heads, np.int64))
    five = m("Reshape", m.linear(x, width, 3 * width), m.shape(batch, length, heads, 3, size))
    q, k, v = (m("Transpose", m("Gather", five, m.constant(i, np.int64), axis=3), perm=[0, 2, 1, 3]) for i in range(3))
    q, k, v = (m("Reshape", side, m.shape(every, -1, size)) for side in (q, k, v))
    slopes = m.constant(2.0 ** -np.arange(1, heads + 1)[:, None])
    bias = m("Mul", slopes, m("Unsqueeze", places, m.ints(1)))
    of_places = m("Mul", m.dim(places, 0), m.constant(heads, np.int64))
    bias = m("Reshape", bias, m.shape(of_places, 1, m.dim(places, 1)))
    scores = m("Mul", m("MatMul", q, m("Transpose", k, perm=[0, 2, 1])), m.constant(size**-0.5))
    scores = m("Reshape", m("Add", scores, bias), m.shape(batch, heads, length, -1))
    mask = m.input("mask", "batch", 1, "length", "length")
    weights = m("Softmax", m("Add", scores, mask), axis=-1)
    y = m("MatMul", m("Reshape", weights, m.shape(every, length, -1)), v)
    part = m("Div", m.dim(y, 0), m.constant(heads, np.int64))
    y = m("Transpose", m("Reshape", y, m.shape(part, heads, m.dim(y, 1), size)), perm=[0, 2, 1, 3])
    return m.finish(m.linear(m("Reshape", y, m.shape(batch, length, width)), width, width))


def deberta(kind, heads=4, size=16, span=8, batch="batch", length="length"):
    """Scores of contents and of relative positions, these picked out of products with all positions there are; batch
    and heads as one dimension; and a mask that leaves rows without any key, whose weights are even."""
    m = Model(kind)
    width = heads * size
    x = m.input("x", batch, length, width)
    given = m.input("mask", batch, length, kind=TensorProto.INT64)
    rows = m("Unsqueeze", m.dim(x, 1), m.ints(0))

    def tail(value):
        sizes = m("Shape", value)
        return m("Slice", sizes, m.ints(-2), m.ints(-1)), m("Slice", sizes, m.ints(-1), m.ints(2**62))

    def flat(side):
        first = heads_of(m, side, heads, size)
        return m("Reshape", first, m.shape(-1, m.dim(side, 1), size))

    def picked(side, first, steps):
        """By steps from a row to the others, as many as there are at most."""
        times = m("Div", first, m.constant(heads, np.int64))
        every = m("Tile", m.weight(heads, 2 * span, size, scale=3), m.shape(times, 1, 1))
        product = m("MatMul", side, m("Transpose", every, perm=[0, 2, 1]))
        steps = m("Clip", m("Add", steps, m.constant(span, np.int64)), m.constant(0, np.int64),
                  m.constant(2 * span - 1, np.int64))
        sizes = m.shape(first, m.dim(side, 1), m.dim(steps, 2))
        none = m("Equal", sizes, m.constant([-1] * 3, np.int64))
        return m("GatherElements", product, m("Expand", steps, m("Where", none, m.ints(1, 1, 1), sizes)), axis=-1)

    q, k, v = (flat(m.linear(x, width, width)) for _ in range(3))
    steps = m.constant(np.arange(64)[None, :, None] - np.arange(64)[None, None, :], np.int64)
    steps = m("Slice", m("Slice", steps, m.ints(0), rows, m.ints(1)), m.ints(0), rows, m.ints(2))
    root = m.constant(math.sqrt(3 * size))
    first = m.dim(q, 0)
    ours = m("Div", picked(q, first, steps), root)
    others = m("Div", m("Transpose", picked(k, first, m("Neg", steps)), perm=[0, 2, 1]), root)
    scores = m("MatMul", q, m("Div", m("Transpose", k, perm=[0, 2, 1]), root))
    scores = m("Add", scores, m("Add", ours, others))
    scores = m("Reshape", scores, m("Concat", m.ints(-1), m.ints(heads), *tail(scores), axis=0))
    seen = m("Mul", m("Unsqueeze", given, m.ints(1, 2)), m("Unsqueeze", given, m.ints(1, 3)))
    hidden = m("Not", m("Cast", seen, to=TensorProto.BOOL))
    weights = m("Softmax", m("Where", hidden, m.constant(np.finfo(kind).min), scores), axis=-1)
    y = m("MatMul", m("Reshape", weights, m("Concat", m.ints(-1), *tail(weights), axis=0)), v)
    y = m("Reshape", y, m("Concat", m.ints(-1), m.ints(heads), *tail(y), axis=0))
    return m.finish(m.linear(merged(m, y, width), width, width))


def deberta_known(kind):
    """The same of one entry, with all sizes known, of which indexes follow."""
    return deberta(kind, batch=1, length=9)


def neox(kind, heads=4, size=16):
    """Q, K and V of a head lie side by side; all of it is rotated, but what is left is put behind that, too."""
    m = Model(kind)
    x = m.input("x", "batch", "length", heads * size)
    rows = m("Reshape", m.linear(x, heads * size, 3 * heads * size), m.shape(m.dim(x, 0), m.dim(x, 1), -1, 3 * size))
    both = m("Transpose", rows, perm=[0, 2, 1, 3])
    q, k, v = (m("Slice", both, m.ints(i * size), m.ints((i + 1) * size), m.ints(3)) for i in range(3))
    tables = angles(m, x, size)
    q, k = rotated_part(m, q, *tables, size), rotated_part(m, k, *tables, size)
    return m.finish(m.linear(attended(m, q, k, v, heads * size), heads * size, heads * size))


def einsum(kind, heads=4, size=16):
    """Products by Einsum, heads never put first, and a mask that hides nothing."""
    m = Model(kind)
    width = heads * size
    x = m.input("x", "batch", 9, width)
    q, k, v = (m("Reshape", m.linear(x, width, width), m.ints(0, 0, heads, size)) for _ in range(3))
    scores = m("Mul", m("Einsum", q, k, equation="b i h d, b j h d -> b h i j"), m.constant(0.25))
    scores = m("Add", scores, m.constant(np.zeros((1, 1, 9, 9))))
    out = m("Einsum", m("Softmax", scores, axis=-1), v, equation="bhij,bjhd->bihd")
    return m.finish(m.linear(m("Reshape", out, m.ints(0, 0, width)), width, width))


def geglu(kind, width=64):
    """One product whose second half, behind Gelu, is a factor of the first; then one whose first half is the gate."""
    m = Model(kind)
    x = m.input("x", "batch", "length", width)
    value, gate = m.split(m.linear(x, width, 4 * width), 2, -1)
    half = m("Mul", m("Add", m("Erf", m("Div", gate, m.constant(math.sqrt(2)))), m.constant(1)), m.constant(0.5))
    y = m("MatMul", m("Mul", value, m("Mul", gate, half)), m.weight(2 * width, 2 * width))
    gate = m("Slice", y, m.ints(0), m.ints(width), m.ints(2))
    value = m("Slice", y, m.ints(width), m.ints(2 * width), m.ints(2))
    return m.finish(m("Mul", m("Mul", gate, m("Sigmoid", gate)), value))


def pixels(kind, side=5, width=64):
    """Rows of images, which ONNX Runtime's Gemm has in two dimensions: an MLP of a network with channels last."""
    m = Model(kind)
    x = m.input("x", "batch", side, side, width)

    def dense(rows, columns):
        flat = m("Gemm", m("Reshape", x, m.ints(-1, rows)), m.weight(rows, columns), m.weight(columns))
        return m("Reshape", flat, m.ints(-1, side, side, columns))

    y = dense(width, 2 * width)
    half = m("Mul", m("Add", m("Erf", m("Div", y, m.constant(math.sqrt(2)))), m.constant(1)), m.constant(0.5))
    x = m("Mul", y, half)
    return m.finish(dense(2 * width, width))


def gemma(kind, heads=2, size=16):
    """Scores with a cap."""
    m = Model(kind)
    width = heads * size
    x = m.input("x", "batch", "length", width)
    q, v = (heads_of(m, m.linear(x, width, width), heads, size) for _ in range(2))
    k = heads_of(m, m.linear(x, width, width), heads, size, (0, 2, 3, 1))
    scores = m("Mul", m("MatMul", q, k), m.constant(0.25))
    scores = m("Mul", m("Tanh", m("Div", scores, m.constant(2.0))), m.constant(2.0))
    return m.finish(merged(m, m("MatMul", m("Softmax", scores, axis=-1), v), width))


def normed(m, x, width, wide=False):
    """Layer normalisation as torch's exporter writes it out below opset 17."""
    centred = m("Sub", x, m("ReduceMean", x, axes=[-1]))
    variance = m("ReduceMean", m("Pow", centred, m.constant(2.0)), axes=[-1])
    root = m("Sqrt", m("Add", variance, m.constant(1e-5)))
    scaled = m("Mul", m("Div", centred, root), m.weight(width, scale=width**0.5))
    return m("Add", scaled, m.weight(width))


def root_mean_square(m, x, width):
    """As transformers' models of Llama's kind: in float, back before the scale."""
    wide = m("Cast", x, to=TensorProto.FLOAT)
    variance = m("ReduceMean", m("Pow", wide, m.constant(2.0, np.float32)), axes=[-1])
    root = m("Sqrt", m("Add", variance, m.constant(1e-5, np.float32)))
    narrow = m("Cast", m("Mul", wide, m("Div", m.constant(1.0, np.float32), root)), to=TYPES[m.kind])
    return m("Mul", m.weight(width, scale=width**0.5), narrow)


def encoder_mlp(kind, width=48):
    """A residual, layer normalisation, a product with Gelu by erf, and the same again."""
    m = Model(kind, opset=16)
    x, other = m.input("x", "batch", "length", width), m.input("other", "batch", "length", width)
    total = normed(m, m("Add", x, other), width)
    inner = m.linear(total, width, 2 * width)
    bent = m("Add", m("Erf", m("Div", inner, m.constant(math.sqrt(2)))), m.constant(1.0))
    active = m("Mul", m("Mul", inner, bent), m.constant(0.5))
    return m.finish(normed(m, m("Add", m.linear(active, 2 * width, width), total), width))


def decoder_mlp(kind, width=48):
    """Sums that go on to the next block, normalised without a mean, and a gated product."""
    m = Model(kind, opset=16)
    x, other = m.input("x", "batch", "length", width), m.input("other", "batch", "length", width)
    total = m("Add", x, other)
    scaled = root_mean_square(m, total, width)
    gate, up = (m.linear(scaled, width, 2 * width, bias=False) for _ in range(2))
    active = m("Mul", m("Mul", gate, m("Sigmoid", gate)), up)
    return m.finish(m("Add", total, m.linear(active, 2 * width, width, bias=False)))


def kept_finite(m, value, old):
    """T5 in float16: below the largest number if any element is infinite, as one of torch's exporters has it."""
    wide = m("Cast", value, to=TensorProto.DOUBLE if old else TensorProto.FLOAT)
    each = m("Cast", m("IsInf", wide), to=TensorProto.INT64)
    if old:
        found = m("Greater", m("ReduceSum", each, keepdims=0), m.constant(0, np.int64))
    else:
        found = m("Cast", m("ReduceMax", each, keepdims=0), to=TensorProto.BOOL)
    largest = np.finfo(m.kind).max
    most = m("Where", found, m.constant(np.float32(largest) - 1000, np.float32), m.constant(largest, np.float32))
    low, high = (m("Cast", bound, to=TYPES[m.kind]) for bound in (m("Neg", most), most))
    return m("Clip", value, low, high) if old else m("Min", m("Max", value, low), high)


def t5_mlp(kind, width=64):
    """Two sums that are kept finite and normalised, the first of which goes on to the second."""
    m = Model(kind)
    x, other = m.input("x", "batch", "length", width), m.input("other", "batch", "length", width)
    total = kept_finite(m, m("Add", x, other), True)
    inner = m("Relu", m.linear(root_mean_square(m, total, width), width, 2 * width, bias=False))
    total = kept_finite(m, m("Add", total, m.linear(inner, 2 * width, width, bias=False)), False)
    return m.finish(root_mean_square(m, total, width), total)


def parallel(kind, width=64):
    """Layers beside each other, whose results are added to what both were made of, and normalised."""
    m = Model(kind, opset=16)
    x = m.input("x", "batch", "length", width)
    for _ in range(2):
        normal = normed(m, x, width)
        left, right = (m.linear(m("Relu", m.linear(normal, width, 2 * width)), 2 * width, width) for _ in range(2))
        x = m("Add", m("Add", left, right), x)
    return m.finish(normed(m, x, width), x)


def conv_block(kind, channels=16):
    """Two convolutions with batch normalisation, a residual and activations, as a classifier has them."""
    m = Model(kind)
    x = m.input("x", "batch", channels, "height", "width")

    def conv(value, bias):
        weights = [m.weight(channels, channels, 3, 3, scale=1 / 3), *([m.weight(channels)] if bias else [])]
        rows = [m.weight(channels, scale=channels**0.5) for _ in range(3)]
        variance = m.constant(m.random.random(channels).astype(np.float16) + np.float16(0.5))
        made = m("Conv", value, *weights, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
        return m("BatchNormalization", made, *rows, variance)

    return m.finish(m("Relu", m("Add", conv(m("Relu", conv(x, False)), True), x)))


def classifier(kind, width=64):
    """A Gemm and a product, each with Relu behind its bias."""
    m = Model(kind)
    x = m.input("x", "batch", "length", width)
    first = m("Relu", m.linear(x, width, 2 * width))
    flat = m("Reshape", first, m.ints(-1, 2 * width))
    return m.finish(m("Relu", m("Gemm", flat, m.weight(8, 2 * width), m.weight(8), transB=1)))


def window_mask(m, side, window, shift):
    """Which pixels of a window were neighbours before an image was rolled, as torchvision writes it: from constants."""
    areas = np.zeros((side, side))
    cuts = [(0, side - window), (side - window, side - shift), (side - shift, side)]
    for i, (top, bottom) in enumerate(cuts):
        for k, (left, right) in enumerate(cuts):
            areas[top:bottom, left:right] = 3 * i + k
    along = side // window
    pieces = m("Transpose", m("Reshape", m.constant(areas), m.ints(along, window, along, window)), perm=[0, 2, 1, 3])
    flat = m("Reshape", pieces, m.ints(along**2, window**2))
    apart = m("Sub", m("Unsqueeze", flat, m.ints(1)), m("Unsqueeze", flat, m.ints(2)))
    zero = m("Equal", apart, m.constant(0))
    mask = m("Where", m("Not", zero), m.constant(-100.0), apart)
    return m("Where", m("Equal", mask, m.constant(0)), m.constant(0), mask)


def rolled(m, x, shift):
    """torch.roll by as much along rows and columns."""
    for axis in (1, 2):
        first = m("Slice", x, m.ints(shift), m.ints(2**63 - 1), m.ints(axis), m.ints(1))
        x = m("Concat", first, m("Slice", x, m.ints(0), m.ints(shift), m.ints(axis), m.ints(1)), axis=axis)
    return x


def swin(kind, batch=1, side=8, window=4, heads=2, size=16):
    """Attention within windows of an image, then within windows that are shifted, as torchvision has it."""
    m = Model(kind, opset=18)
    width, along, pixels, shift = heads * size, side // window, window**2, window // 2
    windows = batch * along**2
    x = m.input("x", batch, side, side, width)
    rows = (np.arange(window)[:, None] + np.zeros(window)).ravel().astype(np.int64)
    columns = np.tile(np.arange(window), window)
    index = (rows[:, None] - rows + window - 1) * (2 * window - 1) + columns[:, None] - columns + window - 1
    for shifted in (False, True):
        y = m("LayerNormalization", x, m.weight(width, scale=width**0.5), m.weight(width), axis=-1)
        y = m("Pad", y, m.ints(0, 0, 0, 0, 0, 0, 0, 0), m.constant(0), mode="constant")
        y = rolled(m, y, shift) if shifted else y
        table = m("Gather", m.weight((2 * window - 1) ** 2, heads, scale=5), m.constant(index.ravel(), np.int64),
                  axis=0)
        bias = m("Transpose", m("Reshape", table, m.ints(pixels, pixels, heads)), perm=[2, 0, 1])
        bias = m("Unsqueeze", bias, m.ints(0))
        y = m("Transpose", m("Reshape", y, m.ints(batch, along, window, along, window, width)), perm=[0, 1, 3, 2, 4, 5])
        both = m.linear(m("Reshape", y, m.ints(windows, pixels, width)), width, 3 * width)
        five = m("Reshape", both, m.ints(windows, pixels, 3, heads, size))
        turned = m("Transpose", five, perm=[2, 0, 3, 1, 4])
        q, k, v = (m("Gather", turned, m.constant(i, np.int64), axis=0) for i in range(3))
        q = m("Mul", q, m.constant(size**-0.5))
        scores = m("Add", m("MatMul", q, m("Transpose", k, perm=[0, 1, 3, 2])), bias)
        if shifted:
            mask = m("Unsqueeze", m("Unsqueeze", window_mask(m, side, window, shift), m.ints(1)), m.ints(0))
            scores = m("Reshape", scores, m.ints(batch, along**2, heads, pixels, pixels))
            scores = m("Reshape", m("Add", scores, mask), m.ints(-1, heads, pixels, pixels))
        y = m("Transpose", m("MatMul", m("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
        y = m.linear(m("Reshape", y, m.ints(windows, pixels, width)), width, width)
        y = m("Transpose", m("Reshape", y, m.ints(batch, along, along, window, window, width)), perm=[0, 1, 3, 2, 4, 5])
        y = m("Reshape", y, m.ints(batch, side, side, width))
        y = rolled(m, y, -shift) if shifted else y
        for axis in (1, 2):
            y = m("Slice", y, m.ints(0), m.ints(side), m.ints(axis), m.ints(1))
        x = m("Add", x, y)
    return m.finish(x)


def whisper(kind, heads=2, size=16):
    """Queries that are scaled before their heads are put first, scores times 1, no mask; what overflows is cut."""
    m = Model(kind, opset=18)
    width, length = heads * size, 12
    x = m.input("x", 1, length, width)
    q, k, v = (m.linear(x, width, width, bias=bias) for bias in (True, False, True))
    q = m("Mul", q, m.constant(size**-0.5))
    q, k, v = (m("Reshape", side, m.ints(1, -1, heads, size)) for side in (q, k, v))
    q, v = (m("Transpose", side, perm=[0, 2, 1, 3]) for side in (q, v))
    scores = m("Mul", m("MatMul", q, m("Transpose", k, perm=[0, 2, 3, 1])), m.constant(1.0))
    out = m("Transpose", m("MatMul", m("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
    y = m("Add", x, m.linear(m("Reshape", out, m.ints(1, length, width)), width, width))
    most = float(np.finfo(np.float16).max) - 1000
    return m.finish(m("Clip", y, m.constant(-most), m.constant(most)))


def multihead(kind, heads=4, size=16, length=9):
    """torch's MultiheadAttention of one image: rows first, Q, K and V turned to the front as one; sizes are known."""
    m = Model(kind, opset=18)
    width = heads * size
    x = m.input("x", 1, length, width)
    both = m.linear(m("Transpose", x, perm=[1, 0, 2]), width, 3 * width)
    both = m("Unsqueeze", m("Reshape", both, m.ints(length, 1, 3, width)), m.ints(0))
    both = m("Squeeze", m("Transpose", both, perm=[3, 1, 2, 0, 4]), m.ints(3))
    sides = (m("Gather", both, m.constant(i, np.int64), axis=0) for i in range(3))
    sides = (m("Transpose", m("Reshape", side, m.ints(length, heads, size)), perm=[1, 0, 2]) for side in sides)
    q, k, v = (m("Reshape", side, m.ints(1, heads, length, size)) for side in sides)
    root = m("Sqrt", m.constant(1 / math.sqrt(size)))
    scores = m("MatMul", m("Mul", q, root), m("Mul", m("Transpose", k, perm=[0, 1, 3, 2]), root))
    out = m("Transpose", m("MatMul", m("Softmax", scores, axis=-1), v), perm=[2, 0, 1, 3])
    out = m("Gemm", m("Reshape", out, m.ints(length, width)), m.weight(width, width), m.weight(width), transB=1)
    return m.finish(m("Add", x, m("Transpose", m("Reshape", out, m.ints(length, 1, width)), perm=[1, 0, 2])))


def dense(kind, channels=16, growth=8):
    """Batch normalisation in front of convolutions, of all images so far."""
    m = Model(kind)
    x = m.input("x", "batch", 3, "height", "width")
    x = m("Conv", x, m.weight(channels, 3, 3, 3, scale=2 / 3), kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    x = m("MaxPool", m("Relu", x), kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    for _ in range(3):
        rows = [m.weight(channels, scale=channels**0.5) for _ in range(3)]
        variance = m.constant(m.random.random(channels).astype(np.float16) + np.float16(0.5))
        y = m("Relu", m("BatchNormalization", x, *rows, variance))
        y = m("Conv", y, m.weight(growth, channels, 3, 3, scale=1 / 3), kernel_shape=[3, 3], pads=[1, 1, 1, 1])
        x = m("Concat", x, y, axis=1)
        channels += growth
    return m.finish(x)


def windows(kind, heads=2, size=16, count=4, rows=9):
    """Attention within windows, which have a dimension of their own, by Einsum and with a bias of each head."""
    m = Model(kind)
    width = heads * size
    x = m.input("x", "batch", count, rows, width)
    batch = m.dim(x, 0)
    parts = m.split(m.linear(x, width, 3 * width), 3, 3)
    shape = m.shape(batch, count, rows, heads, size)
    q, k, v = (m("Transpose", m("Reshape", part, shape), perm=[0, 1, 3, 2, 4]) for part in parts)
    q = m("Mul", q, m.constant(size**-0.5))
    bias = m.constant(m.random.standard_normal((1, heads, rows, rows)).astype(np.float16))
    weights = m("Softmax", m("Add", m("Einsum", q, k, equation="bghid,bghjd->bghij"), bias), axis=-1)
    out = m("Transpose", m("Einsum", weights, v, equation="bghij,bghjd->bghid"), perm=[0, 1, 3, 2, 4])
    return m.finish(m.linear(m("Reshape", out, m.shape(batch, count, rows, width)), width, width))


def unit_attention(m, x, count, rows, heads, size):
    """Rows of units lie between each other; Q, K and V are cut out of six dimensions and turned with them."""
    width = heads * size
    batch = m.dim(x, 0)
    six = m("Reshape", m.linear(x, width, 3 * width), m.shape(batch, rows, count, 3, heads, size))
    parts = [m("Slice", six, m.ints(i), m.ints(i + 1), m.ints(3)) for i in range(3)]
    q, k, v = (m("Squeeze", m("Transpose", part, perm=[3, 0, 4, 2, 1, 5]), m.ints(0)) for part in parts)
    scores = m("MatMul", m("Mul", q, m.constant(size**-0.5)), m("Transpose", k, perm=[0, 1, 2, 4, 3]))
    out = m("Transpose", m("MatMul", m("Softmax", scores, axis=-1), v), perm=[0, 3, 2, 1, 4])
    return m.linear(m("Reshape", out, m.shape(batch, rows * count, width)), width, width)


def units(kind):
    """Of units with one head each, of one unit with two heads, and of units with two heads each."""
    m = Model(kind)
    x = m.input("x", "batch", 36, 32)
    x = m("Add", x, unit_attention(m, x, 4, 9, 1, 32))
    x = m("Add", x, unit_attention(m, x, 1, 36, 2, 16))
    return m.finish(m("Add", x, unit_attention(m, x, 4, 9, 2, 16)))


def of_length_one(m, value):
    """torch's normalize; in float16 its least number is 0."""
    least = m("Clip", m("ReduceL2", value, axes=[-1], keepdims=1), m.constant(1e-12), "")
    return m("Div", value, m("Expand", least, m("Shape", value)))


def cosine(kind, heads=4, size=16, windows=2, rows=9):
    """Swin v2 of transformers: scores are cosines times a number of each head; a bias, and a mask twice."""
    m = Model(kind)
    width = heads * size
    x = m.input("x", windows, rows, width)
    q, k, v = (heads_of(m, m.linear(x, width, width, bias=bias), heads, size) for bias in (True, False, True))
    turned = m("Transpose", of_length_one(m, k), perm=[0, 1, 3, 2])
    scale = m.constant(10 + 5 * m.random.random((heads, 1, 1)).astype(np.float16))
    scores = m("Mul", m("MatMul", of_length_one(m, q), turned), scale)
    bias = m.constant(m.random.standard_normal((1, heads, rows, rows)).astype(np.float16))
    scores = m("Reshape", m("Add", scores, bias), m.ints(1, windows, heads, rows, rows))
    hidden = m.constant(np.where(m.random.random((1, windows, 1, rows, rows)) < 0.3, -100, 0))
    scores = m("Add", m("Add", scores, hidden), hidden)
    weights = m("Softmax", m("Reshape", scores, m.ints(-1, heads, rows, rows)), axis=-1)
    return m.finish(m.linear(merged(m, m("MatMul", weights, v), width), width, width))


def batch_normed(kind, width=64, wide=96):
    """Linear layers with batch normalisation behind, of rows in two dimensions."""
    m = Model(kind)
    x = m.input("x", "batch", "length", width)
    for rows, columns in ((width, wide), (wide, width)):
        y = m("MatMul", x, m.weight(rows, columns))
        given = [m.weight(columns, scale=columns**0.5) for _ in range(3)]
        variance = m.constant(m.random.random(columns).astype(np.float16) + np.float16(0.5))
        normal = m("BatchNormalization", m("Flatten", y, axis=2), *given, variance)
        x = m("HardSwish", m("Reshape", normal, m("Shape", y)))
    return m.finish(x)
