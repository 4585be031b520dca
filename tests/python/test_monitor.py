# SPDX-License-Identifier: Apache-2.0
"""The socket that `millpond memory` asks: off by default, for its owner only, and unmoved by whatever it is sent."""

import contextlib
import json
import os
import re
import socket
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import millpond
import pytest
from core_kit import run_python
from millpond import _monitor


@pytest.fixture
def runtime(tmp_path, monkeypatch):
    """An empty folder as the user's runtime folder."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path / "millpond"


@pytest.fixture
def server(runtime):
    path = millpond.monitor.start()
    yield path
    millpond.monitor.stop()


def say(path, data, end=True, seconds=10):
    """Sends bytes; what comes back until the connection ends."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(seconds)
        connection.connect(str(path))
        pieces = []
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):  # it has not read all
            connection.sendall(data)
            if end:
                connection.shutdown(socket.SHUT_WR)
            while piece := connection.recv(1 << 16):
                pieces.append(piece)
        return b"".join(pieces)


# ---- on and off ----


def test_off_by_default(runtime):
    out = run_python("""
        import millpond, threading
        millpond.Pool().alloc(100)
        print(millpond.monitor.is_running(), threading.active_count())
    """, MILLPOND_MONITOR="0")
    assert out == "False 1\n" and not runtime.exists()


@pytest.mark.parametrize("end", ["", "millpond.monitor.stop()", "import signal; os.kill(os.getpid(), signal.SIGTERM)"])
def test_on_by_the_environment(runtime, end):
    out = run_python(f"""
        import os, millpond
        from millpond import _monitor
        print(_monitor.processes() == [os.getpid()], millpond.monitor.is_running(), flush=True)
        {end}
    """, MILLPOND_MONITOR="1", status=-15 if "SIGTERM" in end else 0)
    assert out == "True True\n"
    left = list(runtime.glob("*.sock"))
    assert bool(left) == ("SIGTERM" in end)
    assert _monitor.processes() == [] and not list(runtime.glob("*.sock"))  # what was left is cleared


def test_a_strange_wish_is_a_warning(runtime):
    code = "import millpond; print(millpond.monitor.is_running())"
    env = dict(os.environ, PYTHONPATH=str(Path(millpond.__file__).parents[1]), MILLPOND_MONITOR="yes please")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True)
    assert done.stdout == "False\n" and "MILLPOND_MONITOR is 'yes please'; say 1 or 0" in done.stderr


def test_started_and_stopped_again(runtime):
    for _ in range(3):
        path = millpond.monitor.start()
        assert millpond.monitor.start() == path and path.exists() and _monitor.processes() == [os.getpid()]
        assert _monitor.ask(os.getpid(), "state")["pid"] == os.getpid()
        millpond.monitor.stop()
        millpond.monitor.stop()
        assert not path.exists() and not millpond.monitor.is_running()
    with pytest.raises(millpond.NotFoundError, match="MILLPOND_MONITOR=1"):
        _monitor.ask(os.getpid(), "state")


def test_a_child_of_a_fork_is_not_watched(server):
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(writer, b"1" if millpond.monitor.is_running() else b"0")
        os._exit(0)
    os.waitpid(pid, 0)
    assert os.read(reader, 1) == b"0"
    os.close(reader)
    os.close(writer)
    assert server.exists() and _monitor.ask(os.getpid(), "state")["pid"] == os.getpid()


# ---- whose it is ----


def test_only_the_owner_can_enter(server, runtime):
    assert stat.S_IMODE(os.lstat(runtime).st_mode) == 0o700
    assert stat.S_IMODE(os.lstat(server).st_mode) == 0o600


@pytest.mark.parametrize("trap", ["open to others", "a link", "a file"])
def test_a_folder_that_is_not_the_user_s_own_is_refused(runtime, tmp_path, trap):
    if trap == "open to others":
        runtime.mkdir()
        runtime.chmod(0o755)
    elif trap == "a link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        runtime.symlink_to(tmp_path / "elsewhere")
    else:
        runtime.write_text("")
    for call in (millpond.monitor.start, _monitor.processes):
        with pytest.raises(millpond.Error, match="not a folder of this user"):
            call()
    assert not millpond.monitor.is_running()


