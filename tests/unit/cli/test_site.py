"""What the installer says about networks."""

from __future__ import annotations

import pytest

from vlm_operator.errors import InvalidInput
from vlm_operator.site import site


def test_nothing_said_is_policies_without_more_rules():
    assert site(True, "").extra_egress == ()
    assert site(True, " ").network_policies
    assert not site(False, "").network_policies


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "is no JSON"),
        ('{"to": []}', "no list of maps"),
        ("[1]", "no list of maps"),
        ("[{}]", "would open every address"),
        ('[{"to": []}]', "would open every address"),
        ('[{"form": [], "to": [{}]}]', "form: unknown field"),
        ('[{"ports": [443]}]', "ports: is no list of maps"),
        ('[{"ports": 443}]', "ports: is no list of maps"),
        ('[{"to": 5}]', r"to: is no list"),
        ('[{"to": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": "10.1.0.0/16"}}]}]', "except: is no list"),
        ('[{"to": ["10.0.0.0/8"]}]', r"to\[0\]: is no map"),
        ('[{"to": [{"ipBlock": {"cidr": "10.20.0.1"}}]}]', "cidr: 10.20.0.1 has no prefix length: write 10.20.0.1/32"),
        ('[{"to": [{"ipBlock": {"cidr": "fd00::1"}}]}]', "write fd00::1/128"),
        ('[{"to": [{"ipBlock": {"cidr": "10.20.0.0/33"}}]}]', "cidr: .*10.20.0.0/33"),
        ('[{"to": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1"]}}]}]', "ipBlock.except: '10.1'"),
    ],
)
def test_what_is_no_list_of_rules_is_refused_in_words(text: str, says: str):
    with pytest.raises(InvalidInput, match=says):
        site(True, text)


def test_a_network_may_be_told_by_an_address_inside_it_as_the_api_server_takes_it():
    rules = site(True, '[{"to": [{"ipBlock": {"cidr": "10.20.1.5/16"}}]}]').extra_egress
    assert rules[0]["to"] == [{"ipBlock": {"cidr": "10.20.1.5/16"}}]
