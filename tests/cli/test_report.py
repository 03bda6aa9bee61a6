"""`infercost report`: every figure is another command's, one file that loads nothing, what is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from infercost.cli.app import COMMANDS
from infercost.cli.report_assets import CSS, SCRIPT
from infercost.cli.report_tables import levers_html, table
from infercost.cli.text import seconds, size

Run = Callable[..., Any]
Ask = Callable[..., Any]
DEPLOYMENT = ("--model", "llama-3-8b", "--gpu", "h100")
REPORT = ("report", *DEPLOYMENT, "--prompt", "1k", "--gen", "64", "--batch", "4")


class Page(HTMLParser):
    """Tags with their attributes, the text of elements that have an id, and the lattice."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.said: dict[str, str] = {}
        self.headings: list[str] = []
        self._open: list[tuple[str, str | None]] = []
        self.feed(source)
        self.lattice = json.loads(self.said["lattice"])

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "input", "br", "rect", "polyline", "polygon", "path"):
            self._open.append((tag, dict(attrs).get("id")))

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1][1]:
            name = self._open[-1][1] or ""
            self.said[name] = self.said.get(name, "") + data
        if self._open and self._open[-1][0] in ("h1", "h2"):
            self.headings.append(data)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory, run: Run) -> str:
    path = tmp_path_factory.mktemp("page") / "report.html"
    result = run(*REPORT, "--tpot", "20ms", "-o", str(path))
    assert result.code == 0, result.err
    assert f"wrote {path}" in result.out
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def document(ask: Ask) -> Any:
    return ask(*REPORT)


def test_the_answer_is_that_of_the_commands(ask: Ask, document: Any, run: Run) -> None:
    request = ask("request", *DEPLOYMENT, "--prompt", "1k", "--gen", "64", "--batch", "4")
    fit = ask("fit", *DEPLOYMENT, "--seq", "1087", "--batch", "4")
    assert document["request"] == request
    assert document["fit"] == fit
    said = document["answer"]
    assert said["ttft"] == seconds(request["ttft_s"]["expected"])
    assert said["tpot"] == seconds(request["tpot_s"]["expected"])
    assert said["fits"] is fit["fits"] is True
    first = run(*REPORT).out.splitlines()[0]
    assert f"fits, {size(fit['free_bytes'])} to spare" in first
    assert f"first token in {seconds(request['ttft_s']['expected'])}" in first
    assert f"{request['usd_per_million']['output']:,.3g} dollars per million tokens out" in first


def test_every_cell_of_the_lattice_is_a_request_and_a_bill(ask: Ask, document: Any, source: str) -> None:
    """A sample of them asked of the commands, and what the page shows of it."""
    lattice, page = document["lattice"], Page(source)
    formats, prompts, batches = lattice["formats"], lattice["prompts"], lattice["batches"]
    assert 1024 in prompts
    assert 4 in batches
    assert formats[0] == {"weights": "bf16", "kv": "bf16"}
    assert len({tuple(each.values()) for each in formats}) == len(formats) >= 4
    shown = page.lattice["cells"]
    assert (len(shown), len(shown[0]), len(shown[0][0])) == (len(formats), len(prompts), len(batches))
    for f, p, b in ((0, 0, 0), (1, 2, 8), (len(formats) - 1, len(prompts) - 1, 5)):
        point = lattice["points"][f][p][b]
        options = ("--weights", formats[f]["weights"], "--kv", formats[f]["kv"], "--batch", str(batches[b]))
        request = ask("request", *DEPLOYMENT, "--prompt", str(prompts[p]), "--gen", "64", *options)
        for key in ("ttft_s", "tpot_s", "e2e_s", "usd_per_million", "output_tokens_per_s", "phases"):
            assert point[key] == request[key]
        bill = ask("fit", *DEPLOYMENT, "--seq", str(prompts[p] + 63), *options)
        assert point["fit"]["total_bytes"] == bill["total_bytes"]
        assert point["fit"]["budget_bytes"] == bill["budget_bytes"]
        words = dict(zip(page.lattice["figures"], shown[f][p][b][0], strict=True))
        assert words["ttft"] == seconds(request["ttft_s"]["expected"])
        assert words["tpot"] == seconds(request["tpot_s"]["expected"])
        assert words["usd"] == f"{request['usd_per_million']['output']:,.3g}"
        assert words["memory"] == f"{size(bill['total_bytes'])} of {size(bill['budget_bytes'])}"
        assert shown[f][p][b][1] == int(bill["fits"])
        weights = next(term["bytes"] for term in bill["terms"] if term["name"] == "weights")
        whole = max(bill["budget_bytes"], bill["total_bytes"])
        assert shown[f][p][b][2][0] == round(1000 * weights / whole)
        assert sum(shown[f][p][b][2]) == pytest.approx(1000, abs=2)


