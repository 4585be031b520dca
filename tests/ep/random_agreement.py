# SPDX-License-Identifier: Apache-2.0
"""Random networks beside the CPU provider, whose results in float32 are the reference.

How far ours may be from it is what rounding does: the same nodes, run one by one, are some way off, too.
"""

import numpy as np
import onnxruntime as ort
import op_model
import provider
from random_kit import FLOAT

ROUNDS = 3  # the third is captured
LIMITS = {np.float32: 2e-5, np.float16: 3e-2}  # of the largest error, in parts of the results' root mean square
OFF_MOST = {np.float32: 1e-2, np.float16: 0.5}  # beyond that rounding decides, and nothing can be said

def far(found, expected, share=0):
    """The largest error, but for that share of the results, in parts of the root mean square; infinite where what is
    infinite differs. What is no number may be one: rows that see no key are 0 in attention that is one operator."""
    found, expected = found.astype(np.float64), expected.astype(np.float64)
    finite, infinite = np.isfinite(expected), np.isinf(expected)
    if found.shape != expected.shape or not np.array_equal(found[infinite], expected[infinite]):
        return np.inf
    wanted = expected[finite]
    off = np.abs(found[finite] - wanted)
    return 0 if off.size == 0 else np.quantile(off, 1 - share) / max(np.sqrt(np.mean(wanted**2)), 1e-3)


def ours(net, kind, **more):
    options = provider.session_options(threads=1)
    if not net.is_optimised:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return provider.session(net.model(kind), provider_options={"use_tf32": "0", **more}, options=options)


def reference(net):
    """Results for a feed in float32; None for an empty one, for which the CPU provider ends the process at times."""
    whole = ort.InferenceSession(net.model(np.float32), op_model.cpu_options(), [provider.CPU])
    return lambda feed: whole.run(None, feed) if all(value.size for value in feed.values()) else None


def check(net, kind, sizes, wanted, one, found):
    """What is wrong with the results of some runs for a feed, if anything; `one`: of the nodes one by one. Whether
    anything could be said."""
    said, share = False, net.off_share if kind is np.float32 else net.off_share_halves
    for name, want, plain, *results in zip(net.outputs, wanted or one, one, *found, strict=True):
        rounding, off = far(plain, want, share), max(far(result, want, share) for result in results)
        if not rounding <= OFF_MOST[kind]:
            if kind is np.float32 and not net.is_optimised:
                return f"node by node {name} is off by {rounding:.3g} for {sizes}", True
            continue
        said = True
        if not off <= max(LIMITS[kind], net.coarse, 6 * rounding):
            return f"{name} is off by {off:.3g}, node by node by {rounding:.3g}, for {sizes}", True
        if net.is_repeated and not all(np.array_equal(results[0], other, equal_nan=True) for other in results):
            return f"{name} differs from run to run for {sizes}", True
    return None, said


def judged(net, kind, feeds):
    """Those of the feeds that the network is for, and what it makes of them; none where a change has made nonsense of
    it, or ONNX Runtime does."""
    kept, expected = [], []
    try:
        run = reference(net)
        if net.is_optimised:
            options = op_model.cpu_options()
            options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
            ort.InferenceSession(net.model(kind), options, [provider.CPU])
    except Exception:  # noqa: BLE001
        return kept, expected
    for feed in feeds:
        try:
            expected.append(run(feed))
            kept.append(feed)
        except Exception:  # noqa: BLE001, S112
            continue
    if len(kept) < len(feeds) and None in expected:  # of empty feeds nobody knows whether it is for those
        return [], []
    return kept, expected


def compare(net, kind, feeds):
    """None, or what is wrong; whether anything could be said of it."""
    feeds, expected = judged(net, kind, feeds)
    if not feeds:
        return None, False
    try:
        plain, fused, said = ours(net, kind, fusion="0"), ours(net, kind), False
        feeds = [{name: value.astype(kind) if net.kinds[name] == FLOAT else value for name, value in feed.items()}
                 for feed in feeds]
        found = [[fused.run(None, feed) for _ in range(ROUNDS)] for feed in feeds]
        for results, feed in zip(found, feeds, strict=True):  # and each once more between others
            results.append(fused.run(None, feed))
        for feed, wanted, results in zip(feeds, expected, found, strict=True):
            sizes = {key: value.shape or value.item() for key, value in feed.items()}
            fault, could = check(net, kind, sizes, wanted, plain.run(None, feed), results)
            if fault:
                return fault, True
            said |= could
    except Exception as fault:  # noqa: BLE001
        return f"{type(fault).__name__}: {str(fault)[:600]}", True
    return None, said
