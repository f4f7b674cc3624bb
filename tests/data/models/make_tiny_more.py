"""More architectures for make_tiny.py: each function below writes the keys and tensors that llama.cpp wants for one
family (src/models/*.cpp of its tree) and nothing that the family lacks. Not a program: make_tiny.py calls write().

Fields of a config beyond those of make_tiny.py: rope_dim dense_lead shared_experts gating(1 softmax, 2 sigmoid) groups
groups_used expert_scale expert_norm expert_type(e.g. mxfp4) moe_step temperature_scale logit_scale residual_scale
embedding_scale attention_scale rope_finetuned qk_norm parallel kv_lora q_lora nope_dim v_dim
ssm_inner ssm_state ssm_heads ssm_groups ssm_norm latent loops skip_loop_norm streams laurel_rank sparse_layers
per_layer_type keys; rope_scaling {beta_fast beta_slow log_multiplier}."""
import zlib
import numpy as np

class Maker:
    """Collects keys and tensors. A tensor's stream depends only on (seed, name, shape), as in make_tiny.py."""

    def __init__(self, w, cfg, seed):
        self.w, self.c, self.seed, self.out = w, cfg, seed, []

    def key(self, k, v):
        k = f"{self.c['arch']}.{k}"
        if isinstance(v, bool):
            self.w.add_bool(k, v)
        elif isinstance(v, list):
            self.w.add_array(k, v)
        elif isinstance(v, float):
            self.w.add_float32(k, v)
        elif isinstance(v, str):
            self.w.add_string(k, v)
        else:
            self.w.add_uint32(k, v)

    def rng(self, name):
        return np.random.default_rng([self.seed, zlib.crc32(name.encode())])

    def raw(self, name, x, matrix=False):
        self.out.append((name, np.asarray(x, np.float32), matrix))

    def mat(self, name, *shape, gain=1.0, matrix=True):
        x = self.rng(name).standard_normal(shape, dtype=np.float32)
        self.raw(name, x * np.float32(gain / np.sqrt(shape[-1])), matrix)

    def norm(self, name, *shape, mean=1.0):
        self.raw(name, mean * self.rng(name).uniform(0.5, 1.5, shape))

    def bias(self, name, *shape, std=0.3):
        self.raw(name, std * self.rng(name).standard_normal(shape))

    # ---- parts
    def head(self, std=2.4, out=2.4, norm="output_norm", mean=1.0, norm_bias=False):
        c, H = self.c, self.c["hidden"]

        def embed(name, s):
            r = self.rng(name)
            x = r.standard_normal((c["vocab"], H)) * np.exp(0.4 * r.standard_normal((c["vocab"], 1)))
            self.raw(name, x * s / np.sqrt(H), True)
        embed("token_embd.weight", std)
        if not c["tied"]:
            embed("output.weight", out)
        if norm:
            x = mean * self.rng("output_norm.weight").uniform(0.5, 1.5, H)
            self.raw(norm + ".weight", x * (self.rng("signs").choice([-1, 1], H) if c["tied"] else 1))
            if norm_bias:
                self.bias(norm + ".bias", H)

    def attn(self, l, qknorm=None, gain=1.5, kv=None, qk=None, q_rows=1, wide_norm=False):
        """q, k, v, output; biases from the config; qknorm: mean of the q and k norm weights."""
        c, b, H, D, nh = self.c, f"blk.{l}.", self.c["hidden"], self.c["head_dim"], self.c["heads"]
        kv = kv or (c["kv_heads"][l] if isinstance(c["kv_heads"], list) else c["kv_heads"])
        g = qk or (1.0 if qknorm else 1.4)
        self.mat(b + "attn_q.weight", nh * D * q_rows, H, gain=g)
        self.mat(b + "attn_k.weight", kv * D, H, gain=g)
        self.mat(b + "attn_v.weight", kv * D, H)
        if c["qkv_bias"]:
            for n, k in (("q", nh), ("k", kv), ("v", kv)):
                self.bias(b + f"attn_{n}.bias", k * D)
        if qknorm:
            self.norm(b + "attn_q_norm.weight", nh * D if wide_norm else D, mean=qknorm)
            self.norm(b + "attn_k_norm.weight", kv * D if wide_norm else D, mean=qknorm)
        self.mat(b + "attn_output.weight", H, nh * D, gain=gain)
        if c["o_bias"]:
            self.bias(b + "attn_output.bias", H)

    def mlp(self, l, width=None, gate=True, suffix="", gain=1.5):
        c, b, H = self.c, f"blk.{l}.", self.c["hidden"]
        F = width or (c["ffn"][l] if isinstance(c["ffn"], list) else c["ffn"])
        if gate:
            self.mat(b + f"ffn_gate{suffix}.weight", F, H, gain=1.5)
        self.mat(b + f"ffn_up{suffix}.weight", F, H)
        self.mat(b + f"ffn_down{suffix}.weight", H, F, gain=gain)
        if c["mlp_bias"]:
            for n, k in ([("gate", F)] if gate else []) + [("up", F), ("down", H)]:
                self.bias(b + f"ffn_{n}{suffix}.bias", k)

    def moe(self, l, width, bias=None, router=2.0, gate=True, gain=2.0):
        """Router and experts; bias: spread of the selection bias exp_probs_b."""
        c, b, H, E = self.c, f"blk.{l}.", self.c["hidden"], self.c["experts"]
        kind = c.get("expert_type") or True
        self.mat(b + "ffn_gate_inp.weight", E, H, gain=router, matrix=False)
        if bias:
            self.bias(b + "exp_probs_b.bias", E, std=bias)
        if gate:
            self.mat(b + "ffn_gate_exps.weight", E, width, H, gain=1.5, matrix=kind)
        self.mat(b + "ffn_up_exps.weight", E, width, H, matrix=kind)
        self.mat(b + "ffn_down_exps.weight", E, H, width, gain=gain, matrix=kind)

    def nextn(self, l):
        """What a head for multi-token prediction has besides its layer."""
        b, H = f"blk.{l}.nextn.", self.c["hidden"]
        self.mat(b + "eh_proj.weight", H, 2 * H)
        for norm in ("enorm", "hnorm", "shared_head_norm"):
            self.norm(b + norm + ".weight", H)

    def basics(self, ffn=True, heads=True, eps="attention.layer_norm_rms_epsilon"):
        c = self.c
        self.w.add_name(c.get("name", "tiny"))
        self.key("block_count", c["layers"] + c["nextn"])
        self.key("context_length", c["context"])
        self.key("embedding_length", c["hidden"])
        self.key("vocab_size", c["vocab"])
        self.key(eps, float(c["eps"]))
        if ffn:
            self.key("feed_forward_length", c["ffn"])
        if heads:
            self.key("attention.head_count", c["heads"])
            self.key("attention.head_count_kv", c["kv_heads"])
            self.key("attention.key_length", c["head_dim"])
            self.key("attention.value_length", c["head_dim"])
            self.key("rope.freq_base", float(c["rope_base"]))
        if "rope_dim" in c:
            self.key("rope.dimension_count", c["rope_dim"])
        if s := c.get("rope_scaling"):
            self.key("rope.scaling.type", s["type"])
            self.key("rope.scaling.factor", float(s["factor"]))
            if "original_context" in s:
                self.key("rope.scaling.original_context_length", s["original_context"])
            for k in ("beta_fast", "beta_slow", "log_multiplier"):
                if k in s:
                    self.key(f"rope.scaling.yarn_{k}", float(s[k]))
        if c["experts"]:
            self.key("expert_count", c["experts"])
            self.key("expert_used_count", c["experts_used"])
            for k, n in (("expert_ffn", "expert_feed_forward_length"), ("shared_expert_ffn", "expert_shared_feed_forward_length"),
                         ("shared_experts", "expert_shared_count"), ("dense_lead", "leading_dense_block_count"),
                         ("gating", "expert_gating_func"), ("groups", "expert_group_count"), ("groups_used", "expert_group_used_count")):
                if k in c:
                    self.key(n, c[k])
            if "expert_scale" in c:
                self.key("expert_weights_scale", float(c["expert_scale"]))
            if "expert_norm" in c:
                self.key("expert_weights_norm", bool(c["expert_norm"]))
        if c.get("sliding_window"):
            self.key("attention.sliding_window", c["sliding_window"])
        for k in ("logit_scale", "residual_scale", "embedding_scale"):
            if k in c:
                self.key(k, float(c[k]))
        if "attention_scale" in c:
            self.key("attention.scale", float(c["attention_scale"]))
        if c["nextn"]:
            self.key("nextn_predict_layers", c["nextn"])


