#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks a site that tools/build_site.py has built: its files, and what Chromium shows of them.

    check_site.py FOLDER [PAGES]

Files: links lead to pages and headings that exist, nothing is fetched from elsewhere, pictures have a text in their
place, every function of the header and every public name of the package has its place. In headless Chromium, opened
from the folder and without a network: every page at two widths, in light and dark, is as wide as its window, says
nothing on the console, and its text can be told from what is behind it; so can that of the pictures, which lies inside
of them; the search finds something. So with the pages of the folder PAGES, which Millpond makes for a browser
(tools/sample_pages.py). Needs playwright, and a Chromium of the machine.
"""

import ast
import concurrent.futures
import html.parser
import re
import shutil
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parent.parent
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
WIDTHS = (390, 1280)
SCHEMES = ("light", "dark")
TEXTS = ".md-content *, .md-header *, .md-tabs *, .md-nav *"  # of a page of the site
CONTRAST_MIN = 4.5  # WCAG's level AA for text of ordinary size
SEARCHES = {"record_use": "api/", "expandable regions": "memory.html", "LayerNormalization": "operators.html"}
SEARCH_LIMIT_MS = 30000
FETCHED = {("script", "src"), ("link", "href"), ("img", "src"), ("iframe", "src"), ("source", "src"), ("video", "src"),
           ("object", "data"), ("form", "action")}


# ---- files ----


class Page(html.parser.HTMLParser):
    """What of a page has to do with others."""

    def __init__(self, path):
        super().__init__()
        self.ids, self.links, self.fetched, self.unseen, self.headings = set(), [], [], [], 0
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.ids |= {values[name] for name in ("id", "name") if values.get(name)}
        self.headings += tag == "h1"
        if tag == "a" and values.get("href") is not None:
            self.links.append(values["href"])
        for name, value in attributes:
            if (tag, name) in FETCHED and value:
                self.fetched.append(value)
        if tag == "img" and len(values.get("alt") or "") < 20:
            self.unseen.append(values.get("src"))


def file_faults(folder):
    pages = {path: Page(path) for path in sorted(folder.rglob("*.html"))}
    for path, page in pages.items():
        name = path.relative_to(folder)
        if page.headings != 1 and name.name != "404.html":
            yield f"{name}: {page.headings} headings of the first rank"
        yield from (f"{name}: the picture {source} has no text in its place" for source in page.unseen)
        yield from (f"{name}: fetches {link} from elsewhere" for link in page.fetched if urlsplit(link).netloc)
        for link in [*page.links, *page.fetched]:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or (name.name == "404.html" and parts.path.startswith("/")):
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file():
                yield f"{name}: link to {link}, which is not there"
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].ids:
                yield f"{name}: link to {link}, of which there is no such heading"


def reference_faults(folder):
    """What the header and the package have and the references have not."""
    reference = (folder / "api/c.html").read_text(encoding="utf-8")
    header = (ROOT / "include/millpond/millpond.h").read_text(encoding="utf-8")
    for function in sorted(set(re.findall(r"^[\w ]+?[ *](mp_\w+)\(", header, re.MULTILINE))):
        if f"<code>{function}</code>" not in reference:
            yield f"api/c.html: does not have {function}"
    for path in sorted((ROOT / "python/src/millpond").glob("[!_]*.py")) + [ROOT / "python/src/millpond/__init__.py"]:
        module = "millpond" if path.stem == "__init__" else f"millpond.{path.stem}"
        page = folder / f"api/{module}.html"
        if not page.is_file():
            yield f"api: has no page for {module}"
            continue
        names = next(ast.literal_eval(node.value) for node in ast.parse(path.read_text(encoding="utf-8")).body
                     if isinstance(node, ast.Assign) and node.targets[0].id == "__all__")
        ids = Page(page).ids
        yield from (f"api/{module}.html: does not have {name}" for name in names if f"{module}.{name}" not in ids)


# ---- what is seen ----

# Text that can hardly be told from what is behind it: [what, contrast]. Pictures and pages are asked alike.
FAINT = """([least, where]) => {
  const canvas = document.createElementNS("http://www.w3.org/1999/xhtml", "canvas");
  canvas.width = canvas.height = 1;
  const pen = canvas.getContext("2d", {willReadFrequently: true});
  const seen = new Map();
  const rgba = said => {
    if (!seen.has(said)) {
      pen.clearRect(0, 0, 1, 1); pen.fillStyle = said; pen.fillRect(0, 0, 1, 1);
      const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data;
      seen.set(said, [r, g, b, a / 255]);
    }
    return seen.get(said);
  };
  const over = (top, below) => top.slice(0, 3).map((v, i) => v * top[3] + below[i] * (1 - top[3]));
  const light = colour => colour.map(v => v / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const contrast = (a, b) => {
    const [x, y] = [light(a), light(b)].sort((p, q) => q - p);
    return (x + 0.05) / (y + 0.05);
  };
  const found = new Map();
  const note = (said, value) => { if (value < least && !(found.get(said) <= value)) found.set(said, value); };
  if (document.documentElement.tagName === "svg") {
    for (const text of document.querySelectorAll("text")) {
      const box = text.getBoundingClientRect();
      const behind = document.elementsFromPoint(box.x + box.width / 2, box.y + box.height / 2)
        .filter(each => each.tagName === "rect" && getComputedStyle(each).fill !== "none");
      note(text.textContent, contrast(rgba(getComputedStyle(text).fill), rgba(getComputedStyle(behind[0]).fill)));
    }
  } else {
    const kinds = new Set(); // of elements, of which one each is enough
    for (const each of document.querySelectorAll(where)) {
      if (![...each.childNodes].some(node => node.nodeType === 3 && node.data.trim())) continue;
      const style = getComputedStyle(each);
      const kind = [each, each.parentElement, each.parentElement.parentElement]
        .map(one => one.tagName + "." + one.className).join(" ") + style.color + style.backgroundColor;
      const box = each.getBoundingClientRect();
      if (kinds.has(kind) || !each.checkVisibility() || box.right < 0 || box.left > innerWidth) continue;
      kinds.add(kind);
      if (style.color === "rgba(0, 0, 0, 0)" || each.closest(".md-clipboard, .headerlink, svg, :disabled")) continue;
      const layers = [];
      let opacity = 1;
      for (let at = each; at; at = at.parentElement) {
        layers.push(rgba(getComputedStyle(at).backgroundColor));
        opacity *= Number(getComputedStyle(at).opacity);
      }
      const behind = layers.reverse().reduce((below, layer) => over(layer, below), [255, 255, 255]);
      const [r, g, b, a] = rgba(style.color);
      if (opacity > 0.1) {
        note(each.tagName.toLowerCase() + "." + each.className + " " + each.textContent.trim().slice(0, 30),
             contrast(over([r, g, b, a * opacity], behind), behind));
      }
    }
  }
  return [...found];
}"""

# Text of a picture that is not inside of it, or lies on other text.
MISPLACED = """() => {
  const whole = document.documentElement.getBoundingClientRect();
  const texts = [...document.querySelectorAll("text")].map(each => [each.textContent, each.getBoundingClientRect()]);
  const bad = texts.filter(([, box]) => box.left < whole.left + 2 || box.right > whole.right - 2).map(([said]) => said);
  texts.forEach(([said, a], i) => texts.slice(i + 1).forEach(([other, b]) => {
    if (a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 3 && b.top < a.bottom - 3) {
      bad.push(said + " / " + other);
    }
  }));
  return bad;
}"""


def faint(tab, name, scheme, where=TEXTS):
    for said, value in tab.evaluate(FAINT, [CONTRAST_MIN, where]):
        yield f"{name}, {scheme}: contrast of {value:.1f}: {said}"


def too_wide(tab, name):
    for width in WIDTHS:
        tab.set_viewport_size({"width": width, "height": 900})
        wide = tab.evaluate("document.documentElement.scrollWidth")
        if wide > width:
            yield f"{name}: {wide} px wide in a window of {width}"


def page_faults(tab, scheme, path, name):
    tab.goto(path.as_uri())
    tab.add_style_tag(content="* { transition: none !important; animation: none !important }")
    if tab.evaluate("document.body.dataset.mdColorScheme") != {"light": "default", "dark": "slate"}[scheme]:
        yield f"{name}: is not {scheme} where the reader's system is"
    yield from too_wide(tab, name)
    yield from faint(tab, name, scheme)
    if not tab.evaluate("[...document.images].every(each => each.complete && each.naturalWidth > 0)"):
        yield f"{name}: a picture is not shown"


def picture_faults(tab, scheme, path, name):
    tab.goto(path.as_uri())
    yield from faint(tab, name, scheme)
    yield from (f"{name}: not in its place: {said}" for said in tab.evaluate(MISPLACED))


def own_page_faults(tab, scheme, path, name):
    """Of a page that Millpond makes."""
    tab.goto(path.as_uri())
    yield from too_wide(tab, name)
    yield from faint(tab, name, scheme, "body *")


def search_faults(tab, folder):
    for words, wanted in SEARCHES.items():
        tab.goto((folder / "index.html").as_uri())
        try:
            tab.locator("[data-md-component=search-query]").click()  # which has the index read
            tab.get_by_text("Type to start searching").wait_for(state="attached", timeout=SEARCH_LIMIT_MS)
            tab.keyboard.type(words)
            tab.wait_for_function("wanted => [...document.querySelectorAll('.md-search-result__link')]"
                                  ".some(each => each.href.includes(wanted))", arg=wanted, timeout=SEARCH_LIMIT_MS)
        except Exception as error:  # of playwright, whatever it is: nothing came
            yield f"the search for {words} does not find {wanted}: {str(error).splitlines()[0]}"


def seen_faults(folder, pages, browser, scheme):
    """What is wrong with what a reader sees whose system is light, or dark."""
    from playwright.sync_api import sync_playwright

    found, said = [], []
    with sync_playwright() as play:
        window = play.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        tab = window.new_context(offline=True, color_scheme=scheme).new_page()
        tab.on("console", lambda message: said.append(f"{message.type} on the console: {message.text}"))
        tab.on("pageerror", lambda error: said.append(f"an error on a page: {error}"))
        tab.on("request", lambda request: said.append(f"a page asks for {request.url}")
               if urlsplit(request.url).scheme not in ("file", "data", "blob") else None)
        for path in sorted(folder.rglob("*.html")):
            if path.name != "404.html":  # whose links begin at the root of a server
                found += page_faults(tab, scheme, path, path.relative_to(folder))
        for path in sorted(folder.glob("pictures/*.svg")):
            found += picture_faults(tab, scheme, path, path.relative_to(folder))
        for path in pages:
            found += own_page_faults(tab, scheme, path, path.name)
        tab.set_viewport_size({"width": max(WIDTHS), "height": 900})
        found += search_faults(tab, folder)
        window.close()
    return found + said


def main():
    if len(sys.argv) not in (2, 3) or not (Path(sys.argv[1]) / "index.html").is_file():
        sys.exit("usage: check_site.py FOLDER [PAGES], FOLDER being one that tools/build_site.py has built")
    folder = Path(sys.argv[1]).resolve()
    pages = sorted(path for folder in sys.argv[2:] for path in Path(folder).resolve().glob("*.html"))
    if sys.argv[2:] and not pages:
        sys.exit(f"check_site: there are no pages in {sys.argv[2]}")
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        sys.exit("check_site: there is no Chromium; install it (Debian: apt install chromium)")
    with concurrent.futures.ProcessPoolExecutor(len(SCHEMES)) as beside:
        seen = [beside.submit(seen_faults, folder, pages, browser, scheme) for scheme in SCHEMES]
        found = [*file_faults(folder), *reference_faults(folder), *(fault for each in seen for fault in each.result())]
    count = len(list(folder.rglob("*.html")))
    also = f", and {len(pages)} that Millpond makes" if pages else ""
    print("\n".join(found[:200]) or f"check_site: {count} pages are sound{also}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
