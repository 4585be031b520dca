# SPDX-License-Identifier: Apache-2.0
"""millpond.dask with Dask itself: two workers in processes of their own, data that moves to the host, the dashboard."""

import ast
import subprocess
import sys
import threading
import time
import types
import urllib.request
from pathlib import Path

import numpy as np
import pytest

distributed = pytest.importorskip("distributed", reason="Dask's distributed is not installed")

import dask_kit  # noqa: E402
import millpond  # noqa: E402
import millpond.dask  # noqa: E402
from dask_kit import MIB  # noqa: E402
from millpond import _dask_data  # noqa: E402

LIMIT_S = 60
EXAMPLE = Path(__file__).resolve().parents[2] / "examples/dask_pool.py"


@pytest.fixture(scope="module")
def client():
    cluster = distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0",
                                       host="127.0.0.1", memory_limit="2 GiB", worker_dashboard_address="127.0.0.1:0")
    with cluster, distributed.Client(cluster, timeout=LIMIT_S) as found:
        millpond.dask.install(found, limit=8 * MIB)
        yield found


def workers_of(client):
    return sorted(client.scheduler_info(n_workers=-1)["workers"])


def wait_until(condition):
    until = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.1)


def get(url):
    with urllib.request.urlopen(url, timeout=LIMIT_S) as reply:
        return reply.read().decode()


def figures(client, worker):
    """The plugin's, as the worker itself has them."""
    return client.run(dask_kit.figures, workers=[worker])[worker]


def metrics(client, worker):
    return client.scheduler_info(n_workers=-1)["workers"][worker]["metrics"]


# ---- in a cluster ----


def test_more_than_the_pool_holds(client):
    """Ten arrays of 2 MiB where there are 8 MiB: those that wait go to the host, and come back when they are asked."""
    worker, other = workers_of(client)
    blocks = [client.submit(dask_kit.fill, n, 2 * MIB, workers=[worker], pure=False) for n in range(10)]
    distributed.wait(blocks, timeout=LIMIT_S)
    found = figures(client, worker)
    assert found["limit"] == 8 * MIB and found["in_use"] <= 8 * MIB
    assert found["moved_to_host"] >= 6 and found["on_host"] >= 12 * MIB
    sums = [client.submit(dask_kit.total, block, workers=[worker]) for block in blocks]
    assert client.gather(sums) == [n * 2 * MIB for n in range(10)]
    assert figures(client, worker)["moved_to_device"] >= 6
    moved = client.submit(dask_kit.total, blocks[7], workers=[other], pure=False)  # from worker to worker
    assert moved.result(LIMIT_S) == 7 * 2 * MIB
    here = blocks[3].result(LIMIT_S)  # and to the client
    assert isinstance(here, millpond.Buffer) and bytes(here)[:3] == b"\3\3\3"
    del blocks, sums, moved, here
    wait_until(lambda: all(figures(client, each)["in_use"] == 0 for each in (worker, other)))
    wait_until(lambda: figures(client, worker)["on_host"] == 0)


def test_a_task_whose_own_arrays_do_not_fit_fails_with_the_pools_sentence(client):
    worker = workers_of(client)[0]
    kept = client.submit(dask_kit.fill, 1, 3 * MIB, workers=[worker], pure=False)
    distributed.wait(kept, timeout=LIMIT_S)
    greedy = client.submit(dask_kit.fill, 1, 9 * MIB, workers=[worker], pure=False)
    with pytest.raises(millpond.OutOfMemoryError, match="cannot allocate 9437184 bytes"):
        greedy.result(LIMIT_S)
    assert client.submit(dask_kit.total, kept, workers=[worker]).result(LIMIT_S) == 3 * MIB


def test_a_task_whose_inputs_do_not_fit_together_fails_alone(client):
    """They come back one by one before the task begins, and none may go while it has them."""
    worker = workers_of(client)[0]
    blocks = [client.submit(dask_kit.fill, n, 5 * MIB, workers=[worker], pure=False) for n in (1, 2)]
    distributed.wait(blocks, timeout=LIMIT_S)
    both = client.submit(dask_kit.total_of_all, blocks, workers=[worker], pure=False)
    with pytest.raises(millpond.OutOfMemoryError, match="cannot allocate 5242880 bytes"):
        both.result(LIMIT_S)
    one = client.submit(dask_kit.total, blocks[1], workers=[worker], pure=False)
    assert one.result(LIMIT_S) == 2 * 5 * MIB


