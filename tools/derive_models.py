# SPDX-License-Identifier: Apache-2.0
"""Models made from fetched files: joined from parts, converted to float16, or built from weights.

Each target is written under a temporary name and renamed, and is made once.
"""

import json
import os

import numpy as np

PROMPT = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
START, END, STEPS_MAX = 1, 2, 31


def join_parts(root, path):
    parts = [root / "models" / f"kokoro_int8.onnx.{i}" for i in (1, 2, 3, 4)]
    with open(path, "wb") as out:
        for part in parts:
            out.write(part.read_bytes())
    return parts


def half_precision(source):
    def make(root, path):
        import onnx
        from onnxruntime.transformers.float16 import convert_float_to_float16

        model = onnx.load(root / "models" / source)
        onnx.save(convert_float_to_float16(model, keep_io_types=True), path)

    return make


def smollm2(root, path):
    import gguf
    import smollm2_model

    smollm2_model.build(gguf.File(root / "data" / "smollm2.gguf"), path)


def smollm2_tokens(root, path):
    """The prompt and the vocabulary as text, so that reading an answer needs no tokenizer."""
    import gguf

    tokenizer = gguf.Tokenizer(gguf.File(root / "data" / "smollm2.gguf").meta)
    text = {"prompt": PROMPT, "ids": tokenizer.encode(PROMPT), "words": tokenizer.words()}
    with open(path, "w", encoding="utf-8") as out:
        json.dump(text, out)


def romanizer_loop(root, path):
    """Encoder, then greedy decoding with the decoder as the body of a Loop that ends at the end token."""
    import onnx
    from onnx import TensorProto, compose, helper, numpy_helper

    encoder = onnx.load(root / "models" / "romanizer_enc.onnx")
    decoder = onnx.load(root / "models" / "romanizer_dec.onnx")
    outer = compose.add_prefix(encoder, "enc/").graph
    inner = compose.add_prefix(decoder, "dec/").graph
    fed = {
        "dec/prefix": "prefix",
        "dec/hidden": "state",
        "dec/memory": "enc/memory_out",
        "dec/src_mask": "enc/src_mask_out",
    }
    for node in inner.node:
        node.input[:] = [fed.get(name, name) for name in node.input]
    node, info = helper.make_node, helper.make_tensor_value_info
    chosen = [
        node("ArgMax", ["dec/logprobs"], ["token"], axis=-1, keepdims=1),
        node("ReduceMax", ["dec/logprobs"], ["logprob"], axes=[-1], keepdims=0),
        node("Concat", ["prefix", "token"], ["longer_prefix"], axis=1),
        node("Equal", ["token", "end"], ["at_end"]),
        node("Squeeze", ["at_end"], ["at_end_scalar"]),
        node("Not", ["at_end_scalar"], ["go_on"]),
    ]
    body = helper.make_graph(
        [*inner.node, *chosen],
        "body",
        [
            info("step", TensorProto.INT64, []),
            info("condition", TensorProto.BOOL, []),
            info("prefix", TensorProto.INT64, [1, None]),
            info("state", TensorProto.FLOAT, [1, 2, 256]),
        ],
        [
            info("go_on", TensorProto.BOOL, []),
            info("longer_prefix", TensorProto.INT64, [1, None]),
            info("dec/hidden_out", TensorProto.FLOAT, None),
            info("logprob", TensorProto.FLOAT, [1]),
        ],
    )
    loop = node("Loop", ["steps", "true", "start", "enc/hidden_out"], ["tokens", "hidden", "logprobs"], body=body)
    constants = {
        "steps": np.array(STEPS_MAX, np.int64),
        "true": np.array(True),
        "start": np.array([[START]], np.int64),
        "end": np.array([[END]], np.int64),
    }
    weights = [*outer.initializer, *inner.initializer]
    weights += [numpy_helper.from_array(value, name) for name, value in constants.items()]
    outputs = [info("tokens", TensorProto.INT64, [1, "length"]), info("logprobs", TensorProto.FLOAT, ["steps_run", 1])]
    graph = helper.make_graph([*outer.node, loop], "romanizer", list(outer.input), outputs, weights)
    model = helper.make_model(graph, opset_imports=list(decoder.opset_import), ir_version=decoder.ir_version)
    onnx.checker.check_model(model)
    onnx.save(model, path)


TARGETS = {
    "models/kokoro_int8.onnx": join_parts,
    "models/ppocrv6_rec_fp16.onnx": half_precision("ppocrv6_rec.onnx"),
    "models/romanizer_loop.onnx": romanizer_loop,
    "models/smollm2-135m-fp32.onnx": smollm2,
    "data/smollm2_tokens.json": smollm2_tokens,
}


def derive(root):
    for name, make in TARGETS.items():
        path = root / name
        if path.exists():
            continue
        print(f"  making {name}", flush=True)
        fresh = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        try:
            used_up = make(root, fresh)
            os.replace(fresh, path)
        finally:
            fresh.unlink(missing_ok=True)
        for part in used_up or ():
            part.unlink()
