# SPDX-License-Identifier: Apache-2.0
"""Random encoders and decoders: blocks of transformers in the many ways in which exporters write them, and ways in
which they do not."""

import numpy as np
import random_changes
from random_attention import POSITIONS, Attention
from random_kit import FLOAT, INT

SIZES = [(2, 5, 3), (2, 5, 3), (1, 1, 4), (3, 4, 1), (0, 3, 2)]  # texts, tokens, and tokens of the past
WORDS = 23


class Encoder(Attention):
    def __init__(self, seed):
        super().__init__(seed)
        self.lengths = SIZES if self.chance(0.6) else [self.any(*SIZES[:-1])]
        self.is_empty = len(self.lengths) > 1 and not self.is_optimised and self.chance()  # at last
        self.lengths = self.lengths if self.is_empty or len(self.lengths) == 1 else self.lengths[:-1]
        self.dims = ("texts", "tokens", "past") if len(self.lengths) > 1 else self.lengths[0]
        self.shared = self.any(*[count for count in (1, 2, 4) if self.heads % count == 0])  # queries a head of keys
        self.write()
        for _ in range(self.any(0, 0, 1, 1, 2, 4, 8)):
            self.any(*random_changes.CHANGES)(self)

    # ---- the network ----

    def embedded(self):
        if self.chance(0.3):
            return self.input("given", FLOAT, *self.dims[:2], self.width)
        words = self.input("words", INT, *self.dims[:2])
        rows = self("Gather", self.weight(WORDS, self.width, scale=1), words, kind=FLOAT)
        if self.chance(0.4):
            return rows
        places = self.weight(POSITIONS, self.width, scale=0.5)
        if self.chance():
            at = self("Range", self.constant(np.int64(0)), self.dim(words, 1), self.constant(np.int64(1)))
            places = self("Gather", places, at, kind=FLOAT)
        else:
            places = self("Slice", places, self.ints(0), self.axes("Unsqueeze", self.dim(words, 1), 0), self.ints(0))
        return self.sum(rows, places)

    def write(self):
        x, first = self.embedded(), self.style("first", True, False)
        if not first:
            x = self.norm(x)
        for _ in range(self.any(1, 1, 2)):
            for part in (self.attention, self.feed_forward):
                if first:
                    x = self.sum(x, part(self.norm(x)))
                else:
                    x = self.add_and_norm(x, part(x))[self.any(0, 1, 1, 1)]
        self.outputs.insert(0, self.end(x))

    def end(self, x):
        way = self.any("rows", "first", "last", "mean", "words", "argmax")
        if way == "first":
            row = self("Gather", x, self.constant(np.int64(0)), axis=1)
            return self("Tanh", self("Gemm", row, self.weight(self.width, self.width), self.weight(self.width)))
        if way == "last":
            return self.linear(self.slice(x, 1, -1, 2**62), self.width, WORDS)
        if way == "mean":
            return self.axes("ReduceMean", x, 1, keepdims=self.any(0, 1))
        return self.linear(self.norm(x), self.width, WORDS) if way == "words" else x

    def feed(self, i, texts, tokens, past):
        sizes, random = {"texts": texts, "tokens": tokens, "past": past, "all": tokens + past}, np.random.default_rng(i)
        made = {}
        for name, dims in self.inputs.items():
            shape = [sizes.get(dim, dim) for dim in dims]
            if name == "words":
                made[name] = random.integers(0, WORDS, shape)
            elif name == "mask":
                made[name] = (random.random(shape) < 0.7).astype(np.int64)
                made[name][:, :1] = 1
            else:
                made[name] = random.standard_normal(shape).astype(np.float16).astype(np.float32)
        return made

    def feeds(self):
        sizes = self.lengths if len(self.lengths) > 1 else self.lengths * 2
        return [self.feed(i, *size) for i, size in enumerate(sizes)]
