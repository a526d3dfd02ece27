"""Tiny random models of transformers and what they compute, for hf_golden.py and hf_compare.py."""

import sys

SKIP = 77


def need_transformers():
    """The modules torch and transformers; ends with code 77 and a word where one is absent."""
    try:
        import torch
        import transformers
    except ImportError as error:
        print(f"skipped: {error.name or error} is not installed", file=sys.stderr)
        sys.exit(SKIP)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.manual_seed(1)
    return torch, transformers


def aux_from_logits(torch, router_logits, num_experts, top_k):
    """E * sum_j sum_e f[j,e] p[e] over the rows of all layers, in double."""
    rows = torch.cat([layer.double() for layer in router_logits])
    probs = torch.softmax(rows, dim=-1)
    chosen = torch.nn.functional.one_hot(probs.topk(top_k, dim=-1).indices, num_experts).double()
    return float(num_experts * (chosen.mean(0) * probs.mean(0)).sum())


def random_ids(torch, model, shape, margin=1e-5):
    """Ids for which no choice of experts hangs by rounding: drawn again until the last chosen
    expert's probability leads the first one left out by the margin everywhere. (A choice within
    1e-7 may fall either way in two float32 programs, and then all that follows differs.)"""
    k = model.config.num_experts_per_tok
    while True:
        ids = torch.randint(0, model.config.vocab_size, shape)
        with torch.no_grad():
            gates = model(ids, output_router_logits=True).router_logits
        best = [torch.softmax(g.double(), -1).topk(k + 1, -1).values for g in gates]
        if min(float((b[:, k - 1] - b[:, k]).min()) for b in best) > margin:
            return ids


def compute(torch, model, ids, prompt, new_tokens):
    """Logits, loss, auxiliary loss and greedy continuation of a model on ids [B, S].

    Between the version 5.0 and its repair, routers gave probabilities as logits and the auxiliary
    loss took their softmax again; such a version is refused as an oracle."""
    config = model.config
    gates = []
    hooks = [module.register_forward_hook(
                 lambda m, inputs, output: gates.append(
                     torch.nn.functional.linear(inputs[0].reshape(-1, config.hidden_size), m.weight)))
             for name, module in model.named_modules() if name.endswith(".gate")]
    with torch.no_grad():
        out = model(ids, labels=ids, output_router_logits=True)
    for hook in hooks:
        hook.remove()
    aux = float(out.aux_loss)
    expected = aux_from_logits(torch, gates, config.num_local_experts, config.num_experts_per_tok)
    if abs(aux / expected - 1) > 1e-4:
        print(f"skipped: this transformers forms its auxiliary loss from softmax(softmax(logits)): "
              f"{aux} for {expected}", file=sys.stderr)
        sys.exit(SKIP)
    loss = float(out.loss) - config.router_aux_loss_coef * aux
    model.generation_config.eos_token_id = None  # goes on to the end
    with torch.no_grad():
        greedy = model.generate(prompt, max_new_tokens=new_tokens, do_sample=False,
                                use_cache=True)[:, prompt.shape[1]:]
    return {"logits": out.logits.float(), "loss": loss, "aux": expected, "greedy": greedy}
