"""What the user set for the engine, from every place where it can be set."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from vlm_api.names import ENV_API_KEY, ENV_HF_TOKEN, ENV_MEDIA_FILES, MAIN_CONTAINER
from vlm_api.plan import MAX_TEXT, Finding, info, warning
from vlm_api.reasons import FindingReason
from vlm_api.spec import VLMServiceSpec
from vlm_api.template import main_container
from vlm_operator.errors import InvalidInput
from vlm_operator.sglang.catalogue.fields import Field
from vlm_operator.sglang.catalogue.releases import Release, known, versions, versions_with
from vlm_operator.sglang.choices import Choice, UserChoices
from vlm_operator.sglang.choices.arguments import Argument, parse
from vlm_operator.sglang.choices.secrets import (
    refuse_secret,
    refuse_secret_in_value,
    refuse_secret_in_variable,
    refuse_secrets_of_others,
)
from vlm_operator.sglang.choices.values import from_environment, shown, typed

_SETTINGS: Final = "spec.engine.settings"
_MAIN: Final = f"spec.template.spec.containers[name={MAIN_CONTAINER}]"
_ENGINES_OWN: Final = re.compile(r"SGL(ANG)?_")
_OPERATORS_OWN: Final = "VLMSERVE_"


def user_choices(spec: VLMServiceSpec, engine: Release) -> UserChoices:
    """Everything that the user sets for the engine, checked against what ``engine`` knows.

    Read in the order of precedence: arguments and variables of container ``main`` in ``spec.template``,
    ``spec.engine.args``, ``spec.engine.env``, ``spec.engine.settings``. What is set twice must have the same value; the
    first place counts. Raises InvalidInput for what cannot be right, with the field, the value and the next step.
    """
    collected = _Collector(engine, secrets=_secrets(spec))
    main = main_container(spec.template)
    collected.add_arguments(parse(main.get("args") or [], engine, f"{_MAIN}.args"))
    collected.add_environment(_template_env(main))
    collected.add_arguments(parse(spec.engine.args, engine, "spec.engine.args"))
    collected.add_environment(
        _Variable(variable.name, variable.value, variable.value_from, f"spec.engine.env[{position}]")
        for position, variable in enumerate(spec.engine.env)
    )
    collected.add_settings(spec.engine.settings)
    refuse_secrets_of_others(spec.template)
    if spec.security.allowed_media_domains and (twice := collected.settings.get("allowed_media_domains")):
        raise InvalidInput(
            twice.path, "allowed_media_domains is also set by spec.security.allowedMediaDomains: set it in one place"
        )
    return UserChoices(
        settings=dict(collected.settings),
        args=tuple(collected.words),
        env=dict(collected.env),
        referenced_env=frozenset(collected.references),
        findings=tuple(collected.findings),
    )


def _refuse_long(text: str, path: str) -> None:
    """A plan keeps every word and value whole. The text may be a secret, so it is not repeated."""
    if len(text) > MAX_TEXT:
        raise InvalidInput(
            path,
            f"has a value of {len(text):,} characters, at most {MAX_TEXT:,} are possible: put it into a file of a volume",
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


def _template_env(main: Mapping[str, Any]) -> Iterator[_Variable]:
    for position, entry in enumerate(main.get("env") or []):
        if "$patch" not in entry:
            yield _Variable(entry["name"], entry.get("value"), entry.get("valueFrom"), f"{_MAIN}.env[{position}]")


@dataclass
class _Collector:
    """What is set in the places read so far, from the highest precedence to the lowest."""

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

    def add_arguments(self, arguments: Iterable[Argument]) -> None:
        """Arguments of one place. A flag that is already set is not passed again."""
        passed: list[str] = []
        for argument in arguments:
            for word in argument.words:
                _refuse_long(word, argument.path)
            written = list(argument.words) if argument.field is None else argument.value
            refuse_secret_in_value(argument.flag, written, argument.path)
            if argument.field is None:
                self.findings.append(
                    warning(FindingReason.ENGINE_SETTING_UNCHECKED, _unchecked(argument.flag), argument.path)
                )
                passed += argument.words
                continue
            name = argument.field.name
            _refuse_reserved(name, argument.flag, argument.path)
            if not self._record(name, argument.value, argument.path):
                continue
            passed += argument.words
            self._remark(argument.field, argument.flag, argument.path)
            if argument.deprecated:
                message = f"{argument.flag} is deprecated in SGLang {self.engine.version}: use {argument.deprecated}"
                self.findings.append(info(FindingReason.ENGINE_SETTING_DEPRECATED, message, argument.path))
        # The last of two flags wins in the engine, so the one of higher precedence stays last.
        self.words = passed + self.words

    def add_environment(self, variables: Iterable[_Variable]) -> None:
        """Variables of one place."""
        for variable in variables:
            name, path = variable.name, variable.path
            if name in self.secrets:
                raise InvalidInput(path, f"{name} also comes from {self.secrets[name]}: set it in one place")
            if name.startswith(_OPERATORS_OWN) and name != ENV_MEDIA_FILES:
                raise InvalidInput(path, f"{name} is reserved for the operator: remove it, or choose another name")
            if variable.value_from is not None or "$(" in (variable.value or ""):
                self._refer(variable)
                continue
            text = variable.value or ""
            _refuse_long(text, path)
            if name == ENV_MEDIA_FILES and text not in ("0", "1"):
                raise InvalidInput(path, f"{name} must be 1 or 0")
            declared = self.engine.variables.get(name)
            refuse_secret(name, declared, path)
            refuse_secret_in_variable(name, text, path)
            if name in self.references:
                raise InvalidInput(
                    path, f"{name} also has a reference in {self.references[name][1]}: set it in one place"
                )
            if self.env.get(name, text) != text:
                if declared is None:  # of another program: its value may be a secret
                    raise InvalidInput(path, f"{name} has another value in {self._literals[name]}: set it in one place")
                raise InvalidInput(path, _twice(name, text, self.env[name], self._literals[name]))
            self.env[name] = text
            self._literals.setdefault(name, path)
            if declared is not None:
                self._record(name, _or_invalid(path, name, from_environment, declared, text), path)
                self._remark(declared, name, path)
            elif _ENGINES_OWN.match(name):
                message = f"passed unchanged, although {self._unknown(name)}"
                self.findings.append(warning(FindingReason.ENGINE_VARIABLE_UNKNOWN, message, path))

    def add_settings(self, settings: Mapping[str, Any]) -> None:
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
                refuse_secret(name, declared, path)
                if name in self.references:
                    raise InvalidInput(
                        path, f"{name} also has a reference in {self.references[name][1]}: set it in one place"
                    )
            chosen = _or_invalid(path, name, typed, declared, value)
            for word in chosen if isinstance(chosen, list) else [chosen]:
                _refuse_long(word if isinstance(word, str) else json.dumps(word, ensure_ascii=False), path)
            refuse_secret_in_value(name, chosen, path)
            self._record(canonical, chosen, path)
            self._remark(declared, name, path)

    def _canonical(self, name: str) -> str:
        """The one name of a renamed field, if this version has the field under its older name."""
        renamed = known()["renamed"].get(name)
        return renamed if renamed and renamed in self.engine.fields and self._has_older_name(name, renamed) else name

    def _has_older_name(self, name: str, renamed: str) -> bool:
        return "--" + name.replace("_", "-") in (spelling.flag for spelling in self.engine.fields[renamed].spellings)

    def _refer(self, variable: _Variable) -> None:
        source = variable.value_from if variable.value_from is not None else variable.value
        other = self.references.get(variable.name, (source, variable.path))
        if variable.name in self.env or other[0] != source:
            where = self._literals.get(variable.name, other[1])
            raise InvalidInput(variable.path, f"{variable.name} is also set in {where}: set it in one place")
        self.references.setdefault(variable.name, other)

    def _record(self, name: str, value: Any, path: str) -> bool:
        """Records a value. False if the same value is already recorded."""
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
            self.findings.append(warning(FindingReason.ENGINE_SETTING_WITHOUT_EFFECT, message, path))
        passable = self.engine.flag(declared.name) if declared.flag else self.engine.has_variable(declared.name)
        if self.engine.version is None and not passable:
            self.findings.append(warning(FindingReason.ENGINE_SETTING_UNCHECKED, _unchecked(name), path))

    def _unknown(self, name: str) -> str:
        """Why a setting cannot be passed, and the next step: another version has it, it is misspelt, or not SGLang's."""
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


def _or_invalid(path: str, name: str, read: Any, declared: Field, value: Any) -> Any:
    try:
        return read(declared, value)
    except ValueError as error:
        raise InvalidInput(path, f"{name} {error}") from None


def _refuse_reserved(name: str, written: str, path: str) -> None:
    step = known()["reserved"].get(name)
    if step is not None:
        raise InvalidInput(path, f"{written} cannot be set here: {step}")


def _twice(name: str, here: Any, there: Any, path: str) -> str:
    return f"{name} is {shown(here)} here, but {shown(there)} in {path}: set it in one place"


def _unchecked(name: str) -> str:
    return f"whether the engine knows {name} cannot be checked, because its version is unknown: set spec.engine.version"
