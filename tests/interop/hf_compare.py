#!/usr/bin/env python3
"""Our checkpoints and exports against transformers: they load without missing or unexpected tensors
and compute the same logits, loss, auxiliary loss and greedy continuation.

    python3 tests/interop/hf_compare.py --build build      (ends with 77 where it cannot run)
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

from hf_models import SKIP, compute, need_transformers, random_ids

torch, transformers = need_transformers()
from safetensors.torch import load_file, save_file

MODEL = ["--model.hidden_size=48", "--model.num_layers=4", "--model.num_heads=4",
         "--model.num_kv_heads=2", "--model.head_dim=16", "--model.num_experts=6",
         "--model.expert_hidden_size=24", "--model.max_seq_len=128", "--model.init_std=0.1"]
TRAIN = ["--train.seq_len=32", "--train.micro_batch=4", "--train.global_batch=8",
         "--train.tokens=2560", "--optim.lr=0.01", "--run.eval_every=0"]
LOOP = ["--loop.layers=2", "--loop.visits=2"]
# name, options of the training, options of the export (None: the checkpoint itself), model_type
CASES = [
    ("Baseline checkpoint", [], None, "qwen3_moe"),
    ("Baseline, tied head, exported in files of 20 KB", ["--model.tie_embeddings=true"],
     ["--shard-size=20KB"], "qwen3_moe"),
    ("Baseline, tied head written out", ["--model.tie_embeddings=true"], ["--untied"], "qwen3_moe"),
    ("looped, unrolled", LOOP, ["--unroll"], "qwen3_moe"),
    ("looped in place three times, unrolled",
     ["--loop.layers=2", "--loop.visits=3", "--loop.order=layer"], ["--unroll"], "qwen3_moe"),
    ("OLMoE checkpoint", ["--model.qk_norm=projection", "--model.head_dim=12",
                          "--model.clip_qkv=0.5", "--model.norm_topk=false"], None, "olmoe"),
    ("Mixtral checkpoint", ["--model.qk_norm=false"], None, "mixtral"),
]


def run(*words):
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"hf_compare: {' '.join(map(str, words))}\n{done.stderr}")
    return done.stdout


def outputs(probe, folder, inputs, out):
    """What our engine computes with a folder."""
    run(probe, folder, inputs, out)
    return load_file(out)


def relative(ours, theirs):
    return float((ours.double() - theirs.double()).abs().max() / theirs.double().abs().max())


def check_case(bin_, probe, scratch, number, case):
    name, settings, export, family = case
    folder = scratch / f"run{number}"
    given = {s.split("=")[0] for s in settings}
    common = [s for s in MODEL + TRAIN if s.split("=")[0] not in given]
    run(bin_ / "smelt-pretrain", *common, *settings, f"--run.dir={folder}",
        f"--data.train=a={scratch}/a.train")
    source = next((folder / "checkpoints").glob("step-*"))
    target = source
    if export is not None:
        target = scratch / f"export{number}"
        run(bin_ / "smelt-export", "--checkpoint", folder, "--out", target, *export)
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        target, dtype=torch.float32, output_loading_info=True)
    faults = [f"{key}: {value}" for key, value in info.items() if value]
    if model.config.model_type != family:
        faults.append(f"model_type {model.config.model_type}, not {family}")
    ids = random_ids(torch, model.eval(), (2, 40))
    prompt = ids[:1, :12].clone()
    theirs = compute(torch, model, ids, prompt, 64)
    save_file({"ids": ids, "prompt": prompt}, scratch / "in.safetensors")
    ours = outputs(probe, source, scratch / "in.safetensors", scratch / "out.safetensors")
    logits = relative(ours["logits"], theirs["logits"])
    loss = abs(float(ours["loss"]) / theirs["loss"] - 1)
    aux = abs(float(ours["aux"]) / theirs["aux"] - 1)
    if logits > 1e-4 or loss > 1e-5 or aux > 1e-5:
        faults.append("the outputs differ")
    if ours["greedy"].tolist() != theirs["greedy"][0].tolist():
        faults.append("the greedy continuations differ")
    tokenizer = transformers.AutoTokenizer.from_pretrained(target)
    text = "Smelt: é\n"
    if tokenizer(text)["input_ids"] != list(text.encode()):
        faults.append("the tokenizer gives other ids")
    print(f"{'FAILED' if faults else 'ok':6} {name}: logits {logits:.1e}, loss {loss:.1e}, "
          f"aux {aux:.1e}, 64 greedy tokens {'differ' if 'greedy' in str(faults) else 'equal'}")
    for fault in faults:
        print("       " + fault)
    return not faults


def main():
    parser = argparse.ArgumentParser()
    torch.manual_seed(3)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    build = parser.parse_args().build.resolve()
    probe = build / "tests" / "hf_probe"
    needed = [probe] + [build / "bin" / f"smelt-{p}" for p in ("prepare", "pretrain", "export")]
    for program in needed:
        if not program.exists():
            print(f"skipped: {program} is not built", file=sys.stderr)
            return SKIP
    print(f"transformers {transformers.__version__}, torch {torch.__version__}")
    with tempfile.TemporaryDirectory(prefix="smelt-hf-") as name:
        scratch = pathlib.Path(name)
        text = "".join(f"line {i}: ore {i * i % 97} becomes iron {i % 13}\n" for i in range(900))
        (scratch / "a.txt").write_text(text)
        run(build / "bin" / "smelt-prepare", "--input", scratch / "a.txt", "--domain", "a", "--out",
            scratch)
        good = [check_case(build / "bin", probe, scratch, i, c) for i, c in enumerate(CASES)]
    return 0 if all(good) else 1


sys.exit(main())
