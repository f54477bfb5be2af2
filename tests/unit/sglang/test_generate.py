"""Reading a wheel's source without running it, and many versions in one file."""

import json

import pytest

from vlm_operator.sglang.catalogue.generate.__main__ import ended, read, updated

OLD = """
CHOICES = ["a", "b"] + ["c"]
class ServerArgs:
    tp_size: int = 1
    speed: str = "a"
    @staticmethod
    def add_cli_args(parser):
        parser.add_argument("--tensor-parallel-size", "--tp-size", type=int, default=ServerArgs.tp_size)
        parser.add_argument("--speed", type=str, choices=CHOICES, default=ServerArgs.speed)
        parser.add_argument("--old-speed", action=DeprecatedAliasStoreAction, dest="speed", new_flag="--speed")
        parser.add_argument("--verbose", action="store_true")
"""
NEW = """
from sglang.srt.choices import CHOICES
class ServerArgs:
    tp_size: A[int, Arg(help="x", aliases=["--tensor-parallel-size"])] = 1
    speed: A[Optional[str], Arg(help="x", choices=CHOICES)] = None
    limits: A[Optional[Dict[str, int]], Arg(type_parser=json.loads)] = None
    mode: A[Literal["x", "y"], "help"] = "x"
    careful: A[Optional[bool], Arg(action=argparse.BooleanOptionalAction)] = None
    hosts: A[List[str], "help"] = msgspec.field(default_factory=list)
    inner: A[int, Arg(no_cli=True)] = 1
    verbose: A[bool, "help"] = False
"""
ENVIRON = """
class Envs:
    SGLANG_CACHE_MB = EnvInt(100)
    SGLANG_FAST = EnvBool(_default())
"""


MODEL_CONFIG = """
TWO = ("First", "Second")
multimodal_model_archs = ["Zeroth", *TWO]
class ModelConfig:
    def __init__(self):
        mm_disabled_models = ["Third"]
"""
MEMORY_HOOK = """
def handle_gpu_memory_settings(cfg, gpu_mem):
    if gpu_mem is not None:
        if gpu_mem < 20 * 1024:
            if cfg.chunked_prefill_size is None:
                declare(cfg, chunked_prefill_size=2048)
            if graph.max_bs is None:
                graph.max_bs = 8
        else:
            if cfg.chunked_prefill_size is None:
                cfg.chunked_prefill_size = 4096
            if graph.max_bs is None:
                if cfg.tp_size < 4:
                    graph.max_bs = 256
                else:
                    graph.max_bs = 512
"""
LOADER = """
def check():
    if capability[1] < 5:
        raise RuntimeError("SGLang only supports sm75 and above.")
"""
QUANTIZATION = """
from sglang.srt.layers.quantization.fp8 import Fp8Config
from sglang.srt.layers.quantization.awq import AWQConfig
BASE_QUANTIZATION_METHODS: Dict[str, Type[QuantizationConfig]] = {"fp8": Fp8Config, "mxfp8": Fp8Config, "awq": AWQConfig}
if is_npu():
    BASE_QUANTIZATION_METHODS.update({"npu": AWQConfig})
if is_cpu() or is_cuda():
    BASE_QUANTIZATION_METHODS.update({"online": OnlineConfig})
class OnlineConfig(Fp8Config):
    @classmethod
    def get_min_capability(cls):
        return AWQConfig.get_min_capability()
"""
FP8 = """
class Fp8Config:
    def get_min_capability(self):
        if is_npu():
            return 0
        return 100 if self.use_mxfp8 else 80
"""
AWQ = """
from .awq import AWQConfig
"""
AWQ_CONFIG = """
class AWQConfig:
    def get_min_capability(cls):
        if _is_npu:
            raise NotImplementedError("x")
        else:
            return 75
"""
PLATFORMS = """
is_blackwell = is_blackwell_supported = lru_cache(maxsize=1)(partial(_check, device_capability_majors=[10, 11, 12]))
is_sm90_supported = lru_cache(maxsize=1)(partial(_check, device_capability_majors=[9]))
is_sm100_supported = lru_cache(maxsize=1)(partial(_check, device_capability_majors=[10]))
"""
ATTENTION = """
def handle(view, cfg):
    if "trtllm_mha" in (prefill_backend, decode_backend):
        if prefill_backend == "trtllm_mha" and not is_sm100_supported():
            raise ValueError("prefill")
        if prefill_backend == "trtllm_mha" and is_blackwell_supported() and cfg.kv_cache_dtype == "fp8_e4m3":
            raise ValueError("only with that cache")
        if decode_backend == "trtllm_mha" and not (get_platform().is_sm90 or get_platform().is_sm100):
            raise ValueError("decode")
    if view.attention_backend == "trtllm_mla" or view.decode_attention_backend == "trtllm_mla":
        if not get_platform().is_blackwell:
            raise ValueError("both")
    if deterministic:
        if attention_backend == "fa4" and not get_platform().is_sm100:
            raise ValueError("only where that is true")
def early(view):
    if not (view.attention_backend == "cutedsl_mla"):
        return {}
    if not get_platform().is_sm100:
        raise ValueError("after a return")
"""
REGISTRY = """
def create_flashattention_v3_backend(runner):
    assert (major == 8 and not runner.use_mla_backend) or major == 9, "requires"
"""
VISION = """
class VisionAttention:
    def _determine(self):
        if backend == "fa3" and is_blackwell_supported():
            raise ValueError("not supported on Blackwell GPUs")
"""
FILES = {
    "configs/model_config.py": MODEL_CONFIG,
    "arg_groups/memory_hook.py": MEMORY_HOOK,
    "arg_groups/attention_hook.py": ATTENTION,
    "model_executor/model_runner.py": LOADER,
    "layers/quantization/__init__.py": QUANTIZATION,
    "layers/quantization/fp8.py": FP8,
    "layers/quantization/awq/__init__.py": AWQ,
    "layers/quantization/awq/awq.py": AWQ_CONFIG,
    "layers/attention/attention_registry.py": REGISTRY,
    "layers/attention/vision.py": VISION,
    "utils/common.py": PLATFORMS,
}


