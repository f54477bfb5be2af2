"""The engine's command line and environment, from the plan and the pod's environment. Pure."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from vlm_api.limits import RequestLimits
from vlm_api.names import ENGINE_PORT, ENV_API_KEY, ENV_DEVICE, ENV_HF_TOKEN
from vlm_api.plan import ServingPlan
from vlm_runtime.sglang.inside import ENV_GUARD, ENV_KEY_DIGEST, ENV_LIMITS

ANY_IPV4: Final = "0.0.0.0"
ANY_IPV6: Final = "::"
LOOPBACK_IPV4: Final = "127.0.0.1"
LOOPBACK_IPV6: Final = "::1"

# The rendezvous between the pods of a group.
GROUP_PORT: Final = 20000
# How long the pods of a group wait for each other. PyTorch's own 10 minutes for NCCL are less than pulling the engine's
# image may take, for which the plan allows 20 minutes; for gloo it is this half hour anyway.
GROUP_TIMEOUT_SECONDS: Final = 1800

# SGLang's default of --watchdog-timeout.
WATCHDOG_SECONDS: Final = 300.0

# SGLang waits up to a minute for dumps of a crash before it ends: without them the pod is back sooner.
_DEFAULTS: Final = {
    "SGLANG_CUDA_COREDUMP_BEFORE_CRASH": "0",
    "SGLANG_PYSPY_DUMP_BEFORE_CRASH": "0",
    "PYTHONUNBUFFERED": "1",
}


class BadEnvironment(Exception):
    """The pod lacks what the plan needs. ``str()`` is one sentence with the variable and the next step."""


class BadToken(Exception):
    """The Hugging Face token is blank. ``str()`` is one sentence with the variable."""


class BadApiKey(Exception):
    """The API key is blank, or no client can send it. ``str()`` is one sentence with the variable."""


@dataclass(frozen=True)
class EngineCommand:
    """What to start, and how to reach it."""

    argv: tuple[str, ...] = field(repr=False)
    env: Mapping[str, str] = field(repr=False)
    port: int
    address: str = LOOPBACK_IPV4
    """Where the runtime reaches it."""
    api_key: str | None = field(default=None, repr=False)
    tls: bool = False
    """Whether to use https. The small server of a group's worker pod has no certificate."""
    rank: int = 0
    """The pod's place in its group; 0 is the leader, which alone serves requests."""
    leader: str = ""
    """The leader's address; empty if the pod is not in a group."""

    @property
    def is_leader(self) -> bool:
        """True: this pod serves requests; False: it only computes for the leader of its group."""
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
    the folder with this runtime, put first on the child's PYTHONPATH so that the engine finds the plugins. ``port``:
    replaces the plan's port. ``ipv6_only``: the pod has no IPv4 address, so 0.0.0.0 becomes ``::``. Raises
    BadEnvironment if a group's variables are missing, BadApiKey, BadToken.
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

    if not env.get(ENV_HF_TOKEN, "unset").strip():
        # The library takes it for none, and the hub would answer that the model does not exist.
        raise BadToken(
            f"{ENV_HF_TOKEN} is empty or blank: put the token into the Secret of spec.model.tokenSecretRef, or remove the field"
        )
    key = _api_key(ENV_API_KEY, env.pop(ENV_API_KEY, None))
    written_key = _api_key("--api-key", option(args, "--api-key"))
    if written_key is None and key is not None:
        args.append(f"--api-key={key}")  # one word: a key may begin with a dash
    if clients_key := written_key or key:
        env[ENV_KEY_DIGEST] = hashlib.sha256(clients_key.encode()).hexdigest()
    else:
        env.pop(ENV_KEY_DIGEST, None)
    if port is not None:
        args += ["--port", str(port)]
    if ipv6_only and option(args, "--host") == ANY_IPV4:
        args += ["--host", ANY_IPV6]
    rank, leader = 0, ""
    if plan.runtime.nodes > 1:
        rank, group = _group(plan.runtime.nodes, environ)
        args += group
        if option(args, "--dist-timeout") is None:
            args += ["--dist-timeout", str(GROUP_TIMEOUT_SECONDS)]
        leader = environ["LWS_LEADER_ADDRESS"]
    listening_port, address = _port(option(args, "--port")), loopback_of(option(args, "--host") or "")
    env[ENV_GUARD] = str(listening_port)
    limits = plan.runtime.limits or RequestLimits()
    env[ENV_LIMITS] = ",".join(str(number) for _, number in limits)
    env |= _bypass_proxy(env, address)
    return EngineCommand(
        argv=(*launcher, *args),
        env=env,
        port=listening_port,
        address=address,
        api_key=clients_key,
        tls=rank == 0 and option(args, "--ssl-certfile") is not None,
        rank=rank,
        leader=leader,
    )


def loopback_of(host: str) -> str:
    """Where an engine that listens on this host answers this pod. ``::`` means IPv6 alone, as Uvicorn binds it."""
    host = host.removeprefix("[").removesuffix("]")
    return {ANY_IPV4: LOOPBACK_IPV4, "": LOOPBACK_IPV4, ANY_IPV6: LOOPBACK_IPV6}.get(host, host)


def _bypass_proxy(env: Mapping[str, str], address: str) -> dict[str, str]:
    """Keeps the engine's warm-up request to itself away from a proxy: its HTTP library reads these variables."""
    if not any(
        env.get(name) for kind in ("http", "https", "all") for name in (f"{kind}_proxy", f"{kind}_proxy".upper())
    ):
        return {}
    # If both are set, the lower-case one counts.
    no_proxy = env.get("no_proxy") or env.get("NO_PROXY") or ""
    hosts = [host for host in no_proxy.replace(" ", "").split(",") if host]
    value = ",".join(dict.fromkeys([*hosts, "localhost", LOOPBACK_IPV4, LOOPBACK_IPV6, address]))
    # A star bypasses the proxy only if it stands alone.
    return {} if hosts == ["*"] else {"no_proxy": value, "NO_PROXY": value}


def _port(value: str | None) -> int:
    # The engine refuses what is not a number, with a better message.
    return int(value) if value is not None and value.isdecimal() else ENGINE_PORT


def _api_key(name: str, value: str | None) -> str | None:
    if value is None:
        return None
    # An editor or echo leaves a line break at the end of a Secret, which is not part of the key.
    key = value.strip()
    if not key:
        # SGLang takes an empty key for none, and would serve everybody.
        raise BadApiKey(f"{name} is empty or blank: put the key that clients must send into its Secret")
    if not all("!" <= character <= "~" for character in key):
        raise BadApiKey(f"{name} contains spaces, line breaks or non-ASCII characters")
    return key


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
        f"{name} is missing or invalid: a group of several nodes needs a pod of a LeaderWorkerSet, version 0.6 or later"
    )


def watchdog_seconds(args: Sequence[str]) -> float:
    """After how long a step the engine's own watchdog logs the scheduler's stacks and ends it."""
    try:
        seconds = float(option(args, "--watchdog-timeout") or 0)
    except ValueError:
        seconds = 0.0
    return seconds if seconds > 0 and math.isfinite(seconds) else WATCHDOG_SECONDS


def option(args: Sequence[str], flag: str) -> str | None:
    """The last value of a flag, written ``--flag value`` or ``--flag=value``."""
    value: str | None = None
    for i, arg in enumerate(args):
        if arg == flag and i + 1 < len(args):
            value = args[i + 1]
        elif arg.startswith(f"{flag}="):
            value = arg.partition("=")[2]
    return value
