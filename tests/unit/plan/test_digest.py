"""The digest by which an operator knows the spec that a plan was made from, whichever release made it."""

from typing import Any

import pytest

from vlm_api.spec import VLMServiceSpec
from vlm_operator.plan.digest import spec_digest

SHORT: dict[str, Any] = {"model": {"uri": "hf://a/b"}}
LONG: dict[str, Any] = {
    "model": {"uri": "pvc://models/a", "tokenSecretRef": {"name": "hf", "key": "token"}, "revision": "main"},
    "parallelism": {"tensor": 2},
    "workload": {"concurrency": 8, "images": {"perRequest": 2}},
    "hardware": {"products": ["NVIDIA-H100-80GB-HBM3"]},
    "engine": {
        "settings": {"prefill_decode_interval": 10},
        "args": ["--log-requests"],
        "env": [{"name": "A", "value": "b"}, {"name": "C", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
    },
    "security": {"apiKeySecretRef": {"name": "k", "key": "api-key"}},
    "sharedMemorySize": "16Gi",
    "template": {"spec": {"containers": [{"name": "main", "resources": {"limits": {"memory": "64Gi"}}}]}},
    "replicas": 3,
}


def digest(spec: dict[str, Any]) -> str:
    return spec_digest(VLMServiceSpec.model_validate(spec))


@pytest.mark.parametrize(
    ("spec", "of_release_0_1_0"), [(SHORT, "a89c5476a2ebca1e"), (LONG, "5f078ffd8d5017b4")], ids=["short", "long"]
)
def test_a_service_of_the_first_release_is_known_again(spec: dict[str, Any], of_release_0_1_0: str):
    # A change here replaces every pod of every service at the next upgrade of the operator.
    assert digest(spec) == of_release_0_1_0


def test_a_field_of_a_later_release_counts_only_where_it_is_used():
    usual, other = ({**SHORT, "security": {"networkPolicy": wanted}} for wanted in (True, False))
    assert digest(usual) == digest(SHORT)
    assert digest(other) != digest(SHORT)


def test_a_default_that_is_written_down_changes_nothing():
    assert digest({**SHORT, "parallelism": {"tensor": 1}, "engine": {"tuning": "Auto"}}) == digest(SHORT)


def test_what_never_changes_a_pod_is_left_out():
    assert digest({**SHORT, "replicas": 5, "suspend": True}) == digest(SHORT)
    assert digest({**SHORT, "workload": {"concurrency": 5}}) != digest(SHORT)
