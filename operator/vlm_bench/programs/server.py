"""Requests to a server, the check of its certificate, and the wait until it can be measured.

Sent as text into the load's pod, before ``driver``: the standard library only, Python 3.10.
"""

from __future__ import annotations

import html
import http.client
import itertools
import json
import os
import re
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

KEYS = "BENCH_KEY_"  # prefix of the variables that hold the servers' keys
ERROR_LENGTH = 300
REQUEST_SECONDS = 10
# The first answer may wait for the model to load or for kernels to compile.
FIRST_ANSWER_SECONDS = 600
# Instead of an HTTP status: the certificate does not verify; the server answers without TLS.
UNTRUSTED, PLAIN = -1, -2
# No answer, too many requests, and a proxy's answers while its server starts.
NOT_READY = (0, 408, 429, 502, 503, 504)
# The fields that request a number of tokens. OpenAI's API lacks ignore_eos and deprecates max_tokens; some servers know only
# max_tokens, and ignore or refuse the other; OpenAI's newest models refuse max_tokens.
TOKEN_FIELDS = (
    ("ignore_eos", "max_completion_tokens", "max_tokens"),
    ("max_completion_tokens", "max_tokens"),
    ("max_tokens",),
    ("max_completion_tokens",),
)
# Without it a stream does not report token counts, and SGLang's benchmark assumes as many as requested.
REPORT_TOKENS = {"stream_options": {"include_usage": True}}
# A proxy's error page.
PAGE = re.compile(r"<(!doctype|html|head|body)\b", re.IGNORECASE)
TITLE = re.compile(r"<title[^>]*>(.*?)</title", re.IGNORECASE | re.DOTALL)
INVISIBLE = re.compile(r"<(script|style)\b.*?</\1\s*>", re.IGNORECASE | re.DOTALL)
TAG = re.compile(r"<[!/a-z][^>]*>", re.IGNORECASE)
CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


class Server:
    """One server under load, with its key and the TLS context that verifies it."""

    def __init__(self, target: dict[str, Any]) -> None:
        self.target = target
        self.url: str = target["url"]
        # Editors leave a line break at the end of a Secret.
        self.key = os.environ.get(target.get("key_variable") or "", "").strip() or None
        # How its certificate is verified, and what to do if it does not verify; None: no TLS.
        self.trust: ssl.SSLContext | None = None
        self.advice = ""
        self._file: str | None = target.get("certificate")
        if self.url.startswith("https:"):
            self._set_trust()

    def _set_trust(self) -> None:
        """Trusts only the engine's own certificate if the pod has its file, since it is seldom issued for the address that the
        load uses. Otherwise certificate authorities are trusted, and the name counts."""
        self.trust = ssl.create_default_context()
        if self._file is None:
            self.advice = (
                "the load trusts its image's authorities; spec.engine.env can name another file with SSL_CERT_FILE"
            )
            return
        try:
            with open(self._file, encoding="ascii", errors="replace") as file:
                self.trust = pinned(file.read())
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            self.advice = f"{self._file}, the engine's certificate, cannot be read in the load's pod: {why}"
            self._file = None
        else:
            self.advice = (
                f"it was compared with {self._file}, the engine's certificate: if that was renewed after the engine started, "
                "restart the service's pods"
            )

    def trusts_authorities_now(self) -> bool:
        """True once, after the pinned certificate failed: a CSI driver may issue one for each pod."""
        if self._file is None:
            return False
        self.trust, self._file = ssl.create_default_context(), None
        return True

    def post(self, path: str, seconds: float, body: dict[str, Any]) -> tuple[int, bytes]:
        """Status and body: see ``fetch``."""
        return fetch(self.url + path, self.key, seconds, body, self.trust)

    def get(self, path: str) -> tuple[int, bytes]:
        """Status and body: see ``fetch``."""
        return fetch(self.url + path, self.key, REQUEST_SECONDS, None, self.trust)


def pinned(text: str) -> ssl.SSLContext:
    """Trusts only the first certificate of a PEM file, for any name. Raises ValueError."""
    match = CERTIFICATE.search(text)
    if match is None:
        raise ValueError("it holds no certificate")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    # It needs no authority.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(cadata=match[0])
    except ssl.SSLError as error:
        raise ValueError(f"its first certificate cannot be read ({error.reason})") from error
    return context


class Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects, and sends the key to the same server only."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        request = super().redirect_request(req, fp, code, msg, headers, newurl)
        before, after = urlsplit(req.full_url), urlsplit(newurl)
        if request is not None and (before.scheme, before.netloc) != (after.scheme, after.netloc):
            request.remove_header("Authorization")
        return request


def fetch(
    url: str, key: str | None, seconds: float, body: dict[str, Any] | None, trust: ssl.SSLContext | None
) -> tuple[int, bytes]:
    """Status and body; 0, UNTRUSTED or PLAIN with the reason if there is no answer. A request body makes it a POST.

    No proxy: servers are in the cluster, or given by URL.
    """
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    data = None
    if body is not None:
        headers["Content-Type"], data = "application/json", json.dumps(body).encode()
    request = urllib.request.Request(url, data, headers)
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trust), Redirects
    )
    try:
        with opener.open(request, timeout=seconds) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        try:
            with error:
                return error.code, error.read(65536)
        except (OSError, http.client.HTTPException):
            return error.code, str(error.reason).encode()
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        if isinstance(reason, ssl.SSLCertVerificationError):
            return UNTRUSTED, f"its certificate does not verify: {reason.verify_message}".encode()
        if isinstance(reason, ssl.SSLError) and reason.reason == "WRONG_VERSION_NUMBER":
            return PLAIN, b"it does not speak TLS"
        return 0, str(reason).encode()


