# SPDX-License-Identifier: Apache-2.0
"""What docs/deployment.md shows: Triton's model with a stand-in for Triton, KServe's own server; YAML is YAML."""

import importlib.util
import json
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import millpond
import numpy as np
import pytest
from serving_kit import affine

pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")

import triton_python_backend_utils as pb_utils  # noqa: E402  (the stand-in beside this file)

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
LIMIT_S = 60


def rows(count, seed=0):
    return np.random.default_rng(seed).standard_normal((count, 4)).astype(np.float32)


# ---- Triton ----


@pytest.fixture
def triton(tmp_path):
    """The example's model with two ONNX files, as Triton would make it."""
    folder = tmp_path / "1"
    folder.mkdir()
    (folder / "1_first.onnx").write_bytes(affine(2))
    (folder / "2_second.onnx").write_bytes(affine(3, 5, "y", "z"))
    spec = importlib.util.spec_from_file_location("triton_model", EXAMPLES / "triton/pictures/1/model.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    pb_utils.METRICS.clear()
    pb_utils.MetricFamily.names.clear()
    config = {"input": [{"name": "x"}], "output": [{"name": "z"}],
              "parameters": {"memory_fraction": {"string_value": "0.5"}}}
    made = module.TritonPythonModel()
    made.initialize({"model_config": json.dumps(config), "model_instance_kind": "CPU", "model_version": "1",
                     "model_instance_device_id": "0", "model_repository": str(tmp_path)})
    yield made
    made.finalize()
    millpond.set_limit(0)


def test_tritons_model(triton):
    total = millpond.Pool().memory_info()[1]
    assert millpond.get_limit() == total // 2
    given = [rows(n, n) for n in (1, 4, 2)]
    replies = triton.execute([pb_utils.InferenceRequest(x=x) for x in given])
    for x, reply in zip(given, replies, strict=True):
        assert reply.error is None and np.array_equal(reply.tensors["z"], 6 * x + 5)
    bad = np.zeros((1, 5), np.float32)
    first, second = triton.execute([pb_utils.InferenceRequest(x=bad), pb_utils.InferenceRequest(x=given[0])])
    assert "shape" in str(first.error) and np.array_equal(second.tensors["z"], 6 * given[0] + 5)


def test_tritons_metrics(triton):
    triton.execute([pb_utils.InferenceRequest(x=rows(1))])
    key = ("millpond_pool_allocations", (("device", "host:0"), ("memory", "device"), ("client", "")))
    before = pb_utils.METRICS[key]
    triton.execute([pb_utils.InferenceRequest(x=rows(1))])
    assert pb_utils.METRICS[key] == before  # not at each request
    triton.updated = 0.0
    triton.execute([pb_utils.InferenceRequest(x=rows(1))])
    assert pb_utils.METRICS[key] > before
    assert pb_utils.METRICS["millpond_client_in_use_bytes", (*key[1][:2], ("client", "onnxruntime"))] > 0


def test_tritons_configuration_fits_the_model():
    text = (EXAMPLES / "triton/pictures/config.pbtxt").read_text(encoding="utf-8")
    model = (EXAMPLES / "triton/pictures/1/model.py").read_text(encoding="utf-8")
    assert 'backend: "python"' in text and "class TritonPythonModel" in model
    assert text.count("{") == text.count("}") and text.count("[") == text.count("]")
    assert 'key: "memory_fraction"' in text and '"memory_fraction"' in model


# ---- KServe ----


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The address of the example's predictor with two models, in a process of its own."""
    pytest.importorskip("kserve", reason="KServe is not installed")
    folder = tmp_path_factory.mktemp("models")
    (folder / "double.onnx").write_bytes(affine(2))
    (folder / "more.onnx").write_bytes(affine(1, 5))
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    log = folder / "log"
    with open(log, "w", encoding="utf-8") as out:
        process = subprocess.Popen(
            [sys.executable, EXAMPLES / "kserve_predictor.py", f"--model_dir={folder}", f"--http_port={port}",
             "--enable_grpc=false", "--memory_fraction=0.5"], stdout=out, stderr=subprocess.STDOUT)
    url, until = f"http://127.0.0.1:{port}", time.monotonic() + LIMIT_S
    while ask(f"{url}/v2/health/ready")[0] != 200:
        assert process.poll() is None and time.monotonic() < until, log.read_text(encoding="utf-8")
        time.sleep(0.1)
    yield url
    process.send_signal(signal.SIGTERM)
    assert process.wait(LIMIT_S) in (0, -signal.SIGTERM), log.read_text(encoding="utf-8")


def ask(url, document=None):
    body = None if document is None else json.dumps(document).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=LIMIT_S) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except urllib.error.URLError:
        return 0, ""


