"""``kubectl vlm promote``: what a pool says becomes what the service says."""

import argparse
from collections.abc import Mapping
from typing import Any, Final

from rich.text import Text

from vlm_api.names import MAIN_POOL
from vlm_operator.cli.cluster import cluster_errors, connect
from vlm_operator.cli.console import make_console
from vlm_operator.cli.history import difference
from vlm_operator.cli.service import read
from vlm_operator.errors import ClusterError, InvalidInputs
from vlm_operator.kube import kinds
from vlm_operator.manifests.revision import SPEC, merge_patch
from vlm_operator.plan.pools import merge_patches

# How many replicas a pool has and how they are replaced is not what is tried in another pool.
STAYS: Final = ("name", "role", "weight", "replicas", "scaling", "suspend", "rolloutStrategy")
POOLS: Final = "pools"


def promote(options: argparse.Namespace) -> int:
    """Shows what changes, then makes the pool's fields those of pool main, or of the service, and removes the pool."""
    connection = connect(options)
    raw = connection.service(options.name)
    read(raw)  # a spec that this version does not understand is not edited
    spec = raw[SPEC]
    names = [str(pool["name"]) for pool in spec.get(POOLS) or []]
    if options.pool not in names:
        known = f"choose one of {', '.join(names)}" if names else "it has no pools"
        raise InvalidInputs([f"POOL: {options.name} has no pool {options.pool}: {known}"])
    if options.pool == MAIN_POOL:
        raise InvalidInputs([f"POOL: {MAIN_POOL} is the pool that another one is promoted to: choose another one"])
    if MAIN_POOL not in names and len(names) == 1:
        raise ClusterError(
            f"{options.pool} is the only pool of {options.name}, so its pods would be replaced by those of a service without "
            f"pools, all at once: add a pool {MAIN_POOL} first"
        )
    wanted = promoted(spec, options.pool)
    console = make_console()
    for line in difference(spec, wanted, "current", f"with pool {options.pool} promoted"):
        console.print(Text(line, style={"+": "green", "-": "red"}.get(line[0], "")))
    if options.dry_run:
        console.print("dry run: nothing changed")
        return 0
    # Fail on a concurrent change instead of overwriting it.
    version = {"resourceVersion": raw["metadata"]["resourceVersion"]}
    patch = {"metadata": version, SPEC: merge_patch(spec, wanted)}
    with cluster_errors():
        connection.client.merge(kinds.VLM_SERVICE, connection.namespace, options.name, patch, manager="kubectl-vlm")
    console.print(
        f"{options.pool} is promoted: follow it with `kubectl vlm status {options.name}`, undo it with "
        f"`kubectl vlm rollback {options.name}`"
    )
    return 0


def promoted(spec: Mapping[str, Any], pool: str) -> dict[str, Any]:
    """The spec in which pool main says what ``pool`` says, or, without a main, the service; ``pool`` is gone."""
    pools = {str(each["name"]): each for each in spec[POOLS]}
    own = {key: value for key, value in pools.pop(pool).items() if key not in STAYS}
    if MAIN_POOL in pools:
        pools[MAIN_POOL] = {**{key: pools[MAIN_POOL][key] for key in STAYS if key in pools[MAIN_POOL]}, **own}
        return {**spec, POOLS: list(pools.values())}
    if (concurrency := own.pop("concurrency", None)) is not None:
        own["workload"] = {"concurrency": concurrency}
    template = own.pop("template", None)
    changed = _over(spec, own)
    if template is not None:
        changed["template"] = merge_patches(spec.get("template") or {}, template)
    return {**changed, POOLS: list(pools.values())}


def _over(spec: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Field by field, and of the engine's settings each name by itself."""
    both = {
        key: value for key, value in own.items() if isinstance(value, Mapping) and isinstance(spec.get(key), Mapping)
    }
    return {**spec, **own, **{key: _over(spec[key], value) for key, value in both.items()}}
