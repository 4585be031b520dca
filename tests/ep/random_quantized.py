# SPDX-License-Identifier: Apache-2.0
"""Random quantised networks of images and rows: pairs of QuantizeLinear and DequantizeLinear around nodes, operators
that take integers, and integers that are made in each run.

Most are exact: scales are powers of two and numbers so short that float32 holds every sum, so results are the same
whatever computes them, and what is halfway between two integers is so everywhere.
"""

from dataclasses import dataclass, replace

import ml_dtypes
import numpy as np
import random_changes
from random_kit import FLOAT, WIDE, Net

CHANNELS = 16  # of the input
SIZES = [(2, 8, 4), (1, 4, 8), (3, 8, 8), (2, 8, 4)]
RANGES = {"int8": (-128, 127), "uint8": (0, 255), "int16": (-32768, 32767), "uint16": (0, 65535)}
CHANGES = (random_changes.is_a_result, random_changes.is_read_elsewhere, random_changes.stays, random_changes.is_made_twice,
           random_changes.changes_sides, random_changes.is_not_constant, random_changes.comes_at_another_time)
MICROSOFT = {"domain": "com.microsoft"}


@dataclass(frozen=True)
class Value:
    name: str
    channels: int
    level: int = 0  # an image's sides are smaller by 2 to the power of this
    is_rows: bool = False  # [n, pixels, channels], not [n, channels, height, width]
    is_short: bool = True  # as it is behind a DequantizeLinear
    at: tuple | None = None  # the integers it was before: their name, scale, zero and type


