# SPDX-License-Identifier: Apache-2.0
"""A stand-in for the module that Triton's Python backend gives its models: as much as examples/triton uses of it."""

import numpy as np

METRICS = {}  # (family, labels): value


class Tensor:
    def __init__(self, name, array):
        assert isinstance(array, np.ndarray)
        self._name, self._array = name, array

    def name(self):
        return self._name

    def as_numpy(self):
        return self._array

    def is_cpu(self):
        return True


class TritonError(Exception):
    pass


class InferenceRequest:
    def __init__(self, **inputs):
        self.inputs = {name: Tensor(name, array) for name, array in inputs.items()}


class InferenceResponse:
    def __init__(self, output_tensors=None, error=None):
        self.tensors = {tensor.name(): tensor.as_numpy() for tensor in output_tensors}
        self.error = error
        assert error is None or isinstance(error, TritonError)


def get_input_tensor_by_name(request, name):
    return request.inputs.get(name)


class Metric:
    def __init__(self, family, labels):
        self.key = (family.name, tuple(labels.items()))
        METRICS[self.key] = 0.0

    def set(self, value):
        METRICS[self.key] = float(value)

    def increment(self, value):
        assert value >= 0
        METRICS[self.key] += value


class MetricFamily:
    COUNTER, GAUGE = 0, 1
    names = set()

    def __init__(self, name, description, kind):
        assert name not in MetricFamily.names and description and kind in (0, 1)
        MetricFamily.names.add(name)
        self.name = name

    def Metric(self, labels):  # noqa: N802  Triton's name
        return Metric(self, labels)
