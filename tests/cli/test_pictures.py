"""Pictures: one geometry in every medium, words that do not collide, files written whole or refused."""

from __future__ import annotations

import json
import re
import struct
import subprocess
import sys
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infercost.cli.pictures.chart import (
    Axis,
    Chart,
    Point,
    bytes_name,
    decades,
    doublings,
    plain_name,
    seconds_name,
    tokens_name,
    upwards,
)
from infercost.cli.pictures.memory import Held, cache_chart, context_chart, contexts
from infercost.cli.pictures.palette import DARK, LIGHT
from infercost.cli.pictures.roofline import Mark, merge, roofline_chart
from infercost.cli.pictures.scene import NARROW, WIDE, Dot, Stroke, Words, laid_out, stacked
from infercost.cli.pictures.serving import throughput_chart, timeline_chart
from infercost.cli.pictures.svg import svg
from infercost.cli.pictures.terminal import coloured, picture

Run = Callable[..., Any]
Ask = Callable[..., Any]
SVG = "{http://www.w3.org/2000/svg}"
ROOF = ("roofline", "--gpu", "a100", "--model", "llama-7b", "--batch", "8", "--seq", "1024")
FIT = ("fit", "--model", "llama-3-8b", "--gpu", "h100", "--seq", "32k", "--batch", "8")
PICTURES = {
    "roofline": ROOF,
    "roofs": ("roofline", "--gpu", "a100,h100,b200", "--model", "llama-7b", "--batch", "8", "--seq", "1024"),
    "kv": ("kv", "--model", "llama-3-70b,gemma-3-27b,mamba2-2.7b", "--seq", "128k"),
    "kv engine": ("kv", "--model", "llama-3-8b", "--seq", "64k", "--engine", "vllm", "--kv-budget", "4GiB"),
    "fit": FIT,
    "fits": ("fit", "--model", "llama-3-8b", "--gpu", "h100,rtx4090,l4", "--seq", "8k,32k"),
    "request": ("request", "--model", "llama-3-8b", "--gpu", "h100", "--prompt", "8k", "--gen", "512"),
    "requests": ("request", "--model", "llama-3-8b", "--prompt", "1k,2k", "--gen", "1"),
    "serve": ("serve", "--model", "llama-3-8b", "--gpu", "h100", "--prompt", "2k", "--tpot", "20ms"),
    "serves": ("serve", "--model", "llama-3-8b", "--gpu", "h100,l40s", "--prompt", "2k", "--ttft", "1s"),
    "validate": (
        "validate",
        "--kernels",
        str(Path(__file__).parents[2] / "docs" / "example" / "l4-invented.csv"),
    ),
}


def texts(path: Path) -> list[str]:
    return ["".join(each.itertext()) for each in ElementTree.parse(path).iter(f"{SVG}text")]


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory, run: Run) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pictures")
    out = {}
    for name, words in PICTURES.items():
        out[name] = folder / f"{name}.svg"
        result = run(*words, "--plot", str(out[name]))
        assert result.code == 0, (name, result.err)
    return out


@pytest.mark.parametrize("name", PICTURES)
def test_every_svg(name: str, drawn: dict[str, Path]) -> None:
    """Well-formed, titled, described, text as text, light and dark, and nothing that a reader would load."""
    source = drawn[name].read_text(encoding="utf-8")
    root = ElementTree.fromstring(source)
    assert root.get("viewBox")
    for kind in ("title", "desc"):
        assert "".join(root.find(f"{SVG}{kind}").itertext()).strip()
    assert root.get("aria-labelledby") == f"{root[0].get('id')} {root[1].get('id')}"
    assert len(texts(drawn[name])) > 5
    assert "prefers-color-scheme:dark" in source
    assert not re.search(r"href|url\(|@import|<script|<image|foreignObject", source)
    assert len(source) < 60_000


@pytest.mark.parametrize("name", PICTURES)
def test_nothing_outside_the_sheet(name: str, drawn: dict[str, Path]) -> None:
    root = ElementTree.parse(drawn[name]).getroot()
    width, height = (float(root.get(side)) for side in ("width", "height"))
    for line in root.iter(f"{SVG}polyline"):
        for spot in line.get("points").split():
            x, y = map(float, spot.split(","))
            assert 0 <= x <= width
            assert 0 <= y <= height
    for each in root.iter(f"{SVG}text"):
        assert 0 <= float(each.get("y")) <= height