# ---------------------------------------------------------------- families
def gpt_oss(m, c):
    m.basics()
    m.head()
    H, E, X = c["hidden"], c["experts"], c["expert_ffn"]
    kind = c.get("expert_type") or True
    for l in range(c["layers"]):
        b = f"blk.{l}."
        m.norm(b + "attn_norm.weight", H)
        m.attn(l)
        m.bias(b + "attn_sinks.weight", c["heads"], std=1.5)
        m.norm(b + "post_attention_norm.weight", H)
        m.mat(b + "ffn_gate_inp.weight", E, H, gain=2.0, matrix=False)
        m.bias(b + "ffn_gate_inp.bias", E, std=0.5)
        m.mat(b + "ffn_gate_exps.weight", E, X, H, gain=4.0, matrix=kind)     # wide: some values meet the clamp at 7
        m.mat(b + "ffn_up_exps.weight", E, X, H, gain=4.0, matrix=kind)
        m.mat(b + "ffn_down_exps.weight", E, H, X, gain=0.3, matrix=kind)
        m.bias(b + "ffn_gate_exps.bias", E, X, std=1.0)
        m.bias(b + "ffn_up_exps.bias", E, X, std=1.0)
        m.bias(b + "ffn_down_exps.bias", E, H, std=0.5)


