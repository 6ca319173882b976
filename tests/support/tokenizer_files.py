"""Small tokenizers, trained here on the words that a test gives: each as its tokenizer.json."""

from __future__ import annotations

from functools import cache

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers


@cache
def byte_level(words: tuple[str, ...]) -> str:
    """A BPE over bytes, where the space before a word is part of its token."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=4000, show_progress=False, initial_alphabet=alphabet)
    lines = [" ".join(words), " ".join(words[::-1]), *words]
    tokenizer.train_from_iterator(lines * 3, trainer)
    return tokenizer.to_str()


@cache
def metaspace(words: tuple[str, ...]) -> str:
    """A BPE where each word begins with a mark, the first one too, and BOS begins each text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=4000, show_progress=False, special_tokens=["<s>"])
    tokenizer.train_from_iterator([" ".join(words)] * 3, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 0)]
    )
    return tokenizer.to_str()


def over_words(words: tuple[str, ...]) -> str:
    """A BPE whose tokens reach over the spaces between words."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    trainer = trainers.BpeTrainer(vocab_size=4000, show_progress=False)
    tokenizer.train_from_iterator([" ".join(words), " ".join(words[::-1])] * 3, trainer)
    return tokenizer.to_str()
