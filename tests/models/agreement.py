# SPDX-License-Identifier: Apache-2.0
"""Whether a session on our EP says of a trained model's inputs what ONNX Runtime's CPU EP says."""

import functools
import itertools

import feeds
import numpy as np

# Largest relative norm of the difference from the CPU EP. TF32, on by default on GPUs, keeps 10 bits of mantissa.
RELATIVE_MAX = {"default": 5e-3, "ppocrv6_rec_fp16": 3e-2}
READING_SLACK = 0.03


def relative_norm(result, expected):
    result, expected = result.astype(np.float64), expected.astype(np.float64)
    return float(np.linalg.norm(result - expected) / max(np.linalg.norm(expected), 1e-30))


def same_reading(a, b):
    if isinstance(a, list):
        return len(a) == len(b) and all(same_reading(x, y) for x, y in zip(a, b, strict=True))
    return abs(a - b) <= READING_SLACK if isinstance(a, float) else a == b


@functools.cache
def expected(name, path, root, count):
    """The first `count` inputs of the model, all with None, and the CPU EP's outputs: (label, inputs, outputs)."""
    reference = feeds.cpu_session(path)
    return [(label, inputs, reference.run(None, inputs))
            for label, inputs in itertools.islice(feeds.feeds(name, root), count)]


def check(session, name, path, root, count=None):
    """Raises AssertionError where an output, or what it means, differs by more than rounding."""
    names = [output.name for output in session.get_outputs()]
    limit = RELATIVE_MAX.get(name, RELATIVE_MAX["default"])
    for label, inputs, wanted in expected(name, path, root, count):
        result = session.run(names, inputs)
        meant, said = (feeds.reading(name, root, outputs) for outputs in (wanted, result))
        assert same_reading(meant, said), f"{label}: {said} on our EP, {meant} on the CPU EP"
        for output, got, want in zip(names, result, wanted, strict=True):
            assert got.shape == want.shape and got.dtype == want.dtype, f"{label}, {output}: {got.shape} {got.dtype}"
            if want.dtype.kind != "f":
                assert np.array_equal(got, want), f"{label}, {output}"
            else:
                assert relative_norm(got, want) <= limit, f"{label}, {output}: {relative_norm(got, want):.2e} off"
