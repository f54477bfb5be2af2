"""Settings that cannot work on any cluster: the engine would not start, or would be another kind of server."""

import json
from collections.abc import Iterator
from typing import Any, Final

from vlm_operator.errors import InvalidInput
from vlm_operator.sglang.choices import Choice
from vlm_operator.sglang.context import Context, Declared
from vlm_operator.sglang.transport import LEGACY_TRANSPORT, travels_by_cuda_ipc

# Setting -> what the engine does with it, as the rest of a sentence.
OTHER_SERVERS: Final = {
    "encoder_only": "returns only the vision encoder's output, to other engines",
    "language_only": "waits for another engine to encode its images",
    "smg_grpc_mode": "speaks gRPC instead of HTTP, which the Service, the probes and clients depend on",
    "grpc_mode": "speaks gRPC instead of HTTP, which the Service, the probes and clients depend on",
    "skip_tokenizer_init": "takes and returns only token numbers, so it answers no chat request with an image",
    "is_embedding": "answers no chat request, and a replica becomes ready only by answering one with an image",
}
VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
PLUGINS_VISIBLE: Final = "NVIDIA_VISIBLE_DEVICES"
LOOPBACK: Final = ("127.", "localhost", "::1", "[::1]")
CERTIFICATE, KEY, AUTHORITIES = "ssl_certfile", "ssl_keyfile", "ssl_ca_certs"
# What the engine accepts only with a certificate and its key (arg_groups/serving_hook.py of SGLang 0.5.23).
NEED_BOTH: Final = (CERTIFICATE, KEY, AUTHORITIES, "enable_ssl_refresh")


def transport(context: Context, declared: Declared) -> Iterator[InvalidInput]:
    """A transport of image features that this number of nodes or this device does not have."""
    spec, chosen = context.spec, context.choices.settings.get("mm_feature_transport")
    if chosen is None:
        legacy = context.choices.settings.get(LEGACY_TRANSPORT)
        if legacy is not None and travels_by_cuda_ipc(declared) and not context.one_node:
            yield InvalidInput(
                legacy.path,
                f"{LEGACY_TRANSPORT}={legacy.value} turns CUDA IPC on, which cannot cross nodes, and multinode.nodeCount is "
                f"{spec.multinode.node_count}; remove it, or serve on one node",
            )
        return
    if chosen.value == "cuda_ipc" and not context.one_node:
        yield InvalidInput(
            chosen.path,
            f"cuda_ipc cannot cross nodes and multinode.nodeCount is {spec.multinode.node_count}; "
            "remove it, or serve on one node",
        )
    if chosen.value == "cuda_vmm" and spec.parallelism.pipeline > 1:
        yield InvalidInput(
            chosen.path,
            f"cuda_vmm needs parallelism.pipeline 1 and it is {spec.parallelism.pipeline}; remove one of them",
        )
    if chosen.value in ("cuda_ipc", "cuda_vmm") and not context.cuda:
        yield InvalidInput(chosen.path, f"{chosen.value} needs a GPU and hardware.device is cpu; remove it")


def graph_sizes(context: Context, declared: Declared) -> Iterator[InvalidInput]:
    """A limit of the decode graph that contradicts its list of sizes."""
    sizes, limit = (context.choices.settings.get(f"cuda_graph_{what}_decode") for what in ("bs", "max_bs"))
    if sizes and limit and max(map(int, sizes.value)) != int(limit.value):
        yield InvalidInput(
            limit.path,
            f"{limit.value} is not the largest of the sizes {list(sizes.value)} in {sizes.path}, which the engine uses: "
            "remove one of them",
        )


