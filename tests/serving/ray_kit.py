# SPDX-License-Identifier: Apache-2.0
"""What replicas of the tests run; apart from the tests, since Ray's processes import it."""

import asyncio
import gc
import os
import uuid
from pathlib import Path

import millpond
import millpond.ray_serve
import ray
from ray import serve


class Watched(millpond.ray_serve.Predictor):
    """A Predictor that tells of itself, and whose requests can be made to wait."""

    def __init__(self, *given, **named):
        super().__init__(*given, **named)
        self._runs = []
        self._addresses = []

    async def infer(self, name, inputs, outputs=None, gate=None):
        """A gate is a file, for which the request waits; another beside it says that it does."""
        self._addresses.append([(array.ctypes.data % 64, array.flags.writeable, array.flags.owndata)
                                for array in inputs.values() if hasattr(array, "ctypes")])
        if gate is not None:
            Path(f"{gate}.{os.getpid()}.{uuid.uuid4()}").touch()
            while not os.path.exists(gate):
                await asyncio.sleep(0.02)
        return await super().infer(name, inputs, outputs)

    def _run_groups(self, requests):
        self._runs.append(len(requests))
        return super()._run_groups(requests)

    def about(self):
        gc.collect()
        pool = millpond.Pool()
        return {"pid": os.getpid(), "runs": self._runs, "arrays": self._addresses[-1:], "limit": millpond.get_limit(),
                "in_use": pool.stats()["in_use"], "device_bytes": pool.memory_info()[1],
                "models": self.models(), "failed": self.failed_update()}

    def fail_health(self):
        def broken():
            raise millpond.Error("the device is gone")

        self._models.check = broken


@ray.remote(num_cpus=0.1)
class Holder:
    """An actor that is no replica, and has a block."""

    def __init__(self, size):
        self.block = millpond.Pool(client="holder").alloc(size)
        self.export = millpond.ray_serve.export_metrics(0.5)
        assert millpond.ray_serve.export_metrics() is self.export

    def drop(self):
        self.block = None


app = serve.deployment(Watched).bind(metrics_interval_s=0.5)  # what a configuration file names
