#!/usr/bin/env python3
"""Trains a case of smelt-bench in PyTorch, for comparison: Hugging Face's Qwen3MoeForCausalLM.

The sizes come from smelt-bench itself (--list --json). A looped case runs the same modules in the
order of the execution plan, x + scale * f(x) inside the span, as one would write it there.

One step is what a step of smelt-bench is: forward, cross-entropy and load-balancing loss, backward,
clipping of the global norm at 1, AdamW. Equal in f32: everything in float32. Equal in bf16:
parameters, moments and update in float32, products in bfloat16, by one of
  autocast  torch.autocast over float32 parameters (grouped_mm then stays in float32: its weights
            are not cast), or
  masters   bfloat16 parameters and gradients, updated through float32 masters.
The peer is given the benefit where both differ: it has no z-loss, its balancing loss is taken over
the whole batch instead of each sequence, and its bf16 gradients are not kept in float32.

A mode is EXPERTS+ATTENTION+OPTIMIZER+PRECISION+MEMORY, with +compile for torch.compile:
  EXPERTS    eager | grouped_mm | batched_mm, transformers' experts_implementation
  ATTENTION  sdpa | eager
  OPTIMIZER  fused | foreach
  PRECISION  f32 | autocast | masters
  MEMORY     malloc: glibc as it is | heap: freed memory stays with the process | heap_thp: and
             PyTorch asks for huge pages

Exit code 77: torch or transformers is not installed. 3: the mode does not run here.
"""
import argparse
import ctypes
import json
import os
import resource
import statistics
import subprocess
import sys
import time
import types

CHOICES = {
    "experts": ("grouped_mm", "eager", "batched_mm"),
    "attention": ("sdpa", "eager"),
    "optimizer": ("fused", "foreach"),
    "precision": ("autocast", "masters"),
    "memory": ("malloc", "heap", "heap_thp"),
    "compiled": ("", "compile"),
}
LEARNING_RATE, GRAD_CLIP, AUX_LOSS_COEF = 1e-4, 1.0, 0.01
WARM_UP_STEPS, SEARCH_STEPS, LONGEST_MODE_SECONDS = 2, 2, 600


class DoesNotRun(Exception):
    """This mode cannot be had here; the text says why."""


def missing_word():
    """What is missing, or nothing."""
    from importlib.util import find_spec

    absent = [name for name in ("torch", "transformers") if find_spec(name) is None]
    return f"{' and '.join(absent)} not installed: pip install torch transformers" if absent else ""


def choices(name, dtype):
    return ("f32",) if name == "precision" and dtype == "f32" else CHOICES[name]


def first_mode(dtype):
    return {name: choices(name, dtype)[0] for name in CHOICES}


def mode_text(mode):
    return "+".join(value for value in mode.values() if value)


def parse_mode(text, dtype):
    values = text.split("+")
    values += [""] * (len(CHOICES) - len(values))
    if len(values) != len(CHOICES):
        raise SystemExit(f"--mode={text}: must be EXPERTS+ATTENTION+OPTIMIZER+PRECISION+MEMORY[+compile]")
    for name, value in zip(CHOICES, values):
        if value not in choices(name, dtype):
            raise SystemExit(f"--mode={text}: {name} = {value} must be one of {' '.join(choices(name, dtype))}")
    return dict(zip(CHOICES, values))


def prepare_memory(memory):
    """Before torch is loaded: it reads the environment once."""
    if "thp" in memory:
        os.environ["THP_MEM_ALLOC_ENABLE"] = "1"
    if "heap" in memory:
        libc = ctypes.CDLL("libc.so.6")
        m_trim_threshold, m_mmap_max, m_arena_max = -1, -4, -8
        for parameter, value in ((m_mmap_max, 0), (m_trim_threshold, -1), (m_arena_max, 1)):
            if libc.mallopt(parameter, value) != 1:
                raise DoesNotRun("this C library does not take these settings of malloc")


def execution_order(config):
    """Layers in the order of their execution, and the span's residual scale."""
    layers, loop = config["num_hidden_layers"], config.get("loop")
    if not loop:
        return list(range(layers)), range(0), 1.0
    if loop["order"] != "span" or loop["kv"] != "own":
        raise SystemExit("only loops with order = span and kv = own are written here")
    start = loop["start"] if loop["start"] >= 0 else (layers - loop["layers"]) // 2
    span = range(start, start + loop["layers"])
    order = list(range(span.stop)) + list(span) * (loop["visits"] - 1) + list(range(span.stop, layers))
    return order, span, loop["scale"] or 1.0 / loop["visits"]


