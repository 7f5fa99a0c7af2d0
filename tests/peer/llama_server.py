"""`ridge serve` beside llama-server on this machine, same GGUF, same load: closed loops of 8 and 32 streams, prompts of 512 tokens of which 384 are shared, 128 new tokens.

llama-server is a peer that somebody built beside the project: RIDGE_LLAMA_SERVER names it.
  RIDGE_LLAMA_SERVER=llama.cpp/build/bin/llama-server python3 tests/peer/llama_server.py build/release/ridge [--models qwen3-0.6b,smollm2] [--streams 8,32] [--rounds 3] [--folder F]
"""
import argparse
import os
import pathlib
import sys
import tempfile

import serving

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "server"))
from live_server import LiveServer  # noqa: E402

PREFIX, REST, NEW = 384, 128, 128


def load(args, n, vocabulary):
    return ["--concurrency", n, "-n", n * args.rounds, "--random-vocab-size", vocabulary, "--shared-prefix", PREFIX, "--random-input-len", REST, "--max-tokens", NEW]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ridge")
    parser.add_argument("--models", default="qwen3-0.6b,smollm2", help="smollm2, or shapes with random weights, SHAPE[:FORMAT] (q4_0)")
    parser.add_argument("--streams", default="8,32")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--folder", default=os.path.join(tempfile.gettempdir(), "ridge-serving"))
    parser.add_argument("--activations", default="auto", help="of ridge; i8 is what the peer computes with")
    parser.add_argument("--only", choices=["ridge", "peer"], help="one side alone, to look at it")
    args = parser.parse_args()
    peer = serving.environment_path("RIDGE_LLAMA_SERVER")
    if args.only != "ridge" and (peer is None or not peer.exists()):
        print("skipped: RIDGE_LLAMA_SERVER does not name a llama-server")
        return 77
    pathlib.Path(args.folder).mkdir(parents=True, exist_ok=True)
    kept = True
    for name in args.models.split(","):
        if name == "smollm2":
            cache = pathlib.Path(os.environ.get("RIDGE_CACHE", os.path.expanduser("~/.cache/ridgeline")))
            model = next(cache.rglob("SmolLM2-135M-Instruct*.gguf"))
        else:
            shape, _, form = name.partition(":")
            model = serving.random_model(args.ridge, shape, form or "q4_0", args.folder)
        vocabulary = serving.vocabulary_size(model)
        for n in map(int, args.streams.split(",")):
            context = (PREFIX + REST + NEW + 64) // 64 * 64
            results = {}
            sides = {"ridge": [args.ridge, "serve", model, "--threads", args.threads, "--max-num-seqs", n, "--max-model-len", context, "--activations", args.activations, "--no-access-log"],
                     "peer": [peer, "-m", model, "-t", args.threads, "-np", n, "-c", n * context, "--no-webui"]}
            for side, command in sides.items():
                if args.only and side != args.only:
                    continue
                with LiveServer(command) as server:
                    results[side] = serving.bench(args.ridge, server.url, *load(args, n, vocabulary))[0]
                r = results[side]
                print(f"{name}, {n} streams, {side:5}: {r['output_throughput']:8.1f} tok/s out, TTFT p50 {r['median_ttft_ms']:8.0f} p95 {r['p95_ttft_ms']:8.0f} ms, TPOT p50 {r['median_tpot_ms']:7.1f} ms, "
                      f"cached {r['cached_input_tokens'] / max(1, r['total_input_tokens']):.0%}", flush=True)
            if len(results) == 2:
                speed = results["ridge"]["output_throughput"] / results["peer"]["output_throughput"]
                first = results["ridge"]["p95_ttft_ms"] / results["peer"]["p95_ttft_ms"]
                kept &= serving.verdict("output tokens per second, over the peer's", f"{speed:.2f}x", "3x", speed >= 3)
                kept &= serving.verdict("p95 TTFT, over the peer's", f"{first:.2f}x", "0.3x", first <= 0.3)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
