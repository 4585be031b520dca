# SPDX-License-Identifier: Apache-2.0
"""One pool for all libraries of a process, on a GPU: memory at peak against a pool each, and long random work."""

import json
import os

import pytest
from gpu_kit import HERE, gpu_of, run_case

MIB = 1 << 20
ROOT = HERE.parents[1]
OPERATIONS = os.environ.get("MILLPOND_ONE_POOL_OPERATIONS", "100000")


@pytest.fixture(scope="module", autouse=True)
def gpu():
    gpu_of("cupy")
    gpu_of("torch")
    for name in ("numba.cuda", "onnxruntime", "onnx"):
        pytest.importorskip(name)


def last_line(text):
    return json.loads(text.splitlines()[-1])


@pytest.mark.alone
def test_four_pools_and_one(tmp_path, summary):
    """The example: every phase's values are checked, and one pool needs less."""
    file = tmp_path / "one_pool.json"
    printed = run_case(str(ROOT / "examples" / "one_pool.py"), "--mib", "1024", "--json", str(file), limit_s=400)
    results = json.loads(file.read_text(encoding="utf-8"))
    own, one = results["own"]["peak"], results["one"]["peak"]
    summary(f"device memory at peak: {own / MIB:.0f} MiB with four pools, {one / MIB:.0f} MiB with one")
    assert one < 0.75 * own, printed
    used = [phase["used_after"] for phase in results["one"]["phases"]]
    assert used[-1] <= used[len(used) // 2 - 1] + 64 * MIB, f"the second round has grown: {used}"


def test_random_phases(summary):
    seen = last_line(run_case("one_pool_cases.py", "random_phases", OPERATIONS, limit_s=560))
    summary(f"{seen['operations']} random operations in {seen['seconds']:.0f} s: {seen['counts']}, {seen['checks']} "
            f"checked; at most {seen['total_max'] / MIB:.0f} MiB had for {seen['budget'] / MIB:.0f} MiB of arrays")
    assert all(count > 0 for count in seen["counts"].values()) and seen["checks"] > 0
    assert seen["total_second_half"] <= 1.25 * seen["total_first_half"]
    assert seen["resident_end"] <= seen["resident_half"] + 256 * MIB
    assert seen["streams"] < 200
    for name in ("cupy", "torch", "numba"):
        assert seen["left"].get(name, 0) < 64 * MIB, (name, seen["left"])


@pytest.mark.alone
def test_a_child_that_dies():
    assert last_line(run_case("one_pool_cases.py", "dying_child"))["grown"] > 0


def test_all_at_once():
    assert len(last_line(run_case("one_pool_cases.py", "threads"))["libraries"]) == 4


EXAMPLES = {
    "cupy_pool.py": ("sum 499999500000", "refused: cannot allocate 35184372088832 bytes of device memory", "b is 4"),
    "torch_pool.py": ("gradient (10, 100)", "refused: cannot allocate 35184372088832 bytes", "sum 1000000", "b is 4"),
    "torch_mem_pool.py": ("sum 10000000", "refused: CUDA out of memory.", "gradient 2000"),
}


@pytest.mark.parametrize("example", EXAMPLES)
def test_example(example):
    printed = run_case(str(ROOT / "examples" / example))
    for words in EXAMPLES[example]:
        assert words in printed, printed