def mistral3(m, c):
    m.basics()
    m.key("attention.temperature_scale", float(c["temperature_scale"]))
    m.head()
    for l in range(c["layers"]):
        m.norm(f"blk.{l}.attn_norm.weight", c["hidden"])
        m.attn(l)
        m.norm(f"blk.{l}.ffn_norm.weight", c["hidden"])
        m.mlp(l)


def lfm2(m, c):
    m.basics()
    H, L = c["hidden"], c["layers"]
    m.key("shortconv.l_cache", c["conv_kernel"])
    m.head(norm="token_embd_norm")
    for l in range(L):
        b = f"blk.{l}."
        m.norm(b + "attn_norm.weight", H)
        if c["kv_heads"][l]:
            m.attn(l, qknorm=np.sqrt(2))
        else:
            m.raw(b + "shortconv.conv.weight", 0.7 * m.rng(b + "conv").standard_normal((H, c["conv_kernel"])))
            m.mat(b + "shortconv.in_proj.weight", 3 * H, H)
            m.mat(b + "shortconv.out_proj.weight", H, H, gain=1.5)
        m.norm(b + "ffn_norm.weight", H)
        if c["arch"] == "lfm2" or l < c["dense_lead"]:
            m.mlp(l)
        else:
            m.moe(l, c["expert_ffn"], bias=0.2)


def qwen3next(m, c):
    m.basics()
    H, hd, nk, nv = c["hidden"], c["linear_head_dim"], c["linear_k_heads"], c["linear_v_heads"]
    for k, v in (("conv_kernel", c["conv_kernel"]), ("state_size", hd), ("group_count", nk), ("time_step_rank", nv), ("inner_size", hd * nv)):
        m.key("ssm." + k, v)
    m.key("full_attention_interval", c["full_attention_interval"])
    m.head()
    for l in range(c["layers"] + c["nextn"]):
        b = f"blk.{l}."
        m.norm(b + "attn_norm.weight", H)
        if l < c["layers"] and (l + 1) % c["full_attention_interval"]:
            conv = hd * (2 * nk + nv)
            m.mat(b + "attn_qkv.weight", conv, H, gain=1.5)
            m.mat(b + "attn_gate.weight", hd * nv, H, gain=1.5)
            m.raw(b + "ssm_conv1d.weight", 0.6 * m.rng(b + "conv").standard_normal((conv, c["conv_kernel"])))
            m.bias(b + "ssm_dt.bias", nv, std=1.0)
            m.raw(b + "ssm_a", -np.exp(m.rng(b + "a").uniform(np.log(0.03), 0, nv)))
            m.mat(b + "ssm_ba.weight", 2 * nv, H, gain=1.5)
            m.norm(b + "ssm_norm.weight", hd)
            m.mat(b + "ssm_out.weight", H, hd * nv, gain=2.0)
        else:
            m.attn(l, qknorm=np.sqrt(2), gain=3.0, q_rows=2)
        m.norm(b + "post_attention_norm.weight", H)
        m.moe(l, c["expert_ffn"])
        m.mat(b + "ffn_gate_inp_shexp.weight", H, matrix=False)
        m.mlp(l, c["shared_expert_ffn"], suffix="_shexp")
        if l >= c["layers"]:
            m.nextn(l)


