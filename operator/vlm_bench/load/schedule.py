"""The load: the declared workload as requests, and the runs in their order: a warm-up for each target, then rounds in which the
targets take turns."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from vlm_api.status import VLMService
from vlm_api.workload import Reuse
from vlm_operator.errors import InvalidInput

# If the workload leaves them open: the lengths of the memory estimate, and the images of SGLang PR 36411.
DEFAULT_INPUT_TOKENS: Final = 1024
DEFAULT_OUTPUT_TOKENS: Final = 256
DEFAULT_SIDE: Final = 512
DEFAULT_CONCURRENCY: Final = 8
# Requests of a round per request in flight: start and end of a round, where fewer run, weigh little. SGLang PR 36411 sent 2,000
# at a concurrency of 400.
WAVES: Final = 5
FEWEST_REQUESTS: Final = 16
# Noise as a JPEG of quality 85, in base64, as SGLang's benchmark writes it: measured from 256x256 to 2048x2048.
ENCODED_BYTES_PER_PIXEL: Final = 1.01
# Even, so that each of two servers is measured first equally often.
ROUNDS: Final = 8
WARM_UP_WAVES: Final = 2
# The benchmark makes its images from a seed: none may be used twice, neither within a measurement nor, by its first seed,
# between two.
SEEDS: Final = 2**31 - 1


@dataclass(frozen=True)
class Load:
    """Requests as they are sent. Lengths in tokens, sides in pixels."""

    input_tokens: int
    output_tokens: int
    images: int
    width: int
    height: int
    concurrency: tuple[int, ...]
    """Requests in flight, over all replicas; several for a curve."""
    requests: int | None = None
    """Requests of a round; None: WAVES for each in flight."""

    def requests_at(self, concurrency: int) -> int:
        """Requests of a round at that concurrency."""
        return self.requests if self.requests is not None else max(WAVES * concurrency, FEWEST_REQUESTS)

    @property
    def request_bytes(self) -> int:
        """Memory of one request's images until they are sent: SGLang's benchmark makes them all beforehand."""
        return int(self.images * self.width * self.height * ENCODED_BYTES_PER_PIXEL)

    def to_json(self) -> dict[str, Any]:
        """As the program in the pod reads it."""
        return {k: v for k, v in asdict(self).items() if k not in ("concurrency", "requests")}

    def sentence(self) -> str:
        """The load in one line."""
        images = "1 image" if self.images == 1 else f"{self.images} images"
        return (
            f"{images} of {self.width}×{self.height}, {self.input_tokens} input tokens of text, {self.output_tokens} output "
            f"tokens, concurrency {', '.join(map(str, self.concurrency))}"
        )


def queueing_note(load: Load, running_requests: object, replicas: int) -> str | None:
    """A note if more requests are sent at once than the engines run; None if they run them all."""
    if not isinstance(running_requests, int) or max(load.concurrency) <= running_requests * max(replicas, 1):
        return None
    return (
        f"max_running_requests is {running_requests}: above a concurrency of {running_requests * max(replicas, 1)} requests wait "
        "in the engine, and the time to first token includes that wait"
    )


def load_of(
    service: VLMService, *, replicas: int = 1, concurrency: Sequence[int] = (), requests: int | None = None
) -> tuple[Load, list[str]]:
    """The declared workload as a load, and notes about it.

    ``replicas``: those that are ready, since the workload's concurrency is per replica. ``concurrency`` replaces it.
    Raises InvalidInput for numbers out of range.
    """
    for number in concurrency:
        if not 1 <= number <= 65_536:
            raise InvalidInput("--concurrency", f"{number} is not between 1 and 65536: give the requests in flight")
    if requests is not None and not 1 <= requests <= 1_000_000:
        raise InvalidInput("--requests", f"{requests} is not between 1 and 1000000: give the requests of one round")
    workload, notes = service.spec.workload, []
    images = workload.images
    missing = {
        "inputTokens": workload.input_tokens,
        "outputTokens": workload.output_tokens,
        "images.width and height": images.width,
        "concurrency": workload.concurrency or concurrency,
    }
    levels = tuple(dict.fromkeys(concurrency)) or ((workload.concurrency or DEFAULT_CONCURRENCY) * max(replicas, 1),)
    if requests is not None and requests < max(levels):
        raise InvalidInput("--requests", f"{requests} are fewer than the concurrency of {max(levels)}: give more")
    load = Load(
        input_tokens=workload.input_tokens or DEFAULT_INPUT_TOKENS,
        output_tokens=workload.output_tokens or DEFAULT_OUTPUT_TOKENS,
        images=images.per_request,
        width=images.width or DEFAULT_SIDE,
        height=images.height or DEFAULT_SIDE,
        concurrency=levels,
        requests=requests,
    )
    if unset := [name for name, value in missing.items() if not value]:
        notes.append(
            f"spec.workload does not set {', '.join(unset)}, so usual values were used: set them to measure yours"
        )
    if images.reuse is Reuse.REPEATED:
        notes.append(
            "the workload repeats its images, but SGLang's benchmark sends each image once: the numbers leave out what caches of "
            "images gain"
        )
    if workload.videos is not None:
        notes.append("the workload has videos, and this load sends none: the numbers are those of its text and images")
    return load, notes


@dataclass(frozen=True)
class Run:
    """One call of the benchmark, as the program in the pod reads and repeats it."""

    number: int
    round: int
    """From 1; 0 is the warm-up."""
    target: int
    concurrency: int
    requests: int
    seed: int


def schedule(load: Load, *, targets: int, rounds: int, first_seed: int) -> list[Run]:
    """Every run in its order, each with another seed.

    The warm-up is at the highest concurrency, which uses all graphs and kernels, and long enough that batches form as they do
    later. Even rounds reverse the order of targets and levels, so that drift affects all of them alike.
    """
    runs: list[Run] = []

    def add(number: int, target: int, concurrency: int, requests: int) -> None:
        runs.append(Run(len(runs), number, target, concurrency, requests, (first_seed + len(runs)) % SEEDS))

    most = max(load.concurrency)
    for target in range(targets):
        add(0, target, most, most * WARM_UP_WAVES)
    for number in range(1, rounds + 1):
        step = 1 if number % 2 else -1
        for concurrency in load.concurrency[::step]:
            for target in range(targets)[::step]:
                add(number, target, concurrency, load.requests_at(concurrency))
    return runs
