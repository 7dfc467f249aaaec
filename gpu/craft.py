"""Crafts a target and EAGLE-3 drafts with real shapes and real costs, whose acceptance is known exactly. Needs torch.

How it works. In every layer of the target the output projections of attention and MLP are zero: all the arithmetic is
done, at its full price, and adds nothing. The residual stream is then the token embedding from the first layer to the
last, the final norm makes it a vector of length sqrt(H), and the row of `lm_head` for a token is the normed embedding of
the token *before* it in the circle (`truth.py`). So the greedy next token is the next of the circle, by a wide margin:
random embeddings of 4096 numbers are all but orthogonal, which bf16 cannot blur.

The draft is one EAGLE-3 layer. It sees the embedding of the last token and a hidden state, and its own lm_head knows the
circle as the target's does. `fc` is zero, so the target's hidden states tell it nothing; what it needs is the embedding
of its token in the residual stream, which starts as that hidden state. Its attention puts it there: queries and keys are
one random projection of the embedding, so that a token attends to itself, and values and output carry the embedding
through an orthonormal basis of NKV * D dimensions. That is part of the embedding, enough to tell the tokens apart.
At the tokens drawn as wrong, the rows of the draft's lm_head are exchanged among each other: there it drafts another
token, and nowhere else. Drafts are thus right with the chance P, independently, at every step alike.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from gpu.truth import CraftedTruth, craft_truth

__all__ = ["Shape", "craft_draft", "craft_target", "main"]

Weights = dict[str, torch.Tensor]

_STD = 0.02
_KEY_STD = 0.029
"""Large enough that a token's own key wins the softmax by far, small enough for bf16."""


