# SPDX-License-Identifier: Apache-2.0
"""Inputs of a model: from files, or made up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import numpy as np

from millpond import _ort_beyond_numpy as beyond
from millpond import _ort_types as types

IMAGES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm"}
CHANNELS = (1, 3)
RANDOM_INTEGERS = 10  # made-up integers are from 0 up to this one, without it


@dataclass
class Wishes:
    """What the command line says of inputs."""

    files: dict[str, Path] = field(default_factory=dict)  # "" for a file that names no input
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)  # of named dimensions
    values: dict[str, float] = field(default_factory=dict)
    seed: int = 0
    mean: tuple[float, ...] = (0.0,)
    deviation: tuple[float, ...] = (1.0,)
    sources: dict[str, str] = field(default_factory=dict)  # what came of it, for the report


def _pair(text: str, option: str, form: str) -> tuple[str, str]:
    name, equals, value = text.rpartition("=")
    if not equals or not name or not value:
        raise click.UsageError(f"{option} {text}: say {option} {form}")
    return name, value


def _numbers(text: str, option: str, kind: Any) -> tuple[Any, ...]:
    try:
        return tuple(kind(part) for part in text.replace("x", ",").split(",") if part)
    except ValueError:
        raise click.UsageError(f"{option}: {text!r} is no list of numbers such as 1,3,224,224") from None


def _sizes(text: str, option: str) -> tuple[int, ...]:
    sizes = _numbers(text, option, int)
    if any(size < 0 for size in sizes):
        raise click.UsageError(f"{option}: {text!r} has a negative size")
    return sizes


def read_wishes(
    inputs: Sequence[str], shapes: Sequence[str], sizes: Sequence[str], fills: Sequence[str], seed: int,
    mean: str, deviation: str,
) -> Wishes:
    """The options --input, --shape, --dim, --fill, --seed, --mean and --std."""
    wishes = Wishes(seed=seed, mean=_numbers(mean, "--mean", float), deviation=_numbers(deviation, "--std", float))
    for text in inputs:
        name, equals, file = text.partition("=")
        path = Path(file if equals else text)
        if not path.is_file():
            raise click.UsageError(f"--input {text}: there is no file {path}")
        wishes.files[name if equals else ""] = path
    for text in shapes:
        name, value = _pair(text, "--shape", "NAME=1,3,224,224")
        wishes.shapes[name] = _sizes(value, "--shape")
    for text in sizes:
        name, value = _pair(text, "--dim", "NAME=16")
        wishes.sizes[name] = (_sizes(value, "--dim") or (0,))[0]
    for text in fills:
        name, value = _pair(text, "--fill", "NAME=1")
        wishes.values[name] = (_numbers(value, "--fill", float) or (0.0,))[0]
    return wishes


# ---- files ----


def _dtype(tensor: str) -> Any:
    """NumPy's type for the elements of a "tensor(float)"; None for what is made of no numbers."""
    other = beyond.from_tensor(tensor)
    if other is not None:
        return beyond.dtype(other.name)
    kind = types.from_tensor(tensor)
    return None if kind is None else np.dtype(kind.name)


def _converted(array: Any, argument: Any, where: str) -> Any:
    """An array as the model's type, where nothing much is lost by it."""
    other, wanted = beyond.from_tensor(argument.type), _dtype(argument.type)
    if wanted is None or array.dtype == wanted:
        return array
    if other is not None and array.dtype == np.dtype(f"V{wanted.itemsize}"):  # as files of NumPy's bring it back
        return array.view(wanted)
    if other is not None and array.dtype.kind in ("f" if other.is_float else "iu"):
        return array.astype(wanted)
    if not np.can_cast(array.dtype, wanted, "same_kind"):
        raise click.UsageError(
            f"{where} is {array.dtype}, and the model's input {argument.name!r} is a {argument.type}"
        )
    return array.astype(wanted)


def _picture_size(shape: Sequence[Any], given: tuple[int, ...] | None, first: int) -> tuple[int, int] | None:
    """Height and width that the model or the command line asks for; None: as the picture is."""
    for source in (given, shape):
        sizes = source[first : first + 2] if source is not None else ()
        if len(sizes) == 2 and all(isinstance(size, int) and size > 0 for size in sizes):
            return sizes[0], sizes[1]
    return None


def _picture(path: Path, argument: Any, wishes: Wishes) -> Any:
    """A picture as a batch of one: channels first or last, as the model's shape says."""
    try:
        from PIL import Image
    except ModuleNotFoundError:
        raise click.UsageError(f"{path} is a picture, which takes Pillow to read: pip install Pillow") from None
    shape = list(argument.shape or [])
    if len(shape) != 4:
        raise click.UsageError(f"{path} is a picture, and the model's input {argument.name!r} has the shape {shape}")
    last = shape[3] in CHANNELS and shape[1] not in CHANNELS
    channels = shape[3] if last else shape[1] if shape[1] in CHANNELS else 3
    size = _picture_size(shape, wishes.shapes.get(argument.name), 1 if last else 2)
    try:
        with Image.open(path) as opened:
            image = opened.convert("L" if channels == 1 else "RGB")
    except OSError as error:
        raise click.UsageError(f"{path} cannot be read as a picture: {error}") from None
    if size is not None:
        image = image.resize((size[1], size[0]), Image.Resampling.BILINEAR)
    pixels = np.asarray(image).reshape(image.height, image.width, channels)
    kind = types.from_tensor(argument.type)
    if kind is not None and kind.name != "uint8":
        scaled = (pixels.astype(np.float32) / 255 - np.array(wishes.mean)) / np.array(wishes.deviation)
        pixels = scaled.astype(np.float32)
    batch = pixels[None] if last else pixels.transpose(2, 0, 1)[None]
    return np.ascontiguousarray(batch)


