"""What the user wrote comes first, is never changed, and is shown as theirs."""

from __future__ import annotations

import json
from collections.abc import Iterator

from vlm_api.plan import Finding, Setting, Severity, Source
from vlm_operator.errors import InvalidInput
from vlm_operator.resolve.conditions import LEGACY_TRANSPORT, declines_cuda_ipc, travels_by_cuda_ipc
from vlm_operator.resolve.context import Context, Declared, applied


def written(context: Context, declared: Declared) -> Iterator[Setting]:
    """Every setting that the user wrote, wherever it was written."""
    for name, choice in sorted(context.choices.settings.items()):
        yield applied(name, choice.value, Source.USER, "user", f"written in {choice.path}")
    for name in sorted(context.choices.referenced_env):
        if name not in context.choices.settings and context.engine.has_variable(name):
            yield applied(
                name, None, Source.USER, "user", "set by reference (valueFrom), so its value is not known here"
            )


def possible(context: Context, declared: Declared) -> Iterator[Setting]:
    """Raises InvalidInput for a choice with which the engine refuses to start whatever the cluster is."""
    transport = context.choices.settings.get("mm_feature_transport")
    if transport is not None:
        spec = context.spec
        if transport.value == "cuda_ipc" and not context.one_node:
            raise InvalidInput(
                transport.path,
                f"cuda_ipc cannot cross nodes and multinode.nodeCount is {spec.multinode.node_count}; "
                "remove it, or serve on one node",
            )
        if transport.value == "cuda_vmm" and spec.parallelism.pipeline > 1:
            raise InvalidInput(
                transport.path,
                f"cuda_vmm needs parallelism.pipeline 1 and it is {spec.parallelism.pipeline}; remove one of them",
            )
        if transport.value in ("cuda_ipc", "cuda_vmm") and not context.cuda:
            raise InvalidInput(transport.path, f"{transport.value} needs a GPU and hardware.device is cpu; remove it")
    legacy = context.choices.settings.get(LEGACY_TRANSPORT)
    if legacy is not None and travels_by_cuda_ipc(declared) and transport is None and not context.one_node:
        raise InvalidInput(
            legacy.path,
            f"{LEGACY_TRANSPORT}={legacy.value} asks for CUDA IPC, which cannot cross nodes, and multinode.nodeCount is "
            f"{context.spec.multinode.node_count}; remove it, or serve on one node",
        )
    sizes, limit = (context.choices.settings.get(f"cuda_graph_{what}_decode") for what in ("bs", "max_bs"))
    if sizes and limit and max(map(int, sizes.value)) != int(limit.value):
        raise InvalidInput(
            limit.path,
            f"{limit.value} is not the largest of the sizes {list(sizes.value)} in {sizes.path}, which the engine goes by: "
            "remove one of them",
        )
    yield from ()


def keyed(context: Context, declared: Declared) -> Iterator[Setting]:
    """Raises InvalidInput for several tokenizer workers with a key, against which every release asserts in each worker."""
    workers = context.choices.settings.get("tokenizer_worker_num")
    if workers is not None and int(workers.value) > 1 and context.spec.security.api_key_secret_ref is not None:
        raise InvalidInput(
            workers.path,
            f"{workers.value} tokenizer workers take no API key, and security.apiKeySecretRef is set, so the engine would "
            "end at its start: remove one of them",
        )
    yield from ()


LOOPBACK = ("127.", "localhost", "::1", "[::1]")


def reachable(context: Context, declared: Declared) -> Iterator[Setting]:
    """Raises InvalidInput for arguments that work against the service itself."""
    settings = context.choices.settings
    host = settings.get("host")
    if host is not None and str(host.value).startswith(LOOPBACK):
        raise InvalidInput(
            host.path,
            f"{host.value} is the loopback address, which no client reaches: remove it, or use 0.0.0.0, which is every IPv4 "
            "address, and every IPv6 address on pods that have no other; :: is IPv6 alone",
        )
    mode = settings.get("disaggregation_mode")
    if mode is not None and mode.value not in (None, "null"):
        raise InvalidInput(
            mode.path,
            f"{mode.value} splits prefill and decode over two engines, and a VLMService is one: remove it, "
            "or run such a pair without the operator",
        )
    overrides = settings.get("json_model_override_args")
    if overrides is not None:
        try:
            json.loads(str(overrides.value))
        except ValueError as error:
            raise InvalidInput(overrides.path, f"is not JSON ({error}): write it like '{{\"key\": 1}}'") from None
    yield from ()


def no_to_cuda_ipc(context: Context, declared: Declared) -> Iterator[Setting | Finding]:
    """A "no" to CUDA IPC in any spelling is passed on as ``cpu``: the engine would choose CUDA IPC otherwise."""
    declined = declines_cuda_ipc(context)
    if declined is None or "mm_feature_transport" in declared or not _engine_might_choose_it(context):
        return
    path, reason = declined
    if not context.tuned and not reason.startswith(LEGACY_TRANSPORT):
        return  # "no" was not said in words, and Off passes only those
    yield applied(
        "mm_feature_transport", "cpu", Source.USER, "user.no_cuda_ipc", f"{reason}; the engine would take CUDA IPC"
    )
    if "expandable_segments" in reason:
        yield Finding(
            severity=Severity.WARNING,
            reason="CudaIpcNotUsed",
            message=f"{reason}; image features go through the CPU instead. Remove expandable_segments to use CUDA IPC",
            path=path,
        )


def _engine_might_choose_it(context: Context) -> bool:
    if not (context.cuda and context.one_node and context.knows("mm_feature_transport")):
        return False
    if context.family is None or not context.family.profiles:
        return False
    return context.profile is not None or context.gpu is None or context.gpu.compute_capability is None
