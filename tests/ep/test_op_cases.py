# SPDX-License-Identifier: Apache-2.0
"""Each row of `cases` on our EP, against ONNX Runtime's CPU EP. A row is tried where its kernel is registered."""

import cases
import onnxruntime as ort
import op_model
import provider
import pytest
from registered import parameter_types, registry, schema

# Operators of the EP that cannot be tried as one node: ONNX Runtime inserts them itself, test_control_flow.py has those
# with bodies, and tests/ranks those that several processes run together.
NO_CASE_NEEDED = {"MemcpyFromHost", "MemcpyToHost", "If", "Loop", "Scan", "AllReduce", "AllGather", "AllToAll"}
REWRITTEN = "com.ms.internal.nhwc"  # test_nhwc.py tries these


def is_registered(case, opset, name):
    found = schema(case.op, opset, case.domain)
    if found is None:
        return False
    typed = parameter_types(found.inputs, op_model.input_types(case, name))
    return registry().covers(case.domain, case.op, found.since_version, typed)


def allowed_by_schema(case, opset, name):
    found = schema(case.op, opset, case.domain)
    constraints = {c.type_param_str: c.allowed_type_strs for c in found.type_constraints}
    typed = parameter_types(found.inputs, op_model.input_types(case, name))
    return all(kind in constraints.get(constraint, [kind]) for constraint, kind in typed.items())


def variants():
    """(label, case, opset, element type): the newest opset with every registered type, older ones with the first."""
    seen, out = {}, []
    for case in cases.CASES:
        for opset in sorted(case.opsets, reverse=True):
            types = [t for t in case.types if op_model.fits(case, t) and is_registered(case, opset, t)]
            types = [t for t in types if allowed_by_schema(case, opset, t)]
            for name in types if opset == max(case.opsets) else types[:1]:
                label = f"{case.op}-{opset}-{name}"
                seen[label] = seen.get(label, 0) + 1
                out.append(pytest.param(case, opset, name, id=f"{label}-{seen[label]}"))
    return out


def pytest_generate_tests(metafunc):
    if "case" in metafunc.fixturenames:
        metafunc.parametrize("case, opset, name", variants()[:: metafunc.config.getoption("--sample")])


def device_session(model):
    options = provider.session_options(threads=1, log_level=4)
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return provider.session(model, provider_options={"use_tf32": "0"}, options=options)


def test_case(case, opset, name):
    kinds = op_model.output_types(case, opset, name)
    session = device_session(op_model.model_bytes(case, opset, name, kinds))
    where = {node: ep for ep, _, node in provider.assigned_nodes(session)}
    assert where.get("tested") == provider.NAME, f"the node ran on {where.get('tested')}"
    op_model.check(session, case, opset, name)


def test_every_registered_operator_has_a_case(summary):
    tried = {(case.domain, case.op) for case in cases.CASES}
    needed = {(d, n) for d, n in registry().operators() if d != REWRITTEN and n not in NO_CASE_NEEDED}
    missing = sorted(f"{d}.{n}" if d else n for d, n in needed - tried)
    summary(f"{len(registry().operators())} operators registered, {len(registry().operators() & tried)} have cases")
    assert not missing, f"no case in tests/ep/cases for {', '.join(missing)}"
