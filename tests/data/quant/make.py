#!/usr/bin/env python3
"""Writes this folder's fixtures. Needs Python 3.9+, numpy and gguf (PyPI; made with numpy 2.4 and gguf 0.19).

    make.py [--ggml LIBRARY] [--llama-quantize COMMAND]

For each format, random blocks and what gguf-py decodes them to; ggml for Q1_0 and Q2_0, which gguf-py lacks:
    q4_k.bin   the blocks        q4_k.f32   the weights, little-endian f32
The float formats' values are any numbers, infinities among them, but no NaN. Half of the other formats' scales are any
finite number, among them both zeros, the least and the greatest; the rest are like a model's.

For the quantisers:
    gaussian.f32   normal random weights
    errors.txt     per format: the root mean square error, over the weights' own, of what gguf-py (llama.cpp where
                   gguf-py has no quantiser) makes of these weights, and by whom
The K and IQ4 formats' lines need a COMMAND that is run as `COMMAND IN.gguf OUT.gguf TYPE` and quantises with llama.cpp;
those of the formats in GGML a LIBRARY, which is ggml-base as a shared library.
"""
import argparse
import ctypes
import shlex
import subprocess
import tempfile
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type

FOLDER = Path(__file__).parent
FLOATS = {"F32": np.uint32, "F16": np.uint16, "BF16": np.uint16}
# Where each format's half-precision scales lie in its block.
SCALES = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0],
    "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
    "IQ4_NL": [0], "IQ4_XS": [0], "MXFP4": [],
    "IQ3_XXS": [0], "IQ3_S": [0], "IQ2_XXS": [0], "IQ2_XS": [0], "IQ2_S": [0], "IQ1_S": [0], "IQ1_M": [],
    "TQ1_0": [52], "TQ2_0": [64], "NVFP4": [], "Q1_0": [0], "Q2_0": [0],
}
# GGUF number, weights and bytes per block of the formats that ggml quantises here, by its function for any type.
GGML = {
    "IQ3_XXS": (18, 256, 98), "IQ3_S": (21, 256, 110), "IQ2_XXS": (16, 256, 66), "IQ2_XS": (17, 256, 74),
    "IQ2_S": (22, 256, 82), "IQ1_S": (19, 256, 50), "IQ1_M": (29, 256, 56), "TQ1_0": (34, 256, 54),
    "TQ2_0": (35, 256, 66), "NVFP4": (40, 64, 36), "Q1_0": (41, 128, 18), "Q2_0": (42, 64, 18),
}
# llama.cpp's name for a file whose ffn_gate is in this format.
FILE_TYPES = {"Q2_K": "q2_k", "Q3_K": "q3_k_m", "Q4_K": "q4_k_m", "Q5_K": "q5_k_m", "Q6_K": "q6_k", "IQ4_NL": "iq4_nl", "IQ4_XS": "iq4_xs"}
COLUMNS = 256


def finite(bits, exponent):
    """`bits` without those that have every bit of the exponent set: infinities and NaN."""
    return bits[(bits & exponent) != exponent]


def float_values(name, rng):
    kind = FLOATS[name]
    exponent = {"F32": 0x7F80_0000, "F16": 0x7C00, "BF16": 0x7F80}[name]
    sign = {"F32": 1 << 31, "F16": 1 << 15, "BF16": 1 << 15}[name]
    ends = [0, 1, exponent - 1, exponent]
    bits = rng.integers(0, 2 * sign, 1024, dtype=np.uint64).astype(kind)
    return np.concatenate([finite(bits, exponent), np.array(ends + [e | sign for e in ends], kind)]).view(np.uint8)