def wheel(folder, version, server_args):
    """A folder as an unpacked wheel is."""
    srt = folder / version / "sglang" / "srt"
    srt.mkdir(parents=True)
    (srt / "server_args.py").write_text(server_args)
    (srt / "choices.py").write_text('CHOICES = sorted(["b", "a"])\n')
    (srt / "environ.py").write_text(ENVIRON)
    (srt / "other.py").write_text("x = get_bool_env_var('SGLANG_SEEN')\ny = os.environ['SGLANG_NAMED']\n")
    for path, text in FILES.items():
        (srt / path).parent.mkdir(parents=True, exist_ok=True)
        (srt / path).write_text(text)
    metadata = folder / version / f"sglang-{version}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Name: sglang\nVersion: {version}\nRequires-Dist: cuda-python>=13\n")
    return folder / version


def test_flags_declared_by_calls_are_read_with_the_field_that_they_set(tmp_path):
    version, found = read(wheel(tmp_path, "1.0.0", OLD))
    assert version == "1.0.0"
    assert found["fields"] == {
        "tp_size": {"flag": "--tensor-parallel-size", "aliases": ["--tp-size"], "type": "int", "default": 1},
        "speed": {
            "flag": "--speed",
            "type": "str",
            "choices": ["a", "b", "c"],
            "default": "a",
            "also": [{"flag": "--old-speed", "deprecated": "--speed"}],
        },
        "verbose": {"flag": "--verbose", "type": "bool"},
    }


def test_flags_declared_by_annotations_are_read_through_imports(tmp_path):
    _, found = read(wheel(tmp_path, "1.0.0", NEW))
    assert found["fields"] == {
        "tp_size": {"flag": "--tp-size", "type": "int", "aliases": ["--tensor-parallel-size"], "default": 1},
        "speed": {"flag": "--speed", "type": "str", "choices": ["a", "b"], "default": None},
        "limits": {"flag": "--limits", "type": "json", "default": None},
        "mode": {"flag": "--mode", "type": "str", "choices": ["x", "y"], "default": "x"},
        "careful": {"flag": "--careful", "type": "bool", "negative": "--no-careful", "default": None},
        "hosts": {"flag": "--hosts", "type": "str", "many": "+", "default": []},
        "verbose": {"flag": "--verbose", "type": "bool", "default": False},
    }


