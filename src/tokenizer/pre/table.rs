//! The regular expressions of each value of `tokenizer.ggml.pre`.
//!
//! The expressions are taken from the models' own `tokenizer.json`, alternative by alternative, as
//! llama.cpp cites them. llama.cpp's own splitters differ in places, which the comments name.
//! tests/data/tokenizer/pre.py compares every row with both. Text is not normalized first (Qwen2's
//! own tokenizer applies NFC), because GGUF files do not ask for it.

use super::{
    PreTokenizer,
    SplitRule::{self, At, BeforeThrees, Powers, Thousands, Threes, Words},
};

/// The expression of OpenAI's GPT-2, which is also built into Hugging Face's byte-level
/// pre-tokenizer.
const GPT_2: SplitRule = Words(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+");

/// OpenAI's cl100k_base with single digits.
const QWEN2: SplitRule = Words(concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
));

/// OpenAI's cl100k_base.
const LLAMA_3: SplitRule = Words(concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
));

/// OpenAI's o200k_base. (llama.cpp distinguishes cases only in ASCII: `ÉCOLEfrançaise` is one
/// word.)
const GPT_4O: SplitRule = Words(concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+"
));

/// The words of DeepSeek-V3.
const DEEPSEEK_V3: SplitRule = Words(concat!(
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"##,
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+"
));

const HAN_AND_KANA: SplitRule = At(r"[\u{4e00}-\u{9fa5}\u{3040}-\u{309f}\u{30a0}-\u{30ff}]+");
const HAN_AND_HANGUL: SplitRule = At(r"[\u{4e00}-\u{9fa5}\u{800}-\u{4e00}\u{ac00}-\u{d7ff}]+");
const SCRIPTS: SplitRule = At(concat!(
    r"[\u{4e00}-\u{9fff}\u{3040}-\u{30ff}\u{3400}-\u{4dbf}\u{f900}-\u{faff}\u{ff65}-\u{ff9f}\u{2f00}-\u{2fdf}]+",
    r"|[\u{e00}-\u{e7f}]+|[\u{e80}-\u{eff}]+|[\u{1780}-\u{17ff}]+",
    r"|[\u{1000}-\u{109f}\u{aa60}-\u{aa7f}\u{a9e0}-\u{a9ff}]+|[\u{ac00}-\u{d7af}\u{1100}-\u{11ff}]+"
));
const BLOOM: SplitRule = At(r" ?[^(\s|.,!?…。，、।۔،)]+");
const DIGIT: SplitRule = At(r"\p{N}");

