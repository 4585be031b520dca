# SPDX-License-Identifier: Apache-2.0
"""Random networks of images: convolutions of every kind, pools and element-wise nodes, whose channels are put together
and cut in every way."""

from dataclasses import dataclass

import image_nets
import numpy as np
from image_nets import SAME, node

CHANNELS = 16  # of the input
SIZES = [(8, 16), (12, 4), (8, 16), (16, 8)]  # multiples of what the deepest image is smaller by
ACTIVATIONS = (None, "Relu", "Silu", "HardSwish", "LeakyRelu", "Tanh")


@dataclass(frozen=True)
class Image:
    name: str
    channels: int
    level: int = 0  # its sides are smaller by 2 to the power of this


class Net:
    """Nodes from `x` to `y`, which is a row of all that nobody else reads."""

    def __init__(self, seed, length=24):
        self.random = np.random.default_rng(seed)
        self.nodes, self.floats, self.others, self.images = [], {}, {}, [Image("x", CHANNELS)]
        self.is_read = set()
        self.makers = [self.pixels, self.pixels, self.window, self.single_channels, self.groups, self.pool, self.sum,
                       self.scaled, self.activated]
        others = [self.join, self.split, self.cut, self.larger, self.gated, self.branches, self.branches, self.halves]
        while len(self.nodes) < length:
            self.any(*self.makers, *others)()
        ends = [image.name for image in self.images if image.name not in self.is_read]
        for end in ends:
            self.nodes.append(node("Flatten", end, f"{end}_row"))
        self.nodes.append(node("Concat", " ".join(f"{end}_row" for end in ends), "y", axis=1))

    # ---- choices ----

    def any(self, *choices):
        return choices[int(self.random.integers(len(choices)))]

    def image(self, like=None):
        """One of the last, of the same size as `like`."""
        fitting = [image for image in self.images if like is None or image.level == like.level]
        return self.any(*fitting[-6:])

    def alike(self, image):
        size = (image.channels, image.level)
        return self.any(*[other for other in self.images if (other.channels, other.level) == size])

    def width(self):
        return self.any(8, 16, 16, 24, 32, 20)

    # ---- nodes ----

    def fresh(self):
        return f"v{len(self.nodes)}"

    def constant(self, value, is_float=False):
        """In the type that the network is computed in, but for integers and what is float32 in any case."""
        name = f"c{len(self.floats) + len(self.others)}"
        (self.others if is_float or value.dtype == np.int64 else self.floats)[name] = value
        return name

    def add(self, op, images, channels=None, level=None, constants=(), **attributes):
        """A node whose result is an image as the first of `images`, but for what is said."""
        name = self.fresh()
        self.nodes.append(node(op, " ".join([*(image.name for image in images), *constants]), name, **attributes))
        self.is_read |= {image.name for image in images}
        self.images.append(Image(name, channels or images[0].channels, images[0].level if level is None else level))
        return self.images[-1]

    def activate(self, image):
        kind = self.any(*ACTIVATIONS)
        if kind == "Silu":
            return self.add("Mul", [image, self.add("Sigmoid", [image])])
        return self.add(kind, [image]) if kind else image

    def conv(self, image, out, size, groups=1, stride=1):
        of = image.channels // groups
        given = self.random.standard_normal((out, of, size, size)) / np.sqrt(of * size * size)
        constants = [self.constant(given.astype(np.float32))]
        if self.random.random() < 0.6:
            constants.append(self.constant(self.random.standard_normal(out).astype(np.float32)))
        made = self.add("Conv", [image], out, image.level + (stride > 1), constants, group=groups,
                        pads=[size // 2] * 4, strides=[stride] * 2)
        if self.random.random() < 0.2:
            made = self.add("Add", [made, self.alike(made)])
        made = self.activate(made)
        return self.add("Add", [made, self.alike(made)]) if self.random.random() < 0.2 else made

    def pixels(self):
        self.conv(self.image(), self.width(), 1)

    def window(self):
        image = self.image()
        self.conv(image, self.width(), 3, stride=self.any(1, 1, 2) if image.level < 2 else 1)

    def single_channels(self):
        image = self.image()
        self.conv(image, image.channels, self.any(3, 5), groups=image.channels)

    def groups(self):
        image = self.image()
        if image.channels % 4 == 0:
            self.conv(image, self.any(8, 16, 32), self.any(1, 3), groups=self.any(2, 4))

    def pool(self):
        self.add(self.any("MaxPool", "AveragePool"), [self.image()], kernel_shape=[3, 3], **SAME)

    def join(self):
        first = self.image()
        others = [self.image(first) for _ in range(int(self.random.integers(1, 4)))]
        self.put_together([first, *others])

    def put_together(self, images, most=128):
        """Whether there is room for it."""
        channels = sum(image.channels for image in images)
        if channels <= most:
            self.add("Concat", images, channels, axis=1)
        return channels <= most

    # ---- nodes that others read but once ----

    def forget(self, begin, chance=0.7):
        """Nobody else reads what was made since, but for the last of it, or somebody may."""
        if self.random.random() < chance:
            del self.images[begin:-1]

    def branches(self):
        """Images side by side, put together."""
        image, begin = self.image(), len(self.images)
        while len(self.images) < begin + 2:
            self.follow(image)
        for _ in range(int(self.random.integers(3))):
            self.follow(image)
        level = self.images[-1].level
        made = [other for other in self.images[begin:] if other.level == level][-4:]
        if self.any(True, False):
            made.append(self.image(made[0]))
        if self.put_together(made, 256):
            self.forget(begin)

    def follow(self, image):
        """What one of the makers makes of it."""
        kept, self.images = self.images, [image]
        self.any(*self.makers)()
        self.images = kept + self.images[1:]

    def halves(self):
        """Of what is cut in two one half goes on, and the other is put beside it."""
        image, begin = self.image(), len(self.images)
        self.conv(image, self.any(16, 32, 48), 1)
        whole = self.images[-1]
        half = whole.channels // 2
        parts = [self.slice(whole, 0, half), self.slice(whole, half, whole.channels)]
        self.follow(parts[1])
        last = self.images[-1]
        beside = [part for part in parts if part.level == last.level]
        if self.any(True, False) and beside:
            beside.pop()
        self.put_together([*beside, last], 256)
        self.forget(begin)

    def split(self):
        image = self.image()
        count = self.any(2, 2, 3)
        if image.channels < 8 * count:
            return
        at = sorted(self.random.choice(np.arange(1, image.channels // 4), count - 1, replace=False) * 4)
        sizes = np.diff([0, *at, image.channels]).astype(np.int64)
        names = [f"{self.fresh()}_{i}" for i in range(count)]
        self.nodes.append(node("Split", f"{image.name} {self.constant(sizes)}", " ".join(names), axis=1))
        self.is_read.add(image.name)
        self.images += [Image(name, int(size), image.level) for name, size in zip(names, sizes, strict=True)]

    def cut(self):
        image = self.image()
        self.slice(image, *sorted(self.random.choice(image.channels // 4 + 1, 2, replace=False) * 4))

    def slice(self, image, begin, end):
        bounds = [self.constant(np.array([number], np.int64)) for number in (begin, end, 1)]
        return self.add("Slice", [image], int(end - begin), constants=bounds)

    def larger(self):
        image = self.image()
        if image.level > 0:
            factors = self.constant(np.array([1, 1, 2, 2], np.float32), is_float=True)
            self.add("Resize", [image], level=image.level - 1, constants=["", factors], mode="nearest")

    def sum(self):
        image = self.image()
        self.add(self.any("Add", "Sub", "Max"), [image, self.alike(image)])

    def scaled(self):
        image = self.image()
        by = self.random.standard_normal((image.channels, 1, 1)).astype(np.float32)
        self.add(self.any("Mul", "Add"), [image], constants=[self.constant(by)])

    def gated(self):
        image = self.image()
        gate = self.add("Sigmoid", [self.add("GlobalAveragePool", [image])])
        self.add("Mul", [image, gate])
        self.images = [kept for kept in self.images if kept.name not in (gate.name, self.images[-3].name)]

    def activated(self):
        self.activate(self.image())

    def model(self, kind):
        return image_nets.made(kind, CHANNELS, self.nodes, self.floats, self.others)
