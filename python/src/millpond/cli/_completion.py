# SPDX-License-Identifier: Apache-2.0
"""`millpond completion`: what a shell needs to complete the command line."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from millpond.cli import _app

SHELLS = ("bash", "zsh", "fish")


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
def command(shell: str) -> None:
    """Print the completion script of a shell.

    For bash: eval "$(millpond completion bash)" in ~/.bashrc.
    """
    kind = get_completion_class(shell)
    assert kind is not None  # the shells above are click's own
    click.echo(kind(_app.group, {}, "millpond", _app.COMPLETING).source())
