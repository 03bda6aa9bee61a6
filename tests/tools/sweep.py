"""A sweep of a million points through the command line: seconds, memory, points a second.

    python tests/tools/sweep.py [points along each side, default 1000]

Three grids: batches and prompts one by one; a few lengths of many settings; and many settings of one point
each, the slowest a grid can be (a hundredth as many points).
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PEER = 5_064
"""Configurations a second of the fastest peer measured, LLM-Viewer in one process: ../shared/peers."""


def grids(side: int) -> dict[str, list[str]]:
    many = ["--model", "llama-3-8b,llama-3-70b,qwen3-8b,mixtral-8x7b", "--gpu", "a100,h100,h200,b200"]
    many += ["--weights", "bf16,fp8-row,gptq", "--kv", "bf16,fp8", "--tp", "1..8*2"]
    one = ["--model", "llama-3-8b", "--gpu", "h100"]
    few = max(1, side // 21)
    return {
        "batches x prompts": [*one, "--batch", f"1..{side}+1", "--prompt", f"1..{side}+1"],
        "many settings": [*many, "--batch", f"1..{few}+1", "--prompt", f"256..{256 * few}+256"],
        "one point each": [
            *many,
            "--pp",
            "1..4+1",
            "--batch",
            "8",
            "--prompt",
            "1k",
            "--attention",
            "flash,eager",
        ],
    }


def main() -> None:
    side = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    script = Path(sys.executable).parent / "infercost"
    for form in ("parquet", "csv"):
        for name, options in grids(side).items():
            with tempfile.TemporaryDirectory() as folder:
                out = Path(folder) / f"grid.{form}"
                before = resource.getrusage(resource.RUSAGE_CHILDREN)
                begin = time.perf_counter()
                command = [str(script), "sweep", *options, "-o", str(out), "--quiet"]
                points = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
                took = time.perf_counter() - begin
                after = resource.getrusage(resource.RUSAGE_CHILDREN)
                cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
                print(
                    f"{form:8}{name:18} {points:10,} points {took:7.1f} s ({cpu:.1f} s of CPU), "
                    f"{points / took:8,.0f}/s = {points / took / PEER:.1f} x the peer, "
                    f"{after.ru_maxrss / 1024:,.0f} MiB at most in a process, {os.cpu_count()} cores, "
                    f"{out.stat().st_size / 1e6:,.0f} MB"
                )


if __name__ == "__main__":
    main()
