"""Why an engine ended, from lines that SGLang, PyTorch and huggingface_hub really write."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vlm_api.reasons import FAILURES
from vlm_runtime.sglang import causes
from vlm_runtime.sglang.failure import LONGEST_MESSAGE_BYTES, Exit, classify, failure

SIGQUIT = [
    "[2026-11-29 20:02:08] Received sigquit from a child process. It usually means the child failed.",
    "[2026-11-29 20:02:08] kill_process_tree called: parent_pid=14350, include_parent=True, pid=14350",
]
KILLED_WORKER = [
    "[2026-11-29 19:53:20] Subprocess scheduler_0 (pid=25706) crashed with exit code -9. Triggering SIGQUIT for cleanup...",
    "[2026-11-29 19:53:20] SIGQUIT received. signum=None, frame=None. It usually means one child failed.",
]
FIRED_UP = ["[2026-11-29 19:53:06] The server is fired up and ready to roll!"]
HIT = ["[2026-11-29 20:02:08] Scheduler hit an exception: Traceback (most recent call last):"]


ENDS = {
    "an unknown flag": (
        "BadArgument", Exit(code=2), False,
        ["      [--metrics-host METRICS_HOST]", "sglang serve: error: unrecognized arguments: --no-such-flag 3"],
    ),
    "a value of the wrong type": (
        "BadArgument", Exit(code=2), False,
        ["launch_server.py: error: argument --tp-size/--tensor-parallel-size: invalid int value: 'abc'"],
    ),
    "a folder that is not there": (
        "ModelNotFound", Exit(code=1), False,
        ["OSError: Repo id must be in the form 'repo_name' or 'namespace/repo_name': '/models/nowhere'."],
    ),
    "no way to the Hub": (
        "HubUnreachable", Exit(code=1), False,
        [
            "OSError: We couldn't connect to 'https://huggingface.co' to load the files, and couldn't find them in the "
            "cached files."
        ],
    ),
    "a gated model without a token": (
        "ModelAccessDenied", Exit(code=1), False, ["huggingface_hub.errors.GatedRepoError: 401 Client Error."],
    ),
    "a private model without a token, of which the hub says that there is none": (
        "ModelAccessDenied", Exit(code=1), False,
        ["huggingface_hub.errors.RepositoryNotFoundError: 401 Client Error. (Request ID: x)"],
    ),
    "a token that the hub does not know": (
        "ModelAccessDenied", Exit(code=1), False,
        [
            "huggingface_hub.errors.HfHubHTTPError: Client error '401 Unauthorized' for url 'https://hub/org/m/config.json'",
            "OSError: There was a specific connection error when trying to load org/m:",
        ],
    ),
    "a repository without a config.json": (
        "ModelNotFound", Exit(code=1), False,
        ["ValueError: Unrecognized model in org/m. Should have a `model_type` key in its config.json."],
    ),
    "a model that the hub does not have": (
        "ModelNotFound", Exit(code=1), False,
        ["huggingface_hub.errors.RepositoryNotFoundError: 404 Client Error. (Request ID: x)"],
    ),
    "a hub that takes no more requests": (
        "HubUnreachable", Exit(signal=9), False,
        [
            *HIT, "huggingface_hub.errors.HfHubHTTPError: 429 Too Many Requests for url: https://hub/org/m/model.safetensors.",
            *SIGQUIT,
        ],
    ),
    "a hub that takes no more requests, as huggingface_hub 0.36 says it": (
        "HubUnreachable", Exit(signal=9), False,
        [*HIT, "huggingface_hub.errors.HfHubHTTPError: 429 Client Error: Too Many Requests for url: https://hub/x", *SIGQUIT],
    ),
    "a hub in trouble": (
        "HubUnreachable", Exit(signal=9), False,
        [
            *HIT, "huggingface_hub.errors.HfHubHTTPError: Server error '503 Service Unavailable' for url 'https://hub/org/m'",
            *SIGQUIT,
        ],
    ),
    "a hub in trouble, as huggingface_hub 0.36 says it": (
        "HubUnreachable", Exit(signal=9), False,
        [*HIT, "requests.exceptions.HTTPError: 503 Server Error: Service Unavailable for url: https://hub/org/m", *SIGQUIT],
    ),
    "a download that broke off": (
        "HubUnreachable", Exit(signal=9), False,
        [
            *HIT, "httpx.RemoteProtocolError: peer closed connection without sending complete message body (received 1000 "
            "bytes, expected 3000000)", *SIGQUIT,
        ],
    ),
    "a download that was reset": (
        "HubUnreachable", Exit(signal=9), False, [*HIT, "httpx.ReadError: [Errno 104] Connection reset by peer", *SIGQUIT],
    ),
    "a download that broke off, as huggingface_hub 0.36 says it": (
        "HubUnreachable", Exit(signal=9), False,
        [
            *HIT, "requests.exceptions.ChunkedEncodingError: ('Connection broken: IncompleteRead(1000 bytes read, 2999000 "
            "more expected)', IncompleteRead(1000 bytes read, 2999000 more expected))", *SIGQUIT,
        ],
    ),
    "a download by xet that finds no server": (
        "HubUnreachable", Exit(signal=9), False,
        [
            *HIT, "RuntimeError: Task error: File reconstruction error: CAS Client Error: Request middleware error: error "
            "sending request for url (http://127.0.0.1:9/v2/reconstructions/dd)", *SIGQUIT,
        ],
    ),
    "a download by hf_xet 1.2 that finds no server": (
        "HubUnreachable", Exit(signal=9), False,
        [
            *HIT, "RuntimeError: Data processing error: CAS service error : ReqwestMiddleware Error: Request failed after 5 "
            "retries", *SIGQUIT,
        ],
    ),
    "an engine that did not answer itself while it warmed up": (
        "EngineExited", Exit(signal=9), False,
        [
            "requests.exceptions.ReadTimeout: HTTPConnectionPool(host='127.0.0.1', port=8000): Read timed out. (read "
            "timeout=600)",
            "[2026-11-29 20:02:08] kill_process_tree called: parent_pid=14350, include_parent=True, pid=14350",
        ],
    ),
    "an engine whose own server broke off while it warmed up": (
        "EngineExited", Exit(signal=9), False,
        [
            "[2026-11-29 20:02:08] Initialization failed. warmup error: Traceback (most recent call last):",
            "urllib3.exceptions.ProtocolError: ('Connection aborted.', RemoteDisconnected('Remote end closed connection'))",
            "requests.exceptions.ConnectionError: ('Connection aborted.', RemoteDisconnected('Remote end closed connection'))",
            "[2026-11-29 20:02:08] kill_process_tree called: parent_pid=14350, include_parent=True, pid=14350",
        ],
    ),
    "a disk that is full of what xet brings": (
        "DiskFull", Exit(signal=9), False,
        [*HIT, "RuntimeError: Data processing error: I/O error: No space left on device (os error 28)", *SIGQUIT],
    ),
    "a token whose rights do not suffice": (
        "ModelAccessDenied", Exit(signal=9), False,
        [
            *HIT, "huggingface_hub.errors.HfHubHTTPError: 403 Forbidden: Please enable access to public gated repositories.",
            "Cannot access content at: https://hub/org/m/resolve/main/model.safetensors.",
            "Make sure your token has the correct permissions.", *SIGQUIT,
        ],
    ),
    "Git LFS's pointers in the weights' place": (
        "ModelUnreadable", Exit(signal=9), False,
        [*HIT, "safetensors_rust.SafetensorError: Error while deserializing header: header too large", *SIGQUIT],
    ),
    "weights whose copy broke off": (
        "ModelUnreadable", Exit(signal=9), False,
        [
            *HIT, "safetensors._safetensors_rust.SafetensorError: Error while deserializing header: incomplete metadata, file "
            "not fully covered", *SIGQUIT,
        ],
    ),
    "a claim that the engine's user may not write to": (
        "PermissionDenied", Exit(code=1), False,
        ["PermissionError: [Errno 13] Permission denied: '/var/cache/vlmserve/huggingface'"],
    ),
    "a model whose files the engine's user may not read": (
        "PermissionDenied", Exit(code=1), False,
        ["PermissionError: [Errno 13] Permission denied: '/models/qwen3-vl/config.json'"],
    ),
    "a volume that cannot be written to": (
        "PermissionDenied", Exit(code=1), False, ["OSError: [Errno 30] Read-only file system: '/models/.cache'"],
    ),
    "a pod without a driver": (
        "DriverUnusable", Exit(code=1), False,
        [
            "ImportError: libcuda.so.1: cannot open shared object file: No such file or directory",
            "RuntimeError: No accelerator (CUDA, XPU, HPU, NPU, MUSA, MPS) or platform plugin is available.",
        ],
    ),
    "a driver that is too old for the image": (
        "DriverUnusable", Exit(code=1), False,
        [
            "torch/cuda/__init__.py:190: UserWarning: CUDA initialization: The NVIDIA driver on your system is too old (found "
            "version 12040).",
            "RuntimeError: No accelerator (CUDA, XPU, HPU, NPU, MUSA, MPS) or platform plugin is available.",
        ],
    ),
    "GPUs whose fabric manager does not run": (
        "DriverUnusable", Exit(signal=9), False,
        [*HIT, "RuntimeError: CUDA error: system not yet initialized", *SIGQUIT],
    ),
    "a GPU with a fault in its memory": (
        "DeviceFailed", Exit(signal=9), True,
        [*HIT, "torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered", *SIGQUIT],
    ),
    "a GPU that cannot be used, as NCCL says it": (
        "DeviceFailed", Exit(signal=9), False,
        ["pod:88:88 [0] NCCL WARN Cuda failure 46 'CUDA-capable device(s) is/are busy or unavailable'", *HIT, *SIGQUIT],
    ),
    "a kernel that reads where it may not": (
        "SchedulerDied", Exit(signal=9), True,
        [*HIT, "torch.AcceleratorError: CUDA error: an illegal memory access was encountered", *SIGQUIT],
    ),
    "members that did not come, where the pod is alone": (
        "SchedulerDied", Exit(signal=9), False,
        [*HIT, "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 joined.", *SIGQUIT],
    ),
    "a disk that the model does not fit on": (
        "DiskFull", Exit(code=1), False,
        ["OSError: [Errno 28] No space left on device: '/var/cache/vlmserve/huggingface/hub/tmp'"],
    ),
    "PyTorch's segment in a full /dev/shm": (
        "SharedMemoryFull", Exit(signal=9), True,
        [*HIT, "RuntimeError: unable to write to file </torch_123_45_6>: No space left on device (28)", *SIGQUIT],
    ),
    "NCCL's segment in a full /dev/shm": (
        "SharedMemoryFull", Exit(signal=9), False,
        [
            "pod:88:88 [0] misc/shmutils.cc:72 NCCL WARN Error: failed to extend /dev/shm/nccl-8Qfbtg to 33030532 bytes",
            "pod:88:88 [0] NCCL WARN Error while creating shared memory segment /dev/shm/nccl-8Qfbtg (size 33030528)",
            *SIGQUIT,
        ],
    ),
    "a segment that PyTorch cannot map, which is no lack of the pod's memory": (
        "SharedMemoryFull", Exit(signal=9), True,
        ["RuntimeError: unable to mmap 1024 bytes from file </torch_1_2_3>: Cannot allocate memory (12)"],
    ),
    "a full /dev/shm that the engine goes round, as it says": (
        "SchedulerDied", Exit(signal=9), True,
        [
            "Failed to allocate shared memory for multimodal feature transport ([Errno 28] No space left on device); "
            "falling back to inline transport. Consider increasing /dev/shm size.",
            *KILLED_WORKER,
        ],
    ),
    "a setting that contradicts another": (
        "ConfigurationError", Exit(code=1), False, ["ValueError: cuda_ipc requires a single node"],
    ),
    "a setting that a scheduler refuses": (
        "ConfigurationError", Exit(signal=9), False,
        [*HIT, "ValueError: attention backend fa3 is not supported", *SIGQUIT],
    ),
    "device memory while loading": (
        "OutOfDeviceMemory", Exit(signal=9), False,
        [*HIT, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has", *SIGQUIT],
    ),
    "nothing left for the KV cache": (
        "OutOfDeviceMemory", Exit(signal=9), False,
        [*HIT, "ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-frac", *SIGQUIT],
    ),
    "a coloured error of memory": (
        "OutOfDeviceMemory", Exit(signal=9), True,
        ["\x1b[31mRuntimeError: Not enough memory. Please try to increase --mem-fraction-static.\x1b[0m"],
    ),
    "a killed scheduler": ("SchedulerDied", Exit(signal=9), True, KILLED_WORKER),
    "a scheduler's fault": (
        "SchedulerDied", Exit(signal=9), True, [*HIT, "ValueError: too many values to unpack", *SIGQUIT],
    ),
    "a signal from outside": ("EngineKilled", Exit(signal=11), True, FIRED_UP),
    "an end without a word": ("EngineExited", Exit(code=0), True, FIRED_UP),
    "an unknown error": ("EngineExited", Exit(code=1), True, ["RuntimeError: something else"]),
}  # fmt: skip


@pytest.mark.parametrize(("reason", "ended", "was_ready", "lines"), ENDS.values(), ids=ENDS)
def test_an_exit_has_one_reason(reason: str, ended: Exit, was_ready: bool, lines: list[str]) -> None:
    found = classify(ended, lines, was_ready=was_ready, oom_kills=0, device="cuda")
    assert found.reason == reason
    assert str(ended) in found.message
    assert found.message.startswith(FAILURES[reason]) or causes.find(reason, lines)


def test_an_oom_kill_is_not_a_crash() -> None:
    found = classify(Exit(signal=9), KILLED_WORKER, was_ready=True, oom_kills=1, device="cuda")
    assert found.reason == "OutOfHostMemory"


@pytest.mark.parametrize(
    "line",
    [
        "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients joined.",
        "torch.distributed.DistNetworkError: The client socket has timed out after 600000ms while trying to connect to "
        "(qwen3-vl-0.qwen3-vl, 20000).",
        "ValueError: TP rank 0 could finish the model loading, but there are other ranks that didn't finish loading. It is "
        "likely due to unexpected failures (e.g., OOM) or a slow node.",
        "RuntimeError: Failed to receive worker ports from node 0 within timeout",
    ],
)
def test_a_pod_that_waited_for_its_group_in_vain_says_so(line: str) -> None:
    lines = [*HIT, line, *SIGQUIT]
    found = classify(Exit(signal=9), lines, was_ready=False, oom_kills=0, device="cuda", in_group=True)
    assert found.reason == "GroupIncomplete"
    assert line in found.message


def test_a_leader_whose_group_port_is_taken_does_not_blame_other_pods() -> None:
    line = (
        "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: "
        "20000, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use"
    )
    found = classify(Exit(signal=9), [*HIT, line, *SIGQUIT], was_ready=False, oom_kills=0, device="cuda", in_group=True)
    assert found.reason == "PortInUse"


def test_its_own_failure_comes_before_the_groups() -> None:
    lines = [*HIT, "torch.OutOfMemoryError: CUDA out of memory.", "torch.distributed.DistNetworkError: x", *SIGQUIT]
    found = classify(Exit(signal=9), lines, was_ready=False, oom_kills=0, device="cuda", in_group=True)
    assert found.reason == "OutOfDeviceMemory"


NO_DRIVER = "RuntimeError: No accelerator (CUDA, XPU, HPU, NPU, MUSA, MPS) or platform plugin is available."


def test_without_a_driver_the_message_begins_with_nvmls_note() -> None:
    note = "the NVIDIA driver's library cannot be used in this pod: Driver/library version mismatch"
    found = classify(Exit(code=1), [NO_DRIVER], was_ready=False, oom_kills=0, device="cuda", nvml_note=note)
    assert found.message.startswith(f"T{note[1:]}. {FAILURES['DriverUnusable']} The engine ended")


def test_on_the_cpu_a_missing_driver_does_not_count() -> None:
    lines = [NO_DRIVER, "ValueError: chunked_prefill_size must not be 0"]
    found = classify(Exit(code=1), lines, was_ready=False, oom_kills=0, device="cpu")
    assert found.reason == "ConfigurationError"


BUS_ERROR = ["Subprocess scheduler_0 (pid=25706) crashed with exit code -7. Triggering SIGQUIT for cleanup..."]


@pytest.mark.parametrize(("ended", "lines"), [(Exit(signal=9), BUS_ERROR), (Exit(signal=7), FIRED_UP)])
@pytest.mark.parametrize(("full", "is_it"), [(True, True), (False, False)])
def test_a_bus_error_means_full_shared_memory_only_if_it_is_full(
    ended: Exit, lines: list[str], full: bool, is_it: bool
) -> None:
    found = classify(ended, lines, was_ready=True, oom_kills=0, device="cuda", shared_memory_full=full)
    assert (found.reason == "SharedMemoryFull") is is_it


def test_a_missing_model_is_named_by_its_path_first() -> None:
    lines = [
        "huggingface_hub.errors.HFValidationError: Repo id must be in the form 'repo_name': '/models/nowhere'.",
        "OSError: Repo id must be in the form 'repo_name' or 'namespace/repo_name': '/models/nowhere'.",
    ]
    found = classify(
        Exit(code=1),
        lines,
        was_ready=False,
        oom_kills=0,
        device="cuda",
        model="/models/nowhere does not exist in the pod.",
    )
    assert found.message == (
        f"/models/nowhere does not exist in the pod. {FAILURES['ModelNotFound']} The engine ended during its start with exit "
        "code 1."
    )


@pytest.mark.parametrize(
    ("model", "first"),
    [
        ("/models/x exists, but is incomplete or cannot be read.", True),
        ("org/m could not be downloaded from the hub.", False),
    ],
)
def test_damaged_files_are_named_by_their_folder(model: str, first: bool) -> None:
    lines = ["safetensors_rust.SafetensorError: Error while deserializing header: header too large"]
    found = classify(Exit(code=1), lines, was_ready=False, oom_kills=0, device="cuda", model=model)
    assert found.reason == "ModelUnreadable"
    assert found.message.startswith(model) is first


def test_other_failures_do_not_name_the_model() -> None:
    found = classify(
        Exit(code=2),
        ["x: error: no such flag"],
        was_ready=False,
        oom_kills=0,
        device="cuda",
        model="/models/x is there.",
    )
    assert "/models/x" not in found.message


def test_on_the_cpu_memory_is_host_memory() -> None:
    line = "ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.2."
    found = classify(Exit(signal=9), [*HIT, line, *SIGQUIT], was_ready=False, oom_kills=0, device="cpu")
    assert found.reason == "OutOfHostMemory"


def test_the_message_shows_the_errors_not_the_lines_after_them() -> None:
    lines = [*HIT, "  File x", "ValueError: chunked_prefill_size must not be 0", "", *SIGQUIT]
    assert (
        "ValueError: chunked_prefill_size must not be 0"
        in classify(Exit(signal=9), lines, was_ready=False, oom_kills=0, device="cuda").message
    )


def test_without_an_error_the_last_lines_are_shown() -> None:
    assert (
        "Last lines: The server is fired up"
        in classify(Exit(code=0), ["The server is fired up"], was_ready=True, oom_kills=0, device="cuda").message
    )


@settings(max_examples=40)
@given(st.sampled_from(sorted(FAILURES)), st.text())
def test_a_message_fits_kubelets_limit_and_keeps_the_next_step(reason: str, detail: str) -> None:
    found = failure(reason, detail * 50, log=detail * 50)
    assert len(found.message.encode()) <= LONGEST_MESSAGE_BYTES
    assert FAILURES[reason] in found.message
    assert len(found.model_dump_json(by_alias=True).encode()) <= 4096
