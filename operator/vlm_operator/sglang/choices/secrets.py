"""Secrets in plain text, which everyone who may read a VLMService, its plan or its pods could read."""

import json
import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, Final

from vlm_api.names import MAIN_CONTAINER
from vlm_operator.errors import InvalidInput
from vlm_operator.sglang.catalogue.fields import Field

# The name says that the value is a secret: HF_TOKEN, AWS_SECRET_ACCESS_KEY, PGPASSWORD, GITHUB_PAT; not
# TOKENIZERS_PARALLELISM, PATH and PWD.
_SECRET: Final = re.compile(
    r"PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|APIKEY|ACCESSKEY|SECRETKEY|^AUTHORIZATION$"
    r"|(^|_)(SECRET|PASS|API_KEY|ACCESS_KEY|PRIVATE_KEY)(_|$)|(^|_)(TOKEN|KEY|PAT)$|_PWD$",
    re.IGNORECASE,
)
_NO_SECRET: Final = re.compile(r"_(PATH|FILE|DIR|NAME|URL|TIMEOUT)$", re.IGNORECASE)
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
# eos_token and its kind in a model's configuration: <|im_end|>, [PAD].
_SPECIAL_TOKEN: Final = re.compile(r"<.*>|\[.*\]", re.DOTALL)
_URL_PASSWORD: Final = re.compile(r"://[^/\s@:]*:[^/\s@]+@")
_PROXY_PASSWORD: Final = re.compile(r"[^/\s@:]*:[^/\s@]+@")
_HEADER: Final = re.compile(r"(authorization|api[-_]key)\s*[:=]\s*\S|^bearer\s+\S+$", re.IGNORECASE)


def refuse_secret(name: str, declared: Field | None, path: str) -> None:
    """Raises InvalidInput for a variable whose name says that its value is a secret."""
    harmless = declared is not None and declared.kind != "str"
    if not harmless and _names_secret(name):
        raise InvalidInput(
            path, f"{name} looks like a secret, which must not be in plain text here: {_by_reference(name)}"
        )


def refuse_secrets_of_others(template: Mapping[str, Any]) -> None:
    """Raises InvalidInput for a variable of another container than the engine's that is or holds a secret."""
    pod = template.get("spec") or {}
    for kind in ("initContainers", "containers"):
        for container in pod.get(kind) or []:
            if container.get("name") == MAIN_CONTAINER:
                continue
            for position, entry in enumerate(container.get("env") or []):
                name, text = entry.get("name"), entry.get("value")
                if text and "$(" not in text and (_names_secret(name) or _what_variable_holds(name, text)):
                    raise InvalidInput(
                        f"spec.template.spec.{kind}[name={container['name']}].env[{position}]",
                        f"{name} looks like a secret, which must not be in plain text here: put it into a Secret and refer to it "
                        "with valueFrom.secretKeyRef",
                    )


def refuse_secret_in_variable(name: str, text: str, path: str) -> None:
    """Raises InvalidInput for a variable that holds a secret among other things, such as a proxy's password."""
    for what in _what_variable_holds(name, text):
        raise InvalidInput(path, f"{name} contains {what}, which must not be in plain text here: {_by_reference(name)}")


def refuse_secret_in_value(name: str, value: Any, path: str) -> None:
    """Raises InvalidInput for a setting or an argument that holds a secret, such as a key of its JSON."""
    for what in _secrets_in(value):
        raise InvalidInput(
            path,
            f"{name} contains {what}, which must not be in plain text here: put it into a Secret, and give it to the engine by "
            "a variable with valueFrom.secretKeyRef in spec.engine.env, or by a file of a volume in spec.template",
        )


def _by_reference(name: str) -> str:
    return f"put it into a Secret and refer to it: spec.engine.env with name {name} and valueFrom.secretKeyRef"


def _what_variable_holds(name: str, text: str) -> list[str]:
    is_proxy = name.lower().endswith("_proxy")
    return ["a password in a URL"] if is_proxy and _PROXY_PASSWORD.match(text) else [*_secrets_in(text)]


def _names_secret(name: str) -> bool:
    return bool(_SECRET.search(name)) and not _NO_SECRET.search(name)


def _is_secret(name: str, text: str) -> bool:
    return text != "" and not _SPECIAL_TOKEN.fullmatch(text) and _names_secret(name)


def _secrets_in(value: Any) -> Iterator[str]:
    """What a value holds that looks like a secret, without the secret."""
    if isinstance(value, str):
        yield from _secrets_in_text(value)
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            if isinstance(inner, str) and _is_secret(_plain(str(key)), inner):
                yield f"{key}, which looks like a secret"
            yield from _secrets_in(inner)
    elif isinstance(value, list):
        for word, following in pairwise([*value, None]):
            flag, equals, _ = word.partition("=") if isinstance(word, str) else ("", "", "")
            if flag.startswith("--") and (equals or isinstance(following, str)) and _names_secret(_plain(flag[2:])):
                yield f"{flag}, which looks like a secret"
            yield from _secrets_in(word)


def _secrets_in_text(text: str) -> Iterator[str]:
    if text.lstrip()[:1] in ("{", "["):
        try:
            yield from _secrets_in(json.loads(text))
        except (ValueError, RecursionError):
            pass
        else:
            return
    if _URL_PASSWORD.search(text):
        yield "a password in a URL"
    if _HEADER.search(text):
        yield "a header with a key"


def _plain(key: str) -> str:
    return _CAMEL.sub("_", key).replace("-", "_")
