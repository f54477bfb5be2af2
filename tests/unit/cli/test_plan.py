"""``kubectl vlm plan``: exit codes, what goes where, and that the same input gives the same bytes."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from unit.cli.builders import A100, H100, WORKLOAD, Result, node, service

from vlm_operator.cli.main import main

Plan = Callable[..., Result]
JSON = ("-o", "json")
EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
FAMILIES = Path(__file__).resolve().parents[3] / "operator" / "vlm_operator" / "profiles"


def test_a_plan_is_exit_code_0_and_json_on_standard_output(plan: Plan) -> None:
    result = plan(service(workload=WORKLOAD), flags=JSON)
    assert (result.code, result.err) == (0, "")
    assert result.json["kind"] == "ServingPlan"
    assert result.json["hash"]
    assert result.json["service"] == {"name": "vlm", "namespace": "default"}
    assert result.json["hardware"]["nodes"] == ["hopper"]
    assert [m["kind"] for m in result.json["manifests"]] == ["ConfigMap", "NetworkPolicy", "Service", "Deployment"]


def test_a_plan_that_cannot_work_is_exit_code_1_and_says_why(plan: Plan) -> None:
    result = plan(service(parallelism={"tensor": 16}), flags=JSON)
    assert result.code == 1
    errors = [f for f in result.json["findings"] if f["severity"] == "Error"]
    assert errors
    assert "16" in errors[0]["message"]
    assert result.json["manifests"] == []


@pytest.mark.parametrize("output", ["table", "json", "yaml", "manifests"])
def test_an_input_that_is_wrong_is_exit_code_2_and_nothing_on_standard_output(plan: Plan, output: str) -> None:
    wrong = service(sharedMemorySize="20GB", engine={"args": ["--no-such-flag"]})
    result = plan(wrong, flags=("-o", output))
    assert (result.code, result.out) == (2, "")
    assert result.err == (
        'error: spec.sharedMemorySize: is "20GB", but must be a size above zero, such as 16Gi, 500Mi or 2G\n'
    )


def test_what_only_the_engines_catalogue_knows_is_exit_code_2_too(plan: Plan) -> None:
    result = plan(service(engine={"settings": {"prefil_decode_interval": 10}}), flags=JSON)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("error: spec.engine.settings.prefil_decode_interval: ")
    assert "prefill_decode_interval" in result.err
    assert result.err.count("\n") == 1


def test_several_wrong_services_are_named(plan: Plan) -> None:
    wrong = {"engine": {"settings": {"no_such_setting": 1}}}
    result = plan(service("a", **wrong), service("b"), service("c", **wrong))
    assert result.code == 2
    assert [line.split(": ")[1] for line in result.err.splitlines()] == ["a", "c"]


def test_several_services_are_a_list_and_the_worst_exit_code(plan: Plan) -> None:
    result = plan(service("a"), service("b", parallelism={"tensor": 16}), flags=JSON)
    assert result.code == 1
    assert result.json["kind"] == "List"
    assert [p["service"]["name"] for p in result.json["items"]] == ["a", "b"]


def test_yaml_says_the_same_as_json(plan: Plan) -> None:
    one = service(workload=WORKLOAD)
    assert yaml.safe_load(plan(one, flags=("-o", "yaml")).out) == plan(one, flags=JSON).json


def test_manifests_are_what_the_plan_holds_one_document_each(plan: Plan) -> None:
    one = service(workload=WORKLOAD)
    printed = list(yaml.safe_load_all(plan(one, flags=("-o", "manifests")).out))
    assert printed == plan(one, flags=JSON).json["manifests"]


def test_the_order_of_nodes_and_labels_changes_no_byte(plan: Plan) -> None:
    nodes = [node(f"n{i}", H100 | {"zone": f"z{i % 2}"}) for i in range(6)] + [node("old", A100), node("cpu", {}, 0)]
    one = service(workload=WORKLOAD)
    expected = plan(one, nodes=nodes, flags=JSON).out
    for seed in range(3):
        shuffled = random.Random(seed).sample(nodes, len(nodes))
        for each in shuffled:
            labels = list(each["metadata"]["labels"].items())
            random.Random(seed).shuffle(labels)
            each["metadata"]["labels"] = dict(labels)
        assert plan(one, nodes=shuffled, flags=JSON).out == expected


def test_the_order_of_fields_changes_no_byte(plan: Plan) -> None:
    one = service(workload=WORKLOAD, engine={"settings": {"stream_interval": 2, "prefill_decode_interval": 10}})
    other = service(engine={"settings": {"prefill_decode_interval": 10, "stream_interval": 2}}, workload=WORKLOAD)
    assert plan(one, flags=JSON).out == plan(other, flags=JSON).out


def test_devices_that_pods_hold_are_not_free(plan: Plan) -> None:
    busy = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "other", "namespace": "default"},
        "spec": {
            "nodeName": "a",
            "containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "8"}}}],
        },
    }
    # Two kinds of hardware that suit alike: the one with more free devices is taken.
    l40s = H100 | {"nvidia.com/gpu.product": "NVIDIA-L40S", "nvidia.com/gpu.compute.major": "8"}
    l40 = l40s | {"nvidia.com/gpu.product": "NVIDIA-L40"}
    nodes = [node("a", l40), node("b", l40s)]
    assert plan(service(), nodes=nodes, flags=JSON).json["hardware"]["nodes"] == ["a"]
    assert plan(service(), nodes=[*nodes, busy], flags=JSON).json["hardware"]["nodes"] == ["b"]


def test_claims_in_the_file_of_nodes_are_looked_at(plan: Plan) -> None:
    shared = service(replicas=2)
    shared["spec"]["model"]["cacheClaim"] = "weights"
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "weights", "namespace": "default"},
        "spec": {"accessModes": ["ReadWriteOncePod"]},
    }
    refused = plan(shared, nodes=[node(), claim], flags=JSON)
    assert refused.code == 1
    assert [f["reason"] for f in refused.json["findings"] if f["severity"] == "Error"] == ["ClaimForOnePod"]
    unread = plan(shared, flags=JSON)
    assert unread.code == 0
    assert "ClaimNotChecked" in {f["reason"] for f in unread.json["findings"]}


def test_an_empty_cluster_gets_a_plan_that_waits_for_nodes(plan: Plan) -> None:
    result = plan(service(workload=WORKLOAD), nodes=[], flags=JSON)
    assert result.code == 0
    assert "Warning" in {f["severity"] for f in result.json["findings"]}


@pytest.mark.parametrize(
    "arguments",
    [
        ["plan"],
        ["plan", "-f", "x", "-o", "xml"],
        ["plan", "-f", "x", "--no-such-flag"],
        ["bench"],
        ["no-such-command"],
        [],
    ],
)
def test_a_command_line_that_is_wrong_is_exit_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "error: " in said.err


def test_a_cluster_that_is_not_there_is_exit_code_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    file = tmp_path / "service.yaml"
    file.write_text(json.dumps(service()))
    assert main(["plan", "-f", str(file), "--kubeconfig", str(tmp_path / "nowhere")]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("error: ")
    assert said.err.count("\n") == 1


def test_an_invalid_input_is_told_before_the_cluster_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "service.yaml"
    file.write_text(json.dumps(service(replicas=-1)))
    assert main(["plan", "-f", str(file), "--kubeconfig", str(tmp_path / "nowhere")]) == 2
    assert capsys.readouterr().err == "error: spec.replicas: is -1, but must be at least 0\n"


def test_the_command_itself_works_and_survives_a_reader_that_leaves() -> None:
    command = [str(Path(sys.executable).with_name("kubectl-vlm")), "plan", "-f", str(EXAMPLES / "qwen3-vl-h100.yaml")]
    command += ["--nodes", str(EXAMPLES / "nodes-8xh100.yaml"), "-o", "manifests"]
    done = subprocess.run(["sh", "-c", '"$@" | head -n 1', "sh", *command], capture_output=True, text=True, timeout=60)
    assert done.stdout == "---\n"
    assert done.stderr == ""


@pytest.mark.parametrize("output", ["table", "json"])
def test_a_full_disk_is_exit_code_1_and_a_sentence(output: str) -> None:
    command = [str(Path(sys.executable).with_name("kubectl-vlm")), "plan", "-f", str(EXAMPLES / "qwen3-vl-h100.yaml")]
    command += ["--nodes", str(EXAMPLES / "nodes-8xh100.yaml"), "-o", output]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (1, "error: the output cannot be written: No space left on device\n")


def test_a_setting_that_is_nested_without_end_is_exit_code_2(plan: Plan) -> None:
    nested: dict[str, object] = {}
    for _ in range(300):
        nested = {"a": nested}
    result = plan(service(engine={"settings": {"mm_process_config": nested}}))
    assert result.code == 2
    assert "is nested too deeply" in result.err


def test_a_mount_without_a_volume_is_refused_in_a_sentence(plan: Plan) -> None:
    template = {"spec": {"containers": [{"name": "main", "volumeMounts": [{"mountPath": "/data"}]}]}}
    result = plan(service(template=template))
    assert (result.code, result.out) == (2, "")
    assert result.err == ("error: spec.template.spec.containers: the mount at /data names no volume: give it a name\n")


def test_a_measured_set_of_ones_own_is_in_the_plan(plan: Plan, tmp_path: Path) -> None:
    family = yaml.safe_load((FAMILIES / "qwen3_vl.yaml").read_text())
    interval = next(s for s in family["profiles"][0]["settings"] if s["name"] == "prefill_decode_interval")
    interval["value"] = 33
    folder = tmp_path / "profiles"
    folder.mkdir()
    (folder / "ours.yaml").write_text(yaml.safe_dump(family))
    result = plan(service(workload=WORKLOAD), flags=(*JSON, "--profiles", str(folder)))
    assert result.code == 0
    (setting,) = [s for s in result.json["settings"] if s["name"] == "prefill_decode_interval"]
    assert (setting["value"], setting["source"]) == (33, "profile")


def test_a_wrong_set_of_ones_own_is_exit_code_2_with_file_and_field(plan: Plan, tmp_path: Path) -> None:
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles" / "ours.yaml").write_text("family: ours\n")
    result = plan(service(), flags=("--profiles", str(tmp_path / "profiles")))
    assert (result.code, result.out) == (2, "")
    assert "ours.yaml: architectures: is required" in result.err
