# SPDX-License-Identifier: Apache-2.0
"""Sessions with captured graphs, and runs with values of the device bound."""

import time
from pathlib import Path

import numpy as np
import onnxruntime as ort
import provider
import small_models
from onnx import helper

GRAPHS = {"enable_cuda_graph": "1", "use_tf32": "0"}


def session(model, **options):
    given = {**GRAPHS, **{key: str(value) for key, value in options.items()}}
    return provider.session(model, provider_options=given, options=provider.session_options(threads=1))


def run_options(graph=None, **entries):
    """Options of a run: which graph, and configuration entries with _ for a dot."""
    made = ort.RunOptions()
    if graph is not None:
        made.add_run_config_entry("gpu_graph_id", str(graph))
    for key, value in entries.items():
        made.add_run_config_entry(key.replace("__", "."), str(value))
    return made


def on_device(array):
    return ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array), "cuda", 0)


class Bound:
    """A session's inputs and outputs at fixed addresses of the device."""

    def __init__(self, session, inputs, outputs, graph=None):
        self.session, self.options = session, run_options(graph)
        self.inputs = {name: on_device(array) for name, array in inputs.items()}
        self.outputs = {name: on_device(np.full(shape, -1, np.float32)) for name, shape in outputs.items()}
        self.binding = session.io_binding()
        for name, value in self.inputs.items():
            self.binding.bind_ortvalue_input(name, value)
        for name, value in self.outputs.items():
            self.binding.bind_ortvalue_output(name, value)

    def run(self, options=None, **inputs):
        """The first output, with new contents of the inputs."""
        for name, array in inputs.items():
            self.inputs[name].update_inplace(np.ascontiguousarray(array))
        self.session.run_with_iobinding(self.binding, options or self.options)
        return next(iter(self.outputs.values())).numpy()


def is_captured(session, feed, graph=0):
    """Whether a graph answers for runs of that id on this thread: then a run that binds no outputs has none."""
    return session.run(None, feed, run_options(graph)) == []


def dense(rows, seed=3):
    """Two products with scratch memory, a bias and a softmax; any number of rows where `rows` is a name."""
    generator = np.random.default_rng(seed)
    weights = {
        "v": generator.standard_normal((16, 32)).astype(np.float32),
        "w": generator.standard_normal((32, 8)).astype(np.float32),
        "b": generator.standard_normal(8).astype(np.float32),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "v"], ["h"], name="first"),
        helper.make_node("Relu", ["h"], ["r"], name="relu"),
        helper.make_node("MatMul", ["r", "w"], ["s"], name="second"),
        helper.make_node("Add", ["s", "b"], ["t"], name="bias"),
        helper.make_node("Softmax", ["t"], ["y"], name="softmax", axis=-1),
    ]
    return small_models.model(nodes, {"x": [rows, 16]}, {"y": [rows, 8]}, weights)


def reshaped():
    """Shape arithmetic on the CPU beside work on the device; y = 2 x, as rows of two."""
    nodes = [
        helper.make_node("Add", ["x", "x"], ["d"], name="double"),
        helper.make_node("Shape", ["x"], ["s"], name="shape"),
        helper.make_node("Div", ["s", "two"], ["h"], name="half"),
        helper.make_node("Concat", ["h", "two"], ["t"], name="concat", axis=0),
        helper.make_node("Reshape", ["d", "t"], ["r"], name="reshape"),
        helper.make_node("Relu", ["r"], ["y"], name="relu"),
    ]
    return small_models.model(nodes, {"x": ["n"]}, {"y": ["m", 2]}, {"two": np.array([2], np.int64)})


def cpu_result(model, feed):
    return ort.InferenceSession(model, providers=[provider.CPU]).run(None, feed)[0]


def join(thread):
    """Returns once the thread is gone for the system too: graphs of a thread are given back while it ends, which is
    after Python takes it for ended."""
    thread.join()
    task = Path(f"/proc/self/task/{thread.native_id}")
    end = time.monotonic() + 60
    while task.exists():
        assert time.monotonic() < end, "the thread does not end"
        time.sleep(0.001)
