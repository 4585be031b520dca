# SPDX-License-Identifier: Apache-2.0
"""The command line as a whole: help, errors, exit codes, completion, terminals and pipes; and `doctor`."""

import functools
import io
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import millpond
import pytest
from cli_kit import COLOUR, environment, on_terminal, refused, run, run_json
from millpond.cli import _app, _kernel_files, _libraries

ROOT = Path(__file__).resolve().parents[2]


# ---- the command line ----


def test_help_and_version():
    assert run("--version")[0] == f"millpond, version {millpond.__version__}\n"
    out, _ = run("--help")
    for name in _app.COMMANDS:
        assert re.search(rf"^  {name}  ", out, re.M)
        shown = run(name, "--help")[0]
        assert "Usage: millpond " + name in shown and run(name, "-h")[0] == shown
    out, said = run(status=2)
    assert out == "" and said.startswith("Usage: millpond")


def test_the_program_that_is_installed():
    program = Path(sys.executable).with_name("millpond")
    if not program.exists():
        pytest.skip("the package is not installed, so there is no program millpond")
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"millpond, version {millpond.__version__}\n"


@pytest.mark.parametrize(("arguments", "part"), [
    (["nonsense"], "No such command 'nonsense'"), (["doctor", "--nonsense"], "No such option"),
    (["run"], "Missing argument 'MODEL'"), (["run", "/nowhere.onnx"], "'/nowhere.onnx' does not exist"),
    (["run", "/"], "is a directory"), (["bench"], "Missing argument"), (["completion"], "Choose from: bash, zsh, fish"),
    (["completion", "tcsh"], "'tcsh' is not one of"),
    (["memory", "--every", "0"], "--every"), (["memory", "soon"], "not a valid integer"),
    (["memory", "--open"], "--open needs --html"),
])
def test_wrong_command_lines(arguments, part):
    assert part in refused(*arguments)


def test_debug_shows_where(models):
    out, said = run("--debug", "run", models / "broken.onnx", status=2)
    assert "Traceback" in said and said.splitlines()[-1].startswith("millpond: ")
    assert "Traceback" not in refused("run", models / "broken.onnx", status=2)


def test_without_its_packages():
    for name in ("click", "rich"):
        code = f"import sys; sys.modules[{name!r}] = None; from millpond.cli import main; sys.exit(main(['doctor']))"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment(),
                              check=False)
        assert done.returncode == 3 and done.stdout == ""
        assert re.fullmatch(rf"millpond: .*{name} is not installed: pip install click rich\n", done.stderr)


@pytest.mark.parametrize("command", ["run", "bench", "parity", "explain", "profile"])
def test_without_onnxruntime(command, models):
    code = ("import sys; sys.modules['onnxruntime'] = None; from millpond.cli import main; "
            f"sys.exit(main([{command!r}, {str(models / 'add.onnx')!r}]))")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment(), check=False)
    assert done.returncode == 3 and "pip install onnxruntime" in done.stderr and done.stderr.count("\n") == 1


def test_an_error_that_nobody_foresaw(monkeypatch, capsys):
    def broken(context):
        raise KeyError("what")

    monkeypatch.setattr(_app.group, "invoke", broken)
    assert _app.run(["doctor"]) == 1
    assert capsys.readouterr().err == "millpond: KeyError: 'what'; --debug shows where\n"


def test_a_reader_that_has_had_enough(models):
    command = [sys.executable, "-m", "millpond", "parity", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), text=True)
    process.stdout.close()
    assert process.stderr.read() == "" and process.wait(60) == 141


