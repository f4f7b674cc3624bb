#!/usr/bin/env python3
"""From the grammar to a GGUF file: tokenizer, corpus, training, export.

    train.py tokenizer --work DIR                    DIR/tokenizer.json     (a minute on one core; needs tokenizers)
    train.py corpus    --work DIR --docs 3000000     DIR/corpus-*.npy       (needs numpy)
    train.py train     --work DIR --steps 6000       DIR/weights.npz        (one GPU; needs PyTorch)
    train.py export    --work DIR --out X.gguf --type q8_0|f32              (needs gguf)
    train.py held-out  --work DIR --out held_out.txt
"""
import argparse, json, math, os, re, sys, time
from dataclasses import asdict, dataclass
from multiprocessing import Pool

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import chats, stories

VOCAB = 4096
SPECIAL = (chats.END, chats.IM_START, chats.IM_END)                     # the last three ids
CONTEXT = 1024
# The pre-tokenizer that GGUF calls qwen2.
SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
TOKENIZER_SEED, CORPUS_SEED, HELD_OUT_SEED = 1_000_000, 2_000_000, 9_000_000
DOCS_A_BLOCK = 10_000                                                   # documents from one seed


@dataclass(frozen=True)
class Shape:
    hidden: int = 256
    layers: int = 6
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    ffn: int = 512
    rope_base: float = 10000.0
    eps: float = 1e-6


