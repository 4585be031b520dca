# SPDX-License-Identifier: Apache-2.0
"""The Debian packages: built, looked into, unpacked into an empty root by dpkg, and used there."""

import re
import shutil
import sys

import needs
import pytest
import version
from install_kit import C_WARNINGS, ROOT, build_folder, run

VERSION = version.version()
PACKAGES = ("libmillpond0", "libmillpond-dev", "millpond-provider")


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """name -> file."""
    for program in ("dpkg-deb", "dpkg-shlibdeps", "lintian"):
        needs.program(program)
    out = tmp_path_factory.mktemp("deb")
    kernels = build_folder() / "libmillpond_host_kernels.a"
    given = ["--kernels", kernels] if kernels.is_file() else []
    said = run(sys.executable, ROOT / "tools/deb.py", "--out", out, "--build", ROOT / "build/deb", *given)
    assert not re.search(r"^[EW]: ", said, re.M), said  # lintian's
    found = {path.name.partition("_")[0]: path for path in out.glob("*.deb")}
    assert sorted(found) == sorted(PACKAGES)
    return found


def field(package, name):
    return run("dpkg-deb", "-f", package, name).strip()


@pytest.fixture(scope="module")
def root(packages, tmp_path_factory):
    """An empty root in which dpkg has installed them; what they need of Debian is the machine's."""
    folder = tmp_path_factory.mktemp("root")
    for name in ("updates", "info"):
        (folder / "var/lib/dpkg" / name).mkdir(parents=True)
    (folder / "var/lib/dpkg/status").touch()
    run("dpkg", f"--root={folder}", "--force-depends", "--force-not-root", "--force-script-chrootless", "--unpack",
        *packages.values())
    return folder


def test_what_they_need(packages):
    assert re.fullmatch(r"libc6 \(>= 2\.\d+\)", field(packages["libmillpond0"], "Depends"))
    assert field(packages["libmillpond-dev"], "Depends") == f"libmillpond0 (= {VERSION})"
    provider = field(packages["millpond-provider"], "Depends").split(", ")
    assert f"libmillpond0 (= {VERSION})" in provider
    assert all(re.match(r"libmillpond0 |libc6 ", each) for each in provider), provider
    for package in packages.values():
        assert field(package, "Version") == VERSION


def test_shlibs_name_the_package(packages, tmp_path):
    run("dpkg-deb", "-e", packages["libmillpond0"], tmp_path)
    assert (tmp_path / "shlibs").read_text(encoding="utf-8") == f"libmillpond 0 libmillpond0 (>= {VERSION})\n"
    assert "ldconfig" in (tmp_path / "triggers").read_text(encoding="utf-8")


def test_dpkg_knows_them(root):
    for name in PACKAGES:
        assert "install ok unpacked" in run("dpkg-query", f"--admindir={root / 'var/lib/dpkg'}", "-s", name)
    assert run("dpkg", f"--root={root}", "--verify") == ""


def test_a_program_is_built_and_run_with_them(root, tmp_path):
    libraries = next((root / "usr/lib").glob("*/libmillpond.so")).parent
    flags = run(needs.program("pkg-config"), "--cflags", "--libs", "millpond",
                PKG_CONFIG_PATH=str(libraries / "pkgconfig")).split()
    run("cc", *C_WARNINGS, ROOT / "examples/pool.c", *flags, "-o", tmp_path / "pool")
    said = run(tmp_path / "pool", LD_LIBRARY_PATH=str(libraries))
    assert re.fullmatch(r"1 MiB of device memory at 0x[0-9a-f]+\n", said)


def test_the_provider_runs_a_model(root, tmp_path):
    import small_models

    plugin = next((root / "usr/lib").glob("*/millpond/libonnxruntime_providers_cuda_plugin.so"))
    (tmp_path / "model.onnx").write_bytes(small_models.add_chain(3))
    code = f"""
import numpy as np, onnxruntime as ort
ort.register_execution_provider_library("deb", {str(plugin)!r})
device = next(each for each in ort.get_ep_devices() if each.ep_name == "CudaPluginExecutionProvider")
options = ort.SessionOptions()
options.add_provider_for_devices([device], {{}})
options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
session = ort.InferenceSession({str(tmp_path / "model.onnx")!r}, options)
print(session.run(None, {{"x": np.arange(4, dtype=np.float32)}})[0].tolist())
"""
    assert run(sys.executable, "-c", code) == "[3.0, 4.0, 5.0, 6.0]\n"


def test_the_manual_page_is_there(root):
    page = root / "usr/share/man/man3/millpond.h.3.gz"
    assert page.is_file()
    if shutil.which("zcat"):
        assert run("zcat", page) == (ROOT / "docs/man/millpond.h.3").read_text(encoding="utf-8")