def test_interrupted(tmp_path):
    code = "import millpond, time; pool = millpond.Pool(); print(1, flush=True); time.sleep(60)"
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE,
                             env=environment(MILLPOND_MONITOR="1", XDG_RUNTIME_DIR=str(tmp_path)))
    child.stdout.readline()
    command = [sys.executable, "-m", "millpond", "memory", "--watch", "--every", "0.1"]
    # What a shell starts in the background ignores interrupts, and so do its children.
    heeds = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=heeds,
                               env=environment(XDG_RUNTIME_DIR=str(tmp_path)))
    try:
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=60)[1] == "millpond: interrupted\n" and process.returncode == 130
    finally:
        child.kill()
        child.wait()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell, tmp_path):
    script, _ = run("completion", shell)
    assert "_MILLPOND_COMPLETE" in script
    if shutil.which(shell) and shell == "bash":
        path = tmp_path / "script"
        path.write_text(script)
        subprocess.run(["bash", "-n", path], check=True)
    words = {"COMP_WORDS": "millpond pa", "COMP_CWORD": "1"}
    done = subprocess.run([sys.executable, "-c", "from millpond.cli import main; main()"], text=True, check=False,
                          env=environment(_MILLPOND_COMPLETE="bash_complete", **words), capture_output=True)
    assert done.stdout == "plain,parity\n"


# ---- what is printed where ----


def test_colours_are_for_terminals(models):
    shown = on_terminal("run", models / "mixed.onnx")
    assert "\x1b[1m" in shown
    assert not COLOUR.search(run("run", models / "mixed.onnx")[0])
    without = on_terminal("run", models / "mixed.onnx", NO_COLOR="1")
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", without)


def test_progress_is_for_terminals(models):
    assert "loading" in on_terminal("bench", models / "add.onnx", "--seconds", "0.3", "--repeats", "3")
    out, said = run("bench", models / "add.onnx", "--seconds", "0.01", "--repeats", "1")
    assert said == "" and "loading" not in out


def test_json_is_all_of_stdout(models):
    for arguments in (["doctor"], ["run", models / "add.onnx"], ["parity"], ["parity", models / "add.onnx"],
                      ["explain", models / "add.onnx"], ["profile", models / "add.onnx", "--runs", "1"],
                      ["bench", models / "add.onnx", "--seconds", "0.01", "--repeats", "1"], ["memory", "--list"]):
        out, said = run(*arguments, "--json")
        assert json.loads(out) is not None and said == "", arguments
    assert not COLOUR.search(on_terminal("parity", "--json"))


def test_names_are_no_markup(models, tmp_path):
    path = tmp_path / "[bold]x.onnx"
    path.write_bytes((models / "add.onnx").read_bytes())
    assert "[bold]x.onnx on" in COLOUR.sub("", on_terminal("run", path))


# ---- doctor ----


def checks(**variables):
    return {(each["part"], each["name"]): each for each in run_json("doctor", **variables)["checks"]}


def test_doctor():
    found = checks()
    pool = millpond.Pool()
    assert millpond.__version__ in found["Millpond", "version"]["detail"]
    assert found["Device", "auto"]["more"] == {"device": pool.device, "emulated": pool.is_emulated}
    assert found["Environment", "MILLPOND_DEVICE"]["detail"] == os.environ["MILLPOND_DEVICE"]
    if _libraries.has_cuda():
        assert {"driver", "NVRTC", "cuBLASLt", "cuDNN"} <= {name for part, name in found if part == "Libraries"}
        for part, name in found:
            if part == "Libraries" and found[part, name]["state"] == "missing" and name != "OpenBLAS":
                assert "; install" in found[part, name]["detail"]
    out, _ = run("doctor")
    assert re.search(rf"^ok +version +{re.escape(millpond.__version__)}", out, re.M)


def test_doctor_on_onnxruntime():
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    import onnxruntime

    found = checks()
    names = {name: each for (part, name), each in found.items() if part == "Packages"}
    installed = names.get("onnxruntime") or names.get("onnxruntime-gpu")
    assert installed["more"]["version"] == onnxruntime.__version__
    assert found["ONNX Runtime", millpond.Pool().device]["state"] == "ok"


