#!/usr/bin/env python3
"""Makes tests/golden/hf: tiny random models of transformers with what they compute. The C++ test
tests/apps/hf_golden_test.cpp holds our reading of the folders against it, without Python.

    python3 tests/interop/hf_golden.py [FOLDER]
"""

import json
import pathlib
import shutil
import sys

from hf_models import compute, need_transformers, random_ids

torch, transformers = need_transformers()
from safetensors.torch import load_file, save_file

NEW_TOKENS = 64
COMMON = dict(vocab_size=96, hidden_size=32, num_hidden_layers=3, num_attention_heads=4,
              num_experts_per_tok=2, max_position_embeddings=128, initializer_range=0.25,
              bos_token_id=None, pad_token_id=None)


def randomise(model):
    """Gains other than 1: a norm that is left out or misplaced must show."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "norm" in name:
                p.copy_(1 + 0.3 * torch.randn_like(p))


def fuse(folder):
    """The folder with each layer's experts in the two tensors that 5.x holds in memory."""
    tensors = load_file(folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}.mlp.experts."
        take = lambda e, part: tensors.pop(f"{prefix}{e}.{part}_proj.weight")
        experts = range(config.get("num_experts") or config["num_local_experts"])
        gate_up = [torch.cat([take(e, "gate"), take(e, "up")]) for e in experts]
        down = [take(e, "down") for e in experts]
        tensors[prefix + "gate_up_proj"] = torch.stack(gate_up)
        tensors[prefix + "down_proj"] = torch.stack(down)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def make(out, name, config, dtype, shard=None, fused=False):
    torch.manual_seed(7)
    folder = out / name
    model = transformers.AutoModelForCausalLM.from_config(config)
    randomise(model)
    model = model.to(dtype)  # the files hold rounded weights, the oracle computes with them in f32
    model.save_pretrained(folder, **({"max_shard_size": shard} if shard else {}))
    if fused:
        fuse(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    ids = random_ids(torch, model.eval(), (2, 24))
    result = compute(torch, model, ids, ids[:1, :8], NEW_TOKENS)
    save_file({"ids": ids, "logits": result["logits"].contiguous(),
               "loss": torch.tensor([result["loss"]], dtype=torch.float64),
               "aux": torch.tensor([result["aux"]], dtype=torch.float64),
               "greedy": result["greedy"].contiguous()}, folder / "golden.safetensors")
    for extra in folder.glob("generation_config.json"):
        extra.unlink()
    print(f"{name}: loss {result['loss']:.6f}, aux {result['aux']:.6f}")


def main():
    root = pathlib.Path(__file__).resolve().parents[1]
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else root / "golden" / "hf"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    qwen = lambda **more: transformers.Qwen3MoeConfig(
        **{**COMMON, **dict(num_key_value_heads=2, head_dim=16, num_experts=6,
                            moe_intermediate_size=16, intermediate_size=48, norm_topk_prob=True,
                            eos_token_id=[5, 6], rope_parameters={"rope_type": "default",
                                                                  "rope_theta": 1e6}), **more})
    make(out, "qwen3_moe", qwen(), torch.float32)
    make(out, "qwen3_moe-fused-tied",
         qwen(norm_topk_prob=False, tie_word_embeddings=True, num_hidden_layers=2), torch.bfloat16,
         fused=True)
    make(out, "olmoe", transformers.OlmoeConfig(
        **COMMON, num_key_value_heads=2, num_experts=6, intermediate_size=16, clip_qkv=1.5,
        eos_token_id=5), torch.bfloat16)
    make(out, "mixtral-sharded", transformers.MixtralConfig(
        **COMMON, num_key_value_heads=2, num_local_experts=4, intermediate_size=16,
        eos_token_id=5), torch.float16, shard="20KB")


main()
