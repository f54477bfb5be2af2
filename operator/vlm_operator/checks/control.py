"""Settings that hand the pod, or the control of its engine, to clients, models or other code."""

from collections.abc import Iterator
from typing import Final

from vlm_api.names import ENV_MEDIA_FILES
from vlm_api.plan import Finding, warning
from vlm_api.reasons import FindingReason
from vlm_operator.checks.types import CheckInput

# Setting -> what it does.
_RUN_CODE: Final = {
    "enable_custom_logit_processor": "every client can send Python code, which the engine runs with the pod's rights",
    "forward_hooks": "the engine imports the functions that it names and runs them for each request",
    "custom_weight_loader": "the engine imports the functions that it names and runs them on the weights",
    "custom_sigquit_handler": "the engine imports the function that it names and runs it",
    "sidecar": "the engine imports the module that it names and runs it",
    "SGLANG_EXTERNAL_MODEL_PACKAGE": "the engine imports the package that it names",
    "SGLANG_EXTERNAL_MM_PROCESSOR_PACKAGE": "the engine imports the package that it names",
    "trust_request_chat_template": "every client can send a chat template, which the engine runs",
    "tool_server": "requests can call the tools that it names, from the pod",
}
_FOR_CLIENTS: Final = frozenset({"enable_custom_logit_processor", "trust_request_chat_template", "tool_server"})
# Setting or variable -> the server that it starts beside the one on port 8000, which the plugin guards.
_SERVERS: Final = {
    "grpc_port": "the gRPC server",
    "SGLANG_GRPC_PORT": "the gRPC server",
    "DUMPER_SERVER_PORT": "the server of SGLang's dumper",
}
# With "reuse", the dumper answers on the guarded port.
_NO_SERVER: Final = frozenset({"", "-1", "None", "reuse"})
_COMMIT_LENGTH: Final = 40
_TRUSTED: Final = "let only trusted clients reach the pods by a NetworkPolicy"


def foreign_code(plan: CheckInput) -> Iterator[Finding]:
    """Settings that run code of clients or modules, and a model's code that can change."""
    settings = plan.context.choices.settings
    for name, consequence in _RUN_CODE.items():
        if (choice := settings.get(name)) is not None and choice.value:
            step = "remove it, or name only modules that you trust"
            if name in _FOR_CLIENTS:
                step = f"remove it, or set spec.security.apiKeySecretRef and {_TRUSTED}"
            yield warning(FindingReason.ENGINE_RUNS_CODE, f"with {name}, {consequence}: {step}", choice.path)
    model, trusted = plan.context.spec.model, settings.get("trust_remote_code")
    if trusted is None or not trusted.value or not model.uri.startswith("hf://") or _is_commit(model.revision):
        return
    yield warning(
        FindingReason.ENGINE_RUNS_CODE,
        "with trust_remote_code, the engine runs the code of the model's repository, which its owner can change at any time: "
        "set spec.model.revision to the commit that you have read (40 hex digits), or remove trust_remote_code",
        trusted.path,
    )


def _is_commit(revision: str | None) -> bool:
    return revision is not None and len(revision) == _COMMIT_LENGTH and set(revision) <= set("0123456789abcdef")


def other_servers(plan: CheckInput) -> Iterator[Finding]:
    """A second server with control paths, without the plugin and without a key."""
    choices = plan.context.choices
    for name, server in _SERVERS.items():
        choice = choices.settings.get(name)
        value = str(choice.value) if choice is not None else choices.env.get(name, "")
        if value not in _NO_SERVER or name in choices.referenced_env:
            yield warning(
                FindingReason.CONTROL_PATHS_OPEN,
                f"{name} starts {server}, which takes control requests (such as flush and pause) without a key and without the "
                f"plugin that closes the engine's control paths: remove it, or {_TRUSTED}",
                choice.path if choice is not None else "spec.engine.env",
            )


def media_files(plan: CheckInput) -> Iterator[Finding]:
    """Clients may name files of the pod."""
    if plan.context.choices.env.get(ENV_MEDIA_FILES) == "1" or ENV_MEDIA_FILES in plan.context.choices.referenced_env:
        yield warning(
            FindingReason.MEDIA_FILES_OPEN,
            f"with {ENV_MEDIA_FILES}, every client can have each file of the pod opened as an image or a video, also files "
            f"without an end, such as /dev/zero: remove it, or {_TRUSTED}",
            "spec.engine.env",
        )
