"""The model in PyTorch: the vision encoder of Qwen3-VL in front of its text model. Parameters are named as in GGUF files.

`B` is conversations in a batch, `n` pictures in each, `P` patches and `P / 4` image tokens a picture, `L` tokens.
"""
from dataclasses import dataclass

import torch, torch.nn as nn, torch.nn.functional as F


@dataclass(frozen=True)
class Shape:
    vocab: int = 512
    hidden: int = 256
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    ffn: int = 512
    rope_base: float = 10000.0
    sections: tuple = (11, 11, 10)       # rotary pairs that turn with time, row and column, interleaved
    context: int = 2048
    eps: float = 1e-6
    vision_hidden: int = 128
    vision_layers: int = 5
    vision_heads: int = 4
    vision_ffn: int = 384
    deepstack: tuple = (1, 3)            # vision layers whose output goes to the first text layers as well
    patch: int = 16
    image_size: int = 256                # the learned positions are those of a square picture of this side

    @property
    def grid(self):
        return self.image_size // self.patch


def rotate(x, cos, sin):
    """Rotates the pairs (i, i + n/2) of the last dimension."""
    a, b = x.float().chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)


class RmsNorm(nn.Module):
    def __init__(self, n, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(n)), eps

    def forward(self, x):
        return F.rms_norm(x.float(), (x.shape[-1],), self.weight, self.eps).to(x.dtype)


class Table(nn.Module):
    def __init__(self, *size):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(size) * 0.02)


# ---------------------------------------------------------------- vision
class VisionLayer(nn.Module):
    def __init__(self, s):
        super().__init__()
        h, self.heads = s.vision_hidden, s.vision_heads
        self.ln1, self.ln2 = nn.LayerNorm(h, s.eps), nn.LayerNorm(h, s.eps)
        self.attn_qkv, self.attn_out = nn.Linear(h, 3 * h), nn.Linear(h, h)
        self.ffn_up, self.ffn_down = nn.Linear(h, s.vision_ffn), nn.Linear(s.vision_ffn, h)

    def forward(self, x, cos, sin):
        b, p, h = x.shape
        q, k, v = self.attn_qkv(self.ln1(x)).view(b, p, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v)
        x = x + self.attn_out(y.transpose(1, 2).reshape(b, p, h))
        return x + self.ffn_down(F.gelu(self.ffn_up(self.ln2(x)), approximate="tanh"))


class Merger(nn.Module):
    """Four patches of a deepstack layer to one row of the text model."""

    def __init__(self, s):
        super().__init__()
        n = 4 * s.vision_hidden
        self.norm, self.fc1, self.fc2 = nn.LayerNorm(n, s.eps), nn.Linear(n, n), nn.Linear(n, s.hidden)

    def forward(self, x):
        x = self.norm(x.reshape(x.shape[0], -1, 4 * x.shape[2]))
        return self.fc2(F.gelu(self.fc1(x)))


class PatchEmbedding(nn.Module):
    """Two kernels, since the encoder takes films in pairs of frames: a picture is two equal frames."""

    def __init__(self, s):
        super().__init__()
        size = (s.vision_hidden, 3, s.patch, s.patch)
        self.weight, self.weight1 = (nn.Parameter(torch.randn(size) * 0.02) for _ in range(2))
        self.bias = nn.Parameter(torch.zeros(s.vision_hidden))

    def forward(self, patches):
        return F.linear(patches, (self.weight + self.weight1).flatten(1), self.bias)


