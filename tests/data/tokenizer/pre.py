#!/usr/bin/env python3
"""Write a vocabulary that shows where a text was cut, and the ids of hard texts under every pre-tokenizer.

    pip install gguf tokenizers && python pre.py PEER [--random SEED]

pre.gguf    byte-level BPE trained on the texts uncut, so that its merges reach over almost any place where one might be cut; its `pre` is
            gpt-2, and tests set others in memory
pre.jsonl   first the pre-tokenizers with their names and what a tokenizer.json has for each; then one line a text: `text`, and `ids`, which
            lists each different answer with the first names of those that give it

PEER is a program that runs llama.cpp's tokenizer: `PEER tokenize MODEL`, a JSON string a line in, `ids` and `ids_special` out.
The ids are those of the crate `tokenizers` with the pre-tokenizer that the models' own tokenizer.json has. llama.cpp must give the same; the
texts where it does not are counted, and those of ASCII printed. `default` is llama.cpp's alone.

With --random nothing is written; instead, random texts are asked of both, and written to standard output as lines of pre.jsonl.
"""
import collections
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import unicodedata

import gguf
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers
from tokenizers.pre_tokenizers import ByteLevel, Digits, Punctuation, Sequence, Split

HERE = pathlib.Path(__file__).parent
TEXTS = r"""
 |  |   x|\t|\t\tx|\n|\n\n|\n \n x|\r\n|\r\r\n\n a|a\r\nb|a \n b|a\n\n  b| \t \n|x   |x \n|  leading|trailing  |a  b   c    d     e      f
Hello, world!|It's I'VE we'LL DON'T x'y 'sun they're THEY'RE y'all'd've|'s't're've'm'll'd|'S'T'RE'VE'M'LL'D|''''s|'\u017f \u212a's|o'clock 'tis
1|12|123|1234|12345|123456|1234567|12345678|123456789|1234567890123| 1234|  1234|   12345 67|1234abc|  1234abc|abc1234|x 12345y 67890 z|123\xbd4567 \xbd1234\u246056789\xb2 12\xbd
3.14159|1,234,567.89|0x1F3A|½²³ 1½ ²³⁴⁵|ⅧⅨ ①②③④|四五六 ٣٤٥٦ १२३४ １２３４５６|1٢3४5６7|12_345|1234\u0301 1234\u203f5|v1.2.3-rc4|$100 €50 100%
camelCase HTMLParser iPhone McDonald XMLHttpRequest|ÉCOLEfrançaise ÜBERmut straßeSTRASSE|ΑΒΓαβγ ДОМдом ԱԲԳաբգ|ǅungla ǈubav ʰʱʲ Aʰb|ÀÉa\u0301Ü'LL 'été'S
e\u0301 combining a\u0308\u0301 \u0301x 1\u0301 .\u0301. \u0301\u0301|नमस्ते दुनिया|ภาษาไทยที่ ພາສາລາວ ភាសាខ្មែរ မြန်မာဘာသာ ꩠꩡ ᄀᄁ한|ไทยລາວខ្មែរမြန်မာ한국狐ｶｸ⼀|தமிழ் العَرَبِيَّة עִבְרִית|Zalgo H\u0321\u0322e\u0334llo|\u20dd\u0301 a\u20ddb
狐は雪の中で。狐狸在雪中|漢字カタカナひらがな々〇〆ヶー|㐀㐁𠀀𠀁豈⺀⼀|여우가 눈 속에서 ㄱㄴㄷ|ㄅㄆㄇ ボポモ ﾊﾝｶｸ|mixed狐fox🦊Лиса123狐4五|中文，标点。“引号”‘单’——、；：！？…|「括弧」『二重』【隅】〔亀〕|ＦＵＬＬｗｉｄｔｈ！（）
🦊🏮 👩‍👩‍👧 🇳🇴 👍🏽 ☃️ ❤️|a🦊b 🦊c🦊|→⇒∀∃∑∫√≠≤ ±×÷|©®™§¶†‡•|¡¿«»‹›„‟‐–—|£¥¢₿ `code` ^caret~tilde|<=>+=!=&&\x7c\x7c*:|$x+$y=`z`
def f(x):\n    return x+1\r\n\r\n\tpass|for(int i=0;i<10;++i){\n\t\ta[i]/=2;\n}|C:\\path\\to/file.txt?q=1&x=y#z|https://example.org/狐//a/b/\n/c|<p class="a">t</p>\n\n// x\n/* y */
!!!???...,,,|((([[[{{{}}}]]])))|!a "b #c $d %e &f 'g (h )i *j +k ,l -m .n /o :p ;q <r =s >t ?u @v [w \\x ]y ^z _a `b {c \x7cd }e ~f|-- --a ---b a-b a--b|...a ..b .c|_a __b a_b __init__
\u00a0nbsp\u3000ideographic\u2003em\u200bzero\u00a0|\u0085next\u2028line\u2029para|\x0b\x0c\x1c\x1d\x1e\x1f|a\x00b\x01\x7f\x80\x9f|\ufeffBOM \ufffd|\u00ad\u200d\u200e\u2060x|\U000e0001\U000f0000\ue000p|\u2581already\u2581marked \u2581
IMGIMGABCDZ IMGIMGAZ IMGIMGZ|<sentinel:12> <sentinel:a>|a b c d e f|The quick brown fox 12 jumps over 3456 lazy dogs' tails|aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa|WORDS IN CAPITALS AND Words In Title And words
ᏣᎳᎩ ꭰꭱ Ⴀⴀ|𐐀𐐨 𞤀𞤢 𝐀𝐚|ßẞ ŉ ﬁﬂ Ǆǆ|ªº ᵃᵇ ₐₑ|ـــعـــ ๆ ゝゞ|a؟b، c۔ d। e…f|(ab\x7ccd.ef,gh!ij?|x(y\x7cz) |a.b,c|  .  ,  !
"""
QWEN2 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA_3 = QWEN2.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
SUFFIX = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


