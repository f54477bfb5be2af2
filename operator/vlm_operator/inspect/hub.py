"""A model on huggingface.co or a compatible hub."""

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
from vlm_operator.inspect.files import ModelReadError

ENDPOINT: Final = "https://huggingface.co"
# The hub's own name for a repository's default branch.
REVISION: Final = "main"
REDIRECTS: Final = 5
_CHUNK: Final = 1 << 16
_TEMPORARY: Final = frozenset({408, 425, 429, 500, 502, 503, 504})


@dataclass(frozen=True)
class Timeouts:
    """Timeouts in seconds."""

    request: float = 10.0
    """For a connection, and for each read."""
    all: float = 75.0
    """For all requests together."""
    pauses: tuple[float, ...] = (1.0, 4.0)
    """Pauses before each retry."""


class Hub:
    """The files of one revision of one model. The token is sent to the hub only, never to redirect targets."""

    def __init__(
        self,
        model: str,
        revision: str | None,
        *,
        endpoint: str = ENDPOINT,
        token: str | None = None,
        timeouts: Timeouts = Timeouts(),
    ) -> None:
        parts = urlsplit(endpoint)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ModelReadError("HubUnreachable", "HF_ENDPOINT must be a URL such as https://hub.example.com")
        self._host = parts.hostname
        self._base = f"{endpoint.rstrip('/')}/{quote(model)}/resolve/{quote(revision or REVISION, safe='')}"
        self._name = f"{model} at revision {revision}" if revision else model
        self._token = (token or "").strip()
        if not re.fullmatch(r"[\x21-\x7e]*", self._token):
            raise ModelReadError(
                "ModelAccessDenied", "the hub token contains invalid characters: create the Secret again"
            )
        self._timeouts = timeouts
        self._until = time.monotonic() + timeouts.all
        self._opener = urllib.request.build_opener(_Redirects())

    def config(self) -> bytes:
        """The bytes of config.json. Raises ModelReadError."""
        body, _ = self._get(files.CONFIG, files.MAX_CONFIG_BYTES + 1)
        return body

    def weights_bytes(self) -> int | None:
        """Bytes of all weights; None without safetensors files."""
        try:
            index, _ = self._get(files.INDEX, files.MAX_INDEX_BYTES)
            return files.bytes_by_index(index)
        except ModelReadError as error:
            if error.reason != "ModelNotFound":
                return None
        try:
            last = files.LENGTH_BYTES - 1
            start, headers = self._get(files.WEIGHTS, files.LENGTH_BYTES, {"Range": f"bytes=0-{last}"})
        except ModelReadError:
            return None
        # A server without range support sends the whole file; only its start was read.
        total = (headers.get("Content-Range") or "").rpartition("/")[2] or headers.get("Content-Length") or ""
        return files.bytes_by_header(start, int(total)) if total.isdecimal() else None

    def image_processor(self) -> dict[str, int] | None:
        """Whole numbers of the image processor; None without them, or if they cannot be read."""
        return files.image_processor(self._optional)

    def _optional(self, file: str) -> bytes | None:
        try:
            return self._get(file, files.MAX_CONFIG_BYTES + 1)[0]
        except ModelReadError:
            return None

    def _get(self, file: str, most: int, headers: Mapping[str, str] | None = None) -> tuple[bytes, Mapping[str, str]]:
        """At most ``most`` bytes of a file, and the response headers. Raises ModelReadError."""
        request = urllib.request.Request(
            f"{self._base}/{file}", headers={"User-Agent": "vlm-operator", **(headers or {})}
        )
        if self._token:
            request.add_header("Authorization", f"Bearer {self._token}")
        for pause in (*self._timeouts.pauses, None):
            try:
                with self._opener.open(request, timeout=self._timeouts.request) as answer:
                    return self._body(answer.read1, most), answer.headers
            except urllib.error.HTTPError as error:
                error.close()
                if error.code not in _TEMPORARY:
                    raise self._refused(file, error) from None
                why = f"status {error.code}"
            except (OSError, http.client.HTTPException, ValueError) as error:
                why = _describe(error)
            if pause is None or time.monotonic() + pause >= self._until:
                break
            time.sleep(pause)
        raise ModelReadError(
            "HubUnreachable",
            f"cannot read {file} of {self._name} from the hub {self._host}: {why}; allow egress to it, set HF_ENDPOINT in "
            "spec.engine.env to a mirror, or set spec.model.architecture and parametersBillion",
        )

    def _body(self, read: Callable[[int], bytes], most: int) -> bytes:
        body = b""
        while len(body) < most and (part := read(min(_CHUNK, most - len(body)))):
            body += part
            if time.monotonic() > self._until:
                raise TimeoutError
        return body

    def _refused(self, file: str, error: urllib.error.HTTPError) -> ModelReadError:
        code = error.headers.get("X-Error-Code") or ""
        if error.code in (401, 403):
            # The hub hides repositories from those who may not read them.
            step = (
                "the token in spec.model.tokenSecretRef has no access: request it on the model's page"
                if self._token
                else "check spec.model.uri; a gated or private model needs a token in spec.model.tokenSecretRef"
            )
            return ModelReadError(
                "ModelAccessDenied", f"the hub {self._host} returned {error.code} for {self._name}: {step}"
            )
        if error.code == 404:
            missing = {
                "RevisionNotFound": "the revision does not exist: correct spec.model.revision",
                "EntryNotFound": f"the engine cannot load a model without {file}: use another one in spec.model.uri",
            }.get(code, "correct spec.model.uri or revision")
            return ModelReadError("ModelNotFound", f"the hub {self._host} has no {file} of {self._name}: {missing}")
        return ModelReadError(
            "ModelUnreadable",
            f"the hub {self._host} returned {error.code} for {file} of {self._name}: try to download it with curl",
        )


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows a few redirects, never from HTTPS to HTTP, and forwards the token to the same host only."""

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
            raise urllib.error.URLError("redirect to an address without TLS")
        if (before.scheme, before.netloc) != (after.scheme, after.netloc):
            request.remove_header("Authorization")
        # The proxy's password: added again if the next host is reached through a proxy.
        request.remove_header("Proxy-authorization")
        return request


def _describe(error: Exception) -> str:
    """The error in words, without addresses, which may contain a proxy's password."""
    reason = getattr(error, "reason", None)
    if isinstance(error, TimeoutError) or isinstance(reason, TimeoutError):
        return "timed out"
    if isinstance(reason, OSError):
        return reason.strerror or type(reason).__name__
    if isinstance(error, urllib.error.URLError) and isinstance(reason, str):
        return reason
    return getattr(error, "strerror", None) or type(error).__name__
