"""Arguments that no cluster can make work: they turn the engine into another kind of server, or reach for other GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from vlm_api.plan import Setting
from vlm_operator.errors import InvalidInput
from vlm_operator.resolve.context import Context, Declared

# Setting -> what the engine becomes with it, as the rest of a sentence.
OTHER_SERVERS: Final = {
    "encoder_only": "serves no answers but the vision encoder's output, to other engines",
    "language_only": "waits for another engine to encode its images",
    "smg_grpc_mode": "speaks gRPC in place of HTTP, which the Service, the probes and clients depend on",
    "grpc_mode": "speaks gRPC in place of HTTP, which the Service, the probes and clients depend on",
    "skip_tokenizer_init": "takes and gives token numbers only, so no chat request with an image is ever answered",
    "is_embedding": "answers no chat request, and a replica is ready once it has answered one with an image",
}
VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
PLUGINS_VISIBLE: Final = "NVIDIA_VISIBLE_DEVICES"


def another_server(context: Context, declared: Declared) -> Iterator[Setting]:
    """Raises InvalidInput for a flag with which no replica would ever answer chat requests over HTTP."""
    for name, becomes in OTHER_SERVERS.items():
        choice = context.choices.settings.get(name)
        if choice is not None and choice.value:
            raise InvalidInput(choice.path, f"with {name} the engine {becomes}: remove it")
    grpc, security = context.choices.settings.get("grpc_port"), context.spec.security
    if grpc is not None and security.api_key_secret_ref is not None:
        raise InvalidInput(
            grpc.path,
            "the engine's gRPC port takes no API key and security.apiKeySecretRef is set, so the engine would end at its "
            "start: remove one of them",
        )
    yield from ()


def shapes(context: Context, declared: Declared) -> Iterator[Setting]:
    """Raises InvalidInput for JSON and sizes that the engine asserts against at its start, and for a limit of no images."""
    settings = context.choices.settings
    processing = settings.get("mm_process_config")
    if processing is not None and not (
        isinstance(processing.value, dict) and all(isinstance(part, dict) for part in processing.value.values())
    ):
        example = '{"image": {"size": {"longest_edge": 1048576}}}'
        raise InvalidInput(processing.path, f"mm_process_config must be an object of objects, such as {example}")
    limits = settings.get("limit_mm_data_per_request")
    if limits is not None:
        value = limits.value
        if not isinstance(value, dict) or not all(type(n) is int and n >= 0 for n in value.values()):
            example = '{"image": 4}'
            raise InvalidInput(limits.path, f"limit_mm_data_per_request must give whole numbers, such as {example}")
        if value.get("image") == 0:
            raise InvalidInput(
                limits.path,
                "image is 0, and a replica is ready once it has answered a request with an image: allow one",
            )
    tensor = context.spec.parallelism.tensor
    for name in ("attn_dp_size", "attn_cp_size", "moe_dp_size"):
        choice = settings.get(name)
        if choice is not None and (int(choice.value) < 1 or tensor % int(choice.value)):
            raise InvalidInput(
                choice.path, f"{name} {choice.value} does not divide parallelism.tensor {tensor}: correct it"
            )
    data, grouped = context.spec.parallelism.data, settings.get("enable_dp_attention")
    groups = settings.get("attn_dp_size")
    if groups is not None and int(groups.value) > 1 and data > 1:
        raise InvalidInput(
            groups.path,
            f"attn_dp_size {groups.value} groups the tensor ranks, and the engine takes no parallelism.data {data} beside it: "
            "remove one of them",
        )
    if grouped is not None and grouped.value and tensor % data:
        raise InvalidInput(
            "spec.parallelism.data",
            f"{data} does not divide parallelism.tensor {tensor}, whose ranks {grouped.path} groups by it: correct it",
        )
    chunk, page = declared.value("chunked_prefill_size"), declared.value("page_size")
    if chunk and page and int(chunk) > 0 and int(chunk) % int(page):
        path = (settings.get("chunked_prefill_size") or settings["page_size"]).path
        raise InvalidInput(path, f"chunked_prefill_size {chunk} must be a multiple of page_size {page}")
    yield from ()


def own_devices(context: Context, declared: Declared) -> Iterator[Setting]:
    """Raises InvalidInput for GPUs beside those that the pod gets, which are numbered from 0 in it."""
    devices, settings = context.devices_per_pod, context.choices.settings
    if not context.cuda:
        return
    if PLUGINS_VISIBLE in context.choices.env or PLUGINS_VISIBLE in context.choices.referenced_env:
        where = _where(context, PLUGINS_VISIBLE)
        raise InvalidInput(where, f"{PLUGINS_VISIBLE} is how the pod is told which GPUs are its own: remove it")
    base, step = (settings.get(name) for name in ("base_gpu_id", "gpu_id_step"))
    last = _number(base, 0) + (devices - 1) * _number(step, 1)
    wrong = next((choice for choice in (step, base) if choice is not None), None)
    if wrong is not None and (last >= devices or _number(base, 0) < 0 or _number(step, 1) < 1):
        raise InvalidInput(
            wrong.path,
            f"the pod has {devices} GPU{'s' * (devices != 1)}, numbered from 0, and {wrong.value} reaches for others: "
            "remove base_gpu_id and gpu_id_step",
        )
    visible = context.choices.env.get(VISIBLE)
    if visible is not None:
        shown = [entry.strip() for entry in visible.split(",")]
        if (
            len(shown) < devices
            or any(entry.isdecimal() and int(entry) >= devices for entry in shown)
            or not all(shown)
        ):
            raise InvalidInput(
                _where(context, VISIBLE),
                f"{VISIBLE} must show all {devices} GPU{'s' * (devices != 1)} of the pod, numbered from 0: remove it",
            )
    yield from ()


def _where(context: Context, variable: str) -> str:
    """The field in which the user set a variable."""
    for position, written in enumerate(context.spec.engine.env):
        if written.name == variable:
            return f"spec.engine.env[{position}]"
    return "spec.template.spec.containers[name=main].env"


def _number(choice: Any, default: int) -> int:
    return default if choice is None else int(choice.value)
