"""Runs in the engine's container: starts a profiler, waits, and prints the file that it wrote.

The profiler is SGLang's own, over loopback, since the engine's profiling paths answer only its own pod; or Nsight Systems, if
the engine runs under it (``nsys launch``). Sent as text: the standard library only, Python 3.10. Files are printed as base64,
since the stream is text.

The argument is JSON: ``port``, ``tls``, ``steps``, ``activities``, ``with_stack``, ``seconds`` and ``key_variable``; or, for
Nsight Systems, ``session`` and ``seconds``.
"""

from __future__ import annotations

import base64
import collections
import fcntl
import glob
import gzip
import json
import os
import re
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from typing import Any

MARK = "vlm-trace "
CHUNK_BYTES = 48 * 1024
PAUSE_SECONDS = 0.5
# How long an engine may take to write its recording.
WRITE_SECONDS = 60.0
# The first recording has this many times the steps requested, and each next one this many times more: if prefill may come only
# after every 22nd decode step, a handful of neighbouring steps seldom holds both.
LONGER = 4
MOST_STEPS = 2048
# The marks of forward passes, as SGLang writes them from 0.5.12 on (PyTorch repeats them as ``gpu_user_annotation``).
STEP = re.compile(rb'"user_annotation",\s*"name":\s*"step\[(\w+) bs=')
LONGEST_MARK = 128
# In a pod without an IPv4 address, the engine listens on IPv6 only.
LOOPBACK = ("127.0.0.1", "[::1]")
PREFILL = ("EXTEND", "MIXED", "SPLIT_PREFILL")
DECODE = ("DECODE", "VERIFY", "TARGET_VERIFY", "MIXED")


def say(event: str, **fields: Any) -> None:
    """Prints one line for the caller."""
    print(MARK + json.dumps({"event": event, **fields}), flush=True)


def post(options: dict[str, Any], path: str, body: dict[str, Any]) -> str | None:
    """Why the engine refused; None if it did not."""
    headers = {"Content-Type": "application/json"}
    # Editors leave a line break at the end of a Secret.
    if key := os.environ.get(options["key_variable"], "").strip():
        headers["Authorization"] = f"Bearer {key}"
    context = ssl.create_default_context()
    # The certificate is issued for the service's name, not for the loopback address.
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    refused = None
    for host in LOOPBACK:
        url = f"{'https' if options['tls'] else 'http'}://{host}:{options['port']}{path}"
        request = urllib.request.Request(url, json.dumps(body).encode(), headers, method="POST")
        try:
            with opener.open(request, timeout=WRITE_SECONDS):
                return None
        except urllib.error.HTTPError as error:
            return f"HTTP {error.code}: {error.read()[:200].decode(errors='replace')}"
        except OSError as error:
            refused = refused or str(error)
            if not isinstance(getattr(error, "reason", error), ConnectionRefusedError):
                return refused
    return refused


def steps_in(path: str) -> dict[str, int] | None:
    """How many prefill and decode steps the file holds; None while it is incomplete: the checksum is in its last block."""
    steps: collections.Counter[str] = collections.Counter()
    kept = b""
    try:
        if not os.path.getsize(path):
            return None  # gzip takes an empty file for a complete one
        with gzip.open(path) as file:
            while piece := file.read(1 << 22):
                text, counted = kept + piece, 0
                for match in STEP.finditer(text):
                    steps[match[1].decode()] += 1
                    counted = match.end()
                # A mark may span two pieces.
                kept = text[max(counted, len(text) - LONGEST_MARK) :]
    except (OSError, EOFError):
        return None
    return {"prefill": sum(steps[mode] for mode in PREFILL), "decode": sum(steps[mode] for mode in DECODE)}


def send(path: str) -> None:
    """Prints the file, piece by piece."""
    say("trace", bytes=os.path.getsize(path))
    with open(path, "rb") as file:
        while piece := file.read(CHUNK_BYTES):
            print(base64.b64encode(piece).decode(), flush=False)
    say("sent")