def _load(path: Path) -> dict[str, Any]:
    """The arrays of a file of NumPy's: by their names, or under "" the only one."""
    try:
        found = np.load(path, allow_pickle=False)
        return {"": found} if isinstance(found, np.ndarray) else {key: found[key] for key in found.files}
    except (OSError, ValueError, EOFError) as error:
        raise click.UsageError(f"{path} cannot be read: {error}") from None


def _from_files(arguments: Mapping[str, Any], wishes: Wishes) -> dict[str, Any]:
    feeds: dict[str, Any] = {}
    for name, path in wishes.files.items():
        is_picture = path.suffix.lower() in IMAGES
        found = {"": None} if is_picture else _load(path)
        if set(found) == {""}:
            found = {name or _only(arguments, path): found[""]}
        for key, array in found.items():
            _check_names(arguments, (key,), f"{path}: ")
            array = _picture(path, arguments[key], wishes) if is_picture else array
            feeds[key] = _converted(array, arguments[key], f"{path} ({key})")
            wishes.sources[key] = str(path)
    return feeds


def _only(arguments: Mapping[str, Any], path: Path) -> str:
    if len(arguments) != 1:
        raise click.UsageError(f"--input {path}: say for which input: --input NAME={path}; the model has "
                               f"{', '.join(arguments)}")
    return next(iter(arguments))


# ---- made up ----


def _shape(argument: Any, wishes: Wishes) -> tuple[int, ...]:
    """The shape of an input whose open dimensions the command line tells; the first one is 1 if it does not."""
    if argument.name in wishes.shapes:
        return wishes.shapes[argument.name]
    sizes = []
    for i, size in enumerate(argument.shape or []):
        if isinstance(size, int) and size >= 0:
            sizes.append(size)
        elif isinstance(size, str) and size in wishes.sizes:
            sizes.append(wishes.sizes[size])
        elif i == 0:
            sizes.append(1)
        else:
            shape = ",".join(str(each) if each is not None else "?" for each in argument.shape)
            named = f"--dim {size}=N or " if isinstance(size, str) else ""
            raise click.UsageError(f"the size of dimension {i} of the input {argument.name!r} ({shape}) is open; say "
                                   f"{named}--shape {argument.name}=...")
    return tuple(sizes)


def _made(argument: Any, wishes: Wishes, generator: Any) -> Any:
    dtype = _dtype(argument.type)
    if dtype is None:
        is_array = argument.type.startswith("tensor(")
        means = f"give --input {argument.name}=FILE" if is_array else "no file holds them either"
        raise click.UsageError(f"values of {argument.type}, the type of the input {argument.name!r}, are not made up; "
                               f"{means}")
    shape, other = _shape(argument, wishes), beyond.from_tensor(argument.type)
    if argument.name in wishes.values:
        wishes.sources[argument.name] = f"filled with {wishes.values[argument.name]:g}"
        return np.full(shape, wishes.values[argument.name]).astype(dtype)
    wishes.sources[argument.name] = "random"
    if dtype.kind == "f" or (other is not None and other.is_float):
        return generator.standard_normal(shape).astype(dtype)
    if dtype.kind == "b":
        return generator.integers(0, 2, shape).astype(dtype)
    high = RANDOM_INTEGERS if other is None else 1 << (other.bits - 1)  # which signed ones hold, too
    return generator.integers(0, high, shape).astype(dtype)


def feeds(session: Any, wishes: Wishes) -> dict[str, Any]:
    """{input: array} for a session, read or made up; `wishes.sources` then says which."""
    arguments = {argument.name: argument for argument in session.get_inputs()}
    wishes.sources.clear()
    _check_names(arguments, (*wishes.shapes, *wishes.values))
    _check_dimensions(arguments, wishes.sizes)
    ready = _from_files(arguments, wishes)
    generator = np.random.default_rng(wishes.seed)
    for name, argument in arguments.items():
        if name not in ready and not argument.type.startswith("optional"):
            ready[name] = _made(argument, wishes, generator)
    return ready


def _check_names(arguments: Mapping[str, Any], names: Iterable[str], where: str = "") -> None:
    for name in names:
        if name not in arguments:
            raise click.UsageError(f"{where}the model has no input {name!r}; it has {', '.join(arguments) or 'none'}")


def _check_dimensions(arguments: Mapping[str, Any], names: Iterable[str]) -> None:
    there = dict.fromkeys(
        size for argument in arguments.values() for size in argument.shape or () if isinstance(size, str)
    )
    for name in names:
        if name not in there:
            raise click.UsageError(f"--dim {name}: the model's inputs have no dimension {name!r}; they have "
                                   f"{', '.join(there) or 'none with a name'}")
