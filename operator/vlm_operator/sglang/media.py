"""The images and videos of requests, counted together: they share the feature pool, /dev/shm, host memory and the KV cache."""

from __future__ import annotations

from dataclasses import dataclass

from vlm_operator.sglang import memory
from vlm_operator.sglang.images import Image


@dataclass(frozen=True)
class Part:
    """The images of a request, or its videos: so many, and all alike."""

    noun: str
    """What they are, in the plural."""
    count: int
    each: Image


@dataclass(frozen=True)
class InFlight:
    """What is counted of the media of all requests in flight."""

    requests: int
    parts: tuple[Part, ...]

    def name(self) -> str:
        """Which media these are."""
        return " and ".join(part.noun for part in self.parts)

    def path(self) -> str:
        """The field that declares them."""
        return f"spec.workload.{self.parts[0].noun}" if len(self.parts) == 1 else "spec.workload"

    def tally(self) -> str:
        """How many of each kind."""
        return " and ".join(f"{self.requests * part.count:,} {part.noun}" for part in self.parts)

    def token_sum(self) -> str:
        """The same with their tokens."""
        return " and ".join(
            f"{self.requests * part.count:,} {part.noun} of {part.each.tokens} tokens" for part in self.parts
        )

    @property
    def tokens(self) -> int:
        """Those that the vision encoder fills."""
        return self.requests * sum(part.count * part.each.tokens for part in self.parts)

    @property
    def feature_bytes(self) -> int:
        """Bytes that the feature pool can hold."""
        return self.requests * sum(part.count * part.each.bytes for part in self.parts)

    @property
    def travelling_bytes(self) -> int:
        """Bytes that travel between the processes."""
        return self.requests * sum(part.count * part.each.travelling_bytes for part in self.parts)

    @property
    def pool_mib(self) -> int:
        """A feature pool that holds all of them."""
        return memory.pool_mib((self.requests * part.count, part.each.bytes) for part in self.parts)

    def pool_sum(self) -> str:
        """How that size comes about."""
        parts = [
            f"{self.requests * part.count:,} {part.noun} x {part.each.bytes / memory.MIB:.3f} MiB"
            for part in self.parts
        ]
        total = parts[0] if len(parts) == 1 else f"({' + '.join(parts)})"
        return f"{total} x {memory.FRAGMENTATION} = {self.pool_mib:,} MiB"

    def held(self, pool_mib: int) -> str:
        """How many of them a pool of that size holds."""
        if len(self.parts) == 1:
            part = self.parts[0]
            count = memory.chunks_in_pool(pool_mib, [part.each.bytes])
            return f"{count:,} of {self.requests * part.count:,} {part.noun}"
        return f"the {self.name()} of {self.requests_held(pool_mib):,} of {self.requests:,} requests"

    def requests_held(self, pool_mib: int) -> int:
        """Requests whose media all fit into a pool of that size."""
        return memory.chunks_in_pool(pool_mib, [part.each.bytes for part in self.parts for _ in range(part.count)])