def test_doctor_finds_what_is_wrong(tmp_path):
    closed, open_ = tmp_path / "closed", tmp_path / "open"
    closed.mkdir(mode=0o700)
    (closed / ("0a" * 32)).write_bytes(b"x" * 2048)
    open_.mkdir()
    open_.chmod(0o755)
    found = checks(MILLPOND_CACHE_DIR=str(closed))
    assert found["Kernels", "cache"]["more"] == {"folder": str(closed), "files": 1, "bytes": 2048}
    for value, part in ((str(open_), "open to others"), ("relative", "no absolute path")):
        cache = checks(MILLPOND_CACHE_DIR=value)["Kernels", "cache"]
        assert cache["state"] == "note" and part in cache["detail"]
    assert "compiled in every process" in checks(MILLPOND_CACHE="off")["Kernels", "cache"]["detail"]
    wrong = checks(MILLPOND_DEVCE="host")["Environment", "MILLPOND_DEVCE"]
    assert wrong["state"] == "note" and "MILLPOND_DEVICE is meant?" in wrong["detail"]
    out, said = run("doctor", status=1, MILLPOND_DEVICE="abacus")
    assert "abacus" in out and re.search(r"^millpond: what does not work here: auto", said, re.M)


def test_the_cache_is_where_the_library_has_it(tmp_path, monkeypatch):
    if not _libraries.has_cuda():
        pytest.skip("this build has no CUDA backend, so no cache")
    monkeypatch.setenv("MILLPOND_CACHE_DIR", str(tmp_path / "here"))
    assert _kernel_files.cache_folder() == tmp_path / "here"
    monkeypatch.delenv("MILLPOND_CACHE_DIR")
    code = ("import ctypes; from millpond.cli import _kernel_files as k, _libraries as l; "
            "f = l.pool_library().mp__cuda_cache_folder; "
            "f.restype = ctypes.c_char_p; print(f().decode() == str(k.cache_folder()))")
    for variables in ({"XDG_CACHE_HOME": str(tmp_path / "cache")}, {"HOME": str(tmp_path)}):
        env = environment(**variables)
        if "HOME" in variables:
            env.pop("XDG_CACHE_HOME", None)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True)
        assert done.stdout == "True\n", variables


def test_the_libraries_are_numbered_as_in_c():
    header = ROOT / "src/device/cuda/cuda_load.h"
    if not header.exists():
        pytest.skip("the source tree is not here")
    names = re.findall(r"^    CUDA_LIB_(\w+),", header.read_text(encoding="utf-8"), re.M)
    assert names[: len(_libraries.LIBRARIES)] == ["DRIVER", "NVRTC", "BLASLT", "DNN"]


def test_the_variables_are_those_there_are():
    settings = ROOT / "docs/settings.md"
    if not settings.exists():
        pytest.skip("the source tree is not here")
    named = set(re.findall(r"`(MILLPOND_[A-Z_]+)`", settings.read_text(encoding="utf-8")))
    named -= {name for name in named if name.endswith("_") or name in ("MILLPOND_WITH_CUDA", "MILLPOND_ORT_HEADERS")}
    assert named <= set(_libraries.VARIABLES)


# ---- kernels on disk ----


