// Causal attention of many tokens over the paged cache, {{span}} positions at a time with running maxima and sums, with
// cooperative matrices: f16 in, f32 sums. Workgroup (i, h) answers query head h of block i, up to {{block}} consecutive
// tokens of one sequence. A subgroup has 16 of them; the lanes that share a token have every so many fours of its
// scores and of its result.
enable f16;
enable wgpu_cooperative_matrix;
diagnostic(off, derivative_uniformity);

{% set threads = block // 16 * subgroup_size %}
{% set sharers = subgroup_size // 16 %}
{% set quads = head_dim // 4 %}
{% set span_quads = span // 4 %}
{% set loads = head_dim * span_quads // threads %}
{% set shares = span_quads // sharers %}
{% set deep = head_dim // 16 %}
{% set across = span // 16 %}
{% set page_size = 2 * kv_heads * 64 * head_dim %}
{% set staged = [head_dim * (span_quads + 2), span * (quads + 2), block * (quads + 2)] | max %}
// Rows in workgroup memory are eight elements longer than what they hold, which keeps neighbours in different banks.
const SPAN_PITCH = {{span_quads + 2}}u;
const HEAD_PITCH = {{quads + 2}}u;
// Below every score, and yet finite: a span may lie wholly beyond a token.
const LOWEST = -1e30;
// Powers of two are cheaper than powers of e.
const SCALE = f32({{scale * 1.4426950408889634}});

{{bindings}}
{{soft_cap}}

// The queries, then in turn the keys and the values of a span.
var<workgroup> tile: array<vec4<f16>, {{staged}}>;
// Each token's scores, then in turn parts of its result.
var<workgroup> sums: array<vec4<f32>, {{block * (span_quads + 2)}}>;
// What each position counts for each token.
var<workgroup> weights: array<vec4<f16>, {{block * (span_quads + 2)}}>;

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
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    // The last blocks of a run reach back furthest, so they start first.
    let at = {{blocks_at}}u + (count.x - 1u - id.x) * 4u;
    let first_token = step[at];
    let tokens = step[at + 1u];
    let first_position = step[at + 2u];
    let pages = step[at + 3u] + {{table}}u;
    let end = first_position + tokens;
    {% if window %}
    // What the first token does not see nobody does.
    let sight = (max(first_position + 1u, {{window}}u) - {{window}}u) / {{span}}u * {{span}}u;
    {% else %}
    let sight = 0u;
    {% endif %}
    let last_start = (end - 1u) / {{span}}u * {{span}}u;
    let head = id.y;
    let keys = head / {{heads // kv_heads}}u * {{16 * head_dim}}u;
    let values = keys + {{kv_heads * 16 * head_dim}}u;
    let token = subgroup * 16u + lane / {{sharers}}u;
    let share = lane % {{sharers}}u;
    let strip = subgroup * 16u * SPAN_PITCH;
    let mine = token * SPAN_PITCH + share;

    for (var i = thread; i < {{block * quads}}u; i += {{threads}}u) {
        let row = first_token + min(i / {{quads}}u, tokens - 1u);
        let query = q[row * {{q_stride // 4}}u + head * {{quads}}u + i % {{quads}}u];
        tile[i / {{quads}}u * HEAD_PITCH + i % {{quads}}u] = vec4<f16>(query);
    }
    workgroupBarrier();
    {% for i in range(deep) %}
    let query{{i}} = coopLoadT<coop_mat16x16<f16, A>>(&tile[subgroup * 16u * HEAD_PITCH + {{4 * i}}u], HEAD_PITCH);
    {% endfor %}
    {% for i in range(quads // sharers) %}
    var result{{i}} = vec4(0.0);
    {% endfor %}
    var highest = LOWEST;
    var total = 0.0;

    {% for l in range(loads) %}
    let i{{l}} = thread + {{l * threads}}u;
    let key_at{{l}} = i{{l}} / {{span_quads}}u * 16u + i{{l}} % {{span_quads}}u;
    var next{{l}} = kv[step[pages + sight / 64u * {{tables}}u] * {{page_size // 4}}u + keys + sight % 64u / 4u + key_at{{l}}];
    {% endfor %}
    for (var start = sight; start < end; start += {{span}}u) {
        workgroupBarrier();
        {% for l in range(loads) %}
        tile[i{{l}} / {{span_quads}}u * SPAN_PITCH + i{{l}} % {{span_quads}}u] = next{{l}};
        {% endfor %}
        workgroupBarrier();

        // The values are on their way while the keys are multiplied, and the next keys while the values are.
        let value_at = step[pages + start / 64u * {{tables}}u] * {{page_size // 4}}u + values + start % 64u * {{quads}}u;
        // Beyond the end the last one once more: without weight, but what lies there need not be numbers.
        let last_value = min({{span}}u, end - start) * {{quads}}u - 1u;
        {% for l in range(loads) %}
        next{{l}} = kv[value_at + min(i{{l}}, last_value)];
        {% endfor %}
        {% for j in range(across) %}
        {
            var score = coop_mat16x16<f32, C>();
            {% for i in range(deep) %}
            let key{{i}} = coopLoadT<coop_mat16x16<f16, B>>(&tile[{{16 * i}}u * SPAN_PITCH + {{4 * j}}u], SPAN_PITCH);
            score = coopMultiplyAdd(query{{i}}, key{{i}}, score);
            {% endfor %}
            let block = score;
            let corner = strip + {{4 * j}}u;
            let pitch = SPAN_PITCH;
            coopStoreT(block, &sums[corner], pitch);
        }
        {% endfor %}
        workgroupBarrier();

        {% for l in range(loads) %}
        tile[i{{l}} / {{quads}}u * HEAD_PITCH + i{{l}} % {{quads}}u] = next{{l}};
        {% endfor %}
        {% for i in range(shares) %}
        {% if capped %}
        var score{{i}} = 1.442695 * soft_cap({{scale}} * sums[mine + {{i * sharers}}u]);
        {% else %}
        var score{{i}} = SCALE * sums[mine + {{i * sharers}}u];
        {% endif %}
        {% endfor %}
        {{ "" if window else "if start + " ~ (span - 1) ~ "u > first_position " }}{
            {% for i in range(shares) %}
            score{{i}} = seen(start + ({{i * sharers}}u + share) * 4u, first_position + token, score{{i}});
            {% endfor %}
        }
        var four = score0;
        {% for i in range(1, shares) %}
        four = max(four, score{{i}});
        {% endfor %}
        var peak = max(highest, max(max(four.x, four.y), max(four.z, four.w)));
        {% for m in [1, 2, 4, 8] if m < sharers %}
        peak = max(peak, subgroupShuffleXor(peak, {{m}}u));
        {% endfor %}
        let shrink = exp2(highest - peak);
        highest = peak;
        total *= shrink;
        {% for i in range(shares) %}
        let weight{{i}} = exp2(score{{i}} - peak);
        total += dot(weight{{i}}, vec4(1.0));
        weights[mine + {{i * sharers}}u] = vec4<f16>(weight{{i}});
        {% endfor %}
        workgroupBarrier();

        let next_start = min(start + {{span}}u, last_start);
        let next_key = step[pages + next_start / 64u * {{tables}}u] * {{page_size // 4}}u + keys + next_start % 64u / 4u;
        {% for l in range(loads) %}
        next{{l}} = kv[next_key + key_at{{l}}];
        {% endfor %}
        {% for first in range(0, deep, across) %}
        {% set some = range(first, [first + across, deep] | min) %}
        {
            {% for i in some %}
            var part{{i}} = coop_mat16x16<f32, C>();
            {% endfor %}
            {% for j in range(across) %}
            {
                let weight = coopLoadT<coop_mat16x16<f16, A>>(&weights[strip + {{4 * j}}u], SPAN_PITCH);
                {% for i in some %}
                let corner{{i}} = {{16 * j}}u * HEAD_PITCH + {{4 * i}}u;
                let value{{i}} = coopLoadT<coop_mat16x16<f16, B>>(&tile[corner{{i}}], HEAD_PITCH);
                part{{i}} = coopMultiplyAdd(weight, value{{i}}, part{{i}});
                {% endfor %}
            }
            {% endfor %}
            let pitch = SPAN_PITCH;
            {% if first > 0 %}
            workgroupBarrier();
            {% endif %}
            {% for i in some %}
            let block{{i}} = part{{i}};
            let corner{{i}} = strip + {{4 * (i - first)}}u;
            coopStoreT(block{{i}}, &sums[corner{{i}}], pitch);
            {% endfor %}
            workgroupBarrier();
            {% for i in range([shares, (quads - 4 * first) // sharers] | min) %}
            {% set r = first // across * shares + i %}
            result{{r}} = result{{r}} * shrink + sums[mine + {{i * sharers}}u];
            {% endfor %}
        }
        {% endfor %}
    }

    {% for m in [1, 2, 4, 8] if m < sharers %}
    total += subgroupShuffleXor(total, {{m}}u);
    {% endfor %}
    if token < tokens {
        let to = (first_token + token) * {{out_stride // 4}}u + head * {{quads}}u + share;
        {% for i in range(quads // sharers) %}
        out[to + {{i * sharers}}u] = vec4<f32>(result{{i}} / total);
        {% endfor %}
    }
}
