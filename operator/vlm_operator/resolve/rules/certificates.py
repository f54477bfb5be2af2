"""TLS at the engine's own port: what the engine refuses at its start, and a check that it makes of itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from vlm_api.plan import Finding, Severity
from vlm_operator.errors import InvalidInput
from vlm_operator.resolve.context import Context, Declared

CERTIFICATE, KEY, AUTHORITIES = "ssl_certfile", "ssl_keyfile", "ssl_ca_certs"
# What the engine takes with a certificate and its key only.
NEED_BOTH: Final = (CERTIFICATE, KEY, AUTHORITIES, "enable_ssl_refresh")


def certificates(context: Context, declared: Declared) -> Iterator[Finding]:
    """Raises InvalidInput for half of a certificate. Source: arg_groups/serving_hook.py of SGLang 0.5.23."""
    settings = context.choices.settings
    given = [name for name in NEED_BOTH if name in settings and settings[name].value]
    missing = [name for name in (CERTIFICATE, KEY) if name not in given]
    if given and missing:
        raise InvalidInput(
            settings[given[0]].path,
            f"the engine takes {given[0]} only with {' and '.join(missing)} beside it, without which it would end at its "
            "start: set both, or remove it",
        )
    if AUTHORITIES in given:
        yield Finding(
            severity=Severity.WARNING,
            reason="CertificateForLoopback",
            message=f"with {AUTHORITIES} the engine checks its own certificate while it warms up, which it does over its "
            "loopback address, and ends after some minutes where it is not made out for that address: have it made out "
            f"for IP 127.0.0.1 too, or remove {AUTHORITIES}, which asks no client for a certificate either way",
            path=settings[AUTHORITIES].path,
        )