def test_cache(tmp_path):
    folder, package = tmp_path / "cache", tmp_path / "package"
    folder.mkdir(mode=0o700)
    package.mkdir()
    for name in ("0a" * 32, "0b" * 32, "new-0c-1-2", "notes.txt"):
        (folder / name).write_bytes(b"x" * 1024)
    head = _kernel_files.HEADER.pack(_kernel_files.MAGIC, 90, 7, bytes(32))
    (package / "sm_90.kernels").write_bytes(head + b"x" * 2000)
    (package / "sm_80.kernels").write_bytes(b"something else")
    where = {"MILLPOND_CACHE_DIR": str(folder), "MILLPOND_KERNELS": str(package), "MILLPOND_CACHE_SIZE": "3M"}
    found = run_json("cache", **where)
    assert (found["files"], found["bytes"], found["limit"], found["removed"]) == (3, 3 * 1024, "3M", None)
    assert found["ready"] == [{"arch": 90, "kernels": 7, "bytes": 2048}]
    out, _ = run("cache", **where)
    assert "3 files, 3.0 KiB (keeps to 3M)" in out and re.search(r"^sm_90 +7 +2.0 KiB$", out, re.M)
    found = run_json("cache", "--clear", **where)
    assert found["removed"] == {"files": 3, "bytes": 3 * 1024} and found["files"] == 0
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]
    out, _ = run("cache", **dict(where, MILLPOND_KERNELS="off", MILLPOND_CACHE="off"))
    assert "compiled in every process" in out and "none: MILLPOND_KERNELS" in out
    ready = checks(**where)["Kernels", "with the package"]
    assert ready["state"] == "ok" and ready["more"] == {"archs": [90]}


def test_files_of_kernels_begin_as_in_c():
    header = ROOT / "src/device/cuda/cuda_ready.h"
    if not header.exists():
        pytest.skip("the source tree is not here")
    assert f'"{_kernel_files.MAGIC.decode()}"' in header.read_text(encoding="utf-8")


# ---- memory ----


@pytest.fixture
def program(tmp_path):
    """A process that lends memory and can be looked at."""
    code = """
        import sys, time, millpond
        pool, pinned = millpond.Pool(client="my program"), millpond.Pool(client="staging", memory="pinned")
        kept = [pool.alloc(100_000), pinned.alloc(5000)]
        print(pool.device, flush=True)
        sys.stdin.read()
    """
    import textwrap

    env = environment(MILLPOND_MONITOR="1", XDG_RUNTIME_DIR=str(tmp_path))
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True, env=env)
    process.where = process.stdout.readline().strip()
    yield process
    process.stdin.close()
    process.stdout.close()
    process.wait(60)


def test_memory_of_a_process(program, tmp_path):
    here = {"XDG_RUNTIME_DIR": str(tmp_path)}
    assert run("memory", "--list", **here)[0] == f"{program.pid}\n"
    out, said = run("memory", **here)
    assert said == "" and f"process {program.pid}" in out
    assert re.search(r"^my program +97\.8 KiB +97\.7 KiB +1 +1$", out, re.M), out
    assert re.search(r"^staging +5\.0 KiB +4\.9 KiB +1 +1$", out, re.M)
    state = run_json("memory", program.pid, **here)
    assert {(pool["device"], pool["memory"]) for pool in state["pools"]} == {
        (program.where, "device"), (program.where, "pinned")}
    assert "region" in run("memory", "--dump", **here)[0]
    assert "1 chunks" in run_json("memory", "--dump", "--memory", "pinned", **here)["text"]


def test_stacks_belong_to_a_trace():
    assert "--stacks needs --trace" in run("memory", "--stacks", "4", status=2)[1]


def test_the_page_of_a_process(program, tmp_path):
    here = {"XDG_RUNTIME_DIR": str(tmp_path)}
    page = tmp_path / "page.html"
    assert "100 events are kept" in run("memory", "--trace", "100", "--stacks", "4", **here)[1]
    out, said = run("memory", program.pid, "--html", page, **here)
    assert out == "" and "page.html is written" in said
    text = page.read_text(encoding="utf-8")
    assert text.startswith("<!") and "my program" in text
    assert [path.suffix for path in (tmp_path / "millpond").iterdir()] == [".sock"]
    assert "no longer kept" in run("memory", "--trace", "0", **here)[1]
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/opened\n')
    browser.chmod(browser.stat().st_mode | stat.S_IXUSR)
    run("memory", "--html", page, "--open", BROWSER=f"{browser} %s", **here)
    for _ in range(100):
        if (tmp_path / "opened").exists() and (tmp_path / "opened").read_text():
            break
        time.sleep(0.05)
    assert (tmp_path / "opened").read_text().strip() == page.as_uri()


