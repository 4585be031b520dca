# SPDX-License-Identifier: Apache-2.0
"""What differs between the versions of ONNX Runtime that the tests run with."""

import onnxruntime as ort

ORT = tuple(map(int, ort.__version__.split(".")[:2]))
HOLDS_CONTROL_FLOW = ORT >= (1, 31)  # gives an island nodes of control flow; others are walked by ONNX Runtime itself
OLD_CONTROL_FLOW = "ONNX Runtime before 1.31 walks control flow itself"
