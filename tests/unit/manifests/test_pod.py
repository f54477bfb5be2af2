"""The engine's pod."""

import subprocess
from pathlib import Path

import pytest
from unit.manifests.samples import main, plan, pod, service
from unit.plan.builders import request_of

from vlm_api.plan import PassedOver, PlanHardware, PlanResources
from vlm_operator import manifests as render
from vlm_operator.errors import InvalidInput


def mounts(container: dict) -> dict[str, str]:
    return {m["mountPath"]: m["name"] for m in container["volumeMounts"]}


def volumes(spec: dict) -> dict[str, dict]:
    return {v["name"]: {k: x for k, x in v.items() if k != "name"} for v in spec["volumes"]}


def env(container: dict) -> dict[str, dict]:
    names = [e["name"] for e in container["env"]]
    assert len(names) == len(set(names)), "a variable is there twice, which server-side apply refuses"
    return {e["name"]: {k: x for k, x in e.items() if k != "name"} for e in container["env"]}


def test_the_runtime_is_process_one_and_the_engine_is_never_the_command():
    container = main(plan(), service())
    assert container["command"] == ["python3", "/opt/vlmserve/start.py"]
    assert "args" not in container


@pytest.mark.parametrize(
    ("caught", "waits"),
    [
        ("0000000000000000", True),
        ("0000000000000002", True),  # Python before the first line: SIGINT
        ("0000000000004002", False),
        ("0000000180014002", False),
        ("0000000180018002", True),  # SIGCHLD without SIGTERM
    ],
)
def test_a_deleted_pod_gets_sigterm_once_it_has_a_handler(tmp_path: Path, caught: str, waits: bool):
    status = tmp_path / "status"
    status.write_text(f"SigIgn:\t0000000000004000\nSigCgt:\t{caught}\nCapInh:\t0000000000004000\n")
    shell, flag, script = main(plan(), service())["lifecycle"]["preStop"]["exec"]["command"]
    script = (
        script.replace("/proc/1/status", str(status)).replace("sleep 0.1", "echo waiting").replace("-ge 100", "-ge 3")
    )
    done = subprocess.run([shell, flag, script], capture_output=True, text=True, timeout=10, check=True)
    assert done.stdout == "waiting\n" * (3 if waits else 0)
    assert done.stderr == ""


def test_an_init_container_of_the_operators_image_installs_the_runtime():
    spec = pod(plan(), service())
    (install,) = spec["initContainers"]
    assert install["image"] == "registry.example/vlm-operator:1"
    assert mounts(install) == {"/opt/vlmserve": "runtime"}
    assert mounts(spec["containers"][0])["/opt/vlmserve"] == "runtime"


def test_shared_memory_is_in_memory_and_has_a_limit():
    spec = pod(plan(), service())
    assert volumes(spec)["shared-memory"] == {"emptyDir": {"medium": "Memory", "sizeLimit": "8192Mi"}}
    assert mounts(spec["containers"][0])["/dev/shm"] == "shared-memory"


def test_the_users_size_of_shared_memory_is_taken_as_written():
    spec = pod(plan(), service(sharedMemorySize="16G"))
    assert volumes(spec)["shared-memory"]["emptyDir"]["sizeLimit"] == "16G"


def test_a_volume_that_the_user_mounts_on_shared_memory_is_the_only_one_there():
    template = {
        "spec": {
            "volumes": [{"name": "mine", "emptyDir": {"medium": "Memory"}}],
            "containers": [{"name": "main", "volumeMounts": [{"name": "mine", "mountPath": "/dev/shm"}]}],
        }
    }
    spec = pod(plan(), service(template=template))
    assert mounts(spec["containers"][0])["/dev/shm"] == "mine"
    assert "shared-memory" not in volumes(spec)
    assert "mine" in volumes(spec)


def test_with_a_read_only_root_every_cache_has_a_volume():
    container = main(plan(), service())
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    writable = {m["mountPath"] for m in container["volumeMounts"] if not m.get("readOnly")}
    variables = env(container)
    for name in ("HOME", "HF_HOME", "XDG_CACHE_HOME", "SGLANG_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"):
        assert any(variables[name]["value"].startswith(path) for path in writable), name
    assert "/tmp" in writable


def test_the_pod_passes_the_restricted_pod_security_standard():
    spec = pod(plan(), service())
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] != 0
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in (*spec["initContainers"], *spec["containers"]):
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert spec["automountServiceAccountToken"] is False
    assert spec["enableServiceLinks"] is False


