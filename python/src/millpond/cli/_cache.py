# SPDX-License-Identifier: Apache-2.0
"""`millpond cache`: kernels on disk, and how to be rid of those that were compiled here."""

from __future__ import annotations

import click

from millpond.cli import _kernel_files
from millpond.cli._app import json_option
from millpond.cli._show import Show, size


@click.command("cache")
@click.option("--clear", is_flag=True, help="Remove what was compiled here.")
@json_option
def command(clear: bool, as_json: bool) -> None:
    """Show the kernels on disk: those that came with the package, and those that were compiled here.

    Processes that run meanwhile keep what they have loaded; what is removed is compiled again when it is needed.
    """
    show = Show(as_json)
    folder, ready_folder = _kernel_files.cache_folder(), _kernel_files.ready_folder()
    removed = _kernel_files.cache_clear(folder) if clear else None
    count, total = _kernel_files.cache_size(folder)
    ready = sorted(_kernel_files.ready(ready_folder))
    problem = _kernel_files.cache_problem(folder)
    show.data({
        "folder": str(folder), "files": count, "bytes": total, "limit": _kernel_files.cache_limit(),
        "problem": problem, "removed": removed and {"files": removed[0], "bytes": removed[1]},
        "ready_folder": ready_folder and str(ready_folder),
        "ready": [{"arch": arch, "kernels": kernels, "bytes": taken} for arch, kernels, taken in ready],
    })
    show.heading("Compiled here")
    if removed:
        show.line(f"{removed[0]} files removed, {size(removed[1])}")
    show.line(problem or f"{folder}: {count} files, {size(total)} (keeps to {_kernel_files.cache_limit()})")
    show.heading("With the package")
    if ready:
        show.line(str(ready_folder))
        rows = [(f"sm_{arch}", kernels, size(taken)) for arch, kernels, taken in ready]
        show.table(["for", "kernels", "bytes"], rows, right=["kernels", "bytes"])
    elif ready_folder is None:
        show.line("none: MILLPOND_KERNELS is no path from the root")
    else:
        show.line(f"none in {ready_folder}: each kernel is compiled when it is first needed")
