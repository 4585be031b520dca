# SPDX-License-Identifier: Apache-2.0
"""Ray Serve: deployments whose replicas have several models on one pool, and the pool's figures among Ray's metrics.

    from ray import serve
    import millpond.ray_serve

    app = serve.deployment(
        millpond.ray_serve.Predictor,
        num_replicas=2, max_ongoing_requests=32, max_queued_requests=64, ray_actor_options={"num_gpus": 0.5},
        user_config={"models": {"detector": "detector.onnx"}},
    ).bind()
    serve.run(app)

Another user_config replaces the models of running replicas, without a request that waits or fails for it.
export_metrics() is for actors and tasks of any kind. Importing this module imports Ray.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from millpond import _inference_protocol as _protocol
from millpond import _samples
from millpond._core import Error, InvalidArgumentError, NotFoundError, OutOfMemoryError
from millpond.serving import Models

try:
    _ray: Any = importlib.import_module("ray")
    _serve: Any = importlib.import_module("ray.serve")
    _metrics: Any = importlib.import_module("ray.serve.metrics")
    _responses: Any = importlib.import_module("starlette.responses")
except ImportError as _error:
    raise ImportError(
        f"millpond.ray_serve needs Ray Serve, which cannot be imported ({_error}); pip install 'ray[serve]'"
    ) from _error

__all__ = ["MetricsExport", "Predictor", "export_metrics"]

_logger = logging.getLogger("ray.serve")  # whose lines are in the replica's own log
_CONFIG_KEYS = {"models", "batch", "keep", "limit"}
_BATCH_KEYS = {"size", "wait_s"}
_RETRY_S = 1


# ---- metrics ----


class MetricsExport:
    """Sets Ray's metrics to what the pools of this process have in use, every few seconds, until stop()."""

    def __init__(self, interval_s: float = 5.0) -> None:
        if not 0 < interval_s < 3600:
            raise InvalidArgumentError(f"interval_s is {interval_s!r}; it must be above 0 and below 3600")
        kinds = {False: _metrics.Gauge, True: _metrics.Counter}
        self._metrics: dict[str, Any] = {
            metric.name: kinds[metric.is_counter](metric.name, metric.help, tag_keys=_samples.LABELS)
            for metric in _samples.METRICS
        }
        self._last: dict[tuple[str, tuple[str, ...]], float] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._interval_s = interval_s
        self._thread = threading.Thread(target=self._work, name="millpond metrics", daemon=True)
        self._thread.start()

    def sample(self) -> None:
        """Sets them now."""
        with self._lock:
            seen: set[tuple[str, tuple[str, ...]]] = set()
            for metric, labels, value in _samples.samples():
                key = (metric.name, labels)
                seen.add(key)
                self._set(metric.is_counter, key, value)
            for name, labels in self._last.keys() - seen:  # of a pool or a client that has gone
                if self._last[name, labels] and isinstance(self._metrics[name], _metrics.Gauge):
                    self._set(False, (name, labels), 0)

    def _set(self, is_counter: bool, key: tuple[str, tuple[str, ...]], value: float) -> None:
        tags = dict(zip(_samples.LABELS, key[1], strict=True))
        before = self._last.get(key, 0)
        self._last[key] = value
        if not is_counter:
            self._metrics[key[0]].set(value, tags=tags)
            return
        growth = value - before if value >= before else value  # a pool that was opened anew counts from 0
        if growth > 0:
            self._metrics[key[0]].inc(growth, tags=tags)

    def _work(self) -> None:
        while not self._ended.is_set():
            self.sample()
            self._ended.wait(self._interval_s)

    def stop(self) -> None:
        """Sets them no more."""
        self._ended.set()
        self._thread.join(10)


_export_lock = threading.Lock()
_export: MetricsExport | None = None


def export_metrics(interval_s: float = 5.0) -> MetricsExport:
    """The pools' figures among Ray's metrics from now on, as ray_millpond_*; one export in a process, started once.

    In a replica of Ray Serve they have the tags of its deployment, too; elsewhere Ray's own alone. To be called in the
    process that has the pools: in an actor, a task, a replica. `Predictor` calls it.
    """
    global _export
    with _export_lock:
        if _export is None:
            _export = MetricsExport(interval_s)
        return _export


# ---- deployments ----


def _gpu_part() -> float:
    """The part of a GPU that Ray has given this process; 0 where there is none, or it is whole."""
    if not _ray.is_initialized() or _ray.get_runtime_context().get_actor_id() is None:
        return 0.0
    part = float(_ray.get_runtime_context().get_assigned_resources().get("GPU", 0))
    return part if part < 1 else 0.0


