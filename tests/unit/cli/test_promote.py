"""Promoting a pool: what it says becomes what main says, or the service."""

from typing import Any

from vlm_operator.cli.promote import promoted


def test_main_says_what_the_promoted_pool_says_and_keeps_its_own_number_of_replicas() -> None:
    main = {"name": "main", "replicas": 4, "rolloutStrategy": {"maxSurge": 1}, "engine": {"settings": {"a": 1}}}
    tried = {"name": "next", "replicas": 1, "engine": {"settings": {"b": 2}}, "concurrency": 64}
    other = {"name": "l40s", "parallelism": {"tensor": 2}}
    spec: dict[str, Any] = {"model": {"uri": "hf://a/b"}, "pools": [main, tried, other]}
    kept = {"name": "main", "replicas": 4, "rolloutStrategy": {"maxSurge": 1}}
    assert promoted(spec, "next") == {
        "model": {"uri": "hf://a/b"},
        "pools": [{**kept, "engine": {"settings": {"b": 2}}, "concurrency": 64}, other],
    }


def test_without_a_main_the_service_says_it_field_by_field_and_setting_by_setting() -> None:
    tried = {
        "name": "next",
        "replicas": 1,
        "concurrency": 64,
        "engine": {"version": "0.5.23", "settings": {"b": 2}},
        "template": {"spec": {"containers": [{"name": "main", "workingDir": "/tmp"}]}},
    }
    spec: dict[str, Any] = {
        "model": {"uri": "hf://a/b"},
        "engine": {"args": ["--log-requests"], "settings": {"a": 1, "b": 1}},
        "workload": {"concurrency": 400, "outputTokens": 8},
        "template": {"spec": {"containers": [{"name": "main", "tty": True}]}},
        "pools": [{"name": "old"}, tried],
    }
    assert promoted(spec, "next") == {
        "model": {"uri": "hf://a/b"},
        "engine": {"version": "0.5.23", "args": ["--log-requests"], "settings": {"a": 1, "b": 2}},
        "workload": {"concurrency": 64, "outputTokens": 8},
        "template": {"spec": {"containers": [{"name": "main", "tty": True, "workingDir": "/tmp"}]}},
        "pools": [{"name": "old"}],
    }
