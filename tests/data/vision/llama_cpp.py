#!/usr/bin/env python3
"""Record what llama.cpp computes with the checkpoints beside this file, with its own way of resizing.

    llama_cpp.py PEER [NAME ...]        needs numpy, gguf, torch and transformers (all on PyPI)

For each folder NAME that make.py has written, a text model and an `mmproj` file are written as llama.cpp's converter
would (all in F32), and `PEER vision TEXT MMPROJ IMAGES PROMPT OUT N` runs llama.cpp's mtmd on them: it writes to OUT
`embd.f32`, `logits.f32` and `info.json` with N greedy ids and their leads. The results become `llama.cpp.embd.f32`,
`llama.cpp.logits.f32` and the object `llama.cpp` of `info.json` in the folder.
"""
import importlib.util, json, pathlib, re, subprocess, sys, tempfile
import gguf, numpy as np, torch
from safetensors.torch import load_file

HERE = pathlib.Path(__file__).parent


def module(path):
    spec = importlib.util.spec_from_file_location(path.parent.name, path)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


TINY = module(HERE / "../models/make_tiny.py")
CHECKPOINTS = module(HERE / "../checkpoints/make.py")
# Of the whole model's `model_type`: the architecture of the text model and the projector.
KINDS = {
    "qwen2_vl": ("qwen2vl", "qwen2vl_merger"), "qwen2_5_vl": ("qwen2vl", "qwen2.5vl_merger"),
    "qwen3_vl": ("qwen3vl", "qwen3vl_merger"), "qwen3_vl_moe": ("qwen3vlmoe", "qwen3vl_merger"),
    "qwen3_5": ("qwen35", "qwen3vl_merger"), "qwen3_5_moe": ("qwen35moe", "qwen3vl_merger"),
    "gemma3": ("gemma3", "gemma3"), "gemma4": ("gemma4", "gemma4v"), "idefics3": ("llama", "idefics3"),
    "smolvlm": ("llama", "idefics3"), "internvl": ("qwen2", "internvl"),
}
TOWER = r"^(model\.)?(visual|vision_tower(\.vision_model)?|vision_model|multi_modal_projector|connector|embed_vision)\."
LAYER = {
    "norm1": "ln1", "norm2": "ln2", "layer_norm1": "ln1", "layer_norm2": "ln2", "layernorm_before": "ln1",
    "layernorm_after": "ln2", "attn.qkv": "attn_qkv", "attn.proj": "attn_out", "self_attn.out_proj": "attn_out",
    "attention.projection_layer": "attn_out", "mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down", "mlp.linear_fc1": "ffn_up",
    "mlp.linear_fc2": "ffn_down", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "self_attn.o_proj": "attn_out", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "input_layernorm": "ln1", "post_attention_layernorm": "attn_post_norm", "pre_feedforward_layernorm": "ln2",
    "post_feedforward_layernorm": "ffn_post_norm",
} | {f"{a}.{x}_proj": f"attn_{x}" for a in ("self_attn", "attention") for x in "qkv"}
FIXED = {
    "pos_embed.weight": "v.position_embd.weight", "patch_embed.proj.bias": "v.patch_embd.bias",
    "embeddings.patch_embedding.weight": "v.patch_embd.weight", "embeddings.patch_embedding.bias": "v.patch_embd.bias",
    "embeddings.position_embedding.weight": "v.position_embd.weight", "embeddings.cls_token": "v.class_embd",
    "embeddings.position_embeddings": "v.position_embd.weight",
    "embeddings.patch_embeddings.projection.weight": "v.patch_embd.weight",
    "embeddings.patch_embeddings.projection.bias": "v.patch_embd.bias", "std_bias": "v.std_bias", "std_scale": "v.std_scale",
    "mm_input_projection_weight": "mm.input_projection.weight", "modality_projection.proj.weight": "mm.model.fc.weight",
    "embedding_projection.weight": "mm.input_projection.weight",
    "patch_embedder.position_embedding_table": "v.position_embd.weight",
}
PARTS = {"merger.norm": "v.post_ln", "merger.ln_q": "v.post_ln", "post_layernorm": "v.post_ln", "merger.linear_fc1": "mm.0",
         "merger.linear_fc2": "mm.2", "merger.mlp.0": "mm.0", "merger.mlp.2": "mm.2", "layer_norm": "mm.model.mlp.0",
         "linear_1": "mm.model.mlp.1", "linear_2": "mm.model.mlp.3"}


