// Appends keys and values to the cache. A workgroup appends up to four positions of a head. With
// `before` it norms and rotates the keys first.
//
// In formats of less than 32 bits positions share words, so one workgroup writes four consecutive
// positions. Those that are not in the step keep their content.
//
// Parameters (`Append`):
//   workgroup: u32 - invocations of a workgroup
//   subgroup: u32? - the smallest subgroup in invocations, if subgroup operations are used
//   cache: PagedCache - the layer's cache
//   append_ranges_at: u32 - the first word, in the step's buffer, of the `PositionRange`s that are
//     appended
//   k: Strided - the keys, `[tokens, kv_heads, head_dim]`
//   v: Strided - the values, `[tokens, kv_heads, head_dim]`
//   before: KeyRotation? - the operations on keys before they are appended
//   before.norm: Norm? - the norm of each key
//   before.rotation: Rotation - the rotation after it
//   before.records: Records - the tokens' records
//
// Buffers:
//   k: f32
//   v: f32
//   weight: f32 - the norm's weights, `[head_dim]`
//   cache: u32, written - the layer's pages

{% from "shared/entry" import entry, invocation %}
{% from "shared/reduce" import head_squares, invocation_struct, reductions %}
{% from "shared/rotation" import is_first, pair, partner, rotated %}
{% include "shared/bindings" %}

{% set norm = before.norm if before else none %}
{% if norm %}
{{ invocation_struct(subgroup) }}
{{ reductions("", "f32", workgroup, subgroup) }}
{% endif %}

