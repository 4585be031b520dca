# SPDX-License-Identifier: Apache-2.0
"""Sessions on the provider: ONNX Runtime's own, whose errors say what the provider knows of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from millpond._core import InvalidArgumentError, shortages
from millpond._ort_errors import explain
from millpond._ort_native import ort


class Argument(Protocol):
    """An input or an output of a model, as ONNX Runtime describes it."""

    @property
    def name(self) -> str: ...
    @property
    def type(self) -> str:
        """ "tensor(float)" """
        ...

    @property
    def shape(self) -> list[int | str | None]:
        """A dimension is a number, a name, or None where the model says neither."""
        ...


if TYPE_CHECKING:
    # What sessions of ONNX Runtime have. Its own class would be of no known type, since it declares none (py.typed),
    # and all that a program does with a session would then go unchecked.
    class InferenceSession:
        def __init__(self, model: Any, **arguments: Any) -> None: ...
        def run(
            self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: Any = None
        ) -> list[Any]: ...
        def run_async(
            self,
            output_names: Sequence[str] | None,
            input_feed: Mapping[str, Any],
            callback: Callable[[Any, Any, str], object],
            user_data: Any,
            run_options: Any = None,
        ) -> None: ...
        def run_with_ort_values(
            self, output_names: Sequence[str] | None, input_dict_ort_values: Mapping[str, Any], run_options: Any = None
        ) -> list[Any]: ...
        def run_with_ortvaluevector(
            self,
            run_options: Any,
            feed_names: Sequence[str],
            feeds: Any,
            fetch_names: Sequence[str],
            fetches: Any,
            fetch_devices: Any,
        ) -> None: ...
        def run_with_iobinding(self, iobinding: Any, run_options: Any = None) -> None: ...
        def io_binding(self) -> Any: ...
        def get_inputs(self) -> Sequence[Argument]: ...
        def get_outputs(self) -> Sequence[Argument]: ...
        def get_overridable_initializers(self) -> Sequence[Argument]: ...
        def get_input_epdevices(self) -> Sequence[Any]: ...
        def get_input_memory_infos(self) -> Sequence[Any]: ...
        def get_output_memory_infos(self) -> Sequence[Any]: ...
        def get_modelmeta(self) -> Any: ...
        def get_providers(self) -> Sequence[str]: ...
        def get_provider_options(self) -> dict[str, dict[str, str]]: ...
        def get_provider_graph_assignment_info(self) -> Sequence[Any]: ...
        def get_session_options(self) -> Any: ...
        def get_tuning_results(self) -> Any: ...
        def set_tuning_results(self, results: Any, *, error_on_invalid: bool = False) -> None: ...
        def set_ep_dynamic_options(self, options: dict[str, str]) -> None: ...
        def end_profiling(self) -> str: ...
        def get_profiling_start_time_ns(self) -> int: ...
        def enable_fallback(self) -> None: ...
        def disable_fallback(self) -> None: ...

else:
    InferenceSession = ort.InferenceSession


def _explain_missing(error: Exception, inputs: Mapping[str, Any]) -> None:
    """Raises InvalidArgumentError where a node has met an input that is None, which ONNX Runtime lets pass."""
    missing = [name for name, value in inputs.items() if value is None] if isinstance(inputs, Mapping) else []
    if missing and "must contain a constructed tensor" in str(error):
        raise InvalidArgumentError(f"the model's inputs {', '.join(missing)} have no value, but None") from error


class Session(InferenceSession):
    """An onnxruntime.InferenceSession on the provider; made by session().

    A run for which the pool has no memory raises OutOfMemoryError with the pool's sentence: usage by client.
    """

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: Any = None
    ) -> list[Any]:
        """Runs the model on arrays of the host; gives the outputs, as NumPy arrays."""
        before = shortages()
        try:
            return super().run(output_names, input_feed, run_options)
        except Exception as error:
            explain(error, before)
            _explain_missing(error, input_feed)
            raise

    def run_with_ort_values(
        self, output_names: Sequence[str] | None, input_dict_ort_values: Mapping[str, Any], run_options: Any = None
    ) -> list[Any]:
        """The same on OrtValues."""
        before = shortages()
        try:
            return super().run_with_ort_values(output_names, input_dict_ort_values, run_options)
        except Exception as error:
            explain(error, before)
            raise

    def run_with_iobinding(self, iobinding: Any, run_options: Any = None) -> None:
        """Runs the model on what an IOBinding of the session has bound."""
        before = shortages()
        try:
            super().run_with_iobinding(iobinding, run_options)
        except Exception as error:
            explain(error, before)
            raise

    def __repr__(self) -> str:
        ends = (f"{end.name} {end.type}{end.shape}" for end in (*self.get_inputs(), *self.get_outputs()))
        return f"<millpond.onnxruntime.Session of {', '.join(ends)}>"
