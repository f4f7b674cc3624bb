#!/usr/bin/env python3
"""Write a random head for multi-token prediction of the Qwen3.5 model in ../vision/qwen3_5, and the head's logits on that
model's prompt with two images, in float64.

    images.py        needs numpy (on PyPI)

`images.safetensors` has the tensors `mtp.*`, in BF16, for the other tensors of the directory. `images.mtp.f32`,
`[ids - 1, vocabulary]`, has the head's logits for every token of the prompt but the first: little-endian f32.

Row i of the head has the hidden row of token i, the embedding of token i + 1, or the image's row if that is a token of
an image, and the three rotary positions of token i. So does vLLM: `Qwen3_5MultiTokenPredictor` takes `inputs_embeds`
with the rows of images, which its runner gathers one token ahead (`shift_computed_tokens=1`), and the target's own
M-RoPE positions (`set_inputs_first_pass`).

The rows of images are those of transformers, and the logits of the model itself are compared with those of transformers.
"""
import json, pathlib, struct
import numpy as np

HERE = pathlib.Path(__file__).parent
MODEL = HERE / "../vision/qwen3_5"
# Rows and columns of the images' rows.
GRIDS = [(3, 5), (6, 4)]


def bf16(data, shape):
    return (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4").reshape(shape).astype(np.float64)


def read(path):
    data = path.read_bytes()
    start = 8 + struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:start])
    header.pop("__metadata__", None)
    part = lambda info: data[start + info["data_offsets"][0]:start + info["data_offsets"][1]]
    return {name: bf16(part(info), info["shape"]) for name, info in header.items()}


