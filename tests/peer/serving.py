"""What the figures of serving share: a model with random weights and a made-up vocabulary, and the load generator."""
import json
import os
import pathlib
import struct
import subprocess
import urllib.request


def get(url):
    with urllib.request.urlopen(url, timeout=30) as response:
        return json.load(response)


def bench(ridge, url, *flags):
    run = subprocess.run([str(ridge), "bench", "serve", "--base-url", url, "--json", *map(str, flags)], capture_output=True, text=True)
    if run.returncode != 0:
        raise RuntimeError(run.stderr)
    result = json.loads(run.stdout)["results"]
    for point in result:
        if point["failed"]:
            raise RuntimeError(f"{point['failed']} requests failed: {point.get('first_error')}")
    return result


def random_model(ridge, shape, form, folder):
    """The shape with random weights as a .gguf that servers take: with a vocabulary in which every token is a word, so that every token is a piece of text."""
    path = pathlib.Path(folder) / f"{shape}-{form}.gguf"
    if path.exists():
        return path
    bare_gguf = path.with_suffix(".bare.gguf")
    subprocess.run([str(ridge), "bench", "--shape", shape, "--format", form, "--save", str(bare_gguf), "-p", "0", "-n", "1", "-r", "1"], check=True, capture_output=True)
    add_vocabulary(bare_gguf, path)
    bare_gguf.unlink()
    return path


class Gguf:
    """Just enough of GGUF (version 3, little endian) to put more keys in front of the tensors."""
    SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}

    def __init__(self, file):
        self.file = file
        assert file.read(4) == b"GGUF"
        self.version, self.n_tensors, self.n_keys = struct.unpack("<IQQ", file.read(20))
        self.keys, self.places = {}, {}                          # values, and where each key lies in the file
        for _ in range(self.n_keys):
            begin = file.tell()
            name = self.string()
            kind, = struct.unpack("<I", file.read(4))
            self.keys[name] = self.value(kind)
            self.places[name] = (begin, file.tell())
        self.keys_end = file.tell()
        self.rows = {}
        for _ in range(self.n_tensors):
            name = self.string()
            n, = struct.unpack("<I", file.read(4))
            self.rows[name] = struct.unpack(f"<{n}Q", file.read(8 * n))
            file.read(12)
        self.infos_end = file.tell()

    def piece(self, begin, end):
        self.file.seek(begin)
        return self.file.read(end - begin)

    def string(self):
        n, = struct.unpack("<Q", self.file.read(8))
        return self.file.read(n).decode()

    def value(self, kind):
        if kind == 8:
            return self.string()
        if kind == 9:
            inner, n = struct.unpack("<IQ", self.file.read(12))
            return [self.value(inner) for _ in range(n)]
        data = self.file.read(self.SIZES[kind])
        return int.from_bytes(data, "little")


def vocabulary_size(path):
    """Token ids below it mean something."""
    with open(path, "rb") as f:
        return Gguf(f).rows["token_embd.weight"][1]


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def key_string(name, value):
    return text(name) + struct.pack("<I", 8) + text(value)


def key_strings(name, values):
    return text(name) + struct.pack("<IIQ", 9, 8, len(values)) + b"".join(map(text, values))


def byte_characters():
    """The 256 characters that byte-level vocabularies write bytes with."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    other = iter(range(256, 512))
    return [chr(b) if b in plain else chr(next(other)) for b in range(256)]


def add_vocabulary(source, target):
    with open(source, "rb") as f, open(target, "wb") as out:
        gguf = Gguf(f)
        n_vocab = gguf.rows["token_embd.weight"][1]
        tokens = byte_characters()[:128] + ["\u0120t"]               # no halves of characters: every token is text by itself
        tokens += [f"\u0120w{i}" for i in range(n_vocab - len(tokens) - 1)] + ["<|end|>"]
        kinds = [1] * (n_vocab - 1) + [3]
        keys = key_string("tokenizer.ggml.model", "gpt2") + key_string("tokenizer.ggml.pre", "qwen2") + key_strings("tokenizer.ggml.tokens", tokens)
        keys += text("tokenizer.ggml.token_type") + struct.pack(f"<IIQ{n_vocab}i", 9, 5, n_vocab, *kinds)
        keys += key_strings("tokenizer.ggml.merges", ["\u0120 t"])
        keys += text("tokenizer.ggml.eos_token_id") + struct.pack("<II", 4, n_vocab - 1)
        keys += text("tokenizer.ggml.add_bos_token") + struct.pack("<IB", 7, 0)
        keys += key_string("tokenizer.chat_template", "{% for m in messages %}{{ m.content }}{% endfor %}")
        kept = [gguf.piece(*place) for name, place in gguf.places.items() if not name.startswith("tokenizer.")]
        infos = gguf.piece(gguf.keys_end, gguf.infos_end)
        n_added, align = 8, gguf.keys.get("general.alignment", 32)
        head = b"GGUF" + struct.pack("<IQQ", gguf.version, gguf.n_tensors, len(kept) + n_added) + b"".join(kept) + keys + infos
        out.write(head + bytes(-len(head) % align))
        f.seek(gguf.infos_end + -gguf.infos_end % align)
        while piece := f.read(1 << 24):
            out.write(piece)


def verdict(what, value, limit, ok):
    print(f"  {what}: {value} (wanted: {limit}) {'ok' if ok else 'MISSED'}", flush=True)
    return ok


def environment_path(name):
    value = os.environ.get(name)
    return pathlib.Path(value) if value else None
