"""The Python functions say what the commands say, and cost nothing until they are asked for."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import infercost
from infercost import InfercostError, InputError
from infercost.cli import api
from infercost.cli.result import Key, Result

ROOT = Path(__file__).parent.parent
PAIRS: list[tuple[Callable[[], Result], str]] = [
    (lambda: infercost.kv("llama-7b", 32768), "kv --model llama-7b --seq 32k"),
    (lambda: infercost.kv("llama-7b", [1024, "2k"], kv="fp8"), "kv --model llama-7b --seq 1k,2k --kv fp8"),
    (
        lambda: infercost.kv("qwen3-32b", 4096, tp=4, engine="vllm", kv_budget="5GiB"),
        "kv --model qwen3-32b --seq 4k --tp 4 --engine vllm --kv-budget 5GiB",
    ),
    (lambda: infercost.weights("llama-7b", "gptq"), "weights --model llama-7b --weights gptq"),
    (lambda: infercost.weights(params="7B", bits=4), "weights --params 7B --bits 4"),
    (
        lambda: infercost.ops("llama-7b", 1024, gpu="h100", phase="decode", all_logits=True),
        "ops --model llama-7b --seq 1k --gpu h100 --phase decode --all-logits",
    ),
    (lambda: infercost.roofline("a100"), "roofline --gpu a100"),
    (
        lambda: infercost.request("llama-3-8b", 2048, 64, gpu="h100", batch=2),
        "request --model llama-3-8b --prompt 2k --gen 64 --gpu h100 --batch 2",
    ),
    (
        lambda: infercost.fit("llama-3-70b", "32k", gpu=["h100", "h200"], share=0.85),
        "fit --model llama-3-70b --seq 32k --gpu h100,h200 --share 0.85",
    ),
    (
        lambda: infercost.serve("llama-7b", 512, 16, batch=(1, 2), tpot=0.05),
        "serve --model llama-7b --prompt 512 --gen 16 --batch 1,2 --tpot 50ms",
    ),
    (
        lambda: infercost.diagnose("llama-7b", 512, 16, with_="int4"),
        "diagnose --model llama-7b --prompt 512 --gen 16 --with int4",
    ),
    (lambda: infercost.run("explain", "kv", model="llama-7b"), "explain kv --model llama-7b"),
    (lambda: infercost.run("models", "show", "llama-7b"), "models show llama-7b"),
    (lambda: infercost.run("gpus"), "gpus"),
    (lambda: infercost.run("compress", sparsity=0.6), "compress --sparsity 0.6"),
    (
        lambda: infercost.run("check", ROOT / "docs" / "example" / "budgets.yaml", only="weights"),
        f"check {ROOT / 'docs' / 'example' / 'budgets.yaml'} --only weights",
    ),
]


@pytest.mark.parametrize(("called", "typed"), PAIRS, ids=[typed[:40] for _, typed in PAIRS])
def test_a_call_is_its_command(called: Callable[[], Result], typed: str, ask: Callable[..., Any]) -> None:
    assert called().document == ask(*typed.split())


@pytest.mark.parametrize(("called", "typed"), PAIRS, ids=[typed[:40] for _, typed in PAIRS])
def test_a_result_reads_well(called: Callable[[], Result], typed: str, run: Callable[..., Any]) -> None:
    result = called()
    assert str(result) == run(*typed.split()).out
    assert result.command.split()[:2] == ["infercost", typed.split()[0]]
    rows = result.to_pandas()
    assert len(rows) >= 1
    assert list(rows.columns) == run(*typed.split(), "--csv").out.splitlines()[0].split(",")
    page = result._repr_html_()
    assert page.startswith("<p><b>")
    _Balanced().feed(page)


def test_pictures_are_those_of_the_command(run: Callable[..., Any], tmp_path: Path) -> None:
    model = infercost.load_model("llama-7b")
    path = tmp_path / "roof.svg"
    asked = ("roofline", "--gpu", "a100", "--model", "llama-7b", "--seq", "1k")
    assert run(*asked, "--plot", str(path)).code == 0
    result = infercost.roofline("a100", model=model, seq=1024)
    assert result.svg() == path.read_text(encoding="utf-8")
    assert result.svg() in result._repr_html_()
    assert result.points[0].svg() == result.svg()
    for drawn in (infercost.kv(model, 1024), infercost.fit(model, 1024), infercost.request(model, 8, 2)):
        assert drawn.svg().startswith("<svg ")
    with pytest.raises(InputError, match="draws no picture"):
        infercost.weights(model).svg()
    # What cannot be drawn shows its tables alone.
    many = infercost.roofline(list(infercost.gpu_names()))
    with pytest.raises(InputError, match="more than the"):
        many.svg()
    assert "<svg" not in many._repr_html_()


class _Balanced(HTMLParser):
    """Refuses a tag that is closed before one opened inside it."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_golden_values() -> None:
    """16 GiB of LLaMA-7B at 32k (seed 000); 142.5 and 153.0 of the A100; 7B at 2 bytes (Table 9.3)."""
    assert infercost.kv("llama-7b", 32768).logical_bytes == 17_179_869_184
    assert infercost.kv("llama-7b", "32k").bytes_per_token == 2 * 32 * 32 * 128 * 2
    assert infercost.weights("llama-7b").weight_bytes == 2 * 6_738_415_616
    ridge = infercost.roofline("a100").ridge
    assert ridge.textbook == pytest.approx(312e12 / (2039 * 2**30))
    assert ridge.datasheet == pytest.approx(312e12 / 2039e9)
    whole = infercost.request("llama-7b", 1024, 256, gpu="a100", batch=8)
    assert whole.decode_steps == 255
    for times in (whole.ttft_s, whole.tpot_s, whole.e2e_s):
        assert times.bound is not None
        assert times.floor is not None
        assert times.expected is not None
        assert 0 < times.bound <= times.floor <= times.expected
    bill = infercost.fit("llama-3-70b", 8192, gpu="h100", tp=4)
    assert (
        sum(term["bytes"] for term in bill.terms) == bill.total_bytes == bill.budget_bytes - bill.free_bytes
    )


