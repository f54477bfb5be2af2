"""Whether an answer about an image came from one that the engine looked at.

Where the engine has turned the vision of its model off, or the model has none, SGLang refuses images from 0.5.17 on. Before,
it drops them without a word and answers all the same: a chat template may leave a marker where the image was, and that is
all. An image that is looked at makes the prompt longer by its own tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from vlm_runtime.client import Answer, EngineClient, EngineUnreachable

# What a chat template writes for an image: three of the model's own tokens at most in every family that was looked at
# (Qwen: start, image, end). The least that an image is made into is 4 tokens and its markers (Qwen2.5-VL, 64 x 64 pixels),
# so that a prompt which grew by few tokens alone proves nothing.
MOST_MARKER_TOKENS: Final = 8
# entrypoints/openai/serving_chat.py
TEXT_ONLY: Final = b"only supports text input"


def is_answer(answer: Answer) -> bool:
    """Whether it answers a question, whatever it says."""
    if answer.status != 200:
        return False
    try:
        return bool(answer.json()["choices"])
    except (ValueError, KeyError, TypeError):
        return False


def prompt_tokens(answer: Answer) -> int | None:
    """How many tokens the engine counted in the question; None where it does not say."""
    try:
        counted = answer.json()["usage"]["prompt_tokens"]
    except (ValueError, KeyError, TypeError):
        return None
    return counted if isinstance(counted, int) and not isinstance(counted, bool) else None


def unseen(
    client: EngineClient, model: str, answer: Answer, *, timeout_seconds: float, say: Callable[[str], None]
) -> str | None:
    """Why ``answer`` cannot be about the image, as a sentence; None where the image was seen, or nothing tells.

    Both must speak against it: the prompt with the image is hardly longer than the one without, and the engine does not
    say of itself that its model understands images.
    """
    with_image = prompt_tokens(answer)
    if with_image is None:
        say("the engine did not count the tokens of its first question, so nothing tells whether it saw the image")
        return None
    try:
        plain = client.ask_without_image(model, timeout_seconds=timeout_seconds)
    except EngineUnreachable as error:
        say(f"whether the image was seen could not be asked: {error}")
        return None
    without = prompt_tokens(plain) if is_answer(plain) else None
    if without is None:
        say(f"whether the image was seen is not told: the same question without it was answered with {plain.status}")
        return None
    more = with_image - without
    if more > MOST_MARKER_TOKENS or client.understands_images() is True:
        return None
    return (
        f"The engine answered about an image without looking at it: with the image its prompt has {with_image} tokens, "
        f"without it {without}, and it does not say that its model understands images."
    )