def in_merge_order(x):
    """(.., rows, columns, n) patches to (.., rows * columns, n): 2x2 blocks in raster order, raster order in each."""
    *lead, rows, columns, n = x.shape
    return x.reshape(*lead, rows // 2, 2, columns // 2, 2, n).transpose(-4, -3).reshape(*lead, rows * columns, n)


def aligned(count, table, device):
    """(count, table) weights that resample `table` values bilinearly, first to first and last to last."""
    at = torch.arange(count, device=device) * ((table - 1) / (count - 1))
    return (1 - (at[:, None] - torch.arange(table, device=device)).abs()).clamp(min=0)


class Vision(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.s = s
        self.patch_embd, self.position_embd = PatchEmbedding(s), Table(s.grid ** 2, s.vision_hidden)
        self.blk = nn.ModuleList(VisionLayer(s) for _ in range(s.vision_layers))
        self.deepstack = nn.ModuleDict({str(layer): Merger(s) for layer in s.deepstack})
        self.post_ln = nn.LayerNorm(s.vision_hidden, s.eps)

    def rope(self, rows, columns, device):
        d = self.s.vision_hidden // self.s.vision_heads
        frequency = 10000.0 ** (-4 * torch.arange(d // 4, device=device) / d)
        y = torch.arange(rows, device=device)[:, None, None] * frequency
        x = torch.arange(columns, device=device)[None, :, None] * frequency
        angle = in_merge_order(torch.cat((y.expand(rows, columns, -1), x.expand(rows, columns, -1)), -1))
        return angle.cos(), angle.sin()

    def forward(self, pixels):
        """(pictures, 3, height, width) normalised pixels to the last layer's rows and one result a deepstack layer."""
        size, (count, _, height, width) = self.s.patch, pixels.shape
        rows, columns = height // size, width // size
        patches = pixels.reshape(count, 3, rows, size, columns, size).permute(0, 2, 4, 1, 3, 5).flatten(3)
        table = self.position_embd.weight.view(self.s.grid, self.s.grid, -1)
        places = torch.einsum("ry,yxn,cx->rcn", aligned(rows, self.s.grid, pixels.device), table,
                              aligned(columns, self.s.grid, pixels.device))
        x = self.patch_embd(in_merge_order(patches)) + in_merge_order(places)
        cos, sin = self.rope(rows, columns, pixels.device)
        deep = []
        for layer, block in enumerate(self.blk):
            x = block(x, cos, sin)
            if str(layer) in self.deepstack:
                deep.append(self.deepstack[str(layer)](x))
        return self.post_ln(x).reshape(count, -1, 4 * x.shape[2]), deep


# ---------------------------------------------------------------- text
class TextLayer(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.s, h, d = s, s.hidden, s.head_dim
        self.attn_norm, self.ffn_norm = RmsNorm(h, s.eps), RmsNorm(h, s.eps)
        self.attn_q_norm, self.attn_k_norm = RmsNorm(d, s.eps), RmsNorm(d, s.eps)
        self.attn_q = nn.Linear(h, s.heads * d, bias=False)
        self.attn_k = nn.Linear(h, s.kv_heads * d, bias=False)
        self.attn_v = nn.Linear(h, s.kv_heads * d, bias=False)
        self.attn_output = nn.Linear(s.heads * d, h, bias=False)
        self.ffn_gate = nn.Linear(h, s.ffn, bias=False)
        self.ffn_up = nn.Linear(h, s.ffn, bias=False)
        self.ffn_down = nn.Linear(s.ffn, h, bias=False)

    def forward(self, x, cos, sin):
        y = self.attn_norm(x)
        heads = lambda z: z.view(*x.shape[:2], -1, self.s.head_dim).transpose(1, 2)
        q = rotate(self.attn_q_norm(heads(self.attn_q(y))), cos, sin)
        k = rotate(self.attn_k_norm(heads(self.attn_k(y))), cos, sin)
        k, v = (z.repeat_interleave(self.s.heads // self.s.kv_heads, 1) for z in (k, heads(self.attn_v(y))))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn_output(y.transpose(1, 2).flatten(2))
        y = self.ffn_norm(x)
        return x + self.ffn_down(F.silu(self.ffn_gate(y)) * self.ffn_up(y))


class Seer(nn.Module):
    def __init__(self, s=Shape()):
        super().__init__()
        self.s, n = s, 4 * s.vision_hidden
        self.v = Vision(s)
        self.mm = nn.ModuleDict({"0": nn.Linear(n, n), "2": nn.Linear(n, s.hidden)})
        self.token_embd = Table(s.vocab, s.hidden)
        self.blk = nn.ModuleList(TextLayer(s) for _ in range(s.layers))
        self.output_norm = RmsNorm(s.hidden, s.eps)
        for name, p in self.named_parameters():
            if p.dim() == 2:
                into_stream = any(part in name for part in ("attn_output", "attn_out.", "ffn_down"))
                nn.init.normal_(p, std=0.02 if "embd" in name else (0.5 if into_stream else 1.0) / p.shape[1] ** 0.5)
            elif name.endswith("bias"):
                nn.init.zeros_(p)

    def rope(self, positions):
        """(B, L, 3) positions in time, row and column."""
        pairs = torch.arange(self.s.head_dim // 2, device=positions.device)
        frequency = self.s.rope_base ** (-2 * pairs / self.s.head_dim)
        _, rows, columns = self.s.sections
        axis = torch.where((pairs % 3 == 1) & (pairs < 3 * rows), 1, torch.where((pairs % 3 == 2) & (pairs < 3 * columns), 2, 0))
        angle = positions.float()[:, None, :, axis] * frequency
        return angle.cos(), angle.sin()

    def see(self, pixels):
        """Image rows, then one set of rows for each of the first text layers."""
        rows, deep = self.v(pixels)
        return [self.mm["2"](F.gelu(self.mm["0"](rows))), *deep]

    def forward(self, ids, positions, pixels, at):
        """(B, L) ids, (B, L, 3) positions, (B n, 3, height, width) pixels, (B, n P/4) places of the image rows."""
        x = F.embedding(ids, self.token_embd.weight)
        seen = [z.reshape(len(ids), -1, z.shape[-1]).to(x.dtype) for z in self.see(pixels)]
        where = at[..., None].expand_as(seen[0])
        x = x.scatter(1, where, seen[0])
        cos, sin = self.rope(positions)
        for i, layer in enumerate(self.blk):
            x = layer(x, cos, sin)
            if i < len(seen) - 1:
                x = x.scatter_add(1, where, seen[i + 1].to(x.dtype))
        return F.linear(self.output_norm(x), self.token_embd.weight)