def test_points_are_results() -> None:
    both = infercost.kv("llama-7b", [1024, 2048])
    first, second = both.points
    assert second.logical_bytes == 2 * first.logical_bytes
    assert (first.inputs["seq"], second.inputs["seq"], first.inputs["command"]) == (1024, 2048, "kv")
    with pytest.raises(AttributeError, match=r"each of \.points has its own"):
        _ = both.logical_bytes
    with pytest.raises(AttributeError, match="it has schema"):
        _ = infercost.kv("llama-7b", 1024).allocated_bytes
    one = infercost.fit("llama-7b", 1024)
    assert one.points == (one,)
    assert one["fits"] is one.fits is True
    loads = infercost.serve("llama-7b", 512, 16, batch=[1, 2]).points
    assert [load.batch for load in loads] == [1, 2]
    assert loads[1].output_tokens_per_s > loads[0].output_tokens_per_s


@pytest.mark.parametrize("kind", Result.__subclasses__(), ids=lambda kind: kind.__name__)
def test_typed_keys_are_in_the_documents(kind: type[Result]) -> None:
    """Every typed key can be read from a real result (an engine's pool where it takes one)."""
    samples: dict[str, Callable[[], Result]] = {
        "Kv": lambda: infercost.kv("llama-7b", 1024, engine="vllm", kv_budget="8GiB"),
        "Weights": lambda: infercost.weights("llama-7b"),
        "Ops": lambda: infercost.ops("llama-7b", 128),
        "Roofline": lambda: infercost.roofline("h100"),
        "Request": lambda: infercost.request("llama-7b", 128, 4),
        "Fit": lambda: infercost.fit("llama-7b", 128),
        "Serve": lambda: infercost.serve("llama-7b", 128, 4, batch=1),
        "ServePoint": lambda: infercost.serve("llama-7b", 128, 4, batch=1).points[0],
        "Diagnose": lambda: infercost.diagnose("llama-7b", 128, 4),
    }
    sample = samples[kind.__name__]()
    keys = [name for name, value in vars(kind).items() if isinstance(value, Key)]
    assert keys
    for name in keys:
        getattr(sample, name)
        assert getattr(kind, name).meaning


def test_objects_stand_for_names() -> None:
    model, gpu = infercost.load_model("llama-7b"), infercost.load_gpu("a100")
    assert infercost.kv(model, 1024).document == infercost.kv("llama-7b", 1024).document
    assert infercost.ops(model, 128, gpu=gpu).document == infercost.ops("llama-7b", 128).document
    small = model.with_layers(4)
    # Two objects and a text of one name are three models.
    three = infercost.kv([small, model, "llama-7b"], 1024).points
    assert [point.logical_bytes // 2**26 for point in three] == [1, 8, 8]
    wide = replace(gpu, name="mine, twice", memory=replace(gpu.memory, bandwidth_gb_per_s=2 * 2039.0))
    assert infercost.roofline(wide).ridge.datasheet == pytest.approx(312e12 / 4078e9)
    with pytest.raises(InputError, match="unknown model"):
        infercost.kv(gpu, 1024)  # type: ignore[arg-type]
    # What was at hand in one call is gone in the next.
    with pytest.raises(InputError, match="unknown GPU"):
        infercost.roofline("mine--twice")


def test_calls_in_threads_do_not_mix() -> None:
    model = infercost.load_model("llama-7b")

    def bytes_of(layers: int) -> int:
        return infercost.kv(model.with_layers(layers), 1024).logical_bytes

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(bytes_of, range(1, 33))) == [layers * 2**24 for layers in range(1, 33)]


