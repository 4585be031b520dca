# SPDX-License-Identifier: Apache-2.0
"""millpond.ray_serve with Ray itself, on one machine: HTTP, handles, batches, updates, metrics, replicas that die."""

import asyncio
import json
import os
import re
import signal
import socket
import tempfile
import threading
import time
import types
import urllib.error
import urllib.request

import numpy as np
import pytest
from serving_kit import affine, pair

ray = pytest.importorskip("ray", reason="Ray is not installed")
serve = pytest.importorskip("ray.serve", reason="Ray Serve is not installed")

import millpond  # noqa: E402
import millpond.ray_serve  # noqa: E402
from ray.serve.context import _get_global_client  # noqa: E402
from ray.serve.schema import ServeDeploySchema  # noqa: E402
from ray_kit import Holder, Watched  # noqa: E402

LIMIT_S = 30


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@pytest.fixture(scope="module")
def cluster():
    """Its ports: (HTTP, metrics). GPUs that are not there stand for those that Ray would divide."""
    ports = free_port(), free_port()
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:  # sockets: a short path
        ray.init(num_cpus=4, num_gpus=2, include_dashboard=False, _metrics_export_port=ports[1], log_to_driver=False,
                 _system_config={"metrics_report_interval_ms": 500}, logging_level="ERROR", _temp_dir=folder,
                 object_store_memory=100 << 20)
        serve.start(http_options={"host": "127.0.0.1", "port": ports[0]}, logging_config={"log_level": "ERROR"})
        yield ports
        serve.shutdown()
        ray.shutdown()


def deploy(name, cluster, *given, kind=Watched, **options):
    """A handle on a deployment, and its address."""
    options.setdefault("ray_actor_options", {"num_cpus": 0.1})
    options.setdefault("health_check_period_s", 1)
    options.setdefault("graceful_shutdown_timeout_s", 5)
    bound = serve.deployment(kind, name=name, **options).bind(*given, metrics_interval_s=0.5)
    handle = serve.run(bound, name=name, route_prefix=f"/{name}")
    return handle, f"http://127.0.0.1:{cluster[0]}/{name}"


def ask(url, document=None, headers=None):
    """(status, body, headers) of a request; a document is JSON, or bytes."""
    body = document if document is None or isinstance(document, bytes) else json.dumps(document).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, headers or {}), timeout=LIMIT_S) as reply:
            return reply.status, reply.read(), reply.headers
    except urllib.error.HTTPError as error:
        return error.code, error.read(), error.headers


def rows(count, seed=0):
    return np.random.default_rng(seed).standard_normal((count, 4)).astype(np.float32)


def tensor(name, array):
    return {"name": name, "shape": list(array.shape), "datatype": "FP32", "data": array.reshape(-1).tolist()}


def wait_until(condition, seconds=LIMIT_S):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.1)


@pytest.fixture(scope="module")
def two(cluster):
    """Two models in one replica that has half of a GPU."""
    return deploy("two", cluster, {"double": affine(2), "pair": pair()}, max_ongoing_requests=32,
                  ray_actor_options={"num_cpus": 0.1, "num_gpus": 0.5})


def test_several_models_in_a_replica_by_handle(two):
    handle, _ = two
    x, z = rows(3), rows(3, 1)
    assert np.array_equal(handle.infer.remote("double", {"x": x}).result()["y"], 2 * x)
    found = handle.infer.remote("pair", {"x": x, "z": z}, ["difference"]).result()
    assert list(found) == ["difference"] and np.array_equal(found["difference"], x - z)
    about = handle.about.remote().result()
    assert about["models"] == {"double": "1", "pair": "1"}
    assert about["limit"] == about["device_bytes"] // 2  # num_gpus=0.5
    with pytest.raises(millpond.NotFoundError, match="no model 'third' here; there are double, pair"):
        handle.infer.remote("third", {}).result()
    with pytest.raises(millpond.InvalidArgumentError, match="shape"):
        handle.infer.remote("double", {"x": rows(2)[:, :3].copy()}).result()


