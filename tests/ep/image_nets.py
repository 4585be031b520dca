# SPDX-License-Identifier: Apache-2.0
"""Networks of images that are written down node by node, in float32 and float16, beside the CPU provider's."""

import numpy as np
import onnxruntime as ort
import op_model
import provider
import small_models
from millpond import _ort_islands
from onnx import helper

ROUNDS = 3  # the third is captured
SAME = {"pads": [1, 1, 1, 1]}


def values(*dims):
    return np.random.default_rng(sum(dims)).standard_normal(dims).astype(np.float32)


def node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs.split(" "), outputs.split(" "), **attributes)


def weights(out, of, size):
    return values(out, of, size, size) / np.float32(np.sqrt(of * size * size))


def made(kind, channels, nodes, floats, others):
    """The network from `x` to `y`, computed in `kind`, whose input and output are float32."""
    to = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    nodes = [node("Cast", "given", "x", to=to), *nodes, node("Cast", "y", "result", to=1)]
    constants = {name: value.astype(np.float16).astype(kind) for name, value in floats.items()}
    return small_models.model(nodes, {"given": ["n", channels, "height", "width"]}, {"result": None},
                              {**constants, **others})


def session(model, **more):
    """A session without TF32 that can be asked about its islands."""
    options = provider.session_options()
    _ort_islands.ask(options)
    return provider.session(model, provider_options={"use_tf32": "0", **more}, options=options)


def islands_steps(of):
    """The steps of each island's first program, by operator."""
    return [[step["op"] for step in island["programs"][0]["steps"]]
            for island in _ort_islands.islands_of(of)["islands"]]


def check(kind, channels, net, sizes, far):
    """Runs it for images of each of `sizes`; the steps of its one island, by operator, for the first of them."""
    ours = session(made(kind, channels, *net))
    whole = ort.InferenceSession(made(np.float32, channels, *net), op_model.cpu_options(), [provider.CPU])
    for height, width in sizes:
        feed = {"given": values(1, channels, height, width).astype(np.float16).astype(np.float32)}
        expected = whole.run(None, feed)[0]
        for _ in range(ROUNDS):
            np.testing.assert_allclose(ours.run(None, feed)[0], expected, rtol=far, atol=far, strict=True)
    (steps,) = islands_steps(ours)
    return steps