pub(super) const PRE_TOKENIZERS: &[PreTokenizer] = &[
    PreTokenizer {
        names: &[
            "gpt-2",
            "phi-2",
            "exaone4",
            "gigachat",
            "granite-docling",
            "jais",
            "mellum",
            "mpt",
            "olmo",
            "trillion",
            "a.x-4.0",
            "jina-de",
            "jina-es",
            "jina-v1-en",
            "jina-v2-code",
            "jina-v2-de",
            "jina-v2-es",
            "modern-bert",
            "roberta-bpe",
        ],
        stages: &[GPT_2],
        ignore_merges: false,
        add_bos: false,
    },
    PreTokenizer {
        names: &["starcoder", "smollm", "codeshell", "command-r", "exaone", "mellum2", "minerva-7b", "refact"],
        stages: &[DIGIT, GPT_2],
        ignore_merges: false,
        add_bos: false,
    },
    PreTokenizer {
        names: &[
            "qwen2",
            "deepseek-r1-qwen",
            "f2llmv2",
            "grok-2",
            "hunyuan",
            "kormo",
            "megrez",
            "solar-open",
            "stablelm2",
        ],
        stages: &[QWEN2],
        ignore_merges: false,
        add_bos: false,
    },
    PreTokenizer {
        // As qwen2, with combining marks as letters.
        names: &["qwen35"],
        stages: &[Words(concat!(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}",
            r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+"
        ))],
        ignore_merges: false,
        add_bos: false,
    },
    PreTokenizer {
        names: &[
            "llama-bpe",
            "llama3",
            "llama-v3",
            "falcon3",
            "falcon-h1",
            "jina-v5-nano",
            "lfm2",
            "midm-2.0",
            "pixtral",
        ],
        stages: &[LLAMA_3],
        ignore_merges: true,
        add_bos: true,
    },
    PreTokenizer { names: &["jais-2"], stages: &[LLAMA_3, Powers], ignore_merges: false, add_bos: false },
    PreTokenizer { names: &["glm4", "glm5"], stages: &[LLAMA_3], ignore_merges: true, add_bos: false },
    PreTokenizer {
        names: &["chatglm-bpe", "dbrx", "smaug-bpe"],
        stages: &[LLAMA_3],
        ignore_merges: false,
        add_bos: false,
    },
    PreTokenizer {
        names: &["minicpm5"],
        stages: &[
            At(r"\p{N}{1,3}"),
            Words(concat!(
                r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+",
                r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
            )),
        ],
        ignore_merges: true,
        add_bos: false,
    },
    PreTokenizer {
        names: &["gpt-4o", "kanana2", "llama4", "minimax-m2", "talkie"],
        stages: &[GPT_4O],
        ignore_merges: false,
        add_bos: false,
    },
    PreTokenizer { names: &["granite-embed-multi-97m"], stages: &[GPT_4O], ignore_merges: true, add_bos: false },
    PreTokenizer {
        // (llama.cpp groups all digits, and joins the first group to the text before it.)
        names: &["tiny_aya", "cohere2moe"],
        stages: &[Thousands, GPT_4O],
        ignore_merges: false,
        add_bos: false,
    },
    PreTokenizer {
        // As gpt-4o, with single digits and without contractions. (llama.cpp distinguishes cases
        // only in ASCII.)
        names: &["tekken"],
        stages: &[Words(concat!(
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
            r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
            r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+"
        ))],
        ignore_merges: true,
        add_bos: true,
    },
    PreTokenizer {
        // (llama.cpp ignores cases, combining marks and a part of the script Han.)
        names: &["kimi-k2"],
        stages: &[Words(concat!(
            r"[\p{Han}]+",
            r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
            r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
            r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
        ))],
        ignore_merges: false,
        add_bos: false,
    },
    PreTokenizer {
        // (llama.cpp ignores cases.)
        names: &["youtu"],
        stages: &[
            At(concat!(
                r"[\u{ac00}-\u{d7a3}\u{3131}-\u{318e}]+",
                r"|[\u{ff01}\u{2026}\u{201c}\u{201d}\u{2018}\u{2019}\u{2014}\u{ff1a}\u{ff1b}\u{ff0c}\u{3001}-\u{303f}\u{fe30}-\u{fe4f}]+",
                r"|[\u{3105}-\u{312f}]+|[\u{4e00}-\u{9fa5}\u{3040}-\u{309f}\u{30a0}-\u{30ff}]+"
            )),
            Words(concat!(
                r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
                r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
                r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+"
            )),
        ],
        ignore_merges: true,
        add_bos: false,
    },
    PreTokenizer {
        names: &["deepseek-v3", "hunyuan-dense", "hy_v4", "joyai-llm"],
        stages: &[At(r"\p{N}{1,3}"), HAN_AND_KANA, DEEPSEEK_V3],
        ignore_merges: false,
        add_bos: false,
    },
    PreTokenizer {
        // The original expressions make the same groups in four steps, 510 digits at a time.
        // (llama.cpp treats all numbers as digits, joins the first group to the text before it, and
        // does not split scripts.)
        names: &["afmoe"],
        stages: &[Threes(r"\p{Nd}+"), SCRIPTS, DEEPSEEK_V3],
        ignore_merges: false,
        add_bos: false,
    },
    PreTokenizer { names: &["superbpe"], stages: &[At(r"\p{N}+"), BeforeThrees], ignore_merges: false, add_bos: false },
    PreTokenizer {
        names: &["spark2_5"],
        stages: &[
            At(r"\p{N}{1,3}"),
            HAN_AND_KANA,
            Words(concat!(
                r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"##,
                r"| ?[\p{P}\p{S}]+|[\r\n]"
            )),
            DIGIT,
        ],
        ignore_merges: false,
        add_bos: false,
    },
    PreTokenizer {
        // (llama.cpp does not split numbers; the merges join no digits.)
        names: &["deepseek-llm"],
        stages: &[
            At(r"[\r\n]"),
            At(DEEPSEEK_LETTERS),
            At(r"\s?[!-/:-~\u{ff01}-\u{ff0f}\u{ff1a}-\u{ff5e}\u{2018}-\u{201f}\u{3000}-\u{3002}]+"),
            At(r"\s+$"),
            HAN_AND_HANGUL,
            DIGIT,
        ],
        ignore_merges: false,
        add_bos: false,
    },
    PreTokenizer {
        names: &["deepseek-coder"],
        stages: &[At(r"[\r\n]"), At(r"\s?\p{L}+"), At(r"\s?\p{P}+"), HAN_AND_HANGUL, DIGIT],
        ignore_merges: false,
        add_bos: false,
    },
    PreTokenizer {
        names: &["falcon"],
        stages: &[At(r"[\p{P}$+<=>^~|`]+"), GPT_2, At(r"[0-9][0-9][0-9]")],
        ignore_merges: false,
        add_bos: false,
    },
    PreTokenizer {
        // llama.cpp's expressions for files without a specific pre-tokenizer.
        names: &["default"],
        stages: &[At(r"[\p{P}$+<=>^~|]+"), GPT_2, At(r"\p{N}+"), At(r"[0-9][0-9][0-9]")],
        ignore_merges: false,
        add_bos: false,
    },
    PreTokenizer {
        names: &["bloom", "gpt3-finnish", "poro-chat"],
        stages: &[BLOOM],
        ignore_merges: false,
        add_bos: false,
    },
    PreTokenizer { names: &["viking"], stages: &[BLOOM, DIGIT], ignore_merges: false, add_bos: false },
    PreTokenizer {
        names: &["bailingmoe", "bailingmoe2", "llada-moe"],
        stages: &[Words(concat!(
            r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}",
            r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]"
        ))],
        ignore_merges: false,
        add_bos: false,
    },
    PreTokenizer {
        names: &["seed-coder"],
        stages: &[Words(concat!(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}",
            r"| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+"
        ))],
        ignore_merges: false,
        add_bos: false,
    },
    PreTokenizer { names: &["laguna"], stages: &[At(r"[^\n]+|[\n]+"), QWEN2], ignore_merges: false, add_bos: false },
    PreTokenizer {
        names: &["exaone-moe"],
        stages: &[Words(concat!(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}",
            r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]"
        ))],
        ignore_merges: false,
        add_bos: false,
    },
    PreTokenizer {
        // As qwen2, without contractions.
        names: &["ufakzeka"],
        stages: &[Words(r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+")],
        ignore_merges: false,
        add_bos: false,
    },
    PreTokenizer {
        names: &["chameleon"],
        stages: &[
            At(r"<sentinel:[0-9]+>"),
            At(r"(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z"),
            At(r"([\t\n]|    |  )"),
            DIGIT,
            At(r"[\p{P}!-/:-@\[-`{-~]"),
            GPT_2,
        ],
        ignore_merges: false,
        add_bos: true,
    },
];

/// An optional space, and letters of the scripts with cases.
const DEEPSEEK_LETTERS: &str = concat!(
    r"\s?[",
    r"A-Za-z\u{b5}\u{c0}-\u{d6}\u{d8}-\u{f6}\u{f8}-\u{1ba}\u{1bc}-\u{1bf}\u{1c4}-\u{293}\u{295}-\u{2af}",
    r"\u{370}-\u{373}\u{376}\u{377}\u{37b}-\u{37d}\u{37f}\u{386}\u{388}-\u{38a}\u{38c}\u{38e}-\u{3a1}",
    r"\u{3a3}-\u{3f5}\u{3f7}-\u{481}\u{48a}-\u{52f}\u{531}-\u{556}\u{10a0}-\u{10c5}\u{13a0}-\u{13f5}",
    r"\u{13f8}-\u{13fd}\u{1c90}-\u{1cba}\u{1cbd}-\u{1cbf}\u{1d00}-\u{1d2b}\u{1d6b}-\u{1d77}\u{1d79}-\u{1d9a}",
    r"\u{1e00}-\u{1f15}\u{1f18}-\u{1f1d}\u{1f20}-\u{1f45}\u{1f48}-\u{1f4d}\u{1f50}-\u{1f57}\u{1f59}\u{1f5b}",
    r"\u{1f5d}\u{1f5f}-\u{1f7d}\u{1f80}-\u{1fb4}\u{1fb6}-\u{1fbc}\u{1fbe}\u{1fc2}-\u{1fc4}\u{1fc6}-\u{1fcc}",
    r"\u{1fd0}-\u{1fd3}\u{1fd6}-\u{1fdb}\u{1fe0}-\u{1fec}\u{1ff2}-\u{1ff4}\u{1ff6}-\u{1ffc}\u{2102}\u{2107}",
    r"\u{210a}-\u{2113}\u{2115}\u{2119}-\u{211d}\u{2124}\u{2126}\u{2128}\u{212a}-\u{212d}\u{212f}-\u{2134}\u{2139}",
    r"\u{213c}-\u{213f}\u{2145}-\u{2149}\u{214e}\u{2183}\u{2184}\u{2c00}-\u{2c7b}\u{2c7e}-\u{2ce4}",
    r"\u{2ceb}-\u{2cee}\u{2cf2}\u{2cf3}\u{a640}-\u{a66d}\u{a680}-\u{a69b}\u{a722}-\u{a76f}\u{a771}-\u{a787}",
    r"\u{a78b}-\u{a78e}\u{ab70}-\u{abbf}\u{fb00}-\u{fb06}\u{fb13}-\u{fb17}\u{ff21}-\u{ff3a}\u{ff41}-\u{ff5a}",
    r"\u{10400}-\u{1044f}\u{104b0}-\u{104d3}\u{104d8}-\u{104fb}\u{10c80}-\u{10cb2}\u{10cc0}-\u{10cf2}",
    r"\u{118a0}-\u{118df}\u{1e900}-\u{1e943}",
    r"]+"
);
