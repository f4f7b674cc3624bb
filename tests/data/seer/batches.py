"""Batches for training: conversations as ids and positions, and their pictures drawn on the device."""
import re
from functools import lru_cache

import numpy as np
import torch

import chats, pictures

NOT_LEARNT = -100
KINDS = ("describe", *(ask.__name__ for ask in chats.sentences.KINDS), "first or second", "greeting", "no picture")
# The pre-tokenizer that GGUF calls qwen2, for the characters that occur here.
WORDS = re.compile(r"'(?:s|t|re|ve|m|ll|d)| ?[A-Za-z]+|[0-9]| ?[^\sA-Za-z0-9]+\n*|\s*\n+|\s+(?!\S)|\s+")


class Words:
    """Splits text into ids with the tokenizer.json at a path; remembers words, which do not depend on each other."""

    def __init__(self, path):
        from tokenizers import Tokenizer
        self.tokenizer = Tokenizer.from_file(path)
        self.special = {text: self.tokenizer.token_to_id(text) for text in chats.SPECIAL}
        self.pieces = re.compile("(" + "|".join(map(re.escape, chats.SPECIAL)) + ")")
        self.word = lru_cache(None)(lambda word: self.tokenizer.encode(word, add_special_tokens=False).ids)

    def ids(self, text):
        out = []
        for part in self.pieces.split(text):
            if part in self.special:
                out.append(self.special[part])
            else:
                for word in WORDS.findall(part):
                    out += self.word(word)
        return out


def encode(words, pieces, rows, columns):
    """Ids, positions, learnt ids (or NOT_LEARNT), kinds of question, and the place where each picture's rows begin."""
    ids, positions, learnt, kinds, begins, p = [], [], [], [], {}, 0
    image = words.special[chats.IMAGE]
    for piece in pieces:
        if piece.picture is not None:
            begins[piece.picture] = len(ids)
            ids += [image] * (rows * columns)
            positions += [(p, p + r, p + c) for r in range(rows) for c in range(columns)]
            learnt += [NOT_LEARNT] * (rows * columns)
            p += max(rows, columns)
        else:
            new = words.ids(piece.text)
            ids += new
            positions += [(p + i,) * 3 for i in range(len(new))]
            learnt += new if piece.what else [NOT_LEARNT] * len(new)
            p += len(new)
        kinds += [(KINDS.index(piece.what) + 1) if piece.what else 0] * (len(ids) - len(kinds))
    return ids, positions, learnt, kinds, begins


def fitted(side):
    """The multiple of 32 that a side is resized to."""
    return max(32, int(side / 32 + 0.5) * 32)


