"""The objects of a service and of its pools, and the plan's hash."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from unit.manifests.samples import objects, plan, sealed, service
from unit.plan.builders import request_of

from vlm_api.plan import Finding, PlanMemory, PlanResources, ServiceRef, ServingPlan, Setting, Severity, Source
from vlm_operator import manifests as render

RELEASE = Path(__file__).resolve().parents[2] / "apiserver/data/release-0.1.0.yaml"


def names(made, of) -> list[str]:
    finished, template = sealed(made, of)
    return [
        f"{o['kind']}/{o['metadata']['name']}"
        for o in render.objects([render.Pool(finished, template, request_of(of))], None)
    ]


def test_a_plain_service_is_a_policy_a_service_a_plan_and_a_deployment_in_this_order():
    plan_hash = sealed(plan(), service())[0].hash
    assert names(plan(), service()) == [
        "NetworkPolicy/vlm-vlm",
        "Service/vlm",
        f"ConfigMap/vlm-plan-{plan_hash}",
        "Deployment/vlm",
    ]


def test_every_object_has_the_services_labels_and_its_owner_and_a_pools_objects_those_of_the_pool():
    of = service(scaling={"maxReplicas": 2}, metrics={"podMonitor": True})
    finished, template = sealed(plan(hardware=plan().hardware.model_copy(update={"claims": True})), of)
    owner = {"uid": "u", "controller": True}
    pool = {"vlmserve.dev/pool": "main", "vlmserve.dev/role": "Serve", "vlmserve.dev/plan": finished.hash}
    shared = set()
    for made in render.objects([render.Pool(finished, template, request_of(of))], owner):
        labels = made["metadata"]["labels"]
        assert labels["vlmserve.dev/service"] == "vlm"
        assert made["metadata"]["ownerReferences"] == [owner]
        assert made["metadata"]["namespace"] == "default"
        if not pool.keys() & labels.keys():
            shared.add(made["kind"])
        else:
            assert pool.items() <= labels.items()
    assert shared == {"NetworkPolicy", "Service", "PodMonitor"}


def test_a_workload_selects_its_pools_pods_and_the_service_those_that_serve_whatever_the_plan():
    made = objects(plan(), service())
    labels = made["Deployment"]["spec"]["template"]["metadata"]["labels"]
    engine = {"vlmserve.dev/service": "vlm", "vlmserve.dev/component": "engine"}
    serving = engine | {"vlmserve.dev/role": "Serve"}
    assert made["Service"]["spec"]["selector"] == serving
    assert made["Deployment"]["spec"]["selector"]["matchLabels"] == serving | {"vlmserve.dev/pool": "main"}
    assert made["Deployment"]["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert [p["port"] for p in made["Service"]["spec"]["ports"]] == [8000]


def test_a_second_pool_adds_objects_of_its_own_and_changes_none_of_main():
    of = service(scaling={"maxReplicas": 2}, metrics={"podMonitor": True})
    main, second = sealed(plan(), of), sealed(plan(pool="l40s"), of)
    request = request_of(of)
    pools = [render.Pool(*main, request), render.Pool(*second, replace(request, pool="l40s"))]
    alone, both = render.objects(pools[:1]), render.objects(pools)
    added = [o for o in both if o not in alone]
    assert [o for o in both if o not in added] == alone
    hashes = main[0].hash, second[0].hash
    assert hashes[0] != hashes[1]
    titles = [f"{o['kind']}/{o['metadata']['name']}" for o in added]
    assert titles == [
        f"ConfigMap/vlm-plan-{hashes[1]}",
        "Deployment/vlm-l40s",
        "HorizontalPodAutoscaler/vlm-l40s",
        "PodDisruptionBudget/vlm-l40s-vlm",
    ]
    assert added[2]["spec"]["scaleTargetRef"]["name"] == "vlm-l40s"
    selectors = [o["spec"]["selector"]["matchLabels"] for o in both if o["kind"] == "Deployment"]
    assert not selectors[0].items() <= added[1]["spec"]["template"]["metadata"]["labels"].items()
    assert selectors[1].items() <= added[1]["spec"]["template"]["metadata"]["labels"].items()


def test_names_labels_and_selectors_are_those_of_the_request_whatever_the_plan_says():
    of, finished, template = service(), *sealed(plan(), service())
    said = {"service": ServiceRef(name="victim", namespace="other"), "pool": "x"}
    both = [
        render.objects([render.Pool(made, template, request_of(of))])
        for made in (finished, finished.model_copy(update=said))
    ]
    ours, theirs = ([{k: v for k, v in o.items() if k != "data"} for o in objects] for objects in both)
    assert ours == theirs


def test_labels_that_a_stored_template_lacks_are_on_the_pods():
    finished, template = sealed(plan(), service())
    stored = template | {"metadata": {"labels": {"vlmserve.dev/service": "vlm"}}}
    (made,) = (
        o for o in render.objects([render.Pool(finished, stored, request_of(service()))]) if o["kind"] == "Deployment"
    )
    labels = made["spec"]["template"]["metadata"]["labels"]
    assert made["spec"]["selector"]["matchLabels"].items() <= labels.items()


def test_the_pod_mounts_the_plan_of_its_own_hash():
    finished, _ = sealed(plan(), service())
    template = objects(plan(), service())["Deployment"]["spec"]["template"]
    (volume,) = [v for v in template["spec"]["volumes"] if v["name"] == "plan"]
    assert volume["configMap"]["name"] == f"vlm-plan-{finished.hash}"
    assert template["metadata"]["labels"]["vlmserve.dev/plan"] == finished.hash


def test_the_stored_template_gives_the_same_objects():
    finished, template = sealed(plan(), service())
    stored = json.loads(objects(plan(), service())["ConfigMap"]["data"]["pod-template.json"])
    request = request_of(service())
    pools = render.Pool(finished, stored, request), render.Pool(finished, template, request)
    assert render.objects(pools[:1]) == render.objects(pools[1:])
    assert render.plan_hash(finished, stored) == finished.hash


def test_a_plan_that_release_0_1_0_stored_still_gives_its_workload():
    """Another selector, label or field here would replace every pod of every service with the next upgrade."""
    written = {o["kind"]: o for o in yaml.safe_load_all(RELEASE.read_text())}
    data = written["ConfigMap"]["data"]
    stored = ServingPlan.model_validate_json(data["plan.json"], extra="ignore")
    request = request_of(service(stored.service.name))
    made = render.objects([render.Pool(stored, json.loads(data["pod-template.json"]), request)])
    (workload,) = [o for o in made if o["kind"] == "Deployment"]
    assert workload == written["Deployment"]


def test_the_stored_template_is_not_changed():
    """It is kept for the next reconcile, and its text is compared with the cluster's."""
    finished, template = sealed(plan(), service())
    before = json.dumps(template)
    render.objects([render.Pool(finished, template, request_of(service()))], None)
    assert json.dumps(template) == before


