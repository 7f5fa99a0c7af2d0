"""LoRA adapters at a live server: chosen by model name, beside the base model in one batch, loaded and unloaded while it serves.

    adapters_test.py RIDGE
"""
import array
import concurrent.futures
import json
import pathlib
import random
import re
import struct
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import serve_test
from serve_test import TINY, Server

RANK = 4


def target_shapes():
    """{module: (outputs, inputs)} of the projections that the adapters change."""
    listing = subprocess.run([serve_test.RIDGE, "inspect", str(TINY), "--tensors"], capture_output=True, text=True, check=True).stdout
    found = re.findall(r"^(model\.layers\.\d+\.(?:self_attn\.q_proj|mlp\.down_proj))\.weight\s+\[(\d+), (\d+)\]", listing, re.MULTILINE)
    return {name: (int(outputs), int(inputs)) for name, outputs, inputs in found}


def write_adapter(folder, seed, shapes):
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": RANK, "lora_alpha": 8, "bias": "none"}))
    source, header, data = random.Random(seed), {}, bytearray()
    for module, (outputs, inputs) in shapes.items():
        for half, shape in (("A", [RANK, inputs]), ("B", [outputs, RANK])):
            numbers = array.array("f", (source.gauss(0, 0.08) for _ in range(shape[0] * shape[1]))).tobytes()
            header[f"base_model.model.{module}.lora_{half}.weight"] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(numbers)]}
            data += numbers
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (folder / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)


class Adapters(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)
        shapes = dict(list(target_shapes().items())[:6])
        assert shapes, "ridge inspect names no projections"
        for seed, name in enumerate(("one", "two")):
            write_adapter(cls.folder / name, seed, shapes)

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def text(self, server, model=None, n=16):
        body = {"prompt": "Once upon a time", "max_tokens": n, "temperature": 0, "ignore_eos": True, **({"model": model} if model else {})}
        status, text, _ = server.ask("POST", "/v1/completions", body)
        self.assertEqual(status, 200, text)
        answer = json.loads(text)
        self.assertEqual(answer["model"], model or server.model)
        return answer["choices"][0]["text"]

    def test_the_model_name_chooses_and_nobody_in_the_batch_gets_anothers_weights(self):
        with Server("--lora-modules", f"one={self.folder / 'one'}", "--lora-modules", f"two={self.folder / 'two'}") as server:
            models = {m["id"]: m for m in json.loads(server.ask("GET", "/v1/models")[1])["data"]}
            self.assertEqual(set(models), {server.model, "one", "two"})
            self.assertEqual(models["one"]["parent"], server.model)
            alone = {model: self.text(server, model) for model in (None, "one", "two")}
            self.assertEqual(len(set(alone.values())), 3, alone)
            asked = [None, "one", "two"] * 4
            with concurrent.futures.ThreadPoolExecutor(len(asked)) as pool:
                for model, text in zip(asked, pool.map(lambda m: self.text(server, m), asked)):
                    self.assertEqual(text, alone[model], model)
            status, text, _ = server.ask("POST", "/v1/load_lora_adapter", {"lora_name": "x", "lora_path": str(self.folder / "one")})
            self.assertEqual(status, 403, text)

    def test_adapters_come_and_go_while_it_serves(self):
        with Server("--allow-runtime-lora-updating") as server:
            base, before = self.text(server), None
            for round in range(2):
                self.assertEqual(server.ask("POST", "/v1/completions", {"prompt": "x", "model": "one"})[0], 404)
                name = "one" if round == 0 else "two"      # the same name, another adapter: nothing of the first may be remembered
                self.assertEqual(server.ask("POST", "/v1/load_lora_adapter", {"lora_name": "one", "lora_path": str(self.folder / name)})[0], 200)
                with_adapter = self.text(server, "one")
                self.assertNotEqual(with_adapter, base)
                self.assertNotEqual(with_adapter, before)
                before = with_adapter
                status, text, _ = server.ask("POST", "/v1/load_lora_adapter", {"lora_name": "one", "lora_path": str(self.folder / name)})
                self.assertEqual(status, 400, text)
                with concurrent.futures.ThreadPoolExecutor(1) as pool:      # one that runs goes on with what it has
                    running = pool.submit(self.text, server, "one", 60)
                    while not json.loads(server.ask("GET", "/slots")[1]):
                        if running.done():
                            break
                    self.assertEqual(server.ask("POST", "/v1/unload_lora_adapter", {"lora_name": "one"})[0], 200)
                    self.assertTrue(running.result().startswith(with_adapter))
                self.assertEqual(server.ask("POST", "/v1/unload_lora_adapter", {"lora_name": "one"})[0], 400)
            for bad in ({}, {"lora_name": "x"}, {"lora_name": "x", "lora_path": "/nowhere"}, {"lora_name": server.model, "lora_path": str(self.folder / "one")}, {"lora_name": 3}):
                self.assertEqual(server.ask("POST", "/v1/load_lora_adapter", bad)[0], 400, bad)
            self.assertEqual(self.text(server), base)


if __name__ == "__main__":
    serve_test.RIDGE = sys.argv.pop(1)
    unittest.main()