# ---------------------------------------------------------------- tokenizer
def train_tokenizer(args):
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(SPLIT), "isolated"),
                                                       pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    maker = chats.Maker(stories.Dice(TOKENIZER_SEED))

    def texts():
        for _ in range(args.docs):
            yield "".join(text.removeprefix(chats.IM_START) for text, _ in maker.document() if text not in SPECIAL)
    tokenizer.train_from_iterator(texts(), trainers.BpeTrainer(
        vocab_size=VOCAB - len(SPECIAL), initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    tokenizer.add_special_tokens(list(SPECIAL))
    assert tokenizer.get_vocab_size() == VOCAB, tokenizer.get_vocab_size()
    tokenizer.save(f"{args.work}/tokenizer.json")


# ---------------------------------------------------------------- corpus
LEARN, START = 1 << 15, 1 << 14          # flags above the id: counts in the loss; first of its document


def narrowed(document, only):
    """The document with nothing to learn but what matches `only`, which begins and ends where words do."""
    out = []
    for text, learn in document:
        end = 0
        for match in re.finditer(only, text) if learn else ():
            out += [(text[end:match.start()], False), (match[0], True)]
            end = match.end()
        out.append((text[end:], False))
    return [piece for piece in out if piece[0]]


def block(job):
    """One seed's documents as rows of CONTEXT ids with flags; a row holds whole documents."""
    from tokenizers import Tokenizer
    work, seed, count, only = job
    tokenizer = Tokenizer.from_file(f"{work}/tokenizer.json")
    tokenizer.encode_special_tokens = False
    maker = chats.Maker(stories.Dice(seed))
    texts, learn, ends = [], [], []
    for _ in range(count):
        document = maker.document()
        if only:
            document = narrowed(document, only)
            if not any(counts for _, counts in document):
                continue
        for text, counts in document:
            texts.append(text)
            learn.append(counts)
        ends.append(len(texts))
    encoded = [e.ids for e in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
    documents, begin = [], 0
    for end in ends:
        ids = np.array([i | (LEARN if learn[k] else 0) for k in range(begin, end) for i in encoded[k]], np.uint16)
        begin = end
        if len(ids) <= CONTEXT:
            ids[0] |= START
            documents.append(ids)
    documents.sort(key=len, reverse=True)
    rows, room = [], {}                  # best fit: room[n] are the rows with n places left
    for ids in documents:
        free = next((n for n in range(len(ids), CONTEXT + 1) if room.get(n)), None)
        row = room[free].pop() if free else []
        if not free:
            rows.append(row)
        row.append(ids)
        left = (free or CONTEXT) - len(ids)
        room.setdefault(left, []).append(row)
    out = np.full((len(rows), CONTEXT), VOCAB - 3 | START, np.uint16)
    order = np.random.default_rng(seed)
    for i, row in enumerate(rows):
        order.shuffle(row)
        ids = np.concatenate(row)
        out[i, :len(ids)] = ids
    return out


def make_corpus(args):
    jobs = [(args.work, CORPUS_SEED + args.from_block + done // DOCS_A_BLOCK, min(DOCS_A_BLOCK, args.docs - done), args.only)
            for done in range(0, args.docs, DOCS_A_BLOCK)]
    begun = time.time()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    with Pool(args.processes) as pool:
        rows = np.concatenate(pool.map(block, jobs, chunksize=1))
    if args.add:
        rows = np.concatenate((np.load(f"{args.work}/corpus.npy"), rows))
    np.save(f"{args.work}/corpus.npy", rows)
    print(f"{len(rows)} rows, {rows.size / 1e6:.0f} M tokens, {(rows != (VOCAB - 3 | START)).mean():.3f} filled, {time.time() - begun:.0f} s", flush=True)


# ---------------------------------------------------------------- model (Qwen3, dense)
def build(shape):
    import torch, torch.nn as nn, torch.nn.functional as F
    from torch.nn.attention.flex_attention import flex_attention

    class Norm(nn.Module):
        def __init__(self, n):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(n))

        def forward(self, x):
            return F.rms_norm(x.float(), (x.shape[-1],), self.weight, shape.eps).to(x.dtype)

    def rotate(x, cos, sin):                                            # pairs (i, i + n/2)
        a, b = x.chunk(2, -1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            h, d = shape.hidden, shape.head_dim
            self.attn_norm, self.ffn_norm, self.attn_q_norm, self.attn_k_norm = Norm(h), Norm(h), Norm(d), Norm(d)
            self.attn_q = nn.Linear(h, shape.heads * d, bias=False)
            self.attn_k = nn.Linear(h, shape.kv_heads * d, bias=False)
            self.attn_v = nn.Linear(h, shape.kv_heads * d, bias=False)
            self.attn_output = nn.Linear(shape.heads * d, h, bias=False)
            self.ffn_gate = nn.Linear(h, shape.ffn, bias=False)
            self.ffn_up = nn.Linear(h, shape.ffn, bias=False)
            self.ffn_down = nn.Linear(shape.ffn, h, bias=False)

        def forward(self, x, cos, sin, mask):
            b, t, _ = x.shape
            y = self.attn_norm(x)
            split = lambda z, n: z.view(b, t, n, shape.head_dim)
            q = rotate(self.attn_q_norm(split(self.attn_q(y), shape.heads)), cos, sin).transpose(1, 2)
            k = rotate(self.attn_k_norm(split(self.attn_k(y), shape.kv_heads)), cos, sin).transpose(1, 2)
            v = split(self.attn_v(y), shape.kv_heads).transpose(1, 2)
            if mask is None or torch.is_tensor(mask):
                y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None, enable_gqa=True)
            else:
                y = flex_attention(q, k, v, block_mask=mask, enable_gqa=True)
            x = x + self.attn_output(y.transpose(1, 2).reshape(b, t, -1))
            y = self.ffn_norm(x)
            return x + self.ffn_down(F.silu(self.ffn_gate(y)) * self.ffn_up(y))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.token_embd = nn.Embedding(VOCAB, shape.hidden)
            self.blk = nn.ModuleList(Layer() for _ in range(shape.layers))
            self.output_norm = Norm(shape.hidden)
            angle = torch.arange(CONTEXT)[:, None] * shape.rope_base ** (-torch.arange(0, shape.head_dim, 2) / shape.head_dim)
            self.register_buffer("cos", angle.cos()[:, None], persistent=False)
            self.register_buffer("sin", angle.sin()[:, None], persistent=False)
            for name, p in self.named_parameters():
                if p.dim() == 2:
                    nn.init.normal_(p, std=0.02 / (math.sqrt(2 * shape.layers) if "output" in name or "down" in name else 1))

        def forward(self, ids, mask=None):
            x = self.token_embd(ids)
            t = ids.shape[1]
            for layer in self.blk:
                x = layer(x, self.cos[:t], self.sin[:t], mask)
            return F.linear(self.output_norm(x), self.token_embd.weight)

    return Model()


def document_mask(flagged, sparse):
    """Attention within a document only, for flex_attention (sparse) or as a plain matrix."""
    import torch
    from torch.nn.attention.flex_attention import create_block_mask
    document = (flagged & START > 0).cumsum(1)
    if not sparse:
        t = torch.arange(flagged.shape[1], device=flagged.device)
        return (document[:, None, :, None] == document[:, None, None, :]) & (t[:, None] >= t)
    return create_block_mask(lambda b, h, q, k: (document[b, q] == document[b, k]) & (q >= k), flagged.shape[0], None, flagged.shape[1], flagged.shape[1],
                             device=flagged.device)


def loss_of(model, flagged, mask, summed=False):
    """Cross-entropy of the next token, where it belongs to the same document and is to be learnt."""
    import torch.nn.functional as F
    ids = (flagged & (START - 1)).long()
    target = ids[:, 1:].masked_fill((flagged[:, 1:] & LEARN == 0) | (flagged[:, 1:] & START > 0), -100)
    logits = model(ids, mask)[:, :-1]
    return F.cross_entropy(logits.float().flatten(0, 1), target.flatten(), ignore_index=-100, reduction="sum" if summed else "mean"), (target >= 0).sum()


def train(args):
    import torch
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    shape = Shape(layers=args.layers, ffn=args.ffn)
    rows = torch.from_numpy(np.load(f"{args.work}/corpus.npy").view(np.int16)).to(device)
    model = build(shape).to(device)
    if args.weights:
        stored = np.load(args.weights)
        model.load_state_dict({name: torch.from_numpy(stored[name]) for name in stored.files if name != "shape"})
    n = sum(p.numel() for p in model.parameters())
    matrices = [p for name, p in model.named_parameters() if p.dim() == 2 and "embd" not in name]
    others = [p for name, p in model.named_parameters() if p.dim() != 2 or "embd" in name]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}], lr=args.rate, betas=(0.9, 0.98), fused=device == "cuda")
    steps, batch = args.steps, args.batch
    order = torch.Generator().manual_seed(args.seed)
    picks = torch.cat([torch.randperm(len(rows), generator=order) for _ in range(math.ceil(steps * batch / len(rows)))])
    print(f"{n} weights, {len(rows)} rows, {steps} steps of {batch * CONTEXT} tokens, {steps * batch / len(rows):.2f} passes", flush=True)
    gpu = device == "cuda"
    step_loss = torch.compile(loss_of, dynamic=False) if gpu else loss_of
    begun = time.time()
    step = -1
    while (step := step + 1) < steps:
        if args.minutes and step in (50, 200):           # fit the steps into the time, once the speed is known
            if gpu:
                torch.cuda.synchronize()
            if step == 50:
                at_50 = time.time()
            else:
                steps = min(steps, int(args.minutes * 60 / (time.time() - at_50) * 150))
                print(f"{(time.time() - at_50) / 150 * 1000:.1f} ms a step; {steps} steps", flush=True)
        rate = args.rate * min(1, (step + 1) / args.warmup) * min(1, (steps - step) / (0.7 * steps))
        for group in optimizer.param_groups:
            group["lr"] = rate
        flagged = rows[picks[step * batch:(step + 1) * batch].to(device)].int() & 0xffff
        mask = None if args.dense else document_mask(flagged, sparse=gpu)
        with torch.autocast(device, torch.bfloat16, enabled=gpu):
            loss, _ = step_loss(model, flagged, mask)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % args.print_every == 0 or step == steps - 1:
            print(f"step {step}: loss {loss.item():.4f}, {time.time() - begun:.0f} s", flush=True)
    save(model, shape, args)
    report(model, args, device)


