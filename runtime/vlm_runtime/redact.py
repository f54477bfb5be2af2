"""Masks secrets in everything that the runtime writes: the log, the termination message, the report."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import quote

from vlm_api.names import ENV_API_KEY, ENV_HF_TOKEN

MASK: Final = "[redacted]"

_SECRET_NAME: Final = re.compile(
    r"(TOKEN|KEY|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|(^|_)(PASS|PAT)|_PWD)$", re.IGNORECASE
)
# Shorter values (``SOME_CACHE_KEY=0``) are not secrets, and masking them would garble ordinary text.
_SHORTEST_SECRET: Final = 8

# What SGLang prints by itself: server_args={...}, its command line, /server_info, and headers in debug logs.
_FIELD: Final = re.compile(
    r"""((?:admin_)?api_key|ssl_keyfile_password|hf_token)(["']?\s*[:=]\s*)("[^"\n]*"|'[^'\n]*'|[^\s,)}\]]+)"""
)
_FLAG: Final = re.compile(r"""(--(?:admin-)?api-key|--ssl-keyfile-password)(\s+|=|['"],\s*['"])([^\s'"]+)""")
_BEARER: Final = re.compile(r"\b([Bb]earer\s+)([^\s'\"]+)")
_HF_TOKEN: Final = re.compile(r"\bhf_[A-Za-z0-9]{20,}\b")
# A proxy or a store with a user name and a password.
_URL_PASSWORD: Final = re.compile(r"(\w://[^\s/:@'\"]*:)([^\s/@'\"]+)(@)")
# Signatures and keys in an image's URL: whoever reads the log could fetch the image. HTML and some JSON escape the
# ampersand.
_URL_SIGNATURE: Final = re.compile(
    r"((?:[?&]|&amp;|\\u0026)[A-Za-z0-9_.%-]*(?:sig|signature|token|secret|credential|password|key|key-id|keyid)=)([^\s&'\"<>|)]+)",
    re.IGNORECASE,
)
_EMPTY: Final = frozenset({"None", "null", "''", '""'})


class Redactor:
    """Replaces known secrets, and what looks like one, by ``[redacted]``."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        spellings = {spelling for secret in secrets if secret for spelling in _spellings(secret)}
        # The longest first, so that a secret that contains another one is masked as a whole.
        known = "|".join(re.escape(s) for s in sorted(spellings, key=lambda s: (-len(s), s)))
        self._known = re.compile(known) if known else None

    def __call__(self, text: str) -> str:
        """The text, of any number of lines, without secrets."""
        if self._known is not None:
            text = self._known.sub(MASK, text)
        text = _FIELD.sub(_mask_field, text)
        text = _FLAG.sub(rf"\1\2{MASK}", text)
        text = _BEARER.sub(rf"\1{MASK}", text)
        text = _URL_PASSWORD.sub(rf"\1{MASK}\3", text)
        text = _URL_SIGNATURE.sub(rf"\1{MASK}", text)
        return _HF_TOKEN.sub(MASK, text)


def secrets_in(env: Mapping[str, str]) -> list[str]:
    """The values of variables that hold secrets: the operator's own, and those whose name says so."""
    ours = [env[name] for name in (ENV_API_KEY, ENV_HF_TOKEN) if env.get(name)]
    named = [v for name, v in env.items() if _SECRET_NAME.search(name) and len(v) >= _SHORTEST_SECRET]
    return sorted({*ours, *named})


def _spellings(secret: str) -> set[str]:
    """The value and each of its lines, as in plain text, JSON, Python's repr and a URL."""
    lines = {line.strip() for line in secret.splitlines()}
    plain = {secret, secret.strip(), *(line for line in lines if len(line) >= _SHORTEST_SECRET)} - {""}
    return {
        spelling for one in plain for spelling in (one, json.dumps(one)[1:-1], repr(one)[1:-1], quote(one, safe=""))
    }


def _mask_field(match: re.Match[str]) -> str:
    name, between, value = match.groups()
    return match.group(0) if value in _EMPTY else f"{name}{between}{MASK}"
