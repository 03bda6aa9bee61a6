"""The page of `infercost report` in a real browser: figures, keys, phones, paper, hostile names."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

Run = Callable[..., Any]
Ask = Callable[..., Any]
ASKED = ("--model", "llama-3-8b", "--gpu", "h100", "--gen", "64")
SAID = "document.getElementById('figure-{}').textContent"
MOVE = (
    "(() => {{ const s = document.getElementById('{}'); s.value = {}; "
    "s.dispatchEvent(new Event('input', {{bubbles: true}})); }})()"
)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory, run: Run) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    assert (
        run("report", *ASKED, "--prompt", "1k", "--batch", "4", "--tpot", "20ms", "-o", str(path)).code == 0
    )
    return path


def test_it_loads_nothing_and_says_nothing(browser: Any, page: Path) -> None:
    browser.open(page)
    browser.ask("1")
    assert browser.complaints() == []
    assert {url for url in browser.requests() if not url.startswith("data:")} == {page.as_uri()}
    assert browser.ask("document.querySelectorAll('svg').length") >= 10
    assert browser.ask("document.querySelector('h1').textContent") == "Llama 3 8B on H100 SXM5 80GB"
    policy = browser.ask("document.querySelector('meta[http-equiv]').content")
    assert policy.startswith("default-src 'none'")


def test_nothing_can_be_loaded_or_run(browser: Any, page: Path) -> None:
    """The page's policy stops an image, a request and a script that were put into it."""
    browser.open(page)
    browser.ask(
        "(() => { const i = new Image(); i.src = 'https://example.invalid/x.png'; document.body.append(i);"
        " const s = document.createElement('script'); s.textContent = 'window.ran = 1';"
        " document.body.append(s); })()"
    )
    assert browser.ask("typeof window.ran") == "undefined"
    assert browser.ask("fetch('https://example.invalid/').catch(() => 0) && 1") == 1
    browser.ask("new Promise(done => setTimeout(done, 50)) && 1")
    blocked = [p for p in browser.complaints() if "Content Security Policy" in json.dumps(p)]
    assert len(blocked) >= 2


def test_sliders_show_what_the_commands_say(browser: Any, page: Path, ask: Ask) -> None:
    from infercost.cli.text import seconds, size

    browser.open(page)
    lattice = json.loads(browser.ask("document.getElementById('lattice').textContent"))
    before = browser.ask(SAID.format("ttft"))
    places = ((0, 0, 0), (len(lattice["format"]) - 1, 1, 3), (1, len(lattice["prompt"]) - 1, 8))
    for place in places:
        for axis, value in zip(lattice["axes"], place, strict=True):
            browser.ask(MOVE.format(axis, value))
        names = [
            browser.ask(f"document.getElementById('{axis}-said').textContent") for axis in lattice["axes"]
        ]
        weights, kv = (part.split(" ")[1] for part in names[0].split(", "))
        prompt, batch = names[1].split(" ")[0].replace(",", ""), names[2].replace(",", "")
        formats = ("--weights", weights, "--kv", kv)
        request = ask("request", *ASKED, *formats, "--prompt", prompt, "--batch", batch)
        assert browser.ask(SAID.format("ttft")) == seconds(request["ttft_s"]["expected"])
        assert browser.ask(SAID.format("tpot")) == seconds(request["tpot_s"]["expected"])
        assert browser.ask(SAID.format("e2e")) == seconds(request["e2e_s"]["expected"])
        assert browser.ask(SAID.format("usd")) == f"{request['usd_per_million']['output']:,.3g}"
        held = str(int(prompt) + 63)
        bill = ask("fit", *ASKED[:4], *formats, "--seq", held, "--batch", batch)
        assert (
            browser.ask(SAID.format("memory"))
            == f"{size(bill['total_bytes'])} of {size(bill['budget_bytes'])}"
        )
        assert browser.ask("document.getElementById('panel').dataset.fits") == str(int(bill["fits"]))
    assert browser.ask(SAID.format("ttft")) != before
    browser.ask("document.getElementById('again').click()")
    assert browser.ask(SAID.format("ttft")) == before


