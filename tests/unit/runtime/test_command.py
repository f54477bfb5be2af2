"""From the plan and the pod's environment to what is started."""

from __future__ import annotations

import pytest
from unit.runtime.harness import make_plan

from vlm_runtime.__main__ import options
from vlm_runtime.command import BadApiKey, BadEnvironment, EngineCommand, engine_command, option

LAUNCHER = ["python3", "-m", "sglang.launch_server"]


def command(environ: dict[str, str] | None = None, **changes: object) -> EngineCommand:
    return engine_command(make_plan(**changes), environ or {}, LAUNCHER, library="/opt/vlmserve/lib")


def test_the_plans_arguments_are_passed_on_as_they_stand() -> None:
    args = ["--model-path", "/models/x", "--mm-process-config", '{"image": {"size": {}}}']
    assert command(engine={"args": args}).argv == (*LAUNCHER, *args)


def test_the_library_comes_first_and_what_the_image_had_stays() -> None:
    assert command({"PYTHONPATH": "/sgl-workspace"}).env["PYTHONPATH"] == "/opt/vlmserve/lib:/sgl-workspace"
    assert command().env["PYTHONPATH"] == "/opt/vlmserve/lib"


def test_a_crash_is_not_held_up_by_dumps_unless_the_user_wants_them() -> None:
    assert command().env["SGLANG_CUDA_COREDUMP_BEFORE_CRASH"] == "0"
    wanted = {"SGLANG_CUDA_COREDUMP_BEFORE_CRASH": "1"}
    assert command(wanted).env["SGLANG_CUDA_COREDUMP_BEFORE_CRASH"] == "1"
    assert command(engine={"env": wanted}).env["SGLANG_CUDA_COREDUMP_BEFORE_CRASH"] == "1"


def test_the_pods_environment_wins_over_the_plans() -> None:
    assert command({"SGLANG_X": "pod"}, engine={"env": {"SGLANG_X": "plan"}}).env["SGLANG_X"] == "pod"


def test_the_api_key_becomes_a_flag_and_leaves_the_environment() -> None:
    found = command({"VLMSERVE_API_KEY": "sk-1"})
    assert found.argv[-1:] == ("--api-key=sk-1",)
    assert "VLMSERVE_API_KEY" not in found.env
    assert found.api_key == "sk-1"
    assert "sk-1" not in repr(found)


@pytest.mark.parametrize("args", [["--api-key", "mine"], ["--api-key=mine"]])
def test_a_key_that_the_user_wrote_himself_is_used_and_not_given_twice(args: list[str]) -> None:
    found = command({"VLMSERVE_API_KEY": "sk-1"}, engine={"args": args})
    assert found.api_key == "mine"
    assert not any("sk-1" in arg for arg in found.argv)


def test_the_line_break_that_an_editor_leaves_at_the_end_of_a_key_is_no_part_of_it() -> None:
    found = command({"VLMSERVE_API_KEY": "sk-1\n"})
    assert (found.api_key, found.argv[-1]) == ("sk-1", "--api-key=sk-1")


def test_a_key_that_begins_with_a_dash_is_no_flag() -> None:
    assert command({"VLMSERVE_API_KEY": "--help"}).argv[-1] == "--api-key=--help"


@pytest.mark.parametrize("key", ["two words", "two\nlines", "sk-ключ"])
def test_a_key_that_no_header_can_carry_is_refused_without_being_shown(key: str) -> None:
    with pytest.raises(BadApiKey, match="VLMSERVE_API_KEY") as refused:
        command({"VLMSERVE_API_KEY": key})
    assert key not in str(refused.value)


def test_a_port_that_is_no_number_is_left_to_the_engine_to_refuse() -> None:
    assert command(engine={"args": ["--port", "abc"]}).argv[-1] == "abc"


@pytest.mark.parametrize(
    ("args", "port"),
    [([], 8000), (["--port", "9000"], 9000), (["--port=9000"], 9000), (["--port", "1", "--port", "2"], 2)],
)
def test_the_engine_is_asked_where_it_listens(args: list[str], port: int) -> None:
    assert command(engine={"args": args}).port == port


def test_an_engine_with_a_certificate_is_asked_over_tls() -> None:
    assert command(engine={"args": ["--ssl-certfile", "/tls/tls.crt"]}).tls
    assert not command().tls


def test_a_follower_of_a_group_is_asked_without_tls_since_its_small_server_has_none() -> None:
    certified = {"args": ["--ssl-certfile", "/tls/tls.crt"]}
    for rank in (0, 1):
        group = {"LWS_GROUP_SIZE": "2", "LWS_WORKER_INDEX": str(rank), "LWS_LEADER_ADDRESS": "a"}
        assert command(group, engine=certified, runtime={"nodes": 2}).tls is (rank == 0)


