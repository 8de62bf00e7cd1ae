"""The built site in Chromium, as readers see it: on a phone, a laptop and a large screen, in light
and dark colours.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import cache, partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import browser
import devtools
import pytest

SITE = Path(__file__).resolve().parents[2] / "docs/_build/html"
#: Widths of the window, in pixels.
PHONE, LAPTOP, SCREEN = 390, 1280, 1920
#: Pages without text of ours: lists that Sphinx makes, and copies of source files.
LEFT_OUT = ("_static/", "_sources/", "_downloads/", "_modules/", "genindex.html", "search.html")

pytestmark = [
    pytest.mark.skipif(
        browser.browser() is None,
        reason=f"none of {', '.join(browser.NAMES)} is in PATH: run `make browser`",
    ),
    pytest.mark.skipif(not SITE.is_dir(), reason="docs/_build/html is missing: run `make docs`"),
]

#: Describes an element, so that its page's author finds it.
_DESCRIBE = """
const describe = (element) => {
  const classes = element.className?.toString().trim().split(/\\s+/).join(".");
  const text = element.textContent.trim().replace(/\\s+/g, " ").slice(0, 60);
  return `${element.tagName.toLowerCase()}${classes ? "." + classes : ""}: ${text}`;
};
const scrolls = (element) => ["auto", "scroll"].includes(getComputedStyle(element).overflowX);
"""
#: The elements that reach beyond the window, although no box around them scrolls or cuts them.
WIDER_THAN_THE_WINDOW = (
    _DESCRIBE
    + """
const isInBox = (element) => {
  for (let box = element.parentElement; box && box !== document.body; box = box.parentElement) {
    if (getComputedStyle(box).overflowX !== "visible") return true;
  }
  return false;
};
const width = document.documentElement.clientWidth;
[...document.querySelectorAll("main *")]
  .filter((element) => element.getBoundingClientRect().right > width + 1 && !isInBox(element))
  .map(describe)
"""
)
#: The blocks of code whose longest line does not fit into the block. What programs print may be
#: wider.
CUT_CODE = (
    _DESCRIBE
    + """
[...document.querySelectorAll("article div.highlight pre")]
  .filter((code) => !code.closest(".highlight-output, .output"))
  .filter((code) => code.scrollWidth > code.clientWidth + 1)
  .map(describe)
"""
)
#: The blocks of code that do not fit, and do not scroll either.
CODE_WITHOUT_SCROLLING = (
    _DESCRIBE
    + """
[...document.querySelectorAll("article div.highlight pre")]
  .filter((code) => code.scrollWidth > code.clientWidth + 1)
  .filter((code) => !scrolls(code) && !scrolls(code.parentElement))
  .map(describe)
"""
)
#: The pictures that look the same in dark colours: neither do they bring dark colours themselves,
#: nor does the page show another picture or change this one.
PICTURES_WITHOUT_DARK_COLOURS = """
(async () => {
  const found = [];
  for (const picture of document.querySelectorAll("article img")) {
    const isReplaced = picture.closest("picture, .only-light, .only-dark") !== null;
    const isChanged = getComputedStyle(picture).filter !== "none";
    if (isReplaced || isChanged) continue;
    const file = await (await fetch(picture.src)).text();
    if (!file.includes("prefers-color-scheme: dark")) found.push(picture.src);
  }
  return found;
})()
"""


@pytest.fixture(scope="module")
def address():
    """The address of a local server of the site."""
    handler = partial(QuietHandler, directory=str(SITE))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


class QuietHandler(SimpleHTTPRequestHandler):
    """Handler that serves files without a line in the log for each."""

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    with devtools.open_page(tmp_path_factory.mktemp("browser")) as page:
        yield page


def list_pages():
    """Return the paths of the site's pages."""
    paths = [path.relative_to(SITE).as_posix() for path in SITE.rglob("*.html")]
    return sorted(path for path in paths if not path.startswith(LEFT_OUT))


#: Width of the window and colours → the scripts that are asked of each page.
SCRIPTS = {
    (PHONE, "light"): [WIDER_THAN_THE_WINDOW, CODE_WITHOUT_SCROLLING],
    (LAPTOP, "light"): [WIDER_THAN_THE_WINDOW, CUT_CODE],
    (SCREEN, "light"): [WIDER_THAN_THE_WINDOW, CUT_CODE],
    (LAPTOP, "dark"): [PICTURES_WITHOUT_DARK_COLOURS],
}


