"""Services whose engine has a certificate: what the engine would refuse is refused before a pod starts."""

import pytest
from unit.plan.builders import plan, service

from vlm_api.plan import Severity
from vlm_operator.errors import InvalidInput

CERTIFICATE = ["--ssl-certfile", "/tls/tls.crt"]
KEY = ["--ssl-keyfile", "/tls/tls.key"]
AUTHORITIES = ["--ssl-ca-certs", "/tls/ca.crt"]


def certified(*parts: list[str]):
    args = [word for part in parts for word in part]
    return plan(service(engine={"args": args}))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (CERTIFICATE, "accepts ssl_certfile only with ssl_keyfile"),
        (KEY, "accepts ssl_keyfile only with ssl_certfile"),
        (AUTHORITIES, "accepts ssl_ca_certs only with ssl_certfile and ssl_keyfile"),
        (["--enable-ssl-refresh"], "accepts enable_ssl_refresh only with ssl_certfile and ssl_keyfile"),
    ],
)
def test_half_of_a_certificate_is_refused(given, said):
    with pytest.raises(InvalidInput, match=rf"spec\.engine\.args\[0\]: the engine {said}"):
        certified(given)


def test_a_certificate_with_its_key_is_nothing_to_tell_of():
    made = certified(CERTIFICATE, KEY, ["--enable-ssl-refresh"])
    assert not [finding for finding in made.findings if "ssl" in finding.message]
    assert made.engine.args[-5:] == [*CERTIFICATE, *KEY, "--enable-ssl-refresh"]


def test_authorities_that_have_the_engine_check_its_own_loopback_address_are_warned_of():
    [finding] = [f for f in certified(CERTIFICATE, KEY, AUTHORITIES).findings if f.reason == "CertificateForLoopback"]
    assert (finding.severity, finding.path) == (Severity.WARNING, "spec.engine.args[4]")
    assert "127.0.0.1" in finding.message
