# SPDX-License-Identifier: Apache-2.0
"""Sessions on the provider: ONNX Runtime's own, whose errors say what the provider knows of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from millpond._ort_errors import translated
from millpond._ort_native import ort

if TYPE_CHECKING:
    from onnxruntime import InferenceSession
else:
    InferenceSession = ort.InferenceSession


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


class Session(InferenceSession):
    """An onnxruntime.InferenceSession on the provider; made by session().

    A run for which the pool has no memory raises OutOfMemoryError with the pool's sentence: usage by client.
    """

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: Any = None
    ) -> list[Any]:
        """Runs the model on arrays of the host; gives the outputs, as NumPy arrays."""
        with translated():
            return super().run(output_names, input_feed, run_options)

    def run_with_ort_values(
        self, output_names: Sequence[str] | None, input_dict_ort_values: Mapping[str, Any], run_options: Any = None
    ) -> list[Any]:
        """The same on OrtValues."""
        with translated():
            return super().run_with_ort_values(output_names, input_dict_ort_values, run_options)

    def run_with_iobinding(self, iobinding: Any, run_options: Any = None) -> None:
        """Runs the model on what an IOBinding of the session has bound."""
        with translated():
            super().run_with_iobinding(iobinding, run_options)

    def __repr__(self) -> str:
        ends = (f"{end.name} {end.type}{end.shape}" for end in (*self.get_inputs(), *self.get_outputs()))
        return f"<millpond.onnxruntime.Session of {', '.join(ends)}>"

    if TYPE_CHECKING:

        def get_inputs(self) -> Sequence[Argument]: ...
        def get_outputs(self) -> Sequence[Argument]: ...
        def get_overridable_initializers(self) -> Sequence[Argument]: ...
        def get_modelmeta(self) -> Any: ...
        def get_providers(self) -> Sequence[str]: ...
        def get_provider_options(self) -> dict[str, dict[str, str]]: ...
        def get_session_options(self) -> Any: ...
        def get_provider_graph_assignment_info(self) -> Sequence[Any]: ...
        def io_binding(self) -> Any: ...
        def end_profiling(self) -> str: ...