def test_what_a_phase_waits_for(document: Any) -> None:
    """The larger of its two uses, as `request` gives them."""
    phases = document["request"]["phases"]
    assert phases["prefill"]["mfu"] > phases["prefill"]["mbu"]
    assert document["answer"]["prefill"] == f"arithmetic (MFU {100 * phases['prefill']['mfu']:.1f} %)"
    assert phases["decode"]["mbu"] > phases["decode"]["mfu"]
    assert document["answer"]["decode"] == f"memory (MBU {100 * phases['decode']['mbu']:.1f} %)"


def test_an_engine_has_its_own_rule_in_every_cell(ask: Ask) -> None:
    got = ask(*REPORT, "--engine", "vllm")
    point = got["lattice"]["points"][0][0][-1]["inputs"]
    seq = str(point["prompt"] + 63)
    bill = ask("fit", *DEPLOYMENT, "--engine", "vllm", "--seq", seq, "--batch", str(point["batch"]))
    assert got["lattice"]["points"][0][0][-1]["fit"]["total_bytes"] == bill["total_bytes"]
    assert got["lattice"]["points"][0][0][-1]["fit"]["budget_bytes"] == bill["budget_bytes"]


def test_one_file_that_loads_nothing(source: str) -> None:
    page = Page(source)
    assert len(source) < 300_000
    outside = ("src", "href", "action", "data", "poster", "srcset", "xlink:href", "style")
    found = [
        (tag, name, value) for tag, attrs in page.tags for name, value in attrs.items() if name in outside
    ]
    assert found == [("link", "href", "data:,")]
    assert not re.search(r"url\(|@import|https?:", CSS + SCRIPT)
    assert not [name for _, attrs in page.tags for name in attrs if name.startswith("on")]
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))


def test_the_script_has_no_formula() -> None:
    """It looks things up: no product, quotient, difference or function of numbers."""
    bare = re.sub(r'"[^"]*"', "", SCRIPT)
    assert not re.search(r"[/%]|\*|Math|parseFloat|Number\(|toFixed| - ", bare)


def test_what_stands_on_the_page(source: str) -> None:
    page = Page(source)
    assert page.headings[0] == "Llama 3 8B on H100 SXM5 80GB"
    assert {"Pictures", "Tables", "Assumptions and sources"} <= set(page.headings)
    assert ("What would help" in page.headings) == ("diagnose" in COMMANDS)
    for title in ("Roofline: h100-sxm bf16", "Memory over the context, 4 at once", "cost against batch"):
        assert title in source
    assert "limit 20 ms" in source
    assert page.said["figure-ttft"] == page.lattice["cells"][0][3][2][0][1], "shown without a script, too"


LEVERS = {
    "objective": "tpot",
    "verdicts": {
        "prefill": {"verdict": "compute-bound", "binds": "arithmetic"},
        "decode": None,
        "memory": {"fits": True},
    },
    "levers": [
        {
            "name": f"fp8<{i}>",
            "before": {"ttft_s": 1.0, "tpot_s": 0.02, "memory_bytes": 100, "usd_per_million_output": None},
            "after": {"ttft_s": 0.75, "tpot_s": 0.01, "memory_bytes": 200, "usd_per_million_output": None},
            "fits": i != 0,
            "why": "half the bytes",
            "price": "quality",
            "command": "infercost request --weights fp8",
        }
        for i in range(12)
    ],
}


def test_levers_in_their_order_with_changes() -> None:
    html = levers_html(LEVERS)
    names = re.findall(r"<tr><td>(.*?)</td>", html)
    assert names == ["fp8&lt;0&gt; (does not fit)", *(f"fp8&lt;{i}&gt;" for i in range(1, 12))]
    first = html.split("<tbody>")[1].split("</tr>")[0]
    assert re.findall(r"<td>(.*?)</td>", first)[1:] == ["-25 %", "-50 %", "+100 %", "-", "quality"]
    assert "<code>infercost request --weights fp8</code>" in html
    assert "2 more" in html
    assert "prefill: compute-bound, it goes to arithmetic" in html


def test_cells_are_text() -> None:
    html = table("<b>", ("<i>",), [("<script>",)])
    assert "<b>" not in html
    assert "<i>" not in html
    assert "<script>" not in html


