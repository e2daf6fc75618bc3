# SPDX-License-Identifier: Apache-2.0
"""The page of sluice inspect in a real browser: made-up files become pages, which are opened in headless Chromium without a
network, clicked through, used by keyboard, saved from and printed. Skips where there is no Chromium."""

import json
import os
import pathlib
import subprocess
import urllib.parse
import xml.etree.ElementTree as ElementTree

import pytest

import browser
import make_inspect

pytestmark = pytest.mark.skipif(browser.executable() is None, reason="no Chromium")

ALWAYS = ["fig-heads", "fig-map", "fig-share-layer", "fig-share-query", "fig-distance", "fig-places", "fig-top"]
ALWAYS += ["fig-surface", "fig-value-norm", "fig-key-norm", "fig-sparsity", "fig-mean-output", "fig-input-error"]
GATES = ["fig-gate-histogram", "fig-gate-layer", "fig-gate-below"]
FIGURES = {
    "one": ALWAYS + ["fig-demo-0", "fig-interventions-0"],
    "several": ALWAYS + GATES + ["fig-interventions-1", "fig-router", "fig-load", "fig-delta-layer", "fig-delta-heads"],
    "steps": ALWAYS + ["fig-steps", "fig-step-heads", "fig-step-multiples"],
    "large": ALWAYS + GATES,
    "hostile": ALWAYS + ["fig-demo-0", "fig-interventions-0"],
    "bare": [f for f in ALWAYS if f != "fig-input-error"],
}
EMPTY = {"bare": ["fig-heads", "fig-share-query", "fig-distance", "fig-share-layer"]}


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    made = {}

    def make(case):
        if case not in made:
            folder = tmp_path_factory.mktemp(case)
            (folder / "inspect.json").write_text(json.dumps(make_inspect.CASES[case]()))
            program = os.environ.get("SLUICE", "build/dev/sluice")
            subprocess.run([program, "inspect", "--report", folder], check=True, stdout=subprocess.DEVNULL)
            made[case] = pathlib.Path(folder) / "inspect.html"
        return made[case]

    return make


@pytest.fixture(scope="module")
def chromium():
    with browser.Browser() as b:
        yield b


def is_quiet(page):
    assert page.complaints() == []
    assert page.requests() == []
    assert page.value("[...document.querySelectorAll('[data-failed]')].map(n => n.id + ' ' + n.dataset.failed)") == []


def blank_canvases(page):
    return page.value("""[...document.querySelectorAll('figure canvas:not(.swatch)')].filter(c => {
        const data = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
        return !data.some((v, i) => i % 4 === 3 && v > 0);
    }).map(c => c.closest('figure').id)""")


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [400, 1280])
@pytest.mark.parametrize("case", list(FIGURES))
def test_every_figure_is_there(chromium, pages, case, width, dark):
    page = chromium.open(pages(case), width, dark=dark)
    is_quiet(page)
    assert sorted(page.value("[...document.querySelectorAll('figure')].map(n => n.id)")) == sorted(FIGURES[case])
    empty = page.value("[...document.querySelectorAll('figure[data-empty]')].map(n => n.id)")
    assert sorted(empty) == sorted(EMPTY.get(case, []))
    assert blank_canvases(page) == []
    assert page.value("document.documentElement.scrollWidth") <= width
    assert page.value("document.documentElement.dataset.theme") == ("dark" if dark else "light")
    page.close()


def test_large_model_stays_below_ten_megabytes(pages):
    assert pages("large").stat().st_size < 10e6


def test_hostile_text_stays_text(chromium, pages):
    page = chromium.open(pages("hostile"))
    is_quiet(page)
    assert page.value("document.querySelectorAll('img, iframe, object, main script, main style').length") == 0
    assert "onerror=alert" in page.value("document.querySelector('#tab-interventions-0').textContent")
    page.close()


def test_a_click_on_a_cell_shows_the_map_of_that_head(chromium, pages):
    page = chromium.open(pages("one"))
    page.value("""(() => {
        const canvas = document.querySelector('#fig-heads canvas'), box = canvas.getBoundingClientRect();
        const at = {clientX: box.left + 34 + 44 * 2.5, clientY: box.top + 22 + 20 * 4.5, bubbles: true};
        canvas.dispatchEvent(new MouseEvent('click', at));
    })()""")
    chosen = "[...document.querySelectorAll('#fig-map select')].map(s => s.selectedOptions[0].textContent)"
    assert page.value(chosen)[:2] == ["layer 4", "head 2"]
    # with the keyboard: one to the left, Enter
    page.value("""(() => {
        const canvas = document.querySelector('#fig-heads canvas');
        for (const key of ['ArrowRight', 'ArrowDown', 'Enter'])
            canvas.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true}));
    })()""")
    assert page.value(chosen)[:2] == ["layer 1", "head 1"]
    share = make_inspect.CASES["one"]()["models"][0]["inspect"]["layers"][0]["f_attn_heads"]["from_1"][1]
    page.value("""document.querySelector('#fig-heads canvas').dispatchEvent(
        new KeyboardEvent('keydown', {key: 'ArrowRight', bubbles: true}))""")
    words = page.value("document.querySelector('#fig-heads .readout').textContent")
    assert "layer 0, head 1: " in words and abs(float(words.rsplit(" ", 1)[1]) - share) < 1e-3
    is_quiet(page)
    page.close()