class Batches(torch.utils.data.IterableDataset):
    """Endless batches: pictures of one size a batch. Batch i depends on `seed` and i alone.

    In the first `easy` batches many pictures show one or two things only, to learn their names.
    Of `world` processes that train together, the one of number `rank` takes every `world`-th batch.
    """

    def __init__(self, tokenizer, size, seed, easy=0, rank=0, world=1):
        self.tokenizer, self.size, self.seed, self.easy, self.rank, self.world = tokenizer, size, seed, easy, rank, world

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        first, step = (info.id, info.num_workers) if info else (0, 1)
        words, i = Words(self.tokenizer), first
        while True:
            yield self.batch(words, i * self.world + self.rank)
            i += step

    def batch(self, words, index):
        dice = pictures.Dice((self.seed << 20) + index)
        width, height = pictures.size_of(dice)
        each = 2 if dice.percent(12) else 1
        counts = (1, 2) if dice.between(0, self.easy) > index else (1, 2, 3, 3, 4, 4, 5, 5)
        rows, columns = fitted(height) // 32, fitted(width) // 32
        talks, scenes = [], []
        for _ in range(self.size // each):
            own = [pictures.scene_of(dice, width, height, dice.choice(counts)) for _ in range(each)]
            talks.append(encode(words, chats.conversation(own, dice), rows, columns))
            scenes += own
        out = padded(talks, each, rows * columns, words.special[chats.END])
        out.update(things_of(scenes), width=width, height=height, letterbox=dice.percent(12),
                   noise=dice.between(0, 5) if dice.percent(25) else 0)
        return out


def padded(talks, each, count, end):
    """Conversations as tensors of equal length, at least one padding token last: rows of pictures not shown go there."""
    length = (max(len(talk[0]) for talk in talks) + 8) // 8 * 8
    ids = np.full((len(talks), length), end, np.int64)
    learnt, kinds = np.full_like(ids, NOT_LEARNT), np.zeros_like(ids)
    positions = np.zeros((*ids.shape, 3), np.int64)
    at = np.full((len(talks), each, count), length - 1, np.int64)
    for i, (own_ids, own_positions, own_learnt, own_kinds, begins) in enumerate(talks):
        n = len(own_ids)
        ids[i, :n], positions[i, :n], learnt[i, :n], kinds[i, :n] = own_ids, own_positions, own_learnt, own_kinds
        for picture, begin in begins.items():
            at[i, picture] = np.arange(begin, begin + count)
    return {k: torch.from_numpy(v) for k, v in dict(ids=ids, learnt=learnt, kinds=kinds, positions=positions,
                                                    at=at.reshape(len(talks), -1)).items()}


def things_of(scenes):
    """(scenes, 5, 6) shape and radius as one number, x, y, red, green, blue; and (scenes, 4, 3) background tones."""
    things = np.full((len(scenes), 5, 6), -1, np.int64)
    for scene, rows in zip(scenes, things):
        for t, row in zip(scene.things, rows):
            row[:] = mask_number(t.shape, t.radius), t.x, t.y, *t.rgb
    tones = np.array([scene.tones for scene in scenes], np.float32)
    return dict(things=torch.from_numpy(things), tones=torch.from_numpy(tones))


# ---------------------------------------------------------------- pictures on the device
SMALLEST, LARGEST = pictures.RADII
SIDE = 2 * LARGEST + 1


def mask_number(shape, radius):
    return pictures.SHAPES.index(shape) * (LARGEST - SMALLEST + 1) + radius - SMALLEST


def cubic(x):
    x = abs(x)
    return (1.5 * x - 2.5) * x * x + 1 if x < 1 else ((-0.5 * x + 2.5) * x - 4) * x + 2 if x < 2 else 0.0


@lru_cache(None)
def bicubic(size, new):
    """(new, size) weights of Pillow's bicubic resize."""
    out, scale = np.zeros((new, size)), size / new
    wide = max(scale, 1.0)
    for i, row in enumerate(out):
        centre = (i + 0.5) * scale
        low, high = max(0, int(centre - 2 * wide + 0.5)), min(size, int(centre + 2 * wide + 0.5))
        row[low:high] = [cubic((j - centre + 0.5) / wide) for j in range(low, high)]
        row /= row.sum()
    return torch.from_numpy(out.astype(np.float32))


class Screen:
    """Draws and resizes the pictures of a batch."""

    def __init__(self, device):
        masks = torch.zeros(len(pictures.SHAPES) * (LARGEST - SMALLEST + 1), SIDE, SIDE, dtype=torch.bool)
        for shape in pictures.SHAPES:
            for radius in range(SMALLEST, LARGEST + 1):
                inner = slice(LARGEST - radius, LARGEST + radius + 1)
                masks[mask_number(shape, radius), inner, inner] = torch.from_numpy(pictures.mask(shape, radius))
        self.masks, self.device = masks.flatten().to(device), device

    def draw(self, things, tones, width, height):
        """(pictures, 3, height, width) values from 0 to 255."""
        quarter = torch.bucketize(torch.arange(height), torch.tensor([height * q // 4 for q in (1, 2, 3)]), right=True)
        out = tones.transpose(1, 2)[:, :, quarter.to(self.device), None].expand(-1, -1, -1, width).contiguous()
        y = torch.arange(height, device=self.device, dtype=torch.int32)[None, :, None] + LARGEST
        x = torch.arange(width, device=self.device, dtype=torch.int32)[None, None, :] + LARGEST
        for mask, cx, cy, *rgb in things.int().permute(1, 2, 0)[:, :, :, None, None]:
            dy, dx = y - cy, x - cx
            near = (dy >= 0) & (dy < SIDE) & (dx >= 0) & (dx < SIDE) & (mask >= 0)
            inside = near & self.masks[torch.where(near, (mask * SIDE + dy) * SIDE + dx, 0)]
            out = torch.where(inside[:, None], torch.stack(rgb, 1).float(), out)
        return out

    def resize(self, x, width, height):
        """Columns, then rows, each rounded to whole values."""
        for axis, size in ((3, width), (2, height)):
            if x.shape[axis] != size:
                weights = bicubic(x.shape[axis], size).to(self.device)
                x = (x @ weights.T if axis == 3 else weights @ x).round().clamp(0, 255)
        return x

    def pixels(self, batch):
        """Normalised pixels at the size that the encoder takes: stretched, now and then letterboxed on black."""
        width, height = batch["width"], batch["height"]
        x = self.draw(batch["things"], batch["tones"], width, height)
        to_width, to_height = fitted(width), fitted(height)
        if batch["letterbox"]:
            scale = min(to_width / width, to_height / height)
            x = self.resize(x, *(min(int(-(-side * scale // 1)), to) for side, to in ((width, to_width), (height, to_height))))
            left, top = (to_width - x.shape[3]) // 2, (to_height - x.shape[2]) // 2
            x = torch.nn.functional.pad(x, (left, to_width - x.shape[3] - left, top, to_height - x.shape[2] - top))
        x = self.resize(x, to_width, to_height)
        if batch["noise"]:
            x = (x + torch.randn_like(x) * batch["noise"]).round().clamp(0, 255)
        return (x / 255 - 0.5) / 0.5
