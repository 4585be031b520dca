# SPDX-License-Identifier: Apache-2.0
"""Sessions on the provider: ONNX Runtime's own, whose errors say what the provider knows of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from millpond._ort_errors import translated
from millpond._ort_native import ort

if TYPE_CHECKING:
    from onnxruntime import InferenceSession, RunOptions
else:
    InferenceSession = ort.InferenceSession


class Session(InferenceSession):
    """An onnxruntime.InferenceSession on the provider; made by session().

    A run for which the pool has no memory raises OutOfMemoryError with the pool's sentence, which says who holds what.
    """

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: RunOptions | None = None,
    ) -> list[Any]:
        with translated():
            return super().run(output_names, input_feed, run_options)

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, Any],
        run_options: RunOptions | None = None,
    ) -> list[Any]:
        with translated():
            return super().run_with_ort_values(output_names, input_dict_ort_values, run_options)

    def run_with_iobinding(self, iobinding: Any, run_options: RunOptions | None = None) -> None:
        with translated():
            super().run_with_iobinding(iobinding, run_options)

    def __repr__(self) -> str:
        ends = (f"{end.name} {end.type}{end.shape}" for end in (*self.get_inputs(), *self.get_outputs()))
        return f"<millpond.onnxruntime.Session of {', '.join(ends)}>"
