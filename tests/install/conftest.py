# SPDX-License-Identifier: Apache-2.0
"""One install by `make install`, moved to another place, for all tests that look at one."""

import shutil

import pytest
from install_kit import ROOT, build_folder, run


@pytest.fixture(scope="session")
def staged(tmp_path_factory):
    """DESTDIR, as a package builder has it."""
    folder = tmp_path_factory.mktemp("staged")
    run("make", "--no-print-directory", "-C", ROOT, "install", f"INSTALL_PRESET={build_folder().name}",
        f"DESTDIR={folder}", "PREFIX=/usr/local", MILLPOND_OFFLINE="1")
    return folder


@pytest.fixture(scope="session")
def prefix(staged, tmp_path_factory):
    """The installed tree under another name: nothing in it may say where it was."""
    folder = tmp_path_factory.mktemp("moved") / "place"
    shutil.copytree(staged / "usr/local", folder, symlinks=True)
    return folder
