"""The operator's permissions, and the roles for users of the API."""

from chart.rendering import Manifest, only, render_chart, rules

WRITING = {"create", "update", "patch", "delete", "deletecollection"}
MAKES = "get list watch create patch delete"

# (group, resource) -> verbs: exactly the requests that the operator's code sends to the API server.
NEEDED = {
    ("vlmserve.dev", "vlmservices"): "get list watch",
    ("vlmserve.dev", "vlmservices/status"): "patch",
    ("", "configmaps"): MAKES,
    ("", "services"): MAKES,
    ("apps", "deployments"): MAKES,
    ("batch", "jobs"): "list watch create delete",
    ("autoscaling", "horizontalpodautoscalers"): MAKES,
    ("policy", "poddisruptionbudgets"): MAKES,
    ("networking.k8s.io", "networkpolicies"): MAKES,
    ("leaderworkerset.x-k8s.io", "leaderworkersets"): MAKES,
    ("monitoring.coreos.com", "podmonitors"): MAKES,
    ("resource.k8s.io", "resourceclaimtemplates"): MAKES,
    ("", "nodes"): "list watch",
    ("resource.k8s.io", "resourceslices"): "list watch",
    ("", "pods"): "list watch",
    ("apps", "replicasets"): "list watch",
    ("", "persistentvolumeclaims"): "get",
    ("apps", "controllerrevisions"): MAKES,
    ("events.k8s.io", "events"): "create patch",
    ("coordination.k8s.io", "leases"): "get create update",
}


def rights(manifests: list[Manifest], *kinds: str) -> set[tuple[str, str, str]]:
    """(group, resource, verb) of each of the operator's permissions."""
    return {
        (group, resource, verb)
        for _, rule in rules(manifests, *kinds)
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_the_operator_cannot_read_a_secret() -> None:
    assert not {right for right in rights(render_chart()) if right[1] == "secrets"}


def test_no_rule_has_a_wildcard_or_an_escalating_verb() -> None:
    for right in rights(render_chart()):
        assert "*" not in right
        assert right[2] not in {"escalate", "bind", "impersonate"}


def test_the_operator_has_exactly_the_permissions_that_its_code_uses() -> None:
    wanted = {(group, resource, verb) for (group, resource), verbs in NEEDED.items() for verb in verbs.split()}
    assert rights(render_chart()) == wanted


def test_lease_permissions_are_limited_to_the_operator_s_namespace() -> None:
    for role, rule in rules(render_chart(namespace="mine")):
        if "leases" in rule["resources"]:
            assert (role["kind"], role["metadata"]["namespace"]) == ("Role", "mine")
            assert set(rule["verbs"]) == {"create"} or rule["resourceNames"] == ["vlm-operator"]


def lease(manifests: list[Manifest]) -> str:
    """The configured Lease, which must be the one that the Role allows."""
    variables = only(manifests, "Deployment")["spec"]["template"]["spec"]["containers"][0]["env"]
    (lease,) = [variable["value"] for variable in variables if variable["name"] == "VLM_OPERATOR_LEASE_NAME"]
    named = [rule["resourceNames"] for _, rule in rules(manifests, "Role") if "update" in rule["verbs"]]
    assert named == [[lease]]
    return str(lease)


def test_cluster_wide_releases_share_a_lease_and_namespaced_releases_do_not() -> None:
    one, other = {"watchNamespaces": ["team-a"]}, {"watchNamespaces": ["team-b"]}
    assert lease(render_chart(one, name="a")) != lease(render_chart(other, name="b"))
    assert lease(render_chart(name="a")) == lease(render_chart(name="b")) == "vlm-operator"


def test_the_default_release_keeps_its_lease_for_any_namespaces() -> None:
    assert lease(render_chart()) == lease(render_chart({"watchNamespaces": ["team-a"]})) == "vlm-operator"


def cluster_wide(manifests: list[Manifest]) -> set[tuple[str, str]]:
    """Kind and name of cluster-scoped objects, without the CRD, which releases share."""
    return {
        (manifest["kind"], manifest["metadata"]["name"])
        for manifest in manifests
        if "namespace" not in manifest["metadata"] and manifest["kind"] != "CustomResourceDefinition"
    }


def test_releases_with_one_name_in_different_namespaces_share_no_object() -> None:
    # Different names and namespaces must not combine to the same object name.
    one = cluster_wide(render_chart({"watchNamespaces": ["team-x"], "fullnameOverride": "a-b"}, namespace="c"))
    other = cluster_wide(render_chart({"watchNamespaces": ["team-y"], "fullnameOverride": "a"}, namespace="b-c"))
    third = cluster_wide(render_chart({"watchNamespaces": ["team-z"], "fullnameOverride": "a"}, namespace="d"))
    assert len(one) == len(other) == len(third) == 4
    assert len(one | other | third) == 12


def test_a_cluster_wide_release_uses_the_plain_names() -> None:
    names = {name for _, name in cluster_wide(render_chart())}
    assert names == {"vlm-operator", "vlm-operator-view", "vlm-operator-edit"}


def test_with_watch_namespaces_the_cluster_role_reads_hardware_only() -> None:
    manifests = render_chart({"watchNamespaces": ["team-a", "team-b"]})
    assert {resource for _, resource, _ in rights(manifests, "ClusterRole")} == {"nodes", "resourceslices"}


def test_with_watch_namespaces_each_namespace_has_the_permissions_of_a_cluster_wide_install() -> None:
    everywhere = {right for right in rights(render_chart()) if right[1] not in {"nodes", "resourceslices", "leases"}}
    manifests = render_chart({"watchNamespaces": ["team-a", "team-b"]})
    for namespace in ("team-a", "team-b"):
        there = [m for m in manifests if m["metadata"].get("namespace") == namespace]
        assert rights([*there, only(manifests, "ServiceAccount")]) == everywhere


def test_watch_namespaces_reach_the_operator() -> None:
    pod = only(render_chart({"watchNamespaces": ["team-a", "team-b"]}), "Deployment")["spec"]["template"]["spec"]
    variables = {variable["name"]: variable.get("value") for variable in pod["containers"][0]["env"]}
    assert variables["VLM_OPERATOR_NAMESPACES"] == "team-a,team-b"


def test_viewers_read_and_editors_write_services_by_aggregated_roles() -> None:
    roles = {m["metadata"]["name"]: m for m in render_chart() if m["kind"] == "ClusterRole"}
    view, edit = roles["vlm-operator-view"], roles["vlm-operator-edit"]
    aggregate = "rbac.authorization.k8s.io/aggregate-to-"
    assert view["metadata"]["labels"][aggregate + "view"] == "true"
    assert not WRITING & {verb for rule in view["rules"] for verb in rule["verbs"]}
    assert aggregate + "view" not in edit["metadata"]["labels"]
    assert edit["metadata"]["labels"][aggregate + "edit"] == "true"
    assert not any("vlmservices/status" in rule["resources"] for rule in edit["rules"])


def test_no_roles_are_created_if_rbac_is_disabled() -> None:
    kinds = {m["kind"] for m in render_chart({"rbac": {"create": False, "aggregate": False}})}
    assert not kinds & {"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"}