def test_a_public_model_needs_no_secret():
    assert "HF_TOKEN" not in env(main(plan(), service()))
    assert "VLMSERVE_API_KEY" not in env(main(plan(), service()))


def test_secrets_come_by_reference_only():
    asked = service(
        model={"uri": "hf://a/b", "tokenSecretRef": {"name": "hf", "key": "token"}},
        security={"apiKeySecretRef": {"name": "keys", "key": "api-key"}},
    )
    variables = env(main(plan(), asked))
    assert variables["HF_TOKEN"] == {"valueFrom": {"secretKeyRef": {"name": "hf", "key": "token"}}}
    assert variables["VLMSERVE_API_KEY"] == {"valueFrom": {"secretKeyRef": {"name": "keys", "key": "api-key"}}}


def test_the_users_variables_have_precedence_and_come_last():
    variables = [
        {"name": "A", "value": "mine"},
        {"name": "HF_HOME", "value": "/hf"},
        {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    ]
    engine = plan().engine.model_copy(update={"env": {"A": "mine", "B": "2", "HF_HOME": "/hf"}})
    container = main(plan(engine=engine), service(engine={"env": variables}))
    assert env(container)["A"] == {"value": "mine"}
    assert env(container)["HF_HOME"] == {"value": "/hf"}
    assert [e["name"] for e in container["env"]][-3:] == ["A", "HF_HOME", "POD"]


@pytest.mark.parametrize(
    ("uri", "source"),
    [
        ("pvc://models/qwen3-vl", {"persistentVolumeClaim": {"claimName": "models", "readOnly": True}}),
        ("oci://ghcr.io/a/b:1", {"image": {"reference": "ghcr.io/a/b:1", "pullPolicy": "IfNotPresent"}}),
    ],
)
def test_a_model_in_a_volume_is_mounted_read_only(uri, source):
    spec = pod(plan(), service(model={"uri": uri}))
    assert volumes(spec)["model"] == source
    (mount,) = [m for m in spec["containers"][0]["volumeMounts"] if m["mountPath"] == "/models"]
    assert mount["readOnly"] is True


def test_a_hub_model_has_no_model_volume_and_its_claim_keeps_the_download():
    spec = pod(plan(), service(model={"uri": "hf://a/b", "cacheClaim": "weights"}))
    assert "model" not in volumes(spec)
    assert volumes(spec)["cache"] == {"persistentVolumeClaim": {"claimName": "weights"}}


def test_probes_ask_the_runtime_and_leave_the_start_its_whole_budget():
    container = main(plan(), service())
    startup = container["startupProbe"]
    # Later than the runtime ends the start itself, else its reason would be lost.
    assert startup["periodSeconds"] * startup["failureThreshold"] >= 900 + 30
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["port"] == "runtime"
        assert container[probe]["timeoutSeconds"] > 1


def test_the_grace_period_covers_the_longest_request():
    assert pod(plan(), service())["terminationGracePeriodSeconds"] >= 300


def test_a_runtime_that_hangs_does_not_hold_gpus_for_the_whole_grace_period():
    (container,) = pod(plan(), service())["containers"]
    assert container["startupProbe"]["terminationGracePeriodSeconds"] == 30
    assert container["livenessProbe"]["terminationGracePeriodSeconds"] == 30
    assert "terminationGracePeriodSeconds" not in container["readinessProbe"]  # which the API server refuses


def test_devices_are_limits_and_requests():
    resources = main(plan(resources=PlanResources(devices_per_pod=4, pods=1)), service())["resources"]
    assert resources["limits"] == {"nvidia.com/gpu": "4"}
    assert resources["requests"] == {"nvidia.com/gpu": "4", "memory": "65536Mi"}


def test_a_service_on_the_cpu_mentions_no_gpu():
    cpu = plan(hardware=PlanHardware(device="cpu"), resources=PlanResources(devices_per_pod=0, pods=1))
    template = render.pod_template(cpu, request_of(service(hardware={"device": "cpu"})))
    assert "nvidia.com/gpu" not in str(template)
    assert env(template["spec"]["containers"][0])["VLMSERVE_DEVICE"] == {"value": "cpu"}


def test_pods_are_held_to_the_labels_of_their_hardware():
    (term,) = required_terms(pod(plan(), service()))
    assert term["matchExpressions"] == [
        {"key": "nvidia.com/gpu.product", "operator": "In", "values": ["NVIDIA-H100-80GB-HBM3"]}
    ]


def test_each_alternative_of_the_users_affinity_is_held_to_the_hardware_too():
    terms = [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]} for zone in ("zone-a", "zone-b")
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    spec = pod(plan(), service(template={"spec": {"affinity": {"nodeAffinity": required}}}))
    found = required_terms(spec)
    assert [t["matchExpressions"][0]["values"] for t in found] == [["zone-a"], ["zone-b"]]
    assert all(t["matchExpressions"][1]["key"] == "nvidia.com/gpu.product" for t in found)