def test_http(two):
    _, url = two
    x = rows(2)
    status, body, _ = ask(f"{url}/v2/models/double/infer", {"id": "7", "inputs": [tensor("x", x)]})
    reply = json.loads(body)
    assert (status, reply["id"], reply["model_name"]) == (200, "7", "double")
    assert np.array_equal(np.array(reply["outputs"][0]["data"], np.float32).reshape(2, 4), 2 * x)
    head = json.dumps({"inputs": [{"name": "x", "shape": [2, 4], "datatype": "FP32",
                                   "parameters": {"binary_data_size": x.nbytes}}],
                       "parameters": {"binary_data_output": True}}).encode()
    status, body, headers = ask(f"{url}/v2/models/double/infer", head + x.tobytes(),
                                {"Inference-Header-Content-Length": str(len(head))})
    assert status == 200
    assert np.array_equal(np.frombuffer(body[int(headers["Inference-Header-Content-Length"]):], np.float32),
                          2 * x.reshape(-1))
    assert json.loads(ask(f"{url}/v2/models/pair")[1])["inputs"][0] == {"name": "x", "datatype": "FP32",
                                                                        "shape": [-1, 4]}
    assert [ask(f"{url}/v2/{path}")[0] for path in ("health/ready", "models/pair/ready", "models/third", "")] == [
        200, 200, 404, 404]
    for document in (b"{", {"inputs": [tensor("x", rows(2))] * 2}, {"inputs": []}):
        status, body, _ = ask(f"{url}/v2/models/double/infer", document)
        assert status == 400 and json.loads(body)["error"]


def test_arrays_of_the_object_store_are_not_copied(two):
    handle, _ = two
    x = rows(100_000)
    found = handle.infer.remote("double", {"x": x}).result()["y"]
    assert np.array_equal(found, 2 * x)
    offset, is_writeable, is_owner = handle.about.remote().result()["arrays"][0][0]
    assert (offset, is_writeable, is_owner) == (0, False, False)  # in the replica a view of the store
    assert not found.flags.owndata and not found.flags.writeable  # and so is what comes back


def test_requests_that_wait_together_run_as_one(two):
    handle, _ = two
    before = len(handle.about.remote().result()["runs"])
    given = [rows(1 + n % 3, n) for n in range(24)]
    waiting = [handle.infer.remote("double", {"x": x}) for x in given]
    assert all(np.array_equal(reply.result()["y"], 2 * x) for reply, x in zip(waiting, given, strict=True))
    ran = handle.about.remote().result()["runs"][before:]
    assert sum(ran) == 24 and len(ran) < 24


def samples_of(port, name):
    """{value of the label client: value} of a metric at Ray's endpoint, of the deployment `two`."""
    text = ask(f"http://127.0.0.1:{port}/metrics")[1].decode()
    lines = re.findall(rf"^{name}{{(.*)}} (\S+)$", text, re.MULTILINE)
    labels = [(dict(re.findall(r'(\w+)="([^"]*)"', words)), float(value)) for words, value in lines]
    return {each["client"]: value for each, value in labels
            if each.get("deployment") == "two" and each["memory"] == "device"}


def test_the_pool_is_among_rays_metrics(two, cluster):
    handle, _ = two
    handle.infer.remote("double", {"x": rows(3)}).result()
    in_use = handle.about.remote().result()["in_use"]
    wait_until(lambda: samples_of(cluster[1], "ray_millpond_pool_in_use_bytes").get("") == in_use)
    wait_until(lambda: samples_of(cluster[1], "ray_millpond_client_in_use_bytes").get("onnxruntime", 0) > 0)
    served = samples_of(cluster[1], "ray_millpond_pool_allocations_total")[""]
    for _ in range(5):
        handle.infer.remote("double", {"x": rows(3)}).result()
    wait_until(lambda: samples_of(cluster[1], "ray_millpond_pool_allocations_total")[""] >= served + 5)


