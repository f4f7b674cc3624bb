#!/usr/bin/env python3
"""From the pictures to a pair of GGUF files: tokenizer, training, export.

    train.py tokenizer --work DIR                    DIR/tokenizer.json     (needs tokenizers)
    train.py train     --work DIR --minutes 8        DIR/vision.npz, DIR/text.npz   (a GPU; needs PyTorch)
    train.py measure   --work DIR                    the share of right answers
    train.py export    --work DIR --out DIR2         DIR2/seer.gguf and DIR2/mmproj-seer.gguf (needs gguf)
"""
import argparse, json, os, sys, time
from collections import Counter
from dataclasses import asdict

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import chats, pictures

TOKENIZER_SEED, MEASURE_SEED = 1, 2      # training takes seeds from 3; all of them far below pictures.HELD_OUT_SEED
# The pre-tokenizer that GGUF calls qwen2.
SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
VOCAB = 512
PARTS = ("vision", "text")              # the weights: DIR/vision.npz and DIR/text.npz


# ---------------------------------------------------------------- tokenizer
def train_tokenizer(args):
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(SPLIT), "isolated"),
                                                       pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    dice = pictures.Dice(TOKENIZER_SEED)

    def texts():
        for _ in range(20_000):
            scenes = [pictures.scene_of(dice, 320, 320, dice.between(1, 5)) for _ in range(2)]
            for piece in chats.conversation(scenes[:dice.between(1, 2)], dice):
                text = piece.text or ""
                for special in chats.SPECIAL:
                    text = text.replace(special, "")
                yield text
    size = VOCAB - len(chats.SPECIAL)
    tokenizer.train_from_iterator(texts(), trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    unused = [f"[unused{i}]" for i in range(tokenizer.get_vocab_size(), size)]
    tokenizer.add_tokens(unused)
    tokenizer.add_special_tokens(list(chats.SPECIAL))
    assert tokenizer.get_vocab_size() == VOCAB, tokenizer.get_vocab_size()
    tokenizer.save(f"{args.work}/tokenizer.json")
    print(f"{VOCAB} tokens, {len(unused)} of them unused")


# ---------------------------------------------------------------- training
RANK, WORLD = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))       # torchrun: a process for each GPU


def batches_of(args, seed, easy=0, rank=0, world=1):
    import torch
    from batches import Batches
    pages = Batches(f"{args.work}/tokenizer.json", args.batch, seed, easy, rank, world)
    return iter(torch.utils.data.DataLoader(pages, batch_size=None, num_workers=args.processes,
                                            prefetch_factor=6 if args.processes else None))


def start_device():
    """The device of this process; with several processes, joins them."""
    import torch
    gpu = torch.cuda.is_available()
    if gpu:
        torch.cuda.set_device(RANK)
    if WORLD > 1:
        torch.distributed.init_process_group("nccl" if gpu else "gloo")
    return "cuda" if gpu else "cpu"


def share_gradients(model):
    """Replaces the gradients by their means over all processes."""
    import torch
    from torch.nn.utils import parameters_to_vector, vector_to_parameters
    gradients = [p.grad for p in model.parameters()]
    flat = parameters_to_vector(gradients)
    torch.distributed.all_reduce(flat)
    vector_to_parameters(flat / WORLD, gradients)


def run_model(model, screen, batch, device):
    """Logits that predict `learnt`, and `learnt`, one row per position."""
    import torch
    with torch.no_grad():
        batch = {k: v.to(device, non_blocking=True) if torch.is_tensor(v) else v for k, v in batch.items()}
        pixels = screen.pixels(batch)
    with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
        logits = model(batch["ids"], batch["positions"], pixels, batch["at"])
    return logits[:, :-1].float(), batch["learnt"][:, 1:], batch["kinds"][:, 1:]


def optimizer_of(model, args, device):
    import torch
    matrix = lambda name, p: p.dim() >= 2 and "embd" not in name
    matrices = [p for name, p in model.named_parameters() if matrix(name, p)]
    others = [p for name, p in model.named_parameters() if not matrix(name, p)]
    return torch.optim.AdamW([dict(params=matrices, weight_decay=0.05), dict(params=others, weight_decay=0.0)],
                             lr=args.rate, betas=(0.9, 0.98), fused=device == "cuda")


