# SPDX-License-Identifier: Apache-2.0
"""Random quantised networks of images and rows: pairs of QuantizeLinear and DequantizeLinear around nodes, operators
that take integers, and integers that are made in each run.

Most are exact: scales are powers of two and numbers so short that float32 holds every sum, so results are the same
whatever computes them, and what is halfway between two integers is so everywhere.
"""

from dataclasses import replace

import numpy as np
import random_changes
from random_bytes import Bytes, Value
from random_kit import FLOAT, WIDE

CHANNELS = 16  # of the input
SIZES = [(2, 8, 4), (1, 4, 8), (3, 8, 8), (2, 8, 4)]
CHANGES = [change for change in random_changes.CHANGES if change not in
           (random_changes.is_scaled, random_changes.goes_along_another_axis, random_changes.is_another_number,
            random_changes.has_more_dims)]
MICROSOFT = {"domain": "com.microsoft"}


class Quantized(Bytes):
    def __init__(self, seed, length=26):
        super().__init__(seed)
        x = self.input("given", FLOAT, "n", CHANNELS, "height", "width")
        self.values = [self.halfway(Value(x, CHANNELS, is_short=False))]
        layers = [self.conv, self.conv, self.rows, self.rows, self.sum, self.pool, self.activated, self.moved,
                  self.joined, self.sizes_changed, self.whole, self.mean, self.parts]
        layers += [] if self.is_exact else [self.dynamic, self.dynamic]
        while len(self.nodes) < length:
            self.any(*layers)()
        for value in self.values[-2:]:
            self.outputs.append(value.name)
        for _ in range(self.any(0, 0, 1, 2, 3)):
            self.any(*CHANGES)(self)

    # ---- layers ----

    def conv(self):
        value = self.pick(is_rows=False)
        value = self.short(value or self.values[0])
        size, out = self.any(1, 1, 3), self.any(16, 16, 32, 12)
        groups = self.any(1, 1, 1, 2, value.channels)
        out = value.channels if groups == value.channels else out
        stride = self.any(1, 1, 2) if value.level < 1 else 1
        fan = value.channels // groups * size * size
        attributes = {"group": groups, "pads": [size // 2] * 4, "strides": [stride] * 2, "kernel_shape": [size] * 2}
        changes = {"channels": out, "level": value.level + (stride > 1)}
        if self.chance(0.25) and value.at and value.at[3].endswith("8"):
            self.as_operator("QLinearConv", value, (out, value.channels // groups, size, size), 0, fan, changes,
                             **attributes)
        else:
            weight, scales = self.weight((out, value.channels // groups, size, size), 0, fan)
            made = self("Conv", self.read(value), weight, *self.bias(out, scales, value), **attributes)
            self.finish(made, value, **changes)

    def as_operator(self, op, value, dims, axis, fan, changes, **attributes):
        """Integers in and out; of weights zero is zero if it is said for each channel."""
        kind = self.any("int8", "uint8") if op == "QLinearMatMul" else self.any("int8", value.at[3])
        if value.at[3] == "int8":
            kind = "int8"
        about = 2.0 ** np.round(np.log2(1 / (20 * np.sqrt(fan))))
        values = np.clip(np.round(self.random.standard_normal(dims) * 20), -63, 63)
        count = (dims[axis],) if self.chance() else ()
        zero = (128 if kind == "uint8" else 0) + np.zeros(count)
        scales = self.scale(*count, about=about)
        kinds, y = value.at[3], self.zero(value.at[3])
        given = [value.at[0], self.wide(value.at[1]), value.at[2],
                 self.constant((values + zero.flat[0]).astype(kind), kind), self.constant(scales, WIDE),
                 self.constant(zero.astype(kind), kind), self.constant(self.scale(), WIDE), self.constant(y, kinds)]
        if op == "QLinearConv" and self.chance():
            whole = self.random.standard_normal(dims[0]) * 0.5 / (self.constants[value.at[1]] * scales)
            given.append(self.constant(np.round(whole).astype(np.int32), "int32"))
        self.integers(op, given, value, **changes, **attributes)

    def wide(self, name):
        return self.constant(self.constants[name], WIDE)

    def integers(self, op, given, value, channels=None, level=None, y=6, **attributes):
        """Keeps what such an operator gives, whose inputs have the result's scale and zero at `y`."""
        kind = self.kinds[given[y + 1]]
        made = self(op, *given, kind=kind, **attributes)
        scale = self.constant(self.constants[given[y]])
        name = self("DequantizeLinear", made, scale, given[y + 1], kind=FLOAT)
        self.values.append(replace(value, name=name, channels=channels or value.channels, is_short=True,
                                   level=value.level if level is None else level,
                                   at=(made, scale, given[y + 1], kind)))

    def finish(self, made, value, **changes):
        """An activation and a sum behind a product."""
        if self.chance(0.2):
            made = self("Add", made, self.constant(np.round(self.random.standard_normal(()) * 32) / 64))
        if self.chance(0.4):
            bounds = [self.constant(0.0), self.constant(6.0)]
            made = self("Relu", made) if self.chance(0.7) else self("Clip", made, *bounds)
        self.keep(made, value, **changes)

    def rows(self):
        value, out = self.pick(is_rows=True), self.any(16, 16, 32, 12)
        if value is None:
            value = self.pick()
            flat = self("Reshape", self.read(value), self.ints(0, value.channels, -1))
            self.keep(self("Transpose", flat, perm=[0, 2, 1]), value, is_rows=True)
            return
        value = self.short(value)
        if self.chance(0.25) and value.at and value.at[3].endswith("8"):
            self.as_operator("QLinearMatMul", value, (value.channels, out), 1, value.channels, {"channels": out})
        elif self.chance(0.3):
            self.gemm(value, out)
        else:
            weight, scales = self.weight((value.channels, out), 1, value.channels)
            made = self("MatMul", self.read(value), weight)
            for bias in self.bias(out, scales, value):
                made = self("Add", *((made, bias) if self.chance() else (bias, made)))
            self.finish(made, value, channels=out)

    def gemm(self, value, out):
        """Of all rows in two dimensions."""
        flat = replace(value, name=self("Reshape", self.read(value), self.ints(-1, value.channels)), at=None)
        flat = self.halfway(flat) if self.chance() else flat
        flat, turned = self.short(flat), self.any(0, 1)
        weight, scales = self.weight((out, value.channels) if turned else (value.channels, out), 1 - turned,
                                     value.channels)
        made = self("Gemm", self.read(flat), weight, *self.bias(out, scales, flat), transB=turned)
        sizes = self("Concat", self.slice(self("Shape", value.name), 0, 0, 2), self.ints(out), axis=0)
        self.finish(self("Reshape", made, sizes), value, channels=out)

    def sum(self):
        value = self.short(self.pick())
        others = [other for other in self.values if (other.channels, other.level, other.is_rows) ==
                  (value.channels, value.level, value.is_rows)]
        other, op = self.short(self.any(*others, value)), self.any("Add", "Add", "Mul")
        if self.chance(0.3) and value.at and other.at and value.at[3] == other.at[3] and value.at[3].endswith("8"):
            given = [name for at in (value.at, other.at) for name in (at[0], self.wide(at[1]), at[2])]
            zero = self.zero(value.at[3]) & ~np.array(1, value.at[3])  # where it is odd the CPU provider adds it first
            given += [self.constant(self.scale(), WIDE), self.constant(zero, value.at[3])]
            self.integers(f"QLinear{op}", given, value, **MICROSOFT)
        else:
            made = self(op, self.read(value), self.read(other))
            self.keep(self("Relu", made) if self.chance(0.4) else made, value)

    def pool(self):
        value = self.pick(is_rows=False)
        if value and self.chance(0.7):
            self.keep(self("MaxPool", self.read(value), kernel_shape=[3, 3], pads=[1] * 4), value)
        elif value and value.level == 0:
            made = self(self.any("MaxPool", "AveragePool"), self.read(value), kernel_shape=[2, 2], strides=[2, 2])
            self.keep(made, value, level=1)

    def activated(self):
        value = self.pick()
        given, ways = self.read(value), ["Relu", "Clip", "LeakyRelu"]
        way = self.any(*ways, *([] if self.is_exact else ["Sigmoid", "HardSwish", "Silu", "Tanh"]))
        more = {"LeakyRelu": {"alpha": 0.125}}.get(way, {})
        if way == "Silu":
            made = self("Mul", given, self.halfway(replace(value, name=self("Sigmoid", given))).name)
        else:
            made = self(way, given, *([self.constant(-1.0), self.constant(2.0)] if way == "Clip" else []), **more)
        self.keep(made, value)

    def moved(self):
        value = self.pick()
        if value.is_rows:
            heads = self("Reshape", self.read(value), self.ints(0, -1, 4, value.channels // 4))
            heads = self("Transpose", heads, perm=[0, 2, 1, 3])
            back = self("Transpose", heads, perm=[0, 2, 1, 3])
            self.same(self("Reshape", back, self.ints(0, -1, value.channels)), value)
        else:
            last = self("Transpose", self.read(value), perm=[0, 2, 3, 1])
            self.same(self("Transpose", last, perm=[0, 3, 1, 2]), value)

    def joined(self):
        value = self.pick()
        others = [other for other in self.values if (other.level, other.is_rows) == (value.level, value.is_rows)]
        other = self.any(*others)
        if value.channels + other.channels <= 64:
            made = self("Concat", self.read(value), self.read(other), axis=-1 if value.is_rows else 1)
            self.same(made, value, channels=value.channels + other.channels)

    def parts(self):
        value = self.pick()
        axis, half = -1 if value.is_rows else 1, value.channels // 2
        if half % 4 == 0:
            if self.chance():
                for made in self.split(self.read(value), 2, axis):
                    self.same(made, value, channels=half)
            else:
                self.same(self.slice(self.read(value), axis, half, 2 * half), value, channels=half)

    def sizes_changed(self):
        value = self.pick(is_rows=False)
        if value and value.level > 0:
            factors = self.constant(np.array([1, 1, 2, 2]), WIDE)
            self.same(self("Resize", self.read(value), "", factors, mode="nearest"), value, level=value.level - 1)

    def mean(self):
        """Squeeze and excitation without the middle."""
        value = self.pick(is_rows=False)
        if value and not self.is_exact:
            gate = self.halfway(replace(value, name=self("GlobalAveragePool", self.read(value))))
            self.keep(self("Mul", self.read(value), self.halfway(replace(gate, name=self("Sigmoid", gate.name))).name),
                      value)

    def whole(self):
        """Integers that nobody reads as floats, and floats of integers that are given."""
        value = self.pick()
        if self.chance(0.3) and value.at:
            self.outputs.append(self("Transpose", value.at[0], kind=value.at[3]))

    def dynamic(self):
        """Quantised in each run."""
        value = self.pick()
        integers, scale, zero = self("DynamicQuantizeLinear", self.cast(value.name, WIDE), outputs=3, kind="uint8")
        self.kinds[scale] = WIDE
        out = self.any(16, 32)
        dims, axis = ((value.channels, out), 1) if value.is_rows else ((out, value.channels, 1, 1), 0)
        whole = np.clip(np.round(self.random.standard_normal(dims) * 20), -63, 63).astype(np.int8)
        given = [integers, self.constant(whole, "int8"), zero]
        given += [self.constant(np.int8(0), "int8")] if self.chance() else []
        made = self.cast(self("MatMulInteger" if value.is_rows else "ConvInteger", *given, kind="int32"), WIDE)
        by = self.constant(self.scale(*((out,) if value.is_rows and self.chance() else ()), about=1 / 64), WIDE)
        made = self("Mul", made, self("Mul", scale, by))
        self.keep(self.cast(made, FLOAT), value, channels=out)

    def feeds(self):
        random = np.random.default_rng(5)
        return [{name: np.ones((), np.float32) if name == "one" else
                 np.round(random.standard_normal((n, CHANNELS, height, width)) * 32).astype(np.float32) / 32
                 for name in self.inputs} for n, height, width in SIZES]
