#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Networks of many kinds with random weights, most of them as torch exports them, for the benchmarks to measure.

    bench/nets.py FOLDER [--only TEXT] [--list]

Writes NAME.onnx and its inputs, NAME.npz, into FOLDER; several processes share the work, and what is there stays. A
name is the network, its batch where it is not 1, and f32, f16, turned (f16 by Gemm, as torch exports Linear) or q4 (f16
with weights of 4 bits). Needs torch;
torchvision and transformers for theirs, and onnx_ir for q4.
"""

import argparse
import logging
import os
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
BOTH, SINGLE, DECODER, PRODUCTS = ("f32", "f16"), ("f32",), ("f16", "q4"), ("f16", "turned", "q4")


def classifier(name, batch=1, side=224):
    import torch
    import torchvision

    return getattr(torchvision.models, name)(weights=None), [torch.randn(batch, 3, side, side)]


def encoder(kind, batch=1, length=128, **config):
    """The last hidden state of a text encoder or decoder of transformers, without a cache."""
    import torch
    import transformers

    class Last(torch.nn.Module):
        def __init__(self, net):
            super().__init__()
            self.net = net

        def forward(self, ids, mask):
            return self.net(input_ids=ids, attention_mask=mask).last_hidden_state

    settings = getattr(transformers, f"{kind}Config")(attn_implementation="eager", use_cache=False, **config)
    net = Last(getattr(transformers, f"{kind}Model")(settings))
    return net, [torch.randint(0, 30000, (batch, length)), torch.ones(batch, length, dtype=torch.long)]


def speech():
    """The encoder of Whisper's smallest size, over half a minute."""
    import torch
    import transformers

    class Last(torch.nn.Module):
        def __init__(self, net):
            super().__init__()
            self.net = net

        def forward(self, features):
            return self.net(features).last_hidden_state

    net = transformers.models.whisper.modeling_whisper.WhisperEncoder(
        transformers.WhisperConfig(d_model=384, encoder_layers=4, encoder_attention_heads=6, encoder_ffn_dim=1536,
                                   attn_implementation="eager"))
    return Last(net), [torch.randn(1, 80, 3000)]


