# SPDX-License-Identifier: Apache-2.0
"""One model on several devices: a session on each, and batches that are shared out among them.

A device has its session and its pool, and all but the first, whose part the calling thread runs, have a thread. A batch
is cut along the first dimension of every input that has the
batch's name there; the parts are views of what was given. Outputs whose shapes are known from the inputs' are written
by each device into its part of one array; others are put together behind the run.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from millpond import _ort_types as types
from millpond import _ort_values as values
from millpond._core import Buffer, Error, InvalidArgumentError, UnsupportedError
from millpond._ort_native import ort

if TYPE_CHECKING:
    from types import TracebackType

    from millpond._ort_register import Device
    from millpond._ort_session import Argument, Session


def shares(rows: int, count: int) -> list[tuple[int, int]]:
    """The rows of each device that has any: alike, the first ones more by one. No rows at all are the first's."""
    least, more = divmod(rows, count)
    ends = [i * least + min(i, more) for i in range(count + 1)]
    return [(begin, end) for begin, end in zip(ends, ends[1:], strict=False) if begin < end] or [(0, 0)]


def _first(argument: Argument) -> int | str | None:
    return argument.shape[0] if argument.shape else 0


def batch_of(inputs: Sequence[Argument], wanted: str | None) -> str | None:
    """The name of the batch's dimension: of the first input that has one. None: it has no name."""
    names = [_first(argument) for argument in inputs if not isinstance(_first(argument), int)]
    shapes = ", ".join(f"{argument.name} {argument.shape}" for argument in inputs)
    if not names:
        raise InvalidArgumentError(
            f"the model has no batch to share out: no input's first dimension is free ({shapes})"
        )
    if wanted is not None and wanted not in names:
        raise InvalidArgumentError(f"no input has {wanted!r} as its first dimension ({shapes})")
    return wanted if wanted is not None else names[0]  # type: ignore[return-value]


def _on_host(name: str, value: Any) -> np.ndarray[Any, Any]:
    """An input as an array of the host, without a copy where it is one."""
    on_device = isinstance(value, (ort.OrtValue, values.DeviceArray, Buffer))
    if on_device or hasattr(value, "__cuda_array_interface__"):
        raise InvalidArgumentError(
            f"the input {name!r} is a {type(value).__name__} on a device; a batch for several devices is shared out "
            "from arrays of the host: give a NumPy array"
        )
    return np.asarray(value)