def client_access(context: Context, declared: Declared) -> Iterator[InvalidInput]:
    """A host that no client reaches, half of a disaggregated pair, or JSON that is not JSON."""
    settings = context.choices.settings
    host = settings.get("host")
    if host is not None and str(host.value).startswith(LOOPBACK):
        yield InvalidInput(
            host.path,
            f"{host.value} is the loopback address, which no client reaches: remove it, or use 0.0.0.0, which is every IPv4 "
            "address, and every IPv6 address on pods without IPv4; :: is IPv6 only",
        )
    mode = settings.get("disaggregation_mode")
    if mode is not None and mode.value not in (None, "null"):
        yield InvalidInput(
            mode.path,
            f"{mode.value} splits prefill and decode over two engines, and a VLMService runs one: remove it, "
            "or run such a pair without the operator",
        )
    overrides = settings.get("json_model_override_args")
    if overrides is not None:
        try:
            json.loads(str(overrides.value))
        except ValueError as error:
            yield InvalidInput(overrides.path, f"is not JSON ({error}): write it like '{{\"key\": 1}}'")


def tokenizer_workers_with_key(context: Context, declared: Declared) -> Iterator[InvalidInput]:
    """Several tokenizer workers with an API key, which every release asserts against in each worker."""
    workers = context.choices.settings.get("tokenizer_worker_num")
    if workers is not None and int(workers.value) > 1 and context.spec.security.api_key_secret_ref is not None:
        yield InvalidInput(
            workers.path,
            f"{workers.value} tokenizer workers accept no API key, and security.apiKeySecretRef is set, so the engine would "
            "not start: remove one of them",
        )


def other_servers(context: Context, declared: Declared) -> Iterator[InvalidInput]:
    """A flag with which no replica ever answers chat requests over HTTP."""
    for name, becomes in OTHER_SERVERS.items():
        choice = context.choices.settings.get(name)
        if choice is not None and choice.value:
            yield InvalidInput(choice.path, f"with {name} the engine {becomes}: remove it")
    grpc, security = context.choices.settings.get("grpc_port"), context.spec.security
    if grpc is not None and security.api_key_secret_ref is not None:
        yield InvalidInput(
            grpc.path,
            "the engine's gRPC port accepts no API key and security.apiKeySecretRef is set, so the engine would not start: "
            "remove one of them",
        )


def foreign_devices(context: Context, declared: Declared) -> Iterator[InvalidInput]:
    """GPUs other than those of the pod, which are numbered from 0 in it."""
    devices, settings = context.devices_per_pod, context.choices.settings
    if not context.cuda:
        return
    if PLUGINS_VISIBLE in context.choices.env or PLUGINS_VISIBLE in context.choices.referenced_env:
        where = _where(context, PLUGINS_VISIBLE)
        yield InvalidInput(where, f"{PLUGINS_VISIBLE} assigns the pod its GPUs: remove it")
    base, step = (settings.get(name) for name in ("base_gpu_id", "gpu_id_step"))
    last = _number(base, 0) + (devices - 1) * _number(step, 1)
    wrong = next((choice for choice in (step, base) if choice is not None), None)
    if wrong is not None and (last >= devices or _number(base, 0) < 0 or _number(step, 1) < 1):
        yield InvalidInput(
            wrong.path,
            f"the pod has {devices} GPU{'s' * (devices != 1)}, numbered from 0, and {wrong.value} selects others: "
            "remove base_gpu_id and gpu_id_step",
        )
    visible = context.choices.env.get(VISIBLE)
    if visible is None:
        return
    shown = [entry.strip() for entry in visible.split(",")]
    if len(shown) < devices or any(entry.isdecimal() and int(entry) >= devices for entry in shown) or not all(shown):
        yield InvalidInput(
            _where(context, VISIBLE),
            f"{VISIBLE} must list all {devices} GPU{'s' * (devices != 1)} of the pod, numbered from 0: remove it",
        )


def json_shapes(context: Context, declared: Declared) -> Iterator[InvalidInput]:
    """JSON of a shape that the engine asserts against, or a limit of no images."""
    settings = context.choices.settings
    processing = settings.get("mm_process_config")
    if processing is not None and not (
        isinstance(processing.value, dict) and all(isinstance(part, dict) for part in processing.value.values())
    ):
        example = '{"image": {"size": {"longest_edge": 1048576}}}'
        yield InvalidInput(processing.path, f"mm_process_config must be an object of objects, such as {example}")
    limits = settings.get("limit_mm_data_per_request")
    if limits is None:
        return
    value = limits.value
    if not isinstance(value, dict) or not all(type(n) is int and n >= 0 for n in value.values()):
        example = '{"image": 4}'
        yield InvalidInput(limits.path, f"limit_mm_data_per_request must give whole numbers, such as {example}")
    elif value.get("image") == 0:
        yield InvalidInput(
            limits.path, "image is 0, and a replica becomes ready by answering a request with an image: allow one"
        )


