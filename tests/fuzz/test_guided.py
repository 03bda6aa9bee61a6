"""Every parser under atheris for a while; skipped where it is not installed (`make fuzz` brings it)."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from parsers import PARSERS

RUNS = int(os.environ.get("INFERCOST_FUZZ", "200"))


@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="atheris is not installed")
@pytest.mark.parametrize("name", PARSERS)
def test_guided_by_coverage(name: str) -> None:
    script = str(Path(__file__).with_name("guided.py"))
    limits = [f"-atheris_runs={RUNS}", "-max_len=20000", "-timeout=10", "-rss_limit_mb=1024"]
    ended = subprocess.run([sys.executable, script, name, *limits], capture_output=True, check=False)
    assert ended.returncode == 0, (ended.stdout[-2000:] + ended.stderr[-4000:]).decode(errors="replace")
