#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Networks of many kinds with random weights, most of them as torch exports them, for the benchmarks to measure.

    bench/nets.py FOLDER [--only TEXT] [--list]

Writes NAME.onnx and its inputs, NAME.npz, into FOLDER; several processes share the work, and what is there stays. A
name is timm or keras where it is one of theirs, the network, its batch where it is not 1, dyn where the texts' sizes
are not in the model, open where neither these nor the batch are and several are measured, dynamo where torch's newer
exporter writes it, and f32, f16, bf16, turned (f16 by Gemm, as torch exports Linear), q4 (f16 with weights of 4 bits),
or what ONNX Runtime makes of f32: qdq (all of 8 bits, by quantize_static), dynamic (products of 8 bits, by
quantize_dynamic), or what nets_tools.py says (opt, opt16, saved).
Needs torch; torchvision, transformers and timm for theirs, onnx_ir for q4 and onnxscript for dynamo; tensorflow and
tf2onnx instead for those of Keras, which skeletons.py brings to where these are not.
"""

import argparse
import logging
import os
import sys
import tempfile
import warnings
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import nets_keras
import numpy as np
from nets_kinds import CLASSIFIERS, DETECTORS, SEGMENTERS, TRANSFORMERS, VIDEOS
from nets_timm import NETWORKS as TIMM
from nets_tools import FLOATS as REMADE_FLOATS
from nets_tools import KINDS as REMADE
from nets_tools import MODEL_TYPES, dit, remade, residual_block, vae
from nets_written import BUILDS, FLOATS

ROOT = Path(__file__).resolve().parent.parent
BOTH, SINGLE, DECODER, PRODUCTS = ("f32", "f16"), ("f32",), ("f16", "q4"), ("f16", "turned", "q4")
IMAGES, WORDS, TEXT = (*BOTH, "qdq"), (*BOTH, "bf16", "qdq", "dynamic"), (*BOTH, "bf16")
HALF = {"f16": "half", "bf16": "bfloat16"}  # what torch calls the types of 16 bits


def classifier(name, batch=1, side=224):
    import torch
    import torchvision

    return getattr(torchvision.models, name)(weights=None), [torch.randn(batch, 3, side, side)]


def torchvision_detector(name, shape):
    """Boxes of one image, whose labels, scores and masks are outputs as well."""
    import torch
    import torchvision

    class Detector(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = getattr(torchvision.models.detection, name)(weights=None, weights_backbone=None)

        def forward(self, image):
            return tuple(self.net([image])[0].values())

    return Detector(), [torch.rand(*shape)]


def timm_classifier(name):
    import timm
    import torch

    net = timm.create_model(name, exportable=True)
    with torch.no_grad():
        for weights in net.parameters():  # zeros, as some begin with, would hide what is computed
            if not weights.any():
                weights.normal_(std=0.02)
    return net, [torch.randn(1, *timm.data.resolve_model_data_config(net)["input_size"])]


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


def first_output(name, inputs, **config):
    """The first output of a network of transformers, called with these inputs by name."""
    import torch
    import transformers

    class First(torch.nn.Module):
        def __init__(self, net):
            super().__init__()
            self.net = net

        def forward(self, *values):
            return self.net(**dict(zip(inputs, values, strict=True)), return_dict=False)[0]

    net = getattr(transformers, name)
    settings = net.config_class(**config)
    settings._attn_implementation = "eager"
    return First(net(settings)), [make() for make in inputs.values()]


def numbers(*shape):
    import torch

    return torch.randn(*shape)


def words(batch=1, length=128):
    import torch

    return torch.randint(0, 30000, (batch, length))


def ones(batch=1, length=128):
    import torch

    return torch.ones(batch, length, dtype=torch.long)


def inputs_of(kind):
    """The inputs of a row of nets_kinds.TRANSFORMERS: name, and what makes it."""
    text = {"input_ids": words, "attention_mask": ones}
    if isinstance(kind, str):
        return text if kind == "text" else text | {"decoder_input_ids": words}
    return {name: partial(numbers, *shape) for name, *shape in kind}


def detector(side=640):
    """A detector of the kind that is run most: blocks of convolutions, three sizes of images, boxes by expectation."""
    import torch
    from torch import nn

    def conv(a, b, kernel=1, stride=1):
        return nn.Sequential(nn.Conv2d(a, b, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(b), nn.SiLU())

    class Stage(nn.Module):
        def __init__(self, a, b, depth, adds=False):
            super().__init__()
            half, self.adds = b // 2, adds
            self.first, self.last = conv(a, b), conv(half * (depth + 2), b)
            self.steps = nn.ModuleList(nn.Sequential(conv(half, half, 3), conv(half, half, 3)) for _ in range(depth))

        def forward(self, x):
            parts = list(self.first(x).chunk(2, 1))
            for step in self.steps:
                parts.append(parts[-1] + step(parts[-1]) if self.adds else step(parts[-1]))
            return self.last(torch.cat(parts, 1))

    class Pools(nn.Module):
        def __init__(self, c):
            super().__init__()
            self.first, self.last, self.pool = conv(c, c // 2), conv(2 * c, c), nn.MaxPool2d(5, 1, 2)

        def forward(self, x):
            parts = [self.first(x)]
            for _ in range(3):
                parts.append(self.pool(parts[-1]))
            return self.last(torch.cat(parts, 1))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem = nn.Sequential(conv(3, 16, 3, 2), conv(16, 32, 3, 2), Stage(32, 32, 1, True))
            self.down = nn.ModuleList(nn.Sequential(conv(a, b, 3, 2), Stage(b, b, depth, True))
                                      for a, b, depth in ((32, 64, 2), (64, 128, 2), (128, 256, 1)))
            self.pools = Pools(256)
            self.up = nn.ModuleList([Stage(384, 128, 1), Stage(192, 64, 1)])
            self.shrink = nn.ModuleList([conv(64, 64, 3, 2), conv(128, 128, 3, 2)])
            self.join = nn.ModuleList([Stage(192, 128, 1), Stage(384, 256, 1)])
            self.boxes, self.kinds = (nn.ModuleList(
                nn.Sequential(conv(c, inner, 3), conv(inner, inner, 3), nn.Conv2d(inner, last, 1))
                for c in (64, 128, 256)) for inner, last in ((64, 64), (80, 80)))
            self.expect = nn.Conv2d(16, 1, 1, bias=False)

        def forward(self, x):
            a = self.down[0](self.stem(x))
            b = self.down[1](a)
            c = self.pools(self.down[2](b))
            wide = nn.Upsample(scale_factor=2.0, mode="nearest")
            b = self.up[0](torch.cat([wide(c), b], 1))
            a = self.up[1](torch.cat([wide(b), a], 1))
            b = self.join[0](torch.cat([self.shrink[0](a), b], 1))
            c = self.join[1](torch.cat([self.shrink[1](b), c], 1))
            sides = zip(self.boxes, self.kinds, (a, b, c), strict=True)
            all_of = torch.cat([torch.cat([box(y), kind(y)], 1).flatten(2) for box, kind, y in sides], 2)
            box, kind = all_of.split((64, 80), 1)
            box = self.expect(box.view(box.shape[0], 4, 16, -1).transpose(2, 1).softmax(1)).flatten(1, 2)
            low, high = box.chunk(2, 1)
            return torch.cat([(high - low) / 2, high + low, kind.sigmoid()], 1)

    return Net(), [torch.randn(1, 3, side, side)]


def segmenter(name, side=224):
    import torch
    import torchvision

    class Out(torch.nn.Module):
        def __init__(self, net):
            super().__init__()
            self.net = net

        def forward(self, x):
            return self.net(x)["out"]

    return Out(getattr(torchvision.models.segmentation, name)(weights=None, weights_backbone=None)), [
        numbers(1, 3, side, side)]


def video(name):
    import torchvision

    return getattr(torchvision.models.video, name)(weights=None), [numbers(1, 3, 16, 112, 112)]


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

    Block = residual_block()  # noqa: N806  (a class)

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
    **{f"keras_{name}": (partial(nets_keras.write, name), BOTH) for name in nets_keras.NETWORKS},
}
NETS = {
    "resnet50": (partial(classifier, "resnet50"), IMAGES),
    "resnet50_b32": (partial(classifier, "resnet50", 32), IMAGES),
    "mobilenet_v3": (partial(classifier, "mobilenet_v3_large"), IMAGES),
    "efficientnet_b0": (partial(classifier, "efficientnet_b0"), IMAGES),
    "convnext_tiny": (partial(classifier, "convnext_tiny"), BOTH),
    "swin_t": (partial(classifier, "swin_t"), BOTH),
    "densenet121": (partial(classifier, "densenet121"), IMAGES),
    "vit_b_16": (partial(classifier, "vit_b_16"), IMAGES),
    "regnet_y": (partial(classifier, "regnet_y_800mf"), BOTH),
    "shufflenet": (partial(classifier, "shufflenet_v2_x1_0"), BOTH),
    "bert": (partial(encoder, "Bert"), WORDS),
    "bert_b8": (partial(encoder, "Bert", 8), WORDS),
    "distilbert": (partial(encoder, "DistilBert"), TEXT),
    "gpt2": (partial(encoder, "GPT2"), TEXT),
    "llama_tiny": (partial(encoder, "Llama", hidden_size=768, intermediate_size=2048, num_hidden_layers=12,
                           num_attention_heads=12, num_key_value_heads=4), TEXT),
    "whisper_tiny": (speech, BOTH),
    "unet": (unet, BOTH),
    "dit": (dit, BOTH),
    "vae": (vae, BOTH),
    **{f"{name}_dyn": (partial(encoder, kind, hidden_size=1024, num_hidden_layers=6, vocab_size=30000, **config), TEXT)
       for name, kind, config in (
           ("phi", "Phi", {"num_attention_heads": 16, "intermediate_size": 4096}),
           ("qwen3", "Qwen3", {"num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 64,
                               "intermediate_size": 3072}),
           ("gemma2", "Gemma2", {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 128,
                                 "intermediate_size": 4096}),
           ("neox", "GPTNeoX", {"num_attention_heads": 16, "intermediate_size": 4096}),
           ("falcon", "Falcon", {"num_attention_heads": 16}),
           ("bloom", "Bloom", {"n_head": 16, "n_layer": 6}))},
    "deberta": (partial(first_output, "DebertaV2Model", {"input_ids": words, "attention_mask": ones}, hidden_size=768,
                        num_hidden_layers=12, num_attention_heads=12, intermediate_size=3072, vocab_size=30000,
                        relative_attention=True, position_buckets=256, norm_rel_ebd="layer_norm", share_att_key=True,
                        pos_att_type=["p2c", "c2p"]), TEXT),
    "t5": (partial(first_output, "T5EncoderModel", {"input_ids": words, "attention_mask": ones}), TEXT),
    "albert": (partial(first_output, "AlbertModel", {"input_ids": words, "attention_mask": ones}, hidden_size=768,
                       num_attention_heads=12, intermediate_size=3072), BOTH),
    "wav2vec2": (partial(first_output, "Wav2Vec2Model", {"input_values": partial(numbers, 1, 16000)}), BOTH),
    "segformer": (partial(first_output, "SegformerForSemanticSegmentation",
                          {"pixel_values": partial(numbers, 1, 3, 512, 512)}), BOTH),
    "mobilevit": (partial(first_output, "MobileViTModel", {"pixel_values": partial(numbers, 1, 3, 256, 256)}), BOTH),
    "levit": (partial(first_output, "LevitModel", {"pixel_values": partial(numbers, 1, 3, 224, 224)}), BOTH),
    "clip_vision": (partial(first_output, "CLIPVisionModel", {"pixel_values": partial(numbers, 1, 3, 224, 224)}), BOTH),
    "dinov2": (partial(first_output, "Dinov2Model", {"pixel_values": partial(numbers, 1, 3, 224, 224)},
                       image_size=224), BOTH),
    "maxvit_t": (partial(classifier, "maxvit_t"), BOTH),
    "inception_v3": (partial(classifier, "inception_v3", side=299), BOTH),
    "googlenet": (partial(classifier, "googlenet"), BOTH),
    "vgg16": (partial(classifier, "vgg16"), BOTH),
    "squeezenet": (partial(classifier, "squeezenet1_1"), BOTH),
    "mnasnet": (partial(classifier, "mnasnet1_0"), BOTH),
    "deeplab": (partial(segmenter, "deeplabv3_mobilenet_v3_large"), BOTH),
    "r3d_18": (partial(video, "r3d_18"), BOTH),
    "detector": (detector, IMAGES),
    **{f"{name}_open": (partial(classifier, name), BOTH)
       for name in ("resnet50", "mobilenet_v3_large", "efficientnet_b0", "convnext_tiny", "vit_b_16", "densenet121")},
    "detector_open": (detector, BOTH),
    "bert_open": (partial(encoder, "Bert"), BOTH),
    "gpt2_open": (partial(encoder, "GPT2"), BOTH),
    "lstm": (partial(recurrent, "LSTM"), SINGLE),
    "lstm_both": (partial(recurrent, "LSTM", layers=2, both=True), SINGLE),
    "lstm_b16": (partial(recurrent, "LSTM", batch=16), SINGLE),
    "gru": (partial(recurrent, "GRU"), SINGLE),
    "gru_both": (partial(recurrent, "GRU", steps=500, both=True), SINGLE),
    **{name: (partial(classifier, name), BOTH) for name in CLASSIFIERS},
    **{name: (partial(torchvision_detector, name, shape), BOTH) for name, shape in DETECTORS.items()},
    **{name: (partial(segmenter, name), BOTH) for name in SEGMENTERS},
    **{name: (partial(video, name), BOTH) for name in VIDEOS},
    **{name: (partial(first_output, kind, inputs_of(inputs), **config), BOTH)
       for name, kind, inputs, config in TRANSFORMERS},
    **{name: (build, SINGLE if name in FLOATS else BOTH) for name, build in BUILDS.items()},
    **{f"timm_{name}": (partial(timm_classifier, name), BOTH) for name in TIMM},
}
NETS |= {name: (NETS[name][0], (*NETS[name][1], *(kind for kind in REMADE if kind != "opt16" or
                                                     name not in REMADE_FLOATS))) for name in MODEL_TYPES}
DYNAMO = "_dynamo"
NETS |= {f"{name}{DYNAMO}": (build, BOTH) for name, (build, kinds) in NETS.items() if kinds != SINGLE}

TEXTS = {"bert_open", "gpt2_open"}  # of networks whose sizes are open these take texts, the others images
TEXT_SIZES = ((1, 16), (1, 64), (1, 384), (1, 512), (2, 256), (4, 128), (16, 64), (32, 128), (8, 512))
IMAGE_BATCHES = (2, 4, 8, 16, 64)


def names(only=""):
    """Those that hold a part of `only`, or that one alone if the part is a whole name; what the newer exporter writes
    only if that is named there."""
    known = [f"{name}_{kind}" for name, (_, kinds) in (NETS | WRITTEN).items() for kind in kinds]
    parts = only.split(",")
    whole = set(parts).intersection(known)
    return [name for name in known
            if name in whole or any(part in name and (DYNAMO in part or DYNAMO not in name)
                                    for part in parts if part not in whole)]


def built(build, kind):
    """A network of torch's with the weights that it has in all benchmarks, and its inputs; both on the host."""
    import torch

    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    torch.set_num_threads(2)
    torch.backends.mha.set_fastpath_enabled(False)  # its one operator cannot be exported
    net, inputs = build()
    net = net.eval()
    if kind in HALF:
        dtype = getattr(torch, HALF[kind])
        net, inputs = net.to(dtype), [x.to(dtype) if x.is_floating_point() else x for x in inputs]
    return net, inputs


