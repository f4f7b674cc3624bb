#!/usr/bin/env python3
"""Write five small vocabularies and what other programs make of some texts with them.

    pip install gguf sentencepiece tokenizers && python make.py PEER

bpe.gguf, bpe.json   byte-level BPE (qwen2's pre-tokenizer) trained by `tokenizers`, as GGUF (with ../chat/chatml.jinja) and as tokenizer.json
spm.gguf             SentencePiece BPE with byte fallback and a space prefix, trained by `sentencepiece`
gemma.gguf           characters, spaces spelt as SentencePiece does, and merges, as Gemma 4 has them, trained by `tokenizers`
marks.gguf           byte-level BPE (qwen35's pre-tokenizer) whose only merges join a letter and a mark
bert.gguf, bert.json WordPiece with BERT's normalizer, trained by `tokenizers`, as GGUF and as tokenizer.json
bpe.jsonl, spm.jsonl, gemma.jsonl, marks.jsonl, bert.jsonl
                     one line a text: `text`, `ids` (marks are text), `ids_special` (marks are tokens)

PEER is a program that runs llama.cpp's tokenizer: `PEER tokenize MODEL`, a JSON string a line in, `ids` and `ids_special`
out. Its ids are checked against those of the two trainers; differences are printed. There is one: where a text begins with
a user-defined token, SentencePiece puts its space before the token and llama.cpp after it. (Of four newlines, `tokenizers` makes three and one
where they are added tokens; llama.cpp asks the merges.) Of bert.jsonl the ids are the trainer's, with its `text` of them too: llama.cpp drops more marks,
does not take Hangul apart, and knows words of any length.
"""
import io
import json
import pathlib
import subprocess
import sys

import gguf
import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = pathlib.Path(__file__).parent
CORPUS = """A fox found a lantern in the snow. "Whose light is this?" she asked. It's mine, said the owl; I've lost it, and we'll
look for its owner tomorrow. They walked 12 miles in 2024, past 3 hills and 45 trees, and didn't stop.
Der Fuchs fand eine Laterne im Schnee. Le renard a trouvé une lanterne dans la neige, près de l'été où naît l'œuvre.
Лиса нашла фонарь в снегу. 狐は雪の中でランタンを見つけた。 狐狸在雪中找到了一盏灯笼。 여우가 눈 속에서 등불을 찾았다.
def light(lantern):\n    if lantern.lit:\n        return True\n\n    return not lantern.lit  # 100% sure\n
The fox, the owl and the lantern went home, and the light of the lantern was in the windows of the house in the night.
"""
TEXTS = [
    "", " ", "  ", "   x", "\n", "\n\n  \n x", "\t tab\ttab", "trailing  ", "  leading", "Hello, world!", "the fox and the lantern",
    "It's I'VE we'LL DON'T x'y 'sun", "1 12 123 1234 12345 3.14159 ½ ² 四 ٣٤", "Ünïcödé ñ œuvre été", "e\u0301 combining, ſtrange K",
    "Лиса нашла фонарь", "狐は雪の中で。狐狸在雪中", "여우가 눈 속에서", "🦊🏮 👩‍👩‍👧 🇳🇴", "mixed狐fox🦊Лиса123", "def f(x):\n    return x\r\n\r\n\tpass",
    "a  b   c    d     e", "\u00a0nbsp\u3000ideographic\u2003em\u200bzero", "\u2581already\u2581marked \u2581", "\u0001\u001f\u007f control",
    "<|im_start|>user\nHi<|im_end|>", "<|im_end|><|im_end|>", "a<|im_end|>b <|im_end|> c", "<think> thought </think>", "<|im_en", "<s>x</s>",
    "<unk>", "<0x41>", "  <|im_end|>  x", "!!!???...,,,", "((([[[{{{}}}]]])))", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "x" * 300,
    " \n \n ", "end\n", "\r\n", "''''s", "'S 'T 'Re", "C:\\path\\to/file.txt?query=1&x=y#z", "https://example.org/狐", "\ufeffBOM", "\ufffd",
]
BERT = ["İstanbul ǅungla ﬁ ΣΑΣ", "x" * 100, "x" * 101, "狐fox狸", "a\u0903 \u20dd नमस्ते", "[CLS] fox [SEP]", "[MASK]s [UNK]", "fox##es", "\u0378\ue000\u00ad"]
MARKED = ["ae\u0301", "1\u0301 e\u0301", " e\u0301\u0301a", ".\u0301. \u0301x", "\u0301\u0301", "नमस्ते", "ภาษาไทยที่", "e\u0301'Se\u0301"]
QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
MARKS, USER_DEFINED = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], ["<think>", "</think>"]
TYPE = gguf.TokenType


