"""Scores a model on held-out chat rows: greedy answers against the reference, as `exact` and as `similar`.

exact: share of answers equal to the reference (outer space aside). similar: mean difflib ratio, 0 to 1.

    python examples/score.py MODEL_FOLDER ROWS.jsonl OUT.json [--adapter FOLDER]
"""

from __future__ import annotations

import argparse
import json
import warnings
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

BATCH = 8


def answers(model: Any, tokenizer: Any, prompts: list[str], max_new_tokens: int) -> list[str]:
    """Greedy completions, in the order of `prompts`."""
    tokenizer.padding_side = "left"
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    found: list[str] = []
    for start in range(0, len(prompts), BATCH):
        batch = tokenizer(
            prompts[start : start + BATCH], return_tensors="pt", padding=True, add_special_tokens=False
        )  # ids_BT
        with torch.inference_mode():
            ids_BT = model.generate(**batch, max_new_tokens=max_new_tokens, do_sample=False)
        fresh_BT = ids_BT[:, batch["input_ids"].shape[1] :]
        found += [text.strip() for text in tokenizer.batch_decode(fresh_BT, skip_special_tokens=True)]
    return found


def score(references: list[str], found: list[str]) -> dict[str, float]:
    n = len(references)
    pairs = list(zip(references, found, strict=True))
    return {
        "exact": sum(wanted == got for wanted, got in pairs) / n,
        "similar": sum(SequenceMatcher(None, wanted, got).ratio() for wanted, got in pairs) / n,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("rows", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--adapter", type=Path)
    options = parser.parse_args()

    logging.set_verbosity_error()
    # PEFT reads a name that transformers is about to drop.
    warnings.filterwarnings("ignore", message="`is_gradient_checkpointing` is deprecated")
    rows = [json.loads(line)["messages"] for line in options.rows.read_text(encoding="utf-8").splitlines() if line]
    tokenizer = AutoTokenizer.from_pretrained(options.adapter or options.model)
    model = AutoModelForCausalLM.from_pretrained(options.model, dtype="float32")
    if options.adapter:
        model = PeftModel.from_pretrained(model, options.adapter).merge_and_unload()
    model.eval()

    references = [row[-1]["content"].strip() for row in rows]
    prompts = [tokenizer.apply_chat_template(row[:-1], tokenize=False, add_generation_prompt=True) for row in rows]
    longest = max(len(tokenizer(reference)["input_ids"]) for reference in references)
    found = answers(model, tokenizer, prompts, max_new_tokens=longest + 8)
    samples = [
        {"question": row[-2]["content"], "reference": reference, "answer": answer}
        for row, reference, answer in zip(rows, references, found, strict=True)
    ]
    options.out.write_text(json.dumps({"scores": score(references, found), "n": len(rows), "samples": samples}))


if __name__ == "__main__":
    main()