def test_the_pool_of_an_actor_is_among_rays_metrics(cluster):
    def in_use():
        text = ask(f"http://127.0.0.1:{cluster[1]}/metrics")[1].decode()
        return re.findall(r'^ray_millpond_client_in_use_bytes{.*client="holder".*} (\S+)$', text, re.MULTILINE)

    holder = Holder.remote(5000)
    wait_until(lambda: in_use() == ["5120.0"])
    ray.get(holder.drop.remote())
    wait_until(lambda: in_use() == ["0.0"])
    ray.kill(holder)


# ---- several replicas ----


def config(factor):
    return {"models": {"scale": {"path": FILES[factor], "version": str(factor)}}, "batch": {"size": 4, "wait_s": 0}}


FILES = {}


def apply(url, factor, **more):
    """What `serve deploy FILE` does with such a file; gives a handle. Another user_config alone restarts nothing."""
    settings = {"name": "Watched", "num_replicas": 2, "max_ongoing_requests": 2, "max_queued_requests": 4,
                "health_check_period_s": 1, "graceful_shutdown_timeout_s": 5, "ray_actor_options": {"num_cpus": 0.1},
                "user_config": config(factor) | more}
    application = {"name": "replicas", "route_prefix": "/replicas", "import_path": "ray_kit:app",
                   "deployments": [settings]}
    file = ServeDeploySchema.model_validate({"applications": [application]})
    _get_global_client().deploy_apps(file)
    wait_until(lambda: serve.status().applications["replicas"].status == "RUNNING")
    return serve.get_app_handle("replicas"), url


@pytest.fixture(scope="module")
def replicas(cluster, tmp_path_factory):
    """Two of them, which take two requests at a time each."""
    folder = tmp_path_factory.mktemp("models")
    for factor in (2, 3, 5):
        FILES[factor] = str(folder / f"{factor}.onnx")
        with open(FILES[factor], "wb") as file:
            file.write(affine(factor))
    FILES[7] = str(folder / "7.onnx")  # is not there
    return apply(f"http://127.0.0.1:{cluster[0]}/replicas", 2)


def processes(handle):
    """The processes of the replicas that answer."""
    return {handle.about.remote().result(timeout_s=LIMIT_S)["pid"] for _ in range(12)}


def ask_and_wait(handle, gate, wanted):
    """Four requests that the two replicas have by now, and that wait for the gate; and the processes that have them."""
    waiting = [handle.infer.remote("scale", {"x": rows(1)}, None, str(gate)) for _ in range(4)]
    wait_until(lambda: len(list(gate.parent.glob(f"{gate.name}.*"))) == 4)
    there = {int(path.name.split(".")[1]) for path in gate.parent.glob(f"{gate.name}.*")}
    assert len(there) == wanted
    return waiting, there


def test_more_requests_than_may_wait_are_refused_at_once(replicas, tmp_path):
    handle, url = replicas
    document = {"inputs": [tensor("x", rows(1))]}
    assert ask(f"{url}/v2/models/scale/infer", document)[0] == 200  # Serve counts once the address has been used
    waiting, _ = ask_and_wait(handle, tmp_path / "gate", 2)
    statuses = []
    threads = [threading.Thread(target=lambda: statuses.append(
        ask(f"{url}/v2/models/scale/infer", document)[0])) for _ in range(8)]
    for thread in threads:
        thread.start()
        time.sleep(0.05)  # those that come at the same time are not told apart
    wait_until(lambda: statuses.count(503) >= 2)  # four may wait
    (tmp_path / "gate").touch()
    for thread in threads:
        thread.join(LIMIT_S)
    assert sorted(set(statuses)) == [200, 503] and len(statuses) == 8
    assert all(np.array_equal(reply.result()["y"], 2 * rows(1)) for reply in waiting)


