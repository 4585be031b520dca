# SPDX-License-Identifier: Apache-2.0
"""What makes README.md into PyPI's page, and what looks at the files of the site."""

import re

import check_site
import pypi_readme
import site_places

TEXT = """<!-- figures: summary -->
# A

![a picture of more than twenty letters](docs/pictures/block.svg)

[Memory](docs/memory.md#options), [licence](LICENSE), [C](include/millpond/millpond.h), [there](https://example.org).

```sh
[not a link](docs/memory.md)
```
"""


def test_readme_without_a_site():
    said = pypi_readme.written(TEXT, None)
    assert said == ("# A\n\nMemory, licence, C, [there](https://example.org).\n\n"
                    "```sh\n[not a link](docs/memory.md)\n```\n")


def test_readme_with_a_site():
    said = pypi_readme.written(TEXT, "https://docs.example.org/")
    assert "![a picture of more than twenty letters](https://docs.example.org/pictures/block.svg)" in said
    assert re.findall(r"\]\((https://docs[^)]*l(?:#\w+)?)\)", said) == [
        f"https://docs.example.org/{page}" for page in ("memory.html#options", "license.html", "api/c.html")]


def test_readme_of_the_tree_has_no_link_into_the_tree():
    text = (site_places.ROOT / "README.md").read_text(encoding="utf-8")
    found = [match["path"] for match in site_places.LINK.finditer(pypi_readme.written(text, None))]
    assert [path for path in found if not path.startswith("https://")] == []


def test_faults_of_a_site(tmp_path):
    (tmp_path / "api").mkdir()
    header = (site_places.ROOT / site_places.HEADER).read_text(encoding="utf-8")
    functions = sorted(set(re.findall(r"\bmp_\w+", header)) - {"mp_pool_alloc"})
    (tmp_path / "api/c.html").write_text("<h1>C</h1>" + "".join(f"<code>{name}</code>" for name in functions),
                                         encoding="utf-8")
    (tmp_path / "index.html").write_text('<h1 id="top">A</h1><h1>B</h1><script src="https://example.org/x.js"></script>'
                                         '<a href="#top">a</a><a href="#bottom">b</a><a href="c.html">c</a>'
                                         '<a href="api/c.html#none">d</a><a href="https://example.org">e</a>'
                                         '<img src="index.html" alt="short">', encoding="utf-8")
    assert list(check_site.file_faults(tmp_path)) == [
        "index.html: 2 headings of the first rank", "index.html: the picture index.html has no text in its place",
        "index.html: fetches https://example.org/x.js from elsewhere",
        "index.html: link to #bottom, of which there is no such heading",
        "index.html: link to c.html, which is not there",
        "index.html: link to api/c.html#none, of which there is no such heading"]
    faults = list(check_site.reference_faults(tmp_path))
    assert faults[0] == "api/c.html: does not have mp_pool_alloc"
    assert "api: has no page for millpond" in faults
