"""``spec.model``: the model and the location of its files."""

from typing import Annotated

from pydantic import Field

from vlm_api.base import IMAGE, NO_PARENT, ApiModel, Matches, Name, between

MODEL_URI = (
    r"^(hf://[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?"
    r"|pvc://[a-z0-9]([-a-z0-9.]*[a-z0-9])?(/[^\s]*)?"
    rf"|oci://{IMAGE}"
    r"|file:///[^\s]*)$"
)


class SecretKeyRef(ApiModel):
    """One key of a Secret in the service's namespace."""

    name: Name
    """The Secret's name."""
    key: Annotated[
        str,
        Field(min_length=1, max_length=253),
        Matches(r"^[-._a-zA-Z0-9]+$", "must be a key of a Secret: letters, digits, '-', '_' and '.'"),
    ]
    """The key inside the Secret."""


class ModelSpec(ApiModel):
    """The model and the location of its files."""

    uri: Annotated[
        str,
        Field(min_length=1, max_length=1024),
        Matches(
            MODEL_URI,
            "must be hf://ORG/NAME or hf://NAME (revision in spec.model.revision), pvc://CLAIM/PATH, oci://IMAGE or "
            "file:///PATH",
        ),
        Matches(NO_PARENT, "must not contain .. in its path: write the resolved path"),
    ]
    """Location of the model: ``hf://ORG/NAME`` or ``hf://NAME`` (a Hugging Face id), ``pvc://CLAIM/PATH``, ``oci://IMAGE``
    (an image volume) or ``file:///PATH`` (a path inside the pod)."""
    revision: (
        Annotated[
            str,
            Field(min_length=1, max_length=253),
            Matches(r"^[^-\s][^\s]*$", "must not contain spaces or begin with '-'"),
        ]
        | None
    ) = None
    """Branch, tag or commit of a hub model. Default: the hub's default branch."""
    name: (
        Annotated[
            str,
            Field(min_length=1, max_length=253),
            Matches(
                r"^[^-:\s][^:\s]*$",
                "must not contain spaces or colons (a colon separates the adapter's name) or begin with '-'",
            ),
        ]
        | None
    ) = None
    """The model name in requests. Default: the service's name."""
    architecture: (
        Annotated[
            str,
            Field(min_length=1, max_length=128),
            Matches(r"^[A-Za-z0-9_]+$", "must be a class name such as Qwen3VLForConditionalGeneration"),
        ]
        | None
    ) = None
    """The first entry of ``architectures`` in the model's config.json. Default: detected."""
    parameters_billion: Annotated[int, between(1, 100_000)] | None = None
    """The number of parameters in billions, rounded up. Default: detected."""
    token_secret_ref: SecretKeyRef | None = None
    """The Secret with the Hugging Face token, for gated and private models."""
    cache_claim: Name | None = None
    """A PersistentVolumeClaim that caches downloaded weights. Default: an emptyDir, so each pod downloads them again."""
