#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Models without their weights, for machines that cannot make them: a small file, and random numbers in their place.

    bench/skeletons.py FOLDER TARGET          writes a skeleton of each model of FOLDER
    bench/skeletons.py FOLDER TARGET --fill   writes a model of each skeleton, with weights by a seed

Of a tensor of LEAST floats and more, of which most are different, a skeleton has type, shape, mean, deviation and
bounds. Others stay as they are, and so do the inputs, NAME.npz. Both kinds are files of ONNX.
"""

import argparse
import json
import shutil
from pathlib import Path

import numpy as np
import onnx

LEAST = 1024  # elements; what has fewer is a shape, a scale, a bias or the like
MARK = "skeleton "


def tensors(graph):
    """All constants of a graph and of those within it."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            for inner in [*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])]:
                yield from tensors(inner)


def is_random(x):
    return x.dtype in (np.float32, np.float16) and x.size >= LEAST and np.unique(x).size > min(x.size // 4, 1000)


def strip(model):
    """Takes random numbers out of a model."""
    for tensor in tensors(model.graph):
        x = onnx.numpy_helper.to_array(tensor)
        if is_random(x):
            numbers = [float(f(x.astype(np.float64))) for f in (np.mean, np.std, np.min, np.max)]
            kept = onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims,
                                    doc_string=MARK + json.dumps(numbers))
            tensor.CopyFrom(kept)
    return model


def fill(model, seed=0):
    """Puts random numbers into a skeleton, which are the same each time."""
    random = np.random.default_rng(seed)
    for tensor in tensors(model.graph):
        if tensor.doc_string.startswith(MARK):
            mean, deviation, least, most = json.loads(tensor.doc_string.removeprefix(MARK))
            x = np.clip(mean + deviation * random.standard_normal(tuple(tensor.dims), np.float32), least, most)
            kind = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
            tensor.CopyFrom(onnx.numpy_helper.from_array(x.astype(kind), tensor.name))
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--fill", action="store_true", help="write models of skeletons")
    args = parser.parse_args()
    args.target.mkdir(parents=True, exist_ok=True)
    for path in sorted(args.folder.glob("*.onnx")):
        onnx.save((fill if args.fill else strip)(onnx.load(path)), args.target / path.name)
        if path.with_suffix(".npz").exists():
            shutil.copy(path.with_suffix(".npz"), args.target)


if __name__ == "__main__":
    main()
