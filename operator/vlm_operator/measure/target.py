"""What is measured: a service of this cluster, its twin, or any OpenAI-compatible server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final
from urllib.parse import urlsplit

from pydantic import ValidationError

from vlm_api.names import ENGINE_PORT
from vlm_api.spec import SecretKeyRef
from vlm_operator.errors import InvalidInput

# The counters of the engine that tell what the load met. SGLang's own, and those of the runtime's plugin.
COUNTERS: Final = (
    "sglang:num_retracted_requests_total",
    "sglang:cached_tokens_total",
    "sglang:prompt_tokens_total",
    "vlmserve_images_received_total",
    "vlmserve_images_repeated_total",
    "vlmserve_image_pool_fallbacks_total",
)


@dataclass(frozen=True)
class Target:
    """One server under load."""

    name: str
    """As tables call it."""
    url: str
    """Without ``/v1`` and without a slash at the end."""
    tokenizer: str
    """Where the model's processor is, as the Job's pod sees it: a folder or the hub's name."""
    model: str | None = None
    """The name that requests carry; None: the first that the server lists."""
    key: SecretKeyRef | None = None
    """The Secret of the Job's namespace that holds the client's key."""
    pods: tuple[str, ...] = ()
    """Addresses of its pods, for their metrics; none: those behind the URL, where there is one pod."""
    settings: tuple[str, ...] = ()
    """Fields of ``/server_info`` that may be told."""
    unknown: bool = False
    """True: no engine of ours, so it may know the plain OpenAI API only."""
    certificate: str | None = None
    """Where its engine has the certificate that it shows, as the Job's pod sees it; None: it shows none, or is no engine of
    ours."""

    def to_json(self, variable: str | None) -> dict[str, Any]:
        """As the program in the pod reads it; ``variable`` holds its key there."""
        return {
            "name": self.name,
            "url": self.url,
            "tokenizer": self.tokenizer,
            "model": self.model,
            "pods": [f"{_scheme(self.certificate)}://{_host(address)}:{ENGINE_PORT}" for address in self.pods],
            "settings": list(self.settings),
            "unknown": self.unknown,
            "certificate": self.certificate,
            "key_variable": variable if self.key is not None else None,
        }


def _host(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def _scheme(certificate: str | None) -> str:
    return "http" if certificate is None else "https"


def service_url(name: str, namespace: str, certificate: str | None) -> str:
    """The address of a service's engine inside the cluster, which shows that certificate."""
    return f"{_scheme(certificate)}://{name}.{namespace}.svc:{ENGINE_PORT}"


def checked_url(text: str, option: str = "--against") -> str:
    """A server's address without ``/v1``. Raises InvalidInput for what is none, or carries a password."""
    nowhere = InvalidInput(option, f"{text!r} is no address: write http://HOST:PORT, as pods of the cluster reach it")
    # Python takes tabs and line breaks out, and sends nothing with a space or another letter in it.
    if not text.isascii() or not text.isprintable() or " " in text:
        raise nowhere
    try:
        parts = urlsplit(text)
    except ValueError as error:
        raise nowhere from error
    try:
        port = parts.port
    except ValueError as error:
        raise InvalidInput(option, f"{text!r}: the port is no number up to 65535") from error
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise nowhere
    if parts.hostname in ("localhost", "0.0.0.0", "::1") or parts.hostname.startswith("127."):
        raise InvalidInput(
            option,
            f"{text!r} is the load's own pod, which sends from inside the cluster: give an address that pods reach",
        )
    if parts.username or parts.password:
        raise InvalidInput(option, "an address must not hold a password: put the key into a Secret (--against-key)")
    if parts.query or parts.fragment:
        raise InvalidInput(option, f"{text!r}: leave out what follows the path")
    path = parts.path.rstrip("/").removesuffix("/v1")
    return f"{parts.scheme}://{parts.netloc}{path}"


def secret_reference(text: str, option: str = "--against-key") -> SecretKeyRef:
    """``NAME:KEY`` as a reference. Raises InvalidInput, without the text: it may be the key itself."""
    name, _, key = text.partition(":")
    try:
        return SecretKeyRef(name=name, key=key)
    except ValidationError as error:
        raise InvalidInput(
            option, "is no reference: write SECRET:KEY, a Secret of the service's namespace and the key in it"
        ) from error


def tokenizer_of(args: Sequence[str]) -> str:
    """Where the engine's command line has the processor's files. Raises KeyError where it names no model."""
    given = _given(args)
    return given.get("--tokenizer-path") or given["--model-path"]


def certificate_of(args: Sequence[str]) -> str | None:
    """The file of the certificate that the engine shows; None where it serves without TLS."""
    return _given(args).get("--ssl-certfile")


def _given(args: Sequence[str]) -> dict[str, str]:
    """Flag -> value, of those that have one."""
    apart = {flag: value for flag, value in pairwise(args) if flag.startswith("--")}
    joined = dict(part.split("=", 1) for part in args if part.startswith("--") and "=" in part)
    return {**apart, **joined}