def test_outputs_of_sessions(client):
    """A DeviceArray from a task, through the next, on the other worker, and to the client."""
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    worker, other = workers_of(client)
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    first = client.submit(dask_kit.scale, x, workers=[worker], pure=False)
    distributed.wait(first, timeout=LIMIT_S)
    client.run(dask_kit.make_room, first.key, workers=[worker])
    again = client.submit(dask_kit.scale, first, workers=[other], pure=False)
    assert np.array_equal(again.result(LIMIT_S).numpy(), 4 * x)
    third = client.submit(dask_kit.scale, first, workers=[worker], pure=False)
    assert np.array_equal(third.result(LIMIT_S).numpy(), 4 * x)


def test_the_dashboard(client):
    worker = workers_of(client)[0]
    kept = client.submit(dask_kit.fill, 1, MIB, workers=[worker], pure=False)
    distributed.wait(kept, timeout=LIMIT_S)
    wait_until(lambda: metrics(client, worker).get("millpond", {}).get("clients", {}).get("task", 0)
               >= MIB)
    found = metrics(client, worker)
    assert found["pool_reserved"] >= found["pool_in_use"] >= MIB
    address = client.dashboard_link.rpartition("/")[0]
    assert "pool memory" in get(f"{address}/pool-memory")
    rows = client.run_on_scheduler(dask_kit.rows)
    task = [(left, right, size) for part, left, right, size in
            zip(rows["part"], rows["left"], rows["right"], rows["bytes"], strict=True) if part == "task"]
    assert any(size >= MIB and right - left == size for left, right, size in task)
    assert {"reserved and free", "on the host"} <= set(rows["part"]) and len(set(rows["worker"])) == 2
    workers, shown = client.run_on_scheduler(dask_kit.page)
    assert workers == sorted(set(rows["worker"])) and shown >= MIB
    port = client.scheduler_info(n_workers=-1)["workers"][worker]["services"]["dashboard"]
    text = get(f"http://127.0.0.1:{port}/metrics")
    assert 'millpond_client_in_use_bytes{client="task"' in text


def test_a_worker_that_dies_is_replaced_with_a_pool(client):
    worker, other = workers_of(client)
    lost = client.submit(dask_kit.fill, 5, MIB, workers=[worker], allow_other_workers=True, pure=False)
    distributed.wait(lost, timeout=LIMIT_S)
    client.run(dask_kit.die, workers=[worker], wait=False)
    wait_until(lambda: worker not in workers_of(client) and len(workers_of(client)) == 2)
    fresh = next(each for each in workers_of(client) if each != other)
    assert client.submit(dask_kit.total, lost).result(LIMIT_S) == 5 * MIB  # made again
    assert figures(client, fresh)["limit"] == 8 * MIB
    assert millpond.dask.PoolPlugin.name in client.run(dask_kit.plugins, workers=[fresh])[fresh]


# ---- parts of it ----


@pytest.fixture
def data(pool):
    return _dask_data.DeviceData({}, pool)


@pytest.fixture
def pool():
    return millpond.Pool(client="task")


def test_data(data, pool):
    """A mapping like any other, whatever is where."""
    data["block"], data["text"] = pool.alloc(1000), "text"
    data["pair"] = (pool.alloc(500), {"n": [pool.alloc(300), 7]})
    assert list(data) == ["block", "pair", "text"] and len(data) == 3 and "pair" in data and "x" not in data
    data["block"].copy_from_host(b"\x07" * 1000)
    before = pool.stats()["in_use"]
    assert data.make_room(1 << 30) and pool.stats()["in_use"] == before - 1024 - 512 - 512
    assert (sorted(data), data.bytes_on_host, data.device_keys) == (["block", "pair", "text"], 1800, [])
    assert bytes(data["block"]) == b"\x07" * 1000 and data.device_keys == ["block"] and data.bytes_on_host == 800
    assert data["pair"][1]["n"][1] == 7 and type(data["pair"]) is tuple and data["pair"][1]["n"][0].size == 300
    assert data.make_room(1 << 30)
    data["pair"] = "another"
    del data["block"], data["text"]
    assert dict(data) == {"pair": "another"} and data.bytes_on_host == 0
    with pytest.raises(KeyError):
        data["block"]
    with pytest.raises(KeyError):
        del data["block"]


def test_what_a_task_uses_stays(data, pool):
    data["kept"], data["free"] = pool.alloc(1 << 20), pool.alloc(1 << 20)
    used = data["kept"]
    assert data.make_room(1 << 30) and data.device_keys == ["kept"]
    assert not data.make_room(1 << 30)
    del used
    assert data.make_room(1) and data.device_keys == []


