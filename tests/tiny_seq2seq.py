"""Tiny encoder-decoders and encoders with a byte-level tokenizer, written to a folder; tests never write into it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    BertConfig,
    BertForMaskedLM,
    MarianConfig,
    MarianMTModel,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
)

PAD, EOS, CLS, SEP, MASK = "<pad>", "</s>", "[CLS]", "[SEP]", "[MASK]"
HIDDEN, LAYERS, HEADS = 32, 2, 4


def make_tiny_t5(folder: Path) -> Path:
    return _write(folder, lambda n: T5ForConditionalGeneration(
        T5Config(vocab_size=n, d_model=HIDDEN, d_kv=8, d_ff=64, num_layers=LAYERS, num_heads=HEADS, dropout_rate=0.0,
                 pad_token_id=0, eos_token_id=1, decoder_start_token_id=0)))  # fmt: skip


def make_tiny_bart(folder: Path) -> Path:
    return _write(folder, lambda n: BartForConditionalGeneration(_bart(BartConfig, n)))


def make_tiny_marian(folder: Path) -> Path:
    return _write(folder, lambda n: MarianMTModel(_bart(MarianConfig, n)))


def make_tiny_bert(folder: Path) -> Path:
    """A masked language model without a classifier, with segments for pairs: [CLS] a [SEP] b [SEP]."""
    return _write(folder, lambda n: BertForMaskedLM(
        BertConfig(vocab_size=n, hidden_size=HIDDEN, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
                   intermediate_size=64, max_position_embeddings=256, hidden_dropout_prob=0.0,
                   attention_probs_dropout_prob=0.0, pad_token_id=0)), is_bert=True)  # fmt: skip


def _bart(kind: Any, n: int) -> Any:
    return kind(vocab_size=n, d_model=HIDDEN, encoder_layers=LAYERS, decoder_layers=LAYERS, dropout=0.0,
                encoder_attention_heads=HEADS, decoder_attention_heads=HEADS, encoder_ffn_dim=64, decoder_ffn_dim=64,
                max_position_embeddings=512, pad_token_id=0, bos_token_id=1, eos_token_id=1, decoder_start_token_id=0,
                forced_eos_token_id=1)  # fmt: skip


def _write(folder: Path, make: Callable[[int], Any], *, is_bert: bool = False) -> Path:
    special = [PAD, EOS, CLS, SEP, MASK]
    vocab = {token: id_ for id_, token in enumerate([*special, *sorted(pre_tokenizers.ByteLevel.alphabet())])}
    backend = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    single, pair = (
        (f"{CLS} $A {SEP}", f"{CLS} $A {SEP} $B:1 {SEP}:1") if is_bert else (f"$A {EOS}", f"$A {EOS} $B {EOS}")
    )
    backend.post_processor = processors.TemplateProcessing(
        single=single, pair=pair, special_tokens=[(token, vocab[token]) for token in special]
    )
    names: dict[str, Any] = {"pad_token": PAD, "eos_token": EOS, "model_max_length": 512}
    if is_bert:
        inputs = ["input_ids", "token_type_ids", "attention_mask"]
        names = {"pad_token": PAD, "cls_token": CLS, "sep_token": SEP, "mask_token": MASK, "model_input_names": inputs}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, clean_up_tokenization_spaces=False, **names)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    make(len(vocab)).save_pretrained(folder)
    return folder