def test_node_names_are_used_only_if_no_label_tells_the_hardware_apart():
    unlabelled = plan().hardware.model_copy(update={"match_labels": {}})
    assert "affinity" not in pod(plan(hardware=unlabelled), service())
    mixed = unlabelled.model_copy(update={"passed_over": [PassedOver(node="node-1", reason="other GPUs")]})
    (term,) = required_terms(pod(plan(hardware=mixed), service()))
    assert term["matchExpressions"] == [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-0"]}]


def test_devices_through_claims_are_not_extended_resources():
    claims = plan().hardware.model_copy(update={"claims": True, "resource_name": None})
    spec = pod(plan(hardware=claims), service())
    assert spec["resourceClaims"][0]["resourceClaimTemplateName"].startswith("vlm-devices-")
    assert spec["containers"][0]["resources"]["claims"] == [{"name": "devices"}]
    assert "limits" not in spec["containers"][0]["resources"]


def test_the_users_runtime_class_is_used():
    assert pod(plan(), service(hardware={"runtimeClassName": "nvidia"}))["runtimeClassName"] == "nvidia"


def test_engine_arguments_in_the_template_are_in_the_plan_and_not_given_to_the_runtime():
    template = {"spec": {"containers": [{"name": "main", "args": ["--log-requests"]}]}}
    assert "args" not in main(plan(), service(template=template))


def test_a_command_of_the_users_own_keeps_its_arguments():
    template = {"spec": {"containers": [{"name": "main", "command": ["sleep"], "args": ["1"]}]}}
    container = main(plan(), service(template=template))
    assert (container["command"], container["args"]) == (["sleep"], ["1"])


@pytest.mark.parametrize("label", [f"vlmserve.dev/{name}" for name in ("service", "pool", "role", "plan")])
def test_labels_of_the_operator_cannot_be_set(label):
    template = {"metadata": {"labels": {label: "other"}}}
    with pytest.raises(InvalidInput) as refused:
        render.pod_template(plan(), request_of(service(template=template)))
    assert refused.value.path == f"spec.template.metadata.labels.{label}"


def test_the_engines_container_cannot_be_deleted():
    with pytest.raises(InvalidInput) as refused:
        pod(plan(), service(template={"spec": {"containers": [{"name": "main", "$patch": "delete"}]}}))
    assert "main" in str(refused.value)


def required_terms(spec: dict) -> list[dict]:
    node_affinity = spec["affinity"]["nodeAffinity"]
    return node_affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]


@pytest.mark.parametrize(
    ("template", "path", "says"),
    [
        ({"metadata": {"labels": None}}, "spec.template.metadata.labels", "removes labels of the operator"),
        ({"metadata": {"labels": {"$patch": "replace"}}}, "spec.template.metadata.labels", "removes labels of"),
        (
            {"spec": {"initContainers": [{"name": "install-runtime", "$patch": "delete"}]}},
            "spec.template.spec.initContainers",
            "installs the runtime",
        ),
        (
            {"spec": {"initContainers": [{"name": "main", "image": "x"}]}},
            "spec.template.spec.initContainers",
            "is also the name of a container",
        ),
        (
            {"spec": {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": 4}}}]}},
            "spec.template.spec.containers[name=main].resources.limits",
            "the plan requests 1 nvidia.com/gpu: .* set spec.parallelism",
        ),
        (
            {"spec": {"containers": [{"name": "main", "resources": None}]}},
            "spec.template.spec.containers[name=main].resources.limits",
            "the plan requests",
        ),
    ],
)
def test_what_the_api_server_would_refuse_or_could_never_start_is_refused(template, path, says):
    with pytest.raises(InvalidInput, match=says) as refused:
        pod(plan(), service(template=template))
    assert refused.value.path == path


def test_the_planned_number_of_gpus_may_be_repeated():
    template = {"spec": {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": 1}}}]}}
    assert main(plan(), service(template=template))["resources"]["limits"] == {"nvidia.com/gpu": 1}
