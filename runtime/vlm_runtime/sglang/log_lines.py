"""The lines of the engine's log that mean something: phases of the start, and causes of an end.

Clients can write into the log too, so a line alone proves nothing while the engine serves.
"""

import re
from typing import Final

from vlm_api.report import Phase

# Beyond this is text of clients. Some of these expressions take time quadratic in a line's length.
READ_CHARACTERS: Final = 2000
# Colours, and what PyTorch puts before the lines of a rank's traceback.
_DECORATION: Final = re.compile(r"\x1b\[[0-9;]*m|^\[rank\d+\]: ?")

# SGLang's own INFO lines. Those of a group's ranks come in any order; phases only go forward.
_PHASES: Final = (
    (re.compile(r"Load weight begin"), Phase.LOADING_WEIGHTS),
    (re.compile(r"Capture (?:\w+ ){0,6}cuda graph begin", re.IGNORECASE), Phase.CAPTURING_GRAPHS),
    (re.compile(r"Uvicorn running on|Application startup complete"), Phase.WARMING_UP),
)


def plain(line: str) -> str:
    """The beginning of a line, without colours and the rank before it."""
    return _DECORATION.sub("", line[:READ_CHARACTERS])


def phase_of(line: str) -> Phase | None:
    """The phase that begins with this line, or None."""
    line = line[:READ_CHARACTERS]
    return next((phase for sign, phase in _PHASES if sign.search(line)), None)


def own_requests(address: str = "") -> re.Pattern[str]:
    """The access log's lines of the runtime's own requests, from the loopback address or the engine's own."""
    other = f"|{re.escape(address)}" if address else ""
    return re.compile(
        rf'(?<![\w.:])(?:127\.0\.0\.1|::1{other}):\d+ - "GET /(?:ready|health|health_generate|server_info|metrics/)'
        r' HTTP/1\.[01]" (?:200|404|503)'
    )