def test_the_one_that_waits_longest_goes_first(data, pool):
    for name in "abc":
        data[name] = pool.alloc(1 << 20)
    assert data["a"].size == 1 << 20
    assert data.make_room(1) and data.device_keys == ["c", "a"]
    assert data.make_room(1 << 20) and data.device_keys == ["a"]


def test_a_host_without_room(pool):
    class Full(dict):
        def __setitem__(self, key, value):
            raise MemoryError("no room")

    data = _dask_data.DeviceData(Full(), pool)
    data["a"] = pool.alloc(1000)
    assert not data.make_room(1) and data.device_keys == ["a"] and data["a"].size == 1000


def test_a_thread_that_cannot_have_the_lock_gives_up(data, pool, monkeypatch):
    monkeypatch.setattr(_dask_data, "LOCK_S", 0.05)
    data["a"] = pool.alloc(1000)
    found = []
    with data._lock:
        thread = threading.Thread(target=lambda: found.append(data.make_room(1)))
        thread.start()
        thread.join(LIMIT_S)
    assert found == [False] and data.device_keys == ["a"]


@pytest.mark.parametrize(("limit", "wanted"), [(1 << 20, 1 << 20), ("2 MiB", 2 << 20), ("4096", 4096), (4096.0, 4096)])
def test_limits(limit, wanted, pool):
    assert millpond.dask._bytes_of(limit, pool) == wanted


def test_what_is_refused(pool):
    assert millpond.dask._bytes_of(0.5, pool) == pool.memory_info()[1] // 2
    for limit in (0, -1, "much", "", float("nan"), -0.5):
        with pytest.raises(millpond.InvalidArgumentError, match="limit"):
            millpond.dask._bytes_of(limit, pool)
    with pytest.raises(millpond.InvalidArgumentError, match="no library 'jax' here"):
        millpond.dask.PoolPlugin(libraries=["jax"])


def test_what_is_on_the_host_goes_on_to_disk_and_back(pool, tmp_path):
    """Through the mapping that Dask has for that."""
    from distributed.spill import SpillBuffer

    data = _dask_data.DeviceData(SpillBuffer(str(tmp_path), target=1000), pool)
    block = pool.alloc(4000)
    block.copy_from_host(b"\x05" * 4000)
    data["a"] = {"one": block, "more": [pool.alloc(100), "text"]}
    del block
    assert data.make_room(1 << 30) and data.bytes_on_host == 4100
    assert len(data.disk) == 1 and data.spilled_total.memory >= 4100
    back = data["a"]
    assert bytes(back["one"]) == b"\x05" * 4000 and back["more"][1] == "text" and len(data.disk) == 0
    data["text"] = "x" * 100
    assert data.evict() > 0 and len(data.disk) == 1 and data["text"] == "x" * 100


class Array:
    """An array of a device in the words of three libraries, whose memory is a Buffer."""

    def __init__(self, pool, host):
        self.block, self.host = pool.alloc(host.nbytes), host
        self.device, self.is_leaf, self.is_cuda, self.requires_grad = Device(), True, True, True
        self.__cuda_array_interface__ = {}

    def copy_to_host(self):
        return self.host

    def detach(self):
        return self

    def cpu(self):
        return Tensor(self.host)


class Device:
    id = 3

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None

    def __str__(self):
        return "cuda:3"


class Tensor:
    def __init__(self, host):
        self.host, self.calls = host, []

    def numel(self):
        return self.host.size

    def element_size(self):
        return self.host.itemsize

    def to(self, device):
        self.calls.append(device)
        return self

    def requires_grad_(self, flag):
        self.calls.append(flag)
        return self


@pytest.mark.parametrize(("module", "name"), [
    ("cupy", "ndarray"), ("torch", "Tensor"), ("numba.cuda.cudadrv.devicearray", "DeviceNDArray"),
    ("numba_cuda_mlir.cuda.cudadrv.devicearray", "DeviceNDArray")])
def test_arrays_of_libraries(data, pool, module, name, monkeypatch):
    """With stand-ins: there is no GPU for them here."""
    package = module.partition(".cudadrv")[0]
    library = types.ModuleType(package)
    library.asnumpy = lambda array, order: array.host
    library.asarray = library.to_device = lambda host: ("on the device", host)
    library.cuda = types.SimpleNamespace(Device=lambda number: Device())
    monkeypatch.setitem(sys.modules, package, library)
    kind = type(name, (Array,), {"__module__": module})
    host = np.arange(100, dtype=np.float32)
    data["a"], data["list"] = kind(pool, host), [kind(pool, host)]
    assert data.device_keys == ["a", "list"] and data.make_room(1 << 30)
    assert data.device_keys == [] and data.bytes_on_host == 800
    back = data["a"]
    if package == "torch":
        assert back.calls == ["cuda:3", True] and back.host is host
    else:
        assert back == ("on the device", host)
    assert isinstance(data["list"], list)


