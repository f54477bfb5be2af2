"""When each alert fires and when it does not, as series in promtool's notation, one sample per minute."""

from dataclasses import dataclass, field

SERVICE = 'namespace="ml",vlmservice="vlm"'
POD = f'{SERVICE},pod="vlm-0",endpoint="runtime"'
ENGINE = f'{SERVICE},pod="vlm-0",endpoint="http"'
GPU = f'{POD},gpu="0",uuid="GPU-1",product="H100"'
OPERATOR = 'namespace="vlm-system",pod="operator-0"'

READY = f"vlm_runtime_ready{{{POD}}}"
STARTED = f"vlm_runtime_startup_duration_seconds{{{POD}}}"
BUDGET = f"vlm_runtime_startup_budget_seconds{{{POD}}}"
UPTIME = f"vlm_runtime_uptime_seconds{{{POD}}}"
DRAINING = f"vlm_runtime_draining{{{POD}}}"
PROCESS = f"vlm_runtime_process_start_time_seconds{{{POD}}}"
LOST = f"vlm_runtime_gpu_lost{{{GPU}}}"
SETTING = f'vlm_runtime_setting_effective{{{POD},setting="max_running_requests"}}'
FALLBACKS = f"vlmserve_feature_pool_fallbacks_total{{{ENGINE}}}"
IMAGES = f"vlmserve_images_received_total{{{ENGINE}}}"
RUNNING = f'sglang:num_running_reqs{{{ENGINE},tp_rank="0"}}'
QUEUED = f'sglang:num_queue_reqs{{{ENGINE},tp_rank="0"}}'
IN_FLIGHT = f"vlmserve_requests_in_flight{{{ENGINE}}}"
USAGE = f'sglang:token_usage{{{ENGINE},tp_rank="0"}}'
REQUESTS = f"sglang:num_requests_total{{{ENGINE}}}"
RESPONSES = "sglang:http_responses_total"
UP = f"up{{{POD}}}"
WANTED = f'vlm_operator_service_wanted_replicas{{{OPERATOR},vlmservice_namespace="ml",vlmservice="vlm"}}'
AVAILABLE = WANTED.replace("wanted", "available")
LEADER = f"vlm_operator_leader{{{OPERATOR}}}"
QUEUE = f"vlm_operator_queue_depth{{{OPERATOR}}}"
SUCCESS = f'vlm_operator_reconciles_total{{{OPERATOR},result="success"}}'
ERROR = f'vlm_operator_reconciles_total{{{OPERATOR},result="error"}}'


def responses(code: int, endpoint: str) -> str:
    """The engine's answers as the Prometheus operator labels them."""
    return f'{RESPONSES}{{{ENGINE},exported_endpoint="{endpoint}",status_code="{code}",method="POST"}}'


def buckets(name: str, labels: str, **rates: int) -> dict[str, str]:
    """A histogram with the increase per minute of each bucket: ``le_5`` is le="5", ``le_inf`` is le="+Inf"."""
    bounds = {key.removeprefix("le_").replace("inf", "+Inf").replace("_", "."): rate for key, rate in rates.items()}
    return {f'{name}_bucket{{{labels},le="{bound}"}}': f"0+{rate}x60" for bound, rate in bounds.items()}


def first_token(**rates: int) -> dict[str, str]:
    return buckets("sglang:time_to_first_token_seconds", ENGINE, **rates)


def services(condition: str, status: str, reason: str) -> str:
    labels = f'{OPERATOR},condition="{condition}",status="{status}",reason="{reason}"'
    return f"vlm_operator_services{{{labels}}}"


def slow(service: str) -> str:
    return f'vlm_operator_service_slow_reconcile_seconds{{{OPERATOR},vlmservice_namespace="ml",vlmservice="{service}"}}'


@dataclass(frozen=True)
class Case:
    """Series, and how many alerts of that name fire after ``minutes``."""

    alert: str
    what: str
    series: dict[str, str]
    fires: int = 0
    minutes: int = 40
    labels: dict[str, str] = field(default_factory=dict)
    """Labels of the firing alert."""


def fires(alert: str, what: str, series: dict[str, str], *, minutes: int = 40, **labels: str) -> Case:
    return Case(alert, what, series, 1, minutes, labels)


def quiet(alert: str, what: str, series: dict[str, str], *, minutes: int = 40) -> Case:
    return Case(alert, what, series, 0, minutes)