def half_scales(n, rng):
    any_finite = finite(rng.integers(0, 1 << 16, n, dtype=np.uint16), 0x7C00)
    scales = np.concatenate([np.array([0, 0x8000, 1, 0x7BFF, 0xFBFF], np.uint16), any_finite])[: n // 2]
    usual = rng.normal(0, 0.02, n - len(scales)).astype(np.float16).view(np.uint16)
    return rng.permutation(np.concatenate([scales, usual]))


def blocks(name, rng):
    size = GGML[name][2] if name in GGML else gguf.GGML_QUANT_SIZES[Type[name]][1]
    n = 16 if size > 80 else 32
    data = rng.integers(0, 256, (n, size), dtype=np.uint8)
    for offset in SCALES[name]:
        data[:, offset : offset + 2] = half_scales(n, rng)[:, None].view(np.uint8)
    if name == "IQ1_M":
        # The upper four bits of every second byte at the end are four bits of the scale, the low ones first.
        for i, four in enumerate((half_scales(n, rng)[:, None] >> np.array([0, 4, 8, 12], np.uint16)).T & 15):
            data[:, 49 + 2 * i] = (data[:, 49 + 2 * i] & 15) | (four.astype(np.uint8) << 4)
    if name == "MXFP4":
        data[:, 0] = np.concatenate([[0, 1, 2, 252], rng.integers(0, 253, n // 2 - 4), rng.integers(110, 130, n - n // 2)])
    return data


class Ggml:
    """ggml's own decoders and quantisers."""

    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        self.library.ggml_init.restype = ctypes.c_void_p
        self.library.ggml_quantize_chunk.restype = ctypes.c_size_t
        # The first context computes ggml's tables. Its parameters: bytes, no memory of ours, no data.
        self.library.ggml_init((ctypes.c_size_t * 3)(1 << 16, 0, 1))

    def dequantize(self, name, data):
        weights = np.empty(data.shape[0] * GGML[name][1], np.float32)
        decode = getattr(self.library, f"dequantize_row_{name.lower()}")
        decode(data.ctypes.data_as(ctypes.c_void_p), weights.ctypes.data_as(ctypes.c_void_p), ctypes.c_int64(weights.size))
        return weights

    def quantize(self, name, weights):
        number, count, size = GGML[name]
        data = np.empty((weights.size // count, size), np.uint8)
        # Formats of two bits and less require importances; all are equal.
        importances = np.ones(COLUMNS, np.float32)
        pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in (weights, data, importances)]
        rows, columns = ctypes.c_int64(weights.size // COLUMNS), ctypes.c_int64(COLUMNS)
        self.library.ggml_quantize_chunk(number, *pointers[:2], ctypes.c_int64(0), rows, columns, pointers[2])
        return data


def llama_errors(command, weights):
    """The relative errors of llama.cpp's own quantisers, by way of a model whose ffn_gate is `weights`."""
    with tempfile.TemporaryDirectory() as folder:
        plain, packed = f"{folder}/plain.gguf", f"{folder}/packed.gguf"
        writer = gguf.GGUFWriter(plain, "llama")
        for key in (writer.add_embedding_length, writer.add_context_length, writer.add_feed_forward_length):
            key(COLUMNS)
        writer.add_block_count(1)
        writer.add_head_count(4)
        writer.add_layer_norm_rms_eps(1e-5)
        matrix = np.zeros((COLUMNS, COLUMNS), np.float32)
        for name in ("token_embd", *(f"blk.0.{n}" for n in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_up", "ffn_down"))):
            writer.add_tensor(f"{name}.weight", matrix)
        for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
            writer.add_tensor(f"{name}.weight", matrix[0])
        writer.add_tensor("blk.0.ffn_gate.weight", weights.reshape(-1, COLUMNS))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        for name, file_type in FILE_TYPES.items():
            subprocess.run([*shlex.split(command), plain, packed, file_type], check=True)
            gate = next(t for t in gguf.GGUFReader(packed).tensors if t.name == "blk.0.ffn_gate.weight")
            assert gate.tensor_type == Type[name], (name, gate.tensor_type)
            yield name, error(weights, gguf.dequantize(np.array(gate.data), gate.tensor_type)), "llama.cpp"


def error(weights, decoded):
    wanted, decoded = weights.ravel().astype(np.float64), decoded.ravel().astype(np.float64)
    return np.sqrt(((decoded - wanted) ** 2).sum() / (wanted**2).sum())


def gguf_errors(weights):
    for name in (*FLOATS, *SCALES):
        if name not in FILE_TYPES and name not in GGML:
            packed = gguf.quantize(weights.reshape(-1, COLUMNS), Type[name])
            yield name, error(weights, gguf.dequantize(packed, Type[name])), "gguf-py"


def ggml_errors(ggml, weights):
    for name in GGML:
        yield name, error(weights, decoded(name, ggml.quantize(name, weights), ggml)), "ggml"


def decoded(name, data, ggml):
    if name in ("Q1_0", "Q2_0"):
        return ggml.dequantize(name, data)
    weights = gguf.dequantize(data, Type[name])
    if ggml and name in GGML:
        assert (weights.ravel().view(np.uint32) == ggml.dequantize(name, data).view(np.uint32)).all(), name
    return weights


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ggml", metavar="LIBRARY")
    parser.add_argument("--llama-quantize", metavar="COMMAND")
    arguments = parser.parse_args()
    ggml = Ggml(arguments.ggml) if arguments.ggml else None
    for i, name in enumerate((*FLOATS, *SCALES)):
        rng = np.random.default_rng(i)
        if name in ("Q1_0", "Q2_0") and ggml is None:
            print(f"{name} is left as it is: it needs --ggml")
            continue
        data = float_values(name, rng) if name in FLOATS else blocks(name, rng)
        with np.errstate(over="raise"):
            weights = decoded(name, data, ggml).astype("<f4")
        assert name in FLOATS or np.isfinite(weights).all()
        data.tofile(FOLDER / f"{name.lower()}.bin")
        weights.tofile(FOLDER / f"{name.lower()}.f32")
    weights = np.random.default_rng(99).normal(0, 0.05, 32 * COLUMNS).astype("<f4")
    weights.tofile(FOLDER / "gaussian.f32")
    rows = {line.split()[0]: line.split()[1:] for line in (FOLDER / "errors.txt").read_text().splitlines()}
    found = list(gguf_errors(weights))
    found += llama_errors(arguments.llama_quantize, weights) if arguments.llama_quantize else []
    found += ggml_errors(ggml, weights) if ggml else []
    rows.update({name: (f"{value:.6e}", by) for name, value, by in found})
    (FOLDER / "errors.txt").write_text("".join(f"{name} {' '.join(row)}\n" for name, row in rows.items()))


if __name__ == "__main__":
    main()
