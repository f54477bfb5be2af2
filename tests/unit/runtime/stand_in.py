"""Behaves like SGLang's server, seen from outside: log lines, endpoints, workers, draining, dying. Not a test.

``STAND_IN`` in the environment is a JSON object with options:

``load_seconds`` (how long nothing listens), ``image_seconds`` (how long an answer takes), ``exit_code`` and ``last_words``
(end during the load), ``ready_path`` (false: as before 0.5.20), ``unknown_flags`` (accept them, as a pod's plan has many),
``ignore_dead_worker`` (live on without it), ``leave_orphan`` (seconds that a process without a parent lives).

GET /become_unhealthy does what a /health does that is not answered in time: from then on it refuses requests, and SIGTERM
ends it at once.
"""

from __future__ import annotations

import argparse
import base64
import ctypes
import json
import os
import signal
import struct
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from vlm_runtime.sglang.inside import drain_file

OPTIONS = json.loads(os.environ.get("STAND_IN", "{}"))
PR_SET_PDEATHSIG = 1
libc = ctypes.CDLL(None)
warm = threading.Event()
draining = threading.Event()
unhealthy = threading.Event()
running = 0
count = threading.Lock()


def log(line: str) -> None:
    print(f"[{time.strftime('%Y-%m-%d %H:%M:%S')}] {line}", flush=True)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path == "/ready" and OPTIONS.get("ready_path", True):
            serving = warm.is_set() and not draining.is_set() and not unhealthy.is_set()
            self.answer(200 if serving else 503, {"serving": serving})
        elif self.path == "/ping":
            self.answer(503 if unhealthy.is_set() else 200, {})
        elif self.path == "/become_unhealthy":
            unhealthy.set()
            self.answer(503, {})
        elif self.path == "/health":
            self.answer(200 if warm.is_set() and not draining.is_set() else 503, {})
        elif self.path == "/health_generate":
            if not worker_is_stopped():
                unhealthy.clear()
            self.answer(503 if worker_is_stopped() else 200, {})
        elif self.path == "/server_info" and self.authorized():
            while worker_is_stopped():
                time.sleep(0.05)
            self.answer(200, server_info())
        elif self.path == "/metrics":
            self.send(200, f"vlmserve_requests_in_flight {running}.0\n".encode(), "text/plain; version=0.0.4")
        else:
            self.answer(404, {})

    def do_POST(self) -> None:
        global running
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.authorized():
            return
        with count:
            running += 1
        try:
            self.complete(body)
        finally:
            with count:
                running -= 1

    def complete(self, body: dict) -> None:
        if body.get("stream"):
            self.send_response(200)
            if os.path.exists(drain_file(args.port)):  # what the plugin in the engine does
                self.send_header("Connection", "close")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for number in range(body["max_tokens"]):
                self.chunk(f"data: {number}\n\n".encode())
                time.sleep(0.1)
            self.chunk(b"data: [DONE]\n\n")
            self.chunk(b"")
            return
        time.sleep(OPTIONS.get("image_seconds", 0.0))
        images = [part for part in body["messages"][0]["content"] if part["type"] == "image_url"]
        tokens = 14  # of the text
        for image in images:
            url = image["image_url"]["url"]
            width, height = struct.unpack(">II", base64.b64decode(url.partition(",")[2])[16:24])
            log(f"question to {body['model']} about an image of {width} x {height}")
            tokens += 64
        self.answer(200, {"choices": [{"message": {"content": "!"}}], "usage": {"prompt_tokens": tokens}})

    def chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def authorized(self) -> bool:
        if args.api_key and self.headers.get("Authorization") != f"Bearer {args.api_key}":
            self.answer(401, {"message": "wrong key"})
            return False
        return True

    def answer(self, status: int, body: dict) -> None:
        self.send(status, json.dumps(body).encode())

    def send(self, status: int, data: bytes, content_type: str = "") -> None:
        self.send_response(status)
        if content_type:
            self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *values: object) -> None:
        log(f'INFO:     127.0.0.1:{self.client_address[1]} - "{self.command} {self.path} HTTP/1.1" {values[1]}')