def test_a_runtime_folder_of_another_user_is_not_used(monkeypatch, tmp_path):
    for folder in ("/proc/nowhere", "relative", str(tmp_path / "missing")):
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        assert _monitor.folder() == Path(f"/tmp/millpond-{os.geteuid()}")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert _monitor._candidate() == Path(f"/tmp/millpond-{os.getuid() + 1}")


def test_a_peer_of_another_user_gets_nothing(server, monkeypatch):
    monkeypatch.setattr(_monitor, "_peer", lambda connection: os.geteuid() + 1)
    assert say(server, b'{"op": "state"}\n') == b""
    with pytest.raises(millpond.Error, match="answered by a process of another user"):
        _monitor.ask(os.getpid(), "state")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_cannot_ask(server, tmp_path):
    """Even where the folder lets it in: the kernel says who asks."""
    code = """
        import os, socket, sys
        os.setgid(12345)
        os.setuid(12345)
        with socket.socket(socket.AF_UNIX) as connection:
            try:
                connection.connect(sys.argv[1])
                connection.sendall(b'{"op": "state"}\\n')
                print("said", connection.recv(100))
            except (PermissionError, ConnectionResetError, BrokenPipeError) as error:
                print(type(error).__name__)
    """
    assert run_python(code, str(server)) == "PermissionError\n"
    opened = [path for path in (server, *server.parents) if path != Path("/") and path.stat().st_uid == 0]
    modes = [(path, stat.S_IMODE(path.stat().st_mode)) for path in opened]
    try:
        for path, mode in modes:
            path.chmod(mode | 0o777)
        assert run_python(code, str(server)) in ("said b''\n", "ConnectionResetError\n", "BrokenPipeError\n")
    finally:
        for path, mode in reversed(modes):
            path.chmod(mode)


def test_a_path_that_is_too_long_is_said(tmp_path, monkeypatch):
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(long))
    with pytest.raises(millpond.Error, match="cannot listen on .*too long"):
        millpond.monitor.start()
    assert not millpond.monitor.is_running()


# ---- what it says ----


def test_the_figures(server, pool):
    block = pool.alloc(1000)
    with millpond.Pool(pool.device, memory="pinned", client="staging") as pinned:
        other = pinned.alloc(50)
        state = _monitor.ask(os.getpid(), "state")
        del other
    assert state["millpond"] == millpond.__version__ and state["program"] == sys.argv[0]
    found = {(each["device"], each["memory"]): each for each in state["pools"]}
    mine = found[pool.device, "device"]
    assert mine["emulated"] == pool.is_emulated and mine["name"] == pool.device_name and not mine["external"]
    assert mine["stats"] == pool.stats()
    shares = {share["name"]: share for share in mine["clients"]}
    assert shares["test"]["requested"] == 1000 and "monitor" not in shares
    assert found[pool.device, "pinned"]["stats"]["in_use"] > 0
    del block


def test_looking_opens_no_pool(runtime):
    out = run_python("""
        import os, millpond
        from millpond import _monitor
        millpond.monitor.start()
        for _ in range(3):
            print(len(_monitor.ask(os.getpid(), "state")["pools"]), end=" ")
        with millpond.Pool():
            print(len(_monitor.ask(os.getpid(), "state")["pools"]), end=" ")
        print(len(_monitor.ask(os.getpid(), "state")["pools"]))
    """)
    assert out == "0 0 0 1 0\n"


def test_the_text_and_the_page(server, pool, runtime):
    which = {"device": pool.device, "memory": "device"}
    assert _monitor.ask(os.getpid(), "trace", events=100, **which) == {"events": 100}
    block = pool.alloc(12345)
    del block
    page = Path(runtime / _monitor.ask(os.getpid(), "page", **which)["file"]).read_text(encoding="utf-8")
    about = json.loads(re.search(r'id="about">(.*?)</script>', page, re.DOTALL).group(1))
    assert about["device"] == pool.device and "test" in about["clients"] and about["event_count"] >= 2
    assert f"device {pool.ordinal} ({pool.device_name})" in _monitor.ask(os.getpid(), "dump", **which)["text"]
    _monitor.ask(os.getpid(), "trace", events=0, **which)