def test_an_update_under_load_loses_no_request(replicas):
    handle, url = replicas
    before, ended, answers = processes(handle), threading.Event(), []
    x = rows(2)

    def work():
        while not ended.is_set():
            status, body, _ = ask(f"{url}/v2/models/scale/infer", {"inputs": [tensor("x", x)]})
            reply = json.loads(body)
            right = status == 200 and np.array_equal(
                np.array(reply["outputs"][0]["data"], np.float32).reshape(2, 4), int(reply["model_version"]) * x)
            answers.append((right, reply.get("model_version")))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    apply(url, 3)
    wait_until(lambda: [version for _, version in answers[-20:]] == ["3"] * 20)
    ended.set()
    for thread in threads:
        thread.join(LIMIT_S)
    assert all(right for right, _ in answers) and {version for _, version in answers} == {"2", "3"}
    assert processes(handle) == before  # the same replicas


def test_an_update_that_cannot_be_may_leave_the_models_as_they_are(replicas):
    handle, url = replicas
    before = processes(handle)
    apply(url, 7, keep=True)
    wait_until(lambda: all(handle.about.remote().result()["failed"] == f"model 'scale': {FILES[7]} cannot be read: "
                           "No such file or directory" for _ in range(12)))
    status, body, _ = ask(f"{url}/v2/models/scale/infer", {"inputs": [tensor("x", rows(1))]})
    assert status == 200 and json.loads(body)["model_version"] == "3"
    apply(url, 3)
    wait_until(lambda: all(handle.about.remote().result()["failed"] is None for _ in range(12)))
    assert processes(handle) == before


def test_a_replica_that_dies_in_a_request(replicas, tmp_path):
    handle, url = replicas
    waiting, there = ask_and_wait(handle, tmp_path / "gate", 2)
    victim = min(there)
    os.kill(victim, signal.SIGKILL)
    (tmp_path / "gate").touch()
    ended = []
    for reply in waiting:
        try:
            ended.append(np.array_equal(reply.result(timeout_s=LIMIT_S)["y"], 3 * rows(1)))
        except Exception as error:  # noqa: BLE001  what it is is looked at
            ended.append(type(error).__name__)
    assert all(each is True or "Died" in each for each in ended), ended
    assert ended.count(True) == 2  # those of the other replica
    x = rows(1)
    for _ in range(10):  # that one answers all there is until Serve has made another
        status, body, _ = ask(f"{url}/v2/models/scale/infer", {"inputs": [tensor("x", x)]})
        assert status == 200, body
    wait_until(lambda: len(processes(handle) - {victim}) == 2)
    fresh = [handle.about.remote().result(timeout_s=LIMIT_S) for _ in range(12)]
    assert {about["models"]["scale"] for about in fresh} == {"3"}  # of the newest user_config
    assert not os.path.exists(f"/proc/{victim}") and not [name for name in os.listdir("/dev/shm") if "millpond" in name]


def test_a_replica_that_is_not_well_is_replaced(replicas):
    handle, _ = replicas
    there = processes(handle)
    handle.fail_health.remote().result()
    wait_until(lambda: len(processes(handle) - there) == 1 and len(processes(handle)) == 2)
    x = rows(2)
    assert np.array_equal(handle.infer.remote("scale", {"x": x}).result()["y"], 3 * x)


def test_replicas_keep_nothing_between_requests(replicas):
    handle, _ = replicas

    def in_use():
        return {about["pid"]: about["in_use"] for about in
                (handle.about.remote().result(timeout_s=LIMIT_S) for _ in range(12))}

    def work():
        for n in range(20):
            handle.infer.remote("scale", {"x": rows(50, n)}).result(timeout_s=LIMIT_S)

    work()
    before = in_use()
    for _ in range(3):
        work()
    assert in_use() == before


# ---- without a cluster ----