def scaled_forward(scale):
    import torch

    def forward(self, hidden_states, **kwargs):
        update, _ = self.self_attn(hidden_states=self.input_layernorm(hidden_states), **kwargs)
        hidden_states = torch.add(hidden_states, update, alpha=scale)
        update = self.mlp(self.post_attention_layernorm(hidden_states))
        return torch.add(hidden_states, update, alpha=scale)

    return forward


def build_model(case, mode):
    import torch
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    not_theirs = ("architectures", "loop", "model_type", "qk_norm", "shared_expert_intermediate_size")
    sizes = {key: value for key, value in case["config"].items() if key not in not_theirs}
    sizes.update(router_aux_loss_coef=AUX_LOSS_COEF, output_router_logits=True, use_cache=False)
    torch.manual_seed(1)
    model = Qwen3MoeForCausalLM._from_config(
        Qwen3MoeConfig(**sizes), attn_implementation=mode["attention"], experts_implementation=mode["experts"],
        dtype=torch.float32)
    order, span, scale = execution_order(case["config"])
    layers = model.model.layers
    for i in span:
        layers[i].forward = types.MethodType(scaled_forward(scale), layers[i])
    model.model.layers = torch.nn.ModuleList([layers[i] for i in order])
    model.config.num_hidden_layers = len(order)
    count = sum(p.numel() for p in model.parameters())
    if count != case["params_total"]:
        raise SystemExit(f"the peer has {count} parameters, smelt-bench {case['params_total']}: not the same model")
    return model.train(), len(order)


class Trainer:
    """One optimizer step at a time on the same random tokens."""

    def __init__(self, case, mode):
        import torch

        self.torch, self.mode = torch, mode
        self.model, self.executed_depth = build_model(case, mode)
        self.params = list(self.model.parameters())
        self.masters = self.params
        if mode["precision"] == "masters":
            self.masters = [torch.nn.Parameter(p.detach().clone()) for p in self.params]
            for p in self.params:
                p.data = p.data.to(torch.bfloat16)
        how = {"fused": True} if mode["optimizer"] == "fused" else {"foreach": True}
        self.optimizer = torch.optim.AdamW(
            self.masters, lr=LEARNING_RATE, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, **how)
        shape = (case["batch"], case["seq_len"])
        self.tokens = torch.randint(case["config"]["vocab_size"], shape)
        self.labels = torch.randint(case["config"]["vocab_size"], shape)
        self.forward = torch.compile(self.model) if mode["compiled"] else self.model

    def step(self):
        torch = self.torch
        with torch.autocast("cpu", torch.bfloat16, enabled=self.mode["precision"] == "autocast"):
            output = self.forward(input_ids=self.tokens, labels=self.labels)
        if len(output.router_logits) != self.executed_depth:
            raise SystemExit(f"{len(output.router_logits)} routers ran, not {self.executed_depth}")
        output.loss.backward()
        loss = float(output.loss.detach())
        del output
        if self.masters is not self.params:
            for master, p in zip(self.masters, self.params):
                master.grad, p.grad = p.grad.float(), None
        torch.nn.utils.clip_grad_norm_(self.masters, GRAD_CLIP, foreach=True)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if self.masters is not self.params:
            with torch.no_grad():
                torch._foreach_copy_(self.params, self.masters)
        return loss


def refuse_too_large(case, mode):
    """batched_mm copies an expert's matrices for every routed row."""
    if mode["experts"] != "batched_mm":
        return
    c = case["config"]
    rows = case["batch"] * case["seq_len"] * c["num_experts_per_tok"]
    needed = rows * 3 * c["hidden_size"] * c["moe_intermediate_size"] * (2 if mode["precision"] == "masters" else 4)
    available = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if needed > available / 2:
        raise DoesNotRun(f"batched_mm copies {needed / 2**30:.0f} GiB of expert weights per layer, "
                         f"{available / 2**30:.0f} GiB are free")