@pytest.mark.parametrize(("request_", "part"), [
    ({}, "one of state, dump, trace, page"), ({"op": "rm"}, "one of"), ([], "one of"), (5, "one of"), (None, "one of"),
    ({"op": ["state"]}, "unhashable|one of"),
    ({"op": "dump"}, "no pool of device memory of None"),
    ({"op": "dump", "device": "host:0/../../etc"}, "no pool"),
    ({"op": "dump", "device": {"a": 1}}, "no pool"),
    ({"op": "page", "device": "host:0", "memory": "../pinned"}, "no pool"),
    ({"op": "trace", "device": "host:0", "events": -1}, "events is -1"),
    ({"op": "trace", "device": "host:0", "events": 1 << 40}, "must be a number"),
    ({"op": "trace", "device": "host:0", "events": "5"}, "must be a number"),
])
def test_requests_that_make_no_sense(server, request_, part):
    reply = json.loads(say(server, json.dumps(request_).encode() + b"\n"))
    assert reply["ok"] is False and re.search(part, reply["error"])


@pytest.mark.parametrize("data", [
    b"", b"\n", b"{", b"\xff\xfe\n", b"GET / HTTP/1.1\r\n\r\n", b"[" * 4000 + b"\n", b'{"op": "state"}', b"x" * 100_000,
    b"x" * 100_000 + b"\n", b'{"op": "state"}\n' * 3, b"\0" * 50 + b"\n", b'{"op": NaN}\n'])
def test_it_survives_whatever_it_is_sent(server, data):
    reply = say(server, data)
    assert reply == b"" or json.loads(reply)["ok"] in (True, False)
    assert _monitor.ask(os.getpid(), "state")["pid"] == os.getpid()


def test_requests_and_replies_have_a_limit(server, monkeypatch):
    spaces = b" " * _monitor.REQUEST_MAX
    assert json.loads(say(server, b'{"op": "state"}' + spaces[:1000] + b"\n"))["ok"]
    assert say(server, b'{"op": "state"}' + spaces * 20 + b"\n") == b""
    monkeypatch.setattr(_monitor, "REPLY_MAX", 50)
    assert json.loads(say(server, b'{"op": "state"}\n')) == {"ok": False, "error": "the reply is too long"}


def test_who_says_nothing_holds_up_nobody_for_long(server, monkeypatch):
    with socket.socket(socket.AF_UNIX) as silent:
        silent.connect(str(server))
        silent.sendall(b'{"op"')
        began = time.monotonic()
        assert _monitor.ask(os.getpid(), "state")["pid"] == os.getpid()
        assert time.monotonic() - began < _monitor.REQUEST_S + 2


def test_many_at_a_time(server):
    failed = []

    def look():
        try:
            for _ in range(10):
                assert _monitor.ask(os.getpid(), "state")["pid"] == os.getpid()
        except Exception as error:  # noqa: BLE001  the main thread reports it
            failed.append(error)

    threads = [threading.Thread(target=look) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_a_server_that_answers_nonsense_is_an_error(runtime):
    runtime.mkdir(mode=0o700)
    for reply in (b"nonsense\n", b"", b"[]\n", b'{"ok": false, "error": "no"}\n'):
        path = runtime / "4242.sock"
        path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            listener.listen(1)
            thread = threading.Thread(target=lambda: answer_once(listener, reply))  # noqa: B023  joined below
            thread.start()
            with pytest.raises(millpond.Error):
                _monitor.ask(4242, "state")
            thread.join()


def answer_once(listener, reply):
    connection, _ = listener.accept()
    with connection:
        connection.recv(1000)
        connection.sendall(reply)


def test_pools_of_another_library_are_named(server):
    out = run_python("""
        import ctypes, json, os, millpond
        from pathlib import Path
        from millpond import _monitor
        library = ctypes.CDLL(str(Path(millpond.get_library_path()).with_name("libmillpond.so.0")))
        libc = ctypes.CDLL(None)
        ALLOC = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
        FREE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
        alloc, free = ALLOC(lambda context, size: None), FREE(lambda context, memory, size: None)
        table = (ctypes.c_void_p * 6)(None, ctypes.cast(alloc, ctypes.c_void_p), ctypes.cast(free, ctypes.c_void_p))
        pool = ctypes.c_void_p()
        assert library.mp_pool_open_external(b"host:0", b"me", table, None, ctypes.byref(pool)) == 0
        millpond.monitor.start()
        print(json.dumps(_monitor.ask(os.getpid(), "state")["pools"]))
        library.mp_pool_close(pool)
    """, MILLPOND_DEVICE="host")
    assert json.loads(out) == [{"device": "host:0", "memory": "device", "external": True}]