def _check_mapping(what: str, given: object, known: set[str]) -> None:
    if not isinstance(given, Mapping) or not set(given) <= known:
        raise InvalidArgumentError(f"{what} is {str(given)[:200]}; it is a mapping with {', '.join(sorted(known))}")


def _checked(config: Mapping[str, Any]) -> tuple[Mapping[str, object] | None, Mapping[str, Any]]:
    """The models of a user_config, if it names any, and what it says of batches."""
    _check_mapping("user_config", config, _CONFIG_KEYS)
    models, batch = config.get("models"), config.get("batch") or {}
    _check_mapping("batch", batch, _BATCH_KEYS)
    if models is not None and not isinstance(models, Mapping):
        raise InvalidArgumentError(f"the models of a user_config are {str(models)[:200]}; name them: {{name: path}}")
    return models, batch


class Predictor:
    """A deployment class: named models on one pool, in batches, by HTTP and by handle.

    models, device, options: as for `millpond.serving.Models`; models given here may be bytes. Those of user_config come
    instead of them.
    batch_size, batch_wait_s: how many requests may run as one, and how long the first of them waits for others.
    body_max: the most bytes of an HTTP request.
    metrics_interval_s: how often the pool's figures go to Ray's metrics; 0: never.

    user_config is a mapping with the keys
        models   what `millpond.serving.Models.update` takes
        batch    {"size": ..., "wait_s": ...} instead of the two above
        keep     true: a replica that cannot load these models logs that, and goes on with those that it has
        limit    the part of the device's memory that the replica may have; by default num_gpus where that is below 1

    By handle: `await handle.infer.remote("detector", {"x": array})` gives {output: array}. By HTTP it speaks the Open
    Inference Protocol: POST v2/models/NAME/infer, GET v2/models/NAME, v2/models/NAME/ready, v2/health/ready.
    """

    def __init__(
        self,
        models: Mapping[str, object] | None = None,
        *,
        device: str | int = "auto",
        options: Mapping[str, object] | None = None,
        batch_size: int = 16,
        batch_wait_s: float = 0.002,
        body_max: int = 64 << 20,
        metrics_interval_s: float = 5.0,
    ) -> None:
        self._models = Models(device, options=options)
        self._limit = _gpu_part()
        if self._limit > 0:
            self._models.bound(self._limit)
        self._batch = {"size": batch_size, "wait_s": batch_wait_s}
        self._body_max = body_max
        self._failed: str | None = None
        self._queued: Any = _serve.batch(self._run_batch)
        self._set_batch({})
        if models:
            self._models.update(models)
        if metrics_interval_s > 0:
            export_metrics(metrics_interval_s)

    # What Ray Serve calls.

    def reconfigure(self, user_config: Mapping[str, Any]) -> None:
        """Loads what is new, in a thread of Serve's, while requests are answered by the models from before."""
        models, batch = _checked(user_config)
        if user_config.get("limit") is not None:
            self._models.bound(float(user_config["limit"]))
        if models is not None:
            self._update(models, user_config.get("keep") is True)
        self._set_batch(batch)

    def _update(self, models: Mapping[str, object], may_keep: bool) -> None:
        try:
            self._models.update(models)
            self._failed = None
        except Exception as error:
            if not may_keep or not self._models.names:
                raise
            self._failed = str(error)
            _logger.error("the models stay as they are (%s): %s", ", ".join(self._models.names), error)

    async def check_health(self) -> None:
        """Raises where the device does no more work: Serve then starts another replica."""
        await asyncio.to_thread(self._models.check)

    async def __call__(self, request: Any) -> Any:
        """A request by HTTP."""
        path = request.url.path.removeprefix(request.scope.get("root_path", ""))
        try:
            return await self._answer(request.method, path.strip("/").split("/"), request)
        except OutOfMemoryError as error:  # peers need not know who has the memory
            _logger.warning("a request is refused: %s", error)
            return _reply({"error": "no memory is left for this request"}, 503, {"Retry-After": str(_RETRY_S)})
        except NotFoundError as error:
            return _reply({"error": str(error)}, 404)
        except InvalidArgumentError as error:
            return _reply({"error": str(error)}, 400)
        except Error as error:
            _logger.error("a request failed: %s", error)
            return _reply({"error": "the model could not be run; the replica's log says why"}, 500)

    # What programs call.

    async def infer(
        self, name: str, inputs: Mapping[str, Any], outputs: Sequence[str] | None = None
    ) -> dict[str, Any]:
        """Runs a model, together with other requests that wait; gives {output: NumPy array}.

        Raises NotFoundError, InvalidArgumentError, OutOfMemoryError, each a class of Python's, too.
        """
        return (await self._inferred(name, inputs, outputs))[0]

    async def _inferred(
        self, name: str, inputs: Mapping[str, Any], outputs: Sequence[str] | None
    ) -> tuple[dict[str, Any], str]:
        """The outputs, and the version of the model that gave them."""
        given = {key: _as_numpy(value) for key, value in inputs.items()}
        found, version = await self._queued((name, given, None if outputs is None else tuple(outputs)))
        if isinstance(found, Exception):
            raise found
        return found, version

    def models(self) -> dict[str, str]:
        """The models that there are, with their versions."""
        return {name: self._models[name].version for name in self._models.names}

    def failed_update(self) -> str | None:
        """Why the newest models could not be loaded, where "keep" has the replica go on; None where they could."""
        return self._failed

    # Batches.

    def _set_batch(self, given: Mapping[str, Any]) -> None:
        size, wait_s = given.get("size", self._batch["size"]), given.get("wait_s", self._batch["wait_s"])
        if type(size) is not int or not 1 <= size <= 65536:
            raise InvalidArgumentError(f"a batch of {size!r} requests cannot be; its size is from 1 to 65536")
        if not isinstance(wait_s, (int, float)) or not 0 <= wait_s <= 60:
            raise InvalidArgumentError(f"requests cannot wait {wait_s!r} s for others; wait_s is from 0 to 60")
        self._queued.set_max_batch_size(size)
        self._queued.set_batch_wait_timeout_s(wait_s)

    async def _run_batch(self, requests: list[tuple[str, dict[str, Any], tuple[str, ...] | None]]) -> list[Any]:
        return await asyncio.to_thread(self._run_groups, requests)

    def _run_groups(self, requests: list[tuple[str, dict[str, Any], tuple[str, ...] | None]]) -> list[Any]:
        groups: dict[tuple[str, tuple[str, ...] | None], list[int]] = {}
        for index, (name, _, outputs) in enumerate(requests):
            groups.setdefault((name, outputs), []).append(index)
        results: dict[int, Any] = {}
        for (name, outputs), members in groups.items():
            try:
                model = self._models[name]
            except NotFoundError as error:
                results.update(dict.fromkeys(members, (error, "")))
                continue
            found = self._models.run_batch(model, [requests[index][1] for index in members], outputs)
            results.update(zip(members, ((each, model.version) for each in found), strict=True))
        return [results[index] for index in range(len(requests))]

    # HTTP.

    async def _answer(self, method: str, parts: list[str], request: Any) -> Any:
        if parts[:2] == ["v2", "health"] and method == "GET" and parts[2:] in (["live"], ["ready"]):
            return _reply({parts[2]: True})
        if parts[:2] == ["v2", "models"] and len(parts) > 2:
            if parts[2] not in self._models.names:
                raise NotFoundError(f"there is no model {parts[2][:80]!r} here")
            model = self._models[parts[2]]
            if method == "GET" and len(parts) == 3:
                return _reply(_protocol.metadata(model.name, model.version, model.session))
            if method == "GET" and parts[3:] == ["ready"]:
                return _reply({"name": model.name, "ready": True})
            if method == "POST" and parts[3:] == ["infer"]:
                return await self._infer_by_http(model.name, request)
        raise NotFoundError(f"there is no {method} /{'/'.join(parts)[:200]}; see the Open Inference Protocol")

    async def _infer_by_http(self, name: str, request: Any) -> Any:
        body = bytearray()
        async for chunk in request.stream():
            if len(body) + len(chunk) > self._body_max:
                return _reply({"error": f"the request has more than {self._body_max} bytes (body_max)"}, 413)
            body += chunk
        asked = await asyncio.to_thread(_protocol.decode, bytes(body), request.headers.get(_protocol.HEADER_LENGTH))
        outputs, version = await self._inferred(name, asked.inputs, asked.outputs)
        made, length = await asyncio.to_thread(_protocol.encode, name, version, asked, outputs)
        if length is None:
            return _responses.Response(made, media_type="application/json")
        headers = {_protocol.HEADER_LENGTH: str(length)}
        return _responses.Response(made, headers=headers, media_type="application/octet-stream")


def _reply(document: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None) -> Any:
    return _responses.Response(json.dumps(document), status, dict(headers or {}), "application/json")


def _as_numpy(value: Any) -> Any:
    """A list as an array, so that it can be put together with others; arrays as they are."""
    import numpy as np

    return np.asarray(value) if isinstance(value, (list, tuple, int, float)) else value
