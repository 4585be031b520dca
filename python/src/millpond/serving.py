# SPDX-License-Identifier: Apache-2.0
"""Models that serve requests: several on one pool, in batches, replaced while they are used.

    models = millpond.serving.Models()
    models.update({"detector": "detector.onnx", "reader": {"path": "reader.onnx", "warm": {"x": [1, 3, 32, 320]}}})
    outputs = models.run("detector", {"x": picture})

What accepts requests, spreads them over processes and restarts those is somebody else's: Ray Serve, for which
`millpond.ray_serve` has this, Triton's Python backend, KServe. Any thread may call any method. Importing this imports
ONNX Runtime.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from millpond import _ort_register as _register
from millpond import _ort_types as _types
from millpond import onnxruntime as mort
from millpond._core import (
    Error,
    InvalidArgumentError,
    NotFoundError,
    OutOfMemoryError,
    Pool,
    get_limit,
    set_limit,
)
from millpond._samples import LABELS, Metric, samples
from millpond._serving_batch import split_up

__all__ = ["LABELS", "Metric", "Model", "Models", "samples"]

CLIENT = "serving"
_KEYS = {"path", "options", "version", "warm"}
_PROBE = b"\x5a" * 256


@dataclass(frozen=True)
class Model:
    """A model that is loaded."""

    name: str
    version: str
    session: mort.Session
    source: tuple[object, ...]  # what it was loaded from; another one is another model


def _stamp(path: str) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_mtime_ns, found.st_size


def _entry(name: str, given: object) -> tuple[Any, dict[str, Any]]:
    """The model itself, and the rest of what is said of it."""
    about: dict[str, Any] = dict(given) if isinstance(given, Mapping) else {"path": given}
    unknown = set(about) - _KEYS
    if unknown or "path" not in about:
        raise InvalidArgumentError(
            f"model {name!r}: {f'{sorted(unknown)[0]!r} is not known' if unknown else 'it has no path'}; a model is a "
            f"path, bytes, or a mapping with path and, if wanted, options, version and warm"
        )
    model = about.pop("path")
    if hasattr(model, "SerializeToString"):
        model = model.SerializeToString()
    if not isinstance(model, (str, bytes, os.PathLike)):
        raise InvalidArgumentError(f"model {name!r}: a {type(model).__name__} is neither a path nor a model")
    return model, about


class Models:
    """Named models on one device, all of whose sessions live from the device's pool.

    device, options: of all sessions, as for `millpond.onnxruntime.session`; a model's own options come before these.
    """

    def __init__(
        self, device: str | int | mort.Device = "auto", *, options: Mapping[str, object] | None = None
    ) -> None:
        self._device = device
        self._options = dict(options or {})
        self._loading = threading.Lock()  # one update at a time; runs take no lock
        self._models: dict[str, Model] = {}
        self._pools: dict[str, Pool] = {}
        self._probe: Any = None

    @property
    def names(self) -> list[str]:
        """The models that there are, in the order of their names."""
        return sorted(self._models)

    def __getitem__(self, name: str) -> Model:
        found = self._models.get(name)
        if found is None:
            known = ", ".join(self.names) or "none"
            raise NotFoundError(f"there is no model {str(name)[:80]!r} here; there are {known}")
        return found

    def update(self, models: Mapping[str, object]) -> list[str]:
        """From when this returns on these are the models, and no others; returns the names of those it has loaded.

        models: by name a path, the model's bytes, an onnx.ModelProto, or a mapping with these keys:
            path       one of those three
            options    of the provider, as for `millpond.onnxruntime.session`
            version    a text; another one is loaded again, even if the file looks the same
            warm       a shape for each input: one run with zeros before the model is used, which brings its kernels

        A model that is the same stays loaded: its file is as old and as long as it was, with equal options and version.
        Requests are answered meanwhile, by the models from before; a run that has begun ends on the model that it began
        with, which goes afterwards. So there is memory for both until then. Where one cannot be loaded, nothing
        changes, and its error is raised: NotFoundError, InvalidArgumentError, OutOfMemoryError, and those of
        `millpond.onnxruntime.session`.
        """
        with self._loading:
            fresh: dict[str, Model] = {}
            loaded: list[str] = []
            for name, given in models.items():
                model, about = _entry(name, given)
                source = self._source(name, model, about)
                known = self._models.get(name)
                if known is None or known.source != source:
                    known = self._load(name, model, about, source)
                    loaded.append(name)
                fresh[name] = known
            self._models = fresh
            return loaded

    def _source(self, name: str, model: Any, about: Mapping[str, Any]) -> tuple[object, ...]:
        rest = (about.get("version"), repr(sorted(dict(about.get("options") or {}).items())))
        if isinstance(model, bytes):
            return (model, *rest)
        try:
            return (os.fspath(model), _stamp(os.fspath(model)), *rest)
        except OSError as error:
            raise NotFoundError(f"model {name!r}: {os.fspath(model)} cannot be read: {error.strerror}") from None

    def _load(self, name: str, model: Any, about: Mapping[str, Any], source: tuple[object, ...]) -> Model:
        options = {**self._options, **dict(about.get("options") or {})}
        made = Model(name, str(about.get("version") or "1"), mort.session(model, self._device, options=options), source)
        if about.get("warm") is not None:
            _run_row([made], _zeros(made, about["warm"]), None)
        return made

    def run(
        self, name: str | Model | Sequence[str | Model], inputs: Mapping[str, Any], outputs: Sequence[str] | None = None
    ) -> dict[str, Any]:
        """Runs a model on arrays; gives its outputs, or those asked for, as NumPy arrays.

        name: its name, or what `models[name]` gave before: that one, even if it has been replaced since. Several run in
        a row, each fed by the outputs of the one before, which stay on the device.
        inputs: arrays of the host or of the device. NumPy arrays in C order and of the model's type are read where they
        lie, read-only ones too; others, and lists, are converted first.
        Raises NotFoundError for an unknown model, and what `millpond.onnxruntime.run` raises.
        """
        return _run_row(self._row(name), inputs, outputs)

    def _row(self, name: str | Model | Sequence[str | Model]) -> list[Model]:
        names = [name] if isinstance(name, (str, Model)) else list(name)
        if not names:
            raise InvalidArgumentError("no model was named")
        return [each if isinstance(each, Model) else self[each] for each in names]

    def run_batch(
        self,
        name: str | Model | Sequence[str | Model],
        requests: Sequence[Mapping[str, Any]],
        outputs: Sequence[str] | None = None,
    ) -> list[dict[str, Any] | Exception]:
        """Runs several requests as one, where the model allows it; gives for each its outputs, or what it failed with.

        Arrays of equal inputs are put together along their first axis, in pinned memory of the pool, if the model
        leaves the size of that axis open in all its inputs and outputs. Requests whose arrays differ in other axes, or
        in type, run apart from each other; and when a batch fails, each of its requests is tried alone, so that one
        bad request spoils no other.
        """
        row = self._row(name)
        return split_up(
            [each.session for each in row],
            list(requests),
            lambda inputs: _run_row(row, inputs, outputs),
            self._pool("pinned"),
        )

    def _pool(self, memory: str) -> Pool:
        found = self._pools.get(memory)
        if found is None:
            spec = _register.find(self._device).spec
            found = self._pools.setdefault(memory, Pool(spec, memory=memory, client=CLIENT))  # type: ignore[arg-type]
        return found

    def check(self) -> None:
        """Raises Error where the device does no more work, such as a GPU after a fault; a restart is needed then.

        Copies a few bytes to the device and back. That no memory is left is no reason to restart.
        """
        if self._probe is None:
            try:
                self._probe = self._pool("device").alloc(len(_PROBE))
            except OutOfMemoryError:
                return
        self._probe.copy_from_host(_PROBE)
        if self._probe.copy_to_host() != _PROBE:
            raise Error(f"{self._pool('device').device} gives back other bytes than it was given; restart the process")

    def bound(self, fraction: float) -> int:
        """Bounds all pools of this process to a part of the device's memory; gives the bytes.

        For processes that share a GPU, which nothing else keeps from taking it all. A limit that is lower already
        (MILLPOND_LIMIT) stays. Raises InvalidArgumentError for an invalid part.
        """
        if not 0 < fraction <= 1:
            raise InvalidArgumentError(f"a fraction of {fraction!r} of the memory cannot be; it is above 0 and up to 1")
        bytes_max = int(self._pool("device").memory_info()[1] * fraction)
        before = get_limit()
        if before == 0 or bytes_max < before:
            set_limit(bytes_max)
            return bytes_max
        return before

    def close(self) -> None:
        """Releases all models and pools. Runs that have begun still finish."""
        with self._loading:
            self._models, self._probe = {}, None
            self._pools = {}


def _arguments(model: Model) -> dict[str, Any]:
    return {argument.name: argument for argument in model.session.get_inputs()}


def _dtype_of(argument: Any) -> Any:
    kind = _types.from_tensor(argument.type)
    return kind.name if kind is not None and kind.typestr is not None else None


def _zeros(model: Model, shapes: Mapping[str, Iterable[int]]) -> dict[str, Any]:
    import numpy as np

    known = _arguments(model)
    for name in shapes:
        if name not in known:
            raise InvalidArgumentError(
                f"model {model.name!r}: warm names {name!r}, and the inputs are {', '.join(known)}"
            )
    return {name: np.zeros(tuple(shape), _dtype_of(known[name])) for name, shape in shapes.items()}


def _given(model: Model, inputs: Mapping[str, Any]) -> dict[str, Any]:
    import numpy as np

    known = _arguments(model)
    given: dict[str, Any] = {}
    for name, value in inputs.items():
        if name in known and (isinstance(value, np.ndarray) or not _is_array(value)):
            given[name] = np.asarray(value, _dtype_of(known[name]))
        else:
            given[name] = value
    return given


def _run_row(row: Sequence[Model], inputs: Mapping[str, Any], outputs: Sequence[str] | None) -> dict[str, Any]:
    values = inputs
    for model in row[:-1]:
        values = mort.run(model.session, _given(model, values))
    last = row[-1]
    names = outputs if outputs is not None else [each.name for each in last.session.get_outputs()]
    return mort.run(last.session, _given(last, values), dict.fromkeys(names, "cpu"))


def _is_array(value: object) -> bool:
    return hasattr(value, "__cuda_array_interface__") or hasattr(value, "__dlpack__") or hasattr(value, "data_ptr")
