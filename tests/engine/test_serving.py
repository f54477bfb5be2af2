"""The unchanged SGLang below the runtime, on the CPU: it serves images, says what it uses, and ends well."""

import base64
import http.client
import json
import re
import threading
import time
from pathlib import Path

import pytest
from engine.conftest import KEY, Start
from monitoring.promtool import complaints
from prometheus_client.parser import text_string_to_metric_families
from unit.runtime.harness import Container

from vlm_api.plan import Setting, Source
from vlm_operator.sglang.catalogue.releases import newest
from vlm_runtime.sglang.engine_metrics import parse_image_counts
from vlm_runtime.sglang.first_image import data_url
from vlm_runtime.sglang.inside import drain_file

pytestmark = pytest.mark.timeout(600)


def planned(name: str, value: object) -> Setting:
    return Setting(name=name, value=value, applied=True, source=Source.USER, rule="user", reason="for the test")


def engine_default(name: str, expected: object) -> Setting:
    return Setting(name=name, applied=False, expected=expected, source=Source.ENGINE, rule="r", reason="for the test")


@pytest.fixture(scope="module")
def serving(engine: Start) -> Container:
    """One engine for all tests of this module, in their order; the last one ends it."""
    settings = [
        planned("max_running_requests", 8),
        planned("max_total_tokens", 8192),
        planned("SGLANG_VLM_CACHE_SIZE_MB", 64),
        planned("attention_backend", "torch_native"),
        planned("radix_eviction_policy", "priority"),  # not passed to the engine, so it must show
        planned("TORCHDYNAMO_DISABLE", "1"),  # a variable of PyTorch, of which SGLang says nothing
        engine_default("mm_feature_transport", "cpu"),
        engine_default("prefill_decode_interval", 0),
        engine_default("page_size", 64),  # the engine takes another
    ]
    run = engine(settings=settings)
    run.wait_ready(450)
    return run


def ask(
    run: Container, key: str = KEY, images: tuple[tuple[int, int], ...] = ((256, 128),), **body: object
) -> http.client.HTTPResponse:
    """A question about pictures of these widths and heights."""
    content: list[object] = [{"type": "image_url", "image_url": {"url": data_url(*size)}} for size in images]
    content.append({"type": "text", "text": "what is this?"})
    question = {"model": "tiny", "messages": [{"role": "user", "content": content}], "temperature": 0, **body}
    connection = http.client.HTTPConnection("127.0.0.1", run.engine_port, timeout=120)
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    connection.request("POST", "/v1/chat/completions", json.dumps(question), headers)
    return connection.getresponse()


def test_a_question_about_an_image_is_answered(serving: Container) -> None:
    answer = json.loads(ask(serving, max_tokens=4).read())
    assert answer["usage"]["completion_tokens"] == 4
    assert (
        answer["usage"]["prompt_tokens"] > 64
    )  # the picture alone is at least 64: SGLang enlarges it to 65,536 pixels


def test_answers_are_streamed(serving: Container) -> None:
    # Tokens that come while the server is busy may share a chunk, so not each of them has its own.
    answer = ask(serving, max_tokens=32, stream=True).read().splitlines()
    assert sum(line.startswith(b"data: {") for line in answer) >= 8


def test_without_the_key_nothing_is_answered(serving: Container) -> None:
    assert ask(serving, key="wrong", max_tokens=1).status == 401


def test_the_report_tells_what_the_engine_really_uses(serving: Container) -> None:
    serving.wait_for(lambda: bool(serving.report()["settings"]), "compared")
    report = serving.report()
    assert report["phase"] == "Ready"
    assert report["ready"] is True
    assert report["engineVersion"] == newest()
    assert 0 < report["firstImageSeconds"] < 60
    assert {s["name"]: (s["effective"], s["agrees"]) for s in report["settings"]} == {
        "max_running_requests": (8, True),
        "max_total_tokens": (8192, True),
        "SGLANG_VLM_CACHE_SIZE_MB": ("64", True),
        "attention_backend": ("torch_native", True),
        "radix_eviction_policy": ("lru", False),
    }
    assert report["settingsRead"] is True
    assert report["notReported"] == ["TORCHDYNAMO_DISABLE"]
    assert {s["name"]: (s["effective"], s["agrees"]) for s in report["engineDefaults"]} == {
        "mm_feature_transport": ("cpu", True),
        "prefill_decode_interval": (0, True),
        "page_size": (1, False),
    }
    assert report["featurePool"] is None


def test_a_pod_is_never_ready_before_its_engine_was_asked(serving: Container) -> None:
    log = serving.log()
    assert log.index("radix_eviction_policy was planned as 'priority'") < log.index("vlm-runtime: ready after")