def deepseek2(m, c):
    m.basics(heads=False)
    H, nh, R, kvr, qr, nope, vd = c["hidden"], c["heads"], c["rope_dim"], c["kv_lora"], c.get("q_lora", 0), c["nope_dim"], c["v_dim"]
    m.key("attention.head_count", nh)
    m.key("attention.head_count_kv", 1)
    m.key("rope.freq_base", float(c["rope_base"]))
    m.key("attention.key_length", kvr + R)
    m.key("attention.value_length", kvr)
    m.key("attention.key_length_mla", nope + R)
    m.key("attention.value_length_mla", vd)
    m.key("attention.kv_lora_rank", kvr)
    if qr:
        m.key("attention.q_lora_rank", qr)
    m.head()
    deep = (6 / max(6, c["layers"])) ** 0.5       # many layers: let each add less
    for l in range(c["layers"] + c["nextn"]):
        b = f"blk.{l}."
        m.norm(b + "attn_norm.weight", H)
        if qr:
            m.mat(b + "attn_q_a.weight", qr, H)
            m.norm(b + "attn_q_a_norm.weight", qr)
            m.mat(b + "attn_q_b.weight", nh * (nope + R), qr, gain=1.4)
        else:
            m.mat(b + "attn_q.weight", nh * (nope + R), H, gain=1.4)
        m.mat(b + "attn_kv_a_mqa.weight", kvr + R, H, gain=1.4)
        m.norm(b + "attn_kv_a_norm.weight", kvr)
        m.raw(b + "attn_k_b.weight", m.rng(b + "k_b").standard_normal((nh, kvr, nope)) * 1.4 / np.sqrt(kvr), True)
        m.mat(b + "attn_v_b.weight", nh, vd, kvr)
        m.mat(b + "attn_output.weight", H, nh * vd, gain=1.5 * deep)
        m.norm(b + "ffn_norm.weight", H)
        if l < c["dense_lead"]:
            m.mlp(l, gain=1.5 * deep)
        else:
            m.moe(l, c["expert_ffn"], bias=0.2 if c.get("gating") == 2 else None, gain=2.0 * deep)
            m.mlp(l, c["expert_ffn"] * c["shared_experts"], suffix="_shexp", gain=deep)
        if l >= c["layers"]:
            m.nextn(l)


def glm4(m, c):
    m.basics()
    H = c["hidden"]
    m.head()
    for l in range(c["layers"]):
        b = f"blk.{l}."
        m.norm(b + "attn_norm.weight", H)
        m.attn(l)
        m.norm(b + "post_attention_norm.weight", H)
        m.norm(b + "ffn_norm.weight", H)
        m.mat(b + "ffn_up.weight", 2 * c["ffn"], H, gain=1.3)
        m.mat(b + "ffn_down.weight", H, c["ffn"], gain=1.5)
        m.norm(b + "post_ffw_norm.weight", H)


def glm4moe(m, c):
    m.basics()
    H = c["hidden"]
    m.head()
    for l in range(c["layers"] + c["nextn"]):
        b = f"blk.{l}."
        m.norm(b + "attn_norm.weight", H)
        m.attn(l, qknorm=np.sqrt(2) if c.get("qk_norm") else None)
        m.norm(b + "post_attention_norm.weight", H)
        if l < c["dense_lead"]:
            m.mlp(l)
        else:
            m.moe(l, c["expert_ffn"], bias=0.2)
            m.mlp(l, c["expert_ffn"] * c["shared_experts"], suffix="_shexp", gain=1.0)
        if l >= c["layers"]:
            m.nextn(l)


