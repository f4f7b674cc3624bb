// Units of packed matrices: 32 consecutive weights of a row.
//
// A weight of a quantized format is `scale * code - min`. A unit has two halves of 16 codes, and
// each half has a scale and a minimum. Byte j of word k of a half is the code of its column 4 k +
// j.

struct Unit {
    lo: vec4<u32>,
    hi: vec4<u32>,
    scale: vec2<f32>,
    min: vec2<f32>,
}

// The 32 weights of a unit.
struct Values {
    {% for k in range(8) %}v{{k}}: vec4<f32>,
    {% endfor %}
}

// The values of the indices of IQ4_NL and IQ4_XS, four signed bytes a word.
const UNEVEN = vec4<u32>(0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u);
// Twice the values of the codes of MXFP4 and NVFP4, four signed bytes a word.
const DOUBLED = vec4<u32>(0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu);

{% include "shared/half" %}

// Four f16.
fn halves(words: vec2<u32>) -> vec4<f32> {
    return vec4(unpack2x16float(words.x), unpack2x16float(words.y));
}

// Four bf16.
fn upper_halves(words: vec2<u32>) -> vec4<f32> {
    return bitcast<vec4<f32>>(vec4(words.x << 16u, words.x & 0xffff0000u, words.y << 16u, words.y & 0xffff0000u));
}

// The codes in the low halves of the bytes, then those in the high ones.
fn four_bits(codes: vec4<u32>, scale: vec2<f32>, min: vec2<f32>) -> Unit {
    return Unit(codes & vec4(0x0f0f0f0fu), (codes >> vec4(4u)) & vec4(0x0f0f0f0fu), scale, min);
}

// Two bits of each of 16 codes: word k has bits 2 k and 2 k + 1 of each byte.
fn two_bits(word: u32) -> vec4<u32> {
    return (vec4(word) >> vec4(0u, 2u, 4u, 6u)) & vec4(0x03030303u);
}

// One bit of each of 16 codes: word k has bit k of each byte.
fn one_bit(word: u32) -> vec4<u32> {
    return (vec4(word) >> vec4(0u, 1u, 2u, 3u)) & vec4(0x01010101u);
}

fn with_fifth_bit(unit: Unit, bits: u32) -> Unit {
    return Unit(
        unit.lo | (one_bit(bits) << vec4(4u)),
        unit.hi | (one_bit(bits >> 4u) << vec4(4u)),
        unit.scale,
        unit.min,
    );
}

// The scale and minimum of unit `g` of eight. The head has an f16 scale of each, then the low four
// bits of the eight scales, the low four bits of the minima, and two high bits of each.
fn scale_and_min(head: vec4<u32>, g: u32) -> vec2<f32> {
    let low = (head.yz >> vec2(4u * g)) & vec2(15u);
    let high = (vec2(head.w) >> vec2(2u * g, 16u + 2u * g)) & vec2(3u);
    return unpack2x16float(head.x) * vec2<f32>(low | (high << vec2(4u)));
}

// Four entries of a table, by four indices of four bits.
fn looked_up_word(codes: u32, entries: vec4<u32>) -> u32 {
    let code = (vec4(codes) >> vec4(0u, 8u, 16u, 24u)) & vec4(15u);
    let low = select(vec4(entries.x), vec4(entries.y), (code & vec4(4u)) != vec4(0u));
    let high = select(vec4(entries.z), vec4(entries.w), (code & vec4(4u)) != vec4(0u));
    let word = select(low, high, (code & vec4(8u)) != vec4(0u));
    let byte = ((word >> ((code & vec4(3u)) * 8u)) & vec4(255u)) << vec4(0u, 8u, 16u, 24u);
    return byte.x | byte.y | byte.z | byte.w;
}

fn looked_up_half(codes: vec4<u32>, entries: vec4<u32>) -> vec4<u32> {
    return vec4(
        looked_up_word(codes.x, entries),
        looked_up_word(codes.y, entries),
        looked_up_word(codes.z, entries),
        looked_up_word(codes.w, entries),
    );
}

// A unit whose codes are replaced by the table's entries.
fn looked_up(unit: Unit, entries: vec4<u32>) -> Unit {
    return Unit(looked_up_half(unit.lo, entries), looked_up_half(unit.hi, entries), unit.scale, unit.min);
}

// The eight signs of which `seven` has seven in its low bits: the number of ones is even.
fn even_signs(seven: u32) -> u32 {
    return (seven & 127u) | ((countOneBits(seven & 127u) & 1u) << 7u);
}

// Four values, negated where the bit of `signs` is set. No value is zero.
fn with_signs(values: u32, signs: u32) -> u32 {
    let negative = ((signs & 15u) * 0x00204081u) & 0x01010101u;
    return (values ^ (negative * 255u)) + negative;
}

// The values 8, 25 and 43 of the levels in the low nibbles, for IQ2_XXS, IQ2_XS and IQ2_S.
fn uneven_values(point: u32) -> u32 {
    let levels = point & 0x0f0f0f0fu;
    return levels * 17u + 0x08080808u + ((levels >> 1u) & 0x01010101u);
}

// Eight times the levels in the low nibbles, less 7, or less 9 with the lesser shift, for IQ1_S and
// IQ1_M.
fn shifted(point: u32, is_less: u32) -> u32 {
    return ((point & 0x0f0f0f0fu) * 8u + 0x79797979u - is_less * 0x02020202u) ^ 0x80808080u;
}

// A digit of each byte, which is a fraction of 256 in base three, for TQ1_0.
fn digits(fractions: vec4<u32>, place: vec4<u32>) -> vec4<u32> {
    let small = (vec4(0x1b090301u) >> (place % vec4(4u) * 8u)) & vec4(255u);
    let power = select(small, vec4(81u), place == vec4(4u));
    let even = (fractions & vec4(0x00ff00ffu)) * power & vec4(0x00ff00ffu);
    let odd = ((fractions >> vec4(8u)) & vec4(0x00ff00ffu)) * power & vec4(0x00ff00ffu);
    return ((even * 3u >> vec4(8u)) & vec4(0x00ff00ffu)) | (odd * 3u & vec4(0xff00ff00u));
}

// Four weights of a half of a unit.
fn decoded(codes: u32, scale: f32, min: f32) -> vec4<f32> {
    return scale * vec4<f32>(unpack4xI8(codes)) - min;
}

fn values_of(unit: Unit) -> Values {
    return Values(
        {% for half, i in [["lo", "x"], ["hi", "y"]] %}{% for k in "xyzw" %}
        decoded(unit.{{half}}.{{k}}, unit.scale.{{i}}, unit.min.{{i}}),
        {% endfor %}{% endfor %}
    );
}
