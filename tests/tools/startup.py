"""Start-up as ratios: cold `infercost kv ... --quiet` against bare Python and against `import typer`.

Interleaved runs, medians: a busy machine slows all three alike. `python tests/tools/startup.py [runs]`.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

LIMIT = 1.5


def main() -> int:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    script = Path(sys.executable).parent / "infercost"
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "python -c 'import typer'": [sys.executable, "-c", "import typer"],
        "infercost kv --quiet": [str(script), "kv", "--model", "llama-7b", "--seq", "32k", "--quiet"],
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(runs):
        for name, command in commands.items():
            start = time.perf_counter()
            subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
            times[name].append(time.perf_counter() - start)
    bare, typer, kv = (statistics.median(values) for values in times.values())
    for name, values in times.items():
        print(
            f"{name:26s} median {statistics.median(values) * 1e3:6.1f} ms, least {min(values) * 1e3:6.1f} ms"
        )
    print(
        f"kv / bare python {kv / bare:.2f}, kv / import typer {kv / typer:.2f} "
        f"(at most {LIMIT} wanted), {runs} runs"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
