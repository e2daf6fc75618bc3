# SPDX-License-Identifier: Apache-2.0
"""The report in a real browser: made-up results become pages, which are opened in headless Chromium without a network, in
light and dark, wide and narrow, on paper, and by keyboard. Skips where there is no Chromium."""

import functools
import json
import os
import pathlib
import random
import re
import subprocess

import pytest

import browser
import make_results

pytestmark = pytest.mark.skipif(browser.executable() is None, reason="no Chromium")

FIGURES = [
    "fig-overview",
    "fig-comparison",
    "fig-loss",
    "fig-grad-norm",
    "fig-learning-rate",
    "fig-share-layer",
    "fig-share-steps",
    "fig-share-head",
    "fig-other-keys",
    "fig-max-activation",
    "fig-first-token-peak",
    "fig-residual-steps",
    "fig-value-norm",
    "fig-gate-histogram",
    "fig-gate-steps",
    "fig-gate-layer",
    "fig-gate-below",
    "fig-gate-head",
    "fig-sparsity",
    "fig-sparsity-layer",
    "fig-mean-output",
    "fig-attention",
    "fig-attention-heads",
    "fig-position",
    "fig-length",
    "fig-cost",
]
SECTIONS = [
    "findings",
    "summary",
    "training",
    "sink",
    "activations",
    "gates",
    "sparsity",
    "attention",
    "length",
    "cost",
    "samples",
    "settings",
]


def writer():
    """The test program that turns results into a page; it lies beside the program under test."""
    program = pathlib.Path(os.environ.get("SLUICE", "build/dev/sluice")).resolve()
    return program.parent / "tests" / "test_report_report"


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder, made = tmp_path_factory.mktemp("report"), {}

    def make(case, change=None):
        if (case, change) not in made:
            results = make_results.CASES[case]()
            if change:
                change(results)
            source, page = folder / f"{len(made)}.json", folder / f"{len(made)}.html"
            source.write_text(json.dumps(results))
            subprocess.run([writer(), "--write", source, page], check=True)
            made[case, change] = page
        return made[case, change]

    return make


@pytest.fixture(scope="module")
def chromium():
    with browser.Browser() as b:
        yield b


def is_quiet(page):
    assert page.complaints() == []
    assert page.requests() == []
    assert (
        page.value("[...document.querySelectorAll('[data-failed]')].map(n => n.id + ' ' + n.dataset.failed)")
        == []
    )


def blank_canvases(page):
    """Figures with a canvas on which no pixel is set."""
    return page.value("""[...document.querySelectorAll('figure canvas:not(.swatch)')].filter(c => {
        const data = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
        return !data.some((v, i) => i % 4 === 3 && v > 0);
    }).map(c => c.closest('figure').id)""")


@pytest.mark.parametrize(
    "case,width,dark",
    [
        ("default", 1280, False),
        ("default", 1280, True),
        ("default", 400, False),
        ("default", 1600, False),
        ("large", 1280, False),
        ("large", 400, True),
        ("broken", 1280, False),
        ("broken", 400, False),
        ("hostile", 1280, False),
        ("hostile", 400, False),
        ("mixed", 1280, False),
        ("tiny", 1280, False),
        ("bare", 1280, False),
    ],
)
def test_every_figure_is_there(chromium, pages, case, width, dark):
    page = chromium.open(pages(case), width, dark=dark)
    is_quiet(page)
    assert page.value("[...document.querySelectorAll('main section')].map(n => n.id)") == SECTIONS
    assert page.value("[...document.querySelectorAll('figure')].map(n => n.id)") == FIGURES
    empty = page.value("[...document.querySelectorAll('figure[data-empty]')].map(n => n.id)")
    assert empty == (FIGURES if case == "bare" else [])
    drawn = page.value(
        "[...document.querySelectorAll('figure')].filter(f => f.querySelector('canvas:not(.swatch)')).map(f => f.id)"
    )
    assert drawn == [f for f in FIGURES if f not in empty]
    assert blank_canvases(page) == []
    assert page.value("document.documentElement.scrollWidth") <= width
    assert page.value("document.documentElement.dataset.theme") == ("dark" if dark else "light")
    page.close()


def test_hostile_text_stays_text(chromium, pages):
    page = chromium.open(pages("hostile"))
    is_quiet(page)
    assert page.value("document.querySelectorAll('img, iframe, object, main script, main style').length") == 0
    assert page.value("document.title").startswith("</script><img")
    assert "</script><img" in page.value("document.querySelector('#samples').textContent")
    assert page.value("({}).x === undefined && Object.prototype.toString.call({})") == "[object Object]"
    page.close()