def test_the_phases_of_the_start_were_seen(serving: Container) -> None:
    for phase in ("LoadingWeights", "WarmingUp"):
        assert f"vlm-runtime: {phase} after" in serving.log()
    began = [(each["phase"], each["afterSeconds"]) for each in serving.report()["phases"]]
    assert [name for name, _ in began] == [
        "CheckingHardware", "Starting", "LoadingWeights", "WarmingUp", "FirstImage", "Ready",
    ]  # fmt: skip
    assert [seconds for _, seconds in began] == sorted(seconds for _, seconds in began)


def test_the_engines_own_metrics_are_served(serving: Container) -> None:
    status, text = serving.get("/metrics", serving.engine_port)
    assert status == 200
    assert "sglang:num_running_reqs" in text
    assert 'vlm_runtime_phase{phase="Ready"} 1.0' in serving.get("/metrics")[1]


def added_metrics(run: Container) -> str:
    """What our plugins add to the engine's own metrics."""
    status, text = run.get("/metrics", run.engine_port)
    assert status == 200
    ours = re.compile(r"^(?:# (?:HELP|TYPE) )?vlmserve_")
    return "".join(f"{line}\n" for line in text.splitlines() if ours.match(line))


def added(run: Container) -> dict[str, float]:
    """Sample -> value, without the buckets of histograms."""
    return {
        sample.name: sample.value
        for family in text_string_to_metric_families(added_metrics(run))
        for sample in family.samples
        if not sample.name.endswith("_bucket")
    }


def test_a_streamed_answer_is_in_flight_until_its_last_byte(serving: Container) -> None:
    def none_left() -> bool:
        return added(serving)["vlmserve_requests_in_flight"] == 0

    serving.wait_for(none_left, "free of earlier requests")
    answer = ask(serving, max_tokens=256, ignore_eos=True, stream=True)
    assert added(serving)["vlmserve_requests_in_flight"] == 1
    answer.read()
    serving.wait_for(none_left, "done with it")


def test_images_are_counted_beside_the_engines_own_metrics(serving: Container) -> None:
    before = added(serving)
    fresh = [(320 + 32 * number, 256) for number in range(4)]
    for images in [(fresh[0],), (fresh[1], fresh[2]), (fresh[0],), (fresh[3], fresh[3])]:
        assert ask(serving, images=tuple(images), max_tokens=1).status == 200
    grown = {name: value - before[name] for name, value in added(serving).items()}
    # Four requests with six images, of which one came in an earlier request and one twice in the same.
    assert grown["vlmserve_images_received_total"] == 6
    assert grown["vlmserve_images_repeated_total"] == 2
    assert (grown["vlmserve_request_images_count"], grown["vlmserve_request_images_sum"]) == (4, 6)
    assert grown["vlmserve_image_preprocessing_seconds_count"] == 4
    # 24 bytes a pixel, and these sizes need no rounding.
    shown = [*fresh[:3], fresh[0], fresh[3], fresh[3]]
    assert grown["vlmserve_image_feature_bytes_total"] == sum(24 * width * height for width, height in shown)
    serving.wait_for(lambda: serving.report()["images"] is not None, "counted by the runtime")
    assert parse_image_counts(added_metrics(serving).encode()) == tuple(
        added(serving)[f"vlmserve_images_{what}_total"] for what in ("received", "repeated")
    )
    sent = [len(base64.b64decode(data_url(*size).partition(",")[2])) for size in shown]
    assert grown["vlmserve_image_received_bytes_total"] == sum(sent)


def test_the_vision_tower_is_timed_in_the_process_that_runs_it(serving: Container) -> None:
    before = added(serving)
    assert ask(serving, images=((512, 288), (544, 288)), max_tokens=1).status == 200
    after = added(serving)
    assert after["vlmserve_vision_encoded_images_total"] - before["vlmserve_vision_encoded_images_total"] == 2
    assert after["vlmserve_vision_encode_seconds_count"] > before["vlmserve_vision_encode_seconds_count"]
    assert after["vlmserve_vision_encode_seconds_sum"] > before["vlmserve_vision_encode_seconds_sum"]


def test_without_a_gpu_there_is_no_series_of_its_pool(serving: Container) -> None:
    assert "feature_pool" not in added_metrics(serving)
    assert "no metrics of" not in serving.log()
    assert "vlm_runtime_nvml_up 0.0" in serving.get("/metrics")[1]


def test_what_the_plugins_add_keeps_prometheus_rules(serving: Container) -> None:
    assert complaints(added_metrics(serving)) == []


def get_from_outside(run: Container, path: str) -> tuple[int, bytes]:
    """Asks with the key, from an address that is not the pod's own loopback address."""
    connection = http.client.HTTPConnection("127.0.0.1", run.engine_port, timeout=30, source_address=("127.0.0.2", 0))
    connection.request("GET", path, headers={"Authorization": f"Bearer {KEY}"})
    answer = connection.getresponse()
    return answer.status, answer.read()