def test_the_gpus_that_a_release_refuses_are_read(tmp_path):
    _, found = read(wheel(tmp_path, "1.0.0", NEW))
    assert found["facts"]["least_capability"] == {"value": "7.5"}
    assert found["quantization"] == {
        "fp8": {"least": "8.0"},
        "mxfp8": {"least": "10.0"},
        "awq": {"least": "7.5"},
        "online": {"least": "7.5"},
    }
    assert found["attention"] == {
        "trtllm_mha": {"prefill": [10], "decode": [9, 10]},
        "trtllm_mla": {"decode": [10, 11, 12]},
        "cutedsl_mla": {"prefill": [10], "decode": [10]},
        "fa3": {"prefill": [8, 9], "decode": [8, 9], "mla": [9], "vision": [7, 8, 9, 13]},
    }


def test_variables_are_read_where_they_are_declared_and_where_they_are_used(tmp_path):
    _, found = read(wheel(tmp_path, "1.0.0", OLD))
    assert found["variables"] == {
        "SGLANG_CACHE_MB": {"type": "int", "default": 100},
        "SGLANG_FAST": {"type": "bool"},
        "SGLANG_SEEN": {"type": "bool"},
        "SGLANG_NAMED": {"type": "str"},
    }


def test_what_a_release_does_by_itself_is_read_in_its_branches_lists_and_metadata(tmp_path):
    _, found = read(wheel(tmp_path, "1.0.0", OLD))
    assert found["facts"] == {
        "cuda": {"value": "13.0"},
        "least_capability": {"value": "7.5"},
        "capacity_defaults": {"value": [[20 * 1024, 2048, 8, 8], [None, 4096, 256, 512]]},
    }
    assert (set(found["takes_media"]), set(found["vision_off"])) == ({"Zeroth", "First", "Second"}, {"Third"})


def test_an_action_that_nobody_taught_the_reader_stops_it(tmp_path):
    strange = OLD.replace('action="store_true"', "action=SurpriseAction")
    with pytest.raises(ValueError, match="--verbose: unknown action SurpriseAction"):
        read(wheel(tmp_path, "1.0.0", strange))


def test_a_wheel_is_added_to_the_releases_that_are_there(tmp_path):
    first = updated("", [wheel(tmp_path, "1.0.9", OLD)])
    both = json.loads(updated(first, [wheel(tmp_path, "1.0.10", OLD)]))
    assert both["versions"] == ["1.0.9", "1.0.10"]
    # A version in which nothing changed adds nothing but its number.
    assert both | {"versions": ["1.0.9"]} == json.loads(first)


def test_a_wheel_replaces_its_own_release_and_a_release_goes_only_if_it_is_named(tmp_path):
    both = updated("", [wheel(tmp_path, version, OLD) for version in ("1.0.0", "1.1.0")])
    changed = updated(both, [wheel(tmp_path / "again", "1.1.0", NEW)])
    assert changed == updated("", [tmp_path / "1.0.0", tmp_path / "again" / "1.1.0"])
    assert updated(changed, [], ["1.0.0"]) == updated("", [tmp_path / "again" / "1.1.0"])
    with pytest.raises(KeyError, match=r"2\.0\.0"):
        updated(both, [], ["2.0.0"])


def test_facts_that_end_are_named_so_that_somebody_looks(tmp_path):
    (wheel(tmp_path, "1.0.0", OLD) / "sglang/srt/mem_cache").mkdir()
    (tmp_path / "1.0.0/sglang/srt/mem_cache/radix_cache.py").write_text("priority=priority + 1")
    text = updated("", [tmp_path / "1.0.0", wheel(tmp_path, "1.1.0", OLD)])
    assert ended(text) == ["1.1.0: no answers_evicted_first, which 1.0.0 has (mem_cache/radix_cache.py)"]


def test_a_changed_or_removed_flag_ends_its_span(tmp_path):
    found = json.loads(updated("", [wheel(tmp_path, "1.0.0", NEW), wheel(tmp_path, "1.1.0", OLD)]))
    assert [(span["since"], span.get("until")) for span in found["fields"]["tp_size"]] == [
        ("1.0.0", "1.0.0"),
        ("1.1.0", None),
    ]
    assert [(span["since"], span.get("until")) for span in found["fields"]["limits"]] == [("1.0.0", "1.0.0")]
