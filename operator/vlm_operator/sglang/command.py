"""From settings to the engine's command line and environment."""

import json
from collections.abc import Iterable
from typing import Any

from vlm_api.names import ENGINE_PORT, MODEL_MOUNT
from vlm_api.plan import Setting
from vlm_api.spec import ModelSpec
from vlm_operator.sglang.context import Context, is_variable

# Always passed, since the engine's defaults are wrong in a pod: it listens on the loopback address, and hides its variables
# and metrics.
HOST = "0.0.0.0"
SHOW_VARIABLES = "SGLANG_EXPOSE_OWN_ENV_VARS"


def model_path(model: ModelSpec) -> str:
    """The value of ``--model-path``: a hub id, or a path inside the pod."""
    scheme, _, rest = model.uri.partition("://")
    if scheme == "hf":
        return rest
    if scheme == "pvc":
        _, _, path = rest.partition("/")
        return f"{MODEL_MOUNT}/{path}".rstrip("/")
    return MODEL_MOUNT if scheme == "oci" else rest


def command_line(context: Context, settings: Iterable[Setting]) -> list[str]:
    """Arguments of the engine's launcher: what every pod needs, the settings, then the user's arguments as written."""
    spec, choices = context.spec, context.choices
    args = ["--model-path", model_path(spec.model)]
    if spec.model.revision is not None and spec.model.uri.startswith("hf://"):
        args += ["--revision", spec.model.revision]
    args += ["--served-model-name", context.served_model_name]
    in_args = {
        name
        for name, choice in choices.settings.items()
        if choice.path.startswith(("spec.engine.args", "spec.template"))
    }
    if "host" not in choices.settings:
        args += ["--host", HOST]
    args += ["--port", str(ENGINE_PORT)]
    parallel = spec.parallelism
    for flag, size in (("--tp-size", parallel.tensor), ("--pp-size", parallel.pipeline), ("--dp-size", parallel.data)):
        if size > 1:
            args += [flag, str(size)]
    if "enable_metrics" not in choices.settings:
        args.append("--enable-metrics")
    if not context.cuda:
        args += ["--device", "cpu"]
    for setting in settings:
        if setting.applied and not is_variable(setting.name) and setting.name not in in_args:
            args += context.engine.render_flag(setting.name, setting.value)
    return [*args, *choices.args]


def environment(context: Context, settings: Iterable[Setting]) -> dict[str, str]:
    """Variables with literal values, by name."""
    env: dict[str, str] = {}
    if context.engine.has_variable(SHOW_VARIABLES):
        env[SHOW_VARIABLES] = "1"
    for setting in settings:
        if setting.applied and is_variable(setting.name) and setting.value is not None:
            env[setting.name] = _text(setting.value)
    env |= context.choices.env
    return dict(sorted(env.items()))


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    return value if isinstance(value, str) else json.dumps(value)
