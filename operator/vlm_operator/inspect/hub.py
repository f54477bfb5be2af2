"""A model on a hub that speaks as huggingface.co does."""

from __future__ import annotations

import http.client
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import IO, Any, Final
from urllib.parse import quote, urlsplit

from vlm_operator.inspect import files
from vlm_operator.inspect.errors import Unread

ENDPOINT: Final = "https://huggingface.co"
# The hub's own name for a repository's default branch.
REVISION: Final = "main"
REDIRECTS: Final = 5
_CHUNK: Final = 1 << 16
_TEMPORARY: Final = frozenset({408, 425, 429, 500, 502, 503, 504})


@dataclass(frozen=True)
class Patience:
    """How long a hub is waited for, in seconds."""

    request: float = 10.0
    """For a connection, and for each part of an answer."""
    all: float = 75.0
    """For everything together."""
    pauses: tuple[float, ...] = (1.0, 4.0)
    """Before the second try, the third, and so on."""


class Hub:
    """The files of one revision of one model. The token is sent to the hub itself and to nobody that it refers to."""

    def __init__(
        self,
        model: str,
        revision: str | None,
        *,
        endpoint: str = ENDPOINT,
        token: str | None = None,
        patience: Patience = Patience(),
    ) -> None:
        parts = urlsplit(endpoint)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise Unread("HubUnreachable", "HF_ENDPOINT must be an address such as https://hub.example.com: correct it")
        self._host = parts.hostname
        self._base = f"{endpoint.rstrip('/')}/{quote(model)}/resolve/{quote(revision or REVISION, safe='')}"
        self._name = f"{model} at revision {revision}" if revision else model
        self._token = (token or "").strip()
        if not re.fullmatch(r"[\x21-\x7e]*", self._token):
            raise Unread("ModelAccessDenied", "the hub token has characters that no token has: write the Secret anew")
        self._patience = patience
        self._until = time.monotonic() + patience.all
        self._opener = urllib.request.build_opener(_Redirects())

    def config(self) -> bytes:
        """Raises Unread, with what the hub's answer means."""
        body, _ = self._get(files.CONFIG, files.MOST_CONFIG_BYTES + 1)
        return body

    def weights_bytes(self) -> int | None:
        """Bytes of all weights; None where no safetensors file tells."""
        try:
            index, _ = self._get(files.INDEX, files.MOST_INDEX_BYTES)
            return files.bytes_by_index(index)
        except Unread as error:
            if error.reason != "ModelNotFound":
                return None
        try:
            last = files.LENGTH_BYTES - 1
            start, headers = self._get(files.WEIGHTS, files.LENGTH_BYTES, {"Range": f"bytes=0-{last}"})
        except Unread:
            return None
        # A server that knows no ranges answers with the whole file, of which the start was read.
        total = (headers.get("Content-Range") or "").rpartition("/")[2] or headers.get("Content-Length") or ""
        return files.bytes_by_header(start, int(total)) if total.isdecimal() else None

    def _get(self, file: str, most: int, headers: Mapping[str, str] | None = None) -> tuple[bytes, Mapping[str, str]]:
        """At most that many bytes of a file, and the answer's headers. Raises Unread."""
        request = urllib.request.Request(
            f"{self._base}/{file}", headers={"User-Agent": "vlm-operator", **(headers or {})}
        )
        if self._token:
            request.add_header("Authorization", f"Bearer {self._token}")
        for pause in (*self._patience.pauses, None):
            try:
                with self._opener.open(request, timeout=self._patience.request) as answer:
                    return self._body(answer.read1, most), answer.headers
            except urllib.error.HTTPError as error:
                error.close()
                if error.code not in _TEMPORARY:
                    raise self._refused(file, error) from None
                why = f"it answers {error.code}"
            except (OSError, http.client.HTTPException, ValueError) as error:
                why = _in_words(error)
            if pause is None or time.monotonic() + pause >= self._until:
                break
            time.sleep(pause)
        raise Unread(
            "HubUnreachable",
            f"the hub {self._host} gave no {file} of {self._name}: {why}; open the way to it, set HF_ENDPOINT in "
            "spec.engine.env to a mirror, or say spec.model.architecture and parametersBillion",
        )

    def _body(self, read: Callable[[int], bytes], most: int) -> bytes:
        found = b""
        while len(found) < most and (part := read(min(_CHUNK, most - len(found)))):
            found += part
            if time.monotonic() > self._until:
                raise TimeoutError
        return found

    def _refused(self, file: str, error: urllib.error.HTTPError) -> Unread:
        code = error.headers.get("X-Error-Code") or ""
        if error.code in (401, 403):
            # To whom may not see a repository, the hub says that there is none.
            step = (
                "the token of spec.model.tokenSecretRef may not read it: ask for access on the model's page"
                if self._token
                else "check spec.model.uri; for a gated or private model give a token in spec.model.tokenSecretRef"
            )
            return Unread("ModelAccessDenied", f"the hub {self._host} answers {error.code} for {self._name}: {step}")
        if error.code == 404:
            missing = {
                "RevisionNotFound": "there is no such revision: correct spec.model.revision",
                "EntryNotFound": f"it has no {file}: it is no model that the engine can load",
            }.get(code, "there is no such model or file: correct spec.model.uri and revision")
            return Unread("ModelNotFound", f"the hub {self._host} has no {file} of {self._name}: {missing}")
        return Unread(
            "ModelUnreadable", f"the hub {self._host} answers {error.code} for {file} of {self._name}: try it by hand"
        )


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows a few redirects, never away from TLS, and takes the token along to the same host only."""

    max_redirections = REDIRECTS

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        request = super().redirect_request(req, fp, code, msg, headers, newurl)
        if request is None:
            return None
        # Not req.host and req.type: behind a proxy they are the proxy's.
        before, after = urlsplit(req.full_url), urlsplit(request.full_url)
        if after.scheme not in ("http", "https") or (before.scheme, after.scheme) == ("https", "http"):
            raise urllib.error.URLError("it redirects to an address without TLS")
        if (before.scheme, before.netloc) != (after.scheme, after.netloc):
            request.remove_header("Authorization")
        # The proxy's password: where the next host is asked through a proxy, it is added anew.
        request.remove_header("Proxy-authorization")
        return request


def _in_words(error: Exception) -> str:
    """What went wrong on the way, without addresses, which may hold a proxy's password."""
    reason = getattr(error, "reason", None)
    if isinstance(error, TimeoutError) or isinstance(reason, TimeoutError):
        return "no answer in time"
    if isinstance(reason, OSError):
        return reason.strerror or type(reason).__name__
    if isinstance(error, urllib.error.URLError) and isinstance(reason, str):
        return reason
    return getattr(error, "strerror", None) or type(error).__name__