def cased(upper, lower, suffix, rest):
    first = r"[^\r\n\p{L}\p{N}]?"
    return f"{first}{upper}*{lower}+{suffix}|{first}{upper}+{lower}*{suffix}|{rest}"


GPT_4O = cased(UPPER, LOWER, SUFFIX, r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
TEKKEN = cased(UPPER, LOWER, "", r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
KIMI = r"[\p{Han}]+|" + cased(UPPER[:-1] + r"&&[^\p{Han}]]", LOWER[:-1] + r"&&[^\p{Han}]]", SUFFIX,
                              r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
YOUTU = cased(UPPER, LOWER, SUFFIX, r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
KANA = "[一-龥\u3040-ゟ゠-ヿ]+"
HANGUL = "[一-龥ࠀ-一가-\ud7ff]+"
BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"
JAIS_2 = "".join(rf"\s{{{1 << power}}}(?!\S)|" for power in range(9, 1, -1)) + r"\s{1,2}(?!\S)|\s{1}"
AFMOE = (r"\p{Nd}{1,510}(?=(?>\p{Nd}{510})*(?:\P{Nd}|$))|\G\p{Nd}{510}", r"\A\p{Nd}{1,2}(?=\p{Nd}{3}+\z)", r"\A\p{Nd}{3}|\G\p{Nd}{3}",
         r"[\u4e00-\u9fff\u3040-\u309f\u30a0-\u30ff\u3400-\u4dbf\uf900-\ufaff\uff65-\uff9f\u2f00-\u2fdf]+|[\u0e00-\u0e7f]+|[\u0e80-\u0eff]+"
         r"|[\u1780-\u17ff]+|[\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff]+|[\uac00-\ud7af\u1100-\u11ff]+")
DEEPSEEK_V3 = (r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+"""
               r"""[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+""")
DEEPSEEK_LETTERS = (
    "\\s?["
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376\u0377"
    "\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5"
    "\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d"
    "\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4"
    "\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d"
    "\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4"
    "\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06"
    "\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2"
    "\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943"
    "]+")
DEEPSEEK_MARKS = "\\s?[!-/:-~！-／：-～‘-‟\u3000-。]+"
NATIVE = ByteLevel(add_prefix_space=False, use_regex=True)


def split(*patterns):
    return [Split(Regex(pattern), "isolated") if isinstance(pattern, str) else pattern for pattern in patterns]


def pre(*steps):
    return Sequence(split(*steps) + ([] if NATIVE in steps else [ByteLevel(add_prefix_space=False, use_regex=False)]))


# The names of `tokenizer.ggml.pre`, what the models' tokenizer.json has, and whether a word that is a token is not merged.
ROWS = [
    ("gpt-2 phi-2 exaone4 gigachat granite-docling jais mellum mpt olmo trillion a.x-4.0 jina-de jina-es jina-v1-en jina-v2-code jina-v2-de jina-v2-es "
     "modern-bert roberta-bpe", pre(NATIVE), False),
    ("starcoder smollm codeshell command-r exaone mellum2 minerva-7b refact", pre(Digits(True), NATIVE), False),
    ("qwen2 deepseek-r1-qwen f2llmv2 grok-2 hunyuan kormo megrez solar-open stablelm2", pre(QWEN2), False),
    ("qwen35", pre(QWEN2.replace(r"?\p{L}+", r"?[\p{L}\p{M}]+").replace(r"[^\s\p{L}\p{N}]", r"[^\s\p{L}\p{M}\p{N}]")), False),
    ("llama-bpe llama3 llama-v3 falcon3 falcon-h1 jina-v5-nano lfm2 midm-2.0 pixtral glm4 glm5", pre(LLAMA_3), True),
    ("chatglm-bpe dbrx smaug-bpe", pre(LLAMA_3), False),
    ("jais-2", pre(LLAMA_3.replace(r"\s+(?!\S)|\s+", JAIS_2)), False),
    ("minicpm5", pre(r"\p{N}{1,3}", QWEN2.replace(r"|\p{N}|", r"|\p{N}+|")), True),
    ("gpt-4o kanana2 llama4 minimax-m2 talkie", pre(GPT_4O), False),
    ("granite-embed-multi-97m", pre(GPT_4O), True),
    ("tiny_aya cohere2moe", pre(r"\d{1,3}(?=(?:\d{3})*\b)", GPT_4O), False),
    ("tekken", pre(TEKKEN), True),
    ("kimi-k2", pre(KIMI), False),
    ("youtu", pre("[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|" + KANA, YOUTU), True),
    ("deepseek-v3 hunyuan-dense hy_v4 joyai-llm", pre(r"\p{N}{1,3}", KANA, DEEPSEEK_V3), False),
    ("afmoe", pre(*AFMOE, DEEPSEEK_V3), False),
    ("superbpe", pre(r"\p{N}+", r"(?=(\d{3})+(?!\d))"), False),
    ("spark2_5", pre(r"\p{N}{1,3}", KANA, DEEPSEEK_V3.replace(r"[\r\n]*|\s*[\r\n]+|", r"|[\r\n]|"), r"\p{N}"), False),
    ("deepseek-llm", pre("[\r\n]", DEEPSEEK_LETTERS, DEEPSEEK_MARKS, r"\s+$", HANGUL, Digits(True)), False),
    ("deepseek-coder", pre("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", HANGUL, Digits(True)), False),
    ("falcon", pre(Punctuation("contiguous"), NATIVE, "[0-9][0-9][0-9]"), False),
    ("default", None, False),
    ("bloom gpt3-finnish poro-chat", pre(BLOOM), False),
    ("viking", pre(BLOOM, Digits(True)), False),
    ("bailingmoe bailingmoe2 llada-moe", pre(
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"), False),
    ("seed-coder", pre(QWEN2.replace(r"[^\s\p{L}\p{N}]+[\r\n]*", r"[^\s\p{L}\p{N}\r\n]+")), False),
    ("laguna", pre(r"[^\n]+|[\n]+", QWEN2), False),
    ("exaone-moe", pre(
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]"
        r"|\s+(?!\S)|\s+"), False),
    ("ufakzeka", pre(QWEN2.split("|", 7)[-1]), False),
    ("chameleon", pre("<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", r"([\t\n]|    |  )", Digits(True),
                      Punctuation("isolated"), NATIVE), False),
]


def texts():
    """Those of TEXTS, which has bars between them."""
    found = re.split(r"[|\n]", TEXTS.strip("\n"))
    unescape = lambda escape: escape.group().encode().decode("unicode_escape")
    found = [re.sub(r"\\(x..|u.{4}|U.{8}|[nrt\\])", unescape, text) for text in found]
    long = ["7" * 1022, " " * 13 + "x", "x" + "\t" * 7, " " * 700 + "x", "x" + " " * 1100, "\u3000\u2003" * 11 + "\n" + "\xa0" * 33]
    return list(dict.fromkeys(["", *found, *long]))


def train(texts):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False, use_regex=False)
    trainer = trainers.BpeTrainer(vocab_size=1500, initial_alphabet=ByteLevel.alphabet(), show_progress=False, min_frequency=1)
    tokenizer.train_from_iterator(texts, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    return model["vocab"], [tuple(pair) for pair in model["merges"]]


def write(path, name, vocab, merges):
    w = gguf.GGUFWriter(path, "llama")
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre(name)
    w.add_token_list(sorted(vocab, key=vocab.get))
    w.add_token_types([gguf.TokenType.NORMAL] * len(vocab))
    w.add_token_merges([" ".join(pair) for pair in merges])
    w.add_eos_token_id(0)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.close()


def llama_cpp(peer, name, vocab, merges, texts):
    request = "".join(json.dumps(text) + "\n" for text in texts)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "pre.gguf"
        write(path, name, vocab, merges)
        answer = subprocess.run([peer, "tokenize", path], input=request, capture_output=True, text=True, check=True).stdout
    return [json.loads(line)["ids"] for line in answer.splitlines()]


def random_texts(seed, count=3000):
    random.seed(seed)
    letters = collections.defaultdict(list)
    for char in map(chr, range(0x110000)):
        kind = unicodedata.category(char)
        # The native `Punctuation` has the tables of an old Unicode.
        if kind[0] != "P" or unicodedata.ucd_3_2_0.category(char) == kind:
            letters[kind].append(char)
    kinds = [kind for kind in letters if kind not in ("Cs", "Cn", "Co")]
    some = texts()

    def piece():
        match random.randrange(5):
            case 0: return random.choice(letters[random.choice(kinds)])
            case 1: return random.choice(" \n\t\r'/.,0123456789") * random.choice([1, 2, 3, random.randrange(40)])
            case 2: return random.choice(["'s", "'LL", "'re", "abc", "Abc", "ABC", "çéÉ", "ДОМ", "狐狸", "かな", "12345", "한글", " ", "  "])
            case _:
                text = random.choice(some)
                at = random.randrange(len(text) + 1)
                return text[at:at + random.randrange(6)]
    return ["".join(piece() for _ in range(random.randrange(1, 12))) for _ in range(count)]


def answers(peer, vocab, merges, texts):
    """For every text, the first names of those that give each list of ids."""
    found = [collections.defaultdict(list) for _ in texts]
    for names, pre_tokenizer, ignore_merges in ROWS:
        tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=ignore_merges))
        tokenizer.pre_tokenizer = pre_tokenizer or NATIVE
        for name in names.split():
            theirs = llama_cpp(peer, name, vocab, merges, texts)
            ours = [tokenizer.encode(text).ids for text in texts] if pre_tokenizer else theirs
            other = [text for text, a, b in zip(texts, ours, theirs, strict=True) if a != b]
            print(f"{name}: llama.cpp differs in {len(other)} of {len(texts)}: {[t for t in other if t.isascii()][:8]}", file=sys.stderr)
        for text, ids in zip(found, ours, strict=True):
            text[tuple(ids)].append(names.split()[0])
    return [{"text": text, "ids": [[" ".join(names), *ids] for ids, names in each.items()]} for text, each in zip(texts, found, strict=True)]


def described(names, pre_tokenizer, ignore_merges):
    tokenizer = Tokenizer(models.BPE())
    if pre_tokenizer:
        tokenizer.pre_tokenizer = pre_tokenizer
    return {"names": names.split(), "pre_tokenizer": json.loads(tokenizer.to_str())["pre_tokenizer"], "ignore_merges": ignore_merges}


def main():
    vocab, merges = train(texts())
    if "--random" in sys.argv:
        lines, out = answers(sys.argv[1], vocab, merges, random_texts(int(sys.argv[3]))), sys.stdout
    else:
        write(HERE / "pre.gguf", "gpt-2", vocab, merges)
        lines, out = answers(sys.argv[1], vocab, merges, texts()), open(HERE / "pre.jsonl", "w", encoding="utf-8")
    for line in [[described(*row) for row in ROWS], *lines]:
        out.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
