"""From the plan and the pod's environment to the engine's command line and environment. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from vlm_api.names import ENGINE_PORT, ENV_API_KEY, ENV_DEVICE
from vlm_api.plan import ServingPlan
from vlm_runtime.addresses import ANY_IPV4, ANY_IPV6, LOOPBACK_IPV4, LOOPBACK_IPV6, asked_at
from vlm_runtime.sglang import ENV_GUARD

# The engine's rendezvous between the pods of a group.
GROUP_PORT: Final = 20000
# How long its members wait for each other. PyTorch's own 10 minutes for NCCL are less than a node may need to pull the
# engine's image, for which the plan gives a start 20 minutes; for gloo they are these 30.
GROUP_TIMEOUT_SECONDS: Final = 1800

# SGLang waits up to a minute for dumps of a crash before it ends: without them the pod is back sooner.
_DEFAULTS: Final = {
    "SGLANG_CUDA_COREDUMP_BEFORE_CRASH": "0",
    "SGLANG_PYSPY_DUMP_BEFORE_CRASH": "0",
    "PYTHONUNBUFFERED": "1",
}


class BadEnvironment(Exception):
    """The pod lacks what the plan needs. ``str()`` is one sentence with the variable and the next step."""


class BadApiKey(Exception):
    """No client can send the key. ``str()`` is one sentence with the variable."""


@dataclass(frozen=True)
class EngineCommand:
    """What is started, and how it is reached afterwards."""

    argv: tuple[str, ...] = field(repr=False)
    env: Mapping[str, str] = field(repr=False)
    port: int
    address: str = LOOPBACK_IPV4
    """Where it answers this pod's own questions."""
    api_key: str | None = field(default=None, repr=False)
    tls: bool = False
    """Whether it is asked by https. A follower's small server has no certificate."""
    rank: int = 0
    """The pod's place in its group; 0 is the head, which alone answers requests."""
    head: str = ""
    """The head's address; empty where the pod is no member of a group."""

    @property
    def is_head(self) -> bool:
        """True: this pod answers requests; False: it only computes for the head of its group."""
        return self.rank == 0


def engine_command(
    plan: ServingPlan,
    environ: Mapping[str, str],
    launcher: Sequence[str],
    *,
    library: str | None = None,
    port: int | None = None,
    ipv6_only: bool = False,
) -> EngineCommand:
    """The engine's command.

    ``launcher``: what comes before the plan's arguments, such as ``[python3, -m, sglang.launch_server]``. ``library``:
    the folder that holds this runtime, put first on the child's PYTHONPATH so that the engine finds the plugins.
    ``port``: replaces the plan's port. ``ipv6_only``: the pod has no IPv4 address, so that every IPv4 address becomes
    every IPv6 address. Raises BadEnvironment for a group whose variables are missing, BadApiKey.
    """
    args = [*plan.engine.args]
    env = {**plan.engine.env, **environ}
    for name, value in _DEFAULTS.items():
        env.setdefault(name, value)
    if library is not None:
        env["PYTHONPATH"] = ":".join(p for p in (library, env.get("PYTHONPATH")) if p)
    if plan.hardware.device == "cpu":
        env[ENV_DEVICE] = "cpu"
    else:
        env.pop(ENV_DEVICE, None)

    key = _api_key(ENV_API_KEY, env.pop(ENV_API_KEY, ""))
    written_key = _api_key("--api-key", option(args, "--api-key") or "")
    if written_key is None and key is not None:
        args.append(f"--api-key={key}")  # in one word: a key may begin with a dash
    if port is not None:
        args += ["--port", str(port)]
    if ipv6_only and option(args, "--host") == ANY_IPV4:
        args += ["--host", ANY_IPV6]
    rank, head = 0, ""
    if plan.runtime.nodes > 1:
        rank, group = _group(plan.runtime.nodes, environ)
        args += group
        if option(args, "--dist-timeout") is None:
            args += ["--dist-timeout", str(GROUP_TIMEOUT_SECONDS)]
        head = environ["LWS_LEADER_ADDRESS"]
    listens_on, address = _port(option(args, "--port")), asked_at(option(args, "--host") or "")
    env[ENV_GUARD] = str(listens_on)
    env |= _past_the_proxy(env, address)
    return EngineCommand(
        argv=(*launcher, *args),
        env=env,
        port=listens_on,
        address=address,
        api_key=written_key or key,
        tls=rank == 0 and option(args, "--ssl-certfile") is not None,
        rank=rank,
        head=head,
    )


def _past_the_proxy(env: Mapping[str, str], address: str) -> dict[str, str]:
    """The engine warms up by a request to itself, by a library that heeds these variables: no proxy is to answer that."""
    if not any(
        env.get(name) for kind in ("http", "https", "all") for name in (f"{kind}_proxy", f"{kind}_proxy".upper())
    ):
        return {}
    # Where both are there, the one in small letters counts.
    said = env.get("no_proxy") or env.get("NO_PROXY") or ""
    hosts = [host for host in said.replace(" ", "").split(",") if host]
    value = ",".join(dict.fromkeys([*hosts, "localhost", LOOPBACK_IPV4, LOOPBACK_IPV6, address]))
    # Everything goes past the proxy only where that star stands alone.
    return {} if hosts == ["*"] else {"no_proxy": value, "NO_PROXY": value}


def _port(value: str | None) -> int:
    # What is no number, the engine itself refuses with better words.
    return int(value) if value is not None and value.isdecimal() else ENGINE_PORT


def _api_key(name: str, value: str) -> str | None:
    # The line break that an editor, or echo, leaves at the end of a Secret is no part of any key.
    key = value.strip()
    if not all("!" <= character <= "~" for character in key):
        raise BadApiKey(f"{name} holds spaces, line breaks or characters beyond ASCII")
    return key or None


def _group(nodes: int, environ: Mapping[str, str]) -> tuple[int, list[str]]:
    """This pod's rank, and the arguments that join it to its group, from LeaderWorkerSet's variables."""
    size, index, leader = (
        _number(environ, "LWS_GROUP_SIZE"),
        _number(environ, "LWS_WORKER_INDEX"),
        environ.get("LWS_LEADER_ADDRESS", ""),
    )
    if not leader:
        raise BadEnvironment(_missing("LWS_LEADER_ADDRESS"))
    if size != nodes:
        raise BadEnvironment(
            f"LWS_GROUP_SIZE is {size}, but the plan is for {nodes} nodes: set spec.leaderWorkerTemplate.size of the "
            f"LeaderWorkerSet to {nodes}"
        )
    address = f"[{leader}]" if ":" in leader else leader
    return index, [
        "--nnodes", str(size), "--node-rank", str(index), "--dist-init-addr", f"{address}:{GROUP_PORT}",
    ]  # fmt: skip


def _number(environ: Mapping[str, str], name: str) -> int:
    try:
        return int(environ[name])
    except (KeyError, ValueError):
        raise BadEnvironment(_missing(name)) from None


def _missing(name: str) -> str:
    return (
        f"{name} is not set to what a group of several nodes needs: the pod must come from a LeaderWorkerSet "
        f"(version 0.6 or later)"
    )


def option(args: Sequence[str], flag: str) -> str | None:
    """The last value of a flag, written ``--flag value`` or ``--flag=value``."""
    value: str | None = None
    for i, arg in enumerate(args):
        if arg == flag and i + 1 < len(args):
            value = args[i + 1]
        elif arg.startswith(f"{flag}="):
            value = arg.partition("=")[2]
    return value
