#!/usr/bin/env python3
"""Write a tiny random-weight GGUF for conformance tests.

    make_tiny.py CONFIG.json OUT.gguf [--type f32|f16|bf16|q8_0|q4_0|q4_1|q5_0|q5_1] [--seed N]

Needs numpy and the gguf Python package. Each tensor's random stream depends only on (seed, tensor name), so two files
that differ in one option share every other weight.

Config fields: arch layers hidden heads kv_heads(int|list) head_dim ffn(int|list) vocab tied rope_base eps context
tokenizer(bpe|spm|gemma4) qkv_bias o_bias mlp_bias type seed;
rope_freqs {factor, low_freq_factor, high_freq_factor, original_context} (llama) or {rotated_fraction} (gemma4);
rope_scaling {type: linear|yarn, factor, original_context}; experts experts_used expert_ffn shared_expert_ffn
fused_gate_up; sliding_window swa_pattern(period|list) write_swa_pattern rope_base_swa attn_softcap final_softcap;
qwen35: rope_dim rope_sections full_attention_interval conv_kernel linear_k_heads linear_v_heads linear_head_dim nextn;
gemma4: head_dim_swa shared_kv_layers per_layer_dim k_eq_v.
"""
import argparse, json, re, zlib
import numpy as np
import gguf
import make_tiny_more

TEXT = """the quick brown fox jumps over the lazy dog and then the dog runs after the fox through
the green field where other animals are sleeping under the warm light of the morning sun when
water flows down from the mountain into the river it carries small stones and leaves that come
to rest on the bottom of the lake a reader who wants to understand how numbers are stored in a
machine should start with one byte and count the values that it can hold because every larger
structure is made of these parts people were walking along the street talking about the weather
and whether there would be more rain before the end of the week nothing is certain but something
always happens sooner or later she said that their house had been standing there for three
hundred years and that it would stand for another hundred if they kept the roof in good order"""


# ---------------------------------------------------------------- tokenizers
def byte_alphabet():
    """The usual reversible byte -> printable character map of byte-level BPE."""
    keep = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    table, extra = {}, 0
    for b in range(256):
        if b in keep:
            table[b] = chr(b)
        else:
            table[b] = chr(256 + extra)
            extra += 1
    return table


def train_bpe(space, limit):
    """Merges learnt from TEXT; words start with the symbol `space`."""
    words = {}
    for w in re.findall(r"\w+", TEXT):
        k = (space,) + tuple(w)
        words[k] = words.get(k, 0) + 1
    merges, made = [], set()
    while len(merges) < limit:
        pairs = {}
        for w, n in words.items():
            for p in zip(w, w[1:]):
                pairs[p] = pairs.get(p, 0) + n
        pairs = {p: n for p, n in pairs.items() if p[0] + p[1] not in made}
        if not pairs:
            break
        a, b = max(pairs, key=lambda p: (pairs[p], p))
        merges.append((a, b))
        made.add(a + b)
        new = {}
        for w, n in words.items():
            out, i = [], 0
            while i < len(w):
                if i + 1 < len(w) and (w[i], w[i + 1]) == (a, b):
                    out.append(a + b)
                    i += 2
                else:
                    out.append(w[i])
                    i += 1
            new[tuple(out)] = new.get(tuple(out), 0) + n
        words = new
    return merges


