# SPDX-License-Identifier: Apache-2.0
"""The benchmarks of compiled models, several devices and several processes run; no time is judged."""

import pytest
from bench_kit import run


def test_compiled_models(tmp_path):
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    import small_models

    (tmp_path / "small.onnx").write_bytes(small_models.add_chain(3))
    (row,) = run("bench_context.py", tmp_path / "out.json", "--repeats", 2, tmp_path / "small.onnx")["rows"]
    assert row["model"] == "small" and all(row[key] > 0 for key in row if key.endswith("clock_ms"))


def test_several_devices(tmp_path):
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    words = ["--width", 32, "--layers", 2, "--rows", "2,5", "--repeats", 2]
    rows = run("bench_devices.py", tmp_path / "out.json", *words, MILLPOND_HOST_DEVICES="2")["results"]
    assert {(row["devices"], row["rows"]) for row in rows} >= {(1, 2), (1, 5)} and all(row["ms"] > 0 for row in rows)


def test_several_processes(tmp_path):
    (row,) = run("bench_ipc.py", tmp_path / "out.json", "--sizes", "64K", "--repeats", 3)["us"]
    assert row.pop("bytes") == 65536 and len(row) == 3 and all(us > 0 for us in row.values())
