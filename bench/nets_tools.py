# SPDX-License-Identifier: Apache-2.0
"""What tools make of networks for nets.py, as users have them: a network that ONNX Runtime's optimizer for transformers
has rewritten (opt in float, opt16 in float16), one that a session has saved (saved), and networks of image generation,
which are mostly used so. The CPU provider lacks operators of what is made of images: these need --no-cpu."""

import tempfile
from pathlib import Path

KINDS = ("opt", "opt16", "saved")
FLOATS = ("unet", "vae")  # of whose Resize the converter to float16 makes an invalid model
MODEL_TYPES = {"bert": "bert", "bert_b8": "bert", "gpt2": "gpt2", "clip_vision": "clip", "whisper_tiny": "bart",
               "unet": "unet", "dit": "unet", "vae": "vae"}  # as the optimizer calls them


def remade(source, target, kind, model_type):
    """Writes what one of these tools makes of the model."""
    import onnx

    if kind == "saved":
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.log_severity_level = 3
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        with tempfile.TemporaryDirectory(dir=Path(target).parent) as folder:
            options.optimized_model_filepath = str(Path(folder) / "saved.onnx")
            ort.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])
            onnx.save(onnx.load(options.optimized_model_filepath), target)
        return
    from onnxruntime.transformers import optimizer

    model = optimizer.optimize_model(str(source), model_type=model_type, opt_level=0, use_gpu=True)
    if kind == "opt16":
        model.convert_float_to_float16(keep_io_types=True)
    onnx.save(model.model, target)


def dit(width=384, heads=6, depth=6, side=32):
    """A transformer over patches of an image, each layer of which is scaled and shifted by what is asked for."""
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = (nn.LayerNorm(width, elementwise_affine=False) for _ in range(2))
            self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
            self.inner = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU("tanh"), nn.Linear(4 * width, width))
            self.asked = nn.Sequential(nn.SiLU(), nn.Linear(width, 6 * width))

        def look(self, x):
            n, rows, _ = x.shape
            q, k, v = (side(x).view(n, rows, heads, -1).transpose(1, 2) for side in (self.q, self.k, self.v))
            y = torch.softmax(q @ k.transpose(-1, -2) * (width // heads) ** -0.5, -1) @ v
            return self.out(y.transpose(1, 2).reshape(n, rows, width))

        def forward(self, x, asked):
            shift, scale, gate, shift2, scale2, gate2 = self.asked(asked).unsqueeze(1).chunk(6, 2)
            x = x + gate * self.look(self.a(x) * (1 + scale) + shift)
            return x + gate2 * self.inner(self.b(x) * (1 + scale2) + shift2)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.patches, self.last = nn.Conv2d(4, width, 2, 2), nn.Linear(width, 16)
            self.places = nn.Parameter(torch.randn(1, side * side // 4, width) * 0.02)
            self.blocks = nn.ModuleList(Block() for _ in range(depth))

        def forward(self, x, asked):
            y = self.patches(x).flatten(2).transpose(1, 2) + self.places
            for block in self.blocks:
                y = block(y, asked)
            y = self.last(y).view(-1, side // 2, side // 2, 2, 2, 4)
            return y.permute(0, 5, 1, 3, 2, 4).reshape(-1, 4, side, side)

    return Net(), [torch.randn(2, 4, side, side), torch.randn(2, width)]


def residual_block():
    """The class of blocks of diffusion networks: two convolutions behind normalised groups, beside what they get."""
    from torch import nn

    class Block(nn.Module):
        def __init__(self, c, d):
            super().__init__()
            self.a, self.b = nn.GroupNorm(32, c), nn.GroupNorm(32, d)
            self.c, self.d = nn.Conv2d(c, d, 3, padding=1), nn.Conv2d(d, d, 3, padding=1)
            self.skip = nn.Conv2d(c, d, 1) if c != d else nn.Identity()

        def forward(self, x):
            y = self.c(nn.functional.silu(self.a(x)))
            return self.skip(x) + self.d(nn.functional.silu(self.b(y)))

    return Block


def vae(widths=(256, 128, 64), side=32):
    """The decoder of latent images: blocks of convolutions between normalised groups, pixels that look at each other,
    and sizes that double."""
    import torch
    from torch import nn

    Block = residual_block()  # noqa: N806  (a class)

    class Pixels(nn.Module):
        def __init__(self, c):
            super().__init__()
            self.norm = nn.GroupNorm(32, c)
            self.q, self.k, self.v, self.out = (nn.Linear(c, c) for _ in range(4))

        def forward(self, x):
            n, c, h, w = x.shape
            y = self.norm(x).view(n, c, h * w).transpose(1, 2)
            q, k, v = self.q(y).unsqueeze(1), self.k(y).unsqueeze(1), self.v(y).unsqueeze(1)
            y = torch.softmax(q @ k.transpose(-1, -2) * c**-0.5, -1) @ v
            return x + self.out(y.squeeze(1)).transpose(1, 2).reshape(n, c, h, w)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            first = widths[0]
            self.first, self.last = nn.Conv2d(4, first, 3, padding=1), nn.Conv2d(widths[-1], 3, 3, padding=1)
            self.middle = nn.Sequential(Block(first, first), Pixels(first), Block(first, first))
            self.blocks = nn.ModuleList(nn.Sequential(Block(a, b), Block(b, b))
                                        for a, b in zip((first, *widths), widths, strict=False))
            self.wider = nn.ModuleList(nn.Conv2d(c, c, 3, padding=1) for c in widths[:-1])
            self.norm = nn.GroupNorm(32, widths[-1])

        def forward(self, x):
            x = self.middle(self.first(x))
            for i, block in enumerate(self.blocks):
                x = block(x)
                if i < len(self.wider):
                    x = self.wider[i](nn.functional.interpolate(x, scale_factor=2.0, mode="nearest"))
            return self.last(nn.functional.silu(self.norm(x)))

    return Net(), [torch.randn(1, 4, side, side)]
