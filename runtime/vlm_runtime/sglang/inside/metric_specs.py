"""The metrics that the engine lacks, as data, and how they get onto the engine's own ``/metrics``.

SGLang collects from all of its processes with prometheus_client's multiprocess mode: it serves what any of them registers.
prometheus_client chooses the mode when it is imported, by a variable that SGLang sets after it has loaded its plugins. So it
is imported here only when a metric is created, and never without that variable.
"""

import os
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final, Literal

ENV_DIRECTORY: Final = "PROMETHEUS_MULTIPROC_DIR"


@dataclass(frozen=True)
class MetricSpec:
    """One metric without labels."""

    name: str
    kind: Literal["Counter", "Gauge", "Histogram"]
    help: str
    buckets: tuple[float, ...] = ()

    def create(self, registry: Any = None) -> Any:
        """The metric; gauges of several processes are summed. ``registry``: where to register it, for tests."""
        client = import_module("prometheus_client")
        options: dict[str, Any] = {"registry": registry or client.REGISTRY}
        if self.kind == "Gauge":
            options["multiprocess_mode"] = "livesum"
        if self.buckets:
            options["buckets"] = self.buckets
        return getattr(client, self.kind)(self.name, self.help, **options)


def are_enabled() -> bool:
    """Whether the engine serves metrics (``--enable-metrics``)."""
    return ENV_DIRECTORY in os.environ


_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

# Autoscalers ask for it by this name.
IN_FLIGHT: Final = MetricSpec(
    "vlmserve_requests_in_flight", "Gauge", "Requests to the model, from arrival to the end of the answer."
)
IMAGES_RECEIVED: Final = MetricSpec("vlmserve_images_received_total", "Counter", "Images in requests.")
IMAGES_REPEATED: Final = MetricSpec(
    "vlmserve_images_repeated_total",
    "Counter",
    "Images whose content or URL came at least once before within about the last hour.",
)
IMAGE_BYTES: Final = MetricSpec(
    "vlmserve_image_received_bytes_total", "Counter", "Bytes of encoded images that requests carried inline."
)
FEATURE_BYTES: Final = MetricSpec(
    "vlmserve_image_feature_bytes_total", "Counter", "Bytes of the image features after preprocessing."
)
REQUEST_IMAGES: Final = MetricSpec(
    "vlmserve_request_images", "Histogram", "Images per request that has any.", (1, 2, 4, 8, 16, 32, 64)
)
PREPROCESSING: Final = MetricSpec(
    "vlmserve_image_preprocessing_seconds",
    "Histogram",
    "Duration of a request's image preprocessing: fetch, decode, resize, cut into patches.",
    _SECONDS,
)
POOL_SIZE: Final = MetricSpec("vlmserve_feature_pool_size_bytes", "Gauge", "Size of the feature pool on the GPU.")
POOL_USED: Final = MetricSpec("vlmserve_feature_pool_used_bytes", "Gauge", "Used bytes of the feature pool on the GPU.")
POOL_PEAK: Final = MetricSpec(
    "vlmserve_feature_pool_peak_used_bytes", "Gauge", "Most used bytes of the feature pool since the engine's start."
)
POOL_LEASES: Final = MetricSpec("vlmserve_feature_pool_leases", "Gauge", "Image features in the feature pool.")
POOL_FALLBACKS: Final = MetricSpec(
    "vlmserve_feature_pool_fallbacks_total",
    "Counter",
    "Image features that went through host memory because the feature pool was full.",
)
VISION_ENCODE: Final = MetricSpec(
    "vlmserve_vision_encode_seconds", "Histogram", "Duration of the vision tower for one batch of images.", _SECONDS
)
VISION_IMAGES: Final = MetricSpec(
    "vlmserve_vision_encoded_images_total", "Counter", "Images that the vision tower encoded."
)

SPECS: Final = (
    IN_FLIGHT, IMAGES_RECEIVED, IMAGES_REPEATED, IMAGE_BYTES, FEATURE_BYTES, REQUEST_IMAGES, PREPROCESSING,
    POOL_SIZE, POOL_USED, POOL_PEAK, POOL_LEASES, POOL_FALLBACKS, VISION_ENCODE, VISION_IMAGES,
)  # fmt: skip
