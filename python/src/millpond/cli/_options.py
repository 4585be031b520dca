# SPDX-License-Identifier: Apache-2.0
"""Options that several commands have, and sessions as they ask for."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

import millpond
from millpond.cli import NOTHING
from millpond.cli._app import Finding
from millpond.cli._inputs import Wishes, read_wishes

THREADS_MAX = 1024  # ONNX Runtime starts as many as it is told

MODEL = click.Path(exists=True, dir_okay=False, path_type=Path)
MODEL_OR_FOLDER = click.Path(exists=True, path_type=Path)


class Finite(click.FloatRange):
    """A number in a range, of which every comparison holds or does not: not nan, and not infinite."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


def _together(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def apply(function: Any) -> Any:
        for option in reversed(options):
            function = option(function)
        return function

    return apply


provider_option = click.option("--option", "options", multiple=True, metavar="KEY=VALUE",
                               help="Option of the provider.")

session_options = _together(
    click.option("--device", default="auto", show_default=True, help='"auto", "cuda:N" or "host:N" (emulated).'),
    provider_option,
    click.option("--threads", default=0, show_default="all", type=click.IntRange(0, THREADS_MAX),
                 help="Threads of ONNX Runtime for the CPU's nodes."),
)

input_options = _together(
    click.option("--input", "inputs", multiple=True, metavar="[NAME=]FILE",
                 help="A .npy, .npz or picture file to read an input from; the arrays of a .npz have inputs' names."),
    click.option("--shape", "shapes", multiple=True, metavar="NAME=1,3,224,224", help="Shape of a made-up input."),
    click.option("--dim", "sizes", multiple=True, metavar="DIM=N", help="Size of a named dimension."),
    click.option("--fill", "fills", multiple=True, metavar="NAME=VALUE", help="Value of a made-up input, not random."),
    click.option("--seed", default=0, show_default=True, type=click.IntRange(0), help="Of random inputs."),
    click.option("--mean", default="0", show_default=True, help="Taken off the channels of a picture in [0, 1]."),
    click.option("--std", default="1", show_default=True, help="What they are then divided by."),
)


def wishes_of(given: Mapping[str, Any]) -> Wishes:
    """The input options of a command."""
    return read_wishes(given["inputs"], given["shapes"], given["sizes"], given["fills"], given["seed"], given["mean"],
                       given["std"])


def provider_options(pairs: Sequence[str]) -> dict[str, str]:
    options = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise click.UsageError(f"--option {pair}: say --option KEY=VALUE")
        options[key] = value
    return options


def quiet(options: Any, threads: int) -> Any:
    """Sets ONNX Runtime's SessionOptions up for a command."""
    options.intra_op_num_threads = threads
    options.log_severity_level = 4  # what fails is raised as well; warnings of ours come by the provider's own log
    return options


def cpu_session(path: Path, threads: int) -> Any:
    """The model on ONNX Runtime's CPU provider, which others are compared with. Raises Finding where that lacks an
    operator of it, or a type as it does most of bfloat16."""
    from millpond._ort_native import ort, sentence
    from millpond._ort_register import CPU

    try:
        return ort.InferenceSession(str(path), quiet(ort.SessionOptions(), threads), providers=[CPU])
    except Exception as error:
        if type(error).__name__ != "NotImplemented":
            raise
        raise Finding(NOTHING, f"ONNX Runtime's CPU provider cannot run {path.name}: {sentence(error)}") from error


def any_session(path: Path) -> Any:
    """The model on the CPU provider, or, where that lacks operators, on ours and the emulated device."""
    import millpond.onnxruntime as mort

    try:
        return cpu_session(path, 0)
    except Exception:  # noqa: BLE001  ONNX Runtime's errors have many classes
        return mort.session(str(path), find_device("host:0"))


def find_device(device: str) -> Any:
    """A device of the provider. What --device names has precedence over MILLPOND_DEVICE.

    Commands time runs, so they wait for kernels that other programs would have compiled meanwhile.
    """
    import millpond.onnxruntime as mort
    from millpond import _ort_register

    os.environ.setdefault("MILLPOND_STAND_IN", "off")
    kind = device.partition(":")[0]
    if kind in ("cuda", "host") and not mort.is_registered():
        _check_there(device)
        os.environ["MILLPOND_DEVICE"] = kind
    try:
        return _ort_register.find(int(device) if device.isdecimal() else device)
    except millpond.NotFoundError:
        there = ", ".join(each.spec for each in mort.devices())
        raise Finding(NOTHING, f"--device {device}: there is no such device here, only {there}") from None
    except millpond.Error as error:
        raise Finding(NOTHING, f"--device {device}: {error}") from None


def _check_there(device: str) -> None:
    """Before the provider is told of it, which knows of no command line and would blame a variable."""
    try:
        millpond.Pool(device, client="command line").close()
    except millpond.NotFoundError as error:
        sentence = str(error).removeprefix(f"the device asked for is '{device}', but ")
        raise Finding(NOTHING, f"--device {device}: {sentence}") from None


def writable(context: click.Context, parameter: click.Parameter, path: Path | None) -> Path | None:
    """For an option that names a file to be written: its folder is there, before any work is done."""
    if path is not None and not path.absolute().parent.is_dir():
        raise click.UsageError(f"{parameter.opts[0]} {path}: there is no folder {path.parent}")
    return path
