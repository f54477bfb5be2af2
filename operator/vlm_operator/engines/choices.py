"""What the user decided about the engine, from all the places where it can be said."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from vlm_api.names import ENV_API_KEY, ENV_HF_TOKEN, MAIN_CONTAINER
from vlm_api.plan import Finding, Severity
from vlm_api.spec import VLMServiceSpec
from vlm_operator.engines.arguments import Argument, parse
from vlm_operator.engines.catalogue import Release, known, versions, versions_with
from vlm_operator.engines.fields import Field
from vlm_operator.engines.types import Choice, UserChoices
from vlm_operator.engines.values import from_environment, shown, typed
from vlm_operator.errors import InvalidInput

UNCHECKED: Final = "EngineSettingUnchecked"
DEPRECATED: Final = "EngineSettingDeprecated"
WITHOUT_EFFECT: Final = "EngineSettingWithoutEffect"
UNKNOWN_VARIABLE: Final = "EngineVariableUnknown"

_SETTINGS: Final = "spec.engine.settings"
_MAIN: Final = f"spec.template.spec.containers[name={MAIN_CONTAINER}]"
_ENGINES_OWN: Final = re.compile(r"SGL(ANG)?_")
_OPERATORS_OWN: Final = "VLMSERVE_"
# The name says that the value is a secret: HF_TOKEN, AWS_SECRET_ACCESS_KEY, PGPASSWORD, GITHUB_PAT; not
# TOKENIZERS_PARALLELISM, PATH and PWD.
_SECRET: Final = re.compile(
    r"PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|APIKEY"
    r"|(^|_)(SECRET|PASS|API_KEY|ACCESS_KEY|PRIVATE_KEY)(_|$)|(^|_)(TOKEN|KEY|PAT)$|_PWD$",
    re.IGNORECASE,
)
_NO_SECRET: Final = re.compile(r"_(PATH|FILE|DIR|NAME|URL|TIMEOUT)$", re.IGNORECASE)


def user_choices(spec: VLMServiceSpec, engine: Release) -> UserChoices:
    """Everything that the user says about the engine, checked against what ``engine`` knows.

    Read in the order of precedence: arguments and variables of container ``main`` in ``spec.template``,
    ``spec.engine.args``, ``spec.engine.env``, ``spec.engine.settings``. What is said twice must be the same; then it
    counts where it was said first. Raises InvalidInput for what cannot be right, naming the field, the value and what
    to do about it.
    """
    said = _Said(engine, secrets=_secrets(spec))
    main = _main(spec)
    said.arguments(parse(main.get("args") or [], engine, f"{_MAIN}.args"))
    said.environment(_template_env(main))
    said.arguments(parse(spec.engine.args, engine, "spec.engine.args"))
    said.environment(
        _Variable(variable.name, variable.value, variable.value_from, f"spec.engine.env[{position}]")
        for position, variable in enumerate(spec.engine.env)
    )
    said.written(spec.engine.settings)
    if spec.security.allowed_media_domains and (twice := said.settings.get("allowed_media_domains")):
        raise InvalidInput(
            twice.path, "allowed_media_domains is also set by spec.security.allowedMediaDomains: say it once"
        )
    return UserChoices(
        settings=dict(said.settings),
        args=tuple(said.words),
        env=dict(said.env),
        referenced_env=frozenset(said.references),
        findings=tuple(said.findings),
    )


def _secrets(spec: VLMServiceSpec) -> dict[str, str]:
    named = {
        ENV_HF_TOKEN: (spec.model.token_secret_ref, "spec.model.tokenSecretRef"),
        ENV_API_KEY: (spec.security.api_key_secret_ref, "spec.security.apiKeySecretRef"),
    }
    return {variable: path for variable, (reference, path) in named.items() if reference is not None}


@dataclass(frozen=True)
class _Variable:
    name: str
    value: str | None
    value_from: Mapping[str, Any] | None
    path: str


def _main(spec: VLMServiceSpec) -> Mapping[str, Any]:
    """The engine's container in ``spec.template``, whose shape the types have checked; empty where it is not there."""
    containers = (spec.template.get("spec") or {}).get("containers") or []
    return next((container for container in containers if container["name"] == MAIN_CONTAINER), {})