def collisions(chart: Chart, width: float) -> list[tuple[str, str]]:
    words = [shape for shape in laid_out(chart, width).shapes if isinstance(shape, Words)]

    def meet(a: Words, b: Words) -> bool:
        (l0, t0, r0, b0), (l1, t1, r1, b1) = a.box, b.box
        return l0 < r1 and l1 < r0 and t0 < b1 and t1 < b0

    return [(a.text, b.text) for a, b in combinations(words, 2) if meet(a, b)]


places = st.tuples(st.floats(-2, 5), st.floats(8, 15))


@settings(max_examples=60, deadline=None)
@given(st.lists(places, min_size=1, max_size=40), st.sampled_from([WIDE, NARROW]))
def test_words_never_collide(spots: list[tuple[float, float]], width: float) -> None:
    """Whatever operations a model has; the letter that finds no room is left to the legend."""
    marks = [Mark("prefill" if i % 2 else "decode", f"op{i}", 10**x, 10**y) for i, (x, y) in enumerate(spots)]
    point = {
        "gpu": "g",
        "dtype": "fp16",
        "peak_flops_per_s": 312e12,
        "bandwidth_bytes_per_s": 2039e9,
        "ridge": {"textbook": 142.5, "datasheet": 153.0},
        "reached": None,
        "measured": [],
        "ops": [
            {
                "phase": mark.phase,
                "name": mark.name,
                "intensity": mark.intensity,
                "attainable_flops_per_s": mark.flops_per_s,
                "matmul_flops": 1,
            }
            for mark in marks
        ],
    }
    chart = roofline_chart([point])
    assert collisions(chart, width) == []
    named = {name for spot in merge(marks) for mark in spot.marks for name in [mark.name]}
    assert named == {mark.name for mark in marks}, "coincident marks are merged, and all of them named"
    shown = " ".join(shape.text for shape in laid_out(chart, width).shapes if isinstance(shape, Words))
    assert all(re.search(rf"\b{name}\b", shown) for name in named)


def test_the_roofline_is_the_same_in_every_medium(run: Run, drawn: dict[str, Path], ask: Ask) -> None:
    """Ridges of the seed (142.5 and 153.0), the roof's corner and each mark where the numbers put them."""
    point = ask(*ROOF)
    chart = roofline_chart([point])
    (roof,) = (line for line in chart.lines if not line.dashed)
    assert roof.spots[1] == (pytest.approx(312e12 / 2039e9), 312e12)
    assert [rule.name for rule in chart.rules] == ["142.5 textbook", "153.0 datasheet"]
    said = texts(drawn["roofline"])
    assert {"142.5 textbook", "153.0 datasheet", "decode attention"} <= set(said)
    screen = picture(chart)
    assert picture(chart) in run(*ROOF).out
    for text in (point.name for point in chart.points):
        assert text in " ".join(said)
        assert text in " ".join(screen.split())
    dots = [shape for shape in laid_out(chart).shapes if isinstance(shape, Dot)]
    for dot, mark in zip(dots, chart.points, strict=True):
        # Under the roof or on it, by the coordinates of the sheet.
        x = chart.x.at(mark.x)
        assert mark.y <= min(312e12, mark.x * 2039e9) * (1 + 1e-12)
        left = min(
            s.spots[0][0] for s in laid_out(chart).shapes if isinstance(s, Stroke) and s.tone == "grid"
        )
        assert dot.x == pytest.approx(left + x * (WIDE - 16 - left), abs=0.01)


def test_measured_points_are_rings_below_the_roof(tmp_path: Path, run: Run) -> None:
    results = [
        {"id": "gemm", "matmul_flops": 4e12, "bytes": 4e9, "achieved_flops_per_s": 2.5e14, "verdict": "ok"},
        {"id": "copy", "matmul_flops": 0, "bytes": 4e9, "achieved_flops_per_s": None, "verdict": "ok"},
    ]
    (tmp_path / "probe.json").write_text(json.dumps({"results": results}), encoding="utf-8")
    out = tmp_path / "roof.svg"
    assert run(*ROOF, "--measured", str(tmp_path / "probe.json"), "--plot", str(out)).code == 0
    root = ElementTree.parse(out).getroot()
    rings = [each for each in root.iter(f"{SVG}circle") if "f-paper" in each.get("class")]
    (ring,) = ("".join(each.itertext()) for each in rings)
    assert ring.endswith("measured gemm")
    assert "measured gemm" in texts(out)


