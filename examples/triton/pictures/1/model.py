# SPDX-License-Identifier: Apache-2.0
"""ONNX models in Triton's Python backend: those of this folder in a row, each fed by the outputs of the one before.

All of them live from the one pool of this instance's process, so what goes from one to the next stays on the device.
Requests that Triton has put together run as one where the models allow it. Parameters of config.pbtxt: memory_fraction,
the part of the GPU's memory that this process may have.
"""

import json
import time
from pathlib import Path

import millpond.serving
import triton_python_backend_utils as pb_utils

METRICS_S = 2.0  # between two updates of the pool's figures


class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        is_gpu = args["model_instance_kind"] == "GPU"
        self.models = millpond.serving.Models(f"cuda:{args['model_instance_device_id']}" if is_gpu else "auto")
        fraction = config.get("parameters", {}).get("memory_fraction", {}).get("string_value", "1")
        self.models.bound(float(fraction))
        folder = Path(args["model_repository"]) / args["model_version"]
        self.models.update({path.stem: str(path) for path in sorted(folder.glob("*.onnx"))})
        self.inputs = [each["name"] for each in config["input"]]
        self.outputs = [each["name"] for each in config["output"]]
        self.families, self.figures, self.updated = {}, {}, 0.0

    def execute(self, requests):
        given = [{name: self.tensor(request, name) for name in self.inputs} for request in requests]
        found = self.models.run_batch(self.models.names, given, self.outputs)
        self.update_metrics()
        return [self.response(each) for each in found]

    def tensor(self, request, name):
        tensor = pb_utils.get_input_tensor_by_name(request, name)
        return tensor.as_numpy() if tensor.is_cpu() else tensor  # one of the GPU has DLPack

    def response(self, found):
        if isinstance(found, Exception):
            return pb_utils.InferenceResponse(output_tensors=[], error=pb_utils.TritonError(str(found)))
        return pb_utils.InferenceResponse(
            output_tensors=[pb_utils.Tensor(name, found[name]) for name in self.outputs])

    def update_metrics(self):
        """The pool's figures at Triton's /metrics."""
        if time.monotonic() < self.updated + METRICS_S:
            return
        self.updated = time.monotonic()
        for metric, labels, value in millpond.serving.samples():
            if metric.name not in self.families:
                kind = pb_utils.MetricFamily.COUNTER if metric.is_counter else pb_utils.MetricFamily.GAUGE
                self.families[metric.name] = pb_utils.MetricFamily(
                    name=metric.name, description=metric.help, kind=kind)
            key = (metric.name, labels)
            if key not in self.figures:
                named = dict(zip(millpond.serving.LABELS, labels, strict=True))
                self.figures[key] = [self.families[metric.name].Metric(labels=named), 0]
            figure, before = self.figures[key]
            if metric.is_counter:
                figure.increment(max(value - before, 0))
            else:
                figure.set(value)
            self.figures[key][1] = value

    def finalize(self):
        self.models.close()
