#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A predictor for KServe: the ONNX models of a folder on one pool, kserve_predictor.py --model_dir FOLDER.

Each NAME.onnx is a model of that name, by the Open Inference Protocol: POST /v2/models/NAME/infer. A GPU that several
predictors share is divided by --memory_fraction. Needs the packages kserve and onnxruntime.
"""

import argparse
import asyncio
from pathlib import Path

import kserve
import millpond
import millpond.prometheus
import millpond.serving
from kserve.errors import InvalidInput
from kserve.utils.numpy_codec import from_np_dtype
from kserve.utils.utils import generate_uuid


class Predictor(kserve.Model):
    """One model of several that share `models`."""

    def __init__(self, name, models):
        super().__init__(name)
        self.models = models
        self.ready = True

    async def healthy(self):
        await asyncio.to_thread(self.models.check)  # raises where the GPU does no more work
        return self.ready

    async def predict(self, payload, headers=None, response_headers=None):
        inputs = {each.name: each.as_numpy() for each in payload.inputs}
        try:
            outputs = await asyncio.to_thread(self.models.run, self.name, inputs)
        except millpond.InvalidArgumentError as error:
            raise InvalidInput(str(error)) from error
        made = []
        for name, array in outputs.items():
            output = kserve.InferOutput(name, list(array.shape), from_np_dtype(array.dtype))
            output.set_data_from_numpy(array, binary_data=False)
            made.append(output)
        return kserve.InferResponse(payload.id or generate_uuid(), self.name, made)


def main():
    parser = argparse.ArgumentParser(parents=[kserve.model_server.parser])
    parser.add_argument("--model_dir", type=Path, default="/mnt/models", help="where KServe puts a model")
    parser.add_argument("--memory_fraction", type=float, default=1.0, help="of the GPU's memory, for this process")
    args, _ = parser.parse_known_args()
    models = millpond.serving.Models()
    models.bound(args.memory_fraction)
    models.update({path.stem: str(path) for path in sorted(args.model_dir.glob("*.onnx"))})
    millpond.prometheus.register()  # /metrics has the pool's figures, too
    kserve.ModelServer().start([Predictor(name, models) for name in models.names])


if __name__ == "__main__":
    main()