@dataclass(frozen=True)
class Shape:
    """A Llama shape. `head_dim` and the head counts follow from `hidden`: heads of 128, a quarter of them for keys."""

    layers: int
    hidden: int
    vocabulary: int

    @property
    def heads(self) -> int:
        return self.hidden // 128

    @property
    def kv_heads(self) -> int:
        return max(1, self.heads // 4)

    @property
    def intermediate(self) -> int:
        return self.hidden * 7 // 2

    def config(self, architecture: str, layers: int) -> dict[str, Any]:
        """`config.json`, for a model of `layers` layers."""
        return {
            "architectures": [architecture],
            "model_type": "llama",
            "hidden_size": self.hidden,
            "intermediate_size": self.intermediate,
            "num_hidden_layers": layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": 128,
            "vocab_size": self.vocabulary,
            "max_position_embeddings": 8192,
            "rope_theta": 10000.0,
            "rms_norm_eps": 1e-6,
            "hidden_act": "silu",
            "attention_bias": False,
            "mlp_bias": False,
            "tie_word_embeddings": False,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "torch_dtype": "bfloat16",
        }


@dataclass(frozen=True)
class _Base:
    """What target and drafts share: embeddings, their normed form, and the rows of the target's lm_head."""

    embedding: torch.Tensor
    normed: torch.Tensor
    lm_head: torch.Tensor


def _noise(*size: int, std: float = _STD) -> torch.Tensor:
    return (torch.randn(*size, dtype=torch.float32) * std).to(torch.bfloat16)


def _base(shape: Shape, truth: CraftedTruth) -> _Base:
    torch.manual_seed(truth.seed)
    embedding = torch.randn(shape.vocabulary, shape.hidden) * _STD
    normed = embedding / embedding.pow(2).mean(-1, keepdim=True).sqrt()
    order = torch.tensor(truth.order)
    lm_head = torch.zeros_like(embedding)
    lm_head[order.roll(-1)] = normed[order]
    return _Base(embedding, normed, lm_head)


def craft_target(shape: Shape, truth: CraftedTruth) -> Weights:
    """The target's weights, on the CPU."""
    base, kv = _base(shape, truth), shape.kv_heads * 128
    weights: Weights = {
        "model.embed_tokens.weight": base.embedding,
        "lm_head.weight": base.lm_head,
        "model.norm.weight": torch.ones(shape.hidden),
    }
    for layer in range(shape.layers):
        at = f"model.layers.{layer}"
        weights |= {
            f"{at}.self_attn.q_proj.weight": _noise(shape.hidden, shape.hidden),
            f"{at}.self_attn.k_proj.weight": _noise(kv, shape.hidden),
            f"{at}.self_attn.v_proj.weight": _noise(kv, shape.hidden),
            f"{at}.self_attn.o_proj.weight": torch.zeros(shape.hidden, shape.hidden),
            f"{at}.mlp.gate_proj.weight": _noise(shape.intermediate, shape.hidden),
            f"{at}.mlp.up_proj.weight": _noise(shape.intermediate, shape.hidden),
            f"{at}.mlp.down_proj.weight": torch.zeros(shape.hidden, shape.intermediate),
            f"{at}.input_layernorm.weight": torch.ones(shape.hidden),
            f"{at}.post_attention_layernorm.weight": torch.ones(shape.hidden),
        }
    return _saved_form(weights)


def craft_draft(shape: Shape, truth: CraftedTruth) -> Weights:
    """The weights of the draft that is wrong after the tokens in `truth.wrong`, on the CPU."""
    base, hidden, kv = _base(shape, truth), shape.hidden, shape.kv_heads * 128
    basis = torch.linalg.qr(torch.randn(hidden, kv)).Q
    key = torch.randn(shape.kv_heads, 128, hidden) * _KEY_STD
    query = key.repeat_interleave(shape.heads // shape.kv_heads, 0)
    zeros = torch.zeros(hidden, hidden)
    output = torch.zeros(hidden, hidden)
    for head in range(shape.kv_heads):
        first = head * (shape.heads // shape.kv_heads) * 128  # one query head of each group is enough
        output[:, first : first + 128] = basis[:, head * 128 : (head + 1) * 128]
    # An EAGLE-3 layer attends over [normed embedding, normed hidden state]: two halves a projection. The hidden state of
    # the step before is the token before, of length sqrt(kv), and stays in the residual stream; normed it has length
    # sqrt(hidden). Times this share it is taken away again, so that only the last token is left.
    before = -((kv / hidden) ** 0.5)
    weights: Weights = {
        "fc.weight": torch.zeros(hidden, 3 * hidden),
        "midlayer.self_attn.q_proj.weight": torch.cat([query.reshape(hidden, hidden), zeros], 1),
        "midlayer.self_attn.k_proj.weight": torch.cat([key.reshape(kv, hidden), zeros[:kv]], 1),
        "midlayer.self_attn.v_proj.weight": torch.cat([basis.T, before * basis.T], 1),
        "midlayer.self_attn.o_proj.weight": output,
        "midlayer.mlp.gate_proj.weight": _noise(shape.intermediate, hidden),
        "midlayer.mlp.up_proj.weight": _noise(shape.intermediate, hidden),
        "midlayer.mlp.down_proj.weight": torch.zeros(hidden, shape.intermediate),
        "midlayer.hidden_norm.weight": torch.ones(hidden),
        "midlayer.input_layernorm.weight": torch.ones(shape.hidden),
        "midlayer.post_attention_layernorm.weight": torch.ones(shape.hidden),
        "norm.weight": torch.ones(hidden),
        "lm_head.weight": _draft_head(base, truth),
    }
    # Which of the target's tokens the draft knows (all), and how far each of its own is from the target's.
    known = {
        "d2t": torch.zeros(shape.vocabulary, dtype=torch.int64, device="cpu"),
        "t2d": torch.ones(shape.vocabulary, dtype=torch.bool, device="cpu"),
    }
    return {**_saved_form(weights), **known}


def _draft_head(base: _Base, truth: CraftedTruth) -> torch.Tensor:
    """The target's lm_head, but what should follow a wrong token follows another wrong token instead."""
    head = base.lm_head.clone()
    wrong = sorted(truth.wrong)
    after = torch.tensor([truth.next(token) for token in wrong], dtype=torch.int64)
    head[after] = base.normed[torch.tensor(wrong, dtype=torch.int64).roll(1)]
    return head


def _saved_form(weights: Weights) -> Weights:
    return {name: tensor.to(torch.bfloat16).cpu() for name, tensor in weights.items()}


def _save(folder: Path, weights: Weights, config: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    """Writes target/, and draft-P/ and truth-P.json for each acceptance, below a folder."""
    parser = argparse.ArgumentParser(prog="python -m gpu.craft", description=main.__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--acceptance", type=float, nargs="+", default=[0.6, 0.8], metavar="P")
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--hidden", type=int, default=4096, help="a multiple of 128")
    parser.add_argument("--vocabulary", type=int, default=32768)
    parser.add_argument("--seed", type=int, default=7)
    chosen = parser.parse_args(arguments)
    shape = Shape(chosen.layers, chosen.hidden, chosen.vocabulary)
    if torch.cuda.is_available():
        torch.set_default_device("cuda")
    began = time.monotonic()
    for number, acceptance in enumerate(chosen.acceptance):
        truth = craft_truth(shape.vocabulary, acceptance, chosen.seed)
        if number == 0:
            _save(chosen.folder / "target", craft_target(shape, truth), shape.config("LlamaForCausalLM", shape.layers))
        config = {**shape.config("LlamaForCausalLMEagle3", 1), "draft_vocab_size": shape.vocabulary}
        _save(chosen.folder / f"draft-{acceptance}", craft_draft(shape, truth), config)
        truth.save(chosen.folder / f"truth-{acceptance}.json")
        print(f"P = {acceptance}: {len(truth.wrong)} of {shape.vocabulary} tokens are drafted wrong")
    print(f"models in {chosen.folder} after {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
