"""Servers with certificates, made with the openssl program."""

from __future__ import annotations

import http.server
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from minicluster import pki

LEAF = "basicConstraints=CA:FALSE\nextendedKeyUsage=serverAuth\nsubjectAltName="


class Quiet(http.server.ThreadingHTTPServer):
    """A handshake that a client gives up is no news."""

    def handle_error(self, request: object, client_address: object) -> None:
        pass


def self_signed(folder: Path, name: str) -> Path:
    """A certificate for a service's name, beside its key."""
    pki.request(folder, name, f"/CN={name}", f"{LEAF}DNS:{name}.team.svc")
    return folder / f"{name}.crt"


def vouched_for(folder: Path, name: str) -> Path:
    """A certificate for the loopback address, by the authority in ``ca.crt``."""
    pki.request(folder, "ca", "/CN=authority", "basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign")
    pki.request(folder, name, f"/CN={name}", f"{LEAF}IP:127.0.0.1", signed=True)
    return folder / f"{name}.crt"


@contextmanager
def serving(handler: type[http.server.BaseHTTPRequestHandler], certificate: Path) -> Iterator[int]:
    """A server with that certificate on the loopback address; its port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_suffix(".key"))
    server = Quiet(("127.0.0.1", 0), handler)
    # The handshake is its thread's business, so that one which is given up holds nobody up.
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
