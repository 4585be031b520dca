# SPDX-License-Identifier: Apache-2.0
"""What a release says of itself, and the comparison of two; `tools/check_reproducible.py` makes two, by hand."""

import json
import os
import re
import subprocess
import sys
import zipfile

import check_reproducible
import pytest
import release
from install_kit import ROOT

SECONDS = 1_700_000_000


@pytest.fixture
def files(tmp_path):
    made = [tmp_path / name for name in ("millpond-0.tar.gz", "libmillpond0.deb")]
    for path in made:
        path.write_bytes(path.name.encode())
    return made


def test_the_list_names_what_is_in_it_and_what_is_not(files):
    found = release.contents(files, SECONDS)
    assert (found["bomFormat"], found["specVersion"]) == ("CycloneDX", "1.6")
    assert found["metadata"]["timestamp"] == "2023-11-14T22:13:20Z"
    assert found["metadata"]["component"]["version"] == release.version()
    by_name = {each["name"]: each for each in found["components"]}
    for path in files:
        assert by_name[path.name]["hashes"] == [{"alg": "SHA-256", "content": release.sum_of(path)}]
    assert by_name["click"]["scope"] == "required"
    assert by_name["torch"]["scope"] == "optional"
    assert by_name["cudnn"]["description"].startswith("not in the release")
    references = [each["bom-ref"] for each in found["components"]]
    assert len(references) == len(set(references))
    assert set(found["dependencies"][0]["dependsOn"]) <= set(references)


def test_the_list_is_the_same_each_time_and_another_for_other_files(files):
    texts = [json.dumps(release.contents(files, SECONDS)) for _ in range(2)]
    assert texts[0] == texts[1]
    files[0].write_bytes(b"more")
    assert release.contents(files, SECONDS)["serialNumber"] != json.loads(texts[0])["serialNumber"]
    assert re.fullmatch(r"urn:uuid:[0-9a-f-]{36}", json.loads(texts[0])["serialNumber"])


def archive(folder, texts, time=(2020, 1, 1, 0, 0, 0)):
    folder.mkdir()
    with zipfile.ZipFile(folder / "some.whl", "w") as out:
        for name, text in texts.items():
            out.writestr(zipfile.ZipInfo(name, time), text)
    return folder


def test_the_comparison_names_what_differs(tmp_path, capsys):
    one = archive(tmp_path / "one", {"a": "1", "b": "2"})
    assert check_reproducible.compare(one, archive(tmp_path / "same", {"a": "1", "b": "2"})) == 0
    assert "1 passed, 0 failed" in capsys.readouterr().out
    assert check_reproducible.compare(one, archive(tmp_path / "other", {"a": "1", "b": "3"})) == 1
    assert "differs in b" in capsys.readouterr().out
    later = archive(tmp_path / "later", {"a": "1", "b": "2"}, (2021, 1, 1, 0, 0, 0))
    assert check_reproducible.compare(one, later) == 1
    assert "outside of the files" in capsys.readouterr().out
    (one / "more").touch()
    assert check_reproducible.compare(one, tmp_path / "same") == 1
    assert "in one of the two only" in capsys.readouterr().out


def test_a_tree_with_changes_is_refused(tmp_path):
    """In a repository of its own, with the tools alone."""
    tree = tmp_path / "tree"
    needed = [f"tools/{name}.py" for name in ("release", "setup", "version", "zig")]
    for name in (*needed, "include/millpond/millpond.h"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_bytes((ROOT / name).read_bytes())
    subprocess.run(["git", "init", "-q", str(tree)], check=True, env=os.environ | {"HOME": str(tmp_path)})
    done = subprocess.run([sys.executable, "tools/release.py", "--out", str(tmp_path / "dist")], cwd=tree,
                          capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "changes that are not committed" in done.stderr
    assert not (tmp_path / "dist").exists()