def measure(case, mode, dtype, steps):
    prepare_memory(mode["memory"])
    refuse_too_large(case, mode)
    import torch
    import transformers

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", os.cpu_count())))
    transformers.logging.set_verbosity_error()
    trainer = Trainer(case, mode)
    times = []
    for _ in range(WARM_UP_STEPS + steps):
        start = time.monotonic()
        loss = trainer.step()
        times.append(time.monotonic() - start)
    first, times = times[0], times[WARM_UP_STEPS:]
    if loss != loss:
        raise SystemExit("the loss is not a number")
    seconds = statistics.median(times)
    return {
        "name": case["name"], "dtype": dtype,
        "tokens_per_second": case["batch"] * case["seq_len"] / seconds,
        "step_seconds": seconds, "step_seconds_min": min(times),
        "first_step_seconds": first,
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "mode": mode_text(mode), "loss": loss,
        "peer": f"torch {torch.__version__}, transformers {transformers.__version__}",
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
    }


def run_mode(bench, case, dtype, mode, steps):
    """measure() in a process of its own; an object with "error" where the mode does not run."""
    command = [sys.executable, os.path.abspath(__file__), "--bench", bench, "--case", case, "--dtype", dtype,
               "--steps", str(steps), "--mode", mode_text(mode)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_MODE_SECONDS)
    except subprocess.TimeoutExpired:
        return {"mode": mode_text(mode), "error": f"not done after {LONGEST_MODE_SECONDS} s"}
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["no message"]
        return {"mode": mode_text(mode), "error": lines[-1][:200]}
    return json.loads(done.stdout.splitlines()[-1])


def search(bench, case, dtype):
    """The fastest mode, one choice after another, each measured with all others at their best."""
    mode = first_mode(dtype)
    best = run_mode(bench, case, dtype, mode, SEARCH_STEPS)
    report_mode(best)
    if "error" in best:
        raise SystemExit(best["error"])
    for name in CHOICES:
        for value in choices(name, dtype):
            if value == mode[name]:
                continue
            tried = run_mode(bench, case, dtype, {**mode, name: value}, SEARCH_STEPS)
            report_mode(tried)
            if "error" not in tried and tried["step_seconds_min"] < best["step_seconds_min"]:
                best = tried
        mode = parse_mode(best["mode"], dtype)
    return best


def report_mode(result):
    text = result.get("error") or "{:.2f} s a step, peak {:.2f} GiB, first step {:.1f} s".format(
        result["step_seconds_min"], result["peak_rss_bytes"] / 2**30, result["first_step_seconds"])
    print(f"  {result['mode']:46} {text}", file=sys.stderr, flush=True)


def read_case(bench, name):
    if not os.access(bench, os.X_OK):
        raise SystemExit(f"--bench={bench}: no such program; make bench builds it")
    listed = subprocess.run([bench, "--list", "--json"], capture_output=True, text=True, check=True)
    for case in json.loads(listed.stdout)["cases"]:
        if case["name"] == name:
            return case
    raise SystemExit(f"--case={name}: {bench} --list prints the cases")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", default="build/bin/smelt-bench", help="the program whose cases are trained")
    parser.add_argument("--case", default="A")
    parser.add_argument("--dtype", choices=("f32", "bf16"), default="f32")
    parser.add_argument("--steps", type=int, default=5, help="timed steps, after two that are not; the median counts")
    parser.add_argument("--mode", default="best", help="a mode, or best: try them and take the fastest")
    parser.add_argument("--list-modes", action="store_true", help="print what a mode is made of")
    arguments = parser.parse_args()
    if arguments.list_modes:
        for name in CHOICES:
            print(f"{name:10} {' '.join(v or '-' for v in choices(name, arguments.dtype))}")
        return 0
    if word := missing_word():
        print(f"peer_pytorch: {word}", file=sys.stderr)
        return 77
    if arguments.mode == "best":
        best = parse_mode(search(arguments.bench, arguments.case, arguments.dtype)["mode"], arguments.dtype)
        result = run_mode(arguments.bench, arguments.case, arguments.dtype, best, arguments.steps)
    else:
        try:
            result = measure(read_case(arguments.bench, arguments.case), parse_mode(arguments.mode, arguments.dtype),
                             arguments.dtype, arguments.steps)
        except DoesNotRun as error:
            print(f"peer_pytorch: {error}", file=sys.stderr)
            return 3
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