def write(path, tensors):
    header, data = {}, b""
    for name, x in tensors.items():
        new = (x.astype("<f4").view("<u4") >> 16).astype("<u2").tobytes()
        header[name] = {"dtype": "BF16", "shape": list(x.shape), "data_offsets": [len(data), len(data) + len(new)]}
        data += new
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def head(c):
    """The tensors of a head. Norms are far from 1, so that a wrong one shows."""
    random = np.random.default_rng(19)
    h, f, q, kv = c["hidden_size"], c["intermediate_size"], *(c[f"num_{kind}_heads"] * c["head_dim"] for kind in ("attention", "key_value"))
    matrices = {"fc": (h, 2 * h)} | {f"layers.0.{name}": shape for name, shape in {
        "self_attn.q_proj": (2 * q, h), "self_attn.k_proj": (kv, h), "self_attn.v_proj": (kv, h), "self_attn.o_proj": (h, q),
        "mlp.gate_proj": (f, h), "mlp.up_proj": (f, h), "mlp.down_proj": (h, f)}.items()}
    norms = {name: h for name in ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm", "layers.0.input_layernorm", "layers.0.post_attention_layernorm")}
    norms |= {f"layers.0.self_attn.{x}_norm": c["head_dim"] for x in "qk"}
    tensors = {name: 1.4 / np.sqrt(shape[1]) * random.standard_normal(shape) for name, shape in matrices.items()}
    tensors |= {name: random.uniform(-0.5, 0.5, size) for name, size in norms.items()}
    return {f"mtp.{name}.weight": x for name, x in tensors.items()}


class Model:
    def __init__(self, config, tensors):
        self.c, self.w = config, tensors

    def norm(self, x, w):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.c["rms_norm_eps"]) * (1 + self.w[f"{w}.weight"])

    def linear(self, x, w):
        return x @ self.w[f"{w}.weight"].T

    def rope(self, x, positions):
        rope = self.c["rope_parameters"]
        n = int(self.c["head_dim"] * rope["partial_rotary_factor"])
        pair = np.arange(n // 2)
        axis = np.where(pair < 3 * np.array(rope["mrope_section"])[pair % 3], pair % 3, 0)
        angle = (positions[:, axis] * rope["rope_theta"] ** (-2 * pair / n))[:, None]
        a, b = x[..., :n // 2], x[..., n // 2:n]
        return np.concatenate([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle), x[..., n:]], -1)

    def attention(self, name, x, positions):
        t, d, heads, kv = len(x), *(self.c[key] for key in ("head_dim", "num_attention_heads", "num_key_value_heads"))
        q, gate = np.split(self.linear(x, f"{name}.q_proj").reshape(t, heads, 2 * d), 2, -1)
        k, v = (self.linear(x, f"{name}.{part}_proj").reshape(t, kv, d) for part in "kv")
        q, k = (self.rope(self.norm(x, f"{name}.{part}_norm"), positions) for part, x in (("q", q), ("k", k)))
        out = np.empty((t, heads, d))
        for h in range(heads):
            s = q[:, h] @ k[:, h * kv // heads].T / np.sqrt(d)
            p = np.exp(np.where(np.tri(t, dtype=bool), s, -np.inf))
            out[:, h] = p / p.sum(-1, keepdims=True) @ v[:, h * kv // heads]
        return self.linear((out / (1 + np.exp(-gate))).reshape(t, heads * d), f"{name}.o_proj")

    def delta_net(self, name, x):
        t, d, heads = len(x), self.c["linear_key_head_dim"], self.c["linear_num_value_heads"]
        silu, w = lambda y: y / (1 + np.exp(-y)), lambda part: self.w[f"{name}.{part}"]
        qkv, kernel = self.linear(x, f"{name}.in_proj_qkv"), w("conv1d.weight")[:, 0]
        seen = np.concatenate([np.zeros((kernel.shape[1] - 1, qkv.shape[1])), qkv])
        conv = silu(sum(seen[j:j + t] * kernel[:, j] for j in range(kernel.shape[1])))
        q, k, v = (part.reshape(t, heads, d) for part in np.split(conv, 3, -1))
        unit = lambda y: y / np.sqrt((y * y).sum(-1, keepdims=True) + 1e-6)
        q, k = unit(q) / np.sqrt(d), unit(k)
        beta = 1 / (1 + np.exp(-self.linear(x, f"{name}.in_proj_b")))
        g = np.exp(-np.exp(w("A_log")) * np.logaddexp(0, self.linear(x, f"{name}.in_proj_a") + w("dt_bias")))
        state, out = np.zeros((heads, d, d)), np.empty((t, heads, d))
        for i in range(t):
            state = state * g[i][:, None, None]
            u = beta[i][:, None] * (v[i] - np.einsum("hkv,hk->hv", state, k[i]))
            state = state + k[i][:, :, None] * u[:, None, :]
            out[i] = np.einsum("hkv,hk->hv", state, q[i])
        # This norm alone has its weight as it is.
        out = out / np.sqrt((out * out).mean(-1, keepdims=True) + self.c["rms_norm_eps"]) * w("norm.weight")
        z = self.linear(x, f"{name}.in_proj_z").reshape(t, heads, d)
        return self.linear((out * silu(z)).reshape(t, heads * d), f"{name}.out_proj")

    def layer(self, name, x, positions, linear=False):
        y = self.norm(x, f"{name}.input_layernorm")
        x = x + (self.delta_net(f"{name}.linear_attn", y) if linear else self.attention(f"{name}.self_attn", y, positions))
        y = self.norm(x, f"{name}.post_attention_layernorm")
        gate = self.linear(y, f"{name}.mlp.gate_proj")
        return x + self.linear(gate / (1 + np.exp(-gate)) * self.linear(y, f"{name}.mlp.up_proj"), f"{name}.mlp.down_proj")

    def logits(self, x):
        return x @ self.w["model.language_model.embed_tokens.weight"].T


def positions(ids, grids):
    """The three positions of each token, and the indices of the tokens of images."""
    out, images, position, grids = [], [], 0, list(grids)
    while len(out) < len(ids):
        if ids[len(out)]:
            out.append([position] * 3)
            position += 1
        else:
            rows, columns = grids.pop(0)
            images += range(len(out), len(out) + rows * columns)
            out += [[position, position + r, position + c] for r in range(rows) for c in range(columns)]
            position += max(rows, columns)
    return np.array(out), images


def main():
    config = json.loads((MODEL / "config.json").read_text())["text_config"]
    ids = json.loads((MODEL / "info.json").read_text())["ids"]
    write(HERE / "images.safetensors", head(config))
    model = Model(config, read(MODEL / "model.safetensors") | read(HERE / "images.safetensors"))
    place, images = positions(ids, GRIDS)
    text = "model.language_model"
    x = model.w[f"{text}.embed_tokens.weight"][ids]
    x[images] = np.fromfile(MODEL / "transformers.embd.f32", "<f4").reshape(len(images), -1)
    embedded = x
    for number, kind in enumerate(config["layer_types"]):
        x = model.layer(f"{text}.layers.{number}", x, place, kind == "linear_attention")
    hidden = model.norm(x, f"{text}.norm")
    theirs = np.fromfile(MODEL / "transformers.logits.f32", "<f4")
    error = ((model.logits(hidden[-1]) - theirs) ** 2).sum() / (theirs ** 2).sum()
    assert error < 1e-12, error
    both = [model.norm(embedded[1:], "mtp.pre_fc_norm_embedding"), model.norm(hidden[:-1], "mtp.pre_fc_norm_hidden")]
    x = model.layer("mtp.layers.0", model.linear(np.concatenate(both, -1), "mtp.fc"), place[:-1])
    model.logits(model.norm(x, "mtp.norm")).astype("<f4").tofile(HERE / "images.mtp.f32")
    print(f"{len(ids)} ids, {len(images)} of images, the model's logits are off by {error:.1e}")


if __name__ == "__main__":
    main()
