#!/usr/bin/env python3
"""Writes this folder's fixtures. Needs Python 3.9+, numpy and gguf (PyPI; made with numpy 2.4 and gguf 0.19).

    make.py --llama-quantize COMMAND

Models of few weights, for the example `quantize`:
    model.gguf     sixteen layers in F32, F16 and BF16, among their weights zeros, constants, outliers and tiny ones
    odd.gguf       rows that are not whole blocks of 256 weights, three of them not even of 32
    experts.gguf   eight experts in two layers
Importance matrices, of a part of the tensors of model.gguf and experts.gguf each:
    imatrix.gguf   as llama-imatrix writes it
    imatrix.dat    as it wrote it formerly
    expected.txt   for each file, type and matrix: the CRC-32 of the file that llama.cpp writes, and the number of
                   tensors of each type in it

COMMAND is run as `COMMAND IN OUT TYPE [IMATRIX] [pure]`, and quantizes with llama.cpp's `llama_model_quantize`, which
its llama-quantize calls, too: TYPE is the number of the type (`llama_ftype`), and the keys `quantize.imatrix.*` are
set as by llama-quantize.
"""
import argparse
import collections
import os
import shlex
import struct
import subprocess
import tempfile
import zlib
from pathlib import Path

import gguf
import numpy as np

FOLDER = Path(__file__).parent
TYPES = {
    "F32": 0, "F16": 1, "BF16": 32, "Q1_0": 40, "Q2_0": 41, "Q4_0": 2, "Q4_1": 3, "Q5_0": 8, "Q5_1": 9, "Q8_0": 7,
    "Q2_K": 10, "Q2_K_S": 21, "Q3_K_S": 11, "Q3_K_M": 12, "Q3_K_L": 13, "Q4_K_S": 14, "Q4_K_M": 15, "Q5_K_S": 16,
    "Q5_K_M": 17, "Q6_K": 18, "IQ4_NL": 25, "IQ4_XS": 30, "TQ1_0": 36, "TQ2_0": 37, "MXFP4_MOE": 38,
}
MATRICES = ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"]
random = np.random.default_rng(21)


