"""The types refuse what the API server refuses, with a readable message."""

import pytest
from crd_cases import RIGHT, WRONG, Right, Wrong, service
from pydantic import ValidationError

from vlm_api.problems import Problem, problems
from vlm_api.status import VLMService


def problems_of(manifest: dict[str, object]) -> list[Problem]:
    with pytest.raises(ValidationError) as refusal:
        VLMService.model_validate(manifest)
    return problems(refusal.value, VLMService)


@pytest.mark.parametrize("case", RIGHT, ids=lambda c: c.sentence)
def test_accepts(case: Right) -> None:
    assert VLMService.model_validate(service(case)).name == case.name


@pytest.mark.parametrize("case", WRONG, ids=lambda c: c.sentence)
def test_refuses(case: Wrong) -> None:
    found = problems_of(service(case))
    assert [p.path for p in found] == [case.path]
    assert case.says in found[0].message
    assert "Input should" not in found[0].message
    assert "\n" not in str(found[0])


def test_says_every_problem_at_once() -> None:
    assert [str(p) for p in problems_of({"metadata": {"name": "vlm"}, "spec": {"replicas": "2", "suspend": "no"}})] == [
        "spec.model: is required: set it",
        'spec.replicas: is "2", but must be a whole number, without quotes',
        'spec.suspend: is "no", but must be true or false, without quotes',
    ]


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({"workload": {"concurency": 8}}, "spec.workload.concurency: unknown field, did you mean concurrency?"),
        (
            {"workload": {"images": {"reuse": "singleuse"}}},
            'spec.workload.images.reuse: is "singleuse", but must be one of SingleUse, Repeated, Unknown, '
            "did you mean SingleUse?",
        ),
        (
            {"engine": {"tuning": False}},
            "spec.engine.tuning: is false, but must be one of Auto, Off: YAML reads Off without quotes as false, "
            'write "Off"',
        ),
        (
            {"hardware": {"computeCapability": 9.0}},
            "spec.hardware.computeCapability: is 9.0, but must be text: put it in quotes",
        ),
        ({"replicas": 2000}, "spec.replicas: is 2000, but must be at most 1000"),
    ],
)
def test_says_the_value_and_the_next_step(spec: dict[str, object], sentence: str) -> None:
    assert [str(p) for p in problems_of(service(Right("", spec)))] == [sentence]


@pytest.mark.parametrize(
    "spec",
    [
        {"engine": {"env": [{"name": "TOKEN=hunter2"}]}},
        {"engine": {"env": [{"name": "TOKEN", "value": ["hunter2"]}]}},
        {"engine": {"args": "--api-key=hunter2"}},
        {"engine": {"settings": "api_key=hunter2"}},
        {"template": "hunter2"},
    ],
)
def test_never_repeats_what_may_be_a_secret(spec: dict[str, object]) -> None:
    found = problems_of(service(Right("", spec)))
    assert found
    assert "hunter2" not in " ".join(map(str, found))


@pytest.mark.parametrize(
    "spec",
    [
        {"model": {"uri": "https://user:hunter2@hub.example.com/model"}},
        {"model": {"uri": "s3://KEY:hun/ter2@bucket"}},
        {"model": {"uri": "oci://user:hunter2@registry.example.com/model"}},
        {"engine": {"image": "https://user:hunter2@registry.example.com/sglang"}},
    ],
)
def test_never_repeats_the_password_in_a_url(spec: dict[str, object]) -> None:
    (found,) = problems_of(service(Right("", spec)))
    assert "://[redacted]@" in found.message
    assert "ter2" not in found.message


def test_a_duplicate_name_in_the_template_is_refused() -> None:
    twice = {"containers": [{"name": "main"}, {"name": "main"}]}
    shared = {"containers": [{"name": "a"}], "initContainers": [{"name": "b"}, {"name": "a"}]}
    for spec, sentence in (
        (twice, 'spec.template.spec.containers[1]: duplicate name "main": keep one of them'),
        (shared, 'spec.template.spec.initContainers[1]: has the same name "a" as a container: rename one of them'),
    ):
        assert [str(p) for p in problems_of(service(Right("", {"template": {"spec": spec}})))] == [sentence]


@pytest.mark.parametrize(
    ("metadata", "says"),
    [
        ({}, "metadata.name: is required: it must be a DNS-1035 label"),
        ({"name": ""}, "metadata.name: is required: it must be a DNS-1035 label"),
        ({"generateName": "vlm-"}, "metadata.name: is required (metadata.generateName does not say which name"),
    ],
)
def test_a_missing_name_is_asked_for(metadata: dict[str, str], says: str) -> None:
    (found,) = problems_of({**service(Right("", {})), "metadata": metadata})
    assert str(found).startswith(says)
