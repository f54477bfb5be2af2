"""From the declared workload to the runs, and from the service's pod template to the Job."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from vlm_api.spec import SecretKeyRef
from vlm_api.status import VLMService
from vlm_bench.commands.recording import requests_for
from vlm_bench.load.job_manifest import bench_job, memory_mib
from vlm_bench.load.schedule import load_of, queueing_note, schedule
from vlm_bench.load.target import Target, checked_url, secret_reference, tokenizer_of
from vlm_bench.statistics.rounds import read_line
from vlm_operator.errors import InvalidInput

WORKLOAD = {
    "concurrency": 400, "inputTokens": 128, "outputTokens": 64,
    "images": {"perRequest": 2, "width": 640, "height": 480, "reuse": "SingleUse"},
}  # fmt: skip


def service(workload: dict[str, Any]) -> VLMService:
    spec = {"model": {"uri": "hf://Qwen/Qwen3-VL-8B-Instruct"}, "workload": workload}
    return VLMService.model_validate({"metadata": {"name": "qwen3-vl", "namespace": "team"}, "spec": spec})


def test_the_load_is_the_declared_workload_of_all_replicas() -> None:
    load, notes = load_of(service(WORKLOAD), replicas=2)
    assert (load.input_tokens, load.output_tokens, load.images, load.width, load.height) == (128, 64, 2, 640, 480)
    assert load.concurrency == (800,)
    assert load.requests_at(800) == 4000
    assert notes == []


def test_what_the_workload_does_not_say_is_told() -> None:
    _, [note] = load_of(service({}))
    assert "inputTokens, outputTokens, images.width and height, concurrency" in note


def test_a_workload_that_repeats_images_is_told_that_this_load_does_not() -> None:
    _, [note] = load_of(service({**WORKLOAD, "images": {**WORKLOAD["images"], "reuse": "Repeated"}}))  # type: ignore[dict-item]
    assert "sends each image once" in note


def test_a_workload_with_videos_is_told_that_this_load_sends_none() -> None:
    _, [note] = load_of(service({**WORKLOAD, "videos": {"seconds": 10, "width": 640, "height": 360}}))
    assert "this load sends none" in note


@pytest.mark.parametrize(("concurrency", "requests"), [([0], None), ([70_000], None), ([8], 0), ([1, 64], 63)])
def test_numbers_that_are_none_are_refused(concurrency: list[int], requests: int | None) -> None:
    with pytest.raises(InvalidInput, match="give"):
        load_of(service(WORKLOAD), concurrency=concurrency, requests=requests)


def test_more_at_once_than_the_engines_run_is_said_to_wait() -> None:
    load, _ = load_of(service(WORKLOAD), concurrency=[4, 16])
    assert (queueing_note(load, 4, 2) or "").startswith(
        "max_running_requests is 4: above a concurrency of 8 requests wait"
    )
    assert queueing_note(load, 8, 2) is None
    assert queueing_note(load, None, 1) is None


def test_no_seed_comes_twice_so_no_image_does() -> None:
    load, _ = load_of(service(WORKLOAD), concurrency=[1, 8, 64])
    runs = schedule(load, targets=2, rounds=6, first_seed=2**31 - 5)
    assert len({run.seed for run in runs}) == len(runs) == 2 + 6 * 3 * 2
    assert all(0 <= run.seed < 2**31 for run in runs)


def test_targets_take_turns_and_change_places_every_round() -> None:
    load, _ = load_of(service(WORKLOAD))
    runs = schedule(load, targets=2, rounds=3, first_seed=0)
    assert [(run.round, run.target) for run in runs] == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 1), (2, 0), (3, 0), (3, 1)]


TEMPLATE: dict[str, Any] = {
    "spec": {
        "containers": [
            {
                "name": "main",
                "image": "lmsysorg/sglang:v1.2.3",
                "env": [
                    {"name": "HF_HOME", "value": "/var/cache/vlmserve/huggingface"},
                    {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf", "key": "token"}}},
                    {"name": "VLMSERVE_API_KEY", "valueFrom": {"secretKeyRef": {"name": "k", "key": "key"}}},
                    {"name": "SGLANG_VLM_CACHE_SIZE_MB", "value": "0"},
                ],
                "resources": {"limits": {"nvidia.com/gpu": "1"}},
                "securityContext": {"readOnlyRootFilesystem": True},
                "volumeMounts": [
                    {"name": "plan", "mountPath": "/etc/vlmserve"},
                    {"name": "cache", "mountPath": "/var/cache/vlmserve"},
                    {"name": "tmp", "mountPath": "/tmp"},
                    {"name": "model", "mountPath": "/models"},
                    {"name": "certificates", "mountPath": "/etc/certificates"},
                ],
            }
        ],
        "volumes": [
            {"name": "plan", "configMap": {"name": "qwen3-vl-plan-0"}},
            {"name": "cache", "persistentVolumeClaim": {"claimName": "weights"}},
            {"name": "tmp", "emptyDir": {}},
            {"name": "model", "persistentVolumeClaim": {"claimName": "models", "readOnly": True}},
            {"name": "certificates", "configMap": {"name": "certificates"}},
        ],
        "affinity": {"nodeAffinity": {}},
        "runtimeClassName": "nvidia",
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
        "securityContext": {"runAsNonRoot": True},
        "resourceClaims": [{"name": "devices"}],
    }
}


def job(**changes: Any) -> dict[str, Any]:
    load, _ = load_of(service(WORKLOAD))
    targets = [
        Target("ours", "http://qwen3-vl.team.svc:8000", "/models/m", "qwen3-vl", SecretKeyRef(name="k", key="key")),
        Target("theirs", "http://vllm:8000", "/models/m", key=SecretKeyRef(name="other", key="token")),
    ]
    options: dict[str, Any] = {
        "name": "qwen3-vl-bench-1", "namespace": "team", "service": "qwen3-vl", "owner": {"uid": "u"}, "targets": targets,
        "runs": schedule(load, targets=2, rounds=5, first_seed=1), "load": load, "ready_seconds": 60,
    }  # fmt: skip
    return bench_job(TEMPLATE, **{**options, **changes})


def container() -> dict[str, Any]:
    found: dict[str, Any] = job()["spec"]["template"]["spec"]["containers"][0]
    return found


def test_the_job_takes_no_gpu_and_may_run_anywhere() -> None:
    pod = job()["spec"]["template"]["spec"]
    assert "nvidia.com/gpu" not in json.dumps(pod["containers"][0]["resources"])
    assert not {"affinity", "runtimeClassName", "resourceClaims"} & pod.keys()
    assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"} in container()["env"]


def test_keys_come_by_reference_each_to_its_own_server() -> None:
    variables = {each["name"]: each for each in container()["env"]}
    assert variables["BENCH_KEY_0"]["valueFrom"]["secretKeyRef"] == {"name": "k", "key": "key"}
    assert variables["BENCH_KEY_1"]["valueFrom"]["secretKeyRef"] == {"name": "other", "key": "token"}
    assert [t["key_variable"] for t in json.loads(container()["command"][-1])["targets"]] == [
        "BENCH_KEY_0",
        "BENCH_KEY_1",
    ]


def test_the_engines_settings_and_key_stay_with_the_engine_and_the_way_to_the_hub_does_not() -> None:
    names = {each["name"] for each in container()["env"]}
    assert {"HF_HOME", "HF_TOKEN"} <= names
    assert not {"SGLANG_VLM_CACHE_SIZE_MB", "VLMSERVE_API_KEY"} & names


def test_models_and_the_users_volumes_are_read_only_and_the_rest_is_empty() -> None:
    mounts = {each["mountPath"]: each for each in container()["volumeMounts"]}
    assert mounts.keys() == {"/models", "/etc/certificates", "/var/cache/vlmserve", "/tmp"}
    assert mounts["/models"]["readOnly"]
    volumes = {each["name"]: each for each in job()["spec"]["template"]["spec"]["volumes"]}
    assert volumes["cache"] == {"name": "cache", "emptyDir": {}}
    assert volumes.keys() == {"model", "certificates", "cache", "tmp"}


def test_a_job_that_nobody_removes_ends_and_goes_by_itself() -> None:
    spec, metadata = job()["spec"], job()["metadata"]
    assert spec["activeDeadlineSeconds"] > 600
    assert spec["ttlSecondsAfterFinished"] == 60
    assert metadata["ownerReferences"] == [{"uid": "u"}]
    assert "vlmserve.dev/service" not in metadata["labels"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("http://vllm:8000", "http://vllm:8000"),
        ("http://vllm:8000/v1/", "http://vllm:8000"),
        ("https://example.com/models/v1", "https://example.com/models"),
    ],
)
def test_a_servers_address_is_taken_with_or_without_v1(text: str, expected: str) -> None:
    assert checked_url(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "ftp://x", "http://", "http://u:p@x", "http://x:99999", "http://x/v1?a=b", "http://[::1", "http://a b:8000",
        "http://a\n:8000", "http://ü:8000",
    ],
)  # fmt: skip
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="--against"):
        checked_url(text)


@pytest.mark.parametrize("text", ["http://localhost:8000", "http://127.0.0.1:8000/v1", "http://[::1]:8000"])
def test_an_address_that_means_the_loads_own_pod_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="give an address that pods reach"):
        checked_url(text)


def test_a_secret_is_named_with_its_key() -> None:
    assert secret_reference("name:api-key") == SecretKeyRef(name="name", key="api-key")


@pytest.mark.parametrize("text", ["sk-something-secret", "name:", ":key", "A_b:key", "name:a:b"])
def test_what_is_no_reference_is_refused_and_not_repeated_since_it_may_be_the_key(text: str) -> None:
    with pytest.raises(InvalidInput, match="SECRET:KEY") as refused:
        secret_reference(text)
    assert text not in str(refused.value)


@pytest.mark.parametrize(
    "args",
    [["--model-path", "/models/m"], ["--model-path=/models/m"], ["--model-path", "x", "--tokenizer-path", "/models/m"]],
)
def test_the_processor_is_where_the_engine_has_it(args: list[str]) -> None:
    assert tokenizer_of(["--device", "cpu", *args, "--enable-metrics"]) == "/models/m"


def test_the_program_in_the_pod_needs_nothing_of_ours_there() -> None:
    python3, *command = container()["command"]
    assert python3 == "python3"
    # Neither this distribution nor SGLang can be imported: only what is sent.
    done = subprocess.run([sys.executable, "-I", "-S", *command], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (1, "")
    event = read_line(done.stdout.strip())
    assert event is not None
    assert event["message"].startswith("the image has no sglang.benchmark.serving (No module named 'sglang')")


def test_more_runs_than_a_pod_can_be_told_of_are_refused() -> None:
    load, _ = load_of(service(WORKLOAD))
    with pytest.raises(InvalidInput, match="2002 runs are too many for one Job"):
        job(runs=schedule(load, targets=2, rounds=1000, first_seed=1))


def test_the_loads_pod_asks_for_the_memory_of_all_its_images() -> None:
    load, _ = load_of(service(WORKLOAD))
    runs = schedule(load, targets=1, rounds=3, first_seed=1)
    # 2,000 requests of a round and the copies of 400 on their way, with two images of 310,284 bytes each.
    assert memory_mib(load, runs) == 1024 + 1658
    [container] = job(runs=runs)["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["requests"]["memory"] == "2682Mi"


def test_a_recording_sends_fewer_requests_with_large_images() -> None:
    small, _ = load_of(service(WORKLOAD), concurrency=[8])
    images = {"perRequest": 4, "width": 4096, "height": 4096}
    large, _ = load_of(service({**WORKLOAD, "images": images}), concurrency=[8])
    assert requests_for(small) == 400
    assert requests_for(large) == 31
    assert requests_for(large) * large.request_bytes <= 2**31
