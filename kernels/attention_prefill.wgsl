// Causal attention of many tokens over the paged cache, page by page with running maxima and sums, in f32. Workgroup
// (i, h) answers query head h of block i, up to {{block}} consecutive tokens of one sequence. Its threads form 16
// columns: each has {{block * 16 // threads}} tokens, four positions of a page and every sixteenth four elements of the
// result. Queries, keys and values come straight from memory, where the caches serve their many readers: little
// workgroup memory lets many workgroups run side by side.

{% set groups = threads // 16 %}
{% set rows = block // groups %}
{% set quads = dim // 4 %}
{% set held = (quads + 15) // 16 %}
{% set aligned = head_dim % 4 == 0 and q_stride % 4 == 0 %}
{% set page_size = 2 * kv_heads * 64 * dim %}

// Below every score, and yet finite: a page may lie wholly beyond a token.
const LOWEST = -1e30;

{{bindings}}
{{soft_cap}}

{% if cache == "f32" %}

// Four neighbours, the first being element `at` of the page.
fn four(page: u32, at: u32) -> vec4<f32> {
    return bitcast<vec4<f32>>(kv[page * {{page_size // 4}}u + at / 4u]);
}
{% elif cache == "f16" %}

// Four neighbours, the first being element `at` of the page.
fn four(page: u32, at: u32) -> vec4<f32> {
    let words = kv[page * {{page_size // 4}}u + at / 4u];
    return vec4(unpack2x16float(words.x), unpack2x16float(words.y));
}
{% else %}

// Four neighbouring codes, the first being that of element `at` of the page.
fn four(page: u32, at: u32) -> vec4<f32> {
    return vec4<f32>(unpack4xI8(kv[page * {{page_size // 128 * 34}}u + at / 4u]));
}

// Two neighbouring scales; `i` is even.
fn scales(page: u32, i: u32) -> vec2<f32> {
    return unpack2x16float(kv[page * {{page_size // 128 * 34}}u + {{page_size // 4}}u + i / 2u]);
}
{% endif %}

// Four positions of element d of the keys of a head.
fn keys(page: u32, head: u32, d: u32, position: u32) -> vec4<f32> {
    let codes = four(page, (head * {{dim}}u + d) * 64u + position);
    {% if cache == "q8_0" %}
    let i = (head * {{dim // 32}}u + d / 32u) * 64u + position;
    return codes * vec4(scales(page, i), scales(page, i + 2u));
    {% else %}
    return codes;
    {% endif %}
}

// Four elements of the value of a head at a position.
fn value(page: u32, head: u32, position: u32, d: u32) -> vec4<f32> {
    let row = ({{kv_heads}}u + head) * 64u + position;
    let codes = four(page, row * {{dim}}u + d);
    {% if cache == "q8_0" %}
    let i = row * {{dim // 32}}u + d / 32u;
    let pair = scales(page, i);
    return codes * select(pair.x, pair.y, i % 2u == 1u);
    {% else %}
    return codes;
    {% endif %}
}

// What each of 64 positions counts for each token.
var<workgroup> weights: array<vec4<f32>, {{block * 16}}>;
// A number of each column for each token: its maximum, in the end its sum.
var<workgroup> columns: array<vec4<f32>, {{block * 4}}>;

// Four elements of a query, zero beyond its width.
fn query(at: u32, d: u32) -> vec4<f32> {
    {% if aligned %}
    return q[(at + d) / 4u];
    {% else %}
    var values: vec4<f32>;
    for (var i = 0u; i < 4u && d + i < {{head_dim}}u; i++) {
        values[i] = q[at + d + i];
    }
    return values;
    {% endif %}
}

fn seen(position: u32, last: u32, scores: vec4<f32>) -> vec4<f32> {
    let positions = vec4(position) + vec4(0u, 1u, 2u, 3u);
    {% if window %}
    return select(scores, vec4(LOWEST), (positions > vec4(last)) | (positions + {{window}}u <= vec4(last)));
    {% else %}
    return select(scores, vec4(LOWEST), positions > vec4(last));
    {% endif %}
}

@compute @workgroup_size({{threads}})
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) count: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    // The last blocks of a run reach back furthest, so they start first.
    let at = {{blocks_at}}u + (count.x - 1u - id.x) * 4u;
    let first_token = step[at];
    let tokens = step[at + 1u];
    let first_position = step[at + 2u];
    let pages = step[at + 3u] + {{table}}u;
    let head = id.y;
    let kv_head = head / {{heads // kv_heads}}u;
    let column = thread % 16u;
    let group = thread / 16u;

    {% for r in range(rows) %}
    let row{{r}} = {{r * groups}}u + group;
    let query{{r}} = (first_token + min(row{{r}}, tokens - 1u)) * {{q_stride}}u + head * {{head_dim}}u;
    var max{{r}} = LOWEST;
    var total{{r}} = 0.0;
    {% for j in range(held) %}
    var result{{r}}_{{j}} = vec4(0.0);
    {% endfor %}{% endfor %}

    {% for j in range(held) %}
    let d{{j}} = min(column + {{16 * j}}u, {{quads - 1}}u) * 4u;
    {% endfor %}

    let end = first_position + tokens;
    {% if window %}
    // What the first token does not see nobody does.
    let sight = (max(first_position + 1u, {{window}}u) - {{window}}u) / 64u * 64u;
    {% endif %}
    for (var start = {{ "sight" if window else "0u" }}; start < end; start += 64u) {
        let page = step[pages + start / 64u * {{tables}}u];
        {% for r in range(rows) %}
        var score{{r}} = vec4(0.0);
        {% endfor %}
        // Eight elements at a time keep more loads under way than four.
        for (var d = 0u; d < {{dim}}u; d += 8u) {
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
        {% if capped %}
        score{{r}} = 1.442695 * soft_cap(score{{r}} * {{scale}});
        {% else %}
        score{{r}} *= {{scale * 1.4426950408889634}};
        {% endif %}
        {% endfor %}
        {{ "" if window else "if start + 63u > first_position " }}{
            {% for r in range(rows) %}
            score{{r}} = seen(start + 4u * column, first_position + row{{r}}, score{{r}});
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

        // Beyond the end the last one once more: without weight, but what lies there need not be numbers.
        let last_position = min(64u, end - start) - 1u;
        for (var f = 0u; f <= last_position / 4u; f++) {
            {% for j in range(held) %}{% for i in range(4) %}
            let value{{i}}_{{j}} = value(page, kv_head, min(4u * f + {{i}}u, last_position), d{{j}});
            {% endfor %}{% endfor %}
            {% for r in range(rows) %}
            let weight{{r}} = weights[row{{r}} * 16u + f];
            {% for j in range(held) %}{% for e in "xyzw" %}
            result{{r}}_{{j}} = fma(vec4(weight{{r}}.{{e}}), value{{loop.index0}}_{{j}}, result{{r}}_{{j}});
            {% endfor %}{% endfor %}{% endfor %}
        }
    }

    {% for r in range(rows) %}
    columns[row{{r}} * 4u + column / 4u][column % 4u] = total{{r}};
    {% endfor %}
    workgroupBarrier();
    {% for r in range(rows) %}
    if row{{r}} < tokens {
        let c = row{{r}} * 4u;
        let total = dot(columns[c] + columns[c + 1u] + columns[c + 2u] + columns[c + 3u], vec4(1.0));
        let to = (first_token + row{{r}}) * {{out_stride}}u + head * {{head_dim}}u;
        {% for j in range(held) %}{% for e in "xyzw" %}
        {
            let d = (column + {{16 * j}}u) * 4u + {{loop.index0}}u;
            if d < {{head_dim}}u {
                out[to + d] = f32(result{{r}}_{{j}}.{{e}} / total);
            }
        }
        {% endfor %}{% endfor %}
    }
    {% endfor %}
}