class Request:
    """What Serve hands on of an HTTP request."""

    def __init__(self, method, path, body=b"", **headers):
        self.method, self.url, self.scope = method, types.SimpleNamespace(path=f"/root{path}"), {"root_path": "/root"}
        self.body, self.headers = body, headers

    async def stream(self):
        for begin in range(0, len(self.body), 1000):
            yield self.body[begin : begin + 1000]


def answer(predictor, *request):
    reply = asyncio.run(predictor(Request(*request)))
    return reply.status_code, json.loads(reply.body), reply.headers


@pytest.mark.parametrize(("error", "status", "sentence"), [
    (millpond.OutOfMemoryError("of 3 bytes"), 503, "no memory is left for this request"),
    (millpond.InvalidArgumentError("no such"), 400, "no such"), (millpond.NotFoundError("none"), 404, "none"),
    (millpond.Error("at 0x7f"), 500, "the model could not be run; the replica's log says why")])
def test_errors_by_http(error, status, sentence):
    made = millpond.ray_serve.Predictor({"a": affine(2)}, metrics_interval_s=0)

    async def fail(request):  # as Serve's queue of batches gives it, which needs a replica
        return error, ""

    made._queued = fail
    body = json.dumps({"inputs": [tensor("x", rows(1))]}).encode()
    found, document, headers = answer(made, "POST", "/v2/models/a/infer", body)
    assert (found, document) == (status, {"error": sentence})
    assert headers.get("Retry-After") == ("1" if status == 503 else None)


def test_a_request_that_is_too_long():
    made = millpond.ray_serve.Predictor({"a": affine(2)}, metrics_interval_s=0, body_max=5000)
    status, document, _ = answer(made, "POST", "/v2/models/a/infer", b" " * 5001)
    assert (status, document) == (413, {"error": "the request has more than 5000 bytes (body_max)"})
    assert answer(made, "POST", "/v2/models/a/infer", b" " * 5000)[0] == 400


@pytest.mark.parametrize(("method", "path"), [
    ("GET", "/"), ("POST", "/v2/health/ready"), ("GET", "/v2/models"), ("GET", "/v2/models/"), ("GET", "/v2/models/b"),
    ("GET", "/v2/models/a/infer"), ("POST", "/v2/models/a"), ("POST", "/v2/models/a/infer/more"), ("PUT", "/" * 999)])
def test_addresses_that_there_are_not(method, path):
    made = millpond.ray_serve.Predictor({"a": affine(2)}, metrics_interval_s=0)
    status, document, _ = answer(made, method, path)
    assert status == 404 and len(document["error"]) < 500


def test_a_config_that_is_wrong_is_refused():
    made = millpond.ray_serve.Predictor({"a": affine(2)}, metrics_interval_s=0)
    for wrong, sentence in [({"model": {}}, "user_config is"), ({"models": ["a"]}, "name them"),
                            ({"batch": {"sice": 1}}, "batch is"), ({"batch": {"size": 0}}, "from 1 to 65536"),
                            ({"batch": {"wait_s": -1}}, "from 0 to 60"), ({"limit": 2}, "fraction")]:
        with pytest.raises(millpond.InvalidArgumentError, match=sentence):
            made.reconfigure(wrong)
    with pytest.raises(millpond.NotFoundError, match="cannot be read"):
        made.reconfigure({"models": {"b": "/nowhere"}})
    made.reconfigure({"models": {"b": "/nowhere"}, "keep": True})
    assert "/nowhere cannot be read" in made.failed_update() and made.models() == {"a": "1"}
    with pytest.raises(millpond.NotFoundError):  # a replica without models is of no use
        millpond.ray_serve.Predictor(metrics_interval_s=0).reconfigure({"models": {"b": "/nowhere"}, "keep": True})
    with pytest.raises(millpond.InvalidArgumentError, match="interval_s"):
        millpond.ray_serve.MetricsExport(0)
