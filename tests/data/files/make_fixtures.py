# Makes the files of this folder with the reference packages (pip install numpy ml_dtypes safetensors gguf), so that our readers are tested against files we did
# not write. Run in this folder; the results are committed.
import json

import gguf
import ml_dtypes
import numpy as np
from gguf import GGMLQuantizationType as T
from safetensors.numpy import save_file

rng = np.random.default_rng(7)

# blocks.gguf: random blocks of every type, and what gguf-py decodes them to.
half_fields = {T.Q8_0: [0], T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q2_K: [80, 82], T.Q3_K: [108], T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208]}
w = gguf.GGUFWriter("blocks.gguf", "none")
for t in [*half_fields, T.MXFP4, T.NVFP4]:
    elems, size = gguf.GGML_QUANT_SIZES[t]
    blocks = rng.integers(0, 256, (256 // elems, size), dtype=np.uint8)
    for at in half_fields.get(t, []):
        blocks[:, at:at + 2] = rng.normal(0, 0.1, (len(blocks), 1)).astype(np.float16).view(np.uint8)
    if t == T.MXFP4:
        blocks[:, 0] = rng.integers(100, 140, len(blocks))
    if t == T.NVFP4:
        blocks[:, :4] = rng.integers(0, 127, (len(blocks), 4))
        blocks[0, :4] = [0, 1, 7, 126]
    raw = blocks.reshape(1, -1)
    w.add_tensor(t.name, raw, raw_dtype=t)
    w.add_tensor(t.name + ".expected", gguf.quants.dequantize(raw, t).astype(np.float32).reshape(1, 256))
w.write_header_to_file(); w.write_kv_data_to_file(); w.write_tensors_to_file(); w.close()

# llama.gguf: a llama of one layer as llama.cpp's converter lays it out (q and k rows interleaved), and metadata of every type.
d, heads, kv_heads, vocab = 32, 4, 2, 5
permute = lambda x, n: x.reshape(n, 2, x.shape[0] // n // 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)
w = gguf.GGUFWriter("llama.gguf", "llama")
w.add_block_count(1); w.add_context_length(64); w.add_embedding_length(d); w.add_feed_forward_length(64)
w.add_head_count(heads); w.add_head_count_kv(kv_heads); w.add_layer_norm_rms_eps(1e-5); w.add_rope_freq_base(500000.0); w.add_rope_dimension_count(8)
w.add_tokenizer_model("llama"); w.add_token_list([b"<unk>", b"<s>", b"</s>", "▁a".encode(), b"<0x0A>"])
w.add_token_scores([0.0, 0.0, 0.0, -1.0, -2.5]); w.add_token_types([2, 3, 3, 1, 6]); w.add_bos_token_id(1); w.add_eos_token_id(2)
w.add_chat_template("{{ bos_token }}{{ messages[0].content }}")
for name, value in [("uint8", 200), ("int8", -5), ("uint16", 60000), ("int16", -30000), ("uint32", 4000000000), ("int32", -2000000000), ("uint64", 2**63), ("int64", -2**62)]:
    getattr(w, "add_" + name)("test." + name, value)
w.add_float32("test.float32", 0.25); w.add_float64("test.float64", 1e300); w.add_bool("test.bool", True); w.add_string("test.string", "ü")
w.add_array("test.nested", [[1, 2], [3]]); w.add_array("test.floats", [0.5, -0.5])
rows = lambda n: (np.arange(n, dtype=np.float32)[:, None] + np.arange(d, dtype=np.float32)[None, :] / 64)
w.add_tensor("token_embd.weight", rows(vocab)); w.add_tensor("output_norm.weight", np.ones(d, np.float32))
w.add_tensor("blk.0.attn_norm.weight", np.full(d, 2, np.float32)); w.add_tensor("blk.0.ffn_norm.weight", np.full(d, 3, np.float32))
w.add_tensor("blk.0.attn_q.weight", gguf.quants.quantize(permute(rows(d), heads), T.Q8_0), raw_dtype=T.Q8_0)
w.add_tensor("blk.0.attn_k.weight", permute(rows(16), kv_heads).astype(np.float16)); w.add_tensor("blk.0.attn_v.weight", rows(16)); w.add_tensor("blk.0.attn_output.weight", rows(d))
w.add_tensor("blk.0.attn_q.bias", permute(np.arange(d, dtype=np.float32), heads))
w.add_tensor("blk.0.ffn_gate.weight", rows(64)); w.add_tensor("blk.0.ffn_up.weight", rows(64)); w.add_tensor("blk.0.ffn_down.weight", np.zeros((d, 64), np.float32))
w.add_tensor("mtp.fc.weight", rows(2))
w.write_header_to_file(); w.write_kv_data_to_file(); w.write_tensors_to_file(); w.close()

# every_dtype.safetensors: 0, 1, -2 (unsigned: 2), 0.5 where the type has it, in every dtype; and a scalar, an empty tensor, three dimensions.
types = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16, "I64": np.int64, "I32": np.int32, "I16": np.int16, "I8": np.int8, "U64": np.uint64, "U32": np.uint32,
         "U16": np.uint16, "U8": np.uint8, "BOOL": np.bool_, "F8_E4M3": ml_dtypes.float8_e4m3fn, "F8_E5M2": ml_dtypes.float8_e5m2}
values = lambda k: [0, 1, 2] if k.startswith("U") else [0, 1, 1] if k == "BOOL" else [0, 1, -2] if k.startswith("I") else [0.5, 1, -2]
tensors = {k: np.array(values(k)).astype(t) for k, t in types.items()}
tensors |= {"scalar": np.array(3.5, np.float32), "empty": np.zeros((0, 4), np.float32), "cube": np.arange(24, dtype=np.float32).reshape(2, 3, 4)}
save_file(tensors, "every_dtype.safetensors", metadata={"format": "np", "note": "made by the reference package"})
