// Computes attention of more than 16 tokens over the paged cache in f32, page by page, with
// running maxima and sums (online softmax).
//
// Workgroup (i, h) computes query head h of block i: up to `block` consecutive tokens of one
// sequence. Its invocations form 16 columns. Each computes `block * 16 / threads` tokens, four
// positions of a page, and every sixteenth vector of four elements of the result. Queries, keys and
// values are read from global memory through the device's caches: with little workgroup memory,
// more workgroups run at the same time.
//
// Parameters (`AttentionPrefill`):
//   threads: u32 - invocations of a workgroup, a multiple of 16
//   block: u32 - tokens of a block
//   query_blocks_at: u32 - the first word, in the step's buffer, of the `PositionRange`s of the
//     blocks
//   cache: PagedCache - the layer's cache
//   heads: u32 - number of query heads
//   scores: ScoreParams - the operations on scores
//   seen_range: SeenRange? - the positions that a token sees; none for its own and all before it
//   records: Records - the tokens' records
//   sinks: BoundBuffer? - a further score of each head, of a value of 0, if there are sinks
//   q: Strided - the queries, `[tokens, heads, head_dim]`
//   y: Strided - the result, `[tokens, heads, head_dim]`
//
// Buffers:
//   q: f32 or vec4<f32>
//   kv: u32 or vec2<u32> or vec4<u32> - the layer's pages, four elements at a time
//   y: f32, written
//   sinks: f32 - `[heads]`

