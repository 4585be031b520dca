# SPDX-License-Identifier: Apache-2.0
"""`millpond shard`: one model as one for each of several GPUs."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from millpond.cli import FAILED, NOTHING, _options
from millpond.cli._app import Finding, json_option
from millpond.cli._show import Show, size

if TYPE_CHECKING:
    from millpond._shard_split import Plan

RANKS_MAX = 1024
REASONS_SHOWN = 8
EXPECTED = "needs whole rows"  # ends why a first product is not split by rows, which none is
NOTE = "shards.json"
DEFAULT_SIZES = {"batch": 1, "past": 3, "total": 10}  # of dimensions with such a word in their names
SEQUENCE = 7


def _modules() -> None:
    """Before any work is done."""
    try:
        import onnx  # noqa: F401
    except ModuleNotFoundError:
        raise Finding(NOTHING, "a model is split with the package onnx: pip install onnx") from None


def _wishes(given: dict[str, Any], session: Any) -> Any:
    """As the command line says; sizes of a language model that it does not say fit each other, and no token is
    masked."""
    wishes = _options.wishes_of(given)
    for argument in session.get_inputs():
        for dimension in argument.shape or []:
            if isinstance(dimension, str) and dimension not in wishes.sizes:
                word = next((word for word in DEFAULT_SIZES if word in dimension), None)
                sized = DEFAULT_SIZES[word] if word else SEQUENCE if "seq" in dimension else None
                if sized is not None:
                    wishes.sizes[dimension] = sized
        if argument.name == "attention_mask" and argument.name not in wishes.files:
            wishes.values.setdefault(argument.name, 1.0)
    return wishes


def _feeds(path: Path, given: dict[str, Any]) -> dict[str, Any]:
    from millpond.cli import _inputs

    session = _options.any_session(path)
    return _inputs.feeds(session, _wishes(given, session))


def _report(plan: Plan, paths: list[Path]) -> dict[str, Any]:
    from millpond._shard_model import title

    decided, model = plan.decided, plan.model

    def cuts(values: Any) -> dict[str, Any]:
        return {value.name: asdict(decided.cuts[value.name]) for value in values if value.name in decided.cuts}

    return {
        "ranks": plan.ranks,
        "models": [path.name for path in paths],
        "columns": [title(plan.node(number)) for number in sorted(decided.columns - decided.gathered)],
        "rows": [title(plan.node(number)) for number in sorted(decided.rows)],
        "gathered": [title(plan.node(number)) for number in sorted(decided.gathered)],
        "whole": {title(plan.node(number)): why for number, why in sorted(plan.refused.items())},
        "inputs": cuts(model.graph.input),
        "outputs": cuts(model.graph.output),
        "bytes": plan.bytes(),
    }


def _say(show: Show, report: dict[str, Any]) -> None:
    sizes = report["bytes"]
    show.line(f"{len(report['columns'])} products split by columns, {len(report['rows'])} by rows with an AllReduce "
              f"behind each, {len(report['gathered'])} by columns with an AllGather")
    show.line(f"weights: {size(sizes['whole'])} whole, {size(sizes['rank'])} a rank; "
              f"{size(sizes['whole'] - sizes['split'])} of them on every rank")
    for kind in ("inputs", "outputs"):
        if report[kind]:
            names = list(report[kind])
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            show.line(f"{kind} of which each rank has a part: {', '.join(names[:3])}{more}")
    reasons = Counter(report["whole"].values())
    for why, count in reasons.most_common(REASONS_SHOWN):
        example = next(name for name, its in report["whole"].items() if its == why)
        more = f" and {count - 1} more" if count > 1 else ""
        show.line(f"whole: {example}{more}: {why}")
    if len(reasons) > REASONS_SHOWN:
        show.line(f"{len(reasons) - REASONS_SHOWN} more reasons are in {NOTE}")


def _check(plan: Plan, feeds: dict[str, Any], paths: list[Path]) -> list[dict[str, Any]]:
    from millpond import _shard_check
    from millpond.cli._compare import compare

    expected = _shard_check.whole_outputs(plan.model, feeds)
    results = _shard_check.rank_outputs(paths, feeds, plan.decided.cuts)
    together = _shard_check.joined(results, plan.decided.cuts)
    return [asdict(compare(name, together[name], expected[name])) for name in expected]


@click.command("shard")
@click.argument("model", type=_options.MODEL)
@click.option("--ranks", required=True, type=click.IntRange(2, RANKS_MAX), help="How many GPUs there are.")
@click.option("--out", required=True, type=click.Path(file_okay=False, path_type=Path), metavar="FOLDER",
              help="Where the ranks' models are written.")
@click.option("--check/--no-check", default=True, show_default=True,
              help="Run all ranks on emulated devices, and compare with the whole model.")
@_options.input_options
@json_option
def command(model: Path, ranks: int, out: Path, check: bool, as_json: bool, **given: Any) -> None:
    """Split a model into one for each of several GPUs.

    Attention heads and the products around them are dealt to the ranks; AllReduce adds up what they have. The model
    runs once for the shapes of its values: inputs that no file gives are made up.
    """
    _modules()
    from millpond import _shard_check, _shard_split, _shard_write
    from millpond._shard_model import Model

    show = Show(as_json)
    whole = Model(model)
    feeds = _feeds(model, given)
    whole.shapes = _shard_check.shapes(whole, feeds)
    plan = _shard_split.plan(whole, ranks)
    if not plan.decided.rows and not plan.decided.gathered:
        whys = sorted(plan.refused.values(), key=lambda why: why.endswith(EXPECTED))
        raise Finding(FAILED, f"nothing of {model.name} can be split: "
                              f"{whys[0] if whys else 'it has no product with a constant weight'}")
    out.mkdir(parents=True, exist_ok=True)
    with show.progress(ranks, "writing") as step:
        paths = []
        for rank in range(ranks):
            paths.append(_shard_write.write(plan, rank, out))
            step()
    report = _report(plan, paths)
    (out / NOTE).write_text(json.dumps(report, indent=2), encoding="utf-8")
    _say(show, report)
    if check:
        report["check"] = _check(plan, feeds, paths)
    show.data(report)
    wrong = [each for each in report.get("check", ()) if not each["ok"]]
    if wrong:
        raise Finding(FAILED, f"the ranks together give other values of {wrong[0]['output']!r}: relative difference "
                              f"{wrong[0]['relative']:.3g}")
    if check:
        largest = max((each["relative"] or 0.0 for each in report["check"]), default=0.0)
        show.line(f"{ranks} ranks on emulated devices agree with the whole model: relative difference {largest:.2g}")