def save(model, shape, args):
    arrays = {name: p.detach().float().cpu().numpy() for name, p in model.named_parameters()}
    np.savez(f"{args.out or args.work + '/weights.npz'}", shape=json.dumps(asdict(shape)), **arrays)


def report(model, args, device):
    """Loss on stories from seeds that training never saw, beside the information in the grammar's choices."""
    import torch
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(f"{args.work}/tokenizer.json")
    model.eval()
    with torch.no_grad():
        apart = [(k.noun, t.noun) for k in stories.COMMON_KINDS for t in stories.COMMON_THINGS if stories.held_out(k.noun, t.noun)]
        count = 1000 if device == "cuda" else 4
        for what in ("any pair", f"the {len(apart)} pairs kept apart"):
            dice, nats, tokens = stories.Dice(HELD_OUT_SEED + 1), 0.0, 0
            for _ in range(count):
                hero, thing = (None, None) if what == "any pair" else dice.choice(apart)
                ids = tokenizer.encode(stories.tell(stories.Wanted(hero, thing), dice).text + chats.END).ids
                flagged = torch.tensor([[i | LEARN for i in ids]], device=device, dtype=torch.int)
                loss, n = loss_of(model, flagged, None, summed=True)
                nats, tokens = nats + loss.item(), tokens + n.item()
            print(f"unseen stories, {what}: {nats / count:.2f} nats a story (the grammar's choices: {dice.nats / count:.2f} at most), "
                  f"{nats / tokens:.4f} a token, {tokens / count:.0f} tokens")
        rows = torch.from_numpy(block((args.work, HELD_OUT_SEED + 2, 2000, None))[:512].astype(np.int32)).to(device)
        nats = tokens = 0
        for part in rows.split(8):
            loss, n = loss_of(model, part, document_mask(part, sparse=False), summed=True)
            nats, tokens = nats + loss.item(), tokens + n.item()
        print(f"unseen documents: {nats / tokens:.4f} nats a learnt token")
        for temperature in (0.0, 0.75):
            for prompt, text in zip(SAMPLES, sample(model, tokenizer, SAMPLES, temperature, device)):
                print(f"=== t={temperature} {prompt!r}\n{text}\n")


