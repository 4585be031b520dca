# SPDX-License-Identifier: Apache-2.0
"""The C library's log as the logger "millpond": levels, threads, forks, and the end of the process."""

import ctypes
import logging
import threading
import time
from pathlib import Path

import millpond
import pytest
from core_kit import LIMIT_S, run_python
from millpond import _core

LIBRARY = ctypes.CDLL(str(Path(millpond.get_library_path()).with_name("libmillpond.so.0")))
LIBRARY.mp_log_enabled.restype = ctypes.c_bool
ERROR, WARNING, INFO, DEBUG = range(4)
PROGRAM = """
import os
os.dup2(1, 2)
import ctypes, logging, sys, threading, time, millpond
library = ctypes.CDLL(
    millpond.get_library_path().replace("libonnxruntime_providers_cuda_plugin.so", "libmillpond.so.0"))
library.mp_log_enabled.restype = ctypes.c_bool
with_lock = ctypes.PyDLL(library._name)  # called under the interpreter's lock, so nobody else runs meanwhile
file = ctypes.c_char_p(b"x.c")  # the library keeps the address
def write(text, level=1):
    if library.mp_log_enabled(level):
        library.mp__log(level, b"/src/somewhere.c", 7, b"%s", text.encode())
"""


def write(level, text):
    """A line of the C library, written without the interpreter's lock."""
    if LIBRARY.mp_log_enabled(level):
        LIBRARY.mp__log(level, b"/src/somewhere.c", 7, b"%s", text.encode())


class NoLock:
    """For a handler that may be used while it waits."""

    def acquire(self):
        pass

    def release(self):
        pass

    def __enter__(self):
        pass

    def __exit__(self, *error):
        pass


def wait_for(condition):
    until = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.001)


@pytest.fixture
def logger(caplog):
    """The logger, with all levels on."""
    logger = logging.getLogger("millpond")
    before = logger.level
    with caplog.at_level(logging.DEBUG):
        logger.setLevel(logging.DEBUG)
        yield logger
        logger.setLevel(before)
    millpond._log.follow()


def test_a_warning_of_a_call_is_there_when_it_returns(caplog, capfd):
    with millpond.Pool(options={"max_mem": "100M"}), millpond.Pool(options={"max_mem": "90M"}):
        (record,) = [record for record in caplog.records if record.name == "millpond"]
    assert record.levelno == logging.WARNING and "arena.max_mem=104857600" in record.getMessage()
    assert record.filename == "pool_registry.c" and record.lineno > 0
    assert record.threadName == threading.current_thread().name and record.thread == threading.get_ident()
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(("level", "name"), [(ERROR, "ERROR"), (WARNING, "WARNING"), (INFO, "INFO"), (DEBUG, "DEBUG")])
def test_lines_of_other_threads_arrive(logger, caplog, capfd, level, name):
    """Nobody calls the extension; the main thread waits as a server's does."""
    begin = time.time()
    thread = threading.Thread(target=write, args=(level, "100 % of \u00e4"), name="a writer")
    thread.start()
    thread.join()
    wait_for(lambda: caplog.records)
    (record,) = caplog.records
    assert (record.levelname, record.getMessage(), record.pathname) == (name, "100 % of \u00e4", "/src/somewhere.c")
    assert begin - 1 < record.created <= time.time() and record.thread == thread.ident
    assert capfd.readouterr() == ("", "")


def test_lines_keep_their_order(logger, caplog):
    for i in range(2000):
        write(INFO, str(i))
    _core.log_flush()
    wait_for(lambda: len(caplog.records) == 2000)
    assert [record.getMessage() for record in caplog.records] == [str(i) for i in range(2000)]


def test_the_loggers_level_is_the_librarys(logger, caplog):
    root = logging.getLogger()
    for level, known in ((logging.DEBUG, DEBUG), (logging.INFO, INFO), (logging.WARNING, WARNING),
                         (logging.ERROR, ERROR), (logging.CRITICAL, -1)):
        logger.setLevel(level)
        assert _core.log_threshold(None) == known
    logger.setLevel(logging.NOTSET)
    root.setLevel(logging.INFO)
    assert _core.log_threshold(None) == INFO
    logging.disable(logging.WARNING)
    assert _core.log_threshold(None) == ERROR
    logging.disable(logging.NOTSET)
    assert _core.log_threshold(None) == INFO
    write(DEBUG, "not asked for")
    write(INFO, "asked for")
    _core.log_flush()
    wait_for(lambda: caplog.records)
    assert [record.getMessage() for record in caplog.records] == ["asked for"]


