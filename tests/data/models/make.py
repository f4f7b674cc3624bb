#!/usr/bin/env python3
"""Make the tiny models of this folder from their configs, and llama.cpp's results with them.

    make.py [PEER [NAME ...]]        needs numpy and gguf (both on PyPI)

Writes NAME.gguf for each NAME.json, or for those named, by make_tiny.py, whose fields it describes. Further fields: `keys` are metadata that
make_tiny.py does not know, `llama_cpp` is false for sizes that llama.cpp cannot compute with, `joined` stores matrices in one tensor, `rope_factors` are LongRoPE's.

With PEER, a program around llama.cpp, also writes NAME.expected:

    PEER generate MODEL IDS N --exact --gaps    prints the greedy ids and their leads, comma-separated, on two lines
    PEER logits MODEL IDS FILE --exact          writes the logits after the ids, little-endian f32

Both use an f32 cache, no flash attention and a context of 8192. NAME.expected holds `key: comma-separated numbers`, one a
line, with these keys:

    prompt         70 ids, so that the continuation crosses a page of the cache
    greedy         the 40 most probable ids after it, each fed back
    gaps           by how much each of them led the second best logit
    prompt_logits  the logits after the prompt
    end_logits     the logits after the prompt and the 40 ids

Of models that llama.cpp cannot compute, ../checkpoints/make.py writes NAME.expected, with what transformers computes.
Those that transformers has are then written anew by ../checkpoints/make.py, with its own logits beside these.
"""
import json, pathlib, subprocess, sys, tempfile
import numpy as np
import make_tiny

PROMPT = [(i * 7919 + 13) % 300 for i in range(70)]


def main():
    if "--help" in sys.argv:
        sys.exit(__doc__)
    peer, names = sys.argv[1] if len(sys.argv) > 1 else None, sys.argv[2:]
    for config in sorted(pathlib.Path(__file__).parent.glob("*.json")):
        if names and config.stem not in names:
            continue
        model = config.with_suffix(".gguf")
        write(config, model)
        if peer is None or not json.loads(config.read_text()).get("llama_cpp", True):
            continue
        prompt = join(PROMPT)
        command = [peer, "generate", model, prompt, "40", "--exact", "--gaps"]
        greedy, gaps = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
        lines = {
            "prompt": prompt,
            "greedy": greedy,
            "gaps": gaps,
            "prompt_logits": logits(peer, model, prompt),
            "end_logits": logits(peer, model, f"{prompt},{greedy}"),
        }
        config.with_suffix(".expected").write_text("".join(f"{k}: {v}\n" for k, v in lines.items()))


def write(config, model):
    known, separate = make_tiny.add_metadata, make_tiny.tensors

    def add_metadata(writer, config):
        known(writer, config)
        for key, value in config.get("keys", {}).items():
            add = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32}[type(value)]
            add(f"{config['arch']}.{key}", value)

    make_tiny.add_metadata = add_metadata
    tiny = json.loads(config.read_text())
    if tiny.get("joined"):
        factors = [(f"rope_factors_{kind}.weight", np.array(row, np.float32), False)
                   for kind, row in tiny.get("rope_factors", {}).items()]
        make_tiny.tensors = lambda config, seed: [*joined(separate(config, seed)), *factors]
    sys.argv = ["make_tiny.py", str(config), str(model)]
    make_tiny.main()
    make_tiny.add_metadata, make_tiny.tensors = known, separate


def joined(tensors):
    """Queries, keys and values in one tensor, and gate and up."""
    groups = {"attn_q": "attn_qkv", "attn_k": "attn_qkv", "attn_v": "attn_qkv", "ffn_gate": "ffn_up", "ffn_up": "ffn_up"}
    found = {}
    for name, x, matrix in tensors:
        layer, _, part = name.rpartition(".")[0].rpartition(".")
        found.setdefault(name.replace(part, groups.get(part, part)) if part else name, []).append((x, matrix))
    for name, parts in found.items():
        yield name, np.concatenate([x for x, _ in parts]), parts[0][1]


def logits(peer, model, ids):
    with tempfile.NamedTemporaryFile() as out:
        subprocess.run([peer, "logits", model, ids, out.name, "--exact"], check=True)
        return join(np.fromfile(out.name, "<f4"))


def join(numbers):
    return ",".join(str(n) for n in numbers)


if __name__ == "__main__":
    main()
