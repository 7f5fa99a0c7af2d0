#!/usr/bin/env python3
"""How far Hugging Face transformers, computing in bfloat16, comes from the golden logits, which it made in float32:

    tests/golden/bf16_differences.py FOLDER ... > tests/data/golden/bf16.json

FOLDER: a golden case, or a folder of them. `ridge eval golden --as-served` holds a device that rounds to 16 bits to these differences. Needs torch, transformers and safetensors.
Every continuation is computed behind the golden tokens, over the whole sequence each time, as the golden logits were."""

import json
import pathlib
import sys

import torch
import transformers
from safetensors.torch import load_file


def difference_of(folder):
    golden = load_file(folder / "golden.safetensors")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()

    def logits_of(tokens):
        with torch.no_grad():
            return model(tokens[None], use_cache=False).logits[0].float()

    most = (logits_of(golden["prompt"]) - golden["logits"]).abs().max()
    for i, wanted in enumerate(golden["greedy_logits"]):
        last = logits_of(torch.cat([golden["prompt"], golden["greedy"][:i]]))[-1]
        most = max(most, (last - wanted).abs().max())
    return round(float(most), 5)


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    differences = {}
    for root in map(pathlib.Path, sys.argv[1:]):
        for folder in sorted({file.parent for pattern in ("golden.safetensors", "*/golden.safetensors") for file in root.glob(pattern)}):
            differences[folder.name] = difference_of(folder)
            print(folder.name, differences[folder.name], file=sys.stderr)
    if not differences:
        sys.exit(f"no golden case below {', '.join(sys.argv[1:])}")
    made_with = f"transformers {transformers.__version__}, torch {torch.__version__.split('+')[0]}, bfloat16 on a CPU"
    print(json.dumps({"made_with": made_with, "differences": dict(sorted(differences.items()))}, indent=1))


if __name__ == "__main__":
    main()