@pytest.mark.parametrize("proxy", ["HTTP_PROXY", "https_proxy", "ALL_PROXY"])
@pytest.mark.parametrize(
    "said", [{}, {"NO_PROXY": ".svc, 10.0.0.0/8"}, {"no_proxy": ".svc,127.0.0.1", "NO_PROXY": "x"}]
)
def test_an_engine_behind_a_proxy_still_asks_itself(proxy: str, said: dict[str, str]) -> None:
    env = command({proxy: "http://proxy:3128", **said}).env
    first = (said.get("no_proxy") or said.get("NO_PROXY") or "").replace(" ", "").split(",")
    hosts = env["NO_PROXY"].split(",")
    assert env["no_proxy"] == env["NO_PROXY"]
    assert {*first, "127.0.0.1", "::1", "localhost"} - {""} == set(hosts)
    assert len(hosts) == len(set(hosts))


def test_an_engine_that_listens_on_one_address_asks_that_one_past_the_proxy() -> None:
    env = command({"HTTP_PROXY": "http://proxy:3128"}, engine={"args": ["--host", "10.1.2.3"]}).env
    assert "10.1.2.3" in env["NO_PROXY"].split(",")


def test_a_star_among_other_hosts_takes_nothing_past_the_proxy_so_the_engine_still_asks_itself() -> None:
    env = command({"HTTP_PROXY": "http://proxy:3128", "NO_PROXY": ".svc,*"}).env
    assert "127.0.0.1" in env["NO_PROXY"].split(",")


@pytest.mark.parametrize("said", [{}, {"NO_PROXY": "x"}, {"HTTP_PROXY": "http://proxy:3128", "NO_PROXY": "*"}])
def test_without_a_proxy_or_where_none_is_to_be_used_nothing_is_said_of_it(said: dict[str, str]) -> None:
    env = command(said).env
    assert {name: env.get(name) for name in ("no_proxy", "NO_PROXY")} == {
        "no_proxy": None,
        "NO_PROXY": said.get("NO_PROXY"),
    }


def test_one_node_is_the_head_whatever_the_environment_says() -> None:
    found = command({"LWS_WORKER_INDEX": "3"})
    assert found.is_head
    assert "--nnodes" not in found.argv


@pytest.mark.parametrize(("leader", "address"), [("svc-0.svc", "svc-0.svc:20000"), ("fd00::7", "[fd00::7]:20000")])
def test_a_pod_of_a_group_joins_it(leader: str, address: str) -> None:
    group = {"LWS_GROUP_SIZE": "2", "LWS_WORKER_INDEX": "1", "LWS_LEADER_ADDRESS": leader}
    found = command(group, runtime={"nodes": 2})
    assert found.argv[-8:-2] == ("--nnodes", "2", "--node-rank", "1", "--dist-init-addr", address)
    assert not found.is_head


@pytest.mark.parametrize(
    ("args", "seconds"), [([], "1800"), (["--dist-timeout", "60"], "60"), (["--dist-timeout=60"], "60")]
)
def test_members_wait_for_a_node_that_still_pulls_the_image_or_as_long_as_the_user_says(
    args: list[str], seconds: str
) -> None:
    group = {"LWS_GROUP_SIZE": "2", "LWS_WORKER_INDEX": "0", "LWS_LEADER_ADDRESS": "a"}
    assert option(command(group, engine={"args": args}, runtime={"nodes": 2}).argv, "--dist-timeout") == seconds
    assert option(command(engine={"args": []}).argv, "--dist-timeout") is None


@pytest.mark.parametrize("missing", ["LWS_GROUP_SIZE", "LWS_WORKER_INDEX", "LWS_LEADER_ADDRESS"])
def test_what_a_group_lacks_is_named(missing: str) -> None:
    group = {"LWS_GROUP_SIZE": "2", "LWS_WORKER_INDEX": "1", "LWS_LEADER_ADDRESS": "a"}
    del group[missing]
    with pytest.raises(BadEnvironment, match=missing):
        command(group, runtime={"nodes": 2})


def test_a_group_of_another_size_is_refused_with_both_sizes() -> None:
    group = {"LWS_GROUP_SIZE": "3", "LWS_WORKER_INDEX": "0", "LWS_LEADER_ADDRESS": "a"}
    with pytest.raises(BadEnvironment, match=r"LWS_GROUP_SIZE is 3, but the plan is for 2 nodes"):
        command(group, runtime={"nodes": 2})


def test_what_starts_the_engine_may_have_options_of_its_own() -> None:
    given = ["nsys", "launch", "--session-new=vlm", "python3", "-m", "sglang.launch_server"]
    assert options(["--engine-command", *given]).engine_command == given