def mamba2(m, l, gain=2.0):
    c, b, H = m.c, f"blk.{l}.", m.c["hidden"]
    inner, state, nh, g = c["ssm_inner"], c["ssm_state"], c["ssm_heads"], c["ssm_groups"]
    conv = inner + 2 * g * state
    m.mat(b + "ssm_in.weight", inner + conv + nh, H, gain=1.3)
    m.raw(b + "ssm_conv1d.weight", 0.6 * m.rng(b + "conv").standard_normal((conv, c["conv_kernel"])))
    m.bias(b + "ssm_conv1d.bias", conv)
    m.bias(b + "ssm_dt.bias", nh, std=1.0)
    m.raw(b + "ssm_a", -np.exp(m.rng(b + "a").uniform(np.log(0.03), 0, (nh, 1))))
    m.norm(b + "ssm_d", nh, 1)
    if c.get("ssm_norm", True):
        m.norm(b + "ssm_norm.weight", g, inner // g)
    m.mat(b + "ssm_out.weight", H, inner, gain=gain)


def ssm_keys(m, c):
    for k, v in (("conv_kernel", "conv_kernel"), ("inner_size", "ssm_inner"), ("state_size", "ssm_state"), ("time_step_rank", "ssm_heads"), ("group_count", "ssm_groups")):
        m.key("ssm." + k, c[v])


def granite(m, c):
    m.basics()
    hybrid, H = c["arch"] == "granitehybrid", c["hidden"]
    if hybrid:
        ssm_keys(m, c)
    if "rope_finetuned" in c:
        m.key("rope.scaling.finetuned", c["rope_finetuned"])
    std = 0.4 * np.sqrt(H) / c["embedding_scale"]
    m.head(std=std, out=2.4 * c["logit_scale"], mean=2.4 * c["logit_scale"] / std if c["tied"] else 1.0)
    for l in range(c["layers"]):
        b = f"blk.{l}."
        m.norm(b + "attn_norm.weight", H)
        if hybrid and not c["kv_heads"][l]:
            mamba2(m, l)
        else:
            m.attn(l)
        m.norm(b + "ffn_norm.weight", H)
        if c["experts"]:
            m.moe(l, c["ffn"])
            if c.get("shared_expert_ffn"):
                m.mlp(l, c["shared_expert_ffn"], suffix="_shexp")
        else:
            m.mlp(l)


def nemotron_h(m, c):
    m.basics(heads=False)
    attn = [bool(k) for k in c["kv_heads"]]
    m.key("attention.layer_norm_epsilon", float(c["eps"]))
    m.key("attention.head_count", c["heads"])
    m.key("attention.head_count_kv", c["kv_heads"])
    m.key("attention.key_length", c["head_dim"])
    m.key("attention.value_length", c["head_dim"])
    ssm_keys(m, c)
    H, Z = c["hidden"], c.get("latent", 0)
    if Z:
        m.key("moe_latent_size", Z)
    m.head()
    for l in range(c["layers"] + c["nextn"]):
        b = f"blk.{l}."
        m.norm(b + "attn_norm.weight", H)
        is_head = l >= c["layers"]
        if attn[l]:
            m.attn(l)
        if is_head:
            m.norm(b + "post_attention_norm.weight", H)
            m.nextn(l)
        elif attn[l]:
            continue
        if not c["ffn"][l]:
            mamba2(m, l)
        elif c["experts"]:
            E, X = c["experts"], c["expert_ffn"]
            m.mat(b + "ffn_gate_inp.weight", E, H, gain=2.0, matrix=False)
            m.bias(b + "exp_probs_b.bias", E, std=0.2)
            if Z:
                m.mat(b + "ffn_latent_down.weight", Z, H)
                m.mat(b + "ffn_latent_up.weight", H, Z)
            m.mat(b + "ffn_up_exps.weight", E, X, Z or H, gain=1.3)
            m.mat(b + "ffn_down_exps.weight", E, Z or H, X)
            m.mat(b + "ffn_up_shexp.weight", c["shared_expert_ffn"], H, gain=1.2)
            m.mat(b + "ffn_down_shexp.weight", H, c["shared_expert_ffn"])
        else:
            m.mlp(l, gate=False)


def swa_keys(m, c):
    p = c.get("swa_pattern")
    if isinstance(p, list):
        m.key("attention.sliding_window_pattern", [bool(x) for x in p])
    elif p and c.get("write_swa_pattern"):
        m.key("attention.sliding_window_pattern", p)
    if "rope_base_swa" in c:
        m.key("rope.freq_base_swa", float(c["rope_base_swa"]))


def post_norm(m, c):            # olmo2, exaone4: no norm before attention and ffn, one after each
    m.basics()
    swa_keys(m, c)
    H, wide = c["hidden"], c["arch"] == "olmo2"
    mean = min(1.0, 4 / c["layers"]) ** 0.5
    m.head(std=2.4 if c["tied"] else 1.2)
    for l in range(c["layers"]):
        b = f"blk.{l}."
        m.attn(l, qknorm=np.sqrt(2), wide_norm=wide)
        m.norm(b + "post_attention_norm.weight", H, mean=mean)
        m.mlp(l)
        m.norm(b + "post_ffw_norm.weight", H, mean=mean)


def plain(m, c):                # pre-norm blocks with optional biases and q/k norms: ernie4_5, hunyuan-dense, seed_oss, qwen2moe ..
    m.basics()
    H, a = c["hidden"], c["arch"]
    if "moe_step" in c:
        m.key("interleave_moe_layer_step", c["moe_step"])
    if "loops" in c:
        m.key("num_loops", c["loops"])
        m.key("skip_loop_final_norm", c["skip_loop_norm"])
    m.head()
    for l in range(c["layers"]):
        b = f"blk.{l}."
        m.norm(b + "attn_norm.weight", H)
        m.attn(l, qknorm=np.sqrt(2) if a in ("hunyuan-dense", "hunyuan-moe", "minimax-m2") else None, wide_norm=a == "minimax-m2")
        m.norm(b + ("post_attention_norm.weight" if a == "seed_oss" else "ffn_norm.weight"), H)
        if not c["experts"] or l < c.get("dense_lead", 0):
            m.mlp(l, gate=a != "arcee")
            continue
        m.moe(l, c["expert_ffn"], bias={"ernie4_5-moe": 0.02, "minimax-m2": 0.2}.get(a), gain=2.0 if a != "qwen2moe" else 3.0)
        if S := c.get("shared_expert_ffn"):
            m.mlp(l, S, suffix="_shexp")
        if a == "qwen2moe":
            m.mat(b + "ffn_gate_inp_shexp.weight", H, matrix=False)


def layer_norm(m, c):           # LayerNorm families: cohere2, command-r (parallel, no bias), starcoder2, stablelm, phi2
    m.basics(eps="attention.layer_norm_epsilon")
    swa_keys(m, c)
    a, H = c["arch"], c["hidden"]
    cohere, gate = a in ("cohere2", "command-r"), a not in ("starcoder2", "phi2")
    m.head(norm_bias=not cohere, mean=3.0 / c.get("logit_scale", 1.0) / 3.0)
    if a == "phi2":
        m.bias("output.bias", c["vocab"], std=1.0)

    def norm(name):
        m.norm(name + ".weight", H)
        if not cohere:
            m.bias(name + ".bias", H)
    for l in range(c["layers"]):
        b = f"blk.{l}."
        norm(b + "attn_norm")
        m.attn(l)
        if c.get("qk_norm"):
            m.norm(b + "attn_q_norm.weight", c["heads"], c["head_dim"], mean=np.sqrt(2))
            m.norm(b + "attn_k_norm.weight", c["kv_heads"], c["head_dim"], mean=np.sqrt(2))
        if a in ("starcoder2", "stablelm") and not c.get("parallel"):
            norm(b + "ffn_norm")
        m.mlp(l, gate=gate)


def falcon_h1(m, c):
    m.basics()
    ssm_keys(m, c)
    H = c["hidden"]
    m.head()
    for l in range(c["layers"]):
        b = f"blk.{l}."
        m.norm(b + "attn_norm.weight", H)
        mamba2(m, l, gain=1.0)
        m.attn(l)
        m.norm(b + "ffn_norm", H)           # no suffix in this family
        m.mlp(l)


def llama4(m, c):
    m.basics()
    H = c["hidden"]
    m.key("interleave_moe_layer_step", c["moe_step"])
    for key, value in c.get("keys", {}).items():
        m.key(key, value)
    m.head()
    if "rope_freqs" in c:
        from make_tiny import rope_freq_factors
        m.raw("rope_freqs.weight", rope_freq_factors(c))
    for l in range(c["layers"]):
        b = f"blk.{l}."
        m.norm(b + "attn_norm.weight", H)
        m.attn(l)
        m.norm(b + "ffn_norm.weight", H)
        if (l + 1) % c["moe_step"]:
            m.mlp(l)
        else:
            m.moe(l, c["expert_ffn"])
            m.mlp(l, c["expert_ffn"], suffix="_shexp")


def gemma3n(m, c):              # llama.cpp has fixed 4 streams, rank 64, 256 values a layer, and sparsity in the first 10 layers
    m.basics()
    swa_keys(m, c)
    H, V, L, P, R, N, F = c["hidden"], c["vocab"], c["layers"], c["per_layer_dim"], c["laurel_rank"], c["streams"], c["ffn"]
    m.key("embedding_length_per_layer_input", P)
    m.key("attention.shared_kv_layers", c["shared_kv_layers"])
    m.key("altup.num_inputs", N)
    m.key("altup.active_idx", 0)
    # llama.cpp divides the variance by n - 1, and transformers by n, as files with these keys say it.
    scale = 1.6448533535003662 * np.sqrt(F / (F - 1)) if c["layers"] == c["sparse_layers"] else 1.6448533535003662
    m.key("activation_sparsity_scale", [float(scale) if l < c["sparse_layers"] else -np.inf for l in range(L)])
    m.head(std=0.5, mean=5.0)
    for n in ("altup_proj", "altup_unembd_proj"):
        m.mat(n + ".weight", N - 1, H, H)
    m.mat("per_layer_token_embd.weight", V, L * P, gain=np.sqrt(L), matrix=c.get("per_layer_type", True))
    m.mat("per_layer_model_proj.weight", L * P, H, gain=np.sqrt(H))
    m.norm("per_layer_proj_norm.weight", P)
    for l in range(L):
        b = f"blk.{l}."
        m.norm(b + "attn_norm.weight", H)
        m.attn(l, qknorm=np.sqrt(2 / np.sqrt(c["head_dim"])))
        m.norm(b + "post_attention_norm.weight", H, mean=0.3)
        m.norm(b + "ffn_norm.weight", H)
        m.mlp(l)
        m.norm(b + "post_ffw_norm.weight", H, mean=0.3)
        m.mat(b + "inp_gate.weight", P, H, gain=1.5)
        m.mat(b + "proj.weight", H, P)
        m.norm(b + "post_norm.weight", H, mean=0.3)
        m.mat(b + "altup_correct_coef.weight", N, N, gain=0.6, matrix=False)
        m.norm(b + "altup_correct_scale.weight", H)
        m.mat(b + "altup_predict_coef.weight", N * N, N, gain=0.3, matrix=False)
        m.mat(b + "altup_router.weight", N, H, gain=float(H), matrix=False)      # its input is divided by H
        m.norm(b + "altup_router_norm.weight", H)
        m.mat(b + "laurel_l.weight", R, H)
        m.mat(b + "laurel_r.weight", H, R)
        m.norm(b + "laurel_post_norm.weight", H, mean=0.3)


def muse_glimmer(m, c):
    m.basics()
    swa_keys(m, c)
    if "final_softcap" in c:
        m.key("final_logit_softcapping", float(c["final_softcap"]))
    H, QW = c["hidden"], c["heads"] * c["head_dim"]
    m.head(out=2.4 / c["logit_scale"])
    for l in range(c["layers"]):
        b = f"blk.{l}."
        m.norm(b + "attn_norm.weight", H)
        m.attn(l, qknorm=np.sqrt(2), gain=3.0)
        m.mat(b + "attn_gate.weight", QW, H, gain=1.5)
        m.norm(b + "post_attention_norm.weight", H)
        m.norm(b + "ffn_norm.weight", H)
        m.mlp(l)
        m.norm(b + "post_ffw_norm.weight", H)


FAMILIES = {"gpt-oss": gpt_oss, "mistral3": mistral3, "lfm2": lfm2, "lfm2moe": lfm2, "qwen3next": qwen3next, "deepseek2": deepseek2,
            "glm4": glm4, "glm4moe": glm4moe, "granitemoe": granite, "granitehybrid": granite, "nemotron_h": nemotron_h,
            "nemotron_h_moe": nemotron_h, "falcon-h1": falcon_h1, "olmo2": post_norm, "exaone4": post_norm,
            "ernie4_5": plain, "ernie4_5-moe": plain, "hunyuan-dense": plain, "seed_oss": plain, "cohere2": layer_norm,
            "command-r": layer_norm, "starcoder2": layer_norm, "stablelm": layer_norm, "phi2": layer_norm,
            "minimax-m2": plain, "qwen2moe": plain, "arcee": plain, "internlm2": plain, "hunyuan-moe": plain,
            "llama4": llama4, "gemma3n": gemma3n, "nanbeige": plain, "muse-glimmer": muse_glimmer}


def write(w, cfg, seed):
    """Add the keys to the writer; return the tensors as (name, float32 array, matrix: bool or the name of its type)."""
    m = Maker(w, cfg, seed)
    FAMILIES[cfg["arch"]](m, cfg)
    return m.out