class Sharded:
    """A model on several devices; made by session(model, devices=...).

        with mort.session("model.onnx", devices="all") as model:
            y, = model.run(None, {"x": x})  # rows of x on all devices at once

    Threads: any, at the same time too; a device works on one part after the other.
    """

    def __init__(self, devices: Sequence[Device], sessions: Sequence[Session], batch: str | None) -> None:
        self.devices: list[Device] = list(devices)
        self.sessions: list[Session] = list(sessions)
        self._ends = sessions[0].get_inputs(), sessions[0].get_outputs()
        self.batch: str | None = batch_of(self.get_inputs(), batch)
        self._inputs = {argument.name: argument for argument in self.get_inputs()}
        self._outputs = {argument.name: argument for argument in self.get_outputs()}
        self._threads = [
            concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix=f"millpond {device.spec}")
            for device in self.devices[1:]
        ]
        self._turns = [threading.Lock() for _ in self.devices]

    def get_inputs(self) -> Sequence[Argument]:
        return self._ends[0]

    def get_outputs(self) -> Sequence[Argument]:
        return self._ends[1]

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: Any = None
    ) -> list[Any]:
        """Runs the model on arrays of the host; gives the outputs, as NumPy arrays, as one session would.

        A batch with fewer rows than there are devices leaves some of them idle. An output without the batch's
        dimension must be the same on all devices. An error of a device is raised as it is, when all have ended: its
        `device` says whose it is, and so does its note. Raises InvalidArgumentError for inputs that disagree in the
        size of the batch, UnsupportedError for an output that cannot be put together.
        """
        self._check_open()
        wanted = list(output_names) if output_names is not None else list(self._outputs)
        unknown = [name for name in wanted if name not in self._outputs]
        if unknown:
            raise InvalidArgumentError(f"the model has no output {unknown[0]!r}; it has {', '.join(self._outputs)}")
        given = {name: _on_host(name, value) for name, value in input_feed.items()}
        parts = shares(self._rows(given), len(self.devices))
        if len(parts) == 1:
            return self._on_all(lambda i: self.sessions[i].run(wanted, given, run_options), 1)[0]
        targets = self._targets(wanted, given, parts[-1][1])
        results = self._on_all(
            lambda i: self._part(self.sessions[i], wanted, given, targets, parts[i], run_options), len(parts)
        )
        return [
            targets[name] if name in targets else self._joined(name, [result[k] for result in results], parts)
            for k, name in enumerate(wanted)
        ]

    # ---- inputs ----

    def _is_batched(self, name: str) -> bool:
        argument = self._inputs.get(name)
        return argument is not None and bool(argument.shape) and _first(argument) == self.batch

    def _rows(self, given: Mapping[str, np.ndarray[Any, Any]]) -> int:
        sizes = {name: array.shape[0] for name, array in given.items() if self._is_batched(name) and array.ndim > 0}
        if not sizes:
            raise InvalidArgumentError(
                f"no input with the batch {self.batch!r} is given, only {', '.join(given) or 'none'}"
            )
        if len(set(sizes.values())) > 1:
            listed = ", ".join(f"{name} has {size}" for name, size in sizes.items())
            raise InvalidArgumentError(f"the inputs disagree in the size of the batch {self.batch!r}: {listed}")
        return next(iter(sizes.values()))

    # ---- outputs ----

    def _targets(
        self, wanted: Sequence[str], given: Mapping[str, np.ndarray[Any, Any]], rows: int
    ) -> dict[str, np.ndarray[Any, Any]]:
        """Arrays for outputs whose shapes follow from the inputs'."""
        known: dict[Any, int] = {}
        for name, array in given.items():
            shape = self._inputs[name].shape if name in self._inputs else ()
            if len(shape) == array.ndim:
                known.update({dim: size for dim, size in zip(shape, array.shape, strict=True) if isinstance(dim, str)})
        found = {}
        for name in wanted:
            argument = self._outputs[name]
            kind = types.from_tensor(argument.type)
            sizes = [dim if isinstance(dim, int) else known.get(dim) for dim in argument.shape or ()]
            is_named = self.batch is not None and bool(sizes) and _first(argument) == self.batch
            if kind is None or kind.typestr is None or not is_named or None in sizes:
                continue
            found[name] = np.empty([rows, *sizes[1:]], kind.name)  # type: ignore[list-item]
        return found

    def _joined(self, name: str, pieces: list[Any], parts: Sequence[tuple[int, int]]) -> Any:
        """An output of all devices; `pieces` in the order of the batch."""
        if not all(isinstance(piece, np.ndarray) for piece in pieces):
            raise UnsupportedError(f"the output {name!r} is no tensor, so parts of it cannot be put together")
        is_alike = all(np.array_equal(pieces[0], piece, equal_nan=pieces[0].dtype.kind == "f") for piece in pieces[1:])
        first = _first(self._outputs[name])
        is_free = bool(self._outputs[name].shape is None or self._outputs[name].shape) and not isinstance(first, int)
        fits = is_free and all(
            piece.ndim > 0 and piece.shape[0] == end - begin for piece, (begin, end) in zip(pieces, parts, strict=True)
        )
        if fits and (first == self.batch or not is_alike):
            return np.concatenate(pieces)
        if is_alike:
            return pieces[0]
        shapes = ", ".join(str(list(piece.shape)) for piece in pieces)
        raise UnsupportedError(
            f"the output {name!r} does not have the batch {self.batch!r} as its first dimension, and differs from "
            f"device to device ({shapes}), so that it cannot be put together; ask for other outputs, or run it on one"
        )

    # ---- one device ----

    def _part(
        self,
        session: Session,
        wanted: Sequence[str],
        given: Mapping[str, np.ndarray[Any, Any]],
        targets: Mapping[str, np.ndarray[Any, Any]],
        part: tuple[int, int],
        run_options: Any,
    ) -> list[Any]:
        begin, end = part
        feeds = {name: array[begin:end] if self._is_batched(name) else array for name, array in given.items()}
        # A binding copies inputs to the device when they are bound, during which no other thread of Python runs; a run
        # copies them while others do, but its outputs have to be copied once more.
        gives = sum(array[begin:end].nbytes for array in targets.values())
        takes = sum(array.nbytes for array in feeds.values())
        if any(array.dtype.kind not in "biuf" for array in feeds.values()) or gives <= takes:
            results = session.run(wanted, feeds, run_options)
            for name, result in zip(wanted, results, strict=True):
                if name in targets:
                    targets[name][begin:end] = result
            return results
        binding = session.io_binding()
        kept = []
        for name, array in feeds.items():
            kept.append(ort.OrtValue.ortvalue_from_numpy(np.asarray(array, order="C")))
            binding.bind_ortvalue_input(name, kept[-1])
        for name in wanted:
            if name in targets and targets[name].size:
                kept.append(ort.OrtValue.ortvalue_from_numpy(targets[name][begin:end]))
                binding.bind_ortvalue_output(name, kept[-1])
            else:
                binding.bind_output(name, "cpu")
        session.run_with_iobinding(binding, run_options or _options())
        # What has its place already is not taken from the binding, which would make a copy of it.
        return [
            targets[name][begin:end] if name in targets else value.numpy()
            for name, value in zip(wanted, binding.get_outputs(), strict=True)
        ]

    def _check_open(self) -> None:
        if not self.sessions:
            raise Error("the sessions are closed")

    def _in_turn(self, i: int, work: Callable[[int], Any]) -> Any:
        """What device `i` gives; what it raises says whose it is."""
        with self._turns[i]:
            self._check_open()
            try:
                return work(i)
            except BaseException as error:
                device = self.devices[i]
                error.device = device.spec  # type: ignore[attr-defined]
                if hasattr(error, "add_note"):  # from Python 3.11 on
                    error.add_note(f"on {device.spec} ({device.name})")
                raise

    def _on_all(self, work: Callable[[int], Any], count: int) -> list[Any]:
        """What each of the first devices gave; the first one's error where some failed, when all have ended."""
        others = [self._threads[i - 1].submit(self._in_turn, i, work) for i in range(1, count)]
        try:
            own = self._in_turn(0, work)
        finally:
            concurrent.futures.wait(others)
        return [own, *(job.result() for job in others)]

    # ---- life ----

    def close(self) -> None:
        """Ends the threads and lets the sessions go. Blocks: until runs have ended."""
        for thread in self._threads:
            thread.shutdown()
        with contextlib.ExitStack() as ended:
            for turn in self._turns:
                ended.enter_context(turn)
            self.sessions.clear()

    def __enter__(self) -> Sharded:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<millpond.onnxruntime.Sharded on {', '.join(device.spec for device in self.devices)}>"


def _options() -> Any:
    options = ort.RunOptions()
    options.add_run_config_entry("gpu_graph_id", "-1")  # a graph knows only the first values bound
    return options