def exported(target, kind, build, axes=(), dynamo=False):
    """Writes a network of torch's, whose inputs have these axes of any size; gives its feed."""
    import torch

    with torch.no_grad():
        net, inputs = built(build, kind)
        if kind in HALF and torch.cuda.is_available():  # tracing runs it; the CPU lacks operators of halves
            net, inputs = net.cuda(), [x.cuda() for x in inputs]
        if dynamo and axes:  # a size of one is taken for a constant
            inputs = [torch.cat([x, x]) for x in inputs]
        labels = [f"x{i}" for i in range(len(inputs))]
        write = partial(torch.onnx.export, net, tuple(inputs), str(target), dynamo=dynamo, input_names=labels,
                        output_names=["y"])
        if dynamo:
            any_size = dict.fromkeys(range(len(axes)), torch.export.Dim.DYNAMIC)
            write(dynamic_shapes=(any_size,) * len(inputs) if axes else None, external_data=False, verbose=False)
        else:
            write(opset_version=18, dynamic_axes={label: dict(enumerate(axes)) for label in labels})
    return {label: x.cpu().numpy() for label, x in zip(labels, inputs, strict=True)}


def quantized(target, kind, build, axes=(), dynamo=False):
    """Writes a network of torch's as ONNX Runtime quantises it; gives its feed."""
    from onnxruntime import quantization

    class Feeds(quantization.CalibrationDataReader):
        def __init__(self, feed):
            self.left = iter([feed])

        def get_next(self):
            return next(self.left, None)

    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        source = Path(folder) / "f32.onnx"
        feed = exported(source, "f32", build, axes, dynamo)
        if kind == "qdq":
            quantization.quantize_static(source, target, Feeds(feed), per_channel=True)
        else:
            quantization.quantize_dynamic(source, target)
    return feed