def test_by_keyboard(browser: Any, page: Path) -> None:
    browser.open(page)
    browser.ask("document.getElementById('batch').focus()")
    before = browser.ask(SAID.format("rate"))
    browser.key("End")
    assert browser.ask("document.getElementById('batch-said').textContent") == "256"
    assert browser.ask("document.getElementById('batch').getAttribute('aria-valuetext')") == "256"
    assert browser.ask(SAID.format("rate")) != before
    browser.key("Home")
    assert browser.ask("document.getElementById('batch-said').textContent") == "1"
    browser.key("Tab")
    assert browser.ask("document.activeElement.id") == "again"
    assert browser.ask("[...document.querySelectorAll('input')].every(i => i.labels.length === 1)")
    assert browser.ask("document.querySelectorAll('svg:not([role=img])').length") == 0


@pytest.mark.parametrize("width", [320, 390, 768, 1280])
def test_it_is_as_wide_as_the_screen(browser: Any, page: Path, width: int) -> None:
    browser.open(page, width)
    assert browser.ask("document.documentElement.scrollWidth") <= width
    assert browser.ask("parseFloat(getComputedStyle(document.body).fontSize)") >= 16
    smallest = (
        "Math.min(...[...document.querySelectorAll('svg')].filter(s => s.getBoundingClientRect().width)"
        ".map(s => 12 * s.getBoundingClientRect().width / s.viewBox.baseVal.width))"
    )
    assert browser.ask(smallest) >= 8.5, "words of a picture, in pixels"


def test_words_in_pictures_do_not_collide(browser: Any, page: Path) -> None:
    """As the browser sets them: no two overlap, none leaves its picture."""
    script = """
    [...document.querySelectorAll('svg')].filter(s => s.getBoundingClientRect().width).flatMap(s => {
      const all = [...s.querySelectorAll('text')].map(t => [t.textContent, t.getBoundingClientRect()]);
      const sheet = s.getBoundingClientRect();
      const out = all.filter(([, r]) => r.left < sheet.left - 1 || r.right > sheet.right + 1).map(([t]) => t);
      for (let i = 0; i < all.length; i++) for (let j = 0; j < i; j++) {
        const [a, b] = [all[i][1], all[j][1]];
        const x = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const y = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (x > 1 && y > 4) out.push(all[i][0] + ' / ' + all[j][0]);
      }
      return out;
    })
    """
    for width in (390, 1280):
        browser.open(page, width)
        assert browser.ask(script) == []


def test_dark_light_and_paper(browser: Any, page: Path) -> None:
    colours = {}
    for scheme in ("light", "dark"):
        browser.open(page, prefers_color_scheme=scheme)
        body = browser.ask("getComputedStyle(document.body).backgroundColor")
        sheet = browser.ask("getComputedStyle(document.querySelector('svg rect')).fill")
        assert body == sheet
        colours[scheme] = body
    assert colours == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 27)"}
    browser.call("Emulation.setEmulatedMedia", media="print", features=[])
    assert browser.ask("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.ask("getComputedStyle(document.querySelector('.sliders')).display") == "none"
    assert browser.call("Page.printToPDF")["data"]


HOSTILE = "</script><script>window.ran=1</script><img src=x onerror='window.ran=1'>\"'&`${1}"


def test_hostile_names_are_text(browser: Any, tmp_path: Path, run: Run) -> None:
    sheet = Path(__file__).parents[2] / "models" / "sheets" / "llama-7b.yaml"
    data = yaml.safe_load(sheet.read_text(encoding="utf-8"))
    data |= {"title": HOSTILE, "source": HOSTILE}
    (tmp_path / "model.yaml").write_text(yaml.safe_dump(data), encoding="utf-8")
    page = tmp_path / "report.html"
    words = (
        "report",
        "--model",
        str(tmp_path / "model.yaml"),
        "--prompt",
        "64",
        "--gen",
        "8",
        "-o",
        str(page),
    )
    result = run(*words)
    assert result.code == 0, result.err
    browser.open(page)
    assert browser.complaints() == []
    assert browser.ask("typeof window.ran") == "undefined"
    assert browser.ask("document.querySelectorAll('img, iframe, object, script[src]').length") == 0
    shown = browser.ask("document.querySelector('h1').textContent")
    assert shown.startswith(HOSTILE)