def test_one_name_many_roofs(drawn: dict[str, Path]) -> None:
    said = texts(drawn["roofs"])
    for name in (
        "a100-80g-sxm fp16",
        "h100-sxm fp16",
        "b200 fp16",
        "a100-80g-sxm fp16, as its kernels reach",
    ):
        assert name in said


def test_memory_is_full_where_fit_says(drawn: dict[str, Path], ask: Ask) -> None:
    got = ask(*FIT)
    assert f"full at {got['max_seq']:,} tokens" in texts(drawn["fit"])
    assert any(text.startswith("budget 71.68 GiB") for text in texts(drawn["fit"]))


def test_the_cache_is_full_where_the_engine_says(drawn: dict[str, Path], ask: Ask) -> None:
    """4 GiB of llama-3-8b at 128 KiB a token: 32,768 tokens."""
    full = next(text for text in texts(drawn["kv engine"]) if text.startswith("full at"))
    assert full == "full at 32,768 tokens"


def test_limits_best_and_knee(drawn: dict[str, Path]) -> None:
    said = " ".join(texts(drawn["serve"]))
    assert "limit 20 ms" in said
    assert "best: 46 at once, continuous" in said
    assert "knee: 16 at once, continuous" in said
    assert "cost against batch" in said


def test_png(tmp_path: Path, run: Run) -> None:
    pytest.importorskip("matplotlib", reason="PNG needs matplotlib")
    out = tmp_path / "roof.PNG"
    assert run(*ROOF, "--plot", str(out)).code == 0
    data = out.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", data[16:24])
    assert width == 2 * WIDE
    assert height > 600


def test_png_without_matplotlib(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = run(*ROOF, "--plot", str(tmp_path / "roof.png"))
    assert result.code == 2
    assert "infercost[plot]" in result.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["roofline", "kv", "fit", "request", "serve", "validate"])
@pytest.mark.parametrize("name", ["roof.jpg", "roof", "", ".svg.txt"])
def test_another_suffix_is_refused(command: str, name: str, run: Run, tmp_path: Path) -> None:
    result = run(*PICTURES[command], "--plot", str(tmp_path / name))
    assert result.code == 2
    assert "use .svg or .png" in result.err
    assert "Traceback" not in result.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            (*ROOF[:1], "--gpu", "a100,h100,h200,b200,l4,l40s,t4"),
            "more than the 6 that a picture tells apart",
        ),
        (("serve", "--model", "llama-3-8b", "--prompt", "2k", "--batch", "4"), "make no curve"),
        (("serve", "--actual", "1200"), "--plot without effect on `serve"),
        (
            ("request", "--model", "gpt2", "--prompt", ",".join(map(str, range(1, 20)))),
            "at most 12 time lines",
        ),
        (("validate", "--end-to-end", "x.csv"), "it stands alone"),
    ],
)
def test_what_cannot_be_drawn(words: tuple[str, ...], said: str, run: Run, tmp_path: Path) -> None:
    result = run(*words, "--plot", str(tmp_path / "x.svg"))
    assert result.code == 2
    assert said in result.err
    assert list(tmp_path.iterdir()) == []


