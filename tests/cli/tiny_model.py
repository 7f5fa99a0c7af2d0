"""A complete checkpoint of a few hundred kilobytes, written with the standard library alone: a Llama of two layers with random weights, a byte-level tokenizer
and a chat template. What it says makes no sense; that it always says the same can be tested."""
import json
import os
import random
import struct

N_LAYERS, D_MODEL, D_FF, N_HEADS, N_KV_HEADS, HEAD_DIM = 2, 64, 128, 4, 2, 16
TEMPLATE = ("{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
            "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")


def byte_characters():
    """The characters that stand for the 256 bytes in byte-level vocabularies."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAC + 1), *range(0xAE, 0xFF + 1)]
    characters, n = {}, 0
    for b in range(256):
        if b in printable:
            characters[b] = chr(b)
        else:
            characters[b] = chr(256 + n)
            n += 1
    return characters


def bf16(values):
    return b"".join(struct.pack("<f", v)[2:] for v in values)


def write_safetensors(path, tensors):
    header, offset = {}, 0
    for name, (shape, data) in tensors.items():
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(data for _, data in tensors.values()))


def write_model(folder, context=256, chat_template=True, eos=True):
    os.makedirs(folder, exist_ok=True)
    letters = byte_characters()
    vocabulary = {letters[b]: b for b in range(256)}
    added = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"] if chat_template else ["<|endoftext|>", "<|one|>", "<|two|>"]
    n_vocab = 320
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": n_vocab, "hidden_size": D_MODEL, "intermediate_size": D_FF, "num_hidden_layers": N_LAYERS,
              "num_attention_heads": N_HEADS, "num_key_value_heads": N_KV_HEADS, "head_dim": HEAD_DIM, "max_position_embeddings": context, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
              "hidden_act": "silu", "tie_word_embeddings": False, "torch_dtype": "bfloat16"}
    if eos:
        config["eos_token_id"] = 258
    tokenizer = {"version": "1.0", "truncation": None, "padding": None,
                 "added_tokens": [{"id": 256 + i, "content": t, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True} for i, t in enumerate(added)],
                 "normalizer": None, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}, "post_processor": None,
                 "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
                 "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                           "ignore_merges": False, "vocab": vocabulary, "merges": []}}
    tokenizer_config = {"eos_token": added[2] if eos else None}
    if chat_template:
        tokenizer_config["chat_template"] = TEMPLATE
    for name, value in (("config.json", config), ("tokenizer.json", tokenizer), ("tokenizer_config.json", tokenizer_config)):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
            json.dump(value, f)
    rng = random.Random(7)

    def matrix(rows, cols):
        return [rows, cols], bf16(rng.gauss(0, cols ** -0.5) for _ in range(rows * cols))

    def ones(n):
        return [n], bf16([1.0] * n)

    tensors = {"model.embed_tokens.weight": ([n_vocab, D_MODEL], bf16(rng.gauss(0, 0.5) for _ in range(n_vocab * D_MODEL)))}
    for i in range(N_LAYERS):
        layer = f"model.layers.{i}."
        tensors |= {layer + "input_layernorm.weight": ones(D_MODEL), layer + "self_attn.q_proj.weight": matrix(N_HEADS * HEAD_DIM, D_MODEL),
                    layer + "self_attn.k_proj.weight": matrix(N_KV_HEADS * HEAD_DIM, D_MODEL), layer + "self_attn.v_proj.weight": matrix(N_KV_HEADS * HEAD_DIM, D_MODEL),
                    layer + "self_attn.o_proj.weight": matrix(D_MODEL, N_HEADS * HEAD_DIM), layer + "post_attention_layernorm.weight": ones(D_MODEL),
                    layer + "mlp.gate_proj.weight": matrix(D_FF, D_MODEL), layer + "mlp.up_proj.weight": matrix(D_FF, D_MODEL), layer + "mlp.down_proj.weight": matrix(D_MODEL, D_FF)}
    tensors["model.norm.weight"] = ones(D_MODEL)
    # Rows of letters are larger, so that most of what it says is printable.
    head = [rng.gauss(0, 0.5 if 97 <= row < 123 or row == 32 else 0.1) for row in range(n_vocab) for _ in range(D_MODEL)]
    tensors["lm_head.weight"] = ([n_vocab, D_MODEL], bf16(head))
    write_safetensors(os.path.join(folder, "model.safetensors"), tensors)
    return folder