@dataclass
class Faults:
    """What is wrong with the pages of the site, in a window of one width, in light or dark colours.

    Attributes:
        errors: Page → its errors in the console, for the pages that have some.
        found: Script → page → what the script finds there, for the pages where it finds something.
    """

    errors: dict[str, list[str]]
    found: dict[str, dict[str, list[str]]]


@pytest.fixture(scope="module")
def find_faults(page, address):
    """Return the faults of all pages, which are opened once for each width and scheme."""

    @cache
    def find(width, scheme):
        faults = Faults(errors={}, found={script: {} for script in SCRIPTS[width, scheme]})
        page.show_as(width=width, scheme=scheme)
        for path in list_pages():
            page.open(f"{address}/{path}")
            page.evaluate("0")  # its answer comes after the events of the page
            if page.errors:
                faults.errors[path] = list(page.errors)  # scripts may add some
            for script, pages in faults.found.items():
                found = page.evaluate("{" + script + "}")  # a block, because it declares names
                if found:
                    pages[path] = found
        return faults

    return find


#: These tests open every page of the site. `make docs-check` runs them after `make docs`.
opens_every_page = pytest.mark.slow


def test_site_has_pages():
    assert {"index.html", "start.html", "config.html"} <= set(list_pages())


@opens_every_page
@pytest.mark.parametrize("width", [PHONE, LAPTOP, SCREEN])
def test_elements_fit_into_the_window(find_faults, width):
    assert find_faults(width, "light").found[WIDER_THAN_THE_WINDOW] == {}


@opens_every_page
@pytest.mark.parametrize("width", [LAPTOP, SCREEN])
def test_lines_of_code_are_not_cut(find_faults, width):
    assert find_faults(width, "light").found[CUT_CODE] == {}


@opens_every_page
def test_code_scrolls_in_its_own_box_on_a_phone(find_faults):
    assert find_faults(PHONE, "light").found[CODE_WITHOUT_SCROLLING] == {}


@opens_every_page
def test_pictures_have_dark_colours(find_faults):
    assert find_faults(LAPTOP, "dark").found[PICTURES_WITHOUT_DARK_COLOURS] == {}


@opens_every_page
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_console_shows_no_errors(find_faults, scheme):
    assert find_faults(LAPTOP, scheme).errors == {}


# --- the home page --------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [LAPTOP, SCREEN])
def test_programs_of_the_home_page_are_not_cut(page, address, width):
    page.show_as(width=width, scheme="light")
    page.open(f"{address}/index.html")
    num_tabs = page.evaluate("document.querySelectorAll('[role=tab]').length")
    assert num_tabs == 4
    for tab in range(num_tabs):
        page.evaluate(f"document.querySelectorAll('[role=tab]')[{tab}].click()")
        assert page.evaluate("{" + CUT_CODE + "}") == []  # a block, because it declares names


#: What the page has loaded, in bytes, as sent by the server.
LOADED_BYTES = """
performance.getEntriesByType("resource").concat(performance.getEntriesByType("navigation"))
  .reduce((sum, entry) => sum + entry.encodedBodySize, 0)
"""


@pytest.mark.parametrize("width", [PHONE, SCREEN])
def test_home_loads_at_most_two_and_a_half_megabytes(page, address, width):
    page.show_as(width=width, scheme="light")
    page.open(f"{address}/index.html")
    page.evaluate("new Promise((resume) => setTimeout(resume, 1000))")  # the films

    assert 100_000 < page.evaluate(LOADED_BYTES) <= 2_500_000


#: Clicks the button of the exported policy, and returns the length of its longest episode.
PLAY_AN_EPISODE = """
(async () => {
  document.querySelector(".live button").click();
  const figure = document.querySelector(".live");
  const end = Date.now() + 50_000;
  while (Number(figure.dataset.best ?? 0) < 500 && Date.now() < end) {
    await new Promise((resume) => setTimeout(resume, 50));
  }
  return [figure.dataset.best, figure.querySelector("figcaption").textContent];
})()
"""


@pytest.mark.skipif(
    not (SITE / "_static/live/onnxruntime").is_dir(),
    reason="the site was built without onnxruntime-web: run `npm ci` in examples/browser",
)
def test_policy_in_the_page_holds_its_pole_for_500_steps(page, address):
    page.show_as(width=LAPTOP, scheme="light")
    page.open(f"{address}/index.html?fast")

    best, text = page.evaluate(PLAY_AN_EPISODE)

    assert best == "500", text
    assert page.errors == []