def test_a_picture_goes_with_every_format(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "x.svg"
    assert run(*FIT, "--json", "--plot", str(out)).json == run(*FIT, "--json").json
    assert out.exists()
    assert run(*FIT, "--plot", str(tmp_path / "no" / "x.svg")).code == 2


def test_terminal_fits_80_columns_in_colour_and_without(ask: Ask) -> None:
    chart = roofline_chart([ask(*ROOF)])
    plain, painted = picture(chart), coloured(chart)
    assert max(map(len, plain.splitlines())) <= 80
    assert "\x1b" not in plain
    assert re.sub(r"\x1b\[[0-9;]*m", "", painted) == plain
    assert "\x1b[34mC\x1b[0m" in painted
    assert max(map(len, picture(chart, 184).splitlines())) <= 200


def test_colour_only_for_a_terminal(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b" not in run(*ROOF).out
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    assert "\x1b[3" in run(*ROOF).out
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[3" not in run(*ROOF).out


positive = st.floats(1e-9, 1e18)


@settings(max_examples=200, deadline=None)
@given(st.lists(positive, min_size=1, max_size=6))
def test_axes_hold_their_values(values: list[float]) -> None:
    """Every value between 0 and 1, in order; ticks inside, named, few."""
    for axis in (
        decades("", values, plain_name),
        decades("", values, seconds_name, whole=False),
        doublings("", values, tokens_name),
        upwards("", max(values), bytes_name, binary=True),
        upwards("", max(values), plain_name),
    ):
        at = [axis.at(value) for value in sorted(values)]
        assert all(-1e-9 <= each <= 1 + 1e-9 for each in at)
        assert at == sorted(at)
        assert 1 <= len(axis.ticks) <= 32
        assert all(-1e-9 <= axis.at(value) <= 1 + 1e-9 and name for value, name in axis.ticks)


def test_names_of_ticks() -> None:
    assert [tokens_name(v) for v in (512, 1024, 32768, 1 << 20, 1000, 1536)] == [
        *("512", "1k", "32k", "1M", "1,000", "1,536")
    ]
    assert [bytes_name(v) for v in (0, 512, 1 << 30, 40 * 2**30, 1.5 * 2**40)] == [
        *("0", "512 B", "1 GiB", "40 GiB", "1.5 TiB")
    ]
    assert [seconds_name(v) for v in (0, 1e-5, 0.02, 2.0, 500)] == ["0", "10 us", "20 ms", "2 s", "500 s"]


def test_contexts_hold_the_one_asked_for() -> None:
    for asked, longest in ((1, None), (1000, 57_350), (131_072, 0), (1 << 40, None), (5, 1 << 39)):
        found = contexts(asked, longest)
        assert found == sorted(set(found))
        assert len(found) <= 40
        assert asked in found or asked > found[-1]


def test_every_tone_has_a_light_and_a_dark_colour_that_can_be_read() -> None:
    """Contrast of words with their paper: 4.5 to 1 (WCAG 2.2, 1.4.3)."""

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return sum(w * p for w, p in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    def contrast(a: str, b: str) -> float:
        low, high = sorted((luminance(a), luminance(b)))
        return (high + 0.05) / (low + 0.05)

    assert set(LIGHT) == set(DARK)
    for colours in (LIGHT, DARK):
        for tone in ("ink", "muted", *(f"s{i}" for i in range(6))):
            assert contrast(colours[tone], colours["paper"]) >= 4.5, tone
        for i in range(6):
            assert contrast(colours["onbar"], colours[f"s{i}"]) >= 4.5


def test_hostile_names_are_text() -> None:
    name = "</title><script>alert(1)</script>&\x1b[31m\u202e"
    axis = Axis(name, 0.0, 1.0, ((0.0, name),), log=False)
    chart = Chart(name, name, axis, axis, points=(Point(name, 0.5, 0.5),))
    source = svg(stacked([laid_out(chart), laid_out(chart, NARROW)]))
    root = ElementTree.fromstring(source)
    assert not list(root.iter(f"{SVG}script"))
    assert "\x1b" not in source
    assert "\u202e" not in source


def test_charts_of_nothing() -> None:
    assert throughput_chart("", []) is None
    held = [Held(1, {"weights": 10}), Held(2, {"weights": 10})]
    assert laid_out(context_chart("x", held, 5, 1, 0)).shapes
    assert laid_out(cache_chart("x", [("none", lambda tokens: 0)], [1, 2], None)).shapes
    block = {"phase": "prefill", "start_s": 0.0, "end_s": 1e-9, "steps": 1, "context": 1, "cache_bytes": 0}
    assert laid_out(timeline_chart("x", [block])).shapes


def test_the_readme_shows_what_is_drawn_today() -> None:
    tool = Path(__file__).parents[1] / "tools" / "pictures.py"
    command = [sys.executable, str(tool), "--check"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_an_svg_needs_no_heavy_module(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom infercost.cli.app import main\n"
        f"sys.argv = ['infercost', *{FIT!r}, '--plot', {str(tmp_path / 'x.svg')!r}]\n"
        "try:\n    main()\nexcept SystemExit as leaving:\n    assert not leaving.code\n"
        "assert not {'matplotlib', 'rich', 'pandas', 'numpy', 'torch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    assert (tmp_path / "x.svg").exists()