def test_control_paths_are_closed_to_other_pods_and_open_inside(serving: Container) -> None:
    assert get_from_outside(serving, "/v1/models")[0] == 200
    status, body = get_from_outside(serving, "/flush_cache")
    assert status == 403
    assert b"kubectl port-forward" in body
    inside = http.client.HTTPConnection("127.0.0.1", serving.engine_port, timeout=30)
    inside.request("POST", "/flush_cache", headers={"Authorization": f"Bearer {KEY}"})
    assert inside.getresponse().status == 200


@pytest.mark.parametrize("url", ["file:///dev/zero", "file:///etc/hostname", "/dev/zero"])
def test_a_file_of_the_pod_is_no_image(serving: Container, url: str) -> None:
    status, body = ask_about(serving, url)
    assert status == 400
    assert b"requests may not name files" in body


def test_what_is_beyond_the_limits_is_refused_before_it_is_decoded(serving: Container) -> None:
    huge = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + (65_500).to_bytes(4, "big") * 2 + b"\x08\x02\0\0\0"
    status, body = ask_about(serving, "data:image/png;base64," + base64.b64encode(huge).decode())
    assert (status, b"4290250000 pixels" in body) == (400, True)
    answer = ask(serving, images=((28, 28),) * 33)
    assert (answer.status, b"33 images, and the service accepts 32" in answer.read()) == (400, True)
    connection = http.client.HTTPConnection("127.0.0.1", serving.engine_port, timeout=30)
    connection.putrequest("POST", "/v1/chat/completions")
    connection.putheader("Authorization", f"Bearer {KEY}")
    connection.putheader("Content-Length", str((64 << 20) + 1))
    connection.endheaders()
    assert connection.getresponse().status == 413


def test_a_client_who_writes_that_the_port_is_taken_into_the_log_ends_nothing(serving: Container) -> None:
    words = "\n[2026-11-30] ERROR: error while attempting to bind on address ('0.0.0.0', 1): address already in use"
    connection = http.client.HTTPConnection("127.0.0.1", serving.engine_port, timeout=30)
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"}
    body = {"text": ["a", "b"], "rid": [words, words]}  # the same name twice, which the engine complains of
    connection.request("POST", "/generate", json.dumps(body), headers)
    assert connection.getresponse().status == 400
    serving.wait_for(lambda: words.strip() in serving.log(), "told in the log")
    time.sleep(2)
    assert serving.process.poll() is None
    assert serving.get("/readyz")[0] == 200


def test_an_image_s_url_does_not_make_the_engine_control_itself(serving: Container) -> None:
    status, _ = ask_about(serving, f"http://127.0.0.1:{serving.engine_port}/flush_cache")
    assert status >= 400
    assert '"GET /flush_cache HTTP/1.1" 403' in serving.log()
    assert '"GET /flush_cache HTTP/1.1" 200' not in serving.log()


def ask_about(run: Container, url: str) -> tuple[int, bytes]:
    """Status and body of the answer to a question about an image at that URL."""
    content = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "what is this?"}]
    question = {"model": "tiny", "messages": [{"role": "user", "content": content}], "max_tokens": 1}
    connection = http.client.HTTPConnection("127.0.0.1", run.engine_port, timeout=30)
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"}
    connection.request("POST", "/v1/chat/completions", json.dumps(question), headers)
    answer = connection.getresponse()
    return answer.status, answer.read()


def test_a_connection_is_kept_until_the_pod_drains(serving: Container) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", serving.engine_port, timeout=30)

    def ends() -> bool:
        connection.request("GET", "/v1/models", headers={"Authorization": f"Bearer {KEY}"})
        answer = connection.getresponse()
        answer.read()
        return answer.will_close

    assert not ends()
    Path(drain_file(serving.engine_port)).touch()  # as the runtime does on SIGTERM
    try:
        assert ends()
    finally:
        Path(drain_file(serving.engine_port)).unlink()


def test_the_engine_does_not_show_its_key(serving: Container) -> None:
    status, body = get_from_outside(serving, "/server_info")
    assert status == 200
    assert KEY.encode() not in body
    assert json.loads(body)["launch_command"].count("[redacted]") == 1


def test_the_key_is_in_nothing_that_the_container_writes(serving: Container) -> None:
    assert "server_args=" in serving.log()
    assert KEY not in serving.log()
    assert KEY not in serving.get("/report")[1]


def test_the_runtimes_own_questions_do_not_fill_the_log(serving: Container) -> None:
    time.sleep(5)
    assert "GET /ready" not in serving.log()


def test_after_sigterm_a_running_stream_is_finished(serving: Container) -> None:
    answer = ask(serving, max_tokens=600, stream=True, ignore_eos=True)
    assert answer.status == 200
    body: list[bytes] = []
    reader = threading.Thread(target=lambda: body.append(answer.read()), daemon=True)
    reader.start()
    serving.terminate()
    serving.wait_for(lambda: serving.get("/readyz")[0] == 503, "unready", seconds=2)
    assert serving.wait_exit(90) == 0
    reader.join(5)
    assert body[0].rstrip().endswith(b"data: [DONE]")
    assert not serving.termination_log.exists()
