"""From a pool's request and the cluster's facts to a plan.

Pure: the same input gives the same plan, byte for byte.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from vlm_api.bounds import cut, first
from vlm_api.plan import MAX_FINDINGS, MAX_TEXT, Finding, ServiceRef, ServingPlan, Setting, Severity, info
from vlm_api.reasons import FindingReason
from vlm_operator.checks import CheckInput, findings_of, refuse_input
from vlm_operator.checks.fit import fit
from vlm_operator.facts.model.lookup import as_quantised, model_facts
from vlm_operator.facts.types import Cluster, GpuFacts, ModelFacts
from vlm_operator.placement.choose import Choice, choose_hardware
from vlm_operator.plan.request import PoolRequest
from vlm_operator.plan.sections import plan_engine, plan_hardware, plan_memory, plan_resources, plan_runtime
from vlm_operator.sglang.budget import budget, pool_mib
from vlm_operator.sglang.capabilities import refusals
from vlm_operator.sglang.catalogue.engine_image import image_architectures
from vlm_operator.sglang.context import Context
from vlm_operator.sglang.images.declared import declared_image
from vlm_operator.sglang.profiles import Family, family_of, shipped
from vlm_operator.sglang.rules.pipeline import resolve, written
from vlm_operator.sglang.videos.declared import declared_video

WORST_FIRST: Final = tuple(Severity)


def make_plan(
    request: PoolRequest,
    cluster: Cluster,
    *,
    runtime_image: str,
    inspected: ModelFacts | Finding | None = None,
    families: Sequence[Family] | None = None,
) -> ServingPlan:
    """Decides everything for one pool of a service. The plan has no hash and no manifests yet.

    ``inspected`` is what the model's own files say, or the finding that says why they could not be read; ``families`` are
    the measured profiles, by default those that are shipped. Raises InvalidInput for a spec that is wrong on any cluster.
    """
    files = inspected if isinstance(inspected, ModelFacts) else None
    context = _context(request, files, shipped() if families is None else families)
    refuse_input(context, written(context))
    choice = _choose(request, cluster, context)
    context = replace(context, gpu=choice.gpu)
    context, declared = resolve(context)
    total, pool = budget(context, declared), pool_mib(context, declared)
    memory = plan_memory(context, declared, total, pool)
    checked = CheckInput(context, declared, request.image, choice, total, memory, cluster, files)
    findings = [*request.findings, *choice.findings, *findings_of(checked)]
    if isinstance(inspected, Finding):
        findings.append(inspected)
    return ServingPlan(
        service=ServiceRef(name=request.service, namespace=request.namespace),
        pool=request.pool,
        role=request.role,
        spec_digest=request.digest,
        engine=plan_engine(request, context, declared),
        hardware=plan_hardware(context, choice),
        settings=[_located(setting, request) for setting in declared],
        memory=memory,
        resources=plan_resources(context, choice),
        runtime=plan_runtime(runtime_image, context),
        findings=listed([located(f, request) for f in findings]),
    )


def located(finding: Finding, request: PoolRequest) -> Finding:
    """The finding with the paths by which the user finds the fields, in a pool or in the service."""
    if request.declared is None:
        return finding
    path = None if finding.path is None else request.path_of(finding.path)
    return finding.model_copy(update={"path": path, "message": cut(request.text_of(finding.message), MAX_TEXT)})


def _located(setting: Setting, request: PoolRequest) -> Setting:
    if request.declared is None or "spec." not in setting.reason:
        return setting
    return setting.model_copy(update={"reason": cut(request.text_of(setting.reason), MAX_TEXT)})


def listed(findings: Sequence[Finding]) -> list[Finding]:
    """Findings as a plan has them: the worst first, so that those left out are the least."""
    in_order = sorted(findings, key=lambda f: (WORST_FIRST.index(f.severity), f.reason, f.message))
    return first(in_order, MAX_FINDINGS, _left_out)


def _left_out(count: int) -> Finding:
    message = f"{count} more findings are not shown: correct those above first"
    return info(FindingReason.FINDINGS_LEFT_OUT, message)


def _context(request: PoolRequest, files: ModelFacts | None, families: Sequence[Family]) -> Context:
    """The facts of the pool on no GPU."""
    spec, choices = request.spec, request.choices
    model = as_quantised(model_facts(spec.model, files), choices.get("quantization"))
    family = _as_published(family_of(model.architecture, families), model)
    image = declared_image(spec, family, choices)
    return Context(
        spec=spec,
        served_model_name=request.served_model_name,
        engine=request.engine,
        choices=choices,
        gpu=None,
        model=model,
        family=family,
        image=image,
        devices_per_pod=request.devices_per_pod,
        video=declared_video(spec, family, choices, image, model.context_length),
    )


def _as_published(family: Family | None, model: ModelFacts) -> Family | None:
    """The family, with the numbers of the model's own image processor where they were read."""
    if family is None or family.images is None or model.image_processor is None:
        return family
    return family.model_copy(update={"images": family.images.published(model.image_processor)})


def _choose(request: PoolRequest, cluster: Cluster, context: Context) -> Choice:
    if not request.cuda:
        return Choice(None, source="spec")
    rank = partial(_rank, context, image_architectures(request.image))
    return choose_hardware(request.spec, request.devices_per_pod, cluster.nodes, cluster.in_use, rank)


def _rank(context: Context, built_for: frozenset[str], gpu: GpuFacts, processors: str) -> tuple[int, ...]:
    """How well a GPU beside these processors suits, smaller is better: whether the engine refuses it, whether the model would
    fit, whether the image is known to run there, and whether there is a profile for the GPU."""
    context = replace(context, gpu=gpu)
    context, declared = resolve(context)
    fits = fit(context, declared, budget(context, declared), pool_mib(context, declared))
    refused = next(refusals(context, declared), None) is not None
    return refused, fits, processors not in built_for, 0 if context.profile is not None else 1
