"""``kubectl vlm plan``: exit codes and output."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from unit.cli.builders import H100, WORKLOAD, Result, node, service

from vlm_operator.cli.main import main

Plan = Callable[..., Result]
JSON = ("-o", "json")
EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
FAMILIES = Path(__file__).resolve().parents[3] / "operator" / "vlm_operator" / "sglang" / "profiles"


def test_a_plan_is_exit_code_0_and_json_on_standard_output(plan: Plan) -> None:
    result = plan(service(workload=WORKLOAD), flags=JSON)
    assert (result.code, result.err) == (0, "")
    assert result.json["kind"] == "ServingPlan"
    assert result.json["hash"]
    assert result.json["service"] == {"name": "vlm", "namespace": "default"}
    assert result.json["hardware"]["nodes"] == ["hopper"]
    assert [m["kind"] for m in result.json["manifests"]] == ["NetworkPolicy", "Service", "ConfigMap", "Deployment"]


def test_an_impossible_plan_is_exit_code_1_with_the_reason(plan: Plan) -> None:
    result = plan(service(parallelism={"tensor": 16}), flags=JSON)
    assert result.code == 1
    errors = [f for f in result.json["findings"] if f["severity"] == "Error"]
    assert errors
    assert "16" in errors[0]["message"]
    assert result.json["manifests"] == []


@pytest.mark.parametrize("output", ["table", "json", "yaml", "manifests"])
def test_invalid_input_is_exit_code_2_without_output(plan: Plan, output: str) -> None:
    wrong = service(sharedMemorySize="20GB", engine={"args": ["--no-such-flag"]})
    result = plan(wrong, flags=("-o", output))
    assert (result.code, result.out) == (2, "")
    assert result.err == (
        'error: spec.sharedMemorySize: is "20GB", but must be a size above zero, such as 16Gi, 500Mi or 2G\n'
    )


def test_a_setting_that_the_catalogue_does_not_have_is_exit_code_2(plan: Plan) -> None:
    result = plan(service(engine={"settings": {"prefil_decode_interval": 10}}), flags=JSON)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("error: spec.engine.settings.prefil_decode_interval: ")
    assert "prefill_decode_interval" in result.err
    assert result.err.count("\n") == 1


def test_errors_of_several_services_have_their_names(plan: Plan) -> None:
    wrong = {"engine": {"settings": {"no_such_setting": 1}}}
    result = plan(service("a", **wrong), service("b"), service("c", **wrong))
    assert result.code == 2
    assert [line.split(": ")[1] for line in result.err.splitlines()] == ["a", "c"]


def test_several_services_are_a_list_and_the_worst_exit_code(plan: Plan) -> None:
    result = plan(service("a"), service("b", parallelism={"tensor": 16}), flags=JSON)
    assert result.code == 1
    assert result.json["kind"] == "List"
    assert [p["service"]["name"] for p in result.json["items"]] == ["a", "b"]


def test_yaml_and_json_are_the_same(plan: Plan) -> None:
    one = service(workload=WORKLOAD)
    assert yaml.safe_load(plan(one, flags=("-o", "yaml")).out) == plan(one, flags=JSON).json


def test_manifests_are_those_of_the_plan(plan: Plan) -> None:
    one = service(workload=WORKLOAD)
    printed = list(yaml.safe_load_all(plan(one, flags=("-o", "manifests")).out))
    assert printed == plan(one, flags=JSON).json["manifests"]


def test_devices_of_running_pods_are_not_free(plan: Plan) -> None:
    busy = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "other", "namespace": "default"},
        "spec": {
            "nodeName": "a",
            "containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "8"}}}],
        },
    }
    # Both kinds of hardware suit: the one with more free devices wins.
    l40s = H100 | {"nvidia.com/gpu.product": "NVIDIA-L40S", "nvidia.com/gpu.compute.major": "8"}
    l40 = l40s | {"nvidia.com/gpu.product": "NVIDIA-L40"}
    nodes = [node("a", l40), node("b", l40s)]
    assert plan(service(), nodes=nodes, flags=JSON).json["hardware"]["nodes"] == ["a"]
    assert plan(service(), nodes=[*nodes, busy], flags=JSON).json["hardware"]["nodes"] == ["b"]


def test_claims_in_the_nodes_file_are_checked(plan: Plan) -> None:
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
def test_a_wrong_command_line_is_exit_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert "error: " in output.err


def test_an_unreachable_cluster_is_exit_code_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    file = tmp_path / "service.yaml"
    file.write_text(json.dumps(service()))
    assert main(["plan", "-f", str(file), "--kubeconfig", str(tmp_path / "nowhere")]) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("error: ")
    assert output.err.count("\n") == 1


def test_input_is_validated_before_the_cluster_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "service.yaml"
    file.write_text(json.dumps(service(replicas=-1)))
    assert main(["plan", "-f", str(file), "--kubeconfig", str(tmp_path / "nowhere")]) == 2
    assert capsys.readouterr().err == "error: spec.replicas: is -1, but must be at least 0\n"


def test_the_command_survives_a_closed_pipe() -> None:
    command = [str(Path(sys.executable).with_name("kubectl-vlm")), "plan", "-f", str(EXAMPLES / "qwen3-vl-h100.yaml")]
    command += ["--nodes", str(EXAMPLES / "nodes-8xh100.yaml"), "-o", "manifests"]
    done = subprocess.run(["sh", "-c", '"$@" | head -n 1', "sh", *command], capture_output=True, text=True, timeout=60)
    assert done.stdout == "---\n"
    assert done.stderr == ""


def test_a_full_disk_is_exit_code_1() -> None:
    command = [str(Path(sys.executable).with_name("kubectl-vlm")), "plan", "-f", str(EXAMPLES / "qwen3-vl-h100.yaml")]
    command += ["--nodes", str(EXAMPLES / "nodes-8xh100.yaml"), "-o", "json"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (1, "error: cannot write the output: No space left on device\n")


def test_a_deeply_nested_setting_is_exit_code_2(plan: Plan) -> None:
    nested: dict[str, object] = {}
    for _ in range(300):
        nested = {"a": nested}
    result = plan(service(engine={"settings": {"mm_process_config": nested}}))
    assert result.code == 2
    assert "is nested too deeply" in result.err


def test_a_mount_without_a_volume_is_refused(plan: Plan) -> None:
    template = {"spec": {"containers": [{"name": "main", "volumeMounts": [{"mountPath": "/data"}]}]}}
    result = plan(service(template=template))
    assert (result.code, result.out) == (2, "")
    assert result.err == (
        "error: spec.template.spec.containers: the mount at /data has no name: set the name of its volume\n"
    )


def test_a_profile_of_the_user_is_applied(plan: Plan, tmp_path: Path) -> None:
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


def test_an_invalid_profile_is_exit_code_2_with_file_and_field(plan: Plan, tmp_path: Path) -> None:
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles" / "ours.yaml").write_text("family: ours\n")
    result = plan(service(), flags=("--profiles", str(tmp_path / "profiles")))
    assert (result.code, result.out) == (2, "")
    assert "ours.yaml: architectures: is required" in result.err


def test_an_unknown_model_is_planned_from_its_own_files(plan: Plan, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    text = {"num_hidden_layers": 36, "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 262144}
    config = {"architectures": ["Qwen3VLForConditionalGeneration"], "text_config": {**text, "dtype": "bfloat16"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors.index.json").write_text('{"metadata": {"total_size": 17534247392}}')
    own = service(model={"uri": "pvc://models/our-own-qwen"}, workload=WORKLOAD)
    result = plan(own, flags=(*JSON, "--model-files", str(folder)))
    assert result.code == 0
    assert result.json["memory"]["weightsMiB"] == 16722
    assert plan(own, flags=JSON).json["memory"]["weightsMiB"] is None


def test_model_files_that_cannot_be_read_are_one_line(plan: Plan, tmp_path: Path) -> None:
    flags = (*JSON, "--model-files", str(tmp_path / "model"))
    for content, says in ((None, "has no config.json"), ("[]", "is not a JSON object"), ("{", "is not JSON")):
        if content is not None:
            (tmp_path / "model").mkdir(exist_ok=True)
            (tmp_path / "model" / "config.json").write_text(content)
        result = plan(service(), flags=flags)
        assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
        assert result.err.startswith("error: --model-files: ")
        assert says in result.err
    two = plan(service("a"), service("b", model={"uri": "pvc://models/other"}), flags=flags)
    assert two.code == 2