def ask(text):
    return f"{chats.IM_START}user\n{text}{chats.IM_END}\n{chats.IM_START}assistant\n"


FOX = "Tell me a story about a fox and a lantern"
SAMPLES = [ask(FOX), FOX, FOX + ".", FOX + "\n\n", ask("hello"), ask("Why is the sky blue?"), ask("A story about a wombat and a trombone, please"), ask("tell me a story about a robot who wants to see the sea"),
           ask("Write a story about a toaster and a photon"), ask("Tell me a bedtime story about an owl."), "Once upon a time", ask("Tell me a very short story about a cat and a key.")]


def sample(model, tokenizer, prompts, temperature, device, limit=360):
    """Continuations, without a cache: the model is small."""
    import torch
    generator = torch.Generator(device).manual_seed(7)
    stop = {tokenizer.token_to_id(chats.END), tokenizer.token_to_id(chats.IM_END)}
    out = []
    for prompt in prompts:
        ids = tokenizer.encode(prompt).ids
        begin = len(ids)
        while len(ids) < begin + limit:
            logits = model(torch.tensor([ids], device=device))[0, -1].float()
            if temperature:
                token = torch.multinomial((logits / temperature).softmax(-1), 1, generator=generator).item()
            else:
                token = logits.argmax().item()
            if token in stop:
                break
            ids.append(token)
        out.append(tokenizer.decode(ids[begin:]) + ("" if token in stop else " [cut]"))
    return out


