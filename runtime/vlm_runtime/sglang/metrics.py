"""The metrics that the engine lacks, as data, and how they get onto the engine's own ``/metrics``.

SGLang collects from all of its processes with prometheus_client's multiprocess mode: what any of them registers is
served. The mode is chosen when prometheus_client is imported, by a variable that SGLang sets after it loaded its
plugins. So it is imported here only when a metric is made, and never without that variable.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final, Literal

ENV_DIRECTORY: Final = "PROMETHEUS_MULTIPROC_DIR"


@dataclass(frozen=True)
class Spec:
    """One metric without labels."""

    name: str
    kind: Literal["Counter", "Gauge", "Histogram"]
    help: str
    buckets: tuple[float, ...] = ()

    def make(self, registry: Any = None) -> Any:
        """The metric; several processes' gauges are added up. ``registry``: where to register it, for tests."""
        client = import_module("prometheus_client")
        options: dict[str, Any] = {"registry": registry or client.REGISTRY}
        if self.kind == "Gauge":
            options["multiprocess_mode"] = "livesum"
        if self.buckets:
            options["buckets"] = self.buckets
        return getattr(client, self.kind)(self.name, self.help, **options)


def enabled() -> bool:
    """Whether the engine serves metrics (``--enable-metrics``)."""
    return ENV_DIRECTORY in os.environ


_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

# Autoscalers ask for it by this name.
IN_FLIGHT: Final = Spec(
    "vlmserve_requests_in_flight", "Gauge", "Requests to the model from their arrival to the end of their answer."
)
IMAGES_RECEIVED: Final = Spec("vlmserve_images_received_total", "Counter", "Images in requests.")
IMAGES_REPEATED: Final = Spec(
    "vlmserve_images_repeated_total",
    "Counter",
    "Images whose content, or whose URL, came at least once before within about the last hour.",
)
IMAGE_BYTES: Final = Spec(
    "vlmserve_image_received_bytes_total", "Counter", "Bytes of encoded images that requests carried inline."
)
FEATURE_BYTES: Final = Spec(
    "vlmserve_image_feature_bytes_total", "Counter", "Bytes of the features that preprocessing made of images."
)
REQUEST_IMAGES: Final = Spec(
    "vlmserve_request_images", "Histogram", "Images in a request that has any.", (1, 2, 4, 8, 16, 32, 64)
)
PREPROCESSING: Final = Spec(
    "vlmserve_image_preprocessing_seconds",
    "Histogram",
    "From a request's images as they came to their features: fetched, decoded, resized, cut into patches.",
    _SECONDS,
)
POOL_SIZE: Final = Spec("vlmserve_image_pool_size_bytes", "Gauge", "Room for image features on the GPU.")
POOL_USED: Final = Spec("vlmserve_image_pool_used_bytes", "Gauge", "Room for image features on the GPU that is in use.")
POOL_PEAK: Final = Spec(
    "vlmserve_image_pool_peak_used_bytes", "Gauge", "The most that was ever in use since the engine's start."
)
POOL_LEASES: Final = Spec("vlmserve_image_pool_leases", "Gauge", "Image features that lie in the pool.")
POOL_FALLBACKS: Final = Spec(
    "vlmserve_image_pool_fallbacks_total",
    "Counter",
    "Image features that went through host memory because the pool had no room for them.",
)
VISION_ENCODE: Final = Spec(
    "vlmserve_vision_encode_seconds", "Histogram", "How long the vision tower took for one batch of images.", _SECONDS
)
VISION_IMAGES: Final = Spec("vlmserve_vision_encoded_images_total", "Counter", "Images that the vision tower encoded.")

SPECS: Final = (
    IN_FLIGHT, IMAGES_RECEIVED, IMAGES_REPEATED, IMAGE_BYTES, FEATURE_BYTES, REQUEST_IMAGES, PREPROCESSING,
    POOL_SIZE, POOL_USED, POOL_PEAK, POOL_LEASES, POOL_FALLBACKS, VISION_ENCODE, VISION_IMAGES,
)  # fmt: skip