def test_hovering_reads_single_weights(chromium, pages):
    page = chromium.open(pages("one"))
    page.value("""(() => {
        const canvas = document.querySelector('#fig-map canvas');
        for (const key of ['ArrowDown', 'ArrowDown', 'ArrowRight'])
            canvas.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true}));
    })()""")
    words = page.value("document.querySelector('#fig-map .readout').textContent")
    assert "(2) looks at" in words and "(1) with 0." in words
    page.close()


def test_values_of_the_tables(chromium, pages):
    """The numbers of the page are those of the file."""
    data = make_inspect.CASES["several"]()
    page = chromium.open(pages("several"))
    rows = page.value(
        "[...document.querySelectorAll('#tab-models tr[data-row]')].map(r => [...r.children].map(c => c.textContent))"
    )
    for row, one in zip(rows, data["models"]):
        assert one["name"] in row[0]
        assert row[1] == f"{one['inspect']['f_attn_mean']['from_1']:.4f}"
        assert row[4] == str(one["inspect"]["sink_heads"])
    kinds = [k for l in data["models"][0]["inspect"]["layers"] for k in l["heads"]["kind"]]
    first = page.value("[...document.querySelector('#tab-kinds tr[data-row]').children].map(c => c.textContent)")
    assert first[1:3] == [str(kinds.count("sink")), str(kinds.count("previous"))]
    page.close()


@pytest.mark.parametrize("case", ["several", "steps"])
def test_every_control_draws(chromium, pages, case):
    page = chromium.open(pages(case))
    count = page.value("""(() => {
        let n = 0;
        const changed = (control, kind) => { control.dispatchEvent(new Event(kind)); n++; };
        for (const s of document.querySelectorAll('figure select'))
            for (let i = s.options.length - 1; i >= 0; i--) { s.selectedIndex = i; changed(s, 'change'); }
        for (const c of document.querySelectorAll('figure input[type=checkbox]'))
            for (const on of [!c.checked, c.checked]) { c.checked = on; changed(c, 'change'); }
        for (const r of document.querySelectorAll('input[type=range]'))
            for (let i = 0; i <= r.max; i++) { r.value = i; changed(r, 'input'); }
        for (const chip of document.querySelectorAll('.chip')) { chip.click(); chip.click(); n++; }
        return n;
    })()""")
    assert count > 60
    page.wait("document.documentElement.dataset.state === 'drawn'")
    is_quiet(page)
    page.close()


def test_steps_play(chromium, pages):
    page = chromium.open(pages("steps"))
    page.value("document.querySelector('#fig-step-heads .controls button').click()")
    page.wait("document.querySelector('#fig-step-heads input').value === '2'")
    page.value("[...document.querySelectorAll('#fig-step-heads button')].find(b => /Stop/.test(b.textContent))?.click()")
    is_quiet(page)
    page.close()


@pytest.mark.parametrize("case", ["one", "several", "steps"])
def test_every_figure_saves_as_svg_and_png(chromium, pages, case):
    page = chromium.open(pages(case))
    page.value("""(() => {
        window.saved = [];
        HTMLAnchorElement.prototype.click = function () { saved.push([this.download, this.href]); };
        for (const b of document.querySelectorAll('figure .tools button')) b.click();
    })()""")
    saved = page.value("window.saved")
    figures = page.value("document.querySelectorAll('figure').length")
    svg = [(name, href) for name, href in saved if name.endswith(".svg")]
    assert len(svg) == figures and len(saved) == 2 * figures
    for name, href in svg:
        tree = ElementTree.fromstring(urllib.parse.unquote(href.split(",", 1)[1]))
        shapes = [n for n in tree.iter() if n.tag.endswith("}path")]
        texts = [n.text for n in tree.iter() if n.tag.endswith("}text")]
        assert len(shapes) > 3 and len(texts) > 3, name
        assert "NaN" not in href and "undefined" not in href, name
    for name, href in saved:
        assert href.startswith("data:image/"), name
    is_quiet(page)
    page.close()


def test_paper(chromium, pages):
    page = chromium.open(pages("several"))
    assert page.pdf()[:5] == b"%PDF-"
    is_quiet(page)
    page.close()