class Quantized(Net):
    def __init__(self, seed, length=26):
        super().__init__(seed, opset=21)
        self.is_exact = self.chance(0.7)
        self.off_share_halves = 0.1
        if not self.is_exact:
            self.off_share, self.coarse = 0.1, 1e-3  # a bias is rounded to an integer of the sums
        self.type = self.any("int8", "uint8")
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

    # ---- scales ----

    def scale(self, *dims, about=2.0**-5):
        power = self.random.integers(-1, 2, dims)
        return about * (2.0**power if self.is_exact else 2.0 ** (power + self.random.random(dims) - 0.5))

    def zero(self, kind, *dims):
        low, high = RANGES[kind]
        middle = (low + high + 1) // 2
        return np.array(self.any(middle, middle + 3, middle - 17, low + 40) + np.zeros(dims), kind)

    def quantized(self, x):
        """(integers, scale, zero, type): names."""
        kind = self.type if self.chance(0.8) else self.any(*(["int8", "uint8"] * 2 + ["int16", "uint16"]))
        zero = self.constant(self.zero(kind), kind)
        scale = self.constant(self.scale(about=2.0**-5 if kind.endswith("8") else 2.0**-9))
        if kind == "uint8" and self.chance(0.15):  # from 0 on, which need not be said
            return self("QuantizeLinear", x, scale, kind=kind), scale, self.constant(np.uint8(0), kind), kind
        return self("QuantizeLinear", x, scale, zero, kind=kind), scale, zero, kind

    def read(self, value):
        """What a DequantizeLinear gives, of its own or that of all."""
        if value.at is None or self.chance(0.6):
            return value.name
        integers, scale, zero, _ = value.at
        return self("DequantizeLinear", integers, scale, zero, kind=FLOAT)

    def halfway(self, value):
        """Quantised and back."""
        at = self.quantized(value.name)
        if self.chance(0.05):
            self.outputs.append(at[0])
        return replace(value, name=self("DequantizeLinear", *at[:3], kind=FLOAT), at=at,
                       is_short=at[3].endswith("8"))

    def short(self, value):
        """In so few bits that a product of it is exact."""
        while not value.is_short:
            value = self.halfway(value)
        return value

    def keep(self, name, like, **changes):
        value = replace(like, name=name, is_short=False, at=None, **changes)
        self.values.append(self.halfway(value) if self.chance(0.9) else value)

    def pick(self, is_rows=None):
        fitting = [value for value in self.values if is_rows in (None, value.is_rows)]
        return self.any(*fitting[-4:]) if fitting else None

    # ---- weights ----

    def weight(self, dims, axis, fan):
        """Dequantised, whole or by the channels along `axis`, with seven bits, so that no processor saturates."""
        kind = self.any("int8", "int8", "int8", "uint8", "int16", "int4")
        about = 2.0 ** np.round(np.log2(1 / (20 * np.sqrt(fan)))) * (8 if kind == "int4" else 1)
        limit = 7 if kind == "int4" else 63
        values = np.clip(np.round(self.random.standard_normal(dims) * limit / 3), -limit, limit).astype(np.int64)
        by_channel = self.chance()
        count = (dims[axis],) if by_channel else ()
        zero = np.array(self.any(0, 0, 5) if kind in ("int8", "int16") else 128 if kind == "uint8" else 0)
        stored = (values + zero).astype(ml_dtypes.int4 if kind == "int4" else kind)
        zero = (zero + np.zeros(count, np.int64)).astype(stored.dtype)
        inputs = [self.constant(stored, kind), self.constant(self.scale(*count, about=about))]
        if kind == "uint8" or zero.astype(int).any() or self.chance():
            inputs.append(self.constant(zero, kind))
        more = {"axis": self.any(axis, axis - len(dims))} if by_channel else {}
        return self("DequantizeLinear", *inputs, kind=FLOAT, **more), self.constants[inputs[1]]

    def bias(self, count, scales, value):
        """None, floats, or 32 bits of the scale of the sums."""
        way = self.any("none", "floats", "integers")
        if way == "none":
            return []
        if way == "floats" or value.at is None:
            return [self.constant(np.round(self.random.standard_normal(count) * 32) / 64)]
        scale = self.constants[value.at[1]] * scales + np.zeros(scales.shape or ())
        whole = np.round(self.random.standard_normal(count) * 0.5 / scale).astype(np.int32)
        name = self.constant(whole, "int32")
        more = {"axis": 0} if scale.ndim else {}
        return [self("DequantizeLinear", name, self.constant(scale), kind=FLOAT, **more)]

    # ---- layers ----

    def conv(self):
        value = self.pick(is_rows=False)
        if value is None:
            return
        value = self.short(value)
        size, out = self.any(1, 1, 3), self.any(16, 16, 32, 12)
        groups = self.any(1, 1, 1, 2, value.channels)
        out = value.channels if groups == value.channels else out
        if value.channels % groups or out % groups:
            return
        stride = self.any(1, 1, 2) if value.level < 1 else 1
        fan = value.channels // groups * size * size
        attributes = {"group": groups, "pads": [size // 2] * 4, "strides": [stride] * 2, "kernel_shape": [size] * 2}
        changes = {"channels": out, "level": value.level + (stride > 1)}
        if self.chance(0.25) and value.at and value.at[3].endswith("8"):
            return self.as_operator("QLinearConv", value, (out, value.channels // groups, size, size), 0, fan, changes,
                                    **attributes)
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
            made = self("Relu", made) if self.chance(0.7) else self("Clip", made, self.constant(0.0), self.constant(6.0))
        self.keep(made, value, **changes)

    def rows(self):
        value = self.pick(is_rows=True)
        if value is None:
            value = self.pick()
            flat = self("Reshape", self.read(value), self.ints(0, value.channels, -1))
            return self.keep(self("Transpose", flat, perm=[0, 2, 1]), value, is_rows=True)
        value, out = self.short(value), self.any(16, 16, 32, 12)
        if self.chance(0.25) and value.at and value.at[3].endswith("8"):
            return self.as_operator("QLinearMatMul", value, (value.channels, out), 1, value.channels, {"channels": out})
        if self.chance(0.3):
            flat = self("Reshape", self.read(value), self.ints(-1, value.channels))
            flat = self.halfway(replace(value, name=flat)) if self.chance() else replace(value, name=flat, at=None)
            turned = self.any(0, 1)
            dims = (out, value.channels) if turned else (value.channels, out)
            weight, scales = self.weight(dims, 1 - turned, value.channels)
            made = self("Gemm", self.read(self.short(flat)), weight, *self.bias(out, scales, self.short(flat)),
                        transB=turned)
            sizes = self("Shape", value.name)
            return self.finish(self("Reshape", made, self("Concat", self.slice(sizes, 0, 0, 2), self.ints(out), axis=0)),
                               value, channels=out)
        weight, scales = self.weight((value.channels, out), 1, value.channels)
        made = self("MatMul", self.read(value), weight)
        for bias in self.bias(out, scales, value):
            made = self("Add", *((made, bias) if self.chance() else (bias, made)))
        self.finish(made, value, channels=out)

    def sum(self):
        value = self.short(self.pick())
        others = [other for other in self.values if (other.channels, other.level, other.is_rows) ==
                  (value.channels, value.level, value.is_rows)]
        other, op = self.short(self.any(*others, value)), self.any("Add", "Add", "Mul")
        if self.chance(0.3) and value.at and other.at and value.at[3] == other.at[3] and value.at[3].endswith("8"):
            given = [name for at in (value.at, other.at) for name in (at[0], self.wide(at[1]), at[2])]
            zero = self.zero(value.at[3]) & ~np.array(1, value.at[3])  # before an odd one the CPU provider rounds otherwise
            given += [self.constant(self.scale(), WIDE), self.constant(zero, value.at[3])]
            return self.integers(f"QLinear{op}", given, value, **MICROSOFT)
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

    def same(self, made, value, **changes):
        """Behind what moves elements they are quantised by the same numbers, mostly."""
        if value.at is None or self.chance(0.2):
            return self.keep(made, value, **changes)
        _, scale, zero, kind = value.at
        integers = self("QuantizeLinear", made, scale, zero, kind=kind)
        name = self("DequantizeLinear", integers, scale, zero, kind=FLOAT)
        self.values.append(replace(value, name=name, at=(integers, scale, zero, kind), **changes))

    def moved(self):
        value = self.pick()
        if value.is_rows:
            heads = self("Reshape", self.read(value), self.ints(0, -1, 4, value.channels // 4))
            heads = self("Transpose", heads, perm=[0, 2, 1, 3])
            back = self("Transpose", heads, perm=[0, 2, 1, 3])
            self.same(self("Reshape", back, self.ints(0, -1, value.channels)), value)
        else:
            self.same(self("Transpose", self("Transpose", self.read(value), perm=[0, 2, 3, 1]), perm=[0, 3, 1, 2]), value)

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
