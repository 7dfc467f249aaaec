"""The crafted weights, run by a plain forward pass on the CPU: they do what the truth says of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpu.truth import CraftedTruth

torch = pytest.importorskip("torch", reason="the crafted models need torch")
safetensors = pytest.importorskip("safetensors.torch", reason="the crafted models need safetensors")
craft = pytest.importorskip("gpu.craft")

HIDDEN, VOCABULARY = 1024, 512


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("models")
    shape = ["--layers", "1", "--hidden", str(HIDDEN), "--vocabulary", str(VOCABULARY)]
    craft.main([str(where), "--acceptance", "0.5", *shape])
    return where


def norm(x: torch.Tensor) -> torch.Tensor:
    return x / x.pow(2).mean(-1, keepdim=True).sqrt()


def rotated(x: torch.Tensor) -> torch.Tensor:
    """Llama's rotary positions on [tokens, heads, 128]."""
    angle = torch.arange(x.shape[0])[:, None] / 10000 ** (torch.arange(0, 128, 2) / 128)
    cos, sin = angle.cos()[:, None], angle.sin()[:, None]
    first, second = x[..., :64], x[..., 64:]
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


def draft_step(weights: dict[str, torch.Tensor], embedded: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
    """The residual stream after the EAGLE-3 layer, at every position."""
    both = torch.cat([norm(embedded), torch.nan_to_num(norm(hidden))], -1)
    attention = {name: weights[f"midlayer.self_attn.{name}_proj.weight"] for name in ("q", "k", "v", "o")}
    q, k, v = ((both @ attention[name].T).unflatten(-1, (-1, 128)) for name in ("q", "k", "v"))
    group = q.shape[1] // k.shape[1]
    q, k, v = rotated(q), rotated(k).repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = torch.einsum("qhd,khd->hqk", q, k) / 128**0.5
    mask = torch.ones(scores.shape[1:], dtype=torch.bool).tril()
    mixed = torch.einsum("hqk,khd->qhd", scores.masked_fill(~mask, -1e9).softmax(-1), v)
    return hidden + mixed.flatten(1) @ attention["o"].T


def test_the_target_says_the_next_token_of_the_circle(folder: Path) -> None:
    truth = CraftedTruth.read(folder / "truth-0.5.json")
    weights = safetensors.load_file(folder / "target/model.safetensors")
    assert not weights["model.layers.0.self_attn.o_proj.weight"].any()
    assert not weights["model.layers.0.mlp.down_proj.weight"].any()
    said = (norm(weights["model.embed_tokens.weight"].float()) @ weights["lm_head.weight"].float().T).argmax(-1)
    assert said.tolist() == [truth.next(token) for token in range(VOCABULARY)]


def test_the_draft_is_right_but_after_the_wrong_tokens_at_every_step(folder: Path) -> None:
    truth = CraftedTruth.read(folder / "truth-0.5.json")
    target = safetensors.load_file(folder / "target/model.safetensors")
    weights = {
        name: tensor.float() for name, tensor in safetensors.load_file(folder / "draft-0.5/model.safetensors").items()
    }
    prompt = truth.prompts(3, 40)[2]
    tokens = torch.tensor(truth.output(prompt[:1], 40))
    embedded = target["model.embed_tokens.weight"].float()[tokens]
    hidden = torch.zeros(len(tokens), HIDDEN)
    for _step in range(4):
        # Every position drafts at once, from the hidden state that the step before left one position earlier.
        out = draft_step(weights, embedded, hidden)
        said = (norm(out) @ weights["lm_head.weight"].T).argmax(-1).tolist()
        right = [draft == truth.next(token) for draft, token in zip(said, tokens.tolist(), strict=True)]
        assert right == [token not in truth.wrong for token in tokens.tolist()]
        hidden = torch.cat([hidden[:1], out[:-1]])
    assert 5 < sum(right) < 35


def test_config_names_the_shapes_that_the_weights_have(folder: Path) -> None:
    config = json.loads((folder / "draft-0.5/config.json").read_text())
    weights = safetensors.load_file(folder / "draft-0.5/model.safetensors")
    assert config["architectures"] == ["LlamaForCausalLMEagle3"]
    kv = config["num_key_value_heads"] * config["head_dim"]
    assert weights["midlayer.self_attn.k_proj.weight"].shape == (kv, 2 * config["hidden_size"])
    assert weights["midlayer.mlp.down_proj.weight"].shape == (config["hidden_size"], config["intermediate_size"])
    assert weights["lm_head.weight"].shape == (config["draft_vocab_size"], config["hidden_size"])
