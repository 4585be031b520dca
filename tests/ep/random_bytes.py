# SPDX-License-Identifier: Apache-2.0
"""Values of random quantised networks, which are quantised and back, and weights that are dequantised."""

from dataclasses import dataclass, replace

import ml_dtypes
import numpy as np
from random_kit import FLOAT, Net

RANGES = {"int8": (-128, 127), "uint8": (0, 255), "int16": (-32768, 32767), "uint16": (0, 65535)}


@dataclass(frozen=True)
class Value:
    name: str
    channels: int
    level: int = 0  # an image's sides are smaller by 2 to the power of this
    is_rows: bool = False  # [n, pixels, channels], not [n, channels, height, width]
    is_short: bool = True  # as it is behind a DequantizeLinear
    at: tuple | None = None  # the integers it was before: their name, scale, zero and type


class Bytes(Net):
    """`is_exact`: scales are powers of two, so that sums are the same whatever computes them."""

    def __init__(self, seed):
        super().__init__(seed, opset=21)
        self.is_exact, self.type, self.values = self.chance(0.7), self.any("int8", "uint8"), []
        self.off_share_halves = 0.1
        if not self.is_exact:
            self.off_share, self.coarse = 0.1, 1e-3  # a bias is rounded to an integer of the sums

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

    def same(self, made, value, **changes):
        """Behind what moves elements they are quantised by the same numbers, mostly."""
        if value.at is None or self.chance(0.2):
            self.keep(made, value, **changes)
            return
        _, scale, zero, kind = value.at
        integers = self("QuantizeLinear", made, scale, zero, kind=kind)
        name = self("DequantizeLinear", integers, scale, zero, kind=FLOAT)
        self.values.append(replace(value, name=name, at=(integers, scale, zero, kind), **changes))
