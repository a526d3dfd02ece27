#!/usr/bin/env python3
"""Event files of a short smelt-pretrain run, read by TensorBoard itself, against its metrics.jsonl.

  tensorboard_compare.py --build build   exit code 77 without tensorboard
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build")
    build = parser.parse_args().build
    try:
        import numpy
        from tensorboard.backend.event_processing import event_accumulator
        from tensorboard.util import tensor_util
    except ImportError as missing:
        print(f"tensorboard_compare: skipped: {missing.name} is not installed")
        return 77

    with tempfile.TemporaryDirectory() as folder:
        with open(folder + "/a.txt", "w", encoding="utf-8") as out:
            out.write("smelt iron ore into loops of heat\n" * 500)
        run = [os.path.join(build, "bin", "smelt-prepare"), "--input", folder + "/a.txt", "--out", folder, "--split"]
        for split in ("train", "valid"):
            subprocess.run(run + [split, "--domain", split], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        command = [os.path.join(build, "bin", "smelt-pretrain"), f"--run.dir={folder}/run", f"--data.train=a={folder}/train.train",
                   f"--data.valid=a={folder}/valid.valid", "--model.hidden_size=16", "--model.num_layers=3",
                   "--model.num_heads=2", "--model.num_kv_heads=1", "--model.head_dim=8", "--model.num_experts=4",
                   "--model.expert_hidden_size=8", "--model.max_seq_len=64", "--loop.layers=1", "--loop.visits=2",
                   "--train.seq_len=32", "--train.micro_batch=2", "--train.global_batch=4", "--train.tokens=2560",
                   "--optim.warmup_tokens=256", "--optim.decay_tokens=512", "--optim.branch_tokens=1536",
                   "--run.log_every=1", "--run.eval_every=5"]
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            sys.exit(done.stderr)

        with open(folder + "/run/metrics.jsonl", encoding="utf-8") as lines:
            metrics = [json.loads(line) for line in lines]
        compared = pictures = 0
        for name in sorted(os.listdir(folder + "/run/tensorboard")):
            reader = event_accumulator.EventAccumulator(f"{folder}/run/tensorboard/{name}", size_guidance={
                event_accumulator.SCALARS: 0, event_accumulator.IMAGES: 0, event_accumulator.TENSORS: 0})
            reader.Reload()
            branch = None if name == "trunk" else int(name.split("-")[1])
            expected = {}
            for line in metrics:
                if line.get("branch_tokens") != branch:
                    continue
                numbers = {}
                if "valid" in line:
                    for domain, losses in line["valid"].items():
                        numbers.update({f"valid/{domain}/{key}": value for key, value in losses.items()})
                else:
                    numbers = {f"train/{key}": value for key, value in line.items() if not isinstance(value, list)}
                    for load in line["load_max_over_mean"]:
                        numbers[f"load_max_over_mean/layer {load['layer']} visit {load['visit']}"] = load["value"]
                for tag, value in numbers.items():
                    if value is not None and tag not in ("train/step", "train/branch_tokens"):
                        expected.setdefault(tag, []).append((line["step"], float(numpy.float32(value))))
            found = {tag: [(event.step, event.value) for event in reader.Scalars(tag)] for tag in reader.Tags()["scalars"]}
            assert found == expected, (name, set(found) ^ set(expected))
            compared += sum(map(len, found.values()))
            for tag in reader.Tags()["images"]:
                for image in reader.Images(tag):
                    assert image.encoded_image_string.startswith(b"\x89PNG") and (image.width, image.height) == (960, 600)
                    pictures += 1
            text = reader.Tensors("config")[0].tensor_proto
            assert b"[model]" in tensor_util.make_ndarray(text).item()
        print(f"TensorBoard reads {compared} values of metrics.jsonl with their steps, {pictures} pictures and the configuration")
    return 0


if __name__ == "__main__":
    sys.exit(main())
