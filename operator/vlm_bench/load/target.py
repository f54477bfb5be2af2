"""What is measured: a service of this cluster, its twin, or any OpenAI-compatible server."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final
from urllib.parse import urlsplit

from pydantic import ValidationError

from vlm_api.names import ENGINE_PORT
from vlm_api.spec import SecretKeyRef
from vlm_operator.errors import InvalidInput

RECEIVED: Final = "images received"
REPEATED: Final = "repeated images"
# Counters of the engine that show what the load met, SGLang's own and those of the runtime's plugin -> their names in tables.
COUNTERS: Final[Mapping[str, str]] = {
    "vlmserve_images_received_total": RECEIVED,
    "vlmserve_images_repeated_total": REPEATED,
    "vlmserve_feature_pool_fallbacks_total": "image features that did not fit into the feature pool",
    "sglang:cached_tokens_total": "prompt tokens from the prefix cache",
    "sglang:prompt_tokens_total": "prompt tokens",
    "sglang:num_retracted_requests_total": "requests retracted for lack of memory",
}


@dataclass(frozen=True)
class Target:
    """One server under load."""

    name: str
    """Its name in tables."""
    url: str
    """Without ``/v1`` and without a slash at the end."""
    tokenizer: str
    """Where the model's processor is, as the load's pod sees it: a folder or the hub's name."""
    model: str | None = None
    """The name that requests carry; None: the first that the server lists."""
    key: SecretKeyRef | None = None
    """The Secret in the Job's namespace with the client's key."""
    pods: tuple[str, ...] = ()
    """Addresses of its pods, for their metrics; empty: those behind the URL, if there is one pod."""
    settings: tuple[str, ...] = ()
    """Fields of ``/server_info`` to report."""
    unknown: bool = False
    """True: not an engine of ours, so it may support only the plain OpenAI API."""
    certificate: str | None = None
    """The file of its engine's certificate, as the load's pod sees it; None: no TLS, or not an engine of ours."""

    def to_json(self, variable: str | None) -> dict[str, Any]:
        """As the program in the pod reads it; ``variable`` holds its key there."""
        return {
            "name": self.name,
            "url": self.url,
            "tokenizer": self.tokenizer,
            "model": self.model,
            "pods": [_engine_url(f"[{a}]" if ":" in a else a, self.certificate) for a in self.pods],
            "settings": list(self.settings),
            "unknown": self.unknown,
            "certificate": self.certificate,
            "key_variable": variable if self.key is not None else None,
        }


def _engine_url(host: str, certificate: str | None) -> str:
    return f"{'http' if certificate is None else 'https'}://{host}:{ENGINE_PORT}"


def service_url(name: str, namespace: str, certificate: str | None) -> str:
    """The address of a service's engine inside the cluster, which has that certificate."""
    return _engine_url(f"{name}.{namespace}.svc", certificate)


def checked_url(text: str, option: str = "--against") -> str:
    """A server's address without ``/v1``. Raises InvalidInput for anything else, and for an address with a password."""
    invalid = InvalidInput(
        option, f"{text!r} is not an address: write http://HOST:PORT, as pods of the cluster reach it"
    )
    # urlsplit drops tabs and line breaks, and nothing is sent with a space or a non-ASCII letter in it.
    if not text.isascii() or not text.isprintable() or " " in text:
        raise invalid
    try:
        parts = urlsplit(text)
    except ValueError as error:
        raise invalid from error
    try:
        port = parts.port
    except ValueError as error:
        raise InvalidInput(option, f"{text!r}: the port is not a number up to 65535: correct it") from error
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise invalid
    if parts.hostname in ("localhost", "0.0.0.0", "::1") or parts.hostname.startswith("127."):
        raise InvalidInput(
            option,
            f"{text!r} is the load's own pod, since the load is sent from inside the cluster: give an address that pods reach",
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
            option, "is not a reference: write SECRET:KEY, a Secret in the service's namespace and the key in it"
        ) from error


def tokenizer_of(args: Sequence[str]) -> str:
    """Where the engine's command line has the processor's files. Raises KeyError without a model."""
    flags = _flags(args)
    return flags.get("--tokenizer-path") or flags["--model-path"]


def certificate_of(args: Sequence[str]) -> str | None:
    """The file of the engine's certificate; None if it serves without TLS."""
    return _flags(args).get("--ssl-certfile")


def _flags(args: Sequence[str]) -> dict[str, str]:
    """Flag -> value, for those that have one."""
    apart = {flag: value for flag, value in pairwise(args) if flag.startswith("--")}
    joined = dict(part.split("=", 1) for part in args if part.startswith("--") and "=" in part)
    return {**apart, **joined}