def encoder_tensors(tensors, config):
    """Names and elements as the converter to `mmproj` files makes them."""
    deepstack = config["vision_config"].get("deepstack_visual_indexes", [])
    for key, x in tensors.items():
        if not re.match(TOWER, key):
            continue
        name = re.sub(TOWER, "", key)
        if name == "patch_embed.proj.weight":
            yield "v.patch_embd.weight", x[:, :, 0]
            yield "v.patch_embd.weight.1", x[:, :, 1]
        elif name == "patch_embedder.input_proj.weight":
            side = int((x.shape[1] // 3) ** 0.5)
            yield "v.patch_embd.weight", x.reshape(-1, side, side, 3).transpose(0, 3, 1, 2)
        elif name == "mm_soft_emb_norm.weight":
            yield "mm.soft_emb_norm.weight", x + 1
        elif name in FIXED:
            yield FIXED[name], x[0] if name == "embeddings.position_embeddings" else x.reshape(-1) if "cls" in name else x
        elif m := re.match(r"deepstack_merger_list\.(\d+)\.(.+)\.(\w+)$", name):
            yield f"v.deepstack.{deepstack[int(m[1])]}.{m[2].replace('linear_', '')}.{m[3]}", x
        elif m := re.match(r"(?:blocks|encoder\.layers?)\.(\d+)\.(.+)$", name):
            if m[2] in ("lambda_1", "lambda_2"):
                yield f"v.blk.{m[1]}.ls{m[2][-1]}.weight", x
                continue
            part, suffix = m[2].rsplit(".", 1)
            if part == "attn.qkv" and config["model_type"].startswith("qwen2"):
                for q, third in zip("qkv", np.split(x, 3)):
                    yield f"v.blk.{m[1]}.attn_{q}.{suffix}", third
                continue
            yield f"v.blk.{m[1]}.{LAYER[part.removesuffix('.linear')]}.{suffix}", x.reshape(-1) if x.ndim == 0 else x
        else:
            part, suffix = name.rsplit(".", 1)
            yield f"{PARTS[part]}.{suffix}", x


def write_encoder(path, folder, config, tensors, projector):
    v, w = config["vision_config"], gguf.GGUFWriter(path, "clip")
    processor = json.loads(next(folder.glob("p*config.json")).read_text())
    processor = processor.get("image_processor", processor)
    one = lambda x: x[0] if isinstance(x, list) else x
    get = lambda *names: next(v[name] for name in names if name in v)
    w.add_type("mmproj")
    w.add_bool("clip.has_vision_encoder", True)
    w.add_string("clip.vision.projector_type" if projector == "gemma4v" else "clip.projector_type", projector)
    u = lambda key, value: w.add_uint32(f"clip.vision.{key}", int(value))
    hidden, patch = get("embed_dim", "hidden_size"), one(v["patch_size"])
    u("projection_dim", config["text_config"]["hidden_size"])
    u("embedding_length", hidden)
    u("feed_forward_length", v.get("intermediate_size") or hidden * v["mlp_ratio"])
    u("block_count", get("depth", "num_hidden_layers"))
    u("attention.head_count", get("num_heads", "num_attention_heads"))
    u("patch_size", patch)
    side = int(v.get("num_position_embeddings", 0) ** 0.5) * patch
    u("image_size", one(v["image_size"]) if "image_size" in v else side or 560)
    w.add_float32("clip.vision.attention.layer_norm_epsilon", v.get("layer_norm_eps", v.get("rms_norm_eps", 1e-6)))
    plain = not processor["do_normalize"]
    w.add_array("clip.vision.image_mean", [0.0] * 3 if plain else processor["image_mean"])
    w.add_array("clip.vision.image_std", [1.0] * 3 if plain else processor["image_std"])
    function = {"silu": "use_silu", "quick_gelu": None}.get(v.get("hidden_act"), "use_gelu")
    if function and projector != "gemma4v":
        w.add_bool(f"clip.{function}", True)
    if projector == "qwen2.5vl_merger":
        u("n_wa_pattern", v["fullatt_block_indexes"][0] + 1)
        u("window_size", v["window_size"])
    if projector == "qwen3vl_merger":
        layers = v.get("deepstack_visual_indexes", [])
        w.add_array("clip.vision.is_deepstack_layers", [layer in layers for layer in range(v["depth"])])
    if "spatial_merge_size" in v:
        u("spatial_merge_size", v["spatial_merge_size"])
    if projector == "gemma3":
        u("projector.scale_factor", v["image_size"] // patch // config["mm_tokens_per_image"] ** 0.5)
    if projector == "gemma4v":
        u("projector.scale_factor", v["pooling_kernel_size"])
    if projector == "idefics3":
        u("projector.scale_factor", config["scale_factor"])
        u("preproc_image_size", processor["size"]["longest_edge"])
    if projector == "internvl":
        u("projector.scale_factor", 1 / config["downsample_ratio"])
        u("preproc_min_tiles", processor["min_patches"])
        u("preproc_max_tiles", processor["max_patches"])
    finish(w, encoder_tensors(tensors, config))


def text_tensors(tensors, t, tiny):
    kind = t["model_type"]
    if kind in ("qwen3_vl_text", "qwen3_vl_moe_text"):
        kind = "qwen3"
    stacks = {}
    for key, x in tensors.items():
        if re.match(TOWER, key):
            continue
        name = re.sub(r"^(model\.language_model|language_model\.model|model\.text_model|model)\.", "model.", key)
        if name.endswith("experts.gate_up_proj"):
            layer = name.split(".")[2]
            yield f"blk.{layer}.ffn_gate_exps.weight", x[:, : x.shape[1] // 2]
            yield f"blk.{layer}.ffn_up_exps.weight", x[:, x.shape[1] // 2 :]
            continue
        if name.endswith("experts.down_proj"):
            yield f"blk.{name.split('.')[2]}.ffn_down_exps.weight", x
            continue
        to, how = CHECKPOINTS.gguf_name(name, kind), CHECKPOINTS.how(name, kind, tiny)
        if how.startswith("number"):
            stacks.setdefault(to, {})[int(how.split()[1])] = x
        elif how.startswith("permuted"):
            heads = int(how.split()[1])
            yield to, x.reshape(heads, 2, -1, x.shape[1]).swapaxes(1, 2).reshape(x.shape)
        else:
            yield to, {"as-is": lambda: x, "plus-one": lambda: x + 1, "minus-exp": lambda: -np.exp(x), "row": lambda: x[0],
                       "kernel": lambda: x[:, 0]}[how]()
    for to, parts in stacks.items():
        yield to, np.stack([parts[number] for number in range(len(parts))])
    if tiny["arch"] == "gemma4":
        rotated = int(t["rope_parameters"]["full_attention"]["partial_rotary_factor"] * tiny["head_dim"] / 2)
        yield "rope_freqs.weight", np.array([1.0 if i < rotated else 1e30 for i in range(tiny["head_dim"] // 2)])


def write_text(path, folder, config, tensors, arch):
    t, w = config["text_config"], gguf.GGUFWriter(path, arch)
    rope = t["rope_parameters"]
    full = rope.get("full_attention", rope)
    head_dim = t.get("head_dim") or t["hidden_size"] // t["num_attention_heads"]
    tiny = TINY.DEFAULTS | dict(
        name="tiny", arch=arch, layers=t["num_hidden_layers"], hidden=t["hidden_size"], ffn=t["intermediate_size"],
        heads=t["num_attention_heads"], kv_heads=t["num_key_value_heads"], head_dim=head_dim, vocab=t["vocab_size"],
        context=t["max_position_embeddings"], eps=t["rms_norm_eps"], rope_base=full["rope_theta"])
    if sections := full.get("mrope_section"):
        tiny["rope_sections"] = [*sections, 0]
    if experts := t.get("num_experts") or t.get("num_local_experts"):
        tiny |= dict(experts=experts, experts_used=t["num_experts_per_tok"], expert_ffn=t["moe_intermediate_size"])
        if "shared_expert_intermediate_size" in t:
            tiny["shared_expert_ffn"] = t["shared_expert_intermediate_size"]
    if arch in ("qwen3vl", "qwen3vlmoe"):
        tiny["deepstack_layers"] = len(config["vision_config"]["deepstack_visual_indexes"])
    if arch.startswith("qwen35"):
        tiny |= dict(rope_dim=int(head_dim * full["partial_rotary_factor"]), conv_kernel=t["linear_conv_kernel_dim"],
                     linear_head_dim=t["linear_key_head_dim"], linear_k_heads=t["linear_num_key_heads"],
                     linear_v_heads=t["linear_num_value_heads"], full_attention_interval=2)
    if "sliding_attention" in rope:
        slides = [kind == "sliding_attention" for kind in t["layer_types"]]
        tiny |= dict(sliding_window=t["sliding_window"], swa_pattern=slides, rope_base_swa=rope["sliding_attention"]["rope_theta"])
    if arch == "gemma4":
        tiny |= dict(head_dim=t["per_layer_config"]["1"]["head_dim"], head_dim_swa=head_dim, final_softcap=t["final_logit_softcapping"],
                     shared_kv_layers=t["num_kv_shared_layers"], per_layer_dim=t["hidden_size_per_layer_input"])
    TINY.add_metadata(w, tiny)
    stored = json.loads((folder / "tokenizer.json").read_text())
    tokens = {i: s for s, i in stored["model"]["vocab"].items()} | {a["id"]: a["content"] for a in stored["added_tokens"]}
    marks = {a["id"] for a in stored["added_tokens"]}
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("qwen2")
    w.add_token_list([tokens[i] for i in range(len(tokens))])
    w.add_token_types([gguf.TokenType.CONTROL if i in marks else gguf.TokenType.NORMAL for i in range(len(tokens))])
    # llama.cpp wants merges. These two bytes follow each other in no prompt.
    w.add_token_merges(["À Á"])
    w.add_eos_token_id(t["eos_token_id"])
    w.add_bos_token_id(t["eos_token_id"])
    w.add_add_bos_token(False)
    finish(w, text_tensors(tensors, t, tiny))


def finish(w, tensors):
    w.add_file_type(gguf.LlamaFileType.ALL_F32)
    for name, x in tensors:
        w.add_tensor(name, np.ascontiguousarray(x, np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def record(peer, name):
    folder = HERE / name
    config, info = (json.loads((folder / file).read_text()) for file in ("config.json", "info.json"))
    arch, projector = KINDS[config["model_type"]]
    tensors = {key: x.to(torch.float64).numpy() for key, x in load_file(folder / "model.safetensors").items()}
    with tempfile.TemporaryDirectory() as out:
        out = pathlib.Path(out)
        write_text(out / "text.gguf", folder, config, tensors, arch)
        write_encoder(out / "mmproj.gguf", folder, config, tensors, projector)
        images = ",".join(str(HERE / image) for image in info["images"])
        count = len(info["transformers"]["greedy"])
        command = [peer, "vision", out / "text.gguf", out / "mmproj.gguf", images, info["prompt"], out / "out", count]
        (out / "out").mkdir()
        subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL)
        result = json.loads((out / "out/info.json").read_text())
        for part in ("embd", "logits"):
            (folder / f"llama.cpp.{part}.f32").write_bytes((out / f"out/{part}.f32").read_bytes())
    info["llama.cpp"] = dict(greedy=result["greedy"], lead=min(result["gaps"]))
    (folder / "info.json").write_text(json.dumps(info))
    print(name, info["llama.cpp"], "transformers:", info["transformers"]["greedy"])


if __name__ == "__main__":
    for name in sys.argv[2:] or sorted(path.parent.name for path in HERE.glob("*/info.json")):
        record(sys.argv[1], name)