def rewritten(target, kind, build, axes=(), dynamo=False, model_type=None):
    """Writes a network of torch's as a tool of ONNX Runtime's has rewritten it; gives its feed."""
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        source = Path(folder) / "f32.onnx"
        feed = exported(source, "f32", build, axes, dynamo)
        remade(source, target, kind, model_type)
    return feed


def axes_of(base):
    """The names of the sizes that are not in the model."""
    base = base.removesuffix(DYNAMO)
    if base.endswith("_dyn") or base in TEXTS:
        return ("batch", "length")
    return ("batch",) if base.endswith("_open") else ()


def many_sizes(is_text):
    """As callers of a service have them: texts of any length in small batches, batches of images that just came."""
    random = np.random.default_rng(0)
    if not is_text:
        return [(int(batch),) for batch in random.permutation(12) + 1]
    sizes = zip(random.integers(1, 9, 200), random.integers(8, 129, 200), strict=True)
    return list(dict.fromkeys((int(batch), int(length)) for batch, length in sizes))[:64]


def is_torch_net(name):
    """Whether torch can run it as it is: a network of its own, of known sizes and in its own types."""
    base, _, kind = name.rpartition("_")
    return base in NETS and kind in BOTH and not base.endswith(DYNAMO) and not axes_of(base)


