# SPDX-License-Identifier: Apache-2.0
"""The group of commands, and what becomes of errors."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from typing import Any

import click

import millpond
from millpond import _core
from millpond.cli import FAILED, INTERRUPTED, NOTHING, OK, USAGE

COMPLETING = "_MILLPOND_COMPLETE"

# Command -> the module that has it; a module is imported when its command is asked for.
COMMANDS = {
    "doctor": "_doctor",
    "run": "_run",
    "bench": "_bench",
    "parity": "_parity",
    "explain": "_explain",
    "profile": "_profile",
    "memory": "_memory",
    "compile": "_compile",
    "shard": "_shard",
    "cache": "_cache",
    "completion": "_completion",
}


class Finding(Exception):
    """A command has done its work, or cannot do it, and ends with this code; the sentence may be empty."""

    def __init__(self, code: int, sentence: str = "") -> None:
        super().__init__(sentence)
        self.code = code


class Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        module = COMMANDS.get(cmd_name)
        if module is None:
            return None
        return importlib.import_module(f"millpond.cli.{module}").command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The first sentence of each, which goes on in the next line where one is too short for it."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, each.get_short_help_str(limit=1000)) for name, each in commands if each])


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(millpond.__version__, prog_name="millpond")
@click.option("--debug", is_flag=True, help="Show where an error came from.")
@click.pass_obj
def group(settings: dict[str, bool], debug: bool) -> None:
    """One pool of GPU memory for Numba, CuPy, PyTorch and ONNX Runtime, and an execution provider.

    Exit codes: 0 all is well; 1 something is wrong or failed; 2 the command line or an input is wrong; 3 it cannot be
    done here.
    """
    settings["debug"] = debug


def json_option(function: Any) -> Any:
    """Every command has it."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")(function)


def _say(sentence: str) -> None:
    if sentence:
        _core.log_flush()  # the log's lines come first
        print(f"millpond: {sentence}", file=sys.stderr)


# ONNX Runtime's errors for a file that is no model, or not one that it can run.
INPUT_ERRORS = {"InvalidProtobuf", "InvalidGraph", "NoSuchFile", "NoModel", "InvalidArgument"}


def _code_of(error: BaseException) -> int:
    if isinstance(error, Finding):
        return error.code
    if isinstance(error, millpond.InvalidArgumentError) or type(error).__name__ in INPUT_ERRORS:
        return USAGE
    if isinstance(error, (ImportError, millpond.UnsupportedError, millpond.NotFoundError)):
        return NOTHING
    return FAILED


def _sentence_of(error: BaseException) -> str:
    """What a user is told; an error that nobody foresaw is named."""
    text = " ".join(str(error).split())
    foreseen = (Finding, millpond.Error, ImportError, OSError, ValueError, MemoryError)
    if isinstance(error, foreseen) and (text or isinstance(error, Finding)):
        return text
    if type(error).__module__.startswith("onnxruntime") or "onnxruntime" in text.lower():
        from millpond._ort_native import sentence

        return f"ONNX Runtime: {sentence(error)}"
    return f"{type(error).__name__}: {text}; --debug shows where"


def run(arguments: list[str]) -> int:
    """Runs a command; gives its exit code."""
    settings = {"debug": False}
    if COMPLETING in os.environ:  # a shell asks what may come next
        group.main(arguments, prog_name="millpond", complete_var=COMPLETING)
    if not arguments:
        print(group.get_help(click.Context(group, info_name="millpond")), file=sys.stderr)
        return USAGE
    try:
        with group.make_context("millpond", list(arguments), obj=settings) as context:
            group.invoke(context)
        return OK
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except click.UsageError as error:
        _say(" ".join(error.format_message().split()))
        return USAGE
    except (click.Abort, KeyboardInterrupt):
        _say("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        raise
    except Exception as error:  # noqa: BLE001  every error becomes a sentence and a code
        if settings["debug"] and not isinstance(error, Finding):
            traceback.print_exc()
        _say(_sentence_of(error))
        return _code_of(error)