def test_a_logger_that_was_disabled_comes_back():
    """As logging.config does: it enables those that it names after it has set their levels."""
    assert run("""
import logging.config
logging.basicConfig(stream=sys.stdout, format="%(message)s")
logging.config.dictConfig({"version": 1})  # disables all that it does not name
write("not wanted")
millpond._core.log_flush()
logging.config.dictConfig({"version": 1, "loggers": {"millpond": {"level": "INFO"}}})
write("wanted", 2)
""") == ["wanted"]


def test_a_python_whose_loggers_remember_nothing():
    program = """
import logging
class Logger(logging.Logger):
    def __init__(self, name):
        super().__init__(name)
        del self._cache
    def isEnabledFor(self, level):
        return level >= self.getEffectiveLevel()
logging.setLoggerClass(Logger)
logging.Manager._clear_cache = lambda manager: None
""" + PROGRAM + """
logging.basicConfig(stream=sys.stdout, format="%(message)s")
write("not wanted", 2)
millpond._core.log_flush()
logging.getLogger("millpond").setLevel("INFO")
write("wanted", 2)
"""
    assert run_python(program).split("\n")[:-1] == ["wanted"]


def test_a_handler_may_use_pools_and_fail(logger, monkeypatch, unraisable):
    seen = []

    class Handler(logging.Handler):
        def emit(self, record):
            with millpond.Pool(client="handler") as pool:
                seen.append((record.getMessage(), pool.alloc(100).size))
            millpond._core.log_flush()  # does not wait for itself

    def broken(record):
        raise ValueError("a filter")

    handler = Handler()
    logger.addHandler(handler)
    try:
        with millpond.Pool() as outer, millpond.Pool(options={"max_mem": "80M"}):
            assert outer.alloc(10).size == 10
        assert [size for text, size in seen] == [100] * len(seen) and len(seen) > 0
        logger.addFilter(broken)
        write(ERROR, "not handled")
        _core.log_flush()
        wait_for(lambda: unraisable)
        assert isinstance(unraisable[0][0], ValueError)
    finally:
        logger.removeFilter(broken)
        logger.removeHandler(handler)


def test_a_slow_handler_stops_nobody(logger):
    """A thread that holds what the handler waits for goes on with the pool."""
    mine, asked = threading.Lock(), threading.Event()

    class Handler(logging.Handler):
        def createLock(self):
            self.lock = NoLock()

        def emit(self, record):
            asked.set()
            with mine:
                pass

    handler = Handler()
    logger.addHandler(handler)
    try:
        with mine:
            write(ERROR, "first")
            assert asked.wait(LIMIT_S)
            write(ERROR, "second")
            with millpond.Pool() as pool:
                pool.alloc(100).free()
                pool.shrink()
        _core.log_flush()
    finally:
        logger.removeHandler(handler)


# ---- processes of their own ----


def run(code, **variables):
    """The lines of a program, whose stderr is its stdout."""
    return [line for line in run_python(PROGRAM + code, **variables).splitlines() if line]


def test_nobody_has_set_up_logging():
    assert run("write('once')\nmillpond._core.log_flush()") == ["millpond warning: once (somewhere.c:7)"]
    assert run("write('no', 2); logging.getLogger('millpond').setLevel('DEBUG'); write('nor this', 2)") == []
    assert run("write('asked for', 2)", MILLPOND_LOG="info") == ["millpond info: asked for (somewhere.c:7)"]
    assert run("write('asked for', 0)", MILLPOND_LOG="off") == []


def test_logging_is_set_up_after_the_import():
    said = run("logging.basicConfig(stream=sys.stdout, format='%(levelname)s %(name)s %(message)s')\nwrite('once')")
    assert said == ["WARNING millpond once"]


def test_the_variable_is_the_level_to_begin_with():
    begin = "logging.basicConfig(stream=sys.stdout, format='%(levelname)s %(message)s')\n"
    assert run(begin + "write('a', 3); write('b', 2)", MILLPOND_LOG="debug") == ["DEBUG a", "INFO b"]
    assert run(begin + "write('a', 1); write('b', 0)", MILLPOND_LOG="error") == ["ERROR b"]
    assert run(begin + "logging.getLogger('millpond').setLevel('INFO'); write('a', 3); write('b', 2)",
               MILLPOND_LOG="debug") == ["INFO b"]


