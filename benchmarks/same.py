"""How often a comparison of a service with itself shows no difference: `kubectl vlm bench NAME --against NAME`, again and again.

    python benchmarks/same.py qwen3-vl-cpu --runs 10 --requests 16 --concurrency 4

Other options are passed to every command. Exit code 1 if fewer than 9 of 10 intervals include 1.
Exact 95 % intervals fail that by chance in 8.6 of 100 sets of ten runs (two or more misses: 1 - 0.95^10 - 10 * 0.05 *
0.95^9), so one failed set says little; of 20 runs, of which 18 must include 1, it is 7.5 of 100.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def compare(name: str, options: list[str]) -> tuple[float, float, float]:
    """Ratio of requests/s, and both ends of its interval. Raises RuntimeError with the command's errors."""
    with tempfile.TemporaryDirectory() as folder:
        saved = ["--folder", str(Path(folder) / "saved"), "-o", "json"]
        command = [sys.executable, "-m", "vlm_operator.cli.main", "bench", name, "--against", name, *options, *saved]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    [comparison] = json.loads(done.stdout)["comparisons"]
    interval = comparison["ratios"]["requests/s"]
    return interval["ratio"], interval["low"], interval["high"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="the VLMService")
    parser.add_argument("--runs", type=int, default=10)
    given, options = parser.parse_known_args()
    held = 0
    for number in range(1, given.runs + 1):
        begun = time.monotonic()
        ratio, low, high = compare(given.name, options)
        held += low <= 1 <= high
        verdict = "includes 1" if low <= 1 <= high else "names a winner"
        seconds = time.monotonic() - begun
        print(f"{number:3}  {ratio:.3f}  {low:.3f} to {high:.3f}  {verdict}  {seconds:.0f} s", flush=True)
    print(f"{held} of {given.runs} intervals include 1")
    return 0 if held >= 0.9 * given.runs else 1


if __name__ == "__main__":
    sys.exit(main())
