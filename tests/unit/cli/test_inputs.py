"""Manifests are read as kubectl reads them; each error is one line."""

import io
import sys
from pathlib import Path

import pytest

from vlm_operator.cli.inputs import read_nodes, read_services
from vlm_operator.errors import InvalidInputs

HEAD = "apiVersion: vlmserve.dev/v1alpha1\nkind: VLMService\nmetadata: {name: vlm}\n"
GOOD = HEAD + "spec: {model: {uri: 'hf://Qwen/Qwen3-VL-8B-Instruct'}}\n"


def refusal(tmp_path: Path, text: str | bytes) -> list[str]:
    """The lines that a file is refused with, without its folder."""
    file = tmp_path / "file.yaml"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(InvalidInputs) as refused:
        read_services([str(file)], None)
    return [line.replace(f"{tmp_path}/", "") for line in refused.value.lines]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "file.yaml: is empty: give it a manifest with apiVersion, kind, metadata and spec"),
        ("# only a comment\n---\n", "file.yaml: is empty: give it a manifest with apiVersion, kind, metadata and spec"),
        ("hello", "file.yaml: is not a Kubernetes object: give it apiVersion, kind, metadata and spec"),
        ("[1, 2]", "file.yaml: is not a Kubernetes object: give it apiVersion, kind, metadata and spec"),
        ("a: [", "file.yaml: line 2, column 1: did not find expected node content"),
        ("a: 1\nb: 2\na: 3\n", 'file.yaml: line 3, column 1: duplicate key "a": keep one of them'),
        ('{"a": 1, "a": 2}', 'file.yaml: is not YAML: duplicate key "a": keep one of them'),
        (b"a: \xff", "file.yaml: is not UTF-8 (byte 4): save it as UTF-8"),
        ("kind: Pod\n", "kind: no VLMService found, only Pod: give a file with kind: VLMService"),
        (
            "kind: List\nitems: []\n",
            "kind: no VLMService found, only an empty list: give a file with kind: VLMService",
        ),
        ("kind: List\nitems: 3\n", "file.yaml, items: must be a list"),
        (GOOD.replace("v1alpha1", "v1"), 'apiVersion: is "vlmserve.dev/v1", but must be vlmserve.dev/v1alpha1'),
        (GOOD.replace("VLMService", "VLMservice"), 'kind: is "VLMservice", but must be VLMService'),
        (GOOD.replace("name: vlm", "name: vlm, lables: {}"), "metadata.lables: unknown field, did you mean labels?"),
        (GOOD.replace("name: vlm", "name: vlm, labels: {a: 1}"), "metadata.labels.a: must be text: put it in quotes"),
        (HEAD, "spec: is required: set it"),
        (HEAD + "spec:\n", "spec: is required: set it"),
        (HEAD + "spec: {model: {url: x}}", "spec.model.uri: is required: set it"),
    ],
)
def test_refuses_in_a_sentence(tmp_path: Path, text: str | bytes, line: str) -> None:
    assert line in refusal(tmp_path, text)


@pytest.mark.parametrize(
    "text",
    [
        "\x00",
        "a: &a [*a]",
        "a: .nan",
        "a: !!python/object/apply:os.system [x]",
        "a: !!binary aGk=",
        "? [a]\n: b",
        "[" * 9000,
    ],
)
def test_refuses_invalid_files_without_a_traceback(tmp_path: Path, text: str) -> None:
    (line,) = refusal(tmp_path, text)
    assert line.startswith("file.yaml: ")


def test_refuses_a_missing_file() -> None:
    with pytest.raises(InvalidInputs, match=r"nowhere\.yaml: cannot read it: No such file or directory"):
        read_services(["nowhere.yaml"], None)


def test_reports_every_error_with_the_name_of_its_service(tmp_path: Path) -> None:
    other = GOOD.replace("name: vlm", "name: other").replace("spec: {", "spec: {replicas: -1, ")
    misspelt = GOOD.replace("spec: {", "spec: {workload: {concurency: 8}, ")
    assert refusal(tmp_path, f"{misspelt}---\n{other}") == [
        "vlm: spec.workload.concurency: unknown field, did you mean concurrency?",
        "other: spec.replicas: is -1, but must be at least 0",
    ]


def test_refuses_the_same_service_twice(tmp_path: Path) -> None:
    assert refusal(tmp_path, f"{GOOD}---\n{GOOD}") == [
        "metadata.name: duplicate VLMService default/vlm: keep one of them"
    ]


def test_refuses_another_namespace_than_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "file.yaml"
    file.write_text(GOOD.replace("name: vlm", "name: vlm, namespace: here"))
    with pytest.raises(InvalidInputs, match='is "here", but the command line has there: use --namespace=here'):
        read_services([str(file)], "there")
    assert read_services([str(file)], "here")[0].namespace == "here"


def test_uses_the_namespace_of_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "file.yaml"
    file.write_text(GOOD)
    assert read_services([str(file)], "there")[0].namespace == "there"