def refusal(status: int, body: bytes) -> str:
    """A refusal in one line. Servers with OpenAI's API use several shapes."""
    text = body.decode(errors="replace")
    try:
        inner = json.loads(text)
        for name in ("error", "detail", "message"):
            inner = inner.get(name, inner) if isinstance(inner, dict) else inner
        text = inner if isinstance(inner, str) else json.dumps(inner)
    except ValueError:
        pass
    return ": ".join(filter(None, [f"HTTP {status}" if status > 0 else "", last_line(text)]))


def last_line(text: str) -> str:
    """The last line, which in a traceback is the error; the title or text of a proxy's page. Keys are cut out, since servers may
    repeat the key that they refuse."""
    text = text or ""
    for name, key in os.environ.items():
        if key.strip() and name.startswith(KEYS):
            # As in plain text, in Python's repr and in JSON.
            for spelling in (key, key.strip(), repr(key.strip())[1:-1], json.dumps(key.strip())[1:-1]):
                text = text.replace(spelling, "...")
    if PAGE.search(text):
        title = TITLE.search(text)
        content = title[1] if title and title[1].strip() else TAG.sub(" ", INVISIBLE.sub(" ", text))
        return " ".join(html.unescape(content).split())[:ERROR_LENGTH]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:ERROR_LENGTH] if lines else ""


def wait_until_ready(server: Server, seconds: float) -> str | None:
    """Waits at most so long until the server can be measured; None, or why it cannot.

    Keeps in the target the model's name and, for a server that is not ours, the request fields that it accepts.
    """
    deadline, pinned_failure = time.monotonic() + seconds, ""
    while True:
        status, why = _check(server)
        if not why:
            return None
        if status == UNTRUSTED and server.trusts_authorities_now():
            pinned_failure = why  # it says more than that no authority vouches for the certificate
            continue
        if status not in NOT_READY:
            return pinned_failure if pinned_failure and status == UNTRUSTED else why
        if time.monotonic() > deadline:
            return f"{why} (for {seconds} s)"
        time.sleep(1)


def _check(server: Server) -> tuple[int, str]:
    """The last status, and what prevents a measurement; an empty text if nothing does."""
    target = server.target
    if not target.get("unknown") or not target.get("model"):
        status, body = server.get("/v1/models")
        if status != 200:
            unnamed = target.get("unknown") and status > 0 and status not in (*NOT_READY, 401, 403)
            advice = ": name its model (--against-model)" if unnamed else ""
            return status, f"{server.url}/v1/models: {refusal(status, body)}{_hint(status, server)}{advice}"
        target["model"] = target.get("model") or first_model(body)
        if not target["model"]:
            return status, f"{server.url} lists no model: name one (--against-model)"
    return _find_fields(server) if target.get("unknown") else (200, "")


def first_model(body: bytes) -> str | None:
    """The first name that ``/v1/models`` lists."""
    try:
        return str(json.loads(body)["data"][0]["id"])
    except (ValueError, LookupError, TypeError):
        return None


def _hint(status: int, server: Server) -> str:
    if status == UNTRUSTED and server.advice:
        return f" ({server.advice})"
    return " (does it need another key?)" if status in (401, 403) else ""


def _find_fields(server: Server) -> tuple[int, str]:
    """Requests one token as the load does, with the benchmark's fields and then with fewer, until the server accepts them.

    The accepted fields, and whether the server reported its tokens, are kept in the target.
    """
    path, target = "/v1/chat/completions", server.target
    refusals: dict[str, None] = {}
    question = {"model": target["model"], "messages": [{"role": "user", "content": "Hello"}], "stream": True}
    for fields, extra in itertools.product(TOKEN_FIELDS, (REPORT_TOKENS, {})):
        status, answer = server.post(path, FIRST_ANSWER_SECONDS, {**question, **token_fields(1, fields), **extra})
        if status == 200:
            target.update(fields=fields, extra=extra, reports_tokens=reports_tokens(answer))
            return 200, ""
        refusals[refusal(status, answer) + _hint(status, server)] = None
        if status not in (400, 422):
            return status, f"{server.url}{path}: {list(refusals)[-1]}"
    return status, f"{server.url}{path} refuses a short question: {'; '.join(refusals)}"


def reports_tokens(stream: bytes) -> bool:
    """Whether a streamed answer reports its number of tokens, as OpenAI's last chunk does."""
    for line in stream.splitlines():
        try:
            usage = json.loads(line.removeprefix(b"data:")).get("usage") or {}
            if isinstance(usage.get("completion_tokens"), int):
                return True
        except (ValueError, AttributeError):
            continue  # an empty line, the end mark, or a chunk of another shape
    return False


def token_fields(tokens: Any, fields: Sequence[str]) -> dict[str, Any]:
    """The fields of a request for so many tokens."""
    return {name: True if name == "ignore_eos" else tokens for name in fields}