def weights(kind, shape):
    """Returns weights of one of several kinds."""
    x = random.standard_normal(shape) * 0.05
    flat = x.reshape(-1)
    if kind == 1:
        flat[: len(flat) // 2] = 0
    elif kind == 2:
        flat[:] = 0.25
    elif kind == 3:
        flat[::37] *= 40
    elif kind == 4:
        flat *= 1e-6
    elif kind == 5:
        flat[:] = np.abs(flat)
    elif kind == 6:
        flat *= 300
    elif kind == 7:
        flat[:] = np.round(flat * 10) / 8
    return x.astype(np.float32)


def put(writer, name, x, dtype):
    """Adds a tensor in one of the float formats."""
    if dtype == gguf.GGMLQuantizationType.BF16:
        writer.add_tensor(name, gguf.quants.quantize(x, dtype), raw_dtype=dtype)
    else:
        writer.add_tensor(name, x.astype(np.float16 if dtype == gguf.GGMLQuantizationType.F16 else np.float32))


def model(name, layers, columns, heads, shared, experts=0):
    """Writes a model; `columns` are those of each matrix in turn."""
    writer = gguf.GGUFWriter(FOLDER / name, "llama")
    writer.add_string("general.name", "few weights")
    writer.add_uint32("general.file_type", 0)
    writer.add_block_count(layers)
    writer.add_context_length(64)
    writer.add_embedding_length(256)
    writer.add_feed_forward_length(256)
    writer.add_head_count(heads)
    writer.add_head_count_kv(shared)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(32)
    writer.add_vocab_size(8)
    writer.add_array("numbers", [1, 2, 3])
    if experts:
        writer.add_expert_count(experts)
        writer.add_expert_used_count(2)
    types = [gguf.GGMLQuantizationType.F16, gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.BF16]
    put(writer, "token_embd.weight", weights(0, (8, columns[0])), types[0])
    put(writer, "output_norm.weight", weights(5, (columns[0],)), types[1])
    put(writer, "output.weight", weights(0, (8, columns[0])), types[0])
    number = 0
    for layer in range(layers):
        put(writer, f"blk.{layer}.attn_norm.weight", weights(5, (columns[0],)), types[1])
        if experts:
            put(writer, f"blk.{layer}.ffn_gate_inp.weight", weights(0, (experts, 256)), types[1])
        for matrix in MATRICES:
            shape = (2, columns[number % len(columns)])
            if experts and matrix.startswith("ffn"):
                matrix, shape = matrix + "_exps", (experts, 1, shape[1])
            put(writer, f"blk.{layer}.{matrix}.weight", weights(number % 8, shape), types[number // 3 % 3])
            number += 1
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def importance():
    """Writes the importance matrices."""
    entries = {f"blk.{layer}.{name}.weight": 1 for layer in (0, 1) for name in MATRICES}
    entries |= {f"blk.{layer}.{name}_exps.weight": 8 for layer in (0, 1) for name in MATRICES if name.startswith("ffn")}
    writer = gguf.GGUFWriter(FOLDER / "imatrix.gguf", "")
    writer.kv_data[0].clear()
    writer.add_string("general.type", "imatrix")
    writer.add_array("imatrix.datasets", ["a text.txt"])
    writer.add_uint32("imatrix.chunk_count", 3)
    writer.add_uint32("imatrix.chunk_size", 512)
    old = struct.pack("<i", len(entries))
    for name, experts in entries.items():
        sums = (random.standard_normal((experts, 256)) ** 2 * 700).astype(np.float32)
        counts = np.full((experts, 1), 512, np.float32)
        counts[1:4:2] = 0
        writer.add_tensor(f"{name}.in_sum2", sums)
        writer.add_tensor(f"{name}.counts", counts)
        old += struct.pack("<i", len(name)) + name.encode() + struct.pack("<ii", 3, sums.size) + sums.tobytes()
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    name = b"an older text.txt"
    (FOLDER / "imatrix.dat").write_bytes(old + struct.pack("<ii", 3, len(name)) + name)


def expected(command):
    """Writes what llama.cpp makes of the models."""
    lines = []
    runs = [("model.gguf", ""), ("model.gguf", "imatrix.gguf"), ("model.gguf", "imatrix.dat"), ("odd.gguf", "")]
    runs += [("experts.gguf", ""), ("experts.gguf", "imatrix.gguf"), ("model.gguf", "pure")]
    os.chdir(FOLDER)
    for model, option in runs:
        for name, number in TYPES.items():
            with tempfile.NamedTemporaryFile() as out:
                arguments = [model, out.name, str(number), *([option] if option else [])]
                done = subprocess.run([*shlex.split(command), *arguments], capture_output=True)
                if done.returncode:
                    lines.append(f"{model} {option or '-'} {name} refused")
                    continue
                crc = zlib.crc32(Path(out.name).read_bytes())
                # gguf-py does not know the types of Q1_0 and Q2_0 files.
                tensors = [] if name in ("Q1_0", "Q2_0") else gguf.GGUFReader(out.name).tensors
                types = collections.Counter(tensor.tensor_type.name for tensor in tensors)
            counts = " ".join(f"{name}:{types[name]}" for name in sorted(types))
            lines.append(f"{model} {option or '-'} {name} {crc:08x} {counts}".rstrip())
    (FOLDER / "expected.txt").write_text("\n".join(lines) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--llama-quantize", required=True)
    command = parser.parse_args().llama_quantize
    model("model.gguf", 16, [256], 8, 2)
    model("odd.gguf", 2, [64, 288, 96, 40], 8, 8)
    model("experts.gguf", 2, [256], 8, 4, experts=8)
    importance()
    expected(command)


if __name__ == "__main__":
    main()