def rank_groups(context: Context, declared: Declared) -> Iterator[InvalidInput]:
    """Groups of tensor ranks that do not divide them, or that are declared twice."""
    settings, tensor = context.choices.settings, context.spec.parallelism.tensor
    for name in ("attn_dp_size", "attn_cp_size", "moe_dp_size"):
        choice = settings.get(name)
        if choice is not None and (int(choice.value) < 1 or tensor % int(choice.value)):
            yield InvalidInput(
                choice.path, f"{name} {choice.value} does not divide parallelism.tensor {tensor}: correct it"
            )
    data, grouped = context.spec.parallelism.data, settings.get("enable_dp_attention")
    groups = settings.get("attn_dp_size")
    if groups is not None and int(groups.value) > 1 and data > 1:
        yield InvalidInput(
            groups.path,
            f"attn_dp_size {groups.value} groups the tensor ranks, and the engine accepts no parallelism.data {data} beside "
            "it: remove one of them",
        )
    if grouped is not None and grouped.value and tensor % data:
        yield InvalidInput(
            "spec.parallelism.data",
            f"{data} does not divide parallelism.tensor {tensor}, whose ranks {grouped.path} groups by it: correct it",
        )


def chunk_size(context: Context, declared: Declared) -> Iterator[InvalidInput]:
    """Prefill chunks that are not whole pages."""
    settings = context.choices.settings
    chunk, page = declared.value("chunked_prefill_size"), declared.value("page_size")
    if chunk and page and int(chunk) > 0 and int(chunk) % int(page):
        path = (settings.get("chunked_prefill_size") or settings["page_size"]).path
        yield InvalidInput(path, f"chunked_prefill_size {chunk} must be a multiple of page_size {page}: correct it")


def half_certificates(context: Context, declared: Declared) -> Iterator[InvalidInput]:
    """A certificate without its key, or the reverse."""
    settings = context.choices.settings
    given = [name for name in NEED_BOTH if name in settings and settings[name].value]
    missing = [name for name in (CERTIFICATE, KEY) if name not in given]
    if given and missing:
        yield InvalidInput(
            settings[given[0]].path,
            f"the engine accepts {given[0]} only with {' and '.join(missing)}, and would not start without: set both, or "
            "remove it",
        )


def attention_backends(context: Context, declared: Declared) -> Iterator[InvalidInput]:
    """A base backend that the engine would replace: prefill and decode both name another, or it cannot read the cache."""
    settings = context.choices.settings
    base, prefill, decode = (settings.get(f"{part}attention_backend") for part in ("", "prefill_", "decode_"))
    if base and prefill and decode and prefill.value == decode.value != base.value:
        yield InvalidInput(
            base.path,
            f"attention_backend {base.value} is never used, since prefill and decode are both {prefill.value} "
            f"({prefill.path}, {decode.path}): remove it",
        )
    cache = settings.get("kv_cache_dtype")
    if base and cache and base.value == "fa3" and cache.value == "fp8_e5m2":
        yield InvalidInput(
            base.path,
            f"attention_backend fa3 cannot read {cache.value} ({cache.path}), so the engine would use triton: remove it, "
            "or use kv_cache_dtype fp8_e4m3",
        )


def _where(context: Context, variable: str) -> str:
    """The field in which the user set a variable."""
    for position, written in enumerate(context.spec.engine.env):
        if written.name == variable:
            return f"spec.engine.env[{position}]"
    return "spec.template.spec.containers[name=main].env"


def _number(choice: Choice | None, default: int) -> int:
    value: Any = default if choice is None else choice.value
    return int(value)