def test_values_of_the_summary(chromium, pages):
    """The numbers of the page are those of the data."""
    results = make_results.CASES["default"]()
    page = chromium.open(pages("default"))
    rows = page.value(
        "[...document.querySelectorAll('#tab-summary tr[data-row]')].map(r => [...r.children].map(c => c.textContent))"
    )
    assert len(rows) == 3
    for row, arm in zip(rows, results["arms"]):
        losses = [run["eval"]["loss"] for run in arm["runs"]]
        assert arm["name"] in row[0]
        assert row[2].startswith(f"{sum(losses) / len(losses):.3f}")
        shares = [run["inspect"]["f_attn_mean"]["from_quarter"] for run in arm["runs"]]
        assert row[5].startswith(f"{sum(shares) / len(shares):.3f}")
    best = page.value(
        "[...document.querySelectorAll('#tab-summary tr[data-row]')].findIndex(r => r.children[2].classList.contains('best'))"
    )
    means = [sum(run["eval"]["loss"] for run in arm["runs"]) for arm in results["arms"]]
    assert best == means.index(min(means))
    assert page.value("document.querySelectorAll('#tab-summary tr.inner').length") == 6
    page.close()


def test_arms_on_different_data(chromium, pages):
    """No arm is called best by a loss that cannot be compared, and each window length has its uniform share."""
    page = chromium.open(pages("mixed"))
    best = "[...document.querySelectorAll('#tab-summary tr[data-row]')].map(r => r.children[2].classList.contains('best'))"
    assert page.value(best) == [False, False, False]
    text = page.value("document.querySelector('#summary').textContent")
    assert (
        "losses per token cannot be compared" in text
        and "uniform: 0.014" in text
        and "uniform: 0.028" in text
    )
    assert "options.seq_len" in page.value("document.querySelector('#tab-arms').textContent")
    page.close()


def test_failed_runs_are_shown_as_such(chromium, pages):
    page = chromium.open(pages("broken"))
    page.value("document.querySelectorAll('#tab-summary .disclose').forEach(b => b.click())")
    text = page.value("document.querySelector('#tab-summary').textContent")
    for words in (
        "1 of 2 runs diverged",
        "2 of 2 runs failed",
        "loss was not a finite number at step 1608",
        "cannot allocate 9.1 GB",
    ):
        assert words in text
    page.value(
        """(() => {
            const seeds = document.querySelectorAll('#fig-attention select')[2];
            seeds.selectedIndex = 1;
            seeds.dispatchEvent(new Event('change'));
        })()"""
    )
    is_quiet(page)
    page.close()


def test_controls_and_arms(chromium, pages):
    """Every choice of every control draws without a complaint; switched-off arms leave the figures."""
    page = chromium.open(pages("broken"))
    count = page.value("""(() => {
        let n = 0;
        const changed = (control) => { control.dispatchEvent(new Event('change')); n++; };
        for (const s of document.querySelectorAll('figure select'))
            for (let i = s.options.length - 1; i >= 0; i--) { s.selectedIndex = i; changed(s); }
        for (const c of document.querySelectorAll('figure input'))
            for (const on of [!c.checked, c.checked]) { c.checked = on; changed(c); }
        return n;
    })()""")
    assert count > 60
    is_quiet(page)
    keys = "document.querySelectorAll('#fig-loss .legend li').length"
    before = page.value(keys)
    page.value("document.querySelectorAll('.chip')[1].click()")
    page.wait(f"{keys} === {before - 1}")
    assert page.value("document.querySelectorAll('.chip')[1].getAttribute('aria-pressed')") == "false"
    page.value("document.querySelector('.arm-bar .tool').click()")
    page.wait(f"{keys} === {before}")
    page.value("document.querySelectorAll('.chip').forEach(c => c.click())")
    page.wait("document.querySelectorAll('figure[data-empty]').length > 20")
    is_quiet(page)
    page.close()


def punch_holes(value, rng, rate):
    """Drops or nulls fields at random, as a run does that stops anywhere; what the writer needs stays."""
    needed = (
        "format",
        "arms",
        "runs",
        "name",
        "seed",
        "status",
        "verdict",
        "text",
        "arm",
        "against",
        "length",
    )
    if isinstance(value, dict):
        for key in list(value):
            if key not in needed and rng.random() < rate:
                value[key] = None
                if rng.random() < 0.5:
                    del value[key]
            elif key in value:
                punch_holes(value[key], rng, rate)
    elif isinstance(value, list):
        for i, item in enumerate(value):
            if not isinstance(item, (dict, list, str)) and rng.random() < rate:
                value[i] = None
            punch_holes(item, rng, rate)


def test_experts(chromium, pages):
    page = chromium.open(pages("experts"))
    is_quiet(page)
    assert page.value("[...document.querySelectorAll('#experts figure')].map(f => f.id)") == [
        "fig-experts",
        "fig-router-steps",
    ]
    assert page.value("document.querySelectorAll('#tab-experts tbody tr[data-row]').length") == 2
    assert not blank_canvases(page)
    assert page.value("[...document.querySelectorAll('.toc a')].some(a => a.hash === '#experts')")
    page.close()
    page = chromium.open(pages("default"))
    assert page.value("document.getElementById('experts')") is None
    page.close()