def feeds_of(name, feed, many=False):
    """Pairs of label and feed: what a network was exported with or, where its sizes are open, several made of that."""
    base = name.rpartition("_")[0].removesuffix(DYNAMO)
    if not base.endswith("_open"):
        return [("", feed)]
    sizes = (many_sizes(base in TEXTS) if many else
             TEXT_SIZES if base in TEXTS else [(batch,) for batch in IMAGE_BATCHES])
    return [(" x ".join(map(str, size)), {label: np.resize(x, size + x.shape[len(size):]) for label, x in feed.items()})
            for size in sizes]


def make(folder, name):
    """Writes one network. Returns its name, and why it could not be made where it could not."""
    target = Path(folder) / f"{name}.onnx"
    if target.exists() and target.with_suffix(".npz").exists():
        return name, None
    base, _, kind = name.rpartition("_")
    part = target.with_suffix(".part")
    try:
        write = (partial(rewritten, model_type=MODEL_TYPES[base]) if kind in REMADE
                 else quantized if kind in ("qdq", "dynamic") else exported)
        feed = (WRITTEN[base][0](part, kind) if base in WRITTEN
                else write(part, kind, NETS[base][0], axes_of(base), base.endswith(DYNAMO)))
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


def subjects(folder, only="", many=False):
    """(name, model, pairs of label and feed) of those that are in the folder; of `many` sizes only what is open."""
    for name in names(only):
        path = Path(folder) / f"{name}.onnx"
        if path.exists() and not (many and "_open_" not in name):
            with np.load(path.with_suffix(".npz")) as feed:
                yield name, str(path), feeds_of(name, dict(feed), many)


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