{% from "shared/prefill" import block_end, block_range, seen, sight %}
{% from "shared/soft_cap" import soft_cap %}
{% set groups = threads // 16 %}
{% set rows = block // groups %}
{% set quads = cache.dim // 4 %}
{% set held = (quads + 15) // 16 %}
{% set page_size = cache.matrices * cache.kv_heads * 64 * cache.dim %}

// Below every score, but finite: a token may see no position of a page.
const LOWEST = -1e30;

{% include "shared/bindings" %}
{% if scores.soft_cap %}
{{ soft_cap(scores.soft_cap, "vec4<f32>") }}
{% endif %}
{{ seen(scores.window, seen_range, records) }}
{% if cache.format == "f32" %}
// Returns four consecutive elements of the page, from element `at` on.
fn four(page: u32, at: u32) -> vec4<f32> {
    return bitcast<vec4<f32>>(kv[page * {{page_size // 4}}u + at / 4u]);
}
{% elif cache.format == "f16" %}
// Returns four consecutive elements of the page, from element `at` on.
fn four(page: u32, at: u32) -> vec4<f32> {
    let words = kv[page * {{page_size // 4}}u + at / 4u];
    return vec4(unpack2x16float(words.x), unpack2x16float(words.y));
}
{% else %}
// Returns four consecutive int8 elements of the page, from element `at` on.
fn four(page: u32, at: u32) -> vec4<f32> {
    return vec4<f32>(unpack4xI8(kv[page * {{page_size // 128 * 34}}u + at / 4u]));
}

// Returns two consecutive scales from an even `i` on.
fn scales(page: u32, i: u32) -> vec2<f32> {
    return unpack2x16float(kv[page * {{page_size // 128 * 34}}u + {{page_size // 4}}u + i / 2u]);
}
{% endif %}

// Four positions of element d of the keys of a head.
fn keys(page: u32, head: u32, d: u32, position: u32) -> vec4<f32> {
    let codes = four(page, (head * {{cache.dim}}u + d) * 64u + position);
    {% if cache.format == "q8_0" %}
    let i = (head * {{cache.dim // 32}}u + d / 32u) * 64u + position;
    return codes * vec4(scales(page, i), scales(page, i + 2u));
    {% else %}
    return codes;
    {% endif %}
}

{% if cache.matrices == 2 %}
// Four elements of the value of a head at a position.
fn value(page: u32, head: u32, position: u32, d: u32) -> vec4<f32> {
    let row = ({{cache.kv_heads}}u + head) * 64u + position;
    let codes = four(page, row * {{cache.dim}}u + d);
    {% if cache.format == "q8_0" %}
    let i = row * {{cache.dim // 32}}u + d / 32u;
    let pair = scales(page, i);
    return codes * select(pair.x, pair.y, i % 2u == 1u);
    {% else %}
    return codes;
    {% endif %}
}
{% endif %}

// The weights of 64 positions for each token.
var<workgroup> weights: array<vec4<f32>, {{block * 16}}>;
// The maximum of each column's scores for each token; at the end the sum of its weights.
var<workgroup> columns: array<vec4<f32>, {{block * 4}}>;

// Four elements of a query; 0 beyond its end.
fn query(at: u32, d: u32) -> vec4<f32> {
    {% if cache.head_dim % 4 == 0 %}
    return q[(at + d) / 4u];
    {% else %}
    var values: vec4<f32>;
    for (var i = 0u; i < 4u && d + i < {{cache.head_dim}}u; i++) {
        values[i] = q[at + d + i];
    }
    return values;
    {% endif %}
}

@compute @workgroup_size({{threads}})
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) count: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    {{ block_range(query_blocks_at, cache.table) }}
    let head = id.y;
    let kv_head = head / {{heads // cache.kv_heads}}u;
    let column = thread % 16u;
    let group = thread / 16u;

    {% for r in range(rows) %}
    let row{{r}} = {{r * groups}}u + group;
    let query{{r}} = (first_token + min(row{{r}}, tokens - 1u)) * {{q.stride}}u + head * {{cache.head_dim}}u;
    {% if seen_range %}
    let last{{r}} = min(row{{r}}, tokens - 1u);
    let bounds{{r}} = bounds_of(first_token + last{{r}}, first_position + last{{r}});
    {% endif %}
    var max{{r}} = LOWEST;
    var total{{r}} = 0.0;
    {% for j in range(held) %}
    var result{{r}}_{{j}} = vec4(0.0);
    {% endfor %}{% endfor %}

    {% for j in range(held) %}
    let d{{j}} = min(column + {{16 * j}}u, {{quads - 1}}u) * 4u;
    {% endfor %}

    let end = {{ block_end(seen_range) }};
    for (var start = {{ sight(scores.window, seen_range, 64) }}; start < end; start += 64u) {
        let page = step[pages + start / 64u * {{cache.tables}}u];
        {% for r in range(rows) %}
        var score{{r}} = vec4(0.0);
        {% endfor %}
        // Eight elements at a time have more outstanding loads than four.
        for (var d = 0u; d < {{cache.dim}}u; d += 8u) {
            {% for i in range(8) %}
            let key{{i}} = keys(page, kv_head, d + {{i}}u, 4u * column);
            {% endfor %}
            {% for r in range(rows) %}
            let low{{r}} = query(query{{r}}, d);
            let high{{r}} = query(query{{r}}, d + 4u);
            {% endfor %}
            {% for r in range(rows) %}{% for e in "xyzw" %}
            score{{r}} = fma(vec4(low{{r}}.{{e}}), key{{loop.index0}}, score{{r}});
            {% endfor %}{% for e in "xyzw" %}
            score{{r}} = fma(vec4(high{{r}}.{{e}}), key{{4 + loop.index0}}, score{{r}});
            {% endfor %}{% endfor %}
        }
        // Powers of two are cheaper than powers of e.
        {% for r in range(rows) %}
        {% if scores.soft_cap %}
        score{{r}} = 1.442695 * soft_cap(score{{r}} * {{scores.scale}});
        {% else %}
        score{{r}} *= {{scores.log2_scale}};
        {% endif %}
        {% endfor %}
        {{ "" if scores.window or seen_range else "if start + 63u > first_position " }}{
            {% for r in range(rows) %}
            {% set limit = "bounds" ~ r if seen_range else "first_position + row" ~ r %}
            score{{r}} = seen(start + 4u * column, {{limit}}, score{{r}});
            {% endfor %}
        }
        {% for r in range(rows) %}
        let pair{{r}} = max(score{{r}}.xy, score{{r}}.zw);
        columns[row{{r}} * 4u + column / 4u][column % 4u] = max(pair{{r}}.x, pair{{r}}.y);
        {% endfor %}
        workgroupBarrier();
        {% for r in range(rows) %}
        {
            let c = row{{r}} * 4u;
            let four = max(max(columns[c], columns[c + 1u]), max(columns[c + 2u], columns[c + 3u]));
            let two = max(four.xy, four.zw);
            let highest = max(max{{r}}, max(two.x, two.y));
            let shrink = exp2(max{{r}} - highest);
            let weight = exp2(score{{r}} - highest);
            max{{r}} = highest;
            total{{r}} = total{{r}} * shrink + dot(weight, vec4(1.0));
            weights[row{{r}} * 16u + column] = weight;
            {% for j in range(held) %}
            result{{r}}_{{j}} *= shrink;
            {% endfor %}
        }
        {% endfor %}
        workgroupBarrier();

        let last_position = min(64u, end - start) - 1u;
        for (var f = 0u; f <= last_position / 4u; f++) {
            {% if cache.matrices == 1 %}
            // The memory of positions past the end can contain NaN.
            let is_there = vec4(4u * f) + vec4(0u, 1u, 2u, 3u) <= vec4(last_position);
            {% for j in range(held) %}{% for i in range(4) %}
            let value{{i}}_{{j}} = select(vec4(0.0), keys(page, kv_head, d{{j}} + {{i}}u, 4u * f), is_there);
            {% endfor %}{% endfor %}
            {% else %}
            // For positions past the end the last one is read again: their weight is 0, but memory
            // there can contain NaN.
            {% for j in range(held) %}{% for i in range(4) %}
            let value{{i}}_{{j}} = value(page, kv_head, min(4u * f + {{i}}u, last_position), d{{j}});
            {% endfor %}{% endfor %}
            {% endif %}
            {% for r in range(rows) %}
            let weight{{r}} = weights[row{{r}} * 16u + f];
            {% for j in range(held) %}{% if cache.matrices == 1 %}
            result{{r}}_{{j}} += vec4({% for i in range(4) %}dot(weight{{r}}, value{{i}}_{{j}}), {% endfor %});
            {% else %}{% for e in "xyzw" %}
            result{{r}}_{{j}} = fma(vec4(weight{{r}}.{{e}}), value{{loop.index0}}_{{j}}, result{{r}}_{{j}});
            {% endfor %}{% endif %}{% endfor %}{% endfor %}
        }
    }

    {% for r in range(rows) %}
    columns[row{{r}} * 4u + column / 4u][column % 4u] = total{{r}};
    {% endfor %}
    workgroupBarrier();
    {% for r in range(rows) %}
    if row{{r}} < tokens {
        let c = row{{r}} * 4u;
        let seen_total = dot(columns[c] + columns[c + 1u] + columns[c + 2u] + columns[c + 3u], vec4(1.0));
        {% if sinks %}
        // A sink that exceeds all scores by so much leaves nothing either way.
        let total = seen_total + exp2(min(1.442695 * sinks[head] - max{{r}}, 100.0));
        {% else %}
        let total = seen_total;
        {% endif %}
        let to = (first_token + row{{r}}) * {{y.stride}}u + head * {{cache.head_dim}}u;
        {% for j in range(held) %}{% for e in "xyzw" %}
        {
            let d = (column + {{16 * j}}u) * 4u + {{loop.index0}}u;
            if d < {{cache.head_dim}}u {
                y[to + d] = f32(result{{r}}_{{j}}.{{e}} / total);
            }
        }
        {% endfor %}{% endfor %}
    }
    {% endfor %}
}