def test_learning_rates(chromium, pages):
    page = chromium.open(pages("ladder"))
    is_quiet(page)
    assert page.value("[...document.querySelectorAll('#stability figure')].map(f => f.id)") == [
        "fig-ladder-loss",
        "fig-rung-loss",
        "fig-rung-activations",
        "fig-ladder-spikes",
        "fig-ladder-peak",
    ]
    rows = page.value("[...document.querySelectorAll('#tab-ladder tbody tr[data-row]')].map(r => r.innerText)")
    assert len(rows) == 2 and "diverged" in rows[0] and "1.6e-2" in rows[1]
    assert not blank_canvases(page)
    page.close()
    page = chromium.open(pages("default"))
    assert page.value("document.getElementById('stability')") is None
    page.close()


@pytest.mark.parametrize("seed", range(6))
def test_any_field_may_be_missing(chromium, pages, seed):
    page = chromium.open(
        pages("broken", functools.partial(punch_holes, rng=random.Random(seed), rate=0.02 + 0.02 * seed))
    )
    is_quiet(page)
    assert page.value("[...document.querySelectorAll('figure')].length") == len(FIGURES)
    page.close()


def test_theme_button_and_keyboard(chromium, pages):
    page = chromium.open(pages("default"))
    page.value("document.querySelector('.theme').click()")
    page.value("document.querySelector('.theme').click()")
    assert page.value("document.documentElement.dataset.theme") == "dark"
    page.wait("document.documentElement.dataset.state === 'drawn'")  # a redraw replaces what has the focus
    for figure in ("fig-share-head", "fig-attention"):
        page.value(f"document.querySelector('#{figure} canvas[tabindex]').focus()")
        for key in ("ArrowDown", "ArrowRight"):
            page.call("Input.dispatchKeyEvent", type="keyDown", key=key, code=key)
        assert re.search(r"0\.\d", page.value(f"document.querySelector('#{figure} .readout').textContent"))
    assert page.value(
        "[...document.querySelectorAll('main button, main select, main input, main a')].every(n => n.tabIndex >= 0)"
    )
    is_quiet(page)
    page.close()


def test_downloads(chromium, pages):
    page = chromium.open(pages("hostile"))
    links = page.value("[...document.querySelectorAll('a[download]')].map(a => a.href)")
    assert len(links) > 25 and all(link.startswith("data:text/csv") for link in links)
    names = page.value("[...document.querySelectorAll('figure .tools button')].map(b => b.textContent)")
    assert names.count("PNG") == names.count("SVG") == len(FIGURES) and len(names) == 2 * len(FIGURES)
    page.value("""(() => {
        window.saved = [];
        HTMLAnchorElement.prototype.click = function () { saved.push([this.download, this.href]); };
        document.querySelectorAll('figure .tools button').forEach(b => b.click());
    })()""")
    page.wait(f"saved.length >= {2 * len(FIGURES)}")
    saved = page.value("saved.map(([name, link]) => [name.slice(-4), link.split(/[;,]/)[0], link.length])")
    assert len(saved) == 2 * len(FIGURES)
    for kind, start in ((".png", "data:image/png"), (".svg", "data:image/svg+xml")):
        some = [s for s in saved if s[0] == kind]
        assert len(some) == len(FIGURES) and all(head == start and size > 2000 for _, head, size in some), some
    is_quiet(page)
    page.close()


def test_paper(chromium, pages):
    """Printing from a dark page gives light sheets with all figures; afterwards the page is dark again."""
    page = chromium.open(pages("default"), dark=True)
    data = page.pdf()
    assert data.startswith(b"%PDF") and 5 < len(re.findall(rb"/Type\s*/Page\b", data)) < 40
    assert page.value("document.documentElement.dataset.theme") == "dark"
    assert page.value("document.documentElement.classList.contains('printing')") is False
    is_quiet(page)
    page.close()


def sixty_four_heads(results):
    """More heads than any other case, ten seeds."""
    for arm in results["arms"]:
        for run in arm["runs"]:
            for layer in run["inspect"]["layers"]:
                layer["f_attn_heads"] = {
                    key: [0.01 * (i % 40) for i in range(64)] for key in ("all", "from_quarter")
                }
        arm["runs"] = [dict(arm["runs"][i % 2], seed=i + 1) for i in range(10)]


def test_many_heads_and_seeds(chromium, pages):
    page = chromium.open(pages("default", sixty_four_heads))
    is_quiet(page)
    assert blank_canvases(page) == []
    assert page.value("document.documentElement.scrollWidth") <= 1280
    page.close()
