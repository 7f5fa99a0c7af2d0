"""Files that `ridge convert` writes, in llama.cpp: golden checkpoints as GGUF (f32) give the greedy tokens of golden.safetensors there too.

llama.cpp is a peer that somebody built beside the project (static libraries), not part of it:
  python3 tests/peer/llama_cpp_test.py build/ridge llama.cpp llama.cpp/build [case ...]
"""
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
GOLDEN = HERE.parents[2] / "shared" / "golden"
OWN = HERE.parents[1] / "tests" / "data" / "golden"            # mamba2_one_group: the family in the form in which both sides compute the same

# What llama.cpp cannot do, so that there is nothing to compare.
OTHERWISE = {
    "cohere2": "its head is always tied", "gemma": "its head is always tied", "gemma2": "its head is always tied",
    "deepseek_v32": "the indexer's rotation needs heads of 64", "glm_moe_dsa": "the indexer's rotation needs heads of 64",
    "exaone4": "windows are for models of 64 layers", "llama4": "chunks are of 8192 tokens, and some layers must be full",
    "llama_dynamic": "GGUF has no dynamic rope", "llama_dynamic_cross": "GGUF has no dynamic rope",
    "mamba2": "the norm is taken by group, in transformers over all groups", "mistral_swa": "its llama has no window",
    "olmoe": "keys must have as many heads as queries", "phi3_longrope_cross": "factors are chosen by the context, not by the text's length",
    "smollm3": "every fourth layer does not rotate",
}


def read_tensor(path, name):
    with open(path, "rb") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        info = json.loads(f.read(n))[name]
        begin, end = info["data_offsets"]
        f.seek(8 + n + begin)
        data = f.read(end - begin)
    kind = {"I64": "q", "I32": "i", "F32": "f"}[info["dtype"]]
    return list(struct.unpack(f"<{len(data) // struct.calcsize(kind)}{kind}", data))


def build_greedy(source, build, folder):
    libraries = [str(next(build.rglob(name))) for name in ["libllama.a", "libggml.a", "libggml-cpu.a", "libggml-base.a"]]
    program = folder / "greedy_tokens"
    subprocess.run(["g++", "-O1", "-std=c++17", str(HERE / "greedy_tokens.cpp"), f"-I{source / 'include'}", f"-I{source / 'ggml/include'}", *libraries, "-fopenmp", "-lpthread", "-ldl", "-o", str(program)],
                   check=True)
    return program


def main():
    ridge, source, build = (pathlib.Path(p).resolve() for p in sys.argv[1:4])
    cases = sys.argv[4:] or sorted(p.name for p in GOLDEN.iterdir() if p.name not in OTHERWISE) + ["mamba2_one_group"]
    n_same = n_differ = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        greedy = build_greedy(source, build, folder)
        for case in cases:
            where = GOLDEN / case if (GOLDEN / case).exists() else OWN / case
            prompt, expected = (read_tensor(where / "golden.safetensors", t) for t in ["prompt", "greedy"])
            converted = subprocess.run([str(ridge), "convert", str(where), str(folder / "m.gguf"), "--format", "f32", "--force"], capture_output=True, text=True)
            if converted.returncode != 0:
                print(f"{case}: not converted: {converted.stderr.strip()}")
                continue
            said = subprocess.run([str(greedy), str(folder / "m.gguf"), str(len(expected)), *map(str, prompt)], capture_output=True, text=True)
            same = said.stdout.split() == [str(t) for t in expected]
            n_same, n_differ = n_same + same, n_differ + (not same)
            note = f" ({OTHERWISE[case]})" if case in OTHERWISE else ""
            print(f"{case}: {'the same' if same else 'DIFFERS'}{note}" + ("" if said.stdout else f": {said.stderr.strip()[-200:]}"))
    print(f"{n_same} the same, {n_differ} differ")
    return n_differ > 0


if __name__ == "__main__":
    sys.exit(main())