def test_a_process_is_watched_to_its_end(program, tmp_path):
    command = [sys.executable, "-m", "millpond", "memory", "--watch", "--every", "0.1"]
    env = environment(XDG_RUNTIME_DIR=str(tmp_path))
    text = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
    lines = subprocess.Popen([*command, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
    first, second = text.stdout.readline(), lines.stdout.readline()
    program.stdin.close()
    program.stdin = subprocess.Popen(["true"], stdin=subprocess.PIPE).stdin
    assert re.fullmatch(rf"\d+\.\d{{3}}  {program.where}  \w+  \d+  \d+\n", first)
    assert json.loads(second)["pid"] == program.pid
    for process in (text, lines):
        out, said = process.communicate(timeout=60)
        assert process.returncode == 0 and said == f"millpond: process {program.pid} has ended, or no longer answers\n"


def test_there_may_be_none_or_several(program, tmp_path):
    here = {"XDG_RUNTIME_DIR": str(tmp_path)}
    assert "MILLPOND_MONITOR=1" in refused("memory", status=3, XDG_RUNTIME_DIR=str(tmp_path / "millpond"))
    assert "process 1 cannot be looked at" in refused("memory", 1, status=3, **here)
    assert "has no pool of device memory of cuda:77" in refused("memory", "--dump", "--device", "cuda:77", status=3,
                                                                **here)
    other = tmp_path / "millpond" / f"{os.getpid()}.sock"
    import socket

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(other))
        listener.listen(8)
        assert "several processes can be looked at, say which: " in refused("memory", **here)
    assert run("memory", "--list", **here)[0] == f"{program.pid}\n"


def test_memory_on_a_terminal(program, tmp_path):
    shown = COLOUR.sub("", on_terminal("memory", XDG_RUNTIME_DIR=str(tmp_path)))
    assert re.search(r"my program +97\.8 KiB", shown)


# ---- narrow windows ----


@pytest.mark.parametrize("arguments", [(), ("run",), ("bench",), ("parity",), ("explain",), ("profile",),
                                       ("memory",)])
@pytest.mark.parametrize("columns", ["50", "80"])
def test_no_line_of_help_is_cut(arguments, columns):
    out, _ = run(*arguments, "--help", COLUMNS=columns)
    assert "..." not in out.partition("\n")[2] and "\u2026" not in out  # the first line has ARGS...
    if not arguments:
        assert "what to do about it." in " ".join(out.split())


def test_numbers_stay_whole_in_a_narrow_window():
    from millpond.cli import _show
    from rich.console import Console

    console = Console(width=60, file=io.StringIO(), force_terminal=True, no_color=True)
    text = "a rather long text that does not fit into what is left of the line, and so goes on below"
    console.print(_show.rich_table(["model", "median ms", "bytes", ""], [(text, "1234.567", "123.4 MiB", text)],
                                   ["median ms", "bytes"]))
    shown = console.file.getvalue()
    assert "1234.567" in shown and "123.4 MiB" in shown and "median ms" in shown
    assert all(len(line) <= 60 for line in COLOUR.sub("", shown).splitlines())


def test_pools_of_another_device_are_not_shown(program, tmp_path):
    here = {"XDG_RUNTIME_DIR": str(tmp_path)}
    for arguments in (("--device", "cuda:77"), ("--watch", "--device", "cuda:77"), ("--device", "cuda:77", "--json")):
        assert "has no pool of any memory of cuda:77; it has " in refused("memory", *arguments, status=3, **here)
    assert "pinned memory of" in run("memory", **here)[0]
    shown = run("memory", "--device", program.where, "--memory", "device", **here)[0]
    assert f"device memory of {program.where}" in shown and "pinned memory" not in shown