# Of SGLang 0.5.23, PyTorch, transformers and huggingface_hub, as observed or in their sources.
DEVICE_MEMORY: Final = re.compile(
    r"OutOfMemoryError|CUDA out of memory|CUDA error: out of memory|CUDA_ERROR_OUT_OF_MEMORY|Cuda failure.{0,40}out of memory"
    r"|CUDA driver error: out of memory|CUBLAS_STATUS_ALLOC_FAILED"
    r"|Not enough memory\. Please try to increase --mem-fraction-static|leave no GPU memory for the KV cache"
)
HOST_MEMORY: Final = re.compile(
    r"DefaultCPUAllocator: (?:can't allocate|not enough) memory|^MemoryError"
    r"|(?<!failed with error )Cannot allocate memory"  # NCCL says that of RDMA without the right to lock memory
)
NO_SPACE: Final = re.compile(r"^\w[\w.]*Error\b.*No space left on device")
SHARED_MEMORY: Final = re.compile(
    r"unable to (?:allocate|resize|mmap|write to) .*</?torch_|insufficient shared memory"
    r"|creating shared memory segment /dev/shm/nccl|^\w[\w.]*Error\b.*No space left on device.*/dev/shm"
)
# /dev/shm is full: the kernel kills a process that writes to a page it cannot back.
BUS_ERROR: Final = re.compile(r"crashed with exit code -7\b|exitcode=-7\b|\bSIGBUS\b|^Bus error")
# Without access, the hub answers as if the repository did not exist.
ACCESS_DENIED: Final = re.compile(
    r"GatedRepoError|trying to access a gated repo|\b40[13] Client Error|Client error '40[13]\b|HfHubHTTPError: 40[13]\b"
)
# Of huggingface_hub 0.36, which uses requests, and 1.33, which uses httpx; large files come by xet, with its own messages.
# The engine's warm-up request to itself uses requests too.
HUB_UNREACHABLE: Final = re.compile(
    r"We couldn't connect to '|LocalEntryNotFoundError|OfflineModeIsEnabled|outgoing traffic has been disabled"
    r"|^(?!.*host='(?:127\.0\.0\.1|localhost|::1)')(?:httpx|httpcore|requests\.exceptions|urllib3\.exceptions)\S*\."
    r"(?:Connect\w*|(?:Read|Write|Pool)Timeout|(?:Read|Write)Error|RemoteProtocolError|ProxyError|SSLError"
    r"|ChunkedEncodingError|ProtocolError|IncompleteRead|MaxRetryError|NameResolutionError)\b"
    r"|^(?:huggingface_hub|requests\.exceptions)\S*HTTPError: (?:Server error '|Client error ')?(?:408|425|429|5\d\d)\b"
    r"|^RuntimeError: .*\bCAS (?:[Ss]ervice|Client) [Ee]rror|^OSError: Consistency check failed"
    r"|^OSError: There was a specific connection error"
)
# safetensors, PyTorch's pickles, and transformers for config.json.
DAMAGED_FILE: Final = re.compile(
    r"SafetensorError: |UnpicklingError: invalid load key|^OSError: It looks like the config file at .* is not a valid JSON"
)
PERMISSION_DENIED: Final = re.compile(
    r"^PermissionError: \[Errno 13\]|^OSError: (?:PermissionError at /|\[Errno 30\] Read-only file system)"
)
# PyTorch about CUDA, as a warning or an error, and SGLang if PyTorch finds no driver.
DRIVER_UNUSABLE: Final = re.compile(
    r"CUDA initialization: |Unexpected error from cudaGetDeviceCount|No CUDA GPUs are available|Found no NVIDIA driver"
    r"|NVIDIA driver on your system is too old|CUDA driver version is insufficient|no CUDA-capable device is detected"
    r"|CUDA error: (?:system not yet initialized|system has unsupported display driver|forward compatibility was attempted)"
    r"|libcuda\.so\.1: cannot open shared object file|No accelerator \(CUDA|^RuntimeError: nvidia-smi (?:not found|error|failed)"
)
# CUDA's errors, as PyTorch and NCCL report them, without those that a kernel may cause as well.
DEVICE_FAILED: Final = re.compile(
    r"(?:CUDA error: |Cuda failure\b.{0,40})(?:uncorrectable (?:ECC|NVLink) error|hardware stack error"
    r"|CUDA-capable device\(s\) is/are busy or unavailable|Invalid access of peer GPU memory over nvlink or a hardware error)"
)
# PyTorch at the rendezvous of a group, and SGLang while its ranks wait for each other's weights.
GROUP_INCOMPLETE: Final = re.compile(
    r"Dist(?:Store|Network)Error: |there are other ranks that didn't finish loading|Failed to receive worker ports from node 0"
)
MODEL_NOT_FOUND: Final = re.compile(
    r"RepositoryNotFoundError|RevisionNotFoundError|EntryNotFoundError|HFValidationError"
    r"|Repo id must be in the form|is not a local folder and is not a valid model identifier"
    r"|does not appear to have a file named|couldn't find them in the cached files|Cannot find any model weights"
    r"|Unrecognized model in .* Should have a `model_type` key"
    r"|No such file or directory: .*(?:config\.json|tokenizer|safetensors)"
)
# huggingface_hub about a folder that does not exist: it takes the path for a repository's name.
MISLEADING: Final = re.compile(r"HFValidationError|Repo id must be in the form|valid model identifier")
BAD_ARGUMENT: Final = re.compile(r"^\S.*: error: ")
SCHEDULER_DIED: Final = re.compile(
    r"Scheduler hit an exception|Subprocess scheduler\S* .*crashed|Rank \d+ scheduler (?:is dead|died)"
    r"|Received sigquit from a child process|SIGQUIT received"
)
# SGLang 0.5.16 to 0.5.23 before it kills itself, for example if its warm-up fails.
KILLED_ITSELF: Final = re.compile(r"kill_process_tree called: parent_pid=(\d+), include_parent=True, pid=\1\b")
# SGLang before it ends itself because its warm-up request failed: the model is loaded by then.
WARM_UP_FAILED: Final = re.compile(r"\bInitialization failed\. warmup error: ")
# PyTorch, if the leader of a group cannot open the rendezvous.
GROUP_PORT_TAKEN: Final = re.compile(r"The server socket has failed to listen on any local network address")
# Uvicorn before it ends; SGLang's other processes, and so the container, keep running.
PORT_TAKEN: Final = re.compile(
    r"error while attempting to bind on address .*(?:address already in use|permission denied)"
)
CONFIGURATION_ERROR: Final = re.compile(
    r"^(?:ValueError|AssertionError|NotImplementedError|KeyError|TypeError|OSError)\b"
)
# What SGLang prints at its start holds any words that the user wrote, and helps nobody in a message.
SERVER_ARGUMENTS: Final = re.compile(r"^(?:\[[^\]]{1,60}\] )?server_args=")
ERROR_LINE: Final = re.compile(r"^[\w.]*(?:Error|Exception)\b|: error: |crashed with exit code|\bERROR\b")