@pytest.mark.parametrize(
    ("called", "said"),
    [
        (lambda: infercost.kv("llama-7b"), "kv needs --seq"),
        (lambda: infercost.kv("llama7b", 1), "did you mean llama-7b"),
        (lambda: infercost.kv("llama-7b", -5), "--seq '-5' is not a token count"),
        (lambda: infercost.kv("llama-7b", []), "has an empty part"),
        (lambda: infercost.kv("llama-7b", float("nan")), "is not a token count"),
        (lambda: infercost.kv("llama-7b", 1, kv_head=8), "kv has no option 'kv_head'; did you mean"),
        (lambda: infercost.kv("llama-7b", 1, tp="two"), "'two' is not a valid int"),
        (lambda: infercost.kv("llama-7b", object()), "seq takes text, numbers, or a list of them"),
        (lambda: infercost.kv("llama-7b", True), "seq takes text, numbers"),
        (lambda: infercost.ops("llama-7b", 1, all_logits=1), "all_logits is True or False"),
        (lambda: infercost.kv("llama-7b", 1, quiet=True, json=True), "--quiet prints the one number"),
        (lambda: infercost.run("kvv"), "there is no command 'kvv'; did you mean kv?"),
        (lambda: infercost.run("kv", "--model", "llama-7b"), "options are named arguments"),
        (
            lambda: infercost.run("models", "import", "llama-7b"),
            "infercost models import llama-7b has no JSON",
        ),
        (lambda: infercost.run("models", "prune"), "No such command"),
        (lambda: infercost.fit("llama-3-70b", 4096, require=True), "does not fit"),
        (lambda: infercost.weights("llama-7b", assert_="weight_bytes < 1"), "assertion failed"),
        (lambda: infercost.run("gpus", "show", "a100", chip=1), "gpus has no option 'chip'"),
        (lambda: infercost.load_engine("vlm"), "did you mean vllm"),
    ],
)
def test_errors_are_one_line(called: Callable[[], Any], said: str, capfd: Any) -> None:
    with pytest.raises(InfercostError) as caught:
        called()
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(["kv", "weights", "fit"]),
    st.dictionaries(
        st.sampled_from(["seq", "batch", "kv", "tp", "model", "window", "layers", "weights", "x"]),
        st.one_of(
            st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.just([1, "2k"])
        ),
        max_size=4,
    ),
)
def test_whatever_is_given_an_error_is_ours(command: str, options: dict[str, Any]) -> None:
    with contextlib.suppress(InfercostError):
        infercost.run(command, **{"model": "llama-7b", **options})


def test_output_writes_a_file_too(tmp_path: Path) -> None:
    infercost.kv("llama-7b", [1024, 2048], output=tmp_path / "kv.csv")
    assert (tmp_path / "kv.csv").read_text(encoding="utf-8").count("\n") == 3


def test_importing_the_package_imports_nothing_else() -> None:
    code = (
        "import sys; before = set(sys.modules); import infercost;"
        "print(*sorted(set(sys.modules) - before)); infercost.load_model; infercost.kv('llama-7b', 1024);"
        "print(*sorted(m for m in sys.modules if m in ('rich', 'pandas', 'numpy', 'torch')))"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.splitlines() == ["infercost", ""]


def test_every_public_name_is_there() -> None:
    assert infercost.__all__ == sorted(infercost.__all__)
    assert set(infercost.__all__) <= set(dir(infercost))
    for name in infercost.__all__:
        value = getattr(infercost, name)
        assert value.__doc__, name
    listed = {name for names in infercost._HOMES.values() for name in names}
    assert listed | {"InfercostError", "InputError", "DeviceError"} == set(infercost.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = infercost.nonsense
    # The functions of the module are the ones the package offers.
    defined = {name for name, value in vars(api).items() if getattr(value, "__module__", "") == api.__name__}
    assert {name for name in defined if name.islower() and not name.startswith("_")} <= set(infercost.__all__)


TYPED = """
from infercost import Model, Result, fit, kv, load_gpu, load_model, request, roofline, run, serve

model: Model = load_model("llama-7b").with_layers(4)
held: int = kv(model, [1024, "2k"], kv_heads=8).points[0].logical_bytes
slow: float | None = request(model, 512, gpu=load_gpu("h100"), price=2.5).tpot_s.expected
headline: float = roofline("a100").ridge.headline
rates: list[float] = [point.output_tokens_per_s for point in serve("llama-7b", 512, tpot="50ms").points]
fits: bool = fit("llama-7b", 1024).fits
any_result: Result = run("explain", "kv", model="llama-7b")
"""
WRONG = """
from infercost import kv, nonsense

wrong: str = kv("llama-7b", 1024).logical_bytes
kv("llama-7b", 1024, tp="two")
kv("llama-7b", 1024).no_such_key
"""


def test_a_typed_program(tmp_path: Path) -> None:
    """mypy --strict takes a right program and finds each slip of a wrong one."""
    pytest.importorskip("mypy", reason="mypy is not installed")
    (tmp_path / "infercost").symlink_to(ROOT)
    (tmp_path / "right.py").write_text(TYPED, encoding="utf-8")
    (tmp_path / "wrong.py").write_text(WRONG, encoding="utf-8")
    cache = tmp_path / "cache"
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--cache-dir={cache}"]
    command += ["--follow-imports=silent", "--ignore-missing-imports", "right.py", "wrong.py"]
    env = {**os.environ, "MYPYPATH": str(tmp_path)}
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=env)
    errors = [line for line in result.stdout.splitlines() if ": error:" in line]
    assert [line.split(":")[:2] for line in errors] == [["wrong.py", n] for n in ("2", "4", "5", "6")], (
        result.stdout
    )
