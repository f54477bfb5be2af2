"""The engine's command line and environment."""

from __future__ import annotations

import hashlib

import pytest
from unit.runtime.harness import make_plan

from vlm_api.limits import RequestLimits
from vlm_runtime.__main__ import options
from vlm_runtime.sglang.command import BadApiKey, BadEnvironment, EngineCommand, engine_command, option

LAUNCHER = ["python3", "-m", "sglang.launch_server"]


def command(environ: dict[str, str] | None = None, **changes: object) -> EngineCommand:
    return engine_command(make_plan(**changes), environ or {}, LAUNCHER, library="/opt/vlmserve/lib")


def test_the_plans_arguments_are_passed_unchanged() -> None:
    args = ["--model-path", "/models/x", "--mm-process-config", '{"image": {"size": {}}}']
    assert command(engine={"args": args}).argv == (*LAUNCHER, *args)


def test_the_library_comes_first_on_pythonpath() -> None:
    assert command({"PYTHONPATH": "/sgl-workspace"}).env["PYTHONPATH"] == "/opt/vlmserve/lib:/sgl-workspace"
    assert command().env["PYTHONPATH"] == "/opt/vlmserve/lib"


def test_dumps_after_a_crash_are_off_by_default() -> None:
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
    assert found.env["VLMSERVE_GUARD_KEY_SHA256"] == hashlib.sha256(b"sk-1").hexdigest()
    assert "VLMSERVE_GUARD_KEY_SHA256" not in command({"VLMSERVE_GUARD_KEY_SHA256": "0"}).env


def test_the_guard_is_told_the_plans_limits_or_the_usual_ones() -> None:
    assert command().env["VLMSERVE_GUARD_LIMITS"] == f"{64 << 20},32,100000000,400000000,8"
    limits = RequestLimits(images=3, image_pixels=5)
    assert command(runtime={"limits": limits}).env["VLMSERVE_GUARD_LIMITS"] == f"{64 << 20},3,5,400000000,8"


@pytest.mark.parametrize("args", [["--api-key", "mine"], ["--api-key=mine"]])
def test_the_users_own_api_key_is_not_passed_twice(args: list[str]) -> None:
    found = command({"VLMSERVE_API_KEY": "sk-1"}, engine={"args": args})
    assert found.api_key == "mine"
    assert not any("sk-1" in arg for arg in found.argv)


def test_a_trailing_line_break_is_not_part_of_the_key() -> None:
    found = command({"VLMSERVE_API_KEY": "sk-1\n"})
    assert (found.api_key, found.argv[-1]) == ("sk-1", "--api-key=sk-1")


def test_a_key_that_begins_with_a_dash_is_not_a_flag() -> None:
    assert command({"VLMSERVE_API_KEY": "--help"}).argv[-1] == "--api-key=--help"


@pytest.mark.parametrize("key", ["two words", "two\nlines", "sk-ключ"])
def test_a_key_that_no_header_can_carry_is_refused_but_not_shown(key: str) -> None:
    with pytest.raises(BadApiKey, match="VLMSERVE_API_KEY") as refused:
        command({"VLMSERVE_API_KEY": key})
    assert key not in str(refused.value)


@pytest.mark.parametrize("key", ["", " ", " \n", "\t"])
def test_a_blank_key_never_opens_the_engine_to_everybody(key: str) -> None:
    with pytest.raises(BadApiKey, match="VLMSERVE_API_KEY is empty or blank"):
        command({"VLMSERVE_API_KEY": key})
    with pytest.raises(BadApiKey, match="--api-key is empty or blank"):
        command(engine={"args": [f"--api-key={key}"]})


def test_the_engine_refuses_a_port_that_is_not_a_number() -> None:
    assert command(engine={"args": ["--port", "abc"]}).argv[-1] == "abc"


@pytest.mark.parametrize(
    ("args", "port"),
    [([], 8000), (["--port", "9000"], 9000), (["--port=9000"], 9000), (["--port", "1", "--port", "2"], 2)],
)
def test_the_engine_is_reached_where_it_listens(args: list[str], port: int) -> None:
    assert command(engine={"args": args}).port == port


def test_an_engine_with_a_certificate_is_reached_over_tls() -> None:
    assert command(engine={"args": ["--ssl-certfile", "/tls/tls.crt"]}).tls
    assert not command().tls


def test_a_worker_pods_small_server_has_no_tls() -> None:
    certified = {"args": ["--ssl-certfile", "/tls/tls.crt"]}
    for rank in (0, 1):
        group = {"LWS_GROUP_SIZE": "2", "LWS_WORKER_INDEX": str(rank), "LWS_LEADER_ADDRESS": "a"}
        assert command(group, engine=certified, runtime={"nodes": 2}).tls is (rank == 0)


