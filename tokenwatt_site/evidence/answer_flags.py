"""What is wrong with an answer's text on sight: nothing in it, one piece over and over, markers."""

from __future__ import annotations

from typing import Literal, TypeAlias

Flag: TypeAlias = Literal["empty", "repetitive", "markers"]

MAX_PIECE_CHARS = 200
MIN_PIECES = 5
MIN_LOOP_CHARS = 240
"""A loop is at least so long: a ruled line or a row of dots of that length nobody writes."""

_TAIL_CHARS = max(MIN_LOOP_CHARS, MIN_PIECES * MAX_PIECE_CHARS)

MARKERS = (
    "<|im_start|>",  # ChatML: Qwen, Yi, SmolLM and many others
    "<|im_end|>",
    "<|im_sep|>",  # Phi 4
    "<|endoftext|>",
    "<|begin_of_text|>",  # Llama 3
    "<|end_of_text|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|header_start|>",  # Llama 4
    "<|header_end|>",
    "<|eot|>",
    "[INST]",  # Mistral, Llama 2
    "[/INST]",
    "<<SYS>>",
    "<</SYS>>",
    "[SYSTEM_PROMPT]",
    "[/SYSTEM_PROMPT]",
    "<start_of_turn>",  # Gemma
    "<end_of_turn>",
    "<|system|>",  # Phi 3, Zephyr, GLM 4
    "<|user|>",
    "<|assistant|>",
    "<|observation|>",
    "<|end|>",  # Phi 3, gpt-oss
    "<|start|>",  # gpt-oss
    "<|channel|>",
    "<|message|>",
    "<|return|>",
    "<|START_OF_TURN_TOKEN|>",  # Command R
    "<|END_OF_TURN_TOKEN|>",
    "<|start_of_role|>",  # Granite
    "<|end_of_role|>",
    "<|im_user|>",  # Kimi
    "<|im_assistant|>",
    "<|im_middle|>",
    "<\uff5cUser\uff5c>",  # DeepSeek, with its own wide bars and blanks
    "<\uff5cAssistant\uff5c>",
    "<\uff5cbegin▁of▁sentence\uff5c>",
    "<\uff5cend▁of▁sentence\uff5c>",
)
"""What chat templates alone write. Each is looked for as it stands."""


def flags_of(text: str) -> tuple[Flag, ...]:
    """Return what is wrong with `text` on sight, in the order of `Flag`.

    empty: nothing but white space. repetitive: it ends in one piece that comes again and again.
    markers: it holds what only a chat template writes, so the engine's template is not the model's.
    """
    found: list[Flag] = []
    if not text.strip():
        found.append("empty")
    if _ends_in_a_loop(text):
        found.append("repetitive")
    if _has_markers(text):
        found.append("markers")
    return tuple(found)


def _ends_in_a_loop(text: str) -> bool:
    """Tell whether `text` ends in a piece of at most MAX_PIECE_CHARS characters, over and over.

    It must come MIN_PIECES times in a row, the same to the letter, over at least MIN_LOOP_CHARS;
    the first one may be cut at its beginning, so an answer that ends in the middle of a piece is
    seen too. Only the last thousand characters are looked at, however long the text is.
    """
    tail = text[-_TAIL_CHARS:]
    longest = min(MAX_PIECE_CHARS, len(tail) // MIN_PIECES) if len(tail) >= MIN_LOOP_CHARS else 0
    for piece in range(1, longest + 1):
        loop = max(MIN_LOOP_CHARS, MIN_PIECES * piece)
        # What has a period of so many characters is itself, moved by as many.
        if tail[-loop:-piece] == tail[len(tail) - loop + piece :]:
            return True
    return False


def _has_markers(text: str) -> bool:
    # <s> and </s> begin and end a text of Llama 2 and others, and strike text out in HTML: there
    # they come in pairs.
    return any(marker in text for marker in MARKERS) or text.count("<s>") != text.count("</s>")
