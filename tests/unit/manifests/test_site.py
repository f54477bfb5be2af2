"""The installer's decisions about networks."""

import pytest

from vlm_operator.errors import InvalidInput
from vlm_operator.manifests.network.site import parse_site


def test_an_empty_option_adds_no_rules():
    assert parse_site(True, "").extra_egress == ()
    assert parse_site(True, " ").network_policies
    assert not parse_site(False, "").network_policies


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "must be a JSON array"),
        ('{"to": []}', "must be a JSON array"),
        ("[1]", "must be a JSON array"),
        ("[{}]", "an empty rule opens every address"),
        ('[{"to": []}]', "an empty rule opens every address"),
        ('[{"form": [], "to": [{}]}]', "form: unknown field"),
        ('[{"ports": [443]}]', "ports: must be an array of objects"),
        ('[{"ports": 443}]', "ports: must be an array of objects"),
        ('[{"to": 5}]', r"to: must be an array"),
        ('[{"to": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": "10.1.0.0/16"}}]}]', "except: must be an array"),
        ('[{"to": ["10.0.0.0/8"]}]', r"to: must be an array of objects"),
        ('[{"to": [{"ipBlock": {"cidr": "10.20.0.1"}}]}]', "cidr: 10.20.0.1 has no prefix length: write 10.20.0.1/32"),
        ('[{"to": [{"ipBlock": {"cidr": "fd00::1"}}]}]', "write fd00::1/128"),
        ('[{"to": [{"ipBlock": {"cidr": "10.20.0.0/33"}}]}]', "cidr: .*10.20.0.0/33"),
        ('[{"to": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1"]}}]}]', "ipBlock.except: '10.1'"),
    ],
)
def test_what_is_not_an_array_of_rules_is_refused_with_the_field(text: str, says: str):
    with pytest.raises(InvalidInput, match=says):
        parse_site(True, text)


def test_a_block_may_be_written_with_an_address_inside_it_as_the_api_server_accepts():
    rules = parse_site(True, '[{"to": [{"ipBlock": {"cidr": "10.20.1.5/16"}}]}]').extra_egress
    assert rules[0]["to"] == [{"ipBlock": {"cidr": "10.20.1.5/16"}}]