def _template_env(main: Mapping[str, Any]) -> Iterator[_Variable]:
    for position, entry in enumerate(main.get("env") or []):
        if "$patch" not in entry:
            yield _Variable(entry["name"], entry.get("value"), entry.get("valueFrom"), f"{_MAIN}.env[{position}]")


@dataclass
class _Said:
    """What was said so far, from the highest precedence to the lowest."""

    engine: Release
    secrets: Mapping[str, str]
    """Variables that the operator sets from a Secret -> the field that names it."""
    settings: dict[str, Choice] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    references: dict[str, tuple[Any, str]] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    _literals: dict[str, str] = field(default_factory=dict)
    """Variable -> where its literal value stands."""

    def arguments(self, arguments: Iterable[Argument]) -> None:
        """Arguments of one place. A flag that was already said is not passed again."""
        passed: list[str] = []
        for argument in arguments:
            if argument.field is None:
                self._tell(Severity.WARNING, UNCHECKED, _unchecked(argument.flag), argument.path)
                passed += argument.words
                continue
            name = argument.field.name
            _refuse_reserved(name, argument.flag, argument.path)
            if not self._settle(name, argument.value, argument.path):
                continue
            passed += argument.words
            self._remark(argument.field, argument.flag, argument.path)
            if argument.deprecated:
                message = f"{argument.flag} is deprecated in SGLang {self.engine.version}: use {argument.deprecated}"
                self._tell(Severity.INFO, DEPRECATED, message, argument.path)
        # The last of two flags wins in the engine, so what was said with more weight stays last.
        self.words = passed + self.words

    def environment(self, variables: Iterable[_Variable]) -> None:
        """Variables of one place."""
        for variable in variables:
            name, path = variable.name, variable.path
            if name in self.secrets:
                raise InvalidInput(path, f"{name} also comes from {self.secrets[name]}: say it once")
            if name.startswith(_OPERATORS_OWN):
                raise InvalidInput(path, f"{name} belongs to the operator: remove it, or choose another name")
            if variable.value_from is not None or "$(" in (variable.value or ""):
                self._refer(variable)
                continue
            text = variable.value or ""
            declared = self.engine.variables.get(name)
            _refuse_secret(name, declared, path)
            if name in self.references:
                raise InvalidInput(path, f"{name} also has a reference in {self.references[name][1]}: say it once")
            if self.env.get(name, text) != text:
                if declared is None:  # of another program: its value may be a secret
                    raise InvalidInput(path, f"{name} has another value in {self._literals[name]}: say it once")
                raise InvalidInput(path, _twice(name, text, self.env[name], self._literals[name]))
            self.env[name] = text
            self._literals.setdefault(name, path)
            if declared is not None:
                self._settle(name, _or_invalid(path, name, from_environment, declared, text), path)
                self._remark(declared, name, path)
            elif _ENGINES_OWN.match(name):
                self._tell(Severity.WARNING, UNKNOWN_VARIABLE, f"passed as it is, though {self._unknown(name)}", path)

    def written(self, settings: Mapping[str, Any]) -> None:
        """``spec.engine.settings``."""
        for name, value in sorted(settings.items()):
            path = f"{_SETTINGS}.{name}"
            canonical = self._canonical(name)
            _refuse_reserved(canonical, name, path)
            declared = self.engine.fields.get(canonical) or self.engine.variables.get(name)
            if declared is None:
                raise InvalidInput(path, self._unknown(name))
            if declared.refused:
                raise InvalidInput(path, f"SGLang {self.engine.version} refuses {declared.flag}: remove it")
            if not declared.flag:
                _refuse_secret(name, declared, path)
                if name in self.references:
                    raise InvalidInput(path, f"{name} also has a reference in {self.references[name][1]}: say it once")
            self._settle(canonical, _or_invalid(path, name, typed, declared, value), path)
            self._remark(declared, name, path)

    def _canonical(self, name: str) -> str:
        """A renamed field's name in every version, where this version has the field under its older name."""
        renamed = known()["renamed"].get(name)
        return renamed if renamed and renamed in self.engine.fields and self._has_older_name(name, renamed) else name

    def _has_older_name(self, name: str, renamed: str) -> bool:
        return "--" + name.replace("_", "-") in (spelling.flag for spelling in self.engine.fields[renamed].spellings)

    def _refer(self, variable: _Variable) -> None:
        source = variable.value_from if variable.value_from is not None else variable.value
        other = self.references.get(variable.name, (source, variable.path))
        if variable.name in self.env or other[0] != source:
            where = self._literals.get(variable.name, other[1])
            raise InvalidInput(variable.path, f"{variable.name} is also set in {where}: say it once")
        self.references.setdefault(variable.name, other)

    def _settle(self, name: str, value: Any, path: str) -> bool:
        """Notes a value. False where the same was said before."""
        before = self.settings.get(name)
        if before is None:
            self.settings[name] = Choice(value, path)
            return True
        if before.value != value:
            raise InvalidInput(path, _twice(name, value, before.value, before.path))
        return False

    def _remark(self, declared: Field, name: str, path: str) -> None:
        if declared.without_effect:
            message = f"{name} has no effect in SGLang {self.engine.version}: remove it"
            self._tell(Severity.WARNING, WITHOUT_EFFECT, message, path)
        passable = self.engine.flag(declared.name) if declared.flag else self.engine.has_variable(declared.name)
        if self.engine.version is None and not passable:
            self._tell(Severity.WARNING, UNCHECKED, _unchecked(name), path)

    def _unknown(self, name: str) -> str:
        """Why a setting cannot be passed, and what to do: another version's, misspelt, or of another program."""
        version = self.engine.version
        if version is None:
            engine = f"no known SGLang version has a setting {name}"
        else:
            engine = f"SGLang {version} has no setting {name}"
            if name in self.engine.spellings:
                field = self.engine.spellings[name][0]
                return f"{engine}, which is a flag: write {field.name} here, or the flag into spec.engine.args"
            having = versions_with(name)
            if having and versions().index(having[0]) > versions().index(version):
                return f"{engine}, which came with {having[0]}: use that version, or remove it"
            if having and name not in known()["renamed"]:
                return f"{engine} ({having[-1]} was the last version with it): remove it"
        suggestion = known()["renamed"].get(name) or self.engine.suggest(name)
        if suggestion:
            return f"{engine}: did you mean {suggestion}?"
        return f"{engine}: remove it, or write a variable of another program into spec.engine.env"

    def _tell(self, severity: Severity, reason: str, message: str, path: str) -> None:
        self.findings.append(Finding(severity=severity, reason=reason, message=message, path=path))


def _or_invalid(path: str, name: str, read: Any, declared: Field, value: Any) -> Any:
    try:
        return read(declared, value)
    except ValueError as error:
        raise InvalidInput(path, f"{name} {error}") from None


def _refuse_reserved(name: str, written: str, path: str) -> None:
    step = known()["reserved"].get(name)
    if step is not None:
        raise InvalidInput(path, f"{written} is not for the user to set here: {step}")


def _refuse_secret(name: str, declared: Field | None, path: str) -> None:
    """A literal secret would be read by everyone who may read the VLMService, its plan or its pods."""
    harmless = declared is not None and declared.kind != "str"
    if not harmless and _SECRET.search(name) and not _NO_SECRET.search(name):
        step = f"put it into a Secret and refer to it: spec.engine.env with name {name} and valueFrom.secretKeyRef"
        raise InvalidInput(path, f"{name} looks like a secret, which must not stand here in clear: {step}")


def _twice(name: str, here: Any, there: Any, path: str) -> str:
    return f"{name} is {shown(here)} here, but {shown(there)} in {path}: say it once"


def _unchecked(name: str) -> str:
    return (
        f"whether the engine knows {name} cannot be checked, since its version is unknown: "
        "set spec.engine.version, so that it can be"
    )
