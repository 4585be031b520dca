# SPDX-License-Identifier: Apache-2.0
"""Attention of random encoders in the many ways in which exporters write it, and ways in which they do not."""

import numpy as np
from random_kit import BOOL, FLOAT, INT, WIDE
from random_rows import Rows

POSITIONS = 16


class Attention(Rows):
    # ---- attention ----

    def put_first(self, x, heads):
        return self.turn(self.reshape(x, "0", "1", heads, self.size), 0, 2, 1, 3)

    def queries_keys_values(self, x, memory):
        """Each [texts, heads, tokens, size]."""
        heads, size, way = self.heads, self.size, self.style("packed", "apart", "apart", "split", "of heads", "of five")
        few = heads // self.shared
        if way == "apart" or memory is not x:
            return [self.put_first(self.linear(of, self.width, count * size), count)
                    for of, count in ((x, heads), (memory, few), (memory, few))]
        if way == "split":
            widths = [heads * size, few * size, few * size]
            rows = self.linear(x, self.width, sum(widths))
            at = np.cumsum([0, *widths])
            cut = self.split(rows, 3, self.any(2, -1), *widths) if self.chance() else [
                self.slice(rows, 2, int(at[i]), int(at[i + 1])) for i in range(3)]
            return [self.put_first(part, count) for part, count in zip(cut, (heads, few, few), strict=True)]
        self.shared = 1
        rows = self.linear(x, self.width, 3 * self.width)
        if way == "of heads":
            return self.parts(self.turn(self.reshape(rows, "0", "1", heads, 3 * size), 0, 2, 1, 3), 3, size, 3)
        five = self.turn(self.reshape(rows, "0", "1", 3, heads, size), 2, 0, 3, 1, 4)
        if self.chance():
            return [self("Gather", five, self.constant(np.int64(i)), axis=0) for i in range(3)]
        return [self.axes("Squeeze", part, 0) for part in self.split(five, 3, 0)]

    def angles(self, tokens_of):
        """Cosines and sines [tokens, size], of which both halves or both of a pair are the same, or are not."""
        paired = self.style("paired", False, True)
        def table():
            half = np.outer(np.arange(POSITIONS), 100.0 ** -np.linspace(0, 1, self.size // 2))
            return np.repeat(half, 2, 1) if paired else np.concatenate([half, half], 1)
        if self.chance(0.2):
            paired = not paired
        cosine, sine = self.constant(np.cos(table())), self.constant(np.sin(table()))
        count = self.axes("Unsqueeze", self.dim(tokens_of, 2), 0)
        if self.chance():
            return [self("Slice", rows, self.ints(0), count, self.ints(0)) for rows in (cosine, sine)]
        at = self("Range", self.constant(np.int64(0)), self.dim(tokens_of, 2), self.constant(np.int64(1)))
        return [self("Gather", rows, at) for rows in (cosine, sine)]

    def rotated(self, x, angles):
        size, half = self.size, self.size // 2
        paired, (cosine, sine) = self.styles["paired"], angles
        if paired:
            first, second = self.slice(x, 3, 0, 2**62, 2), self.slice(x, 3, 1, 2**62, 2)
            lists = [self.axes("Unsqueeze", part, 4) for part in (self("Neg", second), first)]
            turned = self.reshape(self("Concat", *lists, axis=self.any(4, -1)), "0", "1", "2", size, of=x)
        else:
            first, second = self.parts(x, 2, half, 3)
            if self.style("as complex", False, False, True):
                cosine, sine = (self.slice(rows, 1, 0, half) for rows in angles)
                def times(one, other):
                    return self("Mul", one, other)
                return self("Concat", self("Sub", times(first, cosine), times(second, sine)),
                            self.sum(times(second, cosine), times(first, sine)), axis=-1)
            turned = self("Concat", self("Neg", second), first, axis=self.any(3, -1))
        return self.sum(self("Mul", x, cosine), self("Mul", turned, sine))

    def grown(self, x, name, heads):
        past = self.input(f"past_{name}{len(self.inputs)}", FLOAT, self.dims[0], heads, self.dims[2], self.size)
        present = self("Concat", past, x, axis=2)
        self.outputs.append(present)
        return present

    def repeated(self, x):
        """Heads of keys as many as of queries."""
        few, many = self.heads // self.shared, self.heads
        apart = self.axes("Unsqueeze", x, 2)
        wide = self("Expand", apart, self.ints(1, 1, self.shared, 1, 1)) if self.chance() else self(
            "Tile", apart, self.ints(1, 1, self.shared, 1, 1)) if self.chance() else self(
            "Concat", *[apart] * self.shared, axis=2)
        assert few * self.shared == many
        return self.reshape(wide, "0", many, "2", self.size, of=x)

    def normed(self, q, k):
        """Heads of a length, or of a mean square."""
        way = self.style("heads", "none", "none", "none", "rms", "op", "length")
        gain = self.constant(1 + 0.2 * self.random.standard_normal(self.size))
        if way == "rms":
            squares = [self.mean(self("Pow", x, self.number(2)), -1) for x in (q, k)]
            roots = [self("Sqrt", self.sum(square, self.number(1e-3))) for square in squares]
            return [self("Mul", self("Div", x, root), gain) for x, root in zip((q, k), roots, strict=True)]
        if way == "op":
            return [self("LayerNormalization", x, gain, axis=-1, epsilon=1e-3) for x in (q, k)]
        if way == "length":
            q, k = [self("Div", x, self("Max", self.axes("ReduceL2", x, -1, keepdims=1), self.number(1e-3)))
                    for x in (q, k)]
            by = self.constant(3 + self.random.random((self.heads, 1, 1)))
            q = self("Mul", q, self("Exp", self("Min", by, self.number(2))) if self.chance() else by)
        return q, k

    def attention(self, x):
        memory = x
        if self.style("memory", False, False, False, True):
            memory = self.once("memory", lambda: self.input("memory", FLOAT, self.dims[0], self.dims[2], self.width))
        sides = self.queries_keys_values(x, memory)
        sides[:2] = self.normed(*sides[:2])
        if memory is x and self.style("rotary", False, True) and self.size % 2 == 0:
            angles = self.angles(sides[0])
            sides[:2] = [self.rotated(side, angles) for side in sides[:2]]
        few = self.heads // self.shared
        if memory is x and self.style("caches", False, False, True):
            sides[1:] = [self.grown(side, name, few) for side, name in zip(sides[1:], "kv", strict=True)]
        if self.shared > 1:
            sides[1:] = [self.repeated(side) for side in sides[1:]]
        q, k, v = sides
        form = self.style("form", *["heads"] * 12, *["flat"] * 4, *["wide"] * 3)
        if form == "flat":  # batch and heads are one dimension
            sides = [self("Reshape", side, self.shape(side, -1, "2", self.size)) for side in sides]
        if form == "wide":
            sides = [self.axes("Unsqueeze", side, 0) for side in sides]
        out = self("MatMul", self.weights(x, *sides[:2], form), sides[2])
        if form == "flat":
            out = self("Reshape", out, self.sizes(self.dim(x, 0), self.heads, self.dim(x, 1), self.size))
        if form == "wide":
            out = self.axes("Squeeze", out, 0)
        return self.linear(self.reshape(self.turn(out, 0, 2, 1, 3), "0", "1", self.width), self.width, self.width)

    def scores(self, q, k, form):
        scale = self.any(self.size**-0.5, self.size**-0.5, 0.3)
        where = self.style("scale", "scores", "q", "k", "both", "none")
        q = self.scaled(q, scale**0.5 if where == "both" else scale) if where in ("q", "both") else q
        k = self.scaled(k, scale**0.5 if where == "both" else scale) if where in ("k", "both") else k
        if form == "heads" and self.chance(0.2):
            scores = self("Einsum", q, k, equation="bhqd,bhkd->bhqk")
        else:
            perm = {"flat": (0, 2, 1), "heads": (0, 1, 3, 2), "wide": (0, 1, 2, 4, 3)}[form]
            scores = self("MatMul", q, self.turn(k, *perm))
        scores = self.scaled(scores, scale) if where == "scores" else scores
        if self.style("cap", *[False] * 5, True):
            scores = self("Mul", self("Tanh", self("Div", scores, self.number(3))), self.number(3))
        return scores

    def weights(self, x, q, k, form):
        scores = self.scores(q, k, form)
        if form == "flat" and self.chance(0.2):
            return self.softmax(scores)
        if form == "flat":  # masks are of four dimensions
            apart = self.sizes(self.dim(x, 0), self.heads, self.dim(q, 1), self.dim(k, 1))
            weights = self.softmax(self.masked(self("Reshape", scores, apart), x, k, 1))
            return self("Reshape", weights, self.sizes(-1, self.dim(q, 1), self.dim(k, 1)))
        talks = form == "heads" and self.style("talks", *[False] * 5, True)
        scores = self.masked(self.talking(scores) if talks else scores, x, k, 3 if form == "wide" else 2)
        return self.talking(self.softmax(scores)) if talks else self.softmax(scores)

    # ---- masks ----

    def seen(self, x, keys, axis):
        """Which keys each query sees: [queries, keys], those behind it not."""
        many, count = self.dim(keys, axis), self.dim(x, 1)
        zero, one = self.constant(np.int64(0)), self.constant(np.int64(1))
        begin, end = self("Sub", many, count), many
        if "memory" in self.inputs:  # which may be shorter; a row that saw no key would be NaN, and 0 here
            begin = self("Max", begin, zero)
            end = self("Add", begin, count)
        ranges = self("Range", begin, end, one), self("Range", zero, many, one)
        rows, columns = self.axes("Unsqueeze", ranges[0], 1), self.axes("Unsqueeze", ranges[1], 0)
        if self.chance():
            return self("LessOrEqual", columns, rows)
        return self("Not", self("Greater", columns, rows))

    def present(self, x, keys, axis):
        """Which keys are no padding, [texts, 1, 1, keys]; the first is there."""
        given = self.once("mask", lambda: self.input("mask", INT, self.dims[0], "all" if isinstance(self.dims[2], str)
                                                     else self.dims[1] + self.dims[2]))
        mask = self("Slice", given, self.ints(0), self.axes("Unsqueeze", self.dim(keys, axis), 0), self.ints(1))
        return self.axes("Unsqueeze", mask, 1, 2)

    def masked(self, scores, x, keys, axis):
        way = self.style("mask", "none", "add", "where", "causal", "and", "bias", "causal and bias")
        if way == "none":
            return scores
        if "bias" in way:
            far = self.chance()
            near = self("Sub", *(self.axes("Unsqueeze", self("Range", self.constant(np.int64(0)), self.dim(of, at),
                        self.constant(np.int64(1))), i) for of, at, i in ((x, 1, 1), (keys, axis, 0))))
            if far:
                near = self("Abs", near)
            bucket = self("Min", self("Max", near, self.constant(np.int64(-3))), self.constant(np.int64(3)))
            bucket = self("Add", bucket, self.constant(np.int64(3)))
            bias = self("Gather", self.weight(7, self.heads, scale=1), bucket, kind=FLOAT)
            bias = self.axes("Unsqueeze", self.turn(bias, 2, 0, 1), 0)
            scores = self.sum(scores, bias)
        if way == "bias":
            return scores
        if way == "add":
            mask = self.cast(self.present(x, keys, axis), FLOAT)
            lost = self("Mul", self("Sub", self.number(1), mask), self.number(self.any(-1e4, -6e4)))
            return self.sum(scores, lost)
        if way == "where":
            sees = self.cast(self.present(x, keys, axis), BOOL)
        else:
            sees = self.seen(x, keys, axis)
            if way == "and":
                sees = self("And", sees, self.cast(self.present(x, keys, axis), BOOL))
        lowest = self.number(self.any(-np.inf, -1e9, -1e4))
        if self.chance(0.3):
            zero = self.number(0)
            return self.sum(scores, self("Where", sees, zero, lowest))
        if self.chance():
            return self("Where", sees, scores, lowest)
        return self("Where", self("Not", sees), lowest, scores)

    def softmax(self, scores):
        way = self.style("softmax", "op", "op", "op", "wide", "written")
        if way == "written":
            most = self.axes("ReduceMax", scores, -1, keepdims=1)
            powers = self("Exp", self("Sub", scores, most))
            made = self("Div", powers, self.axes("ReduceSum", powers, -1, keepdims=1))
        elif way == "wide":
            made = self.cast(self("Softmax", self.cast(scores, WIDE), axis=-1), FLOAT)
        else:
            made = self("Softmax", scores, axis=-1)
        if self.chance(0.2):
            made = self("Where", self("IsNaN", made), self.number(0), made)
        return self("Dropout", made) if self.chance(0.2) else made

    def talking(self, scores):
        mixed = self("MatMul", self.turn(scores, 0, 2, 3, 1), self.weight(self.heads, self.heads))
        return self.turn(mixed, 0, 3, 1, 2)