def server_info() -> dict:
    mine = {name: value for name, value in os.environ.items() if name.startswith("SGLANG_")}
    return {
        "version": "0.5.23",
        "api_key": args.api_key,
        "max_running_requests": args.max_running_requests,
        "radix_eviction_policy": "lru",
        "internal_states": [{"effective_max_running_requests_per_dp": args.max_running_requests, "env_vars": mine}],
    }


def worker_is_stopped() -> bool:
    """As for SGLang, whose schedulers answer between two of their steps."""
    stat = Path(f"/proc/{process.pid}/stat").read_text()
    return stat.rpartition(")")[2].split()[0] == "T"


def end_with_parent() -> None:
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def start_worker() -> subprocess.Popen:
    # As SGLang's schedulers do, it has a title of its own and ends with its parent, however that ends.
    return subprocess.Popen(["sglang::scheduler", "3600"], executable="/bin/sleep", preexec_fn=end_with_parent)


def watch(worker: subprocess.Popen) -> None:
    code = worker.wait()
    if not draining.is_set() and not OPTIONS.get("ignore_dead_worker"):
        log(
            f"Subprocess scheduler_0 (pid={worker.pid}) crashed with exit code {code}. Triggering SIGQUIT for cleanup..."
        )
        os.kill(os.getpid(), signal.SIGKILL)


parser = argparse.ArgumentParser(prog="sglang serve")
parser.add_argument("--port", type=int)
parser.add_argument("--host", default="127.0.0.1")
parser.add_argument("--api-key")
parser.add_argument("--max-running-requests", type=int)
parser.add_argument("--nnodes")
parser.add_argument("--node-rank")
parser.add_argument("--dist-init-addr")
parser.add_argument("--dist-timeout")
args = parser.parse_known_args()[0] if OPTIONS.get("unknown_flags") else parser.parse_args()

log(f"server_args={vars(args)}")
log(f"device={os.environ.get('VLMSERVE_DEVICE')} path={os.environ.get('PYTHONPATH')}")
if OPTIONS.get("leave_orphan"):
    subprocess.Popen(["sh", "-c", f"sleep {OPTIONS['leave_orphan']} & echo $! > $ORPHAN"], start_new_session=True)
log("Load weight begin. avail mem=79.00 GB")
time.sleep(OPTIONS.get("load_seconds", 0.0))
if "exit_code" in OPTIONS:
    print(OPTIONS.get("last_words", ""), flush=True)
    if OPTIONS["exit_code"] < 0:
        os.kill(os.getpid(), -OPTIONS["exit_code"])
    sys.exit(OPTIONS["exit_code"])
process = start_worker()
threading.Thread(target=watch, args=(process,), daemon=True).start()
log("Capture decode CUDA graph begin. This can take up to several minutes.")
try:
    server = ThreadingHTTPServer((args.host, args.port), Handler)
except OSError as error:
    # As Uvicorn says it. The rest of the engine lives on without a server.
    said = os.strerror(error.errno).lower()
    log(f"ERROR:    [Errno {error.errno}] error while attempting to bind on address ('127.0.0.1', {args.port}): {said}")
    log("INFO:     Waiting for application shutdown.")
    time.sleep(3600)
server.daemon_threads = True
threading.Thread(target=server.serve_forever, daemon=True).start()
log(f"Uvicorn running on http://0.0.0.0:{args.port} (Press CTRL+C to quit)")
signal.signal(signal.SIGTERM, lambda *_: os._exit(0) if unhealthy.is_set() else draining.set())
warm.set()
log("The server is fired up and ready to roll!")
while not draining.is_set() or running:
    time.sleep(0.05)
process.kill()
log("Gracefully exiting...")