def train_bpe():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(QWEN2), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(CORPUS.splitlines(True), trainers.BpeTrainer(vocab_size=600, initial_alphabet=alphabet, show_progress=False))
    tokenizer.add_special_tokens(MARKS)
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in USER_DEFINED])
    return tokenizer


def write_bpe(tokenizer):
    tokenizer.save(str(HERE / "bpe.json"), pretty=False)
    model = json.loads((HERE / "bpe.json").read_text())["model"]
    size = tokenizer.get_vocab_size()
    tokens = [tokenizer.id_to_token(i) for i in range(size)]
    types = [TYPE.CONTROL if t in MARKS else TYPE.USER_DEFINED if t in USER_DEFINED else TYPE.NORMAL for t in tokens]
    w = gguf.GGUFWriter(HERE / "bpe.gguf", "qwen3")
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("qwen2")
    w.add_token_list(tokens)
    w.add_token_types(types)
    w.add_token_merges([" ".join(pair) for pair in model["merges"]])
    w.add_eos_token_id(tokens.index("<|im_end|>"))
    w.add_bos_token_id(tokens.index("<|endoftext|>"))
    w.add_add_bos_token(False)
    w.add_chat_template((HERE.parent / "chat" / "chatml.jinja").read_text(encoding="utf-8"))
    close(w)


def write_marks():
    byte = bytes_to_unicode()
    spelt = lambda text: "".join(byte[b] for b in text.encode())
    merges = [[spelt("\u0301")[0], spelt("\u0301")[1]], ["e", spelt("\u0301")], ["a", spelt("e\u0301")], ["1", spelt("\u0301")], [".", spelt("\u0301")]]
    tokens = [byte[b] for b in range(256)] + ["".join(pair) for pair in merges]
    w = gguf.GGUFWriter(HERE / "marks.gguf", "qwen35")
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("qwen35")
    w.add_token_list(tokens)
    w.add_token_types([TYPE.NORMAL] * len(tokens))
    w.add_token_merges([" ".join(pair) for pair in merges])
    w.add_eos_token_id(0)
    close(w)


def bytes_to_unicode():
    """GPT-2's letter for each byte."""
    shown = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    hidden = [b for b in range(256) if b not in shown]
    return {**{b: chr(b) for b in shown}, **{b: chr(256 + i) for i, b in enumerate(hidden)}}


def train_spm():
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS.splitlines()), model_writer=model, model_type="bpe", vocab_size=560, byte_fallback=True,
        character_coverage=0.98, normalization_rule_name="identity", remove_extra_whitespaces=False, add_dummy_prefix=True,
        control_symbols=["<|im_start|>", "<|im_end|>"], user_defined_symbols=USER_DEFINED, minloglevel=2)
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def write_spm(sp):
    w = gguf.GGUFWriter(HERE / "spm.gguf", "llama")
    w.add_tokenizer_model("llama")
    w.add_tokenizer_pre("default")
    kind = lambda i: (TYPE.UNKNOWN if sp.is_unknown(i) else TYPE.CONTROL if sp.is_control(i) else TYPE.BYTE if sp.is_byte(i)
                      else TYPE.USER_DEFINED if sp.id_to_piece(i) in USER_DEFINED else TYPE.NORMAL)
    size = sp.get_piece_size()
    w.add_token_list([sp.id_to_piece(i) for i in range(size)])
    w.add_token_scores([sp.get_score(i) for i in range(size)])
    w.add_token_types([kind(i) for i in range(size)])
    w.add_bos_token_id(sp.bos_id())
    w.add_eos_token_id(sp.eos_id())
    w.add_unk_token_id(sp.unk_id())
    close(w)


def train_gemma():
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    tokenizer.pre_tokenizer = pre_tokenizers.Split("\u2581", "merged_with_next")
    names = ["<pad>", "<eos>", "<bos>", "<unk>", "<|turn>", "<turn|>", *[f"<0x{byte:02X}>" for byte in range(256)]]
    lines = CORPUS.replace("\n", " ").split(". ")
    tokenizer.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=560, special_tokens=names, show_progress=False))
    model = json.loads(tokenizer.to_str())["model"]
    # Of the newlines, no merges make three; and one merge would make a mark.
    tokens = [*sorted(model["vocab"], key=model["vocab"].get), "\n", "\n\n", "\n\n\n", "<", ">", "<e", "<eo", "s>"]
    model["merges"] += [["\n", "\n"], ["<", "e"], ["<e", "o"], ["s", ">"], ["<eo", "s>"]]
    return {text: i for i, text in enumerate(dict.fromkeys(tokens))}, model["merges"], names


def gemma_oracle(vocab, merges, names):
    pairs = [tuple(pair) for pair in merges if "".join(pair) not in names]
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=pairs, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in ["\n\n\n", "\n\n", "\n"]])
    tokenizer.add_special_tokens(names[:6])
    return tokenizer


