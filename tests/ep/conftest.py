# SPDX-License-Identifier: Apache-2.0
"""For the provider's tests: faults of older ONNX Runtimes, and samples of tests with many cases.

    --sample N      of a test with many cases only every Nth, for runs with one more ONNX Runtime
    --borders       the pool puts borders around its blocks: a test in which one is written outside fails
    --graphs N      so many random graphs
    --hostile N     so many hostile models
    --faults N      of the calls of a device that fail in turn only every Nth
    --fusion N      the provider's option, for sessions that do not say it themselves

What is in FAULTS is ONNX Runtime's own doing, gone in the version that is named; some came with a version, too. What it
spoils is skipped in those between.
"""

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnxruntime
import pytest

MANY = 20  # cases of one test
COUNTS_CASES = {"test_report"}  # of no use after a sample
SAMPLED = "test_op_cases.py::test_case"  # makes no more than the sample, since each item takes a while
VERSION = tuple(int(part) for part in onnxruntime.__version__.split(".")[:2])


@dataclass(frozen=True)
class Fault:
    fixed: tuple[int, int] | None  # None: the newest known has it
    why: str
    spoils: Any  # a function of a test's name, its row of `cases` if it has one, and the element type tried
    since: tuple[int, int] | None = None

    def is_in(self, version):
        return (self.since is None or version >= self.since) and (self.fixed is None or version < self.fixed)

    def __str__(self):
        bounds = {"from": self.since, "before": self.fixed}
        words = [f"{word} {bound[0]}.{bound[1]}" for word, bound in bounds.items() if bound]
        return f"ONNX Runtime {' '.join(words)}: {self.why}"


BOUND_BY_NAME = {"test_output_outlives_its_session", "test_output_of_one_session_feeds_another",
                 "test_values_outlive_their_registration"}
# Operators of com.microsoft that changed until 1.31: their schemas, or the CPU provider's kernels.
YOUNG = {"BranchwiseRMSNorm", "CausalConvWithState", "DecoderMaskedMultiHeadAttention", "EngramGate", "GatedAdd",
         "GatedDeltaNet", "GatedRMSNorm", "GatherBlockQuantized", "HyperConnectionPostMix", "HyperConnectionPreMix",
         "LinearAttention", "LinearAttentionGate", "MRotaryEmbedding", "MoE", "NGramHashMapping", "PagedAttention",
         "QMoE", "ScaledSiLU", "SparsePagedAttention", "VarlenCausalConvWithState", "VarlenNGramHashMapping"}
FAULTS = [
    Fault((1, 27), "the CPU provider, which is the reference, gives 1 as Erf of a NaN",
          lambda name, case, kind: case and case.op == "Erf" and case.note == "special"),
    Fault((1, 29), "the CPU provider, which is the reference, leaves out the padding of windows that ceil_mode adds",
          lambda name, case, kind: (case and case.op == "AveragePool" and case.attrs.get("ceil_mode")
                              and case.attrs.get("count_include_pad"))),
    Fault((1, 29), "the CPU provider, which is the reference, gives a spectrum for the signal of half a spectrum",
          lambda name, case, kind: case and case.op == "DFT" and case.attrs.get("inverse")
                              and case.attrs.get("onesided")),
    Fault((1, 29), "the CPU provider, which is the reference, caps scores after masking and lacks masks of 16 bits",
          lambda name, case, kind: (case and case.op == "Attention"
                                    and ("softcap" in case.attrs or len(case.inputs) > 3))),
    Fault((1, 27), "the CPU provider, which is the reference, refuses keys of another length than the queries",
          lambda name, case, kind: (case and case.op == "GroupQueryAttention" and case.inputs[1] is not None
                                    and case.inputs[1].shape[1] != case.inputs[0].shape[1])),
    Fault((1, 29), "the CPU provider, which is the reference, leaves sequences of no length as memory was",
          lambda name, case, kind: case and case.op == "ReverseSequence" and 0 in np.asarray(case.inputs[1].values)),
    Fault((1, 29), "the CPU provider, which is the reference, loses the deviation of rows that are far from zero",
          lambda name, case, kind: case and case.op == "LayerNormalization" and case.note == "far from zero"),
    Fault((1, 29), "the CPU provider, which is the reference, divides by zero for no index",
          lambda name, case, kind: case and case.op == "OneHot" and case.note == "empty"),
    Fault((1, 29), "the CPU provider, which is the reference, knew fewer bits and forms of weights",
          lambda name, case, kind: case and case.op == "MatMulNBits"),
    Fault((1, 31), "the operator was another then",
          lambda name, case, kind: case and case.domain == "com.microsoft" and case.op in YOUNG),
    Fault((1, 29), "the operator had no norms of Q and K, and no caches that keep a window",
          lambda name, case, kind: (case and case.op == "GroupQueryAttention"
                                    and (len(case.inputs) > 14 or "sliding_window_cache" in case.attrs))),
    Fault((1, 31), "nodes that it has rewritten are not among those that it lists as assigned",
          lambda name, case, kind: name == "test_nodes_that_were_rewritten_stay"),
    Fault((1, 31), "the CPU provider, which is the reference, takes the whole buffer of the past for keys",
          lambda name, case, kind: (case and case.op == "MultiHeadAttention" and case.reference is None
                                    and len(case.inputs) > 8 and case.inputs[8] is not None)),
    Fault((1, 31), "the CPU provider, which is the reference, had no caches of 8 and 4 bits",
          lambda name, case, kind: case and case.op == "GroupQueryAttention" and "k_quant_type" in case.attrs),
    # As ONNX wants it; the provider divides in float. The two differ where the quotient in float16 (2.4 / 0.01 is 240,
    # not 239.99) is a tie of the type it is rounded to, as in the row of this type.
    Fault(None, "the CPU provider, which is the reference, divides float16 by its scale in float16",
          lambda name, case, kind: (case and case.op == "QuantizeLinear" and kind == "float16"
                                    and len(case.inputs) > 2 and case.inputs[2].type == "float8e5m2fnuz"),
          since=(1, 32)),
    Fault((1, 30), "the CPU provider, which is the reference, adds the zero point to a float16 before it rounds",
          lambda name, case, kind: case and case.op == "QuantizeLinear" and kind == "float16"),
    Fault((1, 30), "bind_output(name, 'cuda') looks for a device without a vendor and finds no allocator",
          lambda name, case, kind: name in BOUND_BY_NAME),
    Fault((1, 31), "the CPU provider, which is the reference, reads every other element of packed integers wrongly",
          lambda name, case, kind: (case and case.op == "Cast" and kind in ("int4", "uint4")
                                    and str(case.attrs["to"]).startswith("float8"))),
    Fault((1, 31), "the CPU provider, which is the reference, takes output_dtype for the type of the scale",
          lambda name, case, kind: case and case.op == "DequantizeLinear" and "output_dtype" in case.attrs),
]