def test_formats(run: Run, tmp_path: Path, document: Any) -> None:
    assert document["schema"] == "infercost.report/1"
    assert {"inputs", "conventions", "sources"} <= set(document)
    assert document["inputs"]["command"] == "report"
    json.dumps(document, allow_nan=False)
    rows = run(*REPORT, "--csv").out.splitlines()
    cells = document["lattice"]
    assert len(rows) == 1 + len(cells["formats"]) * len(cells["prompts"]) * len(cells["batches"])
    assert run(*REPORT, "-o", str(tmp_path / "x.json")).code == 0
    assert json.loads((tmp_path / "x.json").read_text(encoding="utf-8")) == document


def test_a_condition_on_the_answer(run: Run, tmp_path: Path) -> None:
    """The page is written all the same: it says why."""
    small = ("report", "--model", "gpt2", "--prompt", "8", "--gen", "2")
    assert run(*small, "--assert", "answer.fits == true").code == 0
    page = tmp_path / "x.html"
    assert run(*small, "--assert", "request.tpot_s.expected < 1e-9", "-o", str(page)).code == 1
    assert page.exists()
    assert "no one number" in run(*small, "-q").err


@pytest.mark.parametrize(
    "words",
    [
        ("--model", "gpt2", "--gpu", "t4", "--prompt", "1", "--gen", "1"),
        ("--model", "mamba2-2.7b", "--gpu", "h100", "--prompt", "300"),
        ("--model", "deepseek-v3", "--gpu", "h200", "--tp", "8", "--prompt", "4k"),
        ("--model", "flan-t5-xl", "--gpu", "rtx4090", "--prompt", "512", "--gen", "16"),
        ("--model", "llama-3-70b", "--gpu", "t4", "--prompt", "1M", "--gen", "2"),
        ("--model", "whisper-large-v3", "--gpu", "a100", "--prompt", "8", "--gen", "16"),
        ("--model", "llama-3-8b", "--gpu", "h100", "--prompt", "2k", "--calibration", "none", "--price", "0"),
        ("--model", "gpt2", "--gpu", "cpu", "--prompt", "64", "--gen", "4", "--capacity", "8GiB"),
    ],
)
def test_other_kinds_of_models(words: tuple[str, ...], run: Run, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    result = run("report", *words, "-o", str(path))
    assert result.code == 0, result.err
    assert Page(path.read_text(encoding="utf-8")).lattice["cells"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "report needs --model: a name (`infercost models` lists them)"),
        (("--model", "llama-7b", "--prompt", "9", "--gpu", ""), "a name (`infercost gpus` lists them)"),
        (("--model", "llama-7b"), "report needs --prompt"),
        (("--model", "llama-7b,gpt2", "--prompt", "1k"), "about one deployment"),
        (("--model", "-", "--prompt", "1k"), "several times"),
        (("--model", "llama7b", "--prompt", "1k"), "did you mean llama-7b"),
        (("--model", "--json", "--prompt", "1k"), ""),
        (("--model", "llama-7b", "--prompt", "1k,2k"), "is not a token count"),
        (("--model", "llama-7b", "--prompt", "1k", "--gen", "9k"), "at most 8,192 tokens out"),
        (("--model", "llama-7b", "--prompt", "1k", "--batch", "0"), "--batch '0'"),
        (("--model", "llama-7b", "--prompt", "1k", "--gpu", "b1000"), "unknown GPU"),
        (("--model", "llama-7b", "--prompt", "1k", "--tp", "5"), "divide"),
        (("--model", "llama-7b", "--prompt", "1k", "--price", "nan"), "--price is dollars"),
        (("--model", "llama-7b", "--prompt", "1k", "--tpot", "fast"), "is not a time"),
        (("--model", "llama-7b", "--prompt", "1k", "--weights", "q9"), "q9"),
        (("--model", "llama-7b", "--prompt", "1k", "--engine", "nope"), "nope"),
        (("--model", "llama-7b", "--prompt", "1k", "-o", "x.pdf"), "the suffix says the format"),
        (("--model", "llama-7b", "--prompt", "1k", "-o", "x.html", "--json"), "x.html is a page"),
        (("--model", "llama-7b", "--prompt", "1k", "-o", "/no/such/folder/x.html"), "cannot write"),
    ],
)
def test_bad_input_is_one_line(words: tuple[str, ...], said: str, run: Run) -> None:
    result = run("report", *words)
    assert result.code == 2
    assert said in result.err
    assert len(result.err.strip().splitlines()) <= 3
    assert "Traceback" not in result.err