def test_what_is_no_array_stays_in_dasks_own_mapping(data, pool):
    deep = pool.alloc(10)
    for _ in range(9):
        deep = [deep]
    for value in (np.ones(3), "text", None, [1, 2], {"a": (1, 2)}, millpond.Pool(memory="pinned").alloc(10), deep):
        data["a"] = value
        assert data.device_keys == [] and data.host["a"] is value and not data.make_room(1)
    assert data.evict() == -1  # a plain dict has no disk


def test_preload(pool):
    """`dask scheduler` and `dask worker` with --preload millpond.dask, settings from the configuration."""
    import dask

    settings = {"distributed.scheduler.preload": ["millpond.dask"], "distributed.worker.preload": ["millpond.dask"],
                "millpond": {"limit": "64 MiB"}}
    try:
        with dask.config.set(settings), distributed.LocalCluster(
                n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0"
        ) as cluster, distributed.Client(cluster) as client:
            assert millpond.get_limit() == 64 * MIB
            assert client.submit(dask_kit.total, client.submit(dask_kit.fill, 1, 1000)).result(LIMIT_S) == 1000
            assert get(f"{client.dashboard_link.rpartition('/')[0]}/pool-memory")
            worker = cluster.workers[0]
            assert isinstance(worker.data, _dask_data.DeviceData)
            client.register_plugin(millpond.dask.PoolPlugin(limit=32 * MIB))  # again, with other settings
            assert millpond.get_limit() == 32 * MIB
            assert isinstance(worker.data, _dask_data.DeviceData)
            assert not isinstance(worker.data.host, _dask_data.DeviceData)
    finally:
        millpond.set_limit(0)


def test_the_example():
    done = subprocess.run([sys.executable, EXAMPLE], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("16 MiB at most") == 2 and "/pool-memory" in done.stdout


class Gpu:
    """As much of a pool of a GPU as is asked for libraries."""

    is_emulated = False


def test_which_libraries_get_the_pool(pool, monkeypatch):
    there = {"numba_cuda", "torch", "rmm"}
    monkeypatch.setattr(millpond.dask.importlib.util, "find_spec", lambda name: name if name in there else None)
    torch = types.ModuleType("torch")
    torch._C = types.SimpleNamespace(_cuda_customAllocator=None)
    monkeypatch.setitem(sys.modules, "torch", torch)
    plugin = millpond.dask.PoolPlugin()
    assert plugin._wanted(Gpu()) == ["numba", "torch", "rmm"]
    torch._C = types.SimpleNamespace()  # without CUDA
    assert plugin._wanted(Gpu()) == ["numba", "rmm"]
    assert list(millpond.dask.PoolPlugin(libraries=["cupy", "numba"])._wanted(Gpu())) == ["cupy", "numba"]
    assert list(millpond.dask.PoolPlugin(libraries="cupy")._wanted(Gpu())) == ["cupy"]
    assert list(millpond.dask.PoolPlugin(libraries=["cupy"])._wanted(pool)) == []  # no GPU


@pytest.mark.parametrize(("library", "function"), [("numba", "use"), ("cupy", "install"), ("torch", "install"),
                                                   ("rmm", "install")])
def test_each_library_is_put_on_the_pool(library, function, monkeypatch):
    source = ast.parse((Path(millpond.__file__).parent / f"{library}.py").read_text(encoding="utf-8"))
    assert function in [node.name for node in source.body if isinstance(node, ast.FunctionDef)]
    called = []
    adapter = types.ModuleType(f"millpond.{library}")
    setattr(adapter, function, lambda: called.append(library))
    monkeypatch.setitem(sys.modules, f"millpond.{library}", adapter)
    monkeypatch.setattr(millpond, library, adapter, raising=False)
    worker = types.SimpleNamespace(metrics={}, data={})
    plugin = millpond.dask.PoolPlugin(spill=False)
    monkeypatch.setattr(plugin, "_wanted", lambda pool: [library])
    plugin.setup(worker)
    assert called == [library] and worker.metrics["pool_in_use"](worker) >= 0 and worker.data == {}
    plugin.teardown(worker)
    assert worker.metrics == {}
