# SPDX-License-Identifier: Apache-2.0
"""Where the nodes of a model run, and why some do not run on the device.

ONNX Runtime tells which provider has which node of the optimised graph. Why a node is not ours follows from the
kernels that the provider has registered, the schemas of operators, and the types of the node's values, which are read
from the optimised graph.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from millpond import _onnx_file
from millpond import _ort_register as register
from millpond._core import InvalidArgumentError, UnsupportedError
from millpond._html import table
from millpond._ort_native import ort
from millpond._ort_options import nodes_left

RANK_MAX = 16  # dimensions of a tensor
INLINE_MAX = 1024  # bytes; larger weights go to a file of their own, which nobody reads
NO_KERNEL = "no kernel for this operator"
OTHER_KERNELS = "no kernel for its types, its version or its attributes"
SHAPES = "shapes"
SHAPES_TEXT = "works on shapes, which are in the host's memory: on the device it would only add copies"


@dataclass(frozen=True)
class PlacedNode:
    """A node of the optimised graph. `reason`: why it is not on the device, where that is known."""

    provider: str
    operator: str
    domain: str  # empty for ONNX's own operators
    name: str
    reason: str | None = None
    is_shape_work: bool = False  # left to the CPU on purpose

    @property
    def title(self) -> str:
        """ "Softmax", "com.microsoft.Gelu" """
        return f"{self.domain}.{self.operator}" if self.domain else self.operator

    def __str__(self) -> str:
        return f"{self.title} {self.name!r}" if self.name else f"{self.title} (without a name)"


@dataclass(frozen=True)
class Placement:
    """The nodes of a session."""

    nodes: tuple[PlacedNode, ...]

    @property
    def counts(self) -> dict[str, Counter[str]]:
        """{provider: {operator: nodes}}"""
        table: dict[str, Counter[str]] = {}
        for node in self.nodes:
            table.setdefault(node.provider, Counter())[node.title] += 1
        return table

    @property
    def elsewhere(self) -> tuple[PlacedNode, ...]:
        """The nodes that other providers run."""
        ours = register.names()
        return tuple(node for node in self.nodes if node.provider not in ours)

    @property
    def fallen_back(self) -> tuple[PlacedNode, ...]:
        """The nodes that the CPU runs as the provider cannot; work on shapes is not among them."""
        return tuple(node for node in self.nodes if node.provider == register.CPU and not node.is_shape_work)

    def __repr__(self) -> str:
        counts = (f"{sum(each.values())} on {name}" for name, each in self.counts.items())
        return f"<Placement of {len(self.nodes)} nodes: {', '.join(counts) or 'none'}>"

    def _repr_html_(self) -> str:
        counted = Counter((node.provider, node.title, node.reason or "") for node in self.nodes)
        rows = [(provider, title, count, reason) for (provider, title, reason), count in counted.most_common()]
        return table(("provider", "operator", "nodes", "reason"), rows)


def plain(domain: str | None) -> str:
    """A domain's name; ONNX's own has two."""
    return "" if domain in (None, "ai.onnx") else str(domain)


# ---- schemas and kernels ----


class Schemas:
    """The operators that this ONNX Runtime knows."""

    def __init__(self) -> None:
        from onnxruntime.capi import _pybind_state as state

        self.all: dict[tuple[str, str], list[Any]] = {}
        for schema in state.get_all_operator_schema():
            self.all.setdefault((plain(schema.domain), schema.name), []).append(schema)

    def find(self, domain: str, operator: str, opset: int) -> Any:
        """The schema that a version of the operator set means; None where there is none."""
        known = [each for each in self.all.get((domain, operator), ()) if each.since_version <= opset]
        return max(known, key=lambda schema: schema.since_version, default=None)


class Kernels:
    """What the provider has registered."""

    def __init__(self) -> None:
        from onnxruntime.capi import _pybind_state as state

        self.all: dict[tuple[str, str], list[Any]] = {}
        for kernel in state.get_registered_ep_kernel_defs(register.devices()[0].provider):
            self.all.setdefault((plain(kernel.domain), kernel.op_name), []).append(kernel)

    def for_version(self, domain: str, operator: str, since: int) -> list[Any]:
        found = self.all.get((domain, operator), ())
        return [kernel for kernel in found if kernel.version_range[0] <= since <= kernel.version_range[1]]

    def versions(self, domain: str, operator: str) -> list[int]:
        """The versions of the operator's schema that there are kernels for."""
        return sorted({kernel.version_range[0] for kernel in self.all.get((domain, operator), ())})


def _parameter_types(parameters: Sequence[Any], names: Sequence[str], model: _onnx_file.Model) -> dict[str, str]:
    """{constraint: type} of the values that a node's inputs, or outputs, are."""
    types = {}
    for i, name in enumerate(names):
        value = model.values.get(name) if name and parameters else None
        if value is not None and value.type:
            types[parameters[min(i, len(parameters) - 1)].typeStr] = value.type
    return types


def _missing_types(kernels: Sequence[Any], types: dict[str, str]) -> str | None:
    """Which type no kernel takes; None where one takes all."""
    for kernel in kernels:
        if all(kind in kernel.type_constraints.get(name, [kind]) for name, kind in types.items()):
            return None
    for name, kind in types.items():
        taken = sorted({each for kernel in kernels for each in kernel.type_constraints.get(name, [kind])})
        if kind not in taken:
            return f"no kernel for {name} = {kind}; there are {', '.join(taken)}"
    return f"no kernel for these types together: {', '.join(f'{name} = {kind}' for name, kind in types.items())}"


