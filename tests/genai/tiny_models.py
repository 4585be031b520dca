# SPDX-License-Identifier: Apache-2.0
"""Decoders of a few random layers, in the shapes in which onnxruntime_genai.models.builder 0.18 writes them.

The builder needs PyTorch and Transformers; its nodes and inputs are written down here instead, one row for each
architecture. Their operators are as many as in what the builder wrote for CUDA from configurations of these sizes, but
for biases, which it leaves out where they are 0. What it writes for the CPU differs; here a model for the CPU is the
reference: with the same numbers in float32, and no operator that ONNX Runtime's CPU provider refuses.
bench/decoders.py makes large ones of them.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

VOCABULARY, HIDDEN, INNER, HEADS, LAYERS, CONTEXT, BLOCK = 160, 64, 96, 4, 2, 256, 32
WINDOW = 16
ONE = (0,)  # output
MS = "com.microsoft"
TYPES = {"float32": (np.float32, TensorProto.FLOAT), "float16": (np.float16, TensorProto.FLOAT16)}


@dataclass(frozen=True)
class Architecture:
    name: str
    kind: str = ""  # as genai_config.json has it
    kv_heads: int = 2
    head: int = 16
    rotated: int = 16  # elements of a head
    biases: bool = False  # of projections of Q, K and V
    normed_heads: bool = False
    tied: bool = False  # the embedding is the last product's weight
    scaled: bool = False  # the embedding, by the root of the size
    wide: bool = False  # normed and added up in float32
    long: bool = False  # rotary tables by length: an If
    local: bool = False  # layers with a window have rotary tables of their own
    parallel: bool = False  # attention and the products side by side, means taken off, biases
    gelu: bool = False
    sandwich: bool = False  # norms behind attention and products, too
    window: int = -1  # of every other layer
    softcap: float = 0.0
    last_softcap: float = 0.0
    vocabulary: int = VOCABULARY
    hidden: int = HIDDEN
    inner: int = INNER
    heads: int = HEADS
    layers: int = LAYERS
    context: int = CONTEXT  # tokens that the rotary tables have
    bases: tuple[float, float] = (10000.0, 500.0)  # of rotary tables, and of those by length or of a window


ARCHITECTURES = [
    Architecture("llama"),
    Architecture("mistral", head=32, rotated=32),
    Architecture("llama-wide", "llama", head=64, rotated=64),
    Architecture("qwen2", biases=True, tied=True),
    Architecture("qwen3", normed_heads=True),
    Architecture("qwen3-wide", "qwen3", head=64, rotated=64, normed_heads=True),
    Architecture("phi", kv_heads=4, head=32, parallel=True, biases=True),
    Architecture("phi3", kv_heads=4),
    Architecture("phi3-long", "phi3", long=True),
    Architecture("gemma", kv_heads=1, tied=True, scaled=True, gelu=True),
    Architecture("gemma2", tied=True, scaled=True, gelu=True, wide=True, sandwich=True, window=WINDOW, softcap=50.0,
                 last_softcap=30.0),
    Architecture("gemma3", "gemma3_text", normed_heads=True, tied=True, scaled=True, gelu=True, wide=True,
                 sandwich=True, window=WINDOW, local=True),
]


def packed_int4(weight):
    """(codes, scales) of a matrix [n, k], and the matrix that they stand for."""
    blocks = weight.reshape(len(weight), -1, BLOCK)
    scales = (np.abs(blocks).max(-1) / 7).astype(np.float16)
    codes = np.clip(np.rint(blocks / scales[..., None].astype(np.float32)), -8, 7).astype(np.int8)
    stands_for = (codes * scales[..., None].astype(np.float32)).reshape(weight.shape)
    nibbles = (codes + 8).astype(np.uint8)
    return nibbles[..., 0::2] | nibbles[..., 1::2] << 4, scales, stands_for


class Decoder:
    """Collects nodes and weights; `op` returns the name of a node's output."""

    def __init__(self, of, dtype, int4, reference, seed):
        self.of, self.int4, self.reference = of, int4, reference
        self.numpy, self.onnx = TYPES["float32" if reference else dtype]
        self.given = TYPES[dtype][0]  # numbers that the tested model can hold
        self.random = np.random.default_rng(seed)
        self.nodes, self.weights = [], []

    def op(self, kind, *inputs, out=None, outputs=ONE, domain="", **attributes):
        """With several outputs a list of their names; `outputs` says which there are."""
        names = [out or f"{kind}_{len(self.nodes)}"]
        names += [f"{names[0]}_{i}" if i in outputs else "" for i in range(1, outputs[-1] + 1)]
        self.nodes.append(helper.make_node(kind, inputs, names, f"/{names[0]}", domain=domain, **attributes))
        return names[0] if outputs == ONE else [names[i] for i in outputs]

    def weight(self, array, name, dtype=None):
        if dtype is None:
            array = np.asarray(array).astype(self.given).astype(self.numpy)
        self.weights.append(numpy_helper.from_array(np.ascontiguousarray(array, dtype), name))
        return name

    def ints(self, *values):
        name = f"ints_{'_'.join(map(str, values))}"
        if name not in {weight.name for weight in self.weights}:
            self.weight(np.array(values, np.int64), name, np.int64)
        return name

    def number(self, value):
        return self.weight(np.array(value), f"number_{len(self.nodes)}")

    def normal(self, *shape, gain=1.0):
        return self.random.standard_normal(shape).astype(np.float32) * gain

    def norm_weight(self, name, dtype=None, size=None, about=1.0):
        drawn = (about * (1 + 0.1 * self.normal(size or self.of.hidden))).astype(self.given)
        return self.weight(drawn.astype(dtype or self.numpy), name, dtype or self.numpy)

    def bias(self, x, name, size, out=None):
        return self.op("Add", x, self.weight(self.normal(size, gain=0.1), f"{name}.bias"), out=out)

    # ---- products ----

    def matrix(self, name, n, k, gain=1.0):
        """The weight [n, k] of a product, or its codes and scales; made once for each name."""
        drawn = self.normal(n, k, gain=gain / np.sqrt(k))
        if not self.int4:
            return [self.weight(drawn.T, f"{name}.weight")]
        codes, scales, stands_for = packed_int4(drawn)
        if self.reference:
            return [self.weight(stands_for.T, f"{name}.weight", np.float32)]
        return [self.weight(codes, f"{name}.weight_Q4", np.uint8), self.weight(scales, f"{name}.weight_scales")]

    def product(self, x, weight, n, k, out=None):
        if len(weight) == 1:
            return self.op("MatMul", x, *weight, out=out)
        return self.op("MatMulNBits", x, *weight, out=out, domain=MS, K=k, N=n, bits=4, block_size=BLOCK)

    def linear(self, x, name, n, k, gain=1.0):
        return self.product(x, self.matrix(name, n, k, gain), n, k)

    # ---- parts ----

    def lengths(self):
        """Of each entry less one, and of the longest, both int32."""
        total = self.op("Gather", self.op("Shape", "attention_mask"), self.scalar(1), axis=0)
        counted = self.op("Sub", self.op("ReduceSum", "attention_mask", self.ints(1), keepdims=0), self.ints(1))
        self.total = total
        return [self.op("Cast", x, to=TensorProto.INT32) for x in (counted, total)]

    def scalar(self, value):
        return self.op("Constant", value=numpy_helper.from_array(np.array(value, np.int64)))

    def is_window(self, layer):
        return self.of.window > 0 and layer % 2 == 0

    def rotary(self):
        """The tables of cosines and sines for each layer."""
        of, half = self.of, self.of.rotated // 2
        tables = []
        for base in of.bases:
            angles = np.arange(of.context)[:, None] / base ** (np.arange(half) / half)
            tables.append([np.cos(angles).astype(self.given), np.sin(angles).astype(self.given)])
        if not of.long:
            made = {}
            for tail, pair in zip(("", "_local") if of.local else ("",), tables, strict=False):
                made[tail] = [self.weight(pair[i], f"{name}_cache{tail}") for i, name in enumerate(("cos", "sin"))]
            return [made["_local" if of.local and self.is_window(layer) else ""] for layer in range(of.layers)]
        branches = {}
        for branch, pair, rows in (("else_branch", tables[0], of.context // 2), ("then_branch", tables[1], of.context)):
            names = [f"{branch}_{function}" for function in ("cos", "sin")]
            nodes = [helper.make_node("Constant", [], [name],
                                      value=numpy_helper.from_array(table[:rows].astype(self.numpy)))
                     for name, table in zip(names, pair, strict=True)]
            infos = [helper.make_tensor_value_info(name, self.onnx, [rows, half]) for name in names]
            branches[branch] = helper.make_graph(nodes, branch, [], infos)
        longer = self.op("Greater", self.total, self.scalar(of.context // 2))
        self.nodes.append(helper.make_node("If", [longer], ["cos_cache", "sin_cache"], "/If", **branches))
        return [["cos_cache", "sin_cache"]] * of.layers

    def attention(self, x, layer, lengths, tables):
        of, name = self.of, f"model.layers.{layer}.attn"
        sizes = [of.heads * of.head, *[of.kv_heads * of.head] * 2]
        qkv = [self.linear(x, f"{name}.qkv_proj", sum(sizes), of.hidden), "", ""]
        if of.biases:
            qkv[0] = self.bias(qkv[0], f"{name}.qkv_proj", sum(sizes))
        norms = []
        if of.normed_heads:
            qkv = self.op("Split", qkv[0], self.ints(*sizes), outputs=(0, 1, 2), axis=-1)
            norms = [self.norm_weight(f"{name}.{side}_norm.weight", size=of.head) for side in "qk"]
        if norms and self.reference:
            for i, size in enumerate(sizes[:2]):
                heads = self.op("Reshape", qkv[i], self.ints(0, -1, of.head))
                heads = self.op("SimplifiedLayerNormalization", heads, norms[i], axis=-1, epsilon=1e-6, stash_type=1)
                rows = self.op("Concat", self.op("Shape", "input_ids"), self.ints(size), axis=0)
                qkv[i] = self.op("Reshape", heads, rows)
            norms = []
        is_window = self.is_window(layer)
        inputs = [*qkv, f"past_key_values.{layer}.key", f"past_key_values.{layer}.value", *lengths, *tables[layer],
                  *[""] * 3, *(["", "", *norms] if norms else [])]
        outputs = [f"attention_{layer}", f"present.{layer}.key", f"present.{layer}.value"]
        self.nodes.append(helper.make_node(
            "GroupQueryAttention", inputs, outputs, f"/{outputs[0]}", domain=MS, num_heads=of.heads,
            kv_num_heads=of.kv_heads, scale=of.head**-0.5, local_window_size=of.window if is_window else -1,
            softcap=of.softcap, do_rotary=1, rotary_interleaved=0,
            **({"sliding_window_cache": 1} if is_window else {}), **({"qk_norm_epsilon": 1e-6} if norms else {})))
        return self.linear(outputs[0], f"{name}.o_proj", of.hidden, of.heads * of.head, gain=3.0)

    def feed_forward(self, x, layer):
        of, name = self.of, f"model.layers.{layer}.mlp"
        if of.parallel:
            inner = self.bias(self.linear(x, f"{name}.fc1", of.inner, of.hidden), f"{name}.fc1", of.inner)
            inner = self.op("Gelu", inner, approximate="tanh")
            return self.bias(self.linear(inner, f"{name}.fc2", of.hidden, of.inner, gain=3.0), f"{name}.fc2", of.hidden)
        gate = self.linear(x, f"{name}.gate_proj", of.inner, of.hidden)
        up = self.linear(x, f"{name}.up_proj", of.inner, of.hidden)
        gate = (self.op("Gelu", gate, approximate="tanh") if of.gelu
                else self.op("Mul", gate, self.op("Sigmoid", gate)))
        return self.linear(self.op("Mul", gate, up), f"{name}.down_proj", of.hidden, of.inner, gain=4.0)

    def embedding(self):
        """The tokens' rows, and the weight of the last product where it is the same."""
        of = self.of
        if not of.tied:
            rows = self.weight(self.normal(of.vocabulary, of.hidden), "model.embed_tokens.weight")
            return self.op("Gather", rows, "input_ids"), self.matrix("lm_head", of.vocabulary, of.hidden, gain=2.0)
        last = self.matrix("lm_head", of.vocabulary, of.hidden, gain=0.25 if of.scaled else 1.0)
        if len(last) == 1:
            return self.op("Gather", self.op("Transpose", *last, perm=[1, 0]), "input_ids"), last
        codes = self.op("Reshape", last[0], self.ints(of.vocabulary, of.hidden // 2))
        return self.op("GatherBlockQuantized", codes, "input_ids", last[1], domain=MS, bits=4, block_size=BLOCK,
                       gather_axis=0, quantize_axis=1), last

    # ---- norms, and what is added up ----

    def cast(self, x, to):
        return x if to == self.onnx == TensorProto.FLOAT else self.op("Cast", x, to=to)

    def norm(self, x, name, skip=None, about=1.0, inner=False):
        """The norm of x, or of x and skip, and their sum, which behind the last layer nobody wants."""
        dtype = np.float32 if self.of.wide else None
        weights = [self.norm_weight(f"{name}.weight", dtype, about=about)]
        word = "SimplifiedLayerNormalization"
        if self.of.parallel:
            bias = self.weight(self.normal(self.of.hidden, gain=0.1), f"{name}.bias")
            word, weights = "LayerNormalization", [*weights, bias]
        if skip is None:
            y, total = self.op(word, x, *weights, epsilon=1e-6, axis=-1, stash_type=1), x
        elif name.startswith(f"model.layers.{self.of.layers}."):
            y, total = self.op(f"Skip{word}", x, skip, *weights, domain=MS, epsilon=1e-6), None
        else:
            y, total = self.op(f"Skip{word}", x, skip, *weights, outputs=(0, 3), domain=MS, epsilon=1e-6)
        return (self.cast(y, self.onnx) if self.of.wide and not inner else y), total

    def behind(self, x, name):
        """Gemma 2 norms what attention and products give, before it is added."""
        if self.of.wide:
            x = self.cast(x, TensorProto.FLOAT)
        return self.norm(x, name, about=4.0, inner=True)[0] if self.of.sandwich else x

    def build(self):
        of, lengths = self.of, self.lengths()
        tables = self.rotary()
        x, last = self.embedding()
        if of.scaled:
            x = self.op("Mul", x, self.number(of.hidden**0.5))
        if of.wide:
            x = self.cast(x, TensorProto.FLOAT)
        y, total = self.norm(x, "model.layers.0.input_layernorm")
        for layer in range(of.layers):
            name = f"model.layers.{layer}"
            attended = self.attention(y, layer, lengths, tables)
            if of.parallel:
                attended = self.bias(attended, f"{name}.attn.o_proj", of.hidden)
                added = self.op("Add", attended, self.feed_forward(y, layer))
            else:
                attended = self.behind(attended, f"{name}.post_attention_layernorm")
                y, total = self.norm(total, f"{name}.pre_feedforward_layernorm", attended)
                added = self.behind(self.feed_forward(y, layer), f"{name}.post_feedforward_layernorm")
            y, total = self.norm(total, f"model.layers.{layer + 1}.input_layernorm", added)
        y = self.product(y, last, of.vocabulary, of.hidden, out=None if of.last_softcap else "logits")
        if of.last_softcap:
            cap = self.number(of.last_softcap)
            self.op("Mul", self.op("Tanh", self.op("Div", y, cap)), cap, out="logits")
        return self.model()

    def model(self):
        of = self.of
        cache = ["batch_size", of.kv_heads, "{}_sequence_length", of.head]
        inputs = [helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch_size", "sequence_length"]),
                  helper.make_tensor_value_info("attention_mask", TensorProto.INT64,
                                                ["batch_size", "total_sequence_length"])]
        outputs = [helper.make_tensor_value_info("logits", self.onnx, ["batch_size", "sequence_length", of.vocabulary])]
        for side in ("key", "value"):
            for layer in range(of.layers):
                for infos, name, word in ((inputs, "past_key_values", "past"), (outputs, "present", "total")):
                    shape = [part.format(word) if isinstance(part, str) else part for part in cache]
                    infos.append(helper.make_tensor_value_info(f"{name}.{layer}.{side}", self.onnx, shape))
        graph = helper.make_graph(self.nodes, of.name, inputs, outputs, self.weights)
        opsets = [helper.make_opsetid("", 22), helper.make_opsetid(MS, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def settings(of):
    """genai_config.json, with the provider options that the builder writes for CUDA."""
    decoder = {
        "session_options": {"log_id": "onnxruntime-genai", "provider_options": [{"cuda": {"enable_cuda_graph": "0"}}]},
        "filename": "model.onnx",
        "head_size": of.head,
        "hidden_size": of.hidden,
        "inputs": {"input_ids": "input_ids", "attention_mask": "attention_mask",
                   "past_key_names": "past_key_values.%d.key", "past_value_names": "past_key_values.%d.value"},
        "outputs": {"logits": "logits",
                    "present_key_names": "present.%d.key", "present_value_names": "present.%d.value"},
        "num_attention_heads": of.heads,
        "num_hidden_layers": of.layers,
        "num_key_value_heads": of.kv_heads,
    }
    if of.window > 0:
        decoder["sliding_window"] = {"window_size": of.window, "slide_key_value_cache": False, "slide_inputs": False,
                                     "layers": list(range(0, of.layers, 2)), "cache_slack": 0}
    return {
        "model": {"bos_token_id": 1, "context_length": of.context, "decoder": decoder, "eos_token_id": 2,
                  "pad_token_id": 0, "type": of.kind or of.name, "vocab_size": of.vocabulary},
        "search": {"do_sample": False, "max_length": of.context, "num_beams": 1, "past_present_share_buffer": True},
    }


def write(folder, of, dtype, int4=False, reference=False, seed=3):
    """Writes a model with its genai_config.json. The reference has the same numbers, in float32."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    model = Decoder(of, dtype, int4, reference, seed).build()
    onnx.save(model, folder / "model.onnx")
    (folder / "genai_config.json").write_text(json.dumps(settings(of), indent=4), encoding="utf-8")
    return folder
