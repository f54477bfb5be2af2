"""The measured profile of the model family on this hardware; a value that is not applied says why."""

from collections.abc import Iterator

from vlm_api.plan import Setting, Source
from vlm_operator.sglang.context import Context, Declared, applied, left
from vlm_operator.sglang.profiles import Profile, ProfileSetting
from vlm_operator.sglang.profiles.needs import unmet
from vlm_operator.sglang.profiles.trial import graph_limit
from vlm_operator.sglang.rules.feature_pool import feature_pool


def measured_set(context: Context, declared: Declared) -> Iterator[Setting]:
    """Each value of the family's profiles, applied or left with the reason."""
    for profile in context.family.profiles if context.family else []:
        why_not = _why_not(context, profile)
        for item in profile.settings:
            if item.name in declared:
                continue
            rule = f"{profile.name}.{item.rule}"
            missing = _missing(context, item.name)
            reason = why_not or unmet(context, declared, item.needs) or missing
            if reason is not None:
                yield left(item.name, rule, reason, item.evidence or profile.evidence)
                older = item.older
                if reason == missing and older and older.name not in declared and _replaces(context, older.name):
                    reason = f"{context.engine_name()} has no {item.name}; this variable does the same: {item.reason}"
                    yield applied(older.name, older.value, Source.PROFILE, rule, reason, profile.evidence)
            else:
                yield from _value(context, declared, profile, item, rule)


def _why_not(context: Context, profile: Profile) -> str | None:
    if not context.cuda:
        return f"the profile is for GPUs ({profile.title}), and hardware.device is cpu"
    if context.gpu is None:
        return f"the profile is for {profile.title}, and no GPU node is known yet"
    other = profile.when.unmet(context.gpu)
    return None if other is None else f"the profile is for {other}"


def _missing(context: Context, name: str) -> str | None:
    if context.knows(name):
        return None
    kind = "variable" if name.isupper() else "flag"
    return f"{context.engine_name()} is not known to have this {kind}"


def _replaces(context: Context, older: str) -> bool:
    """Whether the older variable does the same. Not in an unknown release, which may have both and prefer either."""
    return context.engine.version is not None and context.knows(older)


def _value(
    context: Context, declared: Declared, profile: Profile, item: ProfileSetting, rule: str
) -> Iterator[Setting]:
    evidence = item.evidence or profile.evidence
    if item.compute == "feature_pool":
        yield from feature_pool(context, declared, rule, Source.PROFILE, evidence)
    elif item.compute == "running_limit":
        limit, running = graph_limit(context, declared, item), declared.value("max_running_requests")
        each = f", of which each rank runs {limit} at most" if limit is not None and limit < int(running) else ""
        yield applied(
            item.name, limit, Source.PROFILE, rule, f"{item.reason} (max_running_requests {running}{each})", evidence
        )
    else:
        reason = item.reason
        if "images_seen_once" in item.needs and context.spec.workload.images.reuse.value == "Unknown":
            reason += "; workload.images.reuse is Unknown, which counts as SingleUse, as the engine itself assumes"
        yield applied(item.name, item.value, Source.PROFILE, rule, reason, evidence)
