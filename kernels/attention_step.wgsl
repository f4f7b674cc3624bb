// Attention of single tokens over the cache, for up to {{lanes}} query heads that share a key-value head.
//
// A workgroup attends to a span of {{span}} positions: first each invocation scores the positions of one word of keys, which
// lie element by element and so need no sums across invocations; then the values of the span are summed, an invocation
// for each word of elements. A sequence of more than one span leaves its parts for `attention_combine` to join.
{% if fused %}
// The token's own key and value are not in the cache yet: the workgroup of the last span appends them.
{% endif %}

{{bindings}}

{{reduce}}
{{cached}}
{{soft_cap}}

alias Heads = {{ "f32" if lanes == 1 else "vec" ~ lanes ~ "<f32>" }};
{% if emits %}
{{codes}}
{% endif %}

// The queries, element by element; those of heads that there are not are zero.
var<workgroup> queries: array<Heads, {{dim}}>;
{% if fused %}
var<workgroup> new_key: array<f32, {{dim}}>;
{% endif %}
// Where the pages of the span begin.
var<workgroup> page_starts: array<u32, {{span // 64}}>;
// In turn the parts of scores, the weights of positions, the parts of the sums.
var<workgroup> shared_heads: array<Heads, {{shared}}>;
{% if subgroup %}
var<workgroup> totals: array<Heads, {{workgroup // subgroup}}>;
{% endif %}
{% if fused %}
// The score of the token's own position, then its weight.
var<workgroup> own_score: Heads;
{% endif %}

{% set batch = groups * values_at_once %}
{# Asks for the values of a batch of positions. Beyond the last position the last one once more. #}
{% macro ask_for(start) %}
    if {{start}} + {{batch}}u <= old {
        {% for page in range((batch + 63) // 64) %}
        let at{{page}} = page_starts[({{start}}) / 64u + {{page}}u] + values_at + (({{start}}) % 64u + row) * {{words}}u;
        {% endfor %}
        {% for j in range(values_at_once) %}{% for w in range(passes) %}
        value{{j}}_{{w}} = cache[at{{j * groups // 64}} + {{j * groups % 64 * words}}u + column{{w}}];
        {% endfor %}{% endfor %}
    } else {
        {% for j in range(values_at_once) %}
        {
            let i = min({{start}} + {{j * groups}}u + row, last_old);
            let at = page_starts[i / 64u] + values_at + i % 64u * {{words}}u;
            {% for w in range(passes) %}
            value{{j}}_{{w}} = cache[at + column{{w}}];
            {% endfor %}
        }
        {% endfor %}
    }
{% endmacro %}

@compute @workgroup_size({{workgroup}})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) index_: u32,
    {% if subgroup %}
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_size) subgroup_size: u32,
    @builtin(num_subgroups) subgroups: u32,
    @builtin(subgroup_invocation_id) lane: u32,
    {% endif %}
) {
    let index = {{ "subgroup * subgroup_size + lane" if subgroup else "index_" }};
    let at = Invocation(index{{ ", subgroup, subgroups, lane" if subgroup }});
    let token = group.z;
    let record = {{records_at}}u + token * {{record_words}}u;
    let length = step[record + 1u] + 1u;
    // The first token's page table is known where it lies.
    var pages = {{tables_at + table}}u;
    if token > 0u {
        pages = step[record + 2u] + {{table}}u;
    }
    let base = group.x * {{span}}u;
    if base >= length {
        return;
    }
    {% if window %}
    // Positions before this are out of sight.
    let sight = max(length, {{window}}u) - {{window}}u;
    if base + {{span}}u <= sight {
        return;
    }
    let hidden = max(sight, base) - base;
    {% endif %}
    let kv_head = group.y / {{chunks}}u;
    let chunk = group.y % {{chunks}}u;
    let first_head = chunk * {{lanes}}u;
    let q_at = kv_head * {{group_heads}}u * {{head_dim}}u;
    let end = min(length - base, {{span}}u);
    {% if fused %}
    let is_last = base + {{span}}u >= length;
    let old = select(end, end - 1u, is_last);
    {% else %}
    let old = end;
    {% endif %}

    {% if fused %}
    // Asked for now, needed later: the words of the cache that get the token's own key.
    let position_now = length - 1u;
    let keys_now = step[pages + position_now / 64u * {{tables}}u] * {{page_words}}u + kv_head * {{64 * dim // per_word}}u + position_now % 64u / {{per_word}}u;
    {% endif %}
    if index < {{span // 64}}u && base + index * 64u < length {
        page_starts[index] = step[pages + (base / 64u + index) * {{tables}}u] * {{page_words}}u;
    }

    // Scores. An invocation has one word of keys and some of the elements: the fewer words, the more share one.
    let words_now = max(1u << (32u - countLeadingZeros((end + {{per_word - 1}}u) / {{per_word}}u - 1u)), {{fewest_words}}u);
    let parts_now = {{workgroup}}u / words_now;
    let word = index % words_now;
    let part = index / words_now;
    let position = word * {{per_word}}u;
    let stretch = ({{dim // at_once}}u + parts_now - 1u) / parts_now * {{at_once}}u;
    // Values. An invocation has some words of elements of every {{groups}}th position.
    let row = min(index / {{words_at_once}}u, {{groups - 1}}u);
    {% for w in range(passes) %}
    let column{{w}} = min({{w * words_at_once}}u + index % {{words_at_once}}u, {{words - 1}}u);
    {% endfor %}
    let values_at = ({{kv_heads}}u + kv_head) * {{64 * dim // per_word}}u;
    let last_old = max(old, 1u) - 1u;
    // The first of them are on their way while the queries are made.
    let own_keys = step[pages + (base / 64u + min(position, end - 1u) / 64u) * {{tables}}u] * {{page_words}}u + kv_head * {{64 * dim // per_word}}u + position % 64u / {{per_word}}u;
    {% for j in range(at_once) %}
    var key{{j}} = cache[own_keys + (min(part * stretch, {{dim - at_once}}u) + {{j}}u) * {{64 // per_word}}u];
    {% endfor %}
    {% if fused %}
    let old_word = cache[keys_now + min(index, {{dim - 1}}u) * {{64 // per_word}}u];
    {% for n in range(per_word) %}
    let v{{n}} = v[token * {{v_stride}}u + kv_head * {{head_dim}}u + min(index % {{words}}u * {{per_word}}u + {{n}}u, {{head_dim - 1}}u)];
    {% endfor %}
    // The token's own query and key: each element, and the one that it turns with.
    let d = min(index, {{head_dim - 1}}u);
    {% set turns = "d < " ~ 2 * pairs ~ "u" if 2 * pairs < head_dim %}
    let other_d = {{ "select(d, " ~ partner ~ ", " ~ turns ~ ")" if turns else partner }};
    let turn = {{ "select(vec2(1.0, 0.0), angle(record, " ~ pair ~ "), " ~ turns ~ ")" if turns else "angle(record, " ~ pair ~ ")" }};
    var own_query = query(token, q_at, first_head, d);
    var other_query = query(token, q_at, first_head, other_d);
    var own_key = k[token * {{k_stride}}u + kv_head * {{head_dim}}u + d];
    var other_key = k[token * {{k_stride}}u + kv_head * {{head_dim}}u + other_d];
    {% if norm %}
    let q_weights = vec2(q_norm[d], q_norm[other_d]);
    let k_weights = vec2(k_norm[d], k_norm[other_d]);
    {% if subgroup %}
    // Each subgroup finds the same sums, so that none waits for another.
    var squares = Heads(0.0);
    var key_squares = 0.0;
    {% for first in range(0, head_dim, subgroup) %}
    {{ "if lane < " ~ (head_dim - first) ~ "u " if first + subgroup > head_dim }}{
        let x = query(token, q_at, first_head, {{first}}u + lane);
        let y = k[token * {{k_stride}}u + kv_head * {{head_dim}}u + {{first}}u + lane];
        squares += x * x;
        key_squares += y * y;
    }
    {% endfor %}
    squares = subgroupAdd(squares);
    key_squares = subgroupAdd(key_squares);
    {% else %}
    let is_own = index < {{head_dim}}u;
    let squares = workgroup_sum_heads(select(Heads(0.0), own_query * own_query, is_own), at);
    let key_squares = workgroup_sum_one(select(0.0, own_key * own_key, is_own), at);
    {% endif %}
    let factor = inverseSqrt(squares * {{reciprocal}} + {{eps}});
    let key_factor = inverseSqrt(key_squares * {{reciprocal}} + {{eps}});
    own_query *= factor * q_weights.x;
    other_query *= factor * q_weights.y;
    own_key *= key_factor * k_weights.x;
    other_key *= key_factor * k_weights.y;
    {% endif %}
    let sine = select(turn.y, -turn.y, {{is_first}});
    own_key = kept(own_key * turn.x + other_key * sine);
    if index < {{dim}}u {
        let is_padding = index >= {{head_dim}}u;
        queries[index] = select(own_query * turn.x + other_query * sine, Heads(0.0), is_padding);
        new_key[index] = select(own_key, 0.0, is_padding);
    }
    {% else %}
    for (var d = index; d < {{dim}}u; d += {{workgroup}}u) {
        queries[d] = query(token, q_at, first_head, d);
    }
    {% endif %}
    workgroupBarrier();

    {% if fused %}
    {% if subgroup %}
    if subgroup == 0u {
        var sum = Heads(0.0);
        {% for first in range(0, dim, subgroup) %}
        {{ "if lane < " ~ (dim - first) ~ "u " if first + subgroup > dim }}{
            sum += queries[{{first}}u + lane] * new_key[{{first}}u + lane];
        }
        {% endfor %}
        sum = subgroupAdd(sum);
        if lane == 0u {
            own_score = sum;
        }
    }
    {% else %}
    let sum_now = workgroup_sum_heads(select(Heads(0.0), queries[min(index, {{dim - 1}}u)] * own_key, index < {{head_dim}}u), at);
    if index == 0u {
        own_score = sum_now;
    }
    {% endif %}
    {% endif %}
    {% for n in range(per_word) %}
    var score{{n}} = Heads(0.0);
    {% endfor %}
    if position < end {
        let keys = page_starts[position / 64u] + kv_head * {{64 * dim // per_word}}u + position % 64u / {{per_word}}u;
        for (var first = part * stretch; first < min((part + 1u) * stretch, {{dim}}u); first += {{at_once}}u) {
            {% if cache == "q8_0" %}
            let scales = key_scales(page_starts[position / 64u], kv_head, first / 32u, position % 64u);
            {% endif %}
            {
                // All loads first, so that they are under way together.
                {% for j in range(at_once) %}
                let word{{j}} = key{{j}};
                {% endfor %}
                if first + {{at_once}}u < min((part + 1u) * stretch, {{dim}}u) {
                    {% for j in range(at_once) %}
                    key{{j}} = cache[keys + (first + {{at_once + j}}u) * {{64 // per_word}}u];
                    {% endfor %}
                }
                {% for j in range(at_once) %}
                {
                    let key = {{ "vec4<f32>(unpack4xI8(word" ~ j ~ ")) * scales" if cache == "q8_0" else "unpacked(word" ~ j ~ ")" }};
                    let x = queries[first + {{j}}u];
                    {% for n in range(per_word) %}
                    score{{n}} += x * key{{ "[" ~ n ~ "]" if per_word > 1 }};
                    {% endfor %}
                }
                {% endfor %}
            }
        }
    }
    {% for j in range(values_at_once) %}{% for w in range(passes) %}
    var value{{j}}_{{w}}: u32;
    {% endfor %}{% endfor %}
    // The first values are on their way while the scores become weights.
    {{ ask_for("0u") }}
    {% for n in range(per_word) %}
    shared_heads[part * words_now * {{per_word}}u + position + {{n}}u] = score{{n}};
    {% endfor %}
    workgroupBarrier();

    // Weights of positions.
    {% set rounds = (span + workgroup - 1) // workgroup %}
    {% for n in range(rounds) %}
    var weight{{n}} = Heads({{lowest}});
    {
        let i = index + {{n * workgroup}}u;
        if {{ "i >= hidden && " if window }}i < end {
            var sum = shared_heads[i];
            for (var p = 1u; p < parts_now; p++) {
                sum += shared_heads[i + p * words_now * {{per_word}}u];
            }
            {% if fused %}
            if i == old {
                sum = own_score;
            }
            {% endif %}
            weight{{n}} = {{ "soft_cap(sum * " ~ scale ~ ")" if capped else "sum * " ~ scale }};
        }
    }
    {% endfor %}
    var most = weight0;
    {% for n in range(1, rounds) %}
    most = max(most, weight{{n}});
    {% endfor %}
    most = workgroup_max_heads(most, at);
    var total = Heads(0.0);
    {% for n in range(rounds) %}
    {
        let i = index + {{n * workgroup}}u;
        let weight = select(Heads(0.0), exp(weight{{n}} - most), weight{{n}} > Heads({{lowest}}));
        total += weight;
        {% if fused %}
        if i == old && is_last {
            own_score = weight;
        }
        {% endif %}
        {{ "if i < " ~ span ~ "u " if rounds * workgroup > span }}{
            shared_heads[i] = {{ "select(weight, Heads(0.0), i >= old)" if fused else "weight" }};
        }
    }
    {% endfor %}
    {% if subgroup %}
    total = subgroupAdd(total);
    if lane == 0u {
        totals[subgroup] = total;
    }
    workgroupBarrier();
    {% else %}
    total = workgroup_sum_heads(total, at);
    {% endif %}

    {% if fused %}
    // Everyone has read the keys by now.
    if is_last && chunk == 0u && index < {{dim}}u {
        {% if cache == "f16" %}
        let half = pack2x16float(vec2(new_key[index], 0.0));
        let merged = select((old_word & 0xffff0000u) | half, (old_word & 0xffffu) | (half << 16u), position_now % 2u == 1u);
        cache[keys_now + index * 32u] = merged;
        {% else %}
        cache[keys_now + index * 64u] = bitcast<u32>(new_key[index]);
        {% endif %}
    }
    {% endif %}
    {% for n in range(per_word) %}
    {% for w in range(passes) %}
    var sum{{w}}_{{n}} = Heads(0.0);
    {% endfor %}
    {% endfor %}
    for (var start = 0u; start < old; start += {{batch}}u) {
        {% for j in range(values_at_once) %}{% for w in range(passes) %}
        let word{{j}}_{{w}} = value{{j}}_{{w}};
        {% endfor %}{% endfor %}
        if start + {{batch}}u < old {
            let next = start + {{batch}}u;
            {{ ask_for("next") }}
        }
        {% for j in range(values_at_once) %}
        {
            let i = start + {{j * groups}}u + row;
            let weight = shared_heads[i];
            {% for w in range(passes) %}
            {
                {% if cache == "q8_0" %}
                let there = min(i, last_old);
                let scale = value_scale(page_starts[there / 64u], kv_head, there % 64u, column{{w}} / 8u);
                let value = vec4<f32>(unpack4xI8(word{{j}}_{{w}})) * scale;
                {% else %}
                let value = unpacked(word{{j}}_{{w}});
                {% endif %}
                {% for n in range(per_word) %}
                sum{{w}}_{{n}} += weight * value{{ "[" ~ n ~ "]" if per_word > 1 }};
                {% endfor %}
            }
            {% endfor %}
        }
        {% endfor %}
    }
    {% if fused %}
    if is_last && index < {{words_at_once}}u {
        let weight = own_score;
        let column = column0;
        let to = page_starts[old / 64u] + values_at + old % 64u * {{words}}u + column;
        {% if cache == "f16" %}
        let packed = select(pack2x16float(vec2(v0, v1)), 0u, 2u * column >= {{head_dim}}u);
        let value = unpack2x16float(packed);
        {% else %}
        let value = select(v0, 0.0, column >= {{head_dim}}u);
        let packed = bitcast<u32>(value);
        {% endif %}
        if chunk == 0u {
            cache[to] = packed;
        }
        {% for n in range(per_word) %}
        sum0_{{n}} += weight * value{{ "[" ~ n ~ "]" if per_word > 1 }};
        {% endfor %}
    }
    {% endif %}
    workgroupBarrier();
    if index < {{groups * words_at_once}}u {
        {% for w in range(passes) %}{% for n in range(per_word) %}
        shared_heads[row * {{dim}}u + column{{w}} * {{per_word}}u + {{n}}u] = sum{{w}}_{{n}};
        {% endfor %}{% endfor %}
    }
    {% if subgroup %}
    {% set count = workgroup // subgroup %}
    {% if count <= subgroup %}
    total = subgroupAdd(select(Heads(0.0), totals[min(lane, {{count - 1}}u)], lane < {{count}}u));
    {% else %}
    total = totals[0];
    for (var i = 1u; i < {{count}}u; i++) {
        total += totals[i];
    }
    {% endif %}
    {% endif %}
    workgroupBarrier();
    {% set of_head = "" if lanes == 1 else "[head]" %}
    for (var start = 0u; start < {{dim}}u; start += {{workgroup}}u) {
        let d = start + index;
        var sum = Heads(0.0);
        if d < {{dim}}u {
            for (var r = 0u; r < {{groups}}u; r++) {
                sum += shared_heads[r * {{dim}}u + d];
            }
            {% if not split %}
            sum /= total;
            {% endif %}
            {% if not emits %}
            queries[d] = sum;
            {% endif %}
        }
        {% if split %}
        if d == 0u {
            {% for l in range(lanes) %}
            if first_head + {{l}}u < {{group_heads}}u {
                let to = part_at(token, group.x, kv_head * {{group_heads}}u + first_head + {{l}}u);
                y[to] = most{{ "[" ~ l ~ "]" if lanes > 1 }};
                y[to + 1u] = total{{ "[" ~ l ~ "]" if lanes > 1 }};
            }
            {% endfor %}
        }
        {% endif %}
        {% if emits %}
        let block = (kv_head * {{group_heads}}u + chunk) * {{head_dim // 32}}u + d / 32u;
        write_codes(sum, 1.0, token, block, d, d < {{dim}}u);
        {% endif %}
    }
    {% if not emits %}
    workgroupBarrier();
    for (var i = index; i < {{lanes * dim}}u; i += {{workgroup}}u) {
        let head = i / {{dim}}u;
        let d = i % {{dim}}u;
        let number = kv_head * {{group_heads}}u + first_head + head;
        if first_head + head < {{group_heads}}u {
            {% if split %}
            y[part_at(token, group.x, number) + 2u + d] = queries[d]{{of_head}};
            {% else %}
            if d < {{head_dim}}u {
                y[token * {{out_stride}}u + number * {{head_dim}}u + d] = queries[d]{{of_head}};
            }
            {% endif %}
        }
    }
    {% endif %}
}

{% if split %}
// Where a head's part lies: its maximum, its total, and its sums.
fn part_at(token: u32, span: u32, head: u32) -> u32 {
    return ((token * step[2] + span) * {{heads}}u + head) * {{dim + 2}}u;
}
{% endif %}

// Element `d` of the heads.
fn query(token: u32, at: u32, first_head: u32, d: u32) -> Heads {
    return Heads({% for l in range(lanes) %}head_value(token, at, first_head + {{l}}u, d), {% endfor %});
}

fn head_value(token: u32, at: u32, head: u32, d: u32) -> f32 {
    {% if group_heads % lanes %}
    if head >= {{group_heads}}u {
        return 0.0;
    }
    {% endif %}
    {% if dim > head_dim and not fused %}
    if d >= {{head_dim}}u {
        return 0.0;
    }
    {% endif %}
    return q[token * {{q_stride}}u + at + head * {{head_dim}}u + d];
}

{% if fused %}
// The cosine and the sine of a pair's rotation.
fn angle(record: u32, pair: u32) -> vec2<f32> {
    let at = record + {{angles_at}}u + 2u * pair;
    return bitcast<vec2<f32>>(vec2(step[at], step[at + 1u]));
}

// What the cache keeps of a number.
fn kept(x: f32) -> f32 {
    return {{ "unpack2x16float(pack2x16float(vec2(x, 0.0))).x" if cache == "f16" else "x" }};
}
{% endif %}

