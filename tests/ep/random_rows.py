# SPDX-License-Identifier: Apache-2.0
"""Rows of random encoders in the many ways in which exporters write them: sizes, products, norms, activations."""

import numpy as np
from random_kit import FLOAT, WIDE, Net


class Rows(Net):
    """Of `width` elements; `styles` are what most of a network is written in."""

    def __init__(self, seed):
        super().__init__(seed, opset=0)
        self.opset = self.any(17, 18, 21)
        self.heads, self.size = self.any((2, 8), (4, 4), (1, 16), (3, 6), (2, 5), (4, 16))
        self.width = self.heads * self.size
        self.common, self.styles = {}, {}

    def style(self, name, *choices):
        """Mostly the same in all of a network."""
        kept = self.styles.setdefault(name, self.any(*choices))
        return kept if self.chance(0.85) else self.any(*choices)

    def once(self, name, make):
        if name not in self.common:
            self.common[name] = make()
        return self.common[name]

    # ---- sizes ----

    def dim(self, x, axis):
        return self("Gather", self("Shape", x), self.constant(np.int64(axis)), axis=0)

    def shape(self, x, *parts, is_it=True):
        """A list of sizes, of which a text like "1" is that of x along this axis; `is_it`: it is x that is seen so."""
        given = self.style("shape", "zeros", "sizes", "sizes", "minus") if is_it else "sizes"
        asked = [i for i, part in enumerate(parts) if isinstance(part, str)]
        if given == "zeros" and all(int(parts[i]) == i for i in asked):
            return self.ints(*(0 if i in asked else part for i, part in enumerate(parts)))
        is_pair = len(asked) == 2 and int(parts[asked[0]]) == asked[0] and -1 not in parts
        if given == "minus" and not self.is_empty and is_pair:
            return self.ints(*((0 if i == asked[0] else -1) if i in asked else part for i, part in enumerate(parts)))
        return self.sizes(*(self.dim(x, int(part)) if i in asked else part for i, part in enumerate(parts)))

    def sizes(self, *parts):
        """A list of numbers, some of which nodes give."""
        lists = [self.ints(part) if isinstance(part, int) else self.axes("Unsqueeze", part, 0) for part in parts]
        return self("Concat", *lists, axis=0)

    def reshape(self, x, *parts, of=None):
        return self("Reshape", x, self.shape(of or x, *parts, is_it=of is None))

    def turn(self, x, *perm):
        return self("Transpose", x, perm=list(perm))

    # ---- rows ----

    def sum(self, x, y):
        return self("Add", *((x, y) if self.chance() else (y, x)))

    def scaled(self, x, factor):
        if factor == self.size**-0.5 and self.style("computed", False, False, True):  # as torch does
            root = self("Sqrt", self.cast(self.slice(self("Shape", x), 0, -1, 2**62), self.kinds[x]))
            return self("Div", x, root) if self.chance() else self(
                "Mul", x, self("Div", self.number(1, like=x), root))
        if self.style("scaled", True, False):
            return self("Mul", x, self.number(factor, like=x))
        return self("Div", x, self.number(1 / factor, like=x))

    def linear(self, x, rows, columns):
        way = self.style("linear", "matmul", "matmul", "no bias", "gemm", "turned", "conv", "einsum")
        bias = self.weight(columns, scale=0.3)
        if way == "gemm":
            flat = self("Reshape", x, self.ints(-1, rows))
            made = self("Gemm", flat, self.weight(columns, rows, scale=rows**-0.5), bias, transB=1)
            return self.reshape(made, "0", "1", columns, of=x)
        if way == "conv":
            matrix = self.weight(columns, rows, 1, scale=rows**-0.5)
            return self.turn(self("Conv", self.turn(x, 0, 2, 1), matrix, bias, kernel_shape=[1]), 0, 2, 1)
        matrix = self.weight(rows, columns)
        if way == "turned":
            matrix = self.turn(self.weight(columns, rows, scale=rows**-0.5), 1, 0)
        made = self("Einsum", x, matrix, equation="btd,de->bte") if way == "einsum" else self("MatMul", x, matrix)
        return made if way == "no bias" else self.sum(made, bias)

    def norm(self, x):
        way = self.style("norm", "op", "written", "written", "rms", "rms", "simplified")
        if way == "simplified":
            return self("SimplifiedLayerNormalization", x, self.gain(), axis=-1, epsilon=1e-5)
        if way == "op":
            return self("LayerNormalization", x, self.gain(), self.weight(self.width, scale=0.2), axis=-1)
        wide = self.chance(0.3)
        x = self.cast(x, WIDE) if wide else x
        x = self("Sub", x, self.mean(x)) if way == "written" else x
        two = self.number(2, like=x)
        root = self("Sqrt", self.sum(self.mean(self("Pow", x, two) if self.chance() else self("Mul", x, x)),
                                     self.number(1e-3, like=x)))
        x = self("Div", x, root) if self.style("root", True, False) else self("Mul", x, self("Reciprocal", root))
        x = self.cast(x, FLOAT) if wide else x
        x = self("Mul", *((x, self.gain()) if self.chance() else (self.gain(), x)))
        return self.sum(x, self.weight(self.width, scale=0.2)) if way == "written" else x

    def mean(self, x, *axes):
        return self.axes("ReduceMean", x, *(axes or [self.any(-1, 2)]), keepdims=1)

    def gain(self):
        return self.constant(1 + 0.2 * self.random.standard_normal(self.width))

    def add_and_norm(self, x, y):
        """The sum, and the sum normalised."""
        if self.style("skip", False, False, True):
            name, more = self.any(("SkipLayerNormalization", [self.weight(self.width, scale=0.2)]),
                                  ("SkipSimplifiedLayerNormalization", []))
            more += [self.weight(self.width, scale=0.2)] if self.chance() else []
            made, _, _, whole = self(name, x, y, self.gain(), *more, outputs=4, domain="com.microsoft", epsilon=1e-5)
            for i in (1, 2):  # are left out
                self.nodes[-1].output[i] = ""
            return whole, made
        whole = self.sum(x, y)
        return whole, self.norm(whole)

    # ---- activations ----

    def gelu(self, x):
        way, half = self.any("erf", "erf", "tanh", "quick", "cube"), lambda value: self.number(value, like=x)
        if way == "quick":
            return self("Mul", x, self("Sigmoid", self("Mul", x, half(1.702))))
        if way == "erf":
            inner = self("Erf", self("Div", x, half(2**0.5)) if self.chance() else self("Mul", x, half(0.5**0.5)))
        else:
            cube = self("Pow", x, half(3)) if way == "cube" else self("Mul", self("Mul", x, x), x)
            inner = self("Tanh", self("Mul", self.sum(x, self("Mul", cube, half(0.044715))), half(0.7978845608)))
        more = self.sum(inner, half(1))
        first, second, third = self.any((x, more, half(0.5)), (x, half(0.5), more), (more, half(0.5), x))
        return self("Mul", self("Mul", first, second), third)

    def silu(self, x):
        return self("Mul", x, self("Sigmoid", x))

    def activated(self, x):
        way = self.any(self.gelu, self.gelu, self.silu, "Relu", "HardSwish", "square", "Gelu")
        if way == "Gelu":
            return self("Gelu", x, domain="com.microsoft")
        if way == "square":
            return self("Pow", self("Relu", x), self.number(2, like=x))
        return self(way, x) if isinstance(way, str) else way(x)

    def feed_forward(self, x):
        inner = self.any(self.width, 2 * self.width, 24)
        way = self.style("inner", "plain", "gated", "halves")
        if way == "plain":
            made = self.activated(self.linear(x, self.width, inner))
        elif way == "gated":
            made = self("Mul", self.activated(self.linear(x, self.width, inner)), self.linear(x, self.width, inner))
        else:
            parts = self.parts(self.linear(x, self.width, 2 * inner), 2, inner, 2)
            made = self("Mul", parts[0], self.activated(parts[1]))
        return self.linear(made, inner, self.width)

    def parts(self, x, count, size, axis):
        if self.chance():
            return self.split(x, count, axis, *([size] * count if self.chance() else []))
        return [self.slice(x, axis, i * size, (i + 1) * size if i + 1 < count else self.any(2**62, count * size))
                for i in range(count)]
