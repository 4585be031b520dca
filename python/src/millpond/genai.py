# SPDX-License-Identifier: Apache-2.0
"""onnxruntime-genai on the pool: its models run on the execution provider.

    import millpond.genai
    import onnxruntime_genai as og

    model = og.Model(millpond.genai.config("folder of the model"))

onnxruntime-genai has an ONNX Runtime of its own, beside the one of the module onnxruntime. register() lets it load a
copy of the provider, so that both can be used in a process; they share the pool.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from millpond import get_ep_name, get_library_path
from millpond._core import Error, InvalidArgumentError, NotFoundError
from millpond._log import flushed

try:
    import onnxruntime_genai as _og
except ImportError as _error:
    raise ImportError(
        f"millpond.genai needs onnxruntime-genai, which cannot be imported ({_error}); pip install onnxruntime-genai"
    ) from _error

__all__ = ["config", "register"]

NAME = get_ep_name()
CUDA_NAME = "CUDAExecutionProvider"  # for which onnxruntime-genai goes its own CUDA path
_ADD_ON = "libonnxruntime-genai-cuda.so"  # which has that path, in the package onnxruntime-genai-cuda

_lock = threading.Lock()
_registered: str | None = None


def _has_add_on() -> bool:
    return (Path(_og.__file__).parent / _ADD_ON).is_file()


def _best_name() -> str:
    return CUDA_NAME if _has_add_on() and os.environ.get("MILLPOND_DEVICE") != "host" else NAME


def _check_name(name: str) -> None:
    if name not in (NAME, CUDA_NAME):
        raise InvalidArgumentError(f"to onnxruntime-genai the provider is {NAME} or {CUDA_NAME}, and not {name!r}")
    if name == CUDA_NAME and not _has_add_on():
        raise NotFoundError(
            f"for {CUDA_NAME} onnxruntime-genai needs {_ADD_ON}, which the package onnxruntime-genai-cuda has and this "
            f"one has not; install that one, or register the provider as {NAME}"
        )


def _register(name: str, library: Path) -> None:
    """With a copy: a library works for one ONNX Runtime only, and the module onnxruntime may want the file itself."""
    if not library.is_file():
        raise NotFoundError(f"the provider's library {library} is not there")
    with tempfile.TemporaryDirectory(prefix="millpond-") as folder, flushed():
        try:
            _og.register_execution_provider_library(name, shutil.copy(library, folder))
        except RuntimeError as error:
            raise Error(
                f"onnxruntime-genai {_og.__version__} refused a copy of {library} in {folder} (TMPDIR names another "
                f"place): {error}"
            ) from error


def register(name: str | None = None, *, library: str | os.PathLike[str] | None = None) -> str:
    """Registers the provider with onnxruntime-genai, once in a process, and gives the name that it goes by.

    name: "CUDAExecutionProvider", with which onnxruntime-genai keeps caches, inputs and its search on the GPU, or
    "CudaPluginExecutionProvider", with which it keeps them in the host's memory. By default the former where the
    package is onnxruntime-genai-cuda and MILLPOND_DEVICE is not "host".
    library: the provider's file, by default that of this package. A copy of it is loaded.
    The second time it does nothing. Raises Error where it was registered under another name, or is refused;
    NotFoundError for "CUDAExecutionProvider" where the package has no part for CUDA.
    """
    global _registered
    with _lock:
        if _registered is not None:
            if name is not None and name != _registered:
                raise Error(f"the provider is registered with onnxruntime-genai as {_registered}, and not as {name!r}")
            return _registered
        wanted = name or _best_name()
        _check_name(wanted)
        _register(wanted, Path(library or get_library_path()).absolute())
        _registered = wanted
        return wanted


def _text(value: object) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def config(
    model: str | os.PathLike[str], *, options: Mapping[str, object] | None = None, name: str | None = None
) -> Any:
    """An `onnxruntime_genai.Config` of a model's folder with this provider in place of those that it names.

    options: of the provider, such as {"enable_cuda_graph": True}; docs/settings.md lists them. Those that the folder's
    genai_config.json has for "cuda" stay where the provider goes by the name CUDAExecutionProvider.
    name: as for register(), which is called if necessary.
    Raises what register() raises, and RuntimeError where onnxruntime-genai cannot read the folder. An option that the
    provider does not have is an error of `onnxruntime_genai.Model`.
    """
    found = "cuda" if register(name) == CUDA_NAME else NAME
    made = _og.Config(os.fspath(model))
    made.clear_providers()
    made.append_provider(found)
    for key, value in (options or {}).items():
        made.set_provider_option(found, str(key), _text(value))
    made.overlay(json.dumps({"model": {"decoder": {"session_options": {"millpond.strict": "1"}}}}))
    return made