{# Words and blocks of 32 elements of a head in a page, and the first word of the values' scales. #}
{% set head_words = 64 * cache.dim // cache.per_word %}
{% set blocks = cache.dim // 32 %}
{% set value_scales_at = cache.scales_at + cache.kv_heads * cache.dim %}

{% if cache.format == "q8_0" %}
// The scales of four positions' blocks of 32 elements: of keys, then of values.
var<workgroup> scales: array<f32, {{8 * blocks}}>;
{% endif %}

{% if norm %}
// The keys of the four positions before the rotation.
var<workgroup> normed: array<f32, {{4 * cache.head_dim}}>;
{% endif %}
{% if before %}
// The keys of the four positions.
var<workgroup> keys_now: array<f32, {{4 * cache.head_dim}}>;
{% endif %}

// Up to four consecutive positions of one page.
struct Positions {
    // The index in the step of the first token.
    token: u32,
    // Number of positions; 0 if the range is unused.
    count: u32,
    // The first position.
    position: u32,
    // The first word of the page's entries in the page tables.
    entries: u32,
}

fn key(range: Positions, head: u32, n: u32, d: u32) -> f32 {
    if d >= {{cache.head_dim}}u {
        return 0.0;
    }
    return {{ "keys_now[n * " ~ cache.head_dim ~ "u + d]" if before else "key_given(range, head, n, d)" }};
}

// Element `d` of the key of position `n`, as the step gives it.
fn key_given(range: Positions, head: u32, n: u32, d: u32) -> f32 {
    return k[(range.token + n) * {{k.stride}}u + head * {{cache.head_dim}}u + d];
}

fn value(range: Positions, head: u32, n: u32, d: u32) -> f32 {
    if d >= {{cache.head_dim}}u {
        return 0.0;
    }
    return v[(range.token + n) * {{v.stride}}u + head * {{cache.head_dim}}u + d];
}

{{ entry(workgroup, subgroup if norm else none) }} {
    let at = {{append_ranges_at}}u + RANGE_WORDS * group.x;
    let range = Positions(
        step[at + RANGE_FIRST_TOKEN],
        step[at + RANGE_TOKENS],
        step[at + RANGE_FIRST_POSITION],
        step[at + RANGE_PAGES],
    );
    let head = group.y;
    let page = step[range.entries + {{cache.table}}u] * {{cache.page_words}}u;
    let keys = page + head * {{head_words}}u;
    let values = page + ({{cache.kv_heads}}u + head) * {{head_words}}u;
    {% if before %}
    {% include "append/rotate" %}
    {% endif %}
    // The place of the first position among the four.
    let skipped = range.position % 4u;
    let first = range.position % 64u - skipped;
    {% if cache.format == "q8_0" %}
    for (var i = index; i < {{8 * blocks}}u; i += {{workgroup}}u) {
        let n = i / 2u % 4u;
        var peak = 0.0;
        if n < range.count {
            for (var j = 0u; j < 32u; j++) {
                let d = i / 8u * 32u + j;
                peak = max(peak, abs(select(value(range, head, n, d), key(range, head, n, d), i % 2u == 0u)));
            }
        }
        scales[i] = peak / 127.0;
    }
    workgroupBarrier();
    {% endif %}
    for (var d = index; d < {{cache.dim}}u; d += {{workgroup}}u) {
        {% if cache.format == "f32" %}
        for (var n = 0u; n < range.count; n++) {
            cache[keys + d * 64u + first + skipped + n] = bitcast<u32>(key(range, head, n, d));
            {% if cache.matrices == 2 %}
            cache[values + (first + skipped + n) * {{cache.dim}}u + d] = bitcast<u32>(value(range, head, n, d));
            {% endif %}
        }
        {% elif cache.format == "f16" %}
        for (var word = skipped / 2u; word < (skipped + range.count + 1u) / 2u; word++) {
            let to = keys + d * 32u + first / 2u + word;
            var pair = unpack2x16float(cache[to]);
            for (var n = 0u; n < 2u; n++) {
                let i = 2u * word + n;
                if i >= skipped && i < skipped + range.count {
                    pair[n] = key(range, head, i - skipped, d);
                }
            }
            cache[to] = pack2x16float(pair);
        }
        {% if cache.matrices == 2 %}
        if d % 2u == 0u {
            for (var n = 0u; n < range.count; n++) {
                let pair = vec2(value(range, head, n, d), value(range, head, n, d + 1u));
                cache[values + (first + skipped + n) * {{cache.dim // 2}}u + d / 2u] = pack2x16float(pair);
            }
        }
        {% endif %}
        {% else %}
        let to = keys + d * 16u + first / 4u;
        var codes = unpack4xI8(cache[to]);
        for (var n = 0u; n < range.count; n++) {
            codes[skipped + n] = code(key(range, head, n, d), scales[d / 32u * 8u + 2u * n]);
        }
        if range.count > 0u {
            // An unused range would undo another workgroup's change.
            cache[to] = pack4xI8(codes);
        }
        {% if cache.matrices == 2 %}
        if d % 4u == 0u {
            for (var n = 0u; n < range.count; n++) {
                let scale = scales[d / 32u * 8u + 2u * n + 1u];
                let four = vec4(
                    code(value(range, head, n, d), scale), code(value(range, head, n, d + 1u), scale),
                    code(value(range, head, n, d + 2u), scale), code(value(range, head, n, d + 3u), scale),
                );
                cache[values + (first + skipped + n) * {{cache.dim // 4}}u + d / 4u] = pack4xI8(four);
            }
        }
        {% endif %}
        if d % 32u == 0u {
            append_scales(page, head, first, skipped, range.count, d / 32u);
        }
        {% endif %}
    }
}

{% if cache.format == "q8_0" %}
fn code(x: f32, scale: f32) -> i32 {
    return i32(round(select(x / scale, 0.0, scale == 0.0)));
}

fn append_scales(page: u32, head: u32, first: u32, skipped: u32, count: u32, block: u32) {
    for (var n = 0u; n < count; n++) {
        let position = first + skipped + n;
        let of_key = (head * {{blocks}}u + block) * 64u + position;
        set_half(page + {{cache.scales_at}}u, of_key, scales[block * 8u + 2u * n]);
    }
    {% if cache.matrices == 1 %}
    {% elif blocks % 2 == 0 %}
    // Two blocks share a word: the first of them writes both.
    if block % 2u == 0u {
        for (var n = 0u; n < count; n++) {
            let of_value = (head * 64u + first + skipped + n) * {{blocks}}u + block;
            set_half(page + {{value_scales_at}}u, of_value, scales[block * 8u + 2u * n + 1u]);
            set_half(page + {{value_scales_at}}u, of_value + 1u, scales[block * 8u + 8u + 2u * n + 1u]);
        }
    }
    {% else %}
    // Blocks of different parity share words, also of neighboring positions: one invocation writes
    // all of them.
    if block == 0u {
        for (var n = 0u; n < count; n++) {
            for (var b = 0u; b < {{blocks}}u; b++) {
                let of_value = (head * 64u + first + skipped + n) * {{blocks}}u + b;
                set_half(page + {{value_scales_at}}u, of_value, scales[b * 8u + 2u * n + 1u]);
            }
        }
    }
    {% endif %}
}

fn set_half(base: u32, i: u32, x: f32) {
    let word = cache[base + i / 2u];
    let half = pack2x16float(vec2(x, 0.0));
    cache[base + i / 2u] = select((word & 0xffff0000u) | half, (word & 0xffffu) | (half << 16u), i % 2u == 1u);
}
{% endif %}