STEADY = "1x60"
CASES = [
    fires("VLMServiceDown", "the only pod stops answering", {READY: "1x20 0x40"}, vlmservice="vlm"),
    fires("VLMServiceDown", "its pod is replaced after each attempt", {
        READY: "1x20 _x40", f"vlm_runtime_ready{{{POD.replace('vlm-0', 'vlm-1')}}}": "_x20 0x40",
    }, vlmservice="vlm"),
    quiet("VLMServiceDown", "one of two pods answers", {
        READY: "1x20 0x40", f"vlm_runtime_ready{{{POD.replace('vlm-0', 'vlm-1')}}}": STEADY,
    }),
    quiet("VLMServiceDown", "a slow first start", {READY: "0x60"}),
    quiet("VLMServiceDown", "scaled to zero", {READY: "1x20 stale"}),
    fires("VLMServiceDown", "nodes are gone, so its pods are pending without metrics", {
        WANTED: "1x60", AVAILABLE: "1x20 0x40", READY: "1x20 stale",
    }, namespace="ml", vlmservice="vlm"),
    fires("VLMServiceDown", "pods are pending for three hours", {
        WANTED: "1x200", AVAILABLE: "1x20 0x180", READY: "1x20 stale",
    }, minutes=200, vlmservice="vlm"),
    fires("VLMServiceDown", "both the operator and a pod report one outage", {
        WANTED: "1x60", AVAILABLE: "1x20 0x40", READY: "1x20 0x40",
    }, vlmservice="vlm"),
    fires("VLMServiceDown", "a replaced operator still reports the outage", {
        WANTED: "1x30 stale", AVAILABLE: "1x20 0x10 stale",
        WANTED.replace("operator-0", "operator-1"): "_x30 1x30",
        AVAILABLE.replace("operator-0", "operator-1"): "_x30 0x30",
    }, vlmservice="vlm"),
    fires("VLMServiceDown", "pods fail for hours, and no operator reports", {READY: "1x20 0x480"}, minutes=460,
          vlmservice="vlm"),
    fires("VLMServiceDown", "wanted for eight hours, and never up", {WANTED: "1x500", AVAILABLE: "0x500"}, minutes=480,
          vlmservice="vlm"),
    quiet("VLMServiceDown", "a first start with pending pods and image pulls", {WANTED: "1x300", AVAILABLE: "0x300"},
          minutes=300),
    quiet("VLMServiceDown", "suspended", {WANTED: "1x20 0x500", AVAILABLE: "1x20 0x500"}, minutes=480),
    quiet("VLMServiceDown", "scaled up from zero, and still starting", {WANTED: "1x20 0x10 1x40", AVAILABLE: "1x20 0x50"}),
    quiet("VLMServiceDown", "one of two replicas answers", {WANTED: "2x60", AVAILABLE: "2x20 1x40"}),
    quiet("VLMServiceDown", "the service was deleted", {WANTED: "1x20 stale", AVAILABLE: "1x20 stale"}),

    fires("VLMEngineDown", "a pod that was ready", {
        READY: "1x20 0x40", STARTED: "90x60", DRAINING: "0x60",
    }, pod="vlm-0"),
    quiet("VLMEngineDown", "a starting pod", {READY: "0x60", DRAINING: "0x60"}),
    quiet("VLMEngineDown", "a pod that drains and stops", {READY: "1x20 0x40", STARTED: "90x60", DRAINING: "0x20 1x40"}),

    fires("VLMTargetDown", "the runtime does not answer", {UP: "1x10 0x50"}, pod="vlm-0"),
    quiet("VLMTargetDown", "the engine's port is closed while it starts", {
        UP: "1x60", f"up{{{ENGINE}}}": "0x60",
    }),

    fires("VLMStartOverBudget", "still not ready", {UPTIME: "0+60x60", BUDGET: "900x60"}, minutes=14, pod="vlm-0"),
    fires("VLMStartOverBudget", "ready at the last moment", {
        UPTIME: "0+60x60", BUDGET: "900x60", STARTED: "_x14 850x46",
    }, pod="vlm-0"),
    quiet("VLMStartOverBudget", "ready at the last moment, and for two hours since", {
        UPTIME: "0+60x200", BUDGET: "900x200", STARTED: "_x14 850x186",
    }, minutes=140),
    quiet("VLMStartOverBudget", "half of the budget", {UPTIME: "0+60x60", BUDGET: "900x60"}, minutes=8),
    quiet("VLMStartOverBudget", "ready long ago", {UPTIME: "0+60x60", BUDGET: "900x60", STARTED: "_x3 120x57"}),

    fires("VLMCrashLoop", "four starts in half an hour", {PROCESS: "100x7 200x7 300x7 400x40"}, minutes=28, pod="vlm-0"),
    quiet("VLMCrashLoop", "one restart", {PROCESS: "100x20 200x40"}),

    fires("VLMSettingsNotInForce", "one setting differs", {SETTING: "0x60"}, setting="max_running_requests"),
    quiet("VLMSettingsNotInForce", "all as planned", {SETTING: STEADY}),

    fires("VLMFeaturePoolFull", "one image in ten", {IMAGES: "0+600x60", FALLBACKS: "0+60x60"}, vlmservice="vlm"),
    quiet("VLMFeaturePoolFull", "one in a thousand", {IMAGES: "0+6000x60", FALLBACKS: "0+6x60"}),
    quiet("VLMFeaturePoolFull", "no images at all", {IMAGES: "7x60", FALLBACKS: "0x60"}),

    fires("VLMQueueGrowing", "a long, growing queue", {RUNNING: "100x60", QUEUED: "0+10x60"}, vlmservice="vlm"),
    fires(
        "VLMQueueGrowing",
        "images wait for preprocessing, outside the engine's queues",
        {RUNNING: "100x60", QUEUED: "0x60", IN_FLIGHT: "100+10x60"},
        vlmservice="vlm",
    ),
    quiet(
        "VLMQueueGrowing",
        "more requests, all running",
        {RUNNING: "100+10x60", QUEUED: "0x60", IN_FLIGHT: "100+10x60"},
    ),
    quiet("VLMQueueGrowing", "a long, shrinking queue", {RUNNING: "100x60", QUEUED: "900-10x60"}),
    quiet("VLMQueueGrowing", "a short queue", {RUNNING: "400x60", QUEUED: "0+1x60"}),

    fires("VLMTimeToFirstTokenOverGoal", "one in ten takes 10 s", first_token(le_1=0, le_4=54, le_10=60, le_inf=60),
          vlmservice="vlm"),
    quiet("VLMTimeToFirstTokenOverGoal", "all within 4 s", first_token(le_1=30, le_4=60, le_10=60, le_inf=60)),
    quiet("VLMTimeToFirstTokenOverGoal", "no requests", first_token(le_1=0, le_4=0, le_10=0, le_inf=0)),

    fires("VLMRequestErrors", "one in ten fails", {
        REQUESTS: "0+90x60", responses(500, "/v1/chat/completions"): "0+10x60",
    }, vlmservice="vlm"),
    quiet("VLMRequestErrors", "client errors", {
        REQUESTS: "0+90x60", responses(400, "/v1/chat/completions"): "0+90x60",
    }),
    quiet("VLMRequestErrors", "probes of a starting engine", {
        REQUESTS: "0+1x60", responses(503, "/ready"): "0+30x60", responses(503, "/health"): "0+30x60",
    }),

    fires("VLMKVCacheFull", "full, and requests wait", {USAGE: "0.99x60", QUEUED: "5x60"}, vlmservice="vlm"),
    quiet("VLMKVCacheFull", "full, and no request waits", {USAGE: "0.99x60", QUEUED: "0x60"}),
    quiet("VLMKVCacheFull", "half full", {USAGE: "0.5x60", QUEUED: "5x60"}),

    fires("VLMGPUThrottled", "too hot", {f'vlm_runtime_gpu_throttled{{{GPU},reason="hardware_thermal"}}': STEADY}, gpu="0"),
    quiet("VLMGPUThrottled", "at its power limit, as a busy GPU is", {
        f'vlm_runtime_gpu_throttled{{{GPU},reason="power_cap"}}': STEADY,
    }),

    fires("VLMGPUEccErrors", "one more", {f"vlm_runtime_gpu_ecc_uncorrected_errors_total{{{GPU}}}": "2x30 3x30"}, gpu="0"),
    quiet("VLMGPUEccErrors", "old ones", {f"vlm_runtime_gpu_ecc_uncorrected_errors_total{{{GPU}}}": "2x60"}),

    fires("VLMGPULost", "fell off its bus", {LOST: "0x20 1x40"}, pod="vlm-0", gpu="0"),
    fires("VLMGPULost", "fell off its bus, and its engine exited", {LOST: "0x33 1x2 stale"}, pod="vlm-0", gpu="0"),
    fires("VLMGPULost", "a restarted runtime does not know its UUID", {
        LOST: "0x30 1x4 stale", LOST.replace("GPU-1", "").replace("H100", ""): "_x36 1x24",
    }, gpu="0"),
    fires("VLMGPULost", "one of two GPUs", {
        LOST: "0x60", LOST.replace('gpu="0"', 'gpu="1"').replace("GPU-1", "GPU-2"): "0x20 1x40",
    }, gpu="1"),
    quiet("VLMGPULost", "all answer", {LOST: "0x60"}),
    quiet("VLMGPULost", "back after a reset", {LOST: "1x10 0x50"}),
    quiet("VLMGPULost", "its pod was moved half an hour ago", {LOST: "0x5 1x5 stale"}),
    quiet("VLMGPULost", "no NVIDIA driver", {f"vlm_runtime_nvml_up{{{POD}}}": "0x60"}),

    fires("VLMOperatorNotReconciling", "services wait and none is reconciled", {LEADER: STEADY, QUEUE: "3x60", SUCCESS: "9x60"},
          namespace="vlm-system"),
    fires("VLMOperatorNotReconciling", "no leader", {LEADER: "0x60"}, namespace="vlm-system"),
    fires("VLMOperatorNotReconciling", "the operator is gone", {LEADER: "1x20 stale"}, namespace="vlm-system"),
    fires("VLMOperatorNotReconciling", "the operator is gone for three hours", {LEADER: "1x20 stale"}, minutes=200,
          namespace="vlm-system"),
    fires("VLMOperatorNotReconciling", "one of two releases in a namespace has no leader", {
        LEADER.replace("pod=", 'job="a",pod='): STEADY, LEADER.replace("pod=", 'job="b",pod='): "0x60",
    }, job="b"),
    quiet("VLMOperatorNotReconciling", "busy", {LEADER: STEADY, QUEUE: "3x60", SUCCESS: "0+9x60"}),
    quiet("VLMOperatorNotReconciling", "nothing to do", {LEADER: STEADY, QUEUE: "0x60", SUCCESS: "9x60"}),
    quiet("VLMOperatorNotReconciling", "one leads, one stands by", {
        LEADER: STEADY, LEADER.replace("operator-0", "operator-1"): "0x60", QUEUE: "0x60",
    }),
    quiet("VLMOperatorNotReconciling", "the operator is replaced", {
        LEADER: "1x20 stale", LEADER.replace("operator-0", "operator-1"): "_x22 1x38",
    }),

    fires("VLMOperatorErrors", "one in two fails", {SUCCESS: "0+10x60", ERROR: "0+10x60"}, namespace="vlm-system"),
    quiet("VLMOperatorErrors", "one in a hundred", {SUCCESS: "0+99x60", ERROR: "0+1x60"}),
    quiet("VLMOperatorErrors", "nothing is reconciled", {SUCCESS: "9x60", ERROR: "9x60"}),

    fires("VLMOperatorSlow", "a minute", buckets(
        "vlm_operator_event_to_applied_seconds", OPERATOR, le_1=0, le_30=0, le_60=10, le_inf=10), namespace="vlm-system"),
    quiet("VLMOperatorSlow", "a second", buckets(
        "vlm_operator_event_to_applied_seconds", OPERATOR, le_1=10, le_30=10, le_60=10, le_inf=10)),

    fires("VLMReconcileSlow", "a service of 20 s", {slow("big"): "20x60"}, vlmservice="big"),
    quiet("VLMReconcileSlow", "a service of 2 s", {slow("big"): "2x60"}),

    fires("VLMServicesFailing", "out of memory", {services("Ready", "False", "OutOfDeviceMemory"): STEADY},
          reason="OutOfDeviceMemory"),
    quiet("VLMServicesFailing", "a starting service", {services("Ready", "False", "Starting"): STEADY}),
    quiet("VLMServicesFailing", "all serve", {services("Ready", "True", "Serving"): STEADY}),

    fires("VLMHardwareDrift", "labels changed", {services("HardwareDrift", "True", "LabelsChanged"): STEADY},
          namespace="vlm-system"),
    quiet("VLMHardwareDrift", "no drift", {services("HardwareDrift", "False", "NoDrift"): STEADY}),
]  # fmt: skip