@pytest.mark.parametrize("text", [GOOD, "\ufeff" + GOOD, "---\n" + GOOD + "---\n", '{"kind": "List", "items": [ITEM]}'])
def test_reads_one_service(tmp_path: Path, text: str) -> None:
    item = (
        '{"apiVersion": "vlmserve.dev/v1alpha1", "kind": "VLMService", "metadata": {"name": "vlm"},'
        ' "spec": {"model": {"uri": "hf://Qwen/Qwen3-VL-8B-Instruct"}}}'
    )
    file = tmp_path / "file.yaml"
    file.write_text(text.replace("ITEM", item))
    (service,) = read_services([str(file)], None)
    assert service.name == "vlm"


def test_reads_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(GOOD.encode())))
    assert read_services(["-"], None)[0].name == "vlm"


def test_notes_skipped_objects(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "file.yaml"
    file.write_text("apiVersion: v1\nkind: Secret\nmetadata: {name: hf}\nstringData: {token: hunter2}\n---\n" + GOOD)
    assert len(read_services([str(file)], None)) == 1
    assert capsys.readouterr().err == "note: skipping Secret hf: only VLMServices are planned\n"


def test_reads_numbers_as_kubectl_does(tmp_path: Path) -> None:
    file = tmp_path / "file.yaml"
    settings = "{whole: 2.0, fraction: 0.5, hex: 0x10, large: 1e3, ratio: 1:30, day: 2025-11-29, yes: on}"
    file.write_text(
        GOOD.replace("spec: {", f"spec: {{workload: {{concurrency: 400.0}}, engine: {{settings: {settings}}}, ")
    )
    (service,) = read_services([str(file)], None)
    assert service.spec.workload.concurrency == 400
    assert service.spec.engine.settings == {
        "whole": 2,
        "fraction": 0.5,
        "hex": 16,
        "large": 1000,
        "ratio": "1:30",
        "day": "2025-11-29",
        "true": True,
    }


def test_reads_nodes_slices_and_pods_in_every_shape_that_kubectl_prints(tmp_path: Path) -> None:
    file = tmp_path / "nodes.yaml"
    file.write_text(
        "kind: List\nitems:\n- {kind: Node, metadata: {name: a}}\n- {kind: ResourceSlice, metadata: {name: s}}\n"
        "---\nkind: NodeList\napiVersion: v1\nitems: [{metadata: {name: b}}]\n"
        "---\n{kind: Pod, metadata: {name: p}}\n---\n{kind: Node, metadata: {name: c}}\n"
    )
    objects = read_nodes(str(file))
    assert [n["metadata"]["name"] for n in objects.nodes] == ["a", "b", "c"]
    assert (len(objects.slices), len(objects.pods)) == (1, 1)


def test_an_empty_list_is_a_cluster_without_nodes(tmp_path: Path) -> None:
    file = tmp_path / "nodes.yaml"
    file.write_text("kind: List\napiVersion: v1\nitems: []\n")
    assert read_nodes(str(file)).nodes == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD, "no Node found, only VLMService: use the output of `kubectl get nodes -o yaml`"),
        ("{kind: Node, metadata: {}}", "node 1 has no metadata.name"),
        ("{kind: Node, metadata: {name: a}}\n---\n{kind: Node, metadata: {name: a}}", "duplicate Node a"),
    ],
)
def test_refuses_a_nodes_file_in_a_sentence(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "nodes.yaml"
    file.write_text(text)
    with pytest.raises(InvalidInputs) as refused:
        read_nodes(str(file))
    assert message in str(refused.value)


def test_a_service_and_its_kubernetes_service_may_stand_in_one_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file.yaml"
    file.write_text(f"apiVersion: v1\nkind: Service\nmetadata: {{name: front}}\n---\n{GOOD}")
    assert [service.name for service in read_services([str(file)], None)] == ["vlm"]
    assert "note: skipping Service front" in capsys.readouterr().err


def test_refuses_an_invalid_namespace(tmp_path: Path) -> None:
    (line,) = refusal(tmp_path, GOOD.replace("name: vlm", "name: vlm, namespace: Foo Bar"))
    assert line.startswith('metadata.namespace: is "Foo Bar", but must be a name of at most 63 characters')


def test_refuses_a_deeply_nested_template(tmp_path: Path) -> None:
    template = '{"a": ' * 200 + "1" + "}" * 200
    (line,) = refusal(tmp_path, GOOD.rstrip()[:-1] + f", template: {{spec: {template}}}}}\n")
    assert line.startswith("spec.template: is nested more than 64 levels deep")


def test_never_repeats_a_secret_in_place_of_its_reference(tmp_path: Path) -> None:
    for security in ("apiKeySecretRef: sk_123", "apiKeySecretRef: {name: sk_123, key: k}"):
        (line,) = refusal(tmp_path, GOOD.rstrip()[:-1] + f", security: {{{security}}}}}\n")
        assert line.startswith("spec.security.apiKeySecretRef")
        assert "sk_123" not in line


def test_refuses_a_spec_of_more_than_128_kib(tmp_path: Path) -> None:
    env = ", ".join(f"{{name: E{i}, value: '{'x' * 100}'}}" for i in range(2000))
    text = GOOD.replace("}}\n", "}") + f", template: {{spec: {{containers: [{{name: main, env: [{env}]}}]}}}}}}\n"
    [line] = refusal(tmp_path, text)
    assert line.startswith("spec: has ")
    assert line.endswith(" bytes of JSON, but must have at most 131072: move long values into a ConfigMap or the image")
