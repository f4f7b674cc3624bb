"""Writes the trained weights as two GGUF files, the text model and the vision encoder, as llama.cpp's converter would."""
import json, os

import gguf
import numpy as np

import chats

RENAMED = {"v.patch_embd.weight1": "v.patch_embd.weight.1"}
LICENSE = "MIT OR Apache-2.0"
ABOUT = "A very small model that says which shapes are in a picture, trained on pictures drawn by code for inkstone's tests."
KEPT_F16 = ("v.patch_embd.weight", "v.patch_embd.weight.1")          # their rows of 16 values are no whole blocks


def export(args):
    os.makedirs(args.out, exist_ok=True)
    (seeing, shape), (text, _) = (read(f"{args.work}/{part}.npz") for part in ("vision", "text"))
    write(f"{args.out}/seer.gguf", "qwen3vl", args.type, text, lambda w: text_metadata(w, shape, args.work))
    write(f"{args.out}/mmproj-seer.gguf", "clip", args.type, seeing, lambda w: vision_metadata(w, shape))


def read(path):
    """The weights by their names in GGUF files, and the model's shape."""
    stored = np.load(path)
    weights = {RENAMED.get(name, name): stored[name] for name in stored.files if name != "shape"}
    return weights, json.loads(str(stored["shape"]))


def write(path, arch, kind, weights, metadata):
    w = gguf.GGUFWriter(path, arch)
    metadata(w)
    w.add_name("Seer")
    w.add_description(ABOUT)
    w.add_license(LICENSE)
    w.add_size_label(f"{sum(x.size for x in weights.values()) / 1e6:.1f}M")
    w.add_file_type(gguf.LlamaFileType.ALL_F32 if kind == "f32" else gguf.LlamaFileType.MOSTLY_Q8_0)
    w.add_quantization_version(gguf.GGML_QUANT_VERSION)
    for name, x in weights.items():
        x = np.ascontiguousarray(x, np.float32)
        if kind == "f32" or x.ndim == 1 or "position_embd" in name:
            w.add_tensor(name, x)
        elif name in KEPT_F16:
            w.add_tensor(name, x.astype(np.float16))
        else:
            q8 = gguf.GGMLQuantizationType.Q8_0
            w.add_tensor(name, gguf.quants.quantize(x, q8), raw_dtype=q8)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    print(f"{path}: {os.path.getsize(path)} bytes")


def vision_metadata(w, shape):
    w.add_type("mmproj")
    w.add_bool("clip.has_vision_encoder", True)
    w.add_string("clip.projector_type", "qwen3vl_merger")
    w.add_bool("clip.use_gelu", True)
    for key, value in dict(projection_dim=shape["hidden"], image_size=shape["image_size"], patch_size=shape["patch"],
                           embedding_length=shape["vision_hidden"], feed_forward_length=shape["vision_ffn"],
                           block_count=shape["vision_layers"], spatial_merge_size=2).items():
        w.add_uint32(f"clip.vision.{key}", value)
    w.add_uint32("clip.vision.attention.head_count", shape["vision_heads"])
    w.add_float32("clip.vision.attention.layer_norm_epsilon", shape["eps"])
    w.add_array("clip.vision.image_mean", [0.5] * 3)
    w.add_array("clip.vision.image_std", [0.5] * 3)
    w.add_array("clip.vision.is_deepstack_layers", [i in shape["deepstack"] for i in range(shape["vision_layers"])])


def text_metadata(w, shape, work):
    w.add_type("model")
    w.add_languages(["en"])
    w.add_block_count(shape["layers"])
    w.add_context_length(shape["context"])
    w.add_embedding_length(shape["hidden"])
    w.add_feed_forward_length(shape["ffn"])
    w.add_vocab_size(shape["vocab"])
    w.add_head_count(shape["heads"])
    w.add_head_count_kv(shape["kv_heads"])
    w.add_key_length(shape["head_dim"])
    w.add_value_length(shape["head_dim"])
    w.add_layer_norm_rms_eps(shape["eps"])
    w.add_rope_freq_base(shape["rope_base"])
    w.add_array("qwen3vl.rope.dimension_sections", [*shape["sections"], 0])
    w.add_uint32("qwen3vl.n_deepstack_layers", len(shape["deepstack"]))
    add_tokenizer(w, f"{work}/tokenizer.json", shape["vocab"])
    w.add_chat_template(chats.CHAT_TEMPLATE)


def add_tokenizer(w, path, size):
    with open(path) as f:
        tokenizer = json.load(f)
    ids = dict(tokenizer["model"]["vocab"], **{t["content"]: t["id"] for t in tokenizer["added_tokens"]})
    tokens = sorted(ids, key=ids.get)
    assert len(tokens) == size and tuple(tokens[-len(chats.SPECIAL):]) == chats.SPECIAL
    kinds = gguf.TokenType
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("qwen2")
    w.add_token_list(tokens)
    w.add_token_types([kinds.CONTROL if t in chats.SPECIAL else kinds.UNUSED if t.startswith("[unused") else kinds.NORMAL
                       for t in tokens])
    w.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in tokenizer["model"]["merges"]])
    w.add_bos_token_id(ids[chats.END])
    w.add_eos_token_id(ids[chats.IM_END])
    w.add_eot_token_id(ids[chats.IM_END])
    w.add_pad_token_id(ids[chats.END])
    w.add_add_bos_token(False)
