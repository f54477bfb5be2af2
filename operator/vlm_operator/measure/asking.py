"""Questions to servers, and how their certificates are checked.

Sent into the Job's pod as text beside ``driver.py`` (see ``programs.py``): the standard library only, Python 3.10.
"""

from __future__ import annotations

import html
import http.client
import json
import os
import re
import ssl
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import urlsplit

KEYS = "BENCH_KEY_"  # how the variables begin that hold the servers' keys
ERROR_LENGTH = 300
ASK_SECONDS = 10
# In the place of a status: the server cannot be believed to be the one that was meant; it answers without TLS.
UNTRUSTED, PLAIN = -1, -2
# What a proxy says instead of the server that it stands before.
PAGE = re.compile(r"<(!doctype|html|head|body)\b", re.IGNORECASE)
TITLE = re.compile(r"<title[^>]*>(.*?)</title", re.IGNORECASE | re.DOTALL)
UNSEEN = re.compile(r"<(script|style)\b.*?</\1\s*>", re.IGNORECASE | re.DOTALL)
TAG = re.compile(r"<[!/a-z][^>]*>", re.IGNORECASE)
CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


class Server:
    """One server under load, with its key and with what its certificate is held against."""

    def __init__(self, target: dict[str, Any]) -> None:
        self.target = target
        self.url: str = target["url"]
        # The line break that an editor leaves at the end of a Secret is no part of the key.
        self.key = os.environ.get(target.get("key_variable") or "", "").strip() or None
        # How its certificate is checked, and what to do where it does not hold; None: it has none.
        self.trust: ssl.SSLContext | None = None
        self.advice = ""
        self._file: str | None = target.get("certificate")
        if self.url.startswith("https:"):
            self._believe()

    def _believe(self) -> None:
        """Takes the engine's own certificate for the only one that is right, where the pod has its file.

        It is seldom made out for the address that the load asks. Elsewhere authorities are believed, and the name counts.
        """
        self.trust = ssl.create_default_context()
        if self._file is None:
            self.advice = (
                "the load believes the authorities of its image, or those in the file that SSL_CERT_FILE in "
                "spec.engine.env names"
            )
            return
        try:
            with open(self._file, encoding="ascii", errors="replace") as file:
                self.trust = pinned(file.read())
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            self.advice = f"{self._file}, which the engine was given, cannot be read in the load's pod: {why}"
            self._file = None
        else:
            self.advice = (
                f"it was held against {self._file}, which the engine was given: where that was renewed since the engine "
                "started, replace the service's pods"
            )

    def believes_otherwise(self) -> bool:
        """True once, where authorities may vouch for what is not in the file: a driver makes one for each pod."""
        if self._file is None:
            return False
        self.trust, self._file = ssl.create_default_context(), None
        return True

    def post(self, path: str, seconds: float, body: dict[str, Any]) -> tuple[int, bytes]:
        """The status and what was said: see ``fetch``."""
        return fetch(self.url + path, self.key, seconds, body, self.trust)

    def get(self, path: str) -> tuple[int, bytes]:
        """The same without a body."""
        return fetch(self.url + path, self.key, ASK_SECONDS, None, self.trust)


def pinned(text: str) -> ssl.SSLContext:
    """Believes the first certificate of a PEM file and no other, whatever name it is made out for. Raises ValueError."""
    found = CERTIFICATE.search(text)
    if found is None:
        raise ValueError("it holds no certificate")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    # An authority need not stand behind it.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(cadata=found[0])
    except ssl.SSLError as error:
        raise ValueError(f"its first certificate cannot be read ({error.reason})") from error
    return context


class Redirects(urllib.request.HTTPRedirectHandler):
    """Follows them, and takes the key along to the same server only."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        request = super().redirect_request(req, fp, code, msg, headers, newurl)
        before, after = urlsplit(req.full_url), urlsplit(newurl)
        if request is not None and (before.scheme, before.netloc) != (after.scheme, after.netloc):
            request.remove_header("Authorization")
        return request


def fetch(
    url: str, key: str | None, seconds: float, body: dict[str, Any] | None, trust: ssl.SSLContext | None
) -> tuple[int, bytes]:
    """The status and what was said; 0 and the reason where there is no answer, UNTRUSTED or PLAIN and the reason where it is
    not the one that was meant. A body makes it a POST.

    No proxy: servers are in the cluster, or told by their URL.
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
            return UNTRUSTED, f"its certificate does not hold: {reason.verify_message}".encode()
        if isinstance(reason, ssl.SSLError) and reason.reason == "WRONG_VERSION_NUMBER":
            return PLAIN, b"it does not speak TLS"
        return 0, str(reason).encode()


def said(status: int, body: bytes) -> str:
    """A refusal in one line. Servers that speak OpenAI's API tell it in several shapes."""
    text = body.decode(errors="replace")
    try:
        found = json.loads(text)
        for name in ("error", "detail", "message"):
            found = found.get(name, found) if isinstance(found, dict) else found
        text = found if isinstance(found, str) else json.dumps(found)
    except ValueError:
        pass
    return ": ".join(filter(None, [f"HTTP {status}" if status > 0 else "", last_line(text)]))


def last_line(text: str) -> str:
    """Where a traceback says what it is about; of a proxy's page the title, or else its text. Servers may repeat the key
    that they refuse."""
    for name, key in os.environ.items():
        if key.strip() and name.startswith(KEYS):
            # As it stands in plain text, in Python's repr and in JSON.
            for spelling in (key, key.strip(), repr(key.strip())[1:-1], json.dumps(key.strip())[1:-1]):
                text = (text or "").replace(spelling, "...")
    text = text or ""
    if PAGE.search(text):
        title = TITLE.search(text)
        told = title[1] if title and title[1].strip() else TAG.sub(" ", UNSEEN.sub(" ", text))
        return " ".join(html.unescape(told).split())[:ERROR_LENGTH]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:ERROR_LENGTH] if lines else ""
