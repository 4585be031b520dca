# SPDX-License-Identifier: Apache-2.0
"""Further networks for nets.py, written here: kinds that neither torchvision nor transformers has.

BUILDS gives, by name, what makes a network of torch's and its inputs. torch is needed by these alone. Of those of
FLOATS there is no model in float16 that ONNX Runtime takes: torch exports types that differ, or the CPU provider lacks
an operator.
"""


def layers(*parts):
    from torch import nn

    return nn.Sequential(*parts)


def module(parts, forward):
    """A module of these named parts whose result is forward(module, *inputs)."""
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            for name, part in parts.items():
                setattr(self, name, part)

        def forward(self, *values):
            return forward(self, *values)

    return Net()


def added(part):
    """x and what this part makes of it, added."""
    return module({"part": part}, lambda self, x: x + self.part(x))


def style():
    """Transfer of style: reflected borders, norms of each channel of an image, resizing by repeating pixels."""
    import torch
    from torch import nn

    def conv(a, b, kernel, stride=1):
        return layers(nn.ReflectionPad2d(kernel // 2), nn.Conv2d(a, b, kernel, stride),
                      nn.InstanceNorm2d(b, affine=True))

    def block():
        return added(layers(conv(128, 128, 3), nn.ReLU(), conv(128, 128, 3)))

    net = layers(conv(3, 32, 9), nn.ReLU(), conv(32, 64, 3, 2), nn.ReLU(), conv(64, 128, 3, 2), nn.ReLU(),
                 *(block() for _ in range(5)), nn.Upsample(scale_factor=2), conv(128, 64, 3), nn.ReLU(),
                 nn.Upsample(scale_factor=2), conv(64, 32, 3), nn.ReLU(), nn.ReflectionPad2d(4), nn.Conv2d(32, 3, 9))
    return net, [torch.randn(1, 3, 224, 224)]


def larger():
    """Images made four times as large: blocks without norms, channels turned into pixels."""
    import torch
    from torch import nn

    def conv(a, b):
        return nn.Conv2d(a, b, 3, padding=1)

    net = layers(conv(3, 64), added(layers(*(added(layers(conv(64, 64), nn.ReLU(), conv(64, 64))) for _ in range(8)))),
                 conv(64, 256), nn.PixelShuffle(2), conv(64, 256), nn.PixelShuffle(2), conv(64, 3))
    return net, [torch.randn(1, 3, 128, 128)]


def dense_larger():
    """The same with blocks that join all of their own results."""
    import torch
    from torch import nn

    def block():
        def forward(self, x):
            parts = [x]
            for step in self.steps:
                parts.append(step(torch.cat(parts, 1)))
            return x + 0.2 * parts[-1]

        steps = [layers(nn.Conv2d(64 + 32 * i, 32, 3, padding=1), nn.LeakyReLU(0.2)) for i in range(4)]
        return module({"steps": nn.ModuleList([*steps, nn.Conv2d(192, 64, 3, padding=1)])}, forward)

    net = layers(nn.Conv2d(3, 64, 3, padding=1), *(block() for _ in range(9)), nn.Upsample(scale_factor=2),
                 nn.Conv2d(64, 64, 3, padding=1), nn.LeakyReLU(0.2), nn.Conv2d(64, 3, 3, padding=1))
    return net, [torch.randn(1, 3, 96, 96)]


def generator():
    """Images from noise by transposed convolutions."""
    import torch
    from torch import nn

    def up(a, b, stride=2, pad=1):
        return layers(nn.ConvTranspose2d(a, b, 4, stride, pad, bias=False), nn.BatchNorm2d(b), nn.ReLU())

    net = layers(up(100, 512, 1, 0), up(512, 256), up(256, 128), up(128, 64), nn.ConvTranspose2d(64, 3, 4, 2, 1),
                 nn.Tanh())
    return net, [torch.randn(16, 100, 1, 1)]


def vocoder():
    """Sound from a spectrogram: transposed convolutions and dilated ones over time."""
    import torch
    from torch import nn

    def block(c, kernel):
        return layers(*(added(layers(nn.LeakyReLU(0.1),
                                     nn.Conv1d(c, c, kernel, dilation=d, padding=d * (kernel // 2)), nn.LeakyReLU(0.1),
                                     nn.Conv1d(c, c, kernel, padding=kernel // 2))) for d in (1, 3, 5)))

    def several(c):
        return module({"all": nn.ModuleList(block(c, kernel) for kernel in (3, 7, 11))},
                      lambda self, x: sum(part(x) for part in self.all) / 3)

    widths = (512, 256, 128, 64, 32)
    ups = [layers(nn.LeakyReLU(0.1), nn.ConvTranspose1d(a, b, 2 * rate, rate, rate // 2), several(b))
           for a, b, rate in zip(widths, widths[1:], (8, 8, 2, 2), strict=False)]
    net = layers(nn.Conv1d(80, 512, 7, padding=3), *ups, nn.LeakyReLU(), nn.Conv1d(32, 1, 7, padding=3), nn.Tanh())
    return net, [torch.randn(1, 80, 64)]


def separator():
    """Voices taken apart: depthwise convolutions over time, norms of all of a text's values, gates."""
    import torch
    from torch import nn

    def block(d):
        return added(layers(nn.Conv1d(128, 512, 1), nn.PReLU(), nn.GroupNorm(1, 512),
                            nn.Conv1d(512, 512, 3, dilation=d, padding=d, groups=512), nn.PReLU(),
                            nn.GroupNorm(1, 512), nn.Conv1d(512, 128, 1)))

    def forward(self, x):
        y = torch.relu(self.into(x))
        masks = torch.sigmoid(self.mask(self.body(self.norm(y))))
        return self.back((y.unsqueeze(1) * masks.view(x.shape[0], 2, 512, -1)).flatten(0, 1))

    blocks = [block(2**i) for _ in range(2) for i in range(7)]
    parts = {"into": nn.Conv1d(1, 512, 16, 8, bias=False), "norm": nn.GroupNorm(1, 512),
             "body": layers(nn.Conv1d(512, 128, 1), *blocks, nn.PReLU()), "mask": nn.Conv1d(128, 1024, 1),
             "back": nn.ConvTranspose1d(512, 1, 16, 8, bias=False)}
    return module(parts, forward), [torch.randn(1, 1, 16000)]


def wave():
    """Sound by gates of tanh and sigmoid behind dilated convolutions, whose shares are summed."""
    import torch
    from torch import nn

    def forward(self, x):
        x, total = self.first(x), 0
        for step, out in zip(self.steps, self.outs, strict=True):
            a, b = step(x).chunk(2, 1)
            shares = out(torch.tanh(a) * torch.sigmoid(b))
            x, total = x + shares[:, :64], total + shares[:, 64:]
        return self.last(torch.relu(total))

    parts = {"first": nn.Conv1d(80, 64, 1), "last": layers(nn.Conv1d(64, 64, 1), nn.ReLU(), nn.Conv1d(64, 256, 1)),
             "steps": nn.ModuleList(nn.Conv1d(64, 128, 3, dilation=2**(i % 8), padding=2**(i % 8))
                                    for i in range(16)),
             "outs": nn.ModuleList(nn.Conv1d(64, 128, 1) for _ in range(16))}
    return module(parts, forward), [torch.randn(1, 80, 4000)]


def line_reader():
    """A line of text read by convolutions and recurrence in both directions."""
    import torch
    from torch import nn

    def conv(a, b, pool):
        return layers(nn.Conv2d(a, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU(), nn.MaxPool2d(pool))

    body = layers(conv(1, 64, 2), conv(64, 128, 2), conv(128, 256, (2, 1)), conv(256, 512, (2, 1)),
                  nn.Conv2d(512, 512, (2, 1)), nn.ReLU())
    parts = {"body": body, "read": nn.LSTM(512, 256, 2, bidirectional=True), "out": nn.Linear(512, 97)}
    return module(parts, lambda self, x: self.out(self.read(self.body(x).squeeze(2).permute(2, 0, 1))[0])), [
        torch.randn(1, 1, 32, 320)]


def tagger():
    """Words of eight texts marked by recurrence in both directions."""
    import torch
    from torch import nn

    parts = {"words": nn.Embedding(30000, 256), "read": nn.GRU(256, 256, batch_first=True, bidirectional=True),
             "out": nn.Linear(512, 32)}
    return module(parts, lambda self, x: self.out(self.read(self.words(x))[0]).log_softmax(-1)), [
        torch.randint(0, 30000, (8, 128))]


def points():
    """Clouds of points: the same small network for each, and their greatest values."""
    import torch
    from torch import nn

    def shared(*widths):
        return layers(*(layers(nn.Conv1d(a, b, 1), nn.BatchNorm1d(b), nn.ReLU())
                        for a, b in zip(widths, widths[1:], strict=False)))

    def forward(self, x):
        near = self.near(x)
        most = self.far(near).max(2, keepdim=True)[0]
        return self.out(torch.cat([near, most.expand(-1, -1, x.shape[2])], 1))

    parts = {"near": shared(3, 64, 64), "far": shared(64, 128, 1024),
             "out": layers(shared(1088, 512, 256, 128), nn.Conv1d(128, 50, 1))}
    return module(parts, forward), [torch.randn(8, 3, 1024)]


def recommender():
    """Tables of many things, products of each pair of their rows, small networks before and behind."""
    import torch
    from torch import nn

    def dense(*widths):
        return layers(*(layers(nn.Linear(a, b), nn.ReLU()) for a, b in zip(widths, widths[1:], strict=False)))

    def forward(self, numbers, ids):
        first = self.first(numbers)
        rows = torch.stack([first, *(table(ids[:, i]) for i, table in enumerate(self.tables))], 1)
        pairs = (rows @ rows.transpose(1, 2)).flatten(1)[:, self.pairs]
        return torch.sigmoid(self.last(torch.cat([first, pairs], 1)))

    parts = {"first": dense(13, 512, 256, 64), "tables": nn.ModuleList(nn.Embedding(10000, 64) for _ in range(26)),
             "last": layers(dense(64 + 351, 512, 256), nn.Linear(256, 1))}
    net = module(parts, forward)
    low = torch.tril_indices(27, 27, -1)
    net.register_buffer("pairs", low[0] * 27 + low[1])
    return net, [torch.randn(256, 13), torch.randint(0, 10000, (256, 26))]


def table_rows(rows):
    """Rows of a table judged by a small network with norms of batches."""
    import torch
    from torch import nn

    widths = (64, 512, 256, 128, 64)
    net = layers(*(layers(nn.Linear(a, b), nn.BatchNorm1d(b), nn.ReLU())
                   for a, b in zip(widths, widths[1:], strict=False)), nn.Linear(64, 1), nn.Sigmoid())
    return net, [torch.randn(rows, 64)]


def mixer():
    """Patches of an image mixed by products along them and along their channels in turn."""
    import torch
    from torch import nn

    def mlp(a, b):
        return layers(nn.Linear(a, b), nn.GELU(), nn.Linear(b, a))

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        for a, along, b, across in zip(self.a, self.along, self.b, self.across, strict=True):
            x = x + along(a(x).transpose(1, 2)).transpose(1, 2)
            x = x + across(b(x))
        return self.out(self.last(x).mean(1))

    norms = [nn.ModuleList(nn.LayerNorm(512) for _ in range(8)) for _ in range(2)]
    parts = {"patches": nn.Conv2d(3, 512, 16, 16), "a": norms[0], "b": norms[1], "last": nn.LayerNorm(512),
             "along": nn.ModuleList(mlp(196, 256) for _ in range(8)),
             "across": nn.ModuleList(mlp(512, 2048) for _ in range(8)), "out": nn.Linear(512, 1000)}
    return module(parts, forward), [torch.randn(1, 3, 224, 224)]


def conv_mixer():
    """The same by depthwise convolutions of 9 x 9 pixels."""
    import torch
    from torch import nn

    def behind(part):
        return layers(part, nn.GELU(), nn.BatchNorm2d(512))

    blocks = [layers(added(behind(nn.Conv2d(512, 512, 9, padding=4, groups=512))), behind(nn.Conv2d(512, 512, 1)))
              for _ in range(8)]
    net = layers(behind(nn.Conv2d(3, 512, 7, 7)), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                 nn.Linear(512, 1000))
    return net, [torch.randn(1, 3, 224, 224)]


def translator():
    """torch's own encoder with decoder, texts first, which looks at earlier words alone."""
    import torch
    from torch import nn

    net = nn.Transformer(512, 8, 4, 4, 2048)
    whole = module({"net": net}, lambda self, a, b: self.net(a, b, tgt_mask=self.later))
    whole.register_buffer("later", torch.full((64, 64), float("-inf")).triu(1))
    return whole, [torch.randn(128, 2, 512), torch.randn(64, 2, 512)]


def decoded_image():
    """An image from its latent values, as diffusion networks end."""
    import torch
    from torch import nn

    def conv(a, b):
        return layers(nn.GroupNorm(32, a), nn.SiLU(), nn.Conv2d(a, b, 3, padding=1))

    def block(a, b):
        return module({"body": layers(conv(a, b), conv(b, b)), "skip": nn.Conv2d(a, b, 1) if a != b else nn.Identity()},
                      lambda self, x: self.skip(x) + self.body(x))

    def forward(self, x):
        y = self.norm(x).flatten(2).transpose(1, 2)
        y = torch.softmax(self.q(y) @ self.k(y).transpose(1, 2) * 256**-0.5, -1) @ self.v(y)
        return x + self.out(y).transpose(1, 2).reshape(x.shape)

    look = module({"norm": nn.GroupNorm(32, 256), **{name: nn.Linear(256, 256) for name in ("q", "k", "v", "out")}},
                  forward)

    def up(c):
        return layers(nn.Upsample(scale_factor=2), nn.Conv2d(c, c, 3, padding=1))

    net = layers(nn.Conv2d(4, 256, 3, padding=1), block(256, 256), look, block(256, 256), block(256, 256), up(256),
                 block(256, 256), up(256), block(256, 128), up(128), block(128, 64), conv(64, 3))
    return net, [torch.randn(1, 4, 32, 32)]


def volume():
    """Volumes marked on three scales: convolutions, norms and transposed convolutions of three dimensions."""
    import torch
    from torch import nn

    def conv(a, b, stride=1):
        return layers(nn.Conv3d(a, b, 3, stride, 1), nn.InstanceNorm3d(b, affine=True), nn.LeakyReLU(0.01))

    def forward(self, x):
        a = self.a(x)
        b = self.b(a)
        b = self.d(torch.cat([self.up_c(self.c(b)), b], 1))
        return self.out(self.e(torch.cat([self.up_d(b), a], 1)))

    parts = {"a": layers(conv(1, 32), conv(32, 32)), "b": layers(conv(32, 64, 2), conv(64, 64)),
             "c": layers(conv(64, 128, 2), conv(128, 128)), "d": layers(conv(128, 64), conv(64, 64)),
             "e": layers(conv(64, 32), conv(32, 32)), "up_c": nn.ConvTranspose3d(128, 64, 2, 2),
             "up_d": nn.ConvTranspose3d(64, 32, 2, 2), "out": nn.Conv3d(32, 3, 1)}
    return module(parts, forward), [torch.randn(1, 1, 64, 64, 64)]


def graph():
    """Nodes of a graph that take the sums of their neighbours' values."""
    import torch
    from torch import nn

    def forward(self, x, ends):
        for step, own in zip(self.steps, self.owns, strict=True):
            sums = torch.zeros_like(x).scatter_add(0, ends[1:].T.expand(-1, 128), step(x)[ends[0]])
            x = torch.relu(sums + own(x))
        return x

    parts = {name: nn.ModuleList(nn.Linear(128, 128) for _ in range(3)) for name in ("steps", "owns")}
    return module(parts, forward), [torch.randn(5000, 128), torch.randint(0, 5000, (2, 40000))]


def flow():
    """Motion between two images: features read at places that are computed, in four turns."""
    import torch
    from torch import nn

    def conv(a, b, stride=1):
        return layers(nn.Conv2d(a, b, 3, stride, 1), nn.ReLU())

    def forward(self, first, second):
        a, b = self.look(first), self.look(second)
        grid = self.grid.expand(first.shape[0], -1, -1, -1)
        moved = torch.zeros_like(grid)
        for _ in range(4):
            there = nn.functional.grid_sample(b, grid + moved, align_corners=True)
            moved = moved + 0.1 * self.move(torch.cat([a, there, a * there], 1)).permute(0, 2, 3, 1)
        return nn.functional.interpolate(moved.permute(0, 3, 1, 2), scale_factor=4.0, mode="bilinear")

    net = module({"look": layers(conv(3, 32, 2), conv(32, 64, 2), conv(64, 64)),
                  "move": layers(conv(192, 96), conv(96, 64), nn.Conv2d(64, 2, 3, padding=1))}, forward)
    y, x = torch.meshgrid(torch.linspace(-1, 1, 56), torch.linspace(-1, 1, 56), indexing="ij")
    net.register_buffer("grid", torch.stack([x, y], -1)[None])
    return net, [torch.randn(1, 3, 224, 224), torch.randn(1, 3, 224, 224)]


def pyramid():
    """Images of five sizes that go into each other by weights, depthwise convolutions between."""
    import torch
    from torch import nn

    def conv():
        return layers(nn.SiLU(), nn.Conv2d(64, 64, 3, padding=1, groups=64, bias=False), nn.Conv2d(64, 64, 1),
                      nn.BatchNorm2d(64))

    def level():
        def forward(self, *sides):
            sides, weights = list(sides), torch.relu(self.weights)
            weights = weights / (weights.sum(1, keepdim=True) + 1e-4)
            for i in (3, 2, 1, 0):
                wide = nn.functional.interpolate(sides[i + 1], scale_factor=2.0, mode="nearest")
                sides[i] = self.down[i](weights[i, 0] * sides[i] + weights[i, 1] * wide)
            for i in (1, 2, 3, 4):
                small = nn.functional.max_pool2d(sides[i - 1], 3, 2, 1)
                sides[i] = self.up[i - 1](weights[3 + i, 0] * sides[i] + weights[3 + i, 1] * small)
            return sides

        net = module({name: nn.ModuleList(conv() for _ in range(4)) for name in ("down", "up")}, forward)
        net.weights = nn.Parameter(torch.ones(8, 2))
        return net

    def forward(self, *sides):
        for part in self.levels:
            sides = part(*sides)
        return torch.cat([self.out(x).flatten(2) for x in sides], 2)

    net = module({"levels": nn.ModuleList(level() for _ in range(3)), "out": layers(conv(), nn.Conv2d(64, 36, 1))},
                 forward)
    return net, [torch.randn(1, 64, side, side) for side in (64, 32, 16, 8, 4)]


def weather():
    """Images that follow each other: a recurrent cell of convolutions, ten steps written out."""
    import torch
    from torch import nn

    def forward(self, images):
        held = cell = images.new_zeros(images.shape[0], 64, 64, 64)
        for step in range(images.shape[1]):
            i, f, o, g = self.gates(torch.cat([images[:, step], held], 1)).chunk(4, 1)
            cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
            held = torch.sigmoid(o) * torch.tanh(cell)
        return self.out(held)

    parts = {"gates": nn.Conv2d(65, 256, 3, padding=1), "out": nn.Conv2d(64, 1, 1)}
    return module(parts, forward), [torch.randn(1, 10, 1, 64, 64)]


def forecast():
    """Series foretold by blocks that each take away what they explain."""
    import torch
    from torch import nn

    def block():
        return layers(nn.Linear(96, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(),
                      nn.Linear(256, 120))

    def forward(self, x):
        total = 0
        for part in self.parts:
            y = part(x)
            x, total = x - y[:, :96], total + y[:, 96:]
        return total

    return module({"parts": nn.ModuleList(block() for _ in range(10))}, forward), [torch.randn(64, 96)]


def boxes():
    """What a detector ends with: the best of many boxes, decoded, none that lies over a better one."""
    import torch
    import torchvision

    def forward(self, moves, scores):
        best, places = scores.softmax(-1)[:, 1:].max(1)[0].topk(400)
        chosen, moved = self.own[places], moves[places]
        centre = chosen[:, :2] + 0.1 * moved[:, :2] * chosen[:, 2:]
        size = chosen[:, 2:] * torch.exp(0.2 * moved[:, 2:])
        found = torch.cat([centre - size / 2, centre + size / 2], 1)
        kept = torchvision.ops.nms(found, best, 0.5)
        return found[kept]

    net = module({}, forward)
    net.register_buffer("own", torch.rand(8732, 4) * 0.5 + 0.05)
    return net, [torch.randn(8732, 4), torch.randn(8732, 21)]


BUILDS = {"style": style, "larger": larger, "dense_larger": dense_larger, "generator": generator, "vocoder": vocoder,
          "separator": separator, "wave": wave, "line_reader": line_reader, "tagger": tagger, "points": points,
          "recommender": recommender, "table_1": lambda: table_rows(1), "table_1024": lambda: table_rows(1024),
          "mixer": mixer, "conv_mixer": conv_mixer, "translator": translator, "decoded_image": decoded_image,
          "volume": volume, "graph": graph, "flow": flow, "pyramid": pyramid, "weather": weather,
          "forecast": forecast, "boxes": boxes}
FLOATS = ("graph", "translator")
