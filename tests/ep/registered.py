# SPDX-License-Identifier: Apache-2.0
"""What kernels the EP has registered, as ONNX Runtime tells it."""

import functools

import onnx
import provider
from onnxruntime.capi import _pybind_state as state


class Registry:
    def __init__(self, definitions):
        self.kernels = {}
        for kernel in definitions:
            self.kernels.setdefault((kernel.domain or "", kernel.op_name), []).append(kernel)

    def operators(self):
        return set(self.kernels)

    def types(self, domain, name, since):
        """{constraint: element types} of each kernel for schema version `since`."""
        for kernel in self.kernels.get((domain, name), []):
            first, last = kernel.version_range
            if first <= since <= last:
                yield {constraint: set(types) for constraint, types in kernel.type_constraints.items()}

    def covers(self, domain, name, since, typed):
        """Whether a kernel takes the given types; `typed` is {constraint: "tensor(float)"}."""
        return any(
            all(types[constraint] >= {kind} for constraint, kind in typed.items() if constraint in types)
            for types in self.types(domain, name, since)
        )


@functools.cache
def registry():
    provider.register()
    return Registry(state.get_registered_ep_kernel_defs(provider.NAME))


@functools.cache
def schema(name, opset, domain=""):
    """The schema that `opset` means, or None where the operator is not there yet or no more."""
    if domain not in ("", "ai.onnx", "ai.onnx.ml"):
        return own_schemas().get((domain, name))
    try:
        found = onnx.defs.get_schema(name, opset, domain)
    except onnx.defs.SchemaError:
        found = kept_schema(name, opset, domain)
    return None if found is None or found.deprecated else found


def kept_schema(name, opset, domain):
    """That of an operator which ONNX has given up and ONNX Runtime still knows."""
    known = [s for s in state.get_all_operator_schema() if (s.domain, s.name) == (domain, name)]
    return max((s for s in known if s.since_version <= opset), key=lambda s: s.since_version, default=None)


@functools.cache
def own_schemas():
    """Those that ONNX Runtime has beyond ONNX, whose domains have one version of each operator."""
    return {(found.domain, found.name): found for found in state.get_all_operator_schema()}


def parameter_types(parameters, kinds):
    """{constraint or type: "tensor(...)"} from the parameters of a schema and the element types given to them."""
    typed = {}
    for i, kind in enumerate(kinds):
        parameter = parameters[min(i, len(parameters) - 1)]
        if kind is not None:
            typed[getattr(parameter, "type_str", None) or parameter.typeStr] = f"tensor({kind})"
    return typed
