"""Runs inside the engine's container: starts SGLang's profiler over loopback, waits, and prints the traces.

This file is sent as text (``python3 -c``), so it imports the standard library only and works on Python 3.10. The
engine's profiling paths answer nobody but its own pod. Traces leave as base64, since the stream that carries them is text.

The one argument is JSON: ``port``, ``steps``, ``activities``, ``with_stack``, ``seconds`` and ``key_variable``.
"""

from __future__ import annotations

import base64
import glob
import gzip
import json
import os
import shutil
import sys
import tempfile
import time
import urllib.error
import urllib.request
from typing import Any

MARK = "vlm-trace "
CHUNK_BYTES = 48 * 1024
PAUSE_SECONDS = 0.5
# SGLang 0.5.23 gives a stage up for good that begins while the other is being recorded: then it is asked again.
AGAIN_SECONDS = 5.0
PROFILE = "vlm"
# Each stage is one file: SGLang stops a stage by itself after its steps.
STAGES = ("EXTEND", "DECODE")


def say(event: str, **fields: Any) -> None:
    """One line for whoever reads the command's output."""
    print(MARK + json.dumps({"event": event, **fields}), flush=True)


def post(options: dict[str, Any], path: str, body: dict[str, Any]) -> str | None:
    """Why the engine refused; None where it did not."""
    headers = {"Content-Type": "application/json"}
    if key := os.environ.get(options["key_variable"]):
        headers["Authorization"] = f"Bearer {key}"
    url = f"http://127.0.0.1:{options['port']}{path}"
    request = urllib.request.Request(url, json.dumps(body).encode(), headers, method="POST")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=60):
            return None
    except urllib.error.HTTPError as error:
        return f"HTTP {error.code}: {error.read()[:200].decode(errors='replace')}"
    except OSError as error:
        return str(error)


def finished(path: str) -> bool:
    """Whether the file is whole: its last block has its checksum."""
    try:
        with gzip.open(path) as file:
            while file.read(1 << 22):
                pass
    except (OSError, EOFError):
        return False
    return True


def send(path: str, stage: str) -> None:
    """The file, piece by piece."""
    say("trace", stage=stage, bytes=os.path.getsize(path))
    with open(path, "rb") as file:
        while piece := file.read(CHUNK_BYTES):
            print(base64.b64encode(piece).decode(), flush=False)
    say("sent", stage=stage)


def main(text: str) -> int:
    """Records both stages of the first rank. Exit code 1 where the engine refuses, or no step came."""
    options = json.loads(text)
    # The engine writes as the same user, into the same container.
    folder = tempfile.mkdtemp(prefix="vlm-profile-")
    try:
        body = {
            "output_dir": folder,
            "num_steps": options["steps"],
            "activities": options["activities"],
            "profile_by_stage": True,
            "with_stack": options["with_stack"],
            "record_shapes": True,
            "profile_id": PROFILE,
        }
        if why := post(options, "/start_profile", body):
            say("failed", message=f"the engine refused to record: {why}")
            return 1
        say("recording")
        deadline = time.monotonic() + options["seconds"]
        wanted, again = list(STAGES), deadline
        while wanted:
            for stage in list(wanted):
                for path in glob.glob(os.path.join(folder, f"{PROFILE}-TP-0*-{stage}.trace.json.gz")):
                    if stage in wanted and finished(path):
                        wanted.remove(stage)
                        send(path, stage)
                        again = time.monotonic() + AGAIN_SECONDS
            if wanted and time.monotonic() > deadline:
                # Whatever is still recorded must not go on after this command.
                post(options, "/stop_profile", {})
                if len(wanted) == len(STAGES):
                    say("failed", message=f"no step came within {options['seconds']} s: is there load?")
                    return 1
                say("missing", stages=wanted)
                break
            if wanted and time.monotonic() > again:
                # Both may be refused: nothing is recorded now, or something still is. The next time tells.
                post(options, "/stop_profile", {})
                post(options, "/start_profile", body)
                again = time.monotonic() + AGAIN_SECONDS
            time.sleep(PAUSE_SECONDS if wanted else 0)
        say("end")
        return 0
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
