# SPDX-License-Identifier: Apache-2.0
"""Runs of whole and split models: the shapes of a model's values, and the ranks together against the whole.

    python -m millpond._shard_check MODEL FEEDS.npz OUT.npz    the rank that its environment names, emulated
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import millpond
from millpond._core import Error
from millpond._shard_model import Cut, Model

WAIT_S = 3600


def _session(proto: bytes, folder: Path) -> Any:
    """On the CPU provider, or, for operators that it lacks, on ours."""
    from millpond._ort_native import ort

    def options() -> Any:
        made = ort.SessionOptions()
        made.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        made.log_severity_level = 4
        made.add_session_config_entry("session.model_external_initializers_file_folder_path", str(folder.resolve()))
        return made

    try:
        return ort.InferenceSession(proto, options(), providers=["CPUExecutionProvider"])
    except Exception:  # noqa: BLE001  ONNX Runtime's errors have many classes
        import millpond.onnxruntime as mort

        return mort.session(proto, "host", options={"fusion": 0}, session_options=options())


def shapes(model: Model, feeds: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Of each value of the graph, in one run of the whole model."""
    names = [name for node in model.nodes for name in node.output if name]
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    del proto.graph.output[:]
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    found = _session(proto.SerializeToString(), model.path.parent).run(names, dict(feeds))
    known = {name: tuple(value.shape) for name, value in zip(names, found, strict=True) if hasattr(value, "shape")}
    return {**known, **{name: tuple(value.shape) for name, value in feeds.items()}}


def whole_outputs(model: Model, feeds: Mapping[str, Any]) -> dict[str, Any]:
    names = [value.name for value in model.graph.output]
    return dict(zip(names, _session(model.proto.SerializeToString(), model.path.parent).run(names, dict(feeds)),
                    strict=True))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _environment(rank: int, ranks: int, port: int) -> dict[str, str]:
    package = str(Path(millpond.__file__).absolute().parents[1])
    paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank),
            "MASTER_ADDR": "127.0.0.1", "MILLPOND_RANK_PORT": str(port), "MILLPOND_DEVICE": "host",
            "PYTHONPATH": os.pathsep.join(paths)}


def _as_carried(arrays: Mapping[str, Any]) -> dict[str, Any]:
    return {name: np.asarray(array, order="C") for name, array in arrays.items()}


def rank_outputs(paths: list[Path], feeds: Mapping[str, Any], cuts: Mapping[str, Cut]) -> list[dict[str, Any]]:
    """What each rank gives, run side by side on emulated devices."""
    port, ranks = free_port(), len(paths)
    with tempfile.TemporaryDirectory() as folder:
        processes = []
        for rank, path in enumerate(paths):
            own = {name: cuts[name].take(array, rank, ranks) if name in cuts else array
                   for name, array in feeds.items()}
            given, out = Path(folder, f"in_{rank}.npz"), Path(folder, f"out_{rank}.npz")
            np.savez(given, **_as_carried(own))
            command = [sys.executable, "-m", "millpond._shard_check", str(path), str(given), str(out)]
            processes.append(subprocess.Popen(command, env=_environment(rank, ranks, port), text=True,
                                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
        try:
            texts = [process.communicate(timeout=WAIT_S)[0] for process in processes]
        finally:
            for process in processes:
                if process.poll() is None:
                    process.kill()
                    process.wait()
        for rank, process in enumerate(processes):
            if process.returncode != 0:
                last = (texts[rank].strip().splitlines() or ["without a word"])[-1]
                raise Error(f"rank {rank} failed: {last}")
        results = []
        for rank in range(ranks):
            with np.load(Path(folder, f"out_{rank}.npz")) as found:
                results.append({name: found[name] for name in found.files})
        return results


def joined(results: list[dict[str, Any]], cuts: Mapping[str, Cut]) -> dict[str, Any]:
    """What the ranks give together. Raises Error where they differ in what all of them have."""
    together = {}
    for name in results[0]:
        parts = [result[name] for result in results]
        if name in cuts:
            together[name] = cuts[name].join(parts)
            continue
        if not all(np.array_equal(part, parts[0], equal_nan=part.dtype.kind == "f") for part in parts):
            raise Error(f"the ranks have different values of the output {name!r}")
        together[name] = parts[0]
    return together


def _main(model: str, feeds: str, out: str) -> None:
    import millpond.onnxruntime as mort

    session = mort.session(model, "host")
    names = [value.name for value in session.get_outputs()]
    with np.load(feeds) as given:
        results = session.run(names, {name: given[name] for name in given.files})
    np.savez(out, **dict(zip(names, results, strict=True)))


if __name__ == "__main__":
    _main(*sys.argv[1:])