class Reasons:
    """Why nodes are not on the device."""

    def __init__(self) -> None:
        self.schemas = Schemas()
        self.kernels = Kernels()

    def missing(self, domain: str, operator: str, opset: int | None) -> str | None:
        """Why there is no kernel for an operator at all or in this version; None where there is one."""
        versions = self.kernels.versions(domain, operator)
        if not versions:
            return NO_KERNEL
        schema = self.schemas.find(domain, operator, opset) if opset is not None else None
        if schema is None:
            return "this ONNX Runtime knows no such operator"
        since = schema.since_version
        if not self.kernels.for_version(domain, operator, since):
            return f"no kernel for version {since}; there are {', '.join(map(str, versions))}"
        return None

    def of(self, node: _onnx_file.NodeInfo, model: _onnx_file.Model) -> str:
        """One sentence; SHAPES for a node that was left to the CPU on purpose."""
        opset = model.opsets.get(node.domain)
        missing = self.missing(node.domain, node.operator, opset)
        if missing is not None:
            return missing
        schema = self.schemas.find(node.domain, node.operator, opset or 1)
        kernels = self.kernels.for_version(node.domain, node.operator, schema.since_version)
        types = _parameter_types(schema.inputs, node.inputs, model)
        types.update(_parameter_types(schema.outputs, node.outputs, model))
        unfit = _missing_types(kernels, types)
        if unfit is not None:
            return unfit
        for name in (*node.inputs, *node.outputs):
            shape = model.values.get(name, _onnx_file.Value()).shape
            if shape is not None and len(shape) > RANK_MAX:
                return f"{name} has {len(shape)} dimensions; the provider takes at most {RANK_MAX}"
        return SHAPES


# ---- sessions ----


def placement_of(session: Any) -> Placement:
    """What ONNX Runtime recorded when the session was made."""
    try:
        subgraphs = session.get_provider_graph_assignment_info()
    except Exception as error:  # ONNX Runtime's errors have no class in common
        raise InvalidArgumentError(
            "the session has not recorded where its nodes are; make it with millpond.onnxruntime.session(), or set its "
            "configuration entry session.record_ep_graph_assignment_info to 1"
        ) from error
    left = nodes_left(session)

    def placed(provider: str, node: Any) -> PlacedNode:
        key = (node.op_type, plain(node.domain), node.name)
        on_purpose = provider == register.CPU and left[key] > 0
        left[key] -= on_purpose  # nodes without names are alike
        return PlacedNode(provider, *key, SHAPES_TEXT if on_purpose else None, on_purpose)

    return Placement(
        tuple(placed(subgraph.ep_name, node) for subgraph in subgraphs for node in subgraph.get_nodes())
    )


FALLEN_SHOWN = 5


def check_fallen_back(session: Any) -> None:
    """Raises UnsupportedError, which names them, where nodes of the session run on the CPU as they must."""
    fallen = placement_of(session).fallen_back
    if not fallen:
        return
    kernels = Kernels()
    named = [
        f"{node}: {OTHER_KERNELS if kernels.versions(node.domain, node.operator) else NO_KERNEL}"
        for node in fallen[:FALLEN_SHOWN]
    ]
    more = f"; and {len(fallen) - FALLEN_SHOWN} more" if len(fallen) > FALLEN_SHOWN else ""
    raise UnsupportedError(
        f"{len(fallen)} nodes of the model cannot run on the device, and fall_back=False lets none run on the CPU "
        f"({'; '.join(named)}{more}); `millpond parity MODEL` says more, fall_back=True lets them"
    )


def with_reasons(placement: Placement, model: _onnx_file.Model) -> Placement:
    """The placement with a reason for each node that is elsewhere; `model` is the optimised one."""
    if not placement.elsewhere:
        return placement
    reasons = Reasons()
    ours = register.names()
    by_name = {(node.operator, node.name): node for node in model.nodes}

    def explained(node: PlacedNode) -> PlacedNode:
        known = by_name.get((node.operator, node.name))
        if node.provider in ours or node.reason or known is None:
            return node
        reason = reasons.of(known, model)
        if reason == SHAPES:
            return replace(node, reason=SHAPES_TEXT, is_shape_work=True)
        return replace(node, reason=reason)

    return Placement(tuple(explained(node) for node in placement.nodes))


@contextlib.contextmanager
def _saving() -> Iterator[tuple[Any, Path]]:
    """SessionOptions of a session that saves its optimised graph, and where."""
    with tempfile.TemporaryDirectory(prefix="millpond-") as folder:
        path = Path(folder) / "optimised.onnx"
        options = ort.SessionOptions()
        options.log_severity_level = 3  # that the file is for this machine only is no news
        options.optimized_model_filepath = str(path)
        prefix = "session.optimized_model_external_initializers"
        options.add_session_config_entry(f"{prefix}_file_name", "weights")
        options.add_session_config_entry(f"{prefix}_min_size_in_bytes", str(INLINE_MAX))
        yield options, path


def explained(found: Placement, again: Callable[[Any, dict[str, str]], Any]) -> Placement:
    """What placement_of gives for a session, with a reason for each node that is not on the device.

    again: makes a session of the same model with these SessionOptions and these options more. ONNX Runtime saves no
    islands, so the graph that has the types of values is another session's, which is made only where it is needed.
    """
    if all(node.reason for node in found.elsewhere):
        return found
    with _saving() as (options, path):
        again(options, {"fusion": "0"})
        return with_reasons(found, _onnx_file.read(path))
