"""What the user wrote comes first, is never changed, and is shown as theirs."""

from collections.abc import Iterator
from typing import Final

from vlm_api.plan import Setting, Source
from vlm_operator.sglang.context import Context, Declared, applied, left
from vlm_operator.sglang.transport import LEGACY_TRANSPORT, declines_cuda_ipc

MEDIA_DOMAINS: Final = "allowed_media_domains"
NO_CUDA_IPC: Final = "user.no_cuda_ipc"


def written(context: Context, declared: Declared) -> Iterator[Setting]:
    """Every setting that the user wrote, wherever it was written."""
    for name, choice in sorted(context.choices.settings.items()):
        yield applied(name, choice.value, Source.USER, "user", f"written in {choice.path}")
    for name in sorted(context.choices.referenced_env):
        if name not in context.choices.settings and context.engine.has_variable(name):
            yield applied(
                name, None, Source.USER, "user", "set by reference (valueFrom), so its value is not known here"
            )


def media_domains(context: Context, declared: Declared) -> Iterator[Setting]:
    """Hosts from which images may be fetched. The engine compares the exact host, also of every redirect (0.5.18)."""
    domains, rule = context.spec.security.allowed_media_domains, "user.media_domains"
    if not domains:
        return
    if context.knows(MEDIA_DOMAINS):
        yield applied(MEDIA_DOMAINS, list(domains), Source.USER, rule, "written in spec.security.allowedMediaDomains")
    else:
        yield left(MEDIA_DOMAINS, rule, f"{context.engine_name()} has no such flag")


def no_cuda_ipc(context: Context, declared: Declared) -> Iterator[Setting]:
    """A choice that rules CUDA IPC out, in any spelling, is passed as ``cpu``, since the engine would choose CUDA IPC."""
    declined = declines_cuda_ipc(context)
    if declined is None or "mm_feature_transport" in declared or not _engine_might_choose_it(context):
        return
    _, reason = declined
    if not context.tuned and not reason.startswith(LEGACY_TRANSPORT):
        return  # not an explicit choice of a transport, and Off passes only those
    yield applied(
        "mm_feature_transport", "cpu", Source.USER, NO_CUDA_IPC, f"{reason}; the engine would use CUDA IPC otherwise"
    )


def _engine_might_choose_it(context: Context) -> bool:
    if not (context.cuda and context.one_node and context.knows("mm_feature_transport")):
        return False
    if context.family is None or not context.family.profiles:
        return False
    return context.profile is not None or context.gpu is None or context.gpu.compute_capability is None
