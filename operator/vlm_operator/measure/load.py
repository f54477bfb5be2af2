"""The load: what the service's declared workload looks like as requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from vlm_api.status import VLMService
from vlm_api.workload import Reuse
from vlm_operator.errors import InvalidInput

# Where the workload does not say: the lengths that the memory sum takes as well, and the images of SGLang PR 36411.
DEFAULT_INPUT_TOKENS: Final = 1024
DEFAULT_OUTPUT_TOKENS: Final = 256
DEFAULT_SIDE: Final = 512
DEFAULT_CONCURRENCY: Final = 8
# Requests of a round for each that runs at once: start and end of a round, where fewer run, weigh little. SGLang's pull
# request 36411 sent 2,000 at 400.
WAVES: Final = 5
FEWEST_REQUESTS: Final = 16
# Noise as a JPEG of quality 85, in base64, as SGLang's benchmark writes it: measured from 256x256 to 2048x2048.
ENCODED_BYTES_PER_PIXEL: Final = 1.01


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
        """What the images of one request take in memory until they are sent: SGLang's benchmark makes them all beforehand."""
        return int(self.images * self.width * self.height * ENCODED_BYTES_PER_PIXEL)

    def to_json(self) -> dict[str, Any]:
        """As the program in the pod reads it."""
        return {
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "images": self.images,
            "width": self.width,
            "height": self.height,
        }

    def sentence(self) -> str:
        """The load in one line."""
        images = "1 image" if self.images == 1 else f"{self.images} images"
        return (
            f"{images} of {self.width}×{self.height}, {self.input_tokens} tokens of text in, "
            f"{self.output_tokens} tokens out, at once: {', '.join(map(str, self.concurrency))}"
        )


def waiting(load: Load, running_requests: object, replicas: int) -> str | None:
    """What to say where more requests are sent at once than the engines run; None where they run them all."""
    if not isinstance(running_requests, int) or max(load.concurrency) <= running_requests * max(replicas, 1):
        return None
    return (
        f"max_running_requests is {running_requests}: of more at once than {running_requests * max(replicas, 1)}, "
        "the rest waits in the engine, and the time to the first token holds that wait"
    )


def load_of(
    service: VLMService, *, replicas: int = 1, concurrency: Sequence[int] = (), requests: int | None = None
) -> tuple[Load, list[str]]:
    """The declared workload as a load, and what a person should know about it.

    ``replicas`` are those that answer: the workload's concurrency is per replica. ``concurrency`` replaces it.
    Raises InvalidInput for numbers that are none.
    """
    for number in concurrency:
        if not 1 <= number <= 65_536:
            raise InvalidInput(
                "--concurrency", f"{number} is not between 1 and 65536: give how many requests run at once"
            )
    if requests is not None and not 1 <= requests <= 1_000_000:
        raise InvalidInput("--requests", f"{requests} is not between 1 and 1000000: give the requests of one round")
    workload, notes = service.spec.workload, []
    images = workload.images
    missing = [
        name
        for name, value in (
            ("inputTokens", workload.input_tokens),
            ("outputTokens", workload.output_tokens),
            ("images.width and height", images.width),
            ("concurrency", workload.concurrency or concurrency),
        )
        if not value
    ]
    levels = tuple(dict.fromkeys(concurrency)) or ((workload.concurrency or DEFAULT_CONCURRENCY) * max(replicas, 1),)
    if requests is not None and requests < max(levels):
        raise InvalidInput("--requests", f"{requests} are fewer than the {max(levels)} that run at once: give more")
    load = Load(
        input_tokens=workload.input_tokens or DEFAULT_INPUT_TOKENS,
        output_tokens=workload.output_tokens or DEFAULT_OUTPUT_TOKENS,
        images=images.per_request,
        width=images.width or DEFAULT_SIDE,
        height=images.height or DEFAULT_SIDE,
        concurrency=levels,
        requests=requests,
    )
    if missing:
        notes.append(f"spec.workload does not say {', '.join(missing)}: a usual value was taken instead")
    if images.reuse is Reuse.REPEATED:
        notes.append(
            "the workload repeats its images, and SGLang's benchmark sends each image once: "
            "what caches of images are worth is not in these numbers"
        )
    return load, notes