def recurrent(kind, steps=200, width=256, layers=1, both=False, batch=1):
    import torch

    class Sequence(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = getattr(torch.nn, kind)(width, width, layers, bidirectional=both)

        def forward(self, x):
            return self.net(x)[0]

    return Sequence(), [torch.randn(steps, batch, width)]


def unet():
    """Two levels of a diffusion network: convolutions, group normalization, attention over pixels, resizing."""
    import torch
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

    class Pixels(nn.Module):
        def __init__(self, c, heads=8):
            super().__init__()
            self.norm, self.heads = nn.GroupNorm(32, c), heads
            self.qkv, self.out = nn.Linear(c, 3 * c), nn.Linear(c, c)

        def forward(self, x):
            n, c, h, w = x.shape
            y = self.norm(x).flatten(2).transpose(1, 2)
            q, k, v = self.qkv(y).reshape(n, h * w, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
            scores = torch.softmax(q @ k.transpose(-1, -2) * (c // self.heads) ** -0.5, -1)
            y = self.out((scores @ v).transpose(1, 2).reshape(n, h * w, c))
            return x + y.transpose(1, 2).reshape(n, c, h, w)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Conv2d(4, 128, 3, padding=1), nn.Conv2d(128, 4, 3, padding=1)
            self.down, self.shrink = Block(128, 128), nn.Conv2d(128, 256, 3, stride=2, padding=1)
            self.deep, self.look = Block(256, 256), Pixels(256)
            self.up, self.end = nn.Conv2d(256, 128, 3, padding=1), Block(256, 128)

        def forward(self, x):
            x = self.down(self.first(x))
            y = self.look(self.deep(self.shrink(x)))
            y = self.up(nn.functional.interpolate(y, scale_factor=2.0, mode="nearest"))
            return self.last(self.end(torch.cat([x, y], 1)))

    return Net(), [torch.randn(1, 4, 64, 64)]


class RandomWeights:
    """In the place of a GGUF file: the sizes of a decoder, and weights for it."""

    def __init__(self, layers, width, heads, kv_heads, inner, words):
        self.meta = {"llama.block_count": layers, "llama.embedding_length": width, "llama.attention.head_count": heads,
                     "llama.attention.head_count_kv": kv_heads, "llama.attention.layer_norm_rms_epsilon": 1e-5,
                     "llama.rope.freq_base": 10000.0}
        kv = width // heads * kv_heads
        self.sizes = {"attn_q": (width, width), "attn_k": (kv, width), "attn_v": (kv, width),
                      "attn_output": (width, width), "ffn_gate": (inner, width), "ffn_up": (inner, width),
                      "ffn_down": (width, inner), "token_embd": (words, width)}
        self.records = {"token_embd.weight": ((words,),)}
        self.width, self.random = width, np.random.default_rng(0)

    def tensor(self, name):
        kind = name.removesuffix(".weight").split(".")[-1]
        if kind not in self.sizes:
            return np.ones(self.width, np.float32)
        rows, columns = self.sizes[kind]
        return self.random.standard_normal((rows, columns), np.float32) * np.float32(columns**-0.5)


def decoder(target, kind, step, past, sizes):
    """Writes a language model with a cache, in standard operators; gives its feed."""
    sys.path.append(str(ROOT / "tools"))
    import smollm2_model
    from onnxruntime.transformers.float16 import convert_float_to_float16

    given = RandomWeights(*sizes)
    model = smollm2_model.Decoder(given).model()
    model = convert_float_to_float16(model, op_block_list=["Range"])
    if kind == "q4":
        from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

        logging.disable()  # two lines of its own for each node
        quantizer = MatMulNBitsQuantizer(model, block_size=32, is_symmetric=True)
        quantizer.process()
        model = quantizer.model.model
    import onnx

    onnx.save(model, target)
    layers, width, heads, kv_heads = sizes[:4]
    cache = np.zeros((1, kv_heads, past, width // heads), np.float16)
    feed = {"input_ids": np.arange(step)[None] % sizes[5], "attention_mask": np.ones((1, past + step), np.int64),
            "position_ids": np.arange(past, past + step)[None]}
    return feed | {f"past_key_values.{layer}.{part}": cache for layer in range(layers) for part in ("key", "value")}


def products(target, kind, rows, widths, count):
    """Writes a chain of products as a language model's decoding has them, whose weights no cache holds; gives its feed.
    The widths come by turns; "q4" packs blocks of 32 weights, and "turned" are weights as torch's Linear has them."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    random = np.random.default_rng(0)
    nodes, weights, last = [], [], "x"
    for i in range(count):
        k, n = widths[i % len(widths)], widths[(i + 1) % len(widths)]
        out = f"y{i}" if i < count - 1 else "y"
        if kind == "q4":
            given = {"w": random.integers(0, 256, (n, k // 32, 16), np.uint8),
                     "s": (random.random((n, k // 32)) * k**-0.5 / 4).astype(np.float16)}
            packing = {"K": k, "N": n, "bits": 4, "block_size": 32}
            nodes.append(helper.make_node("MatMulNBits", [last, f"w{i}", f"s{i}"], [out], domain="com.microsoft",
                                          **packing))
        else:
            some = (random.standard_normal(1 << 18) * k**-0.5).astype(np.float16)
            given = {"w": np.resize(some, (n, k) if kind == "turned" else (k, n))}
            operator, how = ("Gemm", {"transB": 1}) if kind == "turned" else ("MatMul", {})
            nodes.append(helper.make_node(operator, [last, f"w{i}"], [out], **how))
        weights += [numpy_helper.from_array(array, f"{name}{i}") for name, array in given.items()]
        last = out
    ends = [[helper.make_tensor_value_info(name, TensorProto.FLOAT16, [rows, width])]
            for name, width in (("x", widths[0]), ("y", widths[count % len(widths)]))]
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph(nodes, "products", *ends, weights)
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), target)
    return {"x": random.standard_normal((rows, widths[0])).astype(np.float16)}


SMOLLM2 = (30, 576, 9, 3, 1536, 49152)
WRITTEN = {
    "smollm2_decode": (partial(decoder, step=1, past=256, sizes=SMOLLM2), DECODER),
    "smollm2_prefill": (partial(decoder, step=128, past=0, sizes=SMOLLM2), DECODER),
    **{f"products_{rows}x{max(widths)}": (partial(products, rows=rows, widths=widths, count=count), PRODUCTS)
       for rows in (1, 4, 8, 16)
       for widths, count in (((1024,), 40), ((2048,), 24), ((2048, 5632), 16), ((4096,), 12))},
}
NETS = {
    "resnet50": (partial(classifier, "resnet50"), BOTH),
    "resnet50_b32": (partial(classifier, "resnet50", 32), BOTH),
    "mobilenet_v3": (partial(classifier, "mobilenet_v3_large"), BOTH),
    "efficientnet_b0": (partial(classifier, "efficientnet_b0"), BOTH),
    "convnext_tiny": (partial(classifier, "convnext_tiny"), BOTH),
    "swin_t": (partial(classifier, "swin_t"), BOTH),
    "densenet121": (partial(classifier, "densenet121"), BOTH),
    "vit_b_16": (partial(classifier, "vit_b_16"), BOTH),
    "regnet_y": (partial(classifier, "regnet_y_800mf"), BOTH),
    "shufflenet": (partial(classifier, "shufflenet_v2_x1_0"), BOTH),
    "bert": (partial(encoder, "Bert"), BOTH),
    "bert_b8": (partial(encoder, "Bert", 8), BOTH),
    "distilbert": (partial(encoder, "DistilBert"), BOTH),
    "gpt2": (partial(encoder, "GPT2"), BOTH),
    "llama_tiny": (partial(encoder, "Llama", hidden_size=768, intermediate_size=2048, num_hidden_layers=12,
                           num_attention_heads=12, num_key_value_heads=4), BOTH),
    "whisper_tiny": (speech, BOTH),
    "unet": (unet, BOTH),
    "lstm": (partial(recurrent, "LSTM"), SINGLE),
    "lstm_both": (partial(recurrent, "LSTM", layers=2, both=True), SINGLE),
    "lstm_b16": (partial(recurrent, "LSTM", batch=16), SINGLE),
    "gru": (partial(recurrent, "GRU"), SINGLE),
    "gru_both": (partial(recurrent, "GRU", steps=500, both=True), SINGLE),
}


def names(only=""):
    return [f"{name}_{kind}" for name, (_, kinds) in (NETS | WRITTEN).items() for kind in kinds
            if any(part in f"{name}_{kind}" for part in only.split(","))]


def exported(target, kind, build):
    """Writes a network of torch's; gives its feed."""
    import torch

    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    torch.set_num_threads(2)
    torch.backends.mha.set_fastpath_enabled(False)  # its one operator cannot be exported
    with torch.no_grad():
        net, inputs = build()
        net = net.eval()
        if kind == "f16":
            net, inputs = net.half(), [x.half() if x.is_floating_point() else x for x in inputs]
            if torch.cuda.is_available():  # tracing runs it, and the CPU has not all operators in half precision
                net, inputs = net.cuda(), [x.cuda() for x in inputs]
        labels = [f"x{i}" for i in range(len(inputs))]
        torch.onnx.export(net, tuple(inputs), str(target), dynamo=False, opset_version=18, input_names=labels,
                          output_names=["y"])
    return {label: x.cpu().numpy() for label, x in zip(labels, inputs, strict=True)}


def make(folder, name):
    """Writes one network. Returns its name, and why it could not be made where it could not."""
    target = Path(folder) / f"{name}.onnx"
    if target.exists() and target.with_suffix(".npz").exists():
        return name, None
    base, _, kind = name.rpartition("_")
    part = target.with_suffix(".part")
    try:
        feed = WRITTEN[base][0](part, kind) if base in WRITTEN else exported(part, kind, NETS[base][0])
        np.savez(target.with_suffix(".npz"), **feed)
        part.rename(target)
    except Exception as error:  # a network that this version of a package lacks is left out
        return name, " ".join(f"{type(error).__name__}: {error}".split())[:300]
    return name, None


def make_all(folder, only=""):
    """Makes those that are missing; says on stderr which could not be made."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(max(1, (os.cpu_count() or 2) // 2)) as pool:
        for name, why in pool.map(partial(make, folder), names(only)):
            if why:
                print(f"# {name} is left out: {why}", file=sys.stderr)


def subjects(folder, only=""):
    """(name, model, pairs of label and feed) of those that are in the folder."""
    for name in names(only):
        path = Path(folder) / f"{name}.onnx"
        if path.exists():
            with np.load(path.with_suffix(".npz")) as feed:
                yield name, str(path), [("", dict(feed))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", help="where they are written")
    parser.add_argument("--only", default="", help="only those whose name holds this; several with commas between")
    parser.add_argument("--list", action="store_true", help="print the names")
    args = parser.parse_args()
    if args.list:
        print("\n".join(names(args.only)))
    elif args.folder is None:
        parser.error("name the folder to write to")
    else:
        make_all(args.folder, args.only)


if __name__ == "__main__":
    main()
