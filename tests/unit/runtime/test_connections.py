"""Clients that keep their connections, as gateways do and as ``benchmarks/drain.py --keep-alive`` has them."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.streams import Client, Load
from unit.runtime.harness import Container

Start = Callable[..., Container]


def test_a_connection_serves_one_answer_after_the_other_until_the_pod_is_to_end(container: Start) -> None:
    run = container()
    run.wait_ready()
    client = Client(Load(f"http://127.0.0.1:{run.engine_port}", "qwen3-vl", tokens=2, image_side=8), keep_alive=True)
    assert client.ask().outcome == "ok"
    kept = client._connection.sock
    assert kept is not None
    assert client.ask().outcome == "ok"
    assert client._connection.sock is kept
    run.terminate()
    run.wait_for(lambda: run.get("/readyz")[0] != 200, "draining")
    assert client.ask().outcome == "ok"
    # The next question goes over a new connection, which its Service leads to another pod.
    assert client._connection.sock is None
    assert client.connections == 1
    assert run.wait_exit() == 0


def test_without_it_each_question_has_a_connection_of_its_own(container: Start) -> None:
    run = container()
    run.wait_ready()
    client = Client(Load(f"http://127.0.0.1:{run.engine_port}", "qwen3-vl", tokens=2, image_side=8))
    assert [client.ask().outcome for _ in range(2)] == ["ok", "ok"]
    assert client.connections == 2