def recorded(folder: str, until: float) -> tuple[str, dict[str, int]] | None:
    """The first rank's trace and its steps; None if it is not complete by then."""
    while True:
        for path in sorted(glob.glob(os.path.join(folder, "*TP-0*.trace.json.gz"))):
            if (steps := steps_in(path)) is not None:
                return path, steps
        if time.monotonic() >= until:
            return None
        time.sleep(PAUSE_SECONDS)


def nsys(*arguments: str) -> str:
    """Runs nsys; its output. Raises OSError with its message if it fails."""
    done = subprocess.run(["nsys", *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        raise OSError(f"nsys {arguments[0]}: {(done.stderr or done.stdout).strip()[-300:]}")
    return done.stdout


def record_with_nsys(options: dict[str, Any], top: str) -> int:
    """Records for some seconds, with a summary of the kernels if this nsys can make one."""
    path = os.path.join(top, "vlm.nsys-rep")
    session = f"--session={options['session']}"
    try:
        nsys("start", session, f"--output={path}", "--force-overwrite=true")
        say("recording", seconds=options["seconds"])
        time.sleep(options["seconds"])
        nsys("stop", session)
    except OSError as error:
        say("failed", message=f"Nsight Systems failed: {error}")
        return 1
    try:
        say("kernels", csv=nsys("stats", "--report=cuda_gpu_kern_sum", "--format=csv", "--output=-", path))
    except OSError as error:
        say("kernels", csv="", why=str(error))
    send(path)
    say("end")
    return 0


def record(options: dict[str, Any], top: str) -> int:
    """Records until both stages are in one trace, longer each time. Exit code 1 if the engine refuses, or ran no step."""
    deadline = time.monotonic() + options["seconds"]
    best, most, length = "", (-1, -1), options["steps"]
    while not best or (min(most) < options["steps"] and length < MOST_STEPS and time.monotonic() < deadline):
        length = max(min(length * LONGER, MOST_STEPS), options["steps"])
        folder = tempfile.mkdtemp(dir=top)
        body = {
            "output_dir": folder,
            "num_steps": length,
            "activities": options["activities"],
            "with_stack": options["with_stack"],
            "record_shapes": True,
            "profile_id": "vlm",
        }
        if why := post(options, "/start_profile", body):
            if best:
                break
            say("failed", message=f"the engine refused to record: {why}")
            return 1
        try:
            say("recording", steps=length)
            found = recorded(folder, deadline)
        except BaseException:
            # The caller has gone, for example: the engine must not go on recording.
            post(options, "/stop_profile", {})
            raise
        stopped = found is None
        if found is None:
            # The engine must not go on recording, and a short recording is better than none.
            post(options, "/stop_profile", {})
            found = recorded(folder, time.monotonic() + (WRITE_SECONDS if glob.glob(f"{folder}/*") else 0))
        if found is None:
            if best:
                break
            say("failed", message=f"the engine ran no step within {options['seconds']} s: is there load?")
            return 1
        path, steps = found
        counts = (steps["prefill"], steps["decode"])
        if not any(counts) and stopped and not best:
            say("failed", message=f"the engine ran no step within {options['seconds']} s: is there load?")
            return 1
        if not any(counts):
            # The engine marks no steps, so another recording would not be better.
            best = best or path
            break
        if (min(counts), sum(counts)) > (min(most), sum(most)):
            best, most = path, counts
    send(best)
    say("end")
    return 0


def end_with_standard_input() -> None:
    """Ends this process when its standard input ends: the kubelet keeps a command running after its caller has gone."""

    def wait() -> None:
        while os.read(0, 1024):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    threading.Thread(target=wait, daemon=True).start()


def main(text: str) -> int:
    """Exit code 1 if nothing was recorded."""
    options = json.loads(text)
    with open(os.path.join(tempfile.gettempdir(), "vlm-profile.lock"), "w") as lock:
        try:
            # A second recording would end the first, without an error for either.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            say("failed", message="another command is recording this pod: try again when it has ended")
            return 1
        # The engine writes as the same user, into the same container.
        top = tempfile.mkdtemp(prefix="vlm-profile-")
        try:
            return record_with_nsys(options, top) if "session" in options else record(options, top)
        finally:
            shutil.rmtree(top, ignore_errors=True)


if __name__ == "__main__":
    end_with_standard_input()
    sys.exit(main(sys.argv[1]))