# ---------------------------------------------------------------- export
def export(args):
    import gguf
    stored = np.load(args.weights or f"{args.work}/weights.npz")
    shape = Shape(**json.loads(str(stored["shape"])))
    tokenizer = json.load(open(f"{args.work}/tokenizer.json"))
    kind = gguf.GGMLQuantizationType[args.type.upper()]
    w = gguf.GGUFWriter(args.out, "qwen3")
    w.add_type("model")
    w.add_name("Storyteller")
    w.add_description("A very small model that tells little stories, trained on stories from a grammar; made with and for inkstone's quick start and tests.")
    w.add_license("MIT OR Apache-2.0")
    w.add_languages(["en"])
    w.add_size_label(f"{sum(v.size for k, v in stored.items() if k != 'shape') / 1e6:.1f}M")
    w.add_file_type(gguf.LlamaFileType.ALL_F32 if args.type == "f32" else gguf.LlamaFileType.MOSTLY_Q8_0)
    w.add_quantization_version(gguf.GGML_QUANT_VERSION)
    w.add_block_count(shape.layers)
    w.add_context_length(CONTEXT)
    w.add_embedding_length(shape.hidden)
    w.add_feed_forward_length(shape.ffn)
    w.add_vocab_size(VOCAB)
    w.add_head_count(shape.heads)
    w.add_head_count_kv(shape.kv_heads)
    w.add_key_length(shape.head_dim)
    w.add_value_length(shape.head_dim)
    w.add_layer_norm_rms_eps(shape.eps)
    w.add_rope_freq_base(shape.rope_base)
    ids = tokenizer["model"]["vocab"]
    tokens = sorted(ids, key=ids.get) + list(SPECIAL)
    assert len(tokens) == VOCAB and [ids[t] for t in tokens[:-3]] == list(range(VOCAB - 3))
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("qwen2")
    w.add_token_list(tokens)
    w.add_token_types([gguf.TokenType.NORMAL] * (VOCAB - 3) + [gguf.TokenType.CONTROL] * 3)
    w.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in tokenizer["model"]["merges"]])
    end, _, im_end = range(VOCAB - 3, VOCAB)
    w.add_bos_token_id(end)
    w.add_eos_token_id(im_end)
    w.add_eot_token_id(im_end)
    w.add_pad_token_id(end)
    w.add_add_bos_token(False)
    w.add_chat_template(chats.CHAT_TEMPLATE)
    for name in stored.files:
        if name == "shape":
            continue
        x = np.ascontiguousarray(stored[name], np.float32)
        if x.ndim == 1 or args.type == "f32":
            w.add_tensor(name, x)
        else:
            w.add_tensor(name, gguf.quants.quantize(x, kind), raw_dtype=kind)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    print(f"{args.out}: {os.path.getsize(args.out)} bytes")


def write_held_out(args):
    """Stories from a seed that training never saw."""
    dice, parts, size = stories.Dice(HELD_OUT_SEED), [], 0
    while size < args.bytes:
        parts.append(stories.tell(stories.Wanted(), dice).text + "\n")
        size += len(parts[-1]) + 1
    with open(args.out, "w") as f:
        f.write("\n".join(parts))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("command", choices=("tokenizer", "corpus", "train", "export", "held-out"))
    p.add_argument("--work", default="work", help="folder for everything in between")
    p.add_argument("--out", help="export, held-out: the file to write; train: the weights, if not WORK/weights.npz")
    p.add_argument("--docs", type=int, help="tokenizer: 60000; corpus: 3000000")
    p.add_argument("--from-block", type=int, default=0, help="corpus: skip so many seeds")
    p.add_argument("--only", help="corpus: keep the documents that match this expression, and learn only what matches")
    p.add_argument("--add", action="store_true", help="corpus: add to the one there is")
    p.add_argument("--processes", type=int, default=os.cpu_count())
    p.add_argument("--steps", type=int, default=6000)
    p.add_argument("--minutes", type=float, help="train: at most this long, with fewer steps if need be")
    p.add_argument("--dense", action="store_true", help="train: plain causal attention over whole rows, where flex_attention does not work")
    p.add_argument("--batch", type=int, default=128, help="rows a step")
    p.add_argument("--rate", type=float, default=3e-3)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--layers", type=int, default=Shape.layers)
    p.add_argument("--ffn", type=int, default=Shape.ffn)
    p.add_argument("--weights", help="export: the weights, if not WORK/weights.npz; train: where to go on from")
    p.add_argument("--print-every", type=int, default=250)
    p.add_argument("--warmup", type=int, default=300)
    p.add_argument("--type", choices=("f32", "q8_0"), default="q8_0")
    p.add_argument("--bytes", type=int, default=24000, help="held-out: the size to reach")
    args = p.parse_args()
    os.makedirs(args.work, exist_ok=True)
    args.docs = args.docs or (60000 if args.command == "tokenizer" else 3_000_000)
    {"tokenizer": train_tokenizer, "corpus": make_corpus, "train": train, "export": export, "held-out": write_held_out}[args.command](args)


if __name__ == "__main__":
    main()
