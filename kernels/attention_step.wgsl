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
    let pages = step[record + 2u];
    let base = group.x * {{span}}u;
    if base >= length {
        return;
    }
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
    let keys_now = step[pages + position_now / 64u] * {{page_words}}u + kv_head * {{64 * dim // per_word}}u + position_now % 64u / {{per_word}}u;
    {% endif %}
    if index < {{span // 64}}u && base + index * 64u < length {
        page_starts[index] = step[pages + base / 64u + index] * {{page_words}}u;
    }

    {% if fused %}
    // What the token brings along; all that is needed later is asked for now.
    let own_d = min(index, {{head_dim - 1}}u);
    {% if pairs %}
    let turn = angle(record, min(index, {{pairs - 1}}u));
    {% endif %}
    {% if fused and norm %}
    let q_weight = q_norm[own_d];
    let k_weight = k_norm[own_d];
    {% endif %}
    var own_query = Heads(0.0);
    {% if fused %}
    var own_key = 0.0;
    let old_word = cache[keys_now + min(index, {{dim - 1}}u) * {{64 // per_word}}u];
    {% for n in range(per_word) %}
    let v{{n}} = v[token * {{v_stride}}u + kv_head * {{head_dim}}u + min(index % {{words}}u * {{per_word}}u + {{n}}u, {{head_dim - 1}}u)];
    {% endfor %}
    {% endif %}
    if index < {{head_dim}}u {
        own_query = Heads({% for l in range(lanes) %}head_value(token, q_at, first_head + {{l}}u, index), {% endfor %});
        {% if fused %}
        own_key = k[token * {{k_stride}}u + kv_head * {{head_dim}}u + index];
        {% endif %}
    }
    {% if fused and norm %}
    let factor = inverseSqrt(workgroup_sum_heads(own_query * own_query, at) * {{reciprocal}} + {{eps}});
    let key_factor = inverseSqrt(workgroup_sum_one(own_key * own_key, at) * {{reciprocal}} + {{eps}});
    own_query *= factor * q_weight;
    own_key *= key_factor * k_weight;
    {% endif %}
    if index < {{dim}}u {
        queries[index] = own_query;
        {% if fused %}
        new_key[index] = {{ "own_key" if pairs else "kept(own_key)" }};
        {% endif %}
    }
    workgroupBarrier();
    {% if fused and pairs %}
    if index < {{pairs}}u {
        let i = index;
        let a = queries[{{first_of_pair}}];
        let b = queries[{{second_of_pair}}];
        queries[{{first_of_pair}}] = a * turn.x - b * turn.y;
        queries[{{second_of_pair}}] = a * turn.y + b * turn.x;
        let c = new_key[{{first_of_pair}}];
        let d = new_key[{{second_of_pair}}];
        new_key[{{first_of_pair}}] = kept(c * turn.x - d * turn.y);
        new_key[{{second_of_pair}}] = kept(c * turn.y + d * turn.x);
    } else if index >= {{2 * pairs}}u && index < {{dim}}u {
        new_key[index] = kept(own_key);
    }
    workgroupBarrier();
    {% endif %}
    {% else %}
    for (var d = index; d < {{dim}}u; d += {{workgroup}}u) {
        queries[d] = Heads({% for l in range(lanes) %}head_value(token, q_at, first_head + {{l}}u, d), {% endfor %});
    }
    workgroupBarrier();
    {% endif %}

    // Scores. An invocation has one word of keys and some of the elements: the fewer words, the more share one.
    let words_now = max(1u << (32u - countLeadingZeros((end + {{per_word - 1}}u) / {{per_word}}u - 1u)), {{fewest_words}}u);
    let parts_now = {{workgroup}}u / words_now;
    let word = index % words_now;
    let part = index / words_now;
    let position = word * {{per_word}}u;
    {% if fused %}
    // Which of the word's positions is the token's own, if any.
    let now = select(0xffffu, old - position, is_last && position <= old);
    {% endif %}
    {% for n in range(per_word) %}
    var score{{n}} = Heads(0.0);
    {% endfor %}
    if position < end {
        let keys = page_starts[position / 64u] + kv_head * {{64 * dim // per_word}}u + position % 64u / {{per_word}}u;
        let stretch = ({{dim // at_once}}u + parts_now - 1u) / parts_now * {{at_once}}u;
        for (var first = part * stretch; first < min((part + 1u) * stretch, {{dim}}u); first += {{at_once}}u) {
            {% if cache == "q8_0" %}
            let scales = key_scales(page_starts[position / 64u], kv_head, first / 32u, position % 64u);
            {% endif %}
            {
                // All loads first, so that they are under way together.
                {% for j in range(at_once) %}
                let word{{j}} = cache[keys + (first + {{j}}u) * {{64 // per_word}}u];
                {% endfor %}
                {% for j in range(at_once) %}
                {
                    {{ "var" if fused else "let" }} key = {{ "vec4<f32>(unpack4xI8(word" ~ j ~ ")) * scales" if cache == "q8_0" else "unpacked(word" ~ j ~ ")" }};
                    let x = queries[first + {{j}}u];
                    {% if fused %}
                    let own = new_key[first + {{j}}u];
                    {% if per_word == 1 %}
                    key = select(key, own, now == 0u);
                    {% else %}
                    key = select(key, vec2(own), vec2(now) == vec2(0u, 1u));
                    {% endif %}
                    {% endif %}
                    {% for n in range(per_word) %}
                    score{{n}} += x * key{{ "[" ~ n ~ "]" if per_word > 1 }};
                    {% endfor %}
                }
                {% endfor %}
            }
        }
    }
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
        if i < end {
            var sum = shared_heads[i];
            for (var p = 1u; p < parts_now; p++) {
                sum += shared_heads[i + p * words_now * {{per_word}}u];
            }
            weight{{n}} = sum * {{scale}};
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
    weight{{n}} = select(Heads(0.0), exp(weight{{n}} - most), weight{{n}} > Heads({{lowest}}));
    total += weight{{n}};
    {{ "if index < " ~ span ~ "u " if workgroup > span }}{
        shared_heads[index + {{n * workgroup}}u] = weight{{n}};
    }
    {% endfor %}
    total = workgroup_sum_heads(total, at);

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
    // The values. An invocation has one word of elements and every {{groups}}th position.
    {% for n in range(per_word) %}
    {% for w in range(passes) %}
    var sum{{w}}_{{n}} = Heads(0.0);
    {% endfor %}
    {% endfor %}
    let row = index / {{words_at_once}}u;
    let column = index % {{words_at_once}}u;
    if row < {{groups}}u && old > 0u {
        for (var i = row; i < old; i += {{groups * at_once}}u) {
            // Beyond the last position the last one once more, without weight.
            {% for j in range(at_once) %}
            let i{{j}} = min(i + {{j * groups}}u, old - 1u);
            let page{{j}} = page_starts[i{{j}} / 64u];
            let values{{j}} = page{{j}} + ({{kv_heads}}u + kv_head) * {{64 * dim // per_word}}u + i{{j}} % 64u * {{words}}u;
            {% for w in range(passes) %}
            let word{{j}}_{{w}} = cache[values{{j}} + min({{w * words_at_once}}u + column, {{words - 1}}u)];
            {% endfor %}
            {% endfor %}
            {% for j in range(at_once) %}
            {
                let weight = select(Heads(0.0), shared_heads[i{{j}}], i + {{j * groups}}u < old);
                {% for w in range(passes) %}
                {
                    {% if cache == "q8_0" %}
                    let block = min({{w * words_at_once}}u + column, {{words - 1}}u) / 8u;
                    let value = vec4<f32>(unpack4xI8(word{{j}}_{{w}})) * value_scale(page{{j}}, kv_head, i{{j}} % 64u, block);
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
    }
    {% if fused %}
    if is_last && row == 0u {
        let weight = shared_heads[old];
        let to = page_starts[old / 64u] + ({{kv_heads}}u + kv_head) * {{64 * dim // per_word}}u + old % 64u * {{words}}u + column;
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
    if row < {{groups}}u {
        {% for w in range(passes) %}
        if {{w * words_at_once}}u + column < {{words}}u {
            {% for n in range(per_word) %}
            shared_heads[row * {{dim}}u + ({{w * words_at_once}}u + column) * {{per_word}}u + {{n}}u] = sum{{w}}_{{n}};
            {% endfor %}
        }
        {% endfor %}
    }
    workgroupBarrier();
    {% set of_head = "" if lanes == 1 else "[head]" %}
    for (var start = 0u; start < {{dim}}u; start += {{workgroup}}u) {
        let d = min(start + index, {{dim - 1}}u);
        var sum = shared_heads[d];
        for (var r = 1u; r < {{groups}}u; r++) {
            sum += shared_heads[r * {{dim}}u + d];
        }
        {% if not split %}
        sum /= total;
        {% endif %}
        {% if emits %}
        let block = (kv_head * {{group_heads}}u + chunk) * {{head_dim // 32}}u + d / 32u;
        write_codes(sum, 1.0, token, block, start + index, start + index < {{dim}}u);
        {% else %}
        queries[d] = sum;
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
            // A part: its maximum, its total, and its sums, head by head.
            let slot = ((token * step[2] + group.x) * {{heads}}u + number) * {{dim + 2}}u;
            y[slot + 2u + d] = queries[d]{{of_head}};
            if d == 0u {
                y[slot] = most{{of_head}};
                y[slot + 1u] = total{{of_head}};
            }
            {% else %}
            if d < {{head_dim}}u {
                y[token * {{out_stride}}u + number * {{head_dim}}u + d] = queries[d]{{of_head}};
            }
            {% endif %}
        }
    }
    {% endif %}
}

fn head_value(token: u32, at: u32, head: u32, d: u32) -> f32 {
    if head >= {{group_heads}}u || d >= {{head_dim}}u {
        return 0.0;
    }
    return q[token * {{q_stride}}u + at + head * {{head_dim}}u + d];
}

{% if fused %}
{% if pairs %}
// The cosine and the sine of a pair's rotation.
fn angle(record: u32, pair: u32) -> vec2<f32> {
    let at = record + {{angles_at}}u + 2u * pair;
    return bitcast<vec2<f32>>(vec2(step[at], step[at + 1u]));
}
{% endif %}

// What the cache keeps of a number.
fn kept(x: f32) -> f32 {
    return {{ "unpack2x16float(pack2x16float(vec2(x, 0.0))).x" if cache == "f16" else "x" }};
}
{% endif %}