def pytest_addoption(parser):
    parser.addoption("--sample", type=int, default=1, help="of tests with many cases only every Nth")
    parser.addoption("--graphs", type=int, default=40, help="so many random graphs")
    parser.addoption("--hostile", type=int, default=300, help="so many hostile models")
    parser.addoption("--faults", type=int, default=1, help="of calls that fail in turn only every Nth")
    parser.addoption("--fusion", choices=["0", "1", "2"], help="of sessions that do not say it themselves")
    parser.addoption("--borders", action="store_true", help="a block that is written outside fails the test")


def pytest_configure(config):
    if config.getoption("--borders"):
        os.environ["MILLPOND_POOL"] = "arena.guard=1,arena.poison=1"
    if config.getoption("--fusion"):
        os.environ["MILLPOND_FUSION"] = config.getoption("--fusion")


@pytest.fixture(autouse=True, scope="session")
def log_on_stderr():
    """Warnings are looked for on stderr, where ONNX Runtime's log writes them; pytest's handler would take them."""
    from millpond import _core  # noqa: PLC0415  (tests import it by demo/provider.py, which finds it)

    _core.log_end()


@pytest.fixture(autouse=True)
def borders(request):
    """The pool looks at a block's borders when it is given back, and has only the log to speak to; the address
    sanitizer ends the process, and its report is not to end in what pytest has captured."""
    wanted = request.config.getoption("--borders") and "libasan" not in os.environ.get("LD_PRELOAD", "")
    captured = request.getfixturevalue("capfd") if wanted else None
    yield
    if captured:
        assert "was written outside" not in captured.readouterr().err


def sampled(items, step):
    """Every `step`th case of tests with many, and every other test."""
    cases = {}
    for item in items:
        cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    kept = {item for name, same in cases.items()
            for item in (same[::step] if len(same) > MANY and not name.endswith(SAMPLED) else same)}
    return [item for item in items if item in kept and not (step > 1 and item.name in COUNTS_CASES)]


def pytest_collection_modifyitems(config, items):
    faults = [fault for fault in FAULTS if fault.is_in(VERSION)]
    for item in items if faults else []:
        params = item.callspec.params if hasattr(item, "callspec") else {}
        case = params.get("case")
        case = case if hasattr(case, "domain") else None  # only rows of `cases` are compared with the CPU provider
        for fault in faults:
            if fault.spoils(item.name.partition("[")[0], case, params.get("name")):
                item.add_marker(pytest.mark.skip(reason=str(fault)))
    kept = sampled(items, config.getoption("--sample"))
    if len(kept) < len(items):
        known = set(kept)
        config.hook.pytest_deselected(items=[item for item in items if item not in known])
        items[:] = kept
