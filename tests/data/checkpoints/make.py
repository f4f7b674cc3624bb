#!/usr/bin/env python3
"""Write the tiny models of ../models as transformers has them, and hold what transformers computes against llama.cpp.

    make.py [NAME ...]        needs numpy, gguf, torch and transformers (all on PyPI)

For each model of `MODELS` a folder NAME with `config.json`, `generation_config.json`, `tokenizer.json` and
`tokenizer_config.json`, written by transformers itself, and `tensors.txt`, from which the tests make the file of tensors:
a line for each tensor that transformers saves, with its name, the tensor of ../models/NAME.gguf that it is, and what
the converter to GGUF did to it, which is to be undone:

    as-is
    permuted N    rows of N heads: of each head, the first half of the rows became the even ones
    plus-one      one was added to each element
    number N      it became the one of this number in a stack
    minus-exp     each element x became -exp(x)
    row           it was a matrix of one row
    kernel        a dimension of length 1 within it was left out
    tiled K N F   the rows from F on are heads of N rows: those that read the same one of K others, which followed one
                  another, came to lie K apart
    tiled-columns K N    so did heads of N columns

The model is then loaded from the folder and must give the logits of ../models/NAME.expected, to which its own are added,
computed in double precision as far as transformers does (`transformers_prompt_logits`, `transformers_end_logits`).
"""
import json, pathlib, re, sys, tempfile
import gguf, numpy as np, torch, transformers
from safetensors import safe_open
from safetensors.torch import save_file
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