@pytest.mark.parametrize("end", ["", "sys.exit(0)"])
def test_the_end_loses_no_line(end):
    """The interpreter ends while lines are queued: a thread could not have handed them over."""
    said = run(f"""
logging.basicConfig(stream=sys.stdout, format='%(message)s')
for i in range(100):
    with_lock.mp__log(0, file, 1, b"%d", i)
{end}
""")
    assert said == [str(i) for i in range(100)]


def test_lines_after_the_end_go_to_stderr():
    said = run("""
import atexit
logging.basicConfig(stream=sys.stdout, format='%(message)s')
class Late:
    def __del__(self, write=write): write("late")
keep = Late()
sys.keep = keep
write("early")
""")
    assert said == ["early", "millpond warning: late (somewhere.c:7)"]


def test_exit_in_c_loses_no_line():
    said = run("""
logging.basicConfig(stream=sys.stdout, format='%(message)s')
with_lock.mp__log(0, file, 1, b"%s", b"the last")
ctypes.PyDLL(None).exit(0)  # nobody else can take the line
""")
    assert said == ["millpond error: the last (x.c:1)"]


def test_the_end_waits_for_no_handler_that_hangs():
    said = run("""
from test_log import NoLock
class Hangs(logging.Handler):
    def createLock(self):
        self.lock = NoLock()  # logging.shutdown would wait for a real one
    def emit(self, record):
        threading.Event().wait()
logging.getLogger("millpond").addHandler(Hangs())
write("first")
write("second")
""")
    assert said == ["millpond warning: second (somewhere.c:7)"]


def test_daemon_threads_write_while_the_process_ends():
    for _ in range(3):
        run("""
logging.basicConfig(stream=sys.stdout, format='%(message)s')
def loop():
    while True:
        write("again", 0)
for _ in range(3):
    threading.Thread(target=loop, daemon=True).start()
time.sleep(0.05)
""")


def test_a_forked_child_writes_its_own_lines():
    said = run("""
import warnings
warnings.filterwarnings("ignore", "This process .* is multi-threaded")
logging.basicConfig(stream=sys.stdout, format='%(process)d %(message)s')
for i in range(10):
    with_lock.mp__log(0, file, 1, b"%d", i)  # queued, and the parent's
child = os.fork()
if child == 0:
    for i in range(10, 20):
        write(str(i))
    raise SystemExit(5)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
print("child", child, flush=True)
""")
    child = next(line.split()[1] for line in said if line.startswith("child"))
    pairs = [line.split() for line in said if not line.startswith("child")]
    assert [text for pid, text in pairs if pid == child] == [str(i) for i in range(10, 20)]
    assert [text for pid, text in pairs if pid != child] == [str(i) for i in range(10)]


def test_a_child_is_forked_while_a_line_is_written():
    """The thread that writes it, into a pipe that is full, is not in the child, which may change the sink."""
    run("""
import warnings
warnings.filterwarnings("ignore", "This process .* is multi-threaded")
mine, kept = os.dup(2), os.pipe()
os.set_blocking(kept[1], False)
try:
    while True:
        os.write(kept[1], b" " * 4096)
except BlockingIOError:
    os.set_blocking(kept[1], True)
os.dup2(kept[1], 2)
write("waits", 0)
time.sleep(0.2)  # until it does
child = os.fork()
if child == 0:
    os.dup2(mine, 2)
    library.mp_log_set_sink(None, None)
    os._exit(5)
until = time.monotonic() + 20
while (ended := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() < until:
    time.sleep(0.01)
os.dup2(mine, 2)
while os.read(kept[0], 1 << 20)[-1:] != b"\\n":
    pass
if ended[0] == 0:
    os.kill(child, 9)
assert ended[0] == child and os.waitstatus_to_exitcode(ended[1]) == 5, "the child waits for its parent's thread"
""")


def test_onnxruntimes_log_has_what_no_handler_gets():
    pytest.importorskip("onnxruntime", minversion="1.26", reason="ONNX Runtime 1.26 is not installed")
    code = """
import millpond.onnxruntime as mort
mort.register()
{setup}
write("once")
millpond._core.log_flush()
"""
    (line,) = run(code.format(setup=""))
    assert "[W:onnxruntime" in line and "] once" in line
    assert run(code.format(setup="logging.basicConfig(stream=sys.stdout, format='%(name)s %(message)s')")) == [
        "millpond once"]
