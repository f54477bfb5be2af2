"""A stored plan of somebody else is neither shown nor measured: its pod template would run with the caller's rights."""

from types import SimpleNamespace
from typing import Any

import pytest
from unit.plan.builders import plan, service

from vlm_bench.commands.measured_service import measured_service
from vlm_operator.cli.service import explain
from vlm_operator.errors import ClusterError

FOREIGN = {"metadata": {"name": "x", "ownerReferences": [{"uid": "another"}]}, "data": {}}
READY = {
    "type": "Ready",
    "status": "True",
    "reason": "Serving",
    "message": "",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}


def live(**spec: Any) -> dict[str, Any]:
    made = plan(service())
    raw = service(**spec).to_api() | {"metadata": {"name": "qwen3-vl", "namespace": "default", "uid": "ours"}}
    status = {"conditions": [READY], "plan": {"hash": "0123456789"}, "pools": [{"name": "b", "plan": "0123456789"}]}
    status["plan"]["engine"] = made.engine.to_api()
    return raw | {"status": status}


def connection(raw: dict[str, Any]) -> Any:
    client = SimpleNamespace(get=lambda *_: FOREIGN)
    return SimpleNamespace(client=client, namespace="default", service=lambda name: raw)


def test_a_foreign_config_map_is_not_measured() -> None:
    with pytest.raises(ClusterError, match="is not qwen3-vl's: delete it"):
        measured_service(connection(live()), "qwen3-vl")


def test_a_foreign_config_map_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = live(pools=[{"name": "main"}, {"name": "b"}])
    monkeypatch.setattr("vlm_operator.cli.service.connect", lambda options: connection(raw))
    with pytest.raises(ClusterError, match="is not qwen3-vl's: delete it"):
        explain(SimpleNamespace(name="qwen3-vl", pool="b"))  # type: ignore[arg-type]
