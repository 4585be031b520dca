# SPDX-License-Identifier: Apache-2.0
"""Builds SmolLM2-135M as an ONNX decoder with a key/value cache, in float32 and standard operators (opset 18).

Inputs: input_ids, attention_mask, position_ids and past_key_values.N.{key,value}; outputs: logits and
present.N.{key,value}. That is the interface exporters commonly give a causal language model.
"""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET, IR_VERSION = 18, 9
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


class Graph:
    """Collects nodes and constants; `op` returns the name of the node's output."""

    def __init__(self):
        self.nodes, self.constants = [], []

    def constant(self, array, name=None):
        name = name or f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def ints(self, *values):
        return self.constant(np.array(values, np.int64))

    def op(self, kind, *inputs, out=None, **attributes):
        name = f"/{kind}_{len(self.nodes)}"
        out = out or f"{kind}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [out], name=name, **attributes))
        return out


class Decoder:
    def __init__(self, gguf):
        meta = gguf.meta
        self.gguf = gguf
        self.layers = meta["llama.block_count"]
        self.width = meta["llama.embedding_length"]
        self.heads = meta["llama.attention.head_count"]
        self.kv_heads = meta["llama.attention.head_count_kv"]
        self.head_size = self.width // self.heads
        self.epsilon = meta["llama.attention.layer_norm_rms_epsilon"]
        self.theta = meta["llama.rope.freq_base"]
        self.g = Graph()

    def rotary_tables(self):
        g = self.g
        steps = np.arange(0, self.head_size, 2) / self.head_size
        frequency = g.constant((1.0 / self.theta**steps).astype(np.float32).reshape(1, -1, 1))
        position = g.op("Unsqueeze", g.op("Cast", "position_ids", to=FLOAT), g.ints(1))
        angle = g.op("Transpose", g.op("MatMul", frequency, position), perm=[0, 2, 1])
        angle = g.op("Concat", angle, angle, axis=-1)
        self.cos = g.op("Unsqueeze", g.op("Cos", angle), g.ints(1))
        self.sin = g.op("Unsqueeze", g.op("Sin", angle), g.ints(1))

    def shapes(self):
        """Shapes that the rest of the graph reshapes to, as int64 tensors computed from the inputs' shapes."""
        g = self.g
        batch = g.op("Gather", g.op("Shape", "input_ids"), g.ints(0))
        self.step = g.op("Gather", g.op("Shape", "input_ids"), g.ints(1))
        self.total = g.op("Gather", g.op("Shape", "attention_mask"), g.ints(1))
        groups = self.heads // self.kv_heads
        size = g.ints(self.head_size)
        self.to_query = g.op("Concat", batch, self.step, g.ints(self.heads, self.head_size), axis=0)
        self.to_key = g.op("Concat", batch, self.step, g.ints(self.kv_heads, self.head_size), axis=0)
        self.to_output = g.op("Concat", batch, self.step, g.ints(self.width), axis=0)
        self.to_groups = g.op("Concat", batch, g.ints(self.kv_heads, groups), self.total, size, axis=0)
        self.to_heads = g.op("Concat", batch, g.ints(self.heads), self.total, size, axis=0)

    def attention_mask(self):
        """0 where a query may look, a large negative number elsewhere: causal, and not at padding."""
        g = self.g
        one, axis = g.constant(np.array(1, np.int64)), g.ints(0)
        total, step = g.op("Squeeze", self.total, axis), g.op("Squeeze", self.step, axis)
        rows = g.op("Range", g.op("Sub", total, step), total, one)
        columns = g.op("Range", g.constant(np.array(0, np.int64)), total, one)
        past = g.op("LessOrEqual", g.op("Unsqueeze", columns, g.ints(0)), g.op("Unsqueeze", rows, g.ints(1)))
        given = g.op("Unsqueeze", g.op("Cast", "attention_mask", to=TensorProto.BOOL), g.ints(1, 2))
        visible = g.op("And", g.op("Unsqueeze", past, g.ints(0, 1)), given)
        self.mask = g.op("Where", visible, self.scalar(0.0), self.scalar(-1e9))

    def scalar(self, value):
        return self.g.constant(np.array(value, np.float32))

    def norm(self, x, weight):
        g = self.g
        square = g.op("ReduceMean", g.op("Pow", x, self.two), self.last_axis, keepdims=1)
        root = g.op("Sqrt", g.op("Add", square, self.epsilon_constant))
        return g.op("Mul", g.constant(self.gguf.tensor(weight)), g.op("Mul", x, g.op("Reciprocal", root)))

    def linear(self, x, name, rotated_heads=0):
        weight = self.gguf.tensor(name)
        if rotated_heads:
            # GGUF interleaves the two halves that rotary embedding pairs; split them again.
            pairs = weight.reshape(rotated_heads, self.head_size // 2, 2, -1)
            weight = pairs.swapaxes(1, 2).reshape(weight.shape)
        return self.g.op("MatMul", x, self.g.constant(weight.T, name))

    def rotated(self, x):
        g, half = self.g, self.head_size // 2
        first = g.op("Slice", x, g.ints(0), g.ints(half), g.ints(3))
        second = g.op("Slice", x, g.ints(half), g.ints(1 << 62), g.ints(3))
        turned = g.op("Concat", g.op("Neg", second), first, axis=-1)
        return g.op("Add", g.op("Mul", x, self.cos), g.op("Mul", turned, self.sin))

    def repeated(self, x):
        """Each key/value head serves a group of query heads."""
        g = self.g
        return g.op("Reshape", g.op("Expand", g.op("Unsqueeze", x, g.ints(2)), self.to_groups), self.to_heads)

    def split(self, x, shape):
        return self.g.op("Transpose", self.g.op("Reshape", x, shape), perm=[0, 2, 1, 3])

    def cached(self, layer, kind, fresh):
        past, present = f"past_key_values.{layer}.{kind}", f"present.{layer}.{kind}"
        return self.repeated(self.g.op("Concat", past, fresh, axis=2, out=present))

    def attention(self, x, layer):
        g, prefix = self.g, f"blk.{layer}.attn_"
        query = self.rotated(self.split(self.linear(x, f"{prefix}q.weight", self.heads), self.to_query))
        key = self.rotated(self.split(self.linear(x, f"{prefix}k.weight", self.kv_heads), self.to_key))
        value = self.split(self.linear(x, f"{prefix}v.weight"), self.to_key)
        key, value = self.cached(layer, "key", key), self.cached(layer, "value", value)
        score = g.op("MatMul", query, g.op("Transpose", key, perm=[0, 1, 3, 2]))
        score = g.op("Add", g.op("Mul", score, self.scale), self.mask)
        mixed = g.op("MatMul", g.op("Softmax", score, axis=-1), value)
        mixed = g.op("Reshape", g.op("Transpose", mixed, perm=[0, 2, 1, 3]), self.to_output)
        return self.linear(mixed, f"{prefix}output.weight")

    def feed_forward(self, x, layer):
        g, prefix = self.g, f"blk.{layer}.ffn_"
        gate = self.linear(x, f"{prefix}gate.weight")
        gate = g.op("Mul", gate, g.op("Sigmoid", gate))
        return self.linear(g.op("Mul", gate, self.linear(x, f"{prefix}up.weight")), f"{prefix}down.weight")

    def nodes(self):
        g = self.g
        embedding = g.constant(self.gguf.tensor("token_embd.weight"), "token_embd.weight")
        self.two, self.epsilon_constant = self.scalar(2.0), self.scalar(self.epsilon)
        self.last_axis, self.scale = g.ints(-1), self.scalar(self.head_size**-0.5)
        x = g.op("Gather", embedding, "input_ids")
        self.rotary_tables()
        self.shapes()
        self.attention_mask()
        for layer in range(self.layers):
            x = g.op("Add", x, self.attention(self.norm(x, f"blk.{layer}.attn_norm.weight"), layer))
            x = g.op("Add", x, self.feed_forward(self.norm(x, f"blk.{layer}.ffn_norm.weight"), layer))
        x = self.norm(x, "output_norm.weight")
        g.op("MatMul", x, g.op("Transpose", embedding, perm=[1, 0]), out="logits")

    def model(self):
        self.nodes()
        info = helper.make_tensor_value_info
        ids = [("input_ids", "step"), ("attention_mask", "total"), ("position_ids", "step")]
        inputs = [info(name, INT64, ["batch", length]) for name, length in ids]
        vocabulary = self.gguf.records["token_embd.weight"][0][0]
        outputs = [info("logits", FLOAT, ["batch", "step", vocabulary])]
        for layer in range(self.layers):
            for kind in ("key", "value"):
                shape = ["batch", self.kv_heads, "past", self.head_size]
                inputs.append(info(f"past_key_values.{layer}.{kind}", FLOAT, shape))
                shape = ["batch", self.kv_heads, "total", self.head_size]
                outputs.append(info(f"present.{layer}.{kind}", FLOAT, shape))
        graph = helper.make_graph(self.g.nodes, "smollm2", inputs, outputs, self.g.constants)
        opsets = [helper.make_opsetid("", OPSET)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="millpond")


def build(gguf, path):
    onnx.save(Decoder(gguf).model(), path)
