# SPDX-License-Identifier: Apache-2.0
"""Runs of a session with device arrays in and out.

ONNX Runtime works on streams of its own and has ended its work when a run returns. So before a run the host waits for
the streams on which the arrays given are made, and after it there is nothing to wait for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from millpond import _ort_register as register
from millpond import _ort_types as types
from millpond import _ort_values as values
from millpond._core import InvalidArgumentError
from millpond._ort_errors import translated
from millpond._ort_native import is_at_least, ort, wait_for

if TYPE_CHECKING:
    from millpond._core import Stream
    from millpond._ort_register import Device

NVIDIA = 0x10DE


def _names(arguments: Iterable[Any]) -> str:
    return ", ".join(argument.name for argument in arguments) or "none"


def _check(argument: Any, value: Any, what: str) -> None:
    """Whether a value fits an input or output; else a sentence that names both."""
    kind = value.data_type()
    if argument.type.startswith("tensor(") and kind != argument.type:
        raise InvalidArgumentError(
            f"{what} {argument.name!r} of the model is a {argument.type}, and what was given is a {kind}; convert it"
        )
    wanted, given = argument.shape, tuple(value.shape()) if value.is_tensor() else None
    if wanted is None or given is None:
        return
    fits = len(wanted) == len(given) and all(
        not isinstance(size, int) or size < 0 or size == found for size, found in zip(wanted, given, strict=True)
    )
    if not fits:
        raise InvalidArgumentError(
            f"{what} {argument.name!r} of the model has the shape {list(wanted)}, and what was given has {list(given)}"
        )


class Output(ort.OrtValue):
    """A value that a run has made. It keeps the session, whose allocator frees its memory."""

    def __init__(self, made: Any, session: Any) -> None:
        super().__init__(made)
        self._kept = session

    def __del__(self) -> None:
        self._ortvalue = None  # before the session


def outputs_of(binding: Any, session: Any, count: int) -> list[Output]:
    """What a run has made, apart from the binding: its vector would keep all that is bound, or go with it."""
    vector = binding.get_outputs_as_ortvaluevector()
    outputs = []
    for i in range(count):
        alone = type(vector)()
        alone.push_back(vector[i])
        outputs.append(Output(alone[0], session))
    return outputs


def bind_to_device(binding: Any, output: Any, ordinal: int) -> None:
    """Has ONNX Runtime give an output memory of the device; of the host where its type is for the host only."""
    if types.from_tensor(output.type) is None:
        binding.bind_output(output.name, "cpu")
    elif is_at_least(1, 30):
        binding.bind_output(output.name, "cuda", ordinal)
    else:  # its name for the device lacks the vendor, without which the provider's memory is not found
        device = ort.OrtDevice.make("gpu", ordinal, NVIDIA)._get_c_device()
        binding._iobinding.bind_output(output.name, device)


class Binding:
    """Inputs and outputs of a session; made by bind(). One thread at a time may use it."""

    def __init__(self, session: Any) -> None:
        options = session.get_provider_options().get(register.name_in(session))
        self.session = session
        self.device: Device | None = register.find(int(options.get("device_id", 0))) if options is not None else None
        self._binding = session.io_binding()
        self._run_options = ort.RunOptions()
        self._run_options.add_run_config_entry("gpu_graph_id", "-1")  # a graph knows only the first values bound
        self._inputs = {argument.name: argument for argument in session.get_inputs()}
        self._outputs = {argument.name: argument for argument in session.get_outputs()}
        self._given: dict[str, tuple[Any, Any]] = {}  # input: the array, and the OrtValue that it is
        self._wanted: dict[str, tuple[Any, Any]] = dict.fromkeys(self._outputs, (None, None))

    def __repr__(self) -> str:
        where = self.device.spec if self.device is not None else "the CPU"
        return f"<Binding of {', '.join(self._inputs)} to {', '.join(self._outputs)} on {where}>"

    def set_inputs(self, inputs: Mapping[str, Any]) -> None:
        """Arrays to read in the next runs: of a device or of the host, or OrtValues. They are kept until replaced."""
        for name, array in inputs.items():
            if name not in self._inputs:
                raise InvalidArgumentError(f"the model has no input {name!r}; it has {_names(self._inputs.values())}")
            value = self._value(array)
            _check(self._inputs[name], value, "input")
            self._given[name] = (array, value)

    def set_outputs(self, outputs: Mapping[str, Any] | Sequence[str] | None) -> None:
        """What the next runs give: names, or names and the device arrays to write into.

        None for an array, or no mapping at all, stands for memory of the pool, which each run allocates; "cpu" for a
        NumPy array.
        """
        wanted = dict.fromkeys(self._outputs) if outputs is None else outputs
        if not isinstance(wanted, Mapping):
            wanted = dict.fromkeys(wanted)
        prepared: dict[str, tuple[Any, Any]] = {}
        for name, array in wanted.items():
            if name not in self._outputs:
                raise InvalidArgumentError(f"the model has no output {name!r}; it has {_names(self._outputs.values())}")
            on_host = isinstance(array, str) and array == "cpu"
            value = None if array is None or on_host else self._target(name, array)
            prepared[name] = (array, value)
        self._wanted = prepared

    def _value(self, array: Any) -> Any:
        return values.as_ortvalue(array, stream=None)  # run() sees to the order

    def _target(self, name: str, array: Any) -> Any:
        memory = None if isinstance(array, (ort.OrtValue, values.DeviceArray)) else values.describe(array)
        if memory is not None and memory.is_read_only:
            raise InvalidArgumentError(f"the array for output {name!r} is read-only")
        value = self._value(array)
        if value.device_name() == "cpu":
            raise InvalidArgumentError(f'the array for output {name!r} is in the host\'s memory; say "cpu" instead')
        _check(self._outputs[name], value, "output")
        return value

    def _wait(self, stream: Stream | Any) -> None:
        if self.device is None:
            return
        pool = register.pool_of(self.device)
        if stream is not ...:
            wait_for(pool, stream)
            return
        given = (array for array, _ in (*self._given.values(), *self._wanted.values()))
        arrays = [array for array in given if not isinstance(array, (str, ort.OrtValue)) and array is not None]
        for each in {values.stream_of(array) for array in arrays}:
            wait_for(pool, each)

    def _bind_output(self, name: str, array: Any, value: Any) -> None:
        if value is not None:
            self._binding.bind_ortvalue_output(name, value)
        elif array is not None or self.device is None:
            self._binding.bind_output(name, "cpu")
        else:
            bind_to_device(self._binding, self._outputs[name], self.device.ordinal)

    def run(
        self, inputs: Mapping[str, Any] | None = None, *, stream: Stream | Any = ..., run_options: Any = None
    ) -> dict[str, Any]:
        """Runs the model; gives {output: array}.

        inputs: as set_inputs(), for this and later runs.
        stream: work queued there is waited for before the run. By default those are the streams that the arrays name,
        each by its own protocol, and the legacy default stream for one that names none; None: all arrays are ready.
        Outputs are the arrays given for them, else DeviceArrays of memory that later runs do not touch; strings and
        outputs set to "cpu" are NumPy arrays. Raises InvalidArgumentError for an input that is missing, and
        OutOfMemoryError where the pool has no memory for the run.
        """
        self.set_inputs(inputs or {})
        missing = [argument for name, argument in self._inputs.items() if name not in self._given]
        required = [argument for argument in missing if not argument.type.startswith("optional")]
        if required:
            raise InvalidArgumentError(f"the model's inputs {_names(required)} have no value")
        self._wait(stream)
        with translated():
            for name, (_, value) in self._given.items():  # each time: where it must be copied, that is done here
                self._binding.bind_ortvalue_input(name, value)
            self._binding.clear_binding_outputs()  # else a run would write into the memory of the one before
            for name, (array, value) in self._wanted.items():
                self._bind_output(name, array, value)
            self.session.run_with_iobinding(self._binding, run_options or self._run_options)
        return self._results()

    def _results(self) -> dict[str, Any]:
        made = outputs_of(self._binding, self.session, len(self._wanted))
        self._binding.clear_binding_outputs()  # what was made here lives as long as the caller keeps it
        self._binding.clear_binding_inputs()  # and copies of the host's inputs no longer than the run
        return {
            name: values.as_array(output) if value is None else array
            for (name, (array, value)), output in zip(self._wanted.items(), made, strict=True)
        }


def bind(
    session: Any, inputs: Mapping[str, Any] | None = None, outputs: Mapping[str, Any] | Sequence[str] | None = None
) -> Binding:
    """A Binding of a session's inputs and outputs, for runs with device arrays.

        binding = millpond.onnxruntime.bind(session, {"x": x}, {"y": y})
        binding.run()  # reads x and writes y, without a copy

    inputs, outputs: as Binding.set_inputs and Binding.set_outputs.
    """
    binding = Binding(session)
    binding.set_inputs(inputs or {})
    if outputs is not None:
        binding.set_outputs(outputs)
    return binding


def run(
    session: Any,
    inputs: Mapping[str, Any],
    outputs: Mapping[str, Any] | Sequence[str] | None = None,
    *,
    stream: Stream | Any = ...,
    run_options: Any = None,
) -> dict[str, Any]:
    """One run with device arrays: bind() and Binding.run() in one."""
    return bind(session, inputs, outputs).run(stream=stream, run_options=run_options)