def add_tokenizer(w, cfg):
    T, V, kind, arch = gguf.TokenType, cfg["vocab"], cfg["tokenizer"], cfg["arch"]
    toks, types, scores, merges = [], [], [], []

    def put(t, ty=T.NORMAL, s=0.0):
        toks.append(t), types.append(ty), scores.append(s)

    if kind == "bpe":                       # byte-level BPE, control tokens last
        llama = arch == "llama"
        special = (["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
                   if llama else ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]) + cfg["extra_special"]
        al = byte_alphabet()
        for b in range(256):
            put(al[b])
        for a, b in train_bpe(al[32], V - 256 - len(special)):
            put(a + b)
            merges.append(f"{a} {b}")
        while len(toks) < V - len(special):
            put(f"[unused{len(toks)}]", T.UNUSED)
        for s in special:
            put(s, T.CONTROL)
        w.add_tokenizer_model("gpt2")
        w.add_tokenizer_pre({"llama": "llama-bpe", "qwen35": "qwen35", "qwen35moe": "qwen35"}.get(arch, "qwen2"))
        ids = (dict(bos=special[0], eos=special[4]) if llama else dict(bos=special[0], eos=special[2], padding=special[0]))
        add_bos = llama
    else:                                   # "spm" (llama, gemma2, gemma3) or "gemma4" (character BPE with merges)
        special = ["<pad>", "<eos>", "<bos>", "<unk>"] if arch.startswith("gemma") else ["<unk>", "<s>", "</s>"]
        special = special + cfg["extra_special"]
        for s in special:
            put(s, T.UNKNOWN if s == "<unk>" else T.CONTROL)
        if kind == "gemma4":
            for s in ("<|turn>", "<turn|>"):
                put(s, T.CONTROL)
        for b in range(256):
            put(f"<0x{b:02X}>", T.BYTE)
        chars = ["\u2581"] + sorted(set(TEXT) - set(" \n"))
        ms = train_bpe("\u2581", V - len(toks) - len(chars))
        for i, (a, b) in enumerate(ms):
            put(a + b, s=-float(i))
            merges.append(f"{a} {b}")
        for i, c in enumerate(chars):
            put(c, s=-float(len(ms) + i))
        while len(toks) < V:
            put(f"[unused{len(toks)}]", T.UNUSED, -1e4)
        w.add_tokenizer_model("gemma4" if kind == "gemma4" else "llama")
        if kind == "spm":
            w.add_token_scores(scores)
            w.add_tokenizer_pre("default")
            merges = []
        ids = dict(bos="<bos>", eos="<eos>", unknown="<unk>", padding="<pad>") if arch.startswith("gemma") else dict(bos="<s>", eos="</s>", unknown="<unk>")
        add_bos = True
        w.add_add_space_prefix(not arch.startswith("gemma"))
    assert len(toks) == V == len(set(toks)), (len(toks), len(set(toks)), V)
    w.add_token_list(toks)
    w.add_token_types(types)
    if merges:
        w.add_token_merges(merges)
    for k, t in ids.items():
        w.add_uint32(f"tokenizer.ggml.{k}_token_id", toks.index(t))
    w.add_add_bos_token(add_bos)


# ---------------------------------------------------------------- model
DEFAULTS = dict(tied=True, rope_base=10000.0, eps=1e-6, context=4096, tokenizer="bpe", qkv_bias=False, o_bias=False,
                mlp_bias=False, experts=0, experts_used=0, conv_kernel=4, nextn=0, embed_std=None, fused_gate_up=False, extra_special=[])