HERE = pathlib.Path(__file__).parent
# Model: transformers' `model_type`, and what of the config has another name or no equal in ../models/NAME.json.
MODELS = {
    "qwen3": ("qwen3", {}),
    "qwen3_yarn": ("qwen3", {}),
    "llama": ("llama", {}),
    "llama_biased": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "qwen2": ("qwen2", {}),
    "smollm3": ("smollm3", {}),
    "gemma": ("gemma", {}),
    "gemma2": ("gemma2", {"query_pre_attn_scalar": 16}),
    "gemma3": ("gemma3_text", {"query_pre_attn_scalar": 32}),
    "granite": ("granite", {}),
    "phi3": ("phi3", {}),
    "phi3_long": ("phi3", {}),
    "phi3_short": ("phi3", {}),
    "qwen3moe": ("qwen3_moe", {"norm_topk_prob": True}),
    "mixtral": ("mixtral", {}),
    "qwen35": ("qwen3_5_text", {}),
    "qwen35_ungrouped": ("qwen3_5_text", {}),
    "qwen35moe": ("qwen3_5_moe_text", {}),
    "olmo2": ("olmo2", {}),
    "glm4": ("glm4", {"attention_bias": True}),
    "qwen2moe": ("qwen2_moe", {"norm_topk_prob": False, "decoder_sparse_step": 1, "mlp_only_layers": []}),
    "ernie4_5": ("ernie4_5", {"use_bias": False}),
    "hunyuan": ("hunyuan_v1_dense", {}),
    "arcee": ("arcee", {}),
    "starcoder2": ("starcoder2", {"norm_epsilon": 1e-5, "use_bias": True}),
    "cohere2": ("cohere2", {"layer_norm_eps": 1e-5, "logit_scale": 0.25,
                            "layer_types": ["sliding_attention"] * 3 + ["full_attention", "sliding_attention"]}),
    "glm4moe": ("glm4_moe", {
        "n_routed_experts": 8, "n_shared_experts": 1, "first_k_dense_replace": 1, "routed_scaling_factor": 2.5,
        "attention_bias": True, "use_qk_norm": True}),
    "glm4moe_groups": ("glm4_moe", {
        "n_routed_experts": 8, "n_shared_experts": 2, "first_k_dense_replace": 0, "norm_topk_prob": False, "n_group": 4,
        "topk_group": 2, "partial_rotary_factor": 1.0}),
    "exaone4_windows": ("exaone4", {"sliding_window_pattern": 4}),
    "command_r": ("cohere", {"layer_norm_eps": 1e-5, "logit_scale": 0.25}),
    "command_r_norms": ("cohere", {"layer_norm_eps": 1e-5, "logit_scale": 0.8, "use_qk_norm": True}),
    "phi2": ("phi", {"layer_norm_eps": 1e-5}),
    "stablelm": ("stablelm", {"layer_norm_eps": 1e-5, "use_qkv_bias": True}),
    "stablelm_parallel": ("stablelm", {"layer_norm_eps": 1e-5, "use_parallel_residual": True, "qk_layernorm": True}),
    "seed_oss": ("seed_oss", {"attention_bias": True, "attention_out_bias": False}),
    "gemma4": ("gemma4_text", {}),
    "gemma4_uneven": ("gemma4_text", {"enable_moe_block": True, "attention_k_eq_v": True}),
}
# Models that llama.cpp cannot compute: transformers' config. They have no folder.
ALONE = {
    "gemma3n_shared": lambda tiny: dict(
        model_type="gemma3n_text", intermediate_size=tiny["ffn"], altup_num_inputs=tiny["streams"], laurel_rank=tiny["laurel_rank"],
        hidden_size_per_layer_input=tiny["per_layer_dim"], vocab_size_per_layer_input=tiny["vocab"],
        num_kv_shared_layers=tiny["shared_kv_layers"], sliding_window=tiny["sliding_window"],
        layer_types=["sliding_attention" if slides else "full_attention" for slides in tiny["swa_pattern"]],
        activation_sparsity_pattern=[0.95 if layer < tiny["sparse_layers"] else 0.0 for layer in range(tiny["layers"])]),
    "llama4_chunks": lambda tiny: dict(
        model_type="llama4_text", intermediate_size=tiny["expert_ffn"], intermediate_size_mlp=tiny["ffn"],
        num_local_experts=tiny["experts"], num_experts_per_tok=1, interleave_moe_layer_step=tiny["moe_step"],
        attention_chunk_size=tiny["sliding_window"], floor_scale=tiny["keys"]["attention.temperature_length"],
        attn_scale=tiny["keys"]["attention.temperature_scale"]),
}
PERMUTED = {"llama", "smollm3", "granite", "mixtral", "arcee"}
PLUS_ONE = {"gemma", "gemma2", "gemma3_text", "qwen3_5_text", "qwen3_5_moe_text"}
# Settings that need no more than another name.
SETTINGS = {
    "sliding_window": "sliding_window", "attn_softcap": "attn_logit_softcapping", "final_softcap": "final_logit_softcapping",
    "embedding_scale": "embedding_multiplier", "residual_scale": "residual_multiplier",
    "attention.scale": "attention_multiplier", "logit_scale": "logits_scaling",
    "experts": "num_experts", "experts_used": "num_experts_per_tok", "expert_ffn": "moe_intermediate_size",
    "shared_expert_ffn": "shared_expert_intermediate_size",
    "full_attention_interval": "full_attention_interval", "conv_kernel": "linear_conv_kernel_dim",
    "linear_k_heads": "linear_num_key_heads", "linear_v_heads": "linear_num_value_heads",
    "shared_kv_layers": "num_kv_shared_layers", "per_layer_dim": "hidden_size_per_layer_input",
}
NAMES = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "mlp.gate": "ffn_gate_inp", "mlp.experts.gate_proj": "ffn_gate_exps", "mlp.experts.up_proj": "ffn_up_exps",
    "mlp.experts.down_proj": "ffn_down_exps",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp", "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
    "mlp.shared_expert.up_proj": "ffn_up_shexp", "mlp.shared_expert.down_proj": "ffn_down_shexp",
    "linear_attn.in_proj_qkv": "attn_qkv", "linear_attn.in_proj_z": "attn_gate", "linear_attn.in_proj_a": "ssm_alpha",
    "linear_attn.in_proj_b": "ssm_beta", "linear_attn.conv1d": "ssm_conv1d", "linear_attn.norm": "ssm_norm",
    "linear_attn.out_proj": "ssm_out", "linear_attn.A_log": "ssm_a", "linear_attn.dt_bias": "ssm_dt.bias",
    "block_sparse_moe.gate": "ffn_gate_inp", "block_sparse_moe.experts.w1": "ffn_gate_exps",
    "block_sparse_moe.experts.w3": "ffn_up_exps", "block_sparse_moe.experts.w2": "ffn_down_exps",
}
# Where four norms of a layer have other names.
GEMMA_2 = {
    "post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
GEMMA_3N = GEMMA_2 | {
    "model.embed_tokens_per_layer": "per_layer_token_embd", "model.per_layer_model_projection": "per_layer_model_proj",
    "model.per_layer_projection_norm": "per_layer_proj_norm", "per_layer_input_gate": "inp_gate",
    "per_layer_projection": "proj", "post_per_layer_input_norm": "post_norm",
    "altup.correct_output_scale": "altup_correct_scale.weight", "altup.correction_coefs": "altup_correct_coef",
    "altup.prediction_coefs": "altup_predict_coef", "altup.modality_router": "altup_router", "altup.router_norm": "altup_router_norm",
    "laurel.linear_left": "laurel_l", "laurel.linear_right": "laurel_r", "laurel.post_laurel_norm": "laurel_post_norm",
}
LLAMA_4 = {
    "feed_forward.router": "ffn_gate_inp", "feed_forward.experts.down_proj": "ffn_down_exps.weight",
    **{f"feed_forward.{part}_proj": f"ffn_{part}" for part in ("gate", "up", "down")},
    **{f"feed_forward.shared_expert.{part}_proj": f"ffn_{part}_shexp" for part in ("gate", "up", "down")},
}
GEMMA_4 = GEMMA_2 | {
    "layer_scalar": "layer_output_scale.weight", "model.embed_tokens_per_layer": "per_layer_token_embd",
    "model.per_layer_model_projection": "per_layer_model_proj", "model.per_layer_projection_norm": "per_layer_proj_norm",
    "per_layer_input_gate": "inp_gate", "per_layer_projection": "proj", "post_per_layer_input_norm": "post_norm",
    "router.proj": "ffn_gate_inp", "router.scale": "ffn_gate_inp.scale", "router.per_expert_scale": "ffn_down_exps.scale",
    "experts.gate_up_proj": "ffn_gate_up_exps.weight", "experts.down_proj": "ffn_down_exps.weight",
    "pre_feedforward_layernorm_2": "pre_ffw_norm_2", "post_feedforward_layernorm_1": "post_ffw_norm_1",
    "post_feedforward_layernorm_2": "post_ffw_norm_2",
}
QWEN_35 = {"post_attention_layernorm": "post_attention_norm"}
OWN_NAMES = {
    "olmo2": {"post_attention_layernorm": "post_attention_norm", "post_feedforward_layernorm": "post_ffw_norm"},
    "exaone4": {"post_attention_layernorm": "post_attention_norm", "post_feedforward_layernorm": "post_ffw_norm"},
    "glm4": {"post_self_attn_layernorm": "post_attention_norm", "post_mlp_layernorm": "post_ffw_norm"},
    "hunyuan_v1_dense": {"self_attn.query_layernorm": "attn_q_norm", "self_attn.key_layernorm": "attn_k_norm"},
    "starcoder2": {"mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"},
    "seed_oss": {"post_attention_layernorm": "post_attention_norm"},
    "glm4_moe": {
        "post_attention_layernorm": "post_attention_norm", "mlp.gate.e_score_correction_bias": "exp_probs_b.bias",
        **{f"mlp.shared_experts.{part}_proj": f"ffn_{part}_shexp" for part in ("gate", "up", "down")},
    },
    "phi": {"model.final_layernorm": "output_norm", "self_attn.dense": "attn_output", "mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down"},
    "stablelm": {"self_attn.q_layernorm.norms": "attn_q_norm", "self_attn.k_layernorm.norms": "attn_k_norm"},
    "gemma2": GEMMA_2, "gemma3_text": GEMMA_2, "gemma4_text": GEMMA_4, "qwen3_5_text": QWEN_35, "qwen3_5_moe_text": QWEN_35,
    "gemma3n_text": GEMMA_3N, "llama4_text": LLAMA_4,
}
SPLIT = {
    "qwen2": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "qwen35": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "llama-bpe": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
}


def rope(tiny):
    parameters = {"rope_type": "default", "rope_theta": tiny.get("rope_base", 10000.0)}
    if scaling := tiny.get("rope_scaling"):
        parameters |= {"rope_type": scaling["type"], "factor": scaling["factor"]}
        if "original_context" in scaling:
            parameters["original_max_position_embeddings"] = scaling["original_context"]
    if (freqs := tiny.get("rope_freqs")) and "rotated_fraction" in freqs:
        parameters |= {"rope_type": "proportional", "partial_rotary_factor": freqs["rotated_fraction"]}
    elif freqs:
        parameters |= {"rope_type": "llama3", "original_max_position_embeddings": freqs["original_context"]}
        parameters |= {key: freqs[key] for key in ("factor", "low_freq_factor", "high_freq_factor")}
    if factors := tiny.get("rope_factors"):
        keys = tiny["keys"]
        parameters |= {"rope_type": "longrope", "short_factor": factors["short"], "long_factor": factors["long"],
                       "partial_rotary_factor": keys["rope.dimension_count"] / tiny["head_dim"]}
    if "rope_dim" in tiny:
        parameters["partial_rotary_factor"] = tiny["rope_dim"] / tiny["head_dim"]
        if "rope_sections" in tiny:
            parameters["mrope_section"] = tiny["rope_sections"][:3]
    if base := tiny.get("rope_base_swa"):
        return {"full_attention": parameters, "sliding_attention": {"rope_type": "default", "rope_theta": base}}
    return parameters


def config(tiny, model_type, more):
    named = {SETTINGS[key]: value for key, value in (tiny | tiny.get("keys", {})).items() if key in SETTINGS}
    if "rope_factors" in tiny:
        named["original_max_position_embeddings"] = tiny["keys"]["rope.scaling.original_context_length"]
    kv_heads, head_dim = tiny["kv_heads"], tiny.get("head_dim", tiny["hidden"] // tiny["heads"])
    if model_type == "gemma4_text":
        kinds = ["sliding_attention" if slides else "full_attention" for slides in tiny["swa_pattern"]]
        named |= {"layer_types": kinds, "global_head_dim": head_dim, "vocab_size_per_layer_input": tiny["vocab"],
                  "hidden_size_per_layer_input": tiny.get("per_layer_dim", 0), "top_k_experts": tiny.get("experts_used")}
        named.pop("num_experts_per_tok", None)
        head_dim = tiny["head_dim_swa"]
        if isinstance(kv_heads, list):
            named["num_global_key_value_heads"] = kv_heads[kinds.index("full_attention")]
            kv_heads = kv_heads[kinds.index("sliding_attention")]
    if "linear_head_dim" in tiny:
        named |= {"linear_key_head_dim": tiny["linear_head_dim"], "linear_value_head_dim": tiny["linear_head_dim"]}
    return transformers.AutoConfig.for_model(
        model_type, vocab_size=tiny["vocab"], hidden_size=tiny["hidden"], intermediate_size=tiny.get("ffn"),
        num_hidden_layers=tiny["layers"], num_attention_heads=tiny["heads"], num_key_value_heads=kv_heads,
        head_dim=head_dim, max_position_embeddings=tiny["context"],
        rms_norm_eps=tiny.get("eps", 1e-6), tie_word_embeddings=tiny.get("tied", True), rope_parameters=rope(tiny), **named, **more)


def gguf_name(name, model_type):
    """`model.layers.1.mlp.up_proj.weight` is `blk.1.ffn_up.weight`."""
    names = NAMES | OWN_NAMES.get(model_type, {})
    name, layer = re.sub(r"(experts|norms)\.\d+", r"\1", name), ""
    if name.startswith("model.layers."):
        number, name = name.removeprefix("model.layers.").split(".", 1)
        layer = f"blk.{number}."
    if name in names:
        return layer + names[name]
    stem, suffix = name.rsplit(".", 1)
    return f"{layer}{names[stem]}.{suffix}"


def how(name, model_type, tiny):
    if model_type in PERMUTED and ("q_proj" in name or "k_proj" in name):
        return f"permuted {tiny['heads' if 'q_proj' in name else 'kv_heads']}"
    if number := re.search(r"(?:experts|norms)\.(\d+)\.", name):
        return f"number {number[1]}"
    if "shared_expert_gate" in name:
        return "row"
    if "linear_attn" in name:
        return how_recurrent(name.split("linear_attn.")[1].removesuffix(".weight"), tiny)
    return "plus-one" if model_type in PLUS_ONE and "norm" in name else "as-is"


def how_recurrent(part, tiny):
    keys, values, dim = (tiny[f"linear_{key}"] for key in ("k_heads", "v_heads", "head_dim"))
    kind = {"A_log": "minus-exp", "conv1d": "kernel"}.get(part, "as-is")
    if keys == values or part == "norm":
        return kind
    if part == "out_proj":
        return f"tiled-columns {keys} {dim}"
    rows = f"tiled {keys} {1 if part in ('A_log', 'dt_bias', 'in_proj_a', 'in_proj_b') else dim} "
    rows += str(2 * keys * dim if part in ("in_proj_qkv", "conv1d") else 0)
    return rows if kind == "as-is" else f"{kind} {rows}"


def undo(x, how):
    if how.startswith("permuted"):
        heads = int(how.split()[1])
        return x.reshape(heads, x.shape[0] // heads // 2, 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)
    if how.startswith("number"):
        return x[int(how.split()[1])]
    if how.startswith("tiled-columns"):
        keys, dim = map(int, how.split()[1:])
        return undo(x.T, f"tiled {keys} {dim} 0").T
    if "tiled" in how:
        kind, (keys, dim, first) = how.split()[0], map(int, how.split()[-3:])
        heads = x[first:].reshape(-1, keys, dim, *x.shape[1:]).swapaxes(0, 1).reshape(x[first:].shape)
        x = np.concatenate([x[:first], heads])
        return x if kind == "tiled" else undo(x, kind)
    if how == "minus-exp":
        return np.log(-x)
    if how == "row":
        return x[None]
    if how == "kernel":
        return x[:, None]
    return x - 1 if how == "plus-one" else x


def tokenizer(fields, folder):
    """The GGUF file's vocabulary as `tokenizer.json`."""
    get = lambda key: fields[f"tokenizer.ggml.{key}"].contents() if f"tokenizer.ggml.{key}" in fields else None
    tokens, kinds = get("tokens"), get("token_type")
    ids = {text: id for id, text in enumerate(tokens)}
    if get("model") == "gpt2":
        # Unused ids are tokens here too.
        t = Tokenizer(models.BPE(ids, [tuple(m.split(" ")) for m in get("merges")], ignore_merges=get("pre") == "llama-bpe"))
        split = pre_tokenizers.Split(Regex(SPLIT[get("pre")]), "isolated")
        t.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
        t.decoder = decoders.ByteLevel()
    else:
        # As transformers' `SentencePieceExtractor`: every way to make a piece of two, in the order of the pieces' scores.
        scores, normal = get("scores"), {text for text, id in ids.items() if kinds[id] == gguf.TokenType.NORMAL}
        pairs = [(-scores[ids[x]], ids[x[:i]], ids[x[i:]], (x[:i], x[i:])) for x in normal for i in range(1, len(x))
                 if x[:i] in normal and x[i:] in normal]
        merges = [pair for *_, pair in sorted(pairs)]
        t = Tokenizer(models.BPE(ids, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
        space = get("add_space_prefix")
        t.normalizer = normalizers.Sequence([normalizers.Prepend("▁")] * space + [normalizers.Replace(" ", "▁")])
        strip = [decoders.Strip(" ", 1, 0)] * space
        t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()] + strip)
    marks = [text for text, id in ids.items() if kinds[id] in (gguf.TokenType.CONTROL, gguf.TokenType.UNKNOWN)]
    t.add_special_tokens([AddedToken(text, normalized=False) for text in marks])
    bos, eos = tokens[get("bos_token_id")], tokens[get("eos_token_id")]
    if get("add_bos_token"):
        t.post_processor = processors.TemplateProcessing(single=f"{bos} $A", special_tokens=[(bos, ids[bos])])
    wrapped = transformers.PreTrainedTokenizerFast(tokenizer_object=t, bos_token=bos, eos_token=eos)
    wrapped.save_pretrained(folder)
    return ids[bos], ids[eos]


def check(folder, name, tensors):
    """What transformers computes with the folder, against llama.cpp."""
    path = HERE / f"../models/{name}.expected"
    lines = dict(line.split(": ", 1) for line in path.read_text().splitlines())
    numbers = lambda key, kind: np.array(lines[key].split(","), dtype=kind)
    with tempfile.TemporaryDirectory() as whole:
        for file in folder.glob("*.json"):
            (pathlib.Path(whole) / file.name).write_bytes(file.read_bytes())
        save_file(tensors, f"{whole}/model.safetensors", metadata={"format": "pt"})
        model, loading = transformers.AutoModelForCausalLM.from_pretrained(
            whole, dtype=torch.float64, attn_implementation="eager", experts_implementation="eager", output_loading_info=True)
    assert not any(loading.values()), loading
    prompt, greedy = numbers("prompt", int), numbers("greedy", int)
    with torch.no_grad():
        logits = model(torch.tensor([[*prompt, *greedy]])).logits[0].numpy()
    for key, row in (("prompt_logits", logits[len(prompt) - 1]), ("end_logits", logits[-1])):
        expected = numbers(key, float)
        print(f"{name}: NMSE of {key} {np.mean((row - expected) ** 2) / np.var(expected):.1e}")
        lines[f"transformers_{key}"] = ",".join(str(np.float32(x)) for x in row)
    path.write_text("".join(f"{key}: {line}\n" for key, line in lines.items()))


def weight_alone(name, model_type, stored):
    """The tensor `name` of transformers, of the tensors of a GGUF file."""
    if stack := re.search(r"altup_(projection|unembed_projection)s\.(\d+)", name):
        part = {"projection": "altup_proj", "unembed_projection": "altup_unembd_proj"}[stack[1]]
        return stored[f"{part}.weight"][int(stack[2])]
    if name.endswith("feed_forward.experts.gate_up_proj"):
        layer = f"blk.{name.split('.')[2]}"
        return np.concatenate([stored[f"{layer}.ffn_{part}_exps.weight"] for part in ("gate", "up")], 1).swapaxes(1, 2)
    x = stored[gguf_name(name, model_type)]
    return x.swapaxes(1, 2) if name.endswith("feed_forward.experts.down_proj") else x


def make_alone(name):
    """Write what transformers computes with a model, in double precision."""
    tiny = json.loads((HERE / f"../models/{name}.json").read_text())
    stored = {t.name: t.data.astype(np.float64) for t in gguf.GGUFReader(HERE / f"../models/{name}.gguf").tensors}
    own = ALONE[name](tiny)
    c = transformers.AutoConfig.for_model(
        own.pop("model_type"), vocab_size=tiny["vocab"], hidden_size=tiny["hidden"], num_hidden_layers=tiny["layers"],
        num_attention_heads=tiny["heads"], num_key_value_heads=tiny["kv_heads"], head_dim=tiny["head_dim"],
        max_position_embeddings=tiny["context"], rms_norm_eps=tiny["eps"], tie_word_embeddings=tiny["tied"],
        rope_parameters=rope(tiny), bos_token_id=None, eos_token_id=None, pad_token_id=None, attn_implementation="eager", **own)
    model = transformers.AutoModelForCausalLM.from_config(c).double().eval()
    with torch.no_grad():
        for parameter, x in model.named_parameters():
            x.copy_(torch.tensor(np.ascontiguousarray(weight_alone(parameter, c.model_type, stored))))
        ids, logits, gaps = [(i * 7919 + 13) % 300 for i in range(70)], [], []
        for _ in range(41):
            logits.append(model(torch.tensor([ids]), use_cache=False).logits[0, -1].numpy())
            best = np.sort(logits[-1])[::-1]
            gaps.append(np.float32(best[0] - best[1]))
            ids.append(int(np.argmax(logits[-1])))
    join = lambda numbers: ",".join(str(n) for n in numbers)
    rows = [join(np.float32(x) for x in row) for row in (logits[0], logits[-1])]
    lines = dict(prompt=join(ids[:70]), greedy=join(ids[70:110]), gaps=join(gaps[:40]), prompt_logits=rows[0], end_logits=rows[1],
                 transformers_prompt_logits=rows[0], transformers_end_logits=rows[1])
    (HERE / f"../models/{name}.expected").write_text("".join(f"{key}: {line}\n" for key, line in lines.items()))


def saved(model):
    """The names of the tensors that transformers saves."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        with safe_open(f"{folder}/model.safetensors", "pt") as file:
            return list(file.keys())


def make(name):
    model_type, more = MODELS[name]
    tiny = json.loads((HERE / f"../models/{name}.json").read_text())
    reader = gguf.GGUFReader(HERE / f"../models/{name}.gguf")
    stored = {t.name: t.data for t in reader.tensors}
    folder = HERE / name
    folder.mkdir(exist_ok=True)
    bos, eos = tokenizer(reader.fields, folder)
    c = config(tiny, model_type, more | {"bos_token_id": bos, "eos_token_id": eos, "pad_token_id": None})
    model = transformers.AutoModelForCausalLM.from_config(c)
    c.architectures = [type(model).__name__]
    c.save_pretrained(folder)
    model.generation_config.save_pretrained(folder)
    rows = [(n, gguf_name(n, model_type), how(n, model_type, tiny)) for n in saved(model)]
    (folder / "tensors.txt").write_text("".join(f"{' '.join(row)}\n" for row in rows))
    ahead = f"blk.{tiny['layers']}."
    assert {row[1] for row in rows} == {n for n in stored if not n.startswith("rope_") and not n.startswith(ahead)}
    check(folder, name, {n: torch.tensor(undo(stored[g].astype(np.float32), h)).contiguous() for n, g, h in rows})


if __name__ == "__main__":
    for name in sys.argv[1:] or [*MODELS, *ALONE]:
        make_alone(name) if name in ALONE else make(name)