def test_with_autoscaling_replicas_are_never_sent():
    scaled = service(scaling={"minReplicas": 2, "maxReplicas": 4, "targetInFlight": 200})
    made = objects(plan(), scaled)
    assert "replicas" not in made["Deployment"]["spec"]
    autoscaler = made["HorizontalPodAutoscaler"]["spec"]
    assert (autoscaler["minReplicas"], autoscaler["maxReplicas"]) == (2, 4)
    assert autoscaler["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "Deployment", "name": "vlm"}
    assert autoscaler["metrics"][0]["pods"]["target"]["averageValue"] == "200"


@pytest.mark.parametrize(("concurrency", "target"), [(400, "320"), (1, "1"), (None, "32")])
def test_the_autoscalers_target_follows_the_declared_concurrency(concurrency, target):
    workload = {} if concurrency is None else {"concurrency": concurrency}
    made = objects(plan(), service(scaling={"maxReplicas": 2}, workload=workload))
    assert made["HorizontalPodAutoscaler"]["spec"]["metrics"][0]["pods"]["target"]["averageValue"] == target


@pytest.mark.parametrize(
    ("spec", "replicas"),
    [({}, 1), ({"replicas": 3}, 3), ({"replicas": 0}, 0), ({"suspend": True, "replicas": 3}, 0)],
)
def test_replicas_are_those_of_the_spec(spec, replicas):
    assert objects(plan(), service(**spec))["Deployment"]["spec"]["replicas"] == replicas


def test_by_default_the_old_pod_ends_before_the_new_one_starts():
    strategy = objects(plan(), service())["Deployment"]["spec"]["strategy"]
    assert strategy == {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}


@pytest.mark.parametrize(
    ("strategy", "spec", "applied"),
    [
        # (surge, unavailable)
        ((0, 1), {}, (0, 1)),
        ((0, "25%"), {"replicas": 2}, (0, 1)),
        ((0, "25%"), {"replicas": 4}, (0, "25%")),
        (("0%", "99%"), {}, ("0%", 1)),
        ((0, "100%"), {}, (0, "100%")),
        ((0, "25%"), {"scaling": {"minReplicas": 3, "maxReplicas": 9}}, (0, 1)),
        ((0, "25%"), {"scaling": {"minReplicas": 4, "maxReplicas": 9}}, (0, "25%")),
        (("25%", "25%"), {"replicas": 2}, ("25%", "25%")),
        (("150%", "25%"), {"replicas": 2}, ("100%", "25%")),
        ((3, 0), {"replicas": 2}, (3, 0)),
    ],
)
def test_a_leader_worker_set_gets_a_rollout_that_its_controller_accepts(strategy, spec, applied):
    of = service(rolloutStrategy={"maxSurge": strategy[0], "maxUnavailable": strategy[1]}, **spec)
    made = objects(plan(resources=PlanResources(devices_per_pod=8, pods=2)), of)
    rolling = made["LeaderWorkerSet"]["spec"]["rolloutStrategy"]["rollingUpdateConfiguration"]
    assert (rolling["maxSurge"], rolling["maxUnavailable"]) == applied
    rolling = objects(plan(), of)["Deployment"]["spec"]["strategy"]["rollingUpdate"]
    assert (rolling["maxSurge"], rolling["maxUnavailable"]) == strategy


def test_several_nodes_are_a_leader_worker_set_that_restarts_whole():
    made = objects(plan(resources=PlanResources(devices_per_pod=8, pods=2)), service(replicas=2))
    assert "Deployment" not in made
    group = made["LeaderWorkerSet"]
    assert group["spec"]["replicas"] == 2
    assert group["spec"]["leaderWorkerTemplate"]["size"] == 2
    assert group["spec"]["leaderWorkerTemplate"]["restartPolicy"] == "RecreateGroupOnPodRestart"
    # Its controller makes a headless Service of the set's own name.
    assert group["metadata"]["name"] != made["Service"]["metadata"]["name"]
    assert made["Service"]["spec"]["selector"]["leaderworkerset.sigs.k8s.io/worker-index"] == "0"


def test_a_pod_monitor_is_created_only_if_the_spec_asks():
    assert "PodMonitor" not in objects(plan(), service())
    made = objects(plan(), service(metrics={"podMonitor": True}))["PodMonitor"]
    assert [e["port"] for e in made["spec"]["podMetricsEndpoints"]] == ["http", "runtime"]


@pytest.mark.parametrize("args", [["--ssl-certfile", "/tls/tls.crt"], ["--ssl-certfile=/tls/tls.crt"]])
def test_pods_with_an_engine_certificate_have_the_scheme_as_annotation(args):
    engine = plan().engine.model_copy(update={"args": args})
    made = objects(plan(engine=engine), service())["Deployment"]["spec"]["template"]["metadata"]
    assert made["annotations"] == {"vlmserve.dev/scheme": "https"}
    assert "annotations" not in objects(plan(), service())["Deployment"]["spec"]["template"]["metadata"]


@pytest.mark.parametrize(
    ("annotation", "index", "scheme"),
    [
        (None, None, "http"),
        ("https", None, "https"),
        # Of a group only the head has the certificate.
        ("https", "0", "https"),
        ("https", "1", "http"),
        ("https", "10", "http"),
        (None, "0", "http"),
    ],
)
def test_prometheus_scrapes_the_engine_by_its_annotation_and_the_runtime_by_http(annotation, index, scheme):
    made = objects(plan(), service(metrics={"podMonitor": True}))["PodMonitor"]
    http, runtime = made["spec"]["podMetricsEndpoints"]
    assert (http["port"], http["tlsConfig"]) == ("http", {"insecureSkipVerify": True})
    [rule] = [rule for rule in http["relabelings"] if rule["targetLabel"] == "__scheme__"]
    discovered = {
        "__meta_kubernetes_pod_annotation_vlmserve_dev_scheme": annotation,
        "__meta_kubernetes_pod_label_leaderworkerset_sigs_k8s_io_worker_index": index,
    }
    # As Prometheus does: values that are not there are empty, and what does not match whole changes nothing.
    text = ";".join(discovered[label] or "" for label in rule["sourceLabels"])
    match = re.fullmatch(rule["regex"], text)
    assert (match.expand(rule["replacement"].replace("$", "\\")) if match else "http") == scheme
    assert "tlsConfig" not in runtime
    assert all(rule["targetLabel"] != "__scheme__" for rule in runtime["relabelings"])


def test_devices_through_claims_have_a_claim_template():
    hardware = plan().hardware.model_copy(update={"claims": True, "resource_name": None})
    made = objects(plan(hardware=hardware, resources=PlanResources(devices_per_pod=2, pods=1)), service())
    request = made["ResourceClaimTemplate"]["spec"]["spec"]["devices"]["requests"][0]["exactly"]
    assert request["count"] == 2
    assert "semver('9.0.0')" in request["selectors"][0]["cel"]["expression"]
    claim = made["Deployment"]["spec"]["template"]["spec"]["resourceClaims"][0]
    assert claim["resourceClaimTemplateName"] == made["ResourceClaimTemplate"]["metadata"]["name"]


def hash_of(made=None, **spec) -> str:
    return sealed(made or plan(), service(**spec))[0].hash


def test_the_hash_is_ten_hex_digits_and_stable():
    assert hash_of() == hash_of()
    assert len(hash_of()) == 10
    int(hash_of(), 16)


@pytest.mark.parametrize(
    "changes",
    [
        {"findings": [Finding(severity=Severity.WARNING, reason="X", about="Engine", message="y")]},
        {"memory": PlanMemory(weights_mib=5, shared_memory_mib=8192, host_memory_mib=65536)},
        {"spec_digest": "other"},
        {"settings": [Setting(name="a", applied=False, source=Source.ENGINE, rule="r", reason="why")]},
    ],
    ids=["a finding", "the memory sum", "the spec's digest", "a setting left alone"],
)
def test_what_only_explains_a_plan_replaces_no_pod(changes):
    assert hash_of(plan(**changes)) == hash_of()


@pytest.mark.parametrize("spec", [{"replicas": 5}, {"suspend": True}, {"scaling": {"maxReplicas": 3}}])
def test_the_number_of_pods_replaces_no_pod(spec):
    assert hash_of(**spec) == hash_of()


@pytest.mark.parametrize(
    "changes",
    [
        {"engine": plan().engine.model_copy(update={"args": ["--host", "::"]})},
        {"runtime": plan().runtime.model_copy(update={"startup_budget_seconds": 901})},
        {"settings": [Setting(name="a", value=1, applied=True, source=Source.USER, rule="r", reason="why")]},
        {"hardware": plan().hardware.model_copy(update={"match_labels": {"x": "y"}})},
    ],
    ids=["an argument", "the start's budget", "an applied setting", "the hardware's labels"],
)
def test_what_pods_run_with_replaces_them(changes):
    assert hash_of(plan(**changes)) != hash_of()


def test_the_plan_that_pods_read_fits_into_a_config_map():
    many = [
        Setting(name=f"s{i}", value="v" * 40, applied=True, source=Source.USER, rule="r" * 40, reason="w" * 300)
        for i in range(256)
    ]
    made = objects(plan(settings=many), service())["ConfigMap"]
    assert len(json.dumps(made)) < 1_000_000
    assert made["immutable"] is True