def load_config(path):
    cfg = dict(DEFAULTS)
    cfg.update(json.load(open(path)))
    cfg.setdefault("head_dim", cfg["hidden"] // cfg["heads"])
    if cfg["arch"] in ("gemma2", "gemma3"):
        cfg.setdefault("swa_pattern", 2 if cfg["arch"] == "gemma2" else 6)
    if cfg["arch"] in ("qwen35", "qwen35moe"):
        cfg.setdefault("full_attention_interval", 4)
    return cfg


def is_swa(cfg, l):
    p = cfg.get("swa_pattern")
    if not cfg.get("sliding_window") or p is None:
        return False
    return bool(p[l]) if isinstance(p, list) else l % p < p - 1


def is_linear(cfg, l):
    """A gated-DeltaNet layer of the qwen35 family?"""
    return cfg["arch"].startswith("qwen35") and l < cfg["layers"] and (l + 1) % cfg["full_attention_interval"] != 0


def per_layer(v, l):
    return v[l] if isinstance(v, list) else v


def rope_freq_factors(cfg):
    """Divisors of the rotary frequencies, one per rotated pair."""
    r, n = cfg["rope_freqs"], cfg["head_dim"] // 2
    if "rotated_fraction" in r:             # gemma4 full-attention layers: the tail is not rotated
        k = int(r["rotated_fraction"] * cfg["head_dim"] // 2)
        return np.array([1.0] * k + [1e30] * (n - k), np.float32)
    out = []                                # llama 3.x
    for i in range(n):
        wave = 2 * np.pi * cfg["rope_base"] ** (2 * i / cfg["head_dim"])
        lo, hi = r["original_context"] / r["low_freq_factor"], r["original_context"] / r["high_freq_factor"]
        if wave < hi:
            out.append(1.0)
        elif wave > lo:
            out.append(r["factor"])
        else:
            s = (r["original_context"] / wave - r["low_freq_factor"]) / (r["high_freq_factor"] - r["low_freq_factor"])
            out.append(1 / ((1 - s) / r["factor"] + s))
    return np.array(out, np.float32)


def add_metadata(w, cfg):
    a, L = cfg["arch"], cfg["layers"]
    u = lambda k, v: w.add_uint32(f"{a}.{k}", v)
    f = lambda k, v: w.add_float32(f"{a}.{k}", v)

    def u_or_arr(k, v):
        if isinstance(v, list):
            w.add_array(f"{a}.{k}", v)
        else:
            u(k, v)
    w.add_name(cfg.get("name", "tiny"))
    u("block_count", L + cfg["nextn"])
    u("context_length", cfg["context"])
    u("embedding_length", cfg["hidden"])
    u_or_arr("feed_forward_length", cfg.get("ffn", 0))
    u("vocab_size", cfg["vocab"])
    u("attention.head_count", cfg["heads"])
    u_or_arr("attention.head_count_kv", cfg["kv_heads"])
    u("attention.key_length", cfg["head_dim"])
    u("attention.value_length", cfg["head_dim"])
    f("attention.layer_norm_rms_epsilon", cfg["eps"])
    f("rope.freq_base", cfg["rope_base"])
    if a == "llama":
        u("rope.dimension_count", cfg["head_dim"])
    if s := cfg.get("rope_scaling"):
        w.add_string(f"{a}.rope.scaling.type", s["type"])
        f("rope.scaling.factor", s["factor"])
        if s["type"] == "yarn":
            u("rope.scaling.original_context_length", s["original_context"])
    if cfg["experts"]:
        u("expert_count", cfg["experts"])
        u("expert_used_count", cfg["experts_used"])
        if "expert_ffn" in cfg:
            u("expert_feed_forward_length", cfg["expert_ffn"])
        if "shared_expert_ffn" in cfg:
            u("expert_shared_feed_forward_length", cfg["shared_expert_ffn"])
    if cfg.get("sliding_window"):
        u("attention.sliding_window", cfg["sliding_window"])
        p = cfg.get("swa_pattern")
        if isinstance(p, list):
            w.add_array(f"{a}.attention.sliding_window_pattern", [bool(x) for x in p])
        elif cfg.get("write_swa_pattern"):
            u("attention.sliding_window_pattern", p)
        if "rope_base_swa" in cfg:
            f("rope.freq_base_swa", cfg["rope_base_swa"])
    if "attn_softcap" in cfg:
        f("attn_logit_softcapping", cfg["attn_softcap"])
    if "final_softcap" in cfg:
        f("final_logit_softcapping", cfg["final_softcap"])
    if a.startswith("qwen35"):
        u("rope.dimension_count", cfg["rope_dim"])
    if "rope_sections" in cfg:
        w.add_array(f"{a}.rope.dimension_sections", cfg["rope_sections"])
    if "deepstack_layers" in cfg:
        u("n_deepstack_layers", cfg["deepstack_layers"])
    if a.startswith("qwen35"):
        u("ssm.conv_kernel", cfg["conv_kernel"])
        u("ssm.state_size", cfg["linear_head_dim"])
        u("ssm.group_count", cfg["linear_k_heads"])
        u("ssm.time_step_rank", cfg["linear_v_heads"])
        u("ssm.inner_size", cfg["linear_head_dim"] * cfg["linear_v_heads"])
        u("full_attention_interval", cfg["full_attention_interval"])
        if cfg["nextn"]:
            u("nextn_predict_layers", cfg["nextn"])
    if a == "gemma4":
        u("attention.key_length_swa", cfg["head_dim_swa"])
        u("attention.value_length_swa", cfg["head_dim_swa"])
        u("rope.dimension_count", cfg["head_dim"])
        u("rope.dimension_count_swa", cfg["head_dim_swa"])
        u("attention.shared_kv_layers", cfg.get("shared_kv_layers", 0))
        u("embedding_length_per_layer_input", cfg.get("per_layer_dim", 0))


def tensors(cfg, seed):
    """Yield (name, float32 array in (rows, row length) order, is a matrix that may be quantised)."""
    a, L, H, V, D0 = cfg["arch"], cfg["layers"], cfg["hidden"], cfg["vocab"], cfg["head_dim"]
    gemma = a.startswith("gemma")

    def rng(name):
        return np.random.default_rng([seed, zlib.crc32(name.encode())])

    def mat(name, *shape, gain=1.0):
        x = rng(name).standard_normal(shape, dtype=np.float32)
        return name, x * np.float32(gain / np.sqrt(shape[-1])), True

    def norm(name, n, mean=1.0):            # far from constant, so a missing weight shows
        return name, (mean * rng(name).uniform(0.5, 1.5, n)).astype(np.float32), False

    def bias(name, n, std=0.3):
        return name, (std * rng(name).standard_normal(n)).astype(np.float32), False

    def embed(name, std):                   # heavy-tailed row norms: wider argmax margins
        r = rng(name)
        x = r.standard_normal((V, H)) * np.exp(0.4 * r.standard_normal((V, 1)))
        return name, (x * std).astype(np.float32), True

    def final_norm(mean):                   # tied: mixed signs, or the model only repeats its last token
        name, x, _ = norm("output_norm.weight", H, mean)
        return name, x * (rng("signs").choice([-1, 1], H).astype(np.float32) if cfg["tied"] else 1), False

    if gemma:                               # input is scaled by sqrt(hidden)
        yield embed("token_embd.weight", cfg["embed_std"] or 0.3 / np.sqrt(H))
        yield final_norm(9.0)
    else:
        yield embed("token_embd.weight", cfg["embed_std"] or 2.4 / np.sqrt(H))
        yield final_norm(1.0)
    if not cfg["tied"]:
        yield embed("output.weight", 2.4 / np.sqrt(H) / (9.0 if gemma else 1.0))
    if "rope_freqs" in cfg:
        yield "rope_freqs.weight", rope_freq_factors(cfg), False
    P = cfg.get("per_layer_dim", 0)
    if P:
        yield mat("per_layer_token_embd.weight", V, L * P, gain=np.sqrt(L))
        yield mat("per_layer_model_proj.weight", L * P, H, gain=np.sqrt(H))
        yield norm("per_layer_proj_norm.weight", P)

    for l in range(L + cfg["nextn"]):
        b = f"blk.{l}."
        swa = is_swa(cfg, l)
        nh, nkv = cfg["heads"], per_layer(cfg["kv_heads"], l)
        D = cfg["head_dim_swa"] if a == "gemma4" and swa else D0
        post = a in ("gemma2", "gemma3", "gemma4")
        yield norm(b + "attn_norm.weight", H)
        if is_linear(cfg, l):
            hd, nk, nv = cfg["linear_head_dim"], cfg["linear_k_heads"], cfg["linear_v_heads"]
            conv = hd * (2 * nk + nv)
            yield mat(b + "attn_qkv.weight", conv, H, gain=1.5)
            yield mat(b + "attn_gate.weight", hd * nv, H, gain=1.5)
            yield b + "ssm_conv1d.weight", (0.6 * rng(b + "conv").standard_normal((conv, cfg["conv_kernel"]))).astype(np.float32), False
            yield bias(b + "ssm_dt.bias", nv, 1.0)
            yield b + "ssm_a", -np.exp(rng(b + "a").uniform(np.log(0.03), np.log(1.0), nv)).astype(np.float32), False
            yield mat(b + "ssm_beta.weight", nv, H, gain=1.5)
            yield mat(b + "ssm_alpha.weight", nv, H)
            yield norm(b + "ssm_norm.weight", hd)
            yield mat(b + "ssm_out.weight", H, hd * nv, gain=2.0)
        else:
            has_kv = l < L - cfg.get("shared_kv_layers", 0) or not cfg.get("shared_kv_layers")
            gated = a.startswith("qwen35")
            # query and key gains put the spread of attention logits near 2
            qknorm = a in ("qwen3", "qwen3moe", "qwen3vl", "qwen3vlmoe", "qwen35", "qwen35moe", "gemma3", "gemma4")
            yield mat(b + "attn_q.weight", nh * D * (2 if gated else 1), H, gain=1.0 if qknorm else 1.4)
            if has_kv:
                yield mat(b + "attn_k.weight", nkv * D, H, gain=1.0 if qknorm else 1.4)
                if not (cfg.get("k_eq_v") and not swa):
                    yield mat(b + "attn_v.weight", nkv * D, H)
            if cfg["qkv_bias"]:
                yield bias(b + "attn_q.bias", nh * D)
                yield bias(b + "attn_k.bias", nkv * D)
                yield bias(b + "attn_v.bias", nkv * D)
            if qknorm:
                m = np.sqrt(2 / np.sqrt(D)) if a == "gemma4" else np.sqrt(2)
                yield norm(b + "attn_q_norm.weight", D, m)
                if has_kv:
                    yield norm(b + "attn_k_norm.weight", D, m)
            yield mat(b + "attn_output.weight", H, nh * D, gain=3.0 if gated else 1.5)
            if cfg["o_bias"]:
                yield bias(b + "attn_output.bias", H)
        if post or a.startswith("qwen35"):
            yield norm(b + "post_attention_norm.weight", H)
        if not a.startswith("qwen35"):
            yield norm(b + "ffn_norm.weight", H)
        E, F = cfg["experts"], per_layer(cfg.get("ffn", 0), l)
        if not E or a == "gemma4":
            yield mat(b + "ffn_gate.weight", F, H, gain=1.5)
            yield mat(b + "ffn_up.weight", F, H)
            yield mat(b + "ffn_down.weight", H, F, gain=1.5)
            if cfg["mlp_bias"]:
                yield bias(b + "ffn_gate.bias", F)
                yield bias(b + "ffn_up.bias", F)
                yield bias(b + "ffn_down.bias", H)
        if E:
            X = cfg.get("expert_ffn", F)
            name, x, _ = mat(b + "ffn_gate_inp.weight", E, H, gain=2.0 * (np.sqrt(H) if a == "gemma4" else 1))
            yield name, x, False
            if cfg["fused_gate_up"]:
                yield mat(b + "ffn_gate_up_exps.weight", E, 2 * X, H, gain=1.3)
            else:
                yield mat(b + "ffn_gate_exps.weight", E, X, H, gain=1.5)
                yield mat(b + "ffn_up_exps.weight", E, X, H)
            yield mat(b + "ffn_down_exps.weight", E, H, X, gain=2.0)
            if a == "qwen35moe":
                S = cfg["shared_expert_ffn"]
                yield b + "ffn_gate_inp_shexp.weight", mat(b + "ffn_gate_inp_shexp.weight", H)[1], False
                yield mat(b + "ffn_gate_shexp.weight", S, H, gain=1.5)
                yield mat(b + "ffn_up_shexp.weight", S, H)
                yield mat(b + "ffn_down_shexp.weight", H, S, gain=1.5)
            if a == "gemma4":
                yield norm(b + "ffn_gate_inp.scale", H)
                yield norm(b + "ffn_down_exps.scale", E)
                yield norm(b + "pre_ffw_norm_2.weight", H)
                yield norm(b + "post_ffw_norm_1.weight", H)
                yield norm(b + "post_ffw_norm_2.weight", H)
        if post:
            yield norm(b + "post_ffw_norm.weight", H)
        if a == "gemma4":
            if P:
                yield mat(b + "inp_gate.weight", P, H, gain=1.5)
                yield mat(b + "proj.weight", H, P)
                yield norm(b + "post_norm.weight", H)
            yield b + "layer_output_scale.weight", rng(b + "scale").uniform(0.6, 1.0, 1).astype(np.float32), False
        if l >= L:                          # multi-token-prediction block: not part of the main forward pass
            yield mat(b + "nextn.eh_proj.weight", H, 2 * H)
            yield norm(b + "nextn.enorm.weight", H)
            yield norm(b + "nextn.hnorm.weight", H)
            yield norm(b + "nextn.shared_head_norm.weight", H)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("config")
    p.add_argument("out")
    p.add_argument("--type", default=None, help="type of the matrices (default: the config's \"type\", else f32)")
    p.add_argument("--seed", type=int, default=None, help="default: the config's \"seed\", else 1")
    args = p.parse_args()
    cfg = load_config(args.config)
    seed = args.seed if args.seed is not None else cfg.get("seed", 1)
    ty = gguf.GGMLQuantizationType[(args.type or cfg.get("type", "f32")).upper()]
    w = gguf.GGUFWriter(args.out, cfg["arch"])
    more = cfg["arch"] in make_tiny_more.FAMILIES
    made = make_tiny_more.write(w, cfg, seed) if more else add_metadata(w, cfg) or tensors(cfg, seed)
    w.add_file_type(gguf.LlamaFileType["ALL_F32" if ty.name == "F32" else f"MOSTLY_{ty.name}"])
    w.add_quantization_version(gguf.GGML_QUANT_VERSION)
    add_tokenizer(w, cfg)
    n = 0
    for name, x, matrix in made:
        n += x.size
        t = gguf.GGMLQuantizationType[matrix.upper()] if isinstance(matrix, str) else ty if matrix else gguf.GGMLQuantizationType.F32
        if x.shape[-1] % gguf.GGML_QUANT_SIZES[t][0]:
            t = gguf.GGMLQuantizationType.F16       # the row is no whole number of blocks
        if t in (gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.F16):
            w.add_tensor(name, x.astype(np.float32 if t.name == "F32" else np.float16))
        else:
            w.add_tensor(name, gguf.quants.quantize(np.ascontiguousarray(x), t), raw_dtype=t)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    print(f"{args.out}: {cfg['arch']}, {n} weights, {ty.name}, seed {seed}")


if __name__ == "__main__":
    main()