def write_gemma(vocab, merges, names):
    w = gguf.GGUFWriter(HERE / "gemma.gguf", "gemma4")
    w.add_tokenizer_model("gemma4")
    w.add_token_list(list(vocab))
    kinds = {"<unk>": TYPE.UNKNOWN, **dict.fromkeys(names[6:], TYPE.BYTE)}
    w.add_token_types([kinds.get(text, TYPE.CONTROL if text in names else TYPE.NORMAL) for text in vocab])
    w.add_token_merges([" ".join(pair) for pair in merges])
    w.add_bos_token_id(vocab["<bos>"])
    w.add_eos_token_id(vocab["<eos>"])
    w.add_unk_token_id(vocab["<unk>"])
    w.add_add_bos_token(False)
    close(w)


def train_bert():
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=260, special_tokens=names, show_progress=False)
    tokenizer.train_from_iterator(CORPUS.splitlines(), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    tokenizer.decoder = decoders.WordPiece(cleanup=False)
    return tokenizer, names


def write_bert(tokenizer, names):
    tokenizer.save(str(HERE / "bert.json"), pretty=False)
    w = gguf.GGUFWriter(HERE / "bert.gguf", "bert")
    w.add_tokenizer_model("bert")
    w.add_tokenizer_pre("jina-v2-en")
    tokens = [tokenizer.id_to_token(i) for i in range(tokenizer.get_vocab_size())]
    w.add_token_list([t if t in names else t[2:] if t.startswith("##") else "\u2581" + t for t in tokens])
    w.add_token_types([TYPE.CONTROL if t in names else TYPE.NORMAL for t in tokens])
    w.add_unk_token_id(names.index("[UNK]"))
    w.add_sep_token_id(names.index("[SEP]"))
    w.add_bos_token_id(names.index("[CLS]"))
    close(w)


def write_bert_vectors(peer, tokenizer, plain):
    texts = TEXTS + MARKED + BERT
    theirs = llama_cpp(peer, "bert", texts)
    with open(HERE / "bert.jsonl", "w", encoding="utf-8") as out:
        for text, other in zip(texts, theirs, strict=True):
            ids, special = plain.encode(text, add_special_tokens=False).ids, tokenizer.encode(text, add_special_tokens=False).ids
            vector = {"text": text, "ids": ids, "ids_special": special, "prompt": tokenizer.encode(text).ids, "decoded": tokenizer.decode(ids)}
            if [ids, special] != [other["ids"], other["ids_special"]]:
                print(f"bert: ids of {text!r} differ: {ids}, {special} and llama.cpp's {other}")
            out.write(json.dumps(vector, ensure_ascii=False) + "\n")


def plain_of(name):
    """A tokenizer to which special tokens are text."""
    tokenizer = Tokenizer.from_file(str(HERE / name))
    tokenizer.encode_special_tokens = True
    return tokenizer


def close(w):
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.close()


def llama_cpp(peer, name, texts):
    request = "".join(json.dumps(text) + "\n" for text in texts)
    answer = subprocess.run([peer, "tokenize", HERE / f"{name}.gguf"], input=request, capture_output=True, text=True, check=True).stdout
    return [json.loads(line) for line in answer.splitlines()]


def write_vectors(peer, name, ids, ids_special, texts=TEXTS):
    """`ids` and `ids_special` are the trainer's; None where it has no such notion."""
    with open(HERE / f"{name}.jsonl", "w", encoding="utf-8") as out:
        for text, answer in zip(texts, llama_cpp(peer, name, texts), strict=True):
            vector = {"text": text, **answer}
            for key, other in (("ids", ids), ("ids_special", ids_special)):
                if other and other(text) != vector[key]:
                    print(f"{name}: {key} of {text!r} differ: {vector[key]} and the trainer's {other(text)}")
            out.write(json.dumps(vector, ensure_ascii=False) + "\n")


def main():
    bpe, sp = train_bpe(), train_spm()
    write_bpe(bpe)
    write_spm(sp)
    plain = plain_of("bpe.json")
    write_vectors(sys.argv[1], "bpe", lambda t: plain.encode(t).ids, lambda t: bpe.encode(t).ids)
    write_vectors(sys.argv[1], "spm", lambda t: sp.encode(t), None)
    vocab, merges, names = train_gemma()
    write_gemma(vocab, merges, names)
    gemma = gemma_oracle(vocab, merges, names)
    write_vectors(sys.argv[1], "gemma", None, lambda t: gemma.encode(t).ids, TEXTS + ["a\n\n\nb\n\n\n\n c", "<turn|>\n\n<eo s>"])
    bert, names = train_bert()
    write_bert(bert, names)
    write_bert_vectors(sys.argv[1], bert, plain_of("bert.json"))
    write_marks()
    write_vectors(sys.argv[1], "marks", None, None, TEXTS + MARKED)


if __name__ == "__main__":
    main()