@pytest.mark.parametrize("proxy", ["HTTP_PROXY", "https_proxy", "ALL_PROXY"])
@pytest.mark.parametrize(
    "said", [{}, {"NO_PROXY": ".svc, 10.0.0.0/8"}, {"no_proxy": ".svc,127.0.0.1", "NO_PROXY": "x"}]
)
def test_the_engine_reaches_itself_without_the_proxy(proxy: str, said: dict[str, str]) -> None:
    env = command({proxy: "http://proxy:3128", **said}).env
    first = (said.get("no_proxy") or said.get("NO_PROXY") or "").replace(" ", "").split(",")
    hosts = env["NO_PROXY"].split(",")
    assert env["no_proxy"] == env["NO_PROXY"]
    assert {*first, "127.0.0.1", "::1", "localhost"} - {""} == set(hosts)
    assert len(hosts) == len(set(hosts))


def test_a_single_address_bypasses_the_proxy_too() -> None:
    env = command({"HTTP_PROXY": "http://proxy:3128"}, engine={"args": ["--host", "10.1.2.3"]}).env
    assert "10.1.2.3" in env["NO_PROXY"].split(",")


def test_a_star_among_other_hosts_does_not_bypass_the_proxy() -> None:
    env = command({"HTTP_PROXY": "http://proxy:3128", "NO_PROXY": ".svc,*"}).env
    assert "127.0.0.1" in env["NO_PROXY"].split(",")


@pytest.mark.parametrize("said", [{}, {"NO_PROXY": "x"}, {"HTTP_PROXY": "http://proxy:3128", "NO_PROXY": "*"}])
def test_without_a_proxy_no_variable_is_set(said: dict[str, str]) -> None:
    env = command(said).env
    assert {name: env.get(name) for name in ("no_proxy", "NO_PROXY")} == {
        "no_proxy": None,
        "NO_PROXY": said.get("NO_PROXY"),
    }


def test_a_single_node_is_the_leader_whatever_its_environment() -> None:
    found = command({"LWS_WORKER_INDEX": "3"})
    assert found.is_leader
    assert "--nnodes" not in found.argv


@pytest.mark.parametrize(("leader", "address"), [("svc-0.svc", "svc-0.svc:20000"), ("fd00::7", "[fd00::7]:20000")])
def test_a_pod_of_a_group_joins_it(leader: str, address: str) -> None:
    group = {"LWS_GROUP_SIZE": "2", "LWS_WORKER_INDEX": "1", "LWS_LEADER_ADDRESS": leader}
    found = command(group, runtime={"nodes": 2})
    assert found.argv[-8:-2] == ("--nnodes", "2", "--node-rank", "1", "--dist-init-addr", address)
    assert not found.is_leader


@pytest.mark.parametrize(
    ("args", "seconds"), [([], "1800"), (["--dist-timeout", "60"], "60"), (["--dist-timeout=60"], "60")]
)
def test_the_group_timeout_covers_an_image_pull_unless_the_user_sets_it(args: list[str], seconds: str) -> None:
    group = {"LWS_GROUP_SIZE": "2", "LWS_WORKER_INDEX": "0", "LWS_LEADER_ADDRESS": "a"}
    assert option(command(group, engine={"args": args}, runtime={"nodes": 2}).argv, "--dist-timeout") == seconds
    assert option(command(engine={"args": []}).argv, "--dist-timeout") is None


@pytest.mark.parametrize("missing", ["LWS_GROUP_SIZE", "LWS_WORKER_INDEX", "LWS_LEADER_ADDRESS"])
def test_a_missing_variable_of_a_group_is_named(missing: str) -> None:
    group = {"LWS_GROUP_SIZE": "2", "LWS_WORKER_INDEX": "1", "LWS_LEADER_ADDRESS": "a"}
    del group[missing]
    with pytest.raises(BadEnvironment, match=missing):
        command(group, runtime={"nodes": 2})


def test_a_group_of_another_size_is_refused_with_both_sizes() -> None:
    group = {"LWS_GROUP_SIZE": "3", "LWS_WORKER_INDEX": "0", "LWS_LEADER_ADDRESS": "a"}
    with pytest.raises(BadEnvironment, match=r"LWS_GROUP_SIZE is 3, but the plan is for 2 nodes"):
        command(group, runtime={"nodes": 2})


def test_the_launcher_may_have_options() -> None:
    given = ["nsys", "launch", "--session-new=vlm", "python3", "-m", "sglang.launch_server"]
    assert options(["--engine-command", *given]).engine_command == given