def train(args):
    import torch, torch.nn.functional as F
    from batches import NOT_LEARNT, Screen
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    device = start_device()
    model, screen = load(args.weights, device), Screen(device)
    optimizer = optimizer_of(model, args, device)
    print(f"{sum(p.numel() for p in model.parameters())} weights, {sum(p.numel() for p in model.v.parameters())} to see", flush=True)
    begun, step, losses = time.time(), 0, []
    for batch in batches_of(args, args.seed, args.easy, RANK, WORLD):
        progress = step / args.steps if args.steps else (time.time() - begun) / (60 * args.minutes)
        if stopped(progress >= 1, step, device):
            break
        for group in optimizer.param_groups:
            group["lr"] = args.rate * min(1, (step + 1) / args.warmup, max(0, 1 - progress) / args.decay)
        logits, learnt, _ = run_model(model, screen, batch, device)
        loss = F.cross_entropy(logits.flatten(0, 1), learnt.flatten(), ignore_index=NOT_LEARNT)
        loss.backward()
        if WORLD > 1:
            share_gradients(model)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.detach())
        step += 1
        if step % args.print_every == 0 and RANK == 0:
            print(f"step {step}: loss {torch.stack(losses).mean():.4f}, {time.time() - begun:.0f} s", flush=True)
            losses = []
    if RANK == 0:
        print(f"{step} steps of {args.batch * WORLD} pictures", flush=True)
        save(model, args.work)
        measure_model(model, screen, args, device)


def stopped(own, step, device):
    """Whether the time is up, by the first process's clock; asked every 20 steps where there are several."""
    import torch
    if WORLD == 1:
        return own
    if step % 20:
        return False
    flag = torch.tensor([int(own)], device=device)
    torch.distributed.broadcast(flag, 0)
    return bool(flag.item())


def save(model, work):
    """Writes the weights; in two files, for the two GGUF files they become."""
    arrays = {name: p.detach().float().cpu().numpy() for name, p in model.named_parameters()}
    for part in PARTS:
        np.savez(f"{work}/{part}.npz", shape=json.dumps(asdict(model.s)),
                 **{name: x for name, x in arrays.items() if name.startswith(("v.", "mm.")) == (part == "vision")})


def measure_model(model, screen, args, device, count=24):
    """The share of answers whose every token is the likeliest: those that greedy decoding gets wholly right."""
    import torch
    from batches import KINDS, NOT_LEARNT
    right, asked, pages = Counter(), Counter(), batches_of(args, MEASURE_SEED)
    with torch.no_grad():
        for _ in range(count):
            logits, learnt, kinds = run_model(model, screen, next(pages), device)
            good = ((logits.argmax(-1) == learnt) | (learnt == NOT_LEARNT)).cpu().numpy()
            for row, kind in zip(good, kinds.cpu().numpy()):
                edges = np.flatnonzero(np.diff(kind, prepend=0, append=0))
                for begin, end in zip(edges[:-1], edges[1:]):
                    if kind[begin]:
                        asked[KINDS[kind[begin] - 1]] += 1
                        right[KINDS[kind[begin] - 1]] += bool(row[begin:end].all())
    for kind in KINDS:
        print(f"{kind}: {right[kind]} of {asked[kind]} right, {100 * right[kind] / max(1, asked[kind]):.2f} %", flush=True)


def load(work, device):
    """The model with the weights of a folder, or with random weights."""
    import torch
    from model import Seer
    model = Seer()
    if work:
        stored = [np.load(f"{work}/{part}.npz") for part in PARTS]
        model.load_state_dict({name: torch.from_numpy(s[name]) for s in stored for name in s.files if name != "shape"})
    return model.to(device)


def measure(args):
    from batches import Screen
    device = start_device()
    measure_model(load(args.work, device), Screen(device), args, device)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("command", choices=("tokenizer", "train", "measure", "export"))
    p.add_argument("--work", default="work", help="the folder for everything in between")
    p.add_argument("--out", default=".", help="export: the folder to write to")
    p.add_argument("--type", default="q8_0", choices=("q8_0", "f32"), help="export: the type of the matrices")
    p.add_argument("--processes", type=int, default=max(1, (os.cpu_count() or 2) - 2))
    p.add_argument("--minutes", type=float, default=9, help="train: stop then, the rate having fallen to zero")
    p.add_argument("--steps", type=int, help="train: stop after these steps instead")
    p.add_argument("--weights", help="train: the folder whose weights to begin with")
    p.add_argument("--batch", type=int, default=128, help="pictures a step, in each process")
    p.add_argument("--rate", type=float, default=1.5e-3)
    p.add_argument("--warmup", type=int, default=500)
    p.add_argument("--decay", type=float, default=0.6, help="train: the last share of the time, in which the rate falls")
    p.add_argument("--easy", type=int, default=2000, help="train: steps until pictures show 1 to 5 shapes and not 1 or 2")
    p.add_argument("--seed", type=int, default=3)
    p.add_argument("--print-every", type=int, default=200)
    args = p.parse_args()
    os.makedirs(args.work, exist_ok=True)
    if args.command == "export":
        from export import export
        return export(args)
    {"tokenizer": train_tokenizer, "train": train, "measure": measure}[args.command](args)


if __name__ == "__main__":
    main()
