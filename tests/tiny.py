"""A whole causal model made on the spot: random weights, byte-level tokenizer, chat template, about 30k parameters.

It is written with numpy and safetensors alone, so a test that only needs the files never imports torch.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

BOS, EOS, PAD, TURN = "<s>", "</s>", "<pad>", "<|im_start|>"
HIDDEN, INTERMEDIATE, LAYERS, HEADS, KV_HEADS, POSITIONS = 32, 64, 2, 4, 2, 2048

# ChatML with eos as the end of a turn, tools and tool calls in the manner of Qwen. It emits <s> itself, and the
# tokenizer adds <s> to plain text too: the trap of a doubled <s> is always there.
CHAT_TEMPLATE = """{{- bos_token }}
{%- if tools %}
{{- '<|im_start|>tools\\n' }}
{%- for tool in tools %}{{- tool | tojson + '\\n' }}{%- endfor %}
{{- eos_token + '\\n' }}
{%- endif %}
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' }}
{%- if message.content %}{{- message.content }}{%- endif %}
{%- for call in message.tool_calls or [] %}
{{- '<tool_call>{"name": "' + call.function.name + '", "arguments": ' }}
{{- call.function.arguments | tojson + '}</tool_call>' }}
{%- endfor %}
{{- eos_token + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"""


def make_tiny(
    folder: Path,
    *,
    pad: bool = True,
    chat_template: bool | str = True,
    tied: bool = False,
    extra_tokens: Sequence[str] = (),
    merges: Sequence[tuple[str, str]] = (),
    adds_bos: bool = True,
    seed: int = 0,
) -> Path:
    """Write the model into `folder` and return it.

    pad            False leaves the tokenizer without a pad token and its vocabulary without <pad>
    chat_template  False for none, or a Jinja text in place of CHAT_TEMPLATE
    extra_tokens   further special tokens
    merges         BPE merges over the byte alphabet, such as [("o", "k")]
    adds_bos       whether the tokenizer puts <s> before plain text
    """
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = _tokenizer(pad=pad, extra_tokens=extra_tokens, merges=merges, adds_bos=adds_bos)
    tokenizer.save(str(folder / "tokenizer.json"))
    _write_json(folder / "tokenizer_config.json", _tokenizer_config(pad=pad))
    if chat_template:
        text = CHAT_TEMPLATE if chat_template is True else chat_template
        (folder / "chat_template.jinja").write_text(text, encoding="utf-8")
    ids = {name: tokenizer.token_to_id(token) for name, token in (("bos", BOS), ("eos", EOS), ("pad", PAD))}
    special_ids = {f"{name}_token_id": id_ for name, id_ in ids.items() if id_ is not None}
    vocab_size = tokenizer.get_vocab_size()
    _write_json(folder / "config.json", _model_config(vocab_size, special_ids, tied=tied))
    _write_json(folder / "generation_config.json", special_ids)
    weights = _weights(vocab_size, tied=tied, seed=seed)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def _tokenizer(
    *, pad: bool, extra_tokens: Sequence[str], merges: Sequence[tuple[str, str]], adds_bos: bool
) -> Tokenizer:
    special = [BOS, EOS, *([PAD] if pad else []), TURN, *extra_tokens]
    vocab = {token: id_ for id_, token in enumerate(special)}
    for token in [*sorted(pre_tokenizers.ByteLevel.alphabet()), *(left + right for left, right in merges)]:
        vocab.setdefault(token, len(vocab))
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=list(merges)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    if adds_bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{BOS} $A", pair=f"{BOS} $A {BOS} $B", special_tokens=[(BOS, vocab[BOS])]
        )
    return tokenizer


def _tokenizer_config(*, pad: bool) -> dict[str, object]:
    config: dict[str, object] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BOS,
        "eos_token": EOS,
        "model_max_length": POSITIONS,
        "clean_up_tokenization_spaces": False,
    }
    return config | {"pad_token": PAD} if pad else config


def _model_config(vocab_size: int, special_ids: dict[str, int], *, tied: bool) -> dict[str, object]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": INTERMEDIATE,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HIDDEN // HEADS,
        "hidden_act": "silu",
        "max_position_embeddings": POSITIONS,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "initializer_range": 0.02,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "mlp_bias": False,
        "tie_word_embeddings": tied,
        "dtype": "float32",
        "vocab_size": vocab_size,
        **special_ids,
    }


def _weights(vocab_size: int, *, tied: bool, seed: int) -> dict[str, NDArray[np.float32]]:
    random = np.random.default_rng(seed)

    def matrix(rows: int, columns: int) -> NDArray[np.float32]:
        return random.normal(0, 0.02, (rows, columns)).astype(np.float32)

    def ones() -> NDArray[np.float32]:
        return np.ones(HIDDEN, np.float32)

    kv = HIDDEN // HEADS * KV_HEADS
    weights = {"model.embed_tokens.weight": matrix(vocab_size, HIDDEN), "model.norm.weight": ones()}
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}"
        weights |= {
            f"{prefix}.self_attn.q_proj.weight": matrix(HIDDEN, HIDDEN),
            f"{prefix}.self_attn.k_proj.weight": matrix(kv, HIDDEN),
            f"{prefix}.self_attn.v_proj.weight": matrix(kv, HIDDEN),
            f"{prefix}.self_attn.o_proj.weight": matrix(HIDDEN, HIDDEN),
            f"{prefix}.mlp.gate_proj.weight": matrix(INTERMEDIATE, HIDDEN),
            f"{prefix}.mlp.up_proj.weight": matrix(INTERMEDIATE, HIDDEN),
            f"{prefix}.mlp.down_proj.weight": matrix(HIDDEN, INTERMEDIATE),
            f"{prefix}.input_layernorm.weight": ones(),
            f"{prefix}.post_attention_layernorm.weight": ones(),
        }
    if not tied:
        weights["lm_head.weight"] = matrix(vocab_size, HIDDEN)
    return weights


def _write_json(path: Path, value: dict[str, object]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