def tensor(array):
    return {"inputs": [{"name": "x", "shape": list(array.shape), "datatype": "FP32", "data": array.ravel().tolist()}]}


def test_kserves_server(server):
    x = rows(3)
    for name, wanted in (("double", 2 * x), ("more", x + 5)):
        status, text = ask(f"{server}/v2/models/{name}/infer", tensor(x))
        output = json.loads(text)["outputs"][0]
        assert status == 200 and output["name"] == "y" and output["datatype"] == "FP32"
        assert np.array_equal(np.array(output["data"], np.float32).reshape(3, 4), wanted)
    status, text = ask(f"{server}/v2/models/double/infer", tensor(np.zeros((2, 5), np.float32)))
    assert status == 400 and "shape" in text
    assert ask(f"{server}/v2/models/third/infer", tensor(x))[0] == 404
    text = ask(f"{server}/metrics")[1]
    assert 'millpond_client_in_use_bytes{client="onnxruntime",device="host:0",memory="device"}' in text


# ---- Kubernetes, and other files for machines ----


def documents(path):
    found = list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
    assert found and all(isinstance(each, dict) for each in found)
    return found


FILES = sorted([*EXAMPLES.rglob("*.yaml")])


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_yaml(path):
    for document in documents(path):
        if path.parent.name == "kubernetes":
            assert {"apiVersion", "kind", "metadata"} <= set(document)


def containers(path):
    spec = documents(path)[0]["spec"]
    return spec["predictor"]["containers"] if "predictor" in spec else spec["template"]["spec"]["containers"]


@pytest.mark.parametrize("name", ["deployment.yaml", "inference_service.yaml"])
def test_pods(name, server):
    """A GPU and memory are limits, probes are answered, and the arguments are the program's."""
    container, = containers(EXAMPLES / "kubernetes" / name)
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 1 and "memory" in container["resources"]["limits"]
    probes = [probe["httpGet"]["path"] for key, probe in container.items() if key.endswith("Probe")]
    assert probes and all(ask(server + path)[0] == 200 for path in probes)
    program = (EXAMPLES / "kserve_predictor.py").read_text(encoding="utf-8")
    assert container["command"][1] == "/app/kserve_predictor.py" and '"--model_dir"' in program
    settings = (ROOT / "docs/settings.md").read_text(encoding="utf-8")
    names = [each["name"] for each in container["env"] if each["name"].startswith("MILLPOND_")]
    assert names and all(f"| `{each}` |" in settings for each in names)


def test_rays_file():
    schema = pytest.importorskip("ray.serve.schema", reason="Ray Serve is not installed")
    file = documents(EXAMPLES / "ray_serve.yaml")[0]
    found = schema.ServeDeploySchema.model_validate(file)
    deployment, = found.applications[0].deployments
    import millpond.ray_serve

    assert deployment.name == millpond.ray_serve.Predictor.__name__
    models, batch = millpond.ray_serve._checked(deployment.user_config)
    assert sorted(models) == ["detector", "reader"] and batch["size"] == 16
    assert found.applications[0].import_path == "ray_serve:app"
    assert "\napp = serve.deployment(" in (EXAMPLES / "ray_serve.py").read_text(encoding="utf-8")
