// Computes attention of more than 16 tokens over the paged cache on matrix units
// (cooperative matrices of f16 with f32 sums), `tile` positions at a time, with running maxima and
// sums.
//
// Workgroup (i, h) computes query head h of block i: up to `block` consecutive tokens of one
// sequence, 16 for each subgroup. The lanes that share a token take turns at vectors of four of its
// scores and of its result.
//
// Parameters (`AttentionPrefillCoop`):
//   block: u32 - tokens of a block
//   tile: u32 - positions that are attended to at a time
//   subgroup_size: u32 - invocations of a subgroup
//   query_blocks_at: u32 - the first word, in the step's buffer, of the `PositionRange`s of the
//     blocks
//   cache: PagedCache - the layer's cache, of f16
//   heads: u32 - number of query heads
//   scores: ScoreParams - the operations on scores
//   seen_range: SeenRange? - the positions that a token sees; none for its own and all before it
//   records: Records - the tokens' records
//   sinks: BoundBuffer? - a further score of each head, of a value of 0, if there are sinks
//   q: Strided - the queries, `[tokens, heads, head_dim]`
//   y: Strided - the result, `[tokens, heads, head_dim]`
//
// Buffers:
//   q: vec4<f32>
//   kv: vec4<f16> - the layer's pages
//   y: vec4<f32>, written
//   sinks: f32 - `[heads]`

enable f16;
enable wgpu_cooperative_matrix;
diagnostic(off, derivative_uniformity);

{% from "shared/prefill" import block_end, block_range, seen, sight %}
{% from "shared/soft_cap" import soft_cap %}
{% set threads = block // 16 * subgroup_size %}
{% set sharers = subgroup_size // 16 %}
{% set head_quads = cache.head_dim // 4 %}
{% set quads = cache.dim // 4 %}
{% set tile_quads = tile // 4 %}
{% set loads = cache.dim * tile_quads // threads %}
{% set shares = tile_quads // sharers %}
{% set deep = cache.dim // 16 %}
{% set across = tile // 16 %}
{% set page_size = cache.matrices * cache.kv_heads * 64 * cache.dim %}
{% set staged = [cache.dim * (tile_quads + 2), tile * (quads + 2), block * (quads + 2)] | max %}
// Elements of a row in workgroup memory, in fours. Eight are unused, which keeps neighbors in
// different banks.
const TILE_PITCH = {{tile_quads + 2}}u;
const HEAD_PITCH = {{quads + 2}}u;
// Below every score, but finite: a token may see no position of a tile.
const LOWEST = -1e30;
// Powers of two are cheaper than powers of e.
const SCALE = {{scores.log2_scale}};

{% include "shared/bindings" %}
{% if scores.soft_cap %}
{{ soft_cap(scores.soft_cap, "vec4<f32>") }}
{% endif %}

// The queries, then in turn the keys and the values of a tile.
var<workgroup> tile: array<vec4<f16>, {{staged}}>;
// Each token's scores, and after them parts of its result, in turn.
var<workgroup> sums: array<vec4<f32>, {{block * (tile_quads + 2)}}>;
// The weight of each position for each token.
var<workgroup> weights: array<vec4<f16>, {{block * (tile_quads + 2)}}>;

{{ seen(scores.window, seen_range, records) }}

@compute @workgroup_size({{threads}})
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) count: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    {{ block_range(query_blocks_at, cache.table) }}
    let end = {{ block_end(seen_range) }};
    let sight = {{ sight(scores.window, seen_range, tile) }};
    let last_start = (end - 1u) / {{tile}}u * {{tile}}u;
    let head = id.y;
    let keys = head / {{heads // cache.kv_heads}}u * {{16 * cache.dim}}u;
    let values = keys + {{cache.kv_heads * 16 * cache.dim}}u;
    let token = subgroup * 16u + lane / {{sharers}}u;
    let share = lane % {{sharers}}u;
    let strip = subgroup * 16u * TILE_PITCH;
    let mine = token * TILE_PITCH + share;
    {% if seen_range %}
    let last = min(token, tokens - 1u);
    let bounds = bounds_of(first_token + last, first_position + last);
    {% endif %}

    for (var i = thread; i < {{block * quads}}u; i += {{threads}}u) {
        let row = first_token + min(i / {{quads}}u, tokens - 1u);
        {% if quads > head_quads %}
        // The cache has zeros past the end of a head, so any finite number will do there.
        let query = q[row * {{q.stride // 4}}u + head * {{head_quads}}u + min(i % {{quads}}u, {{head_quads - 1}}u)];
        {% else %}
        let query = q[row * {{q.stride // 4}}u + head * {{quads}}u + i % {{quads}}u];
        {% endif %}
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
    let key_at{{l}} = i{{l}} / {{tile_quads}}u * 16u + i{{l}} % {{tile_quads}}u;
    var next{{l}} = kv[step[pages + sight / 64u * {{cache.tables}}u] * {{page_size // 4}}u
        + keys + sight % 64u / 4u + key_at{{l}}];
    {% endfor %}
    for (var start = sight; start < end; start += {{tile}}u) {
        workgroupBarrier();
        {% for l in range(loads) %}
        tile[i{{l}} / {{tile_quads}}u * TILE_PITCH + i{{l}} % {{tile_quads}}u] = next{{l}};
        {% endfor %}
        workgroupBarrier();

        // The values are loaded while the keys are multiplied, and the next keys while the values
        // are multiplied.
        let value_at = step[pages + start / 64u * {{cache.tables}}u] * {{page_size // 4}}u
            + values + start % 64u * {{quads}}u;
        // For positions past the end the last value is read again: their weight is 0, but memory
        // there can contain NaN.
        let last_value = min({{tile}}u, end - start) * {{quads}}u - 1u;
        {% for l in range(loads) %}
        next{{l}} = kv[value_at + min(i{{l}}, last_value)];
        {% endfor %}
        {% for j in range(across) %}
        {
            var score = coop_mat16x16<f32, C>();
            {% for i in range(deep) %}
            let key{{i}} = coopLoadT<coop_mat16x16<f16, B>>(&tile[{{16 * i}}u * TILE_PITCH + {{4 * j}}u], TILE_PITCH);
            score = coopMultiplyAdd(query{{i}}, key{{i}}, score);
            {% endfor %}
            let block = score;
            let corner = strip + {{4 * j}}u;
            let pitch = TILE_PITCH;
            coopStoreT(block, &sums[corner], pitch);
        }
        {% endfor %}
        workgroupBarrier();

        {% for l in range(loads) %}
        tile[i{{l}} / {{quads}}u * HEAD_PITCH + i{{l}} % {{quads}}u] = next{{l}};
        {% endfor %}
        {% for i in range(shares) %}
        {% if scores.soft_cap %}
        var score{{i}} = 1.442695 * soft_cap({{scores.scale}} * sums[mine + {{i * sharers}}u]);
        {% else %}
        var score{{i}} = SCALE * sums[mine + {{i * sharers}}u];
        {% endif %}
        {% endfor %}
        {{ "" if scores.window or seen_range else "if start + " ~ (tile - 1) ~ "u > first_position " }}{
            {% for i in range(shares) %}
            {% set limit = "bounds" if seen_range else "first_position + token" %}
            score{{i}} = seen(start + ({{i * sharers}}u + share) * 4u, {{limit}}, score{{i}});
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

        let next_start = min(start + {{tile}}u, last_start);
        let next_key = step[pages + next_start / 64u * {{cache.tables}}u] * {{page_size // 4}}u
            + keys + next_start % 64u / 4u;
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
                let weight = coopLoadT<coop_mat16x16<f16, A>>(&weights[strip + {{4 * j}}u], TILE_PITCH);
                {% for i in some %}
                let corner{{i}} = {{16 * j}}u * HEAD_PITCH + {{4 * i}}u;
                let value{{i}} = coopLoadT<coop_mat16x16<f16, B>>(&tile[corner{{i}}], HEAD_PITCH);
                part{{i}} = coopMultiplyAdd(weight, value{{i}}, part{{i}});
                {% endfor %}
            }
            {% endfor %}
            let pitch = TILE_PITCH;
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
    {% if sinks %}
    // A sink that exceeds all scores by so much leaves nothing either way.
    total += exp2(min(1.442695 * sinks[head] - highest, 100.0));
    {% endif %}
    if token < tokens {
        let to = (first_token + token) * {{y.stride // 4}}u + head * {{head_quads}}u + share;
        {% for i in range(quads // sharers) if i * sharers < head_quads %}
        {{ "if share < " ~ (head_quads - i * sharers) ~ "u " if (i + 1) * sharers > head_quads }}{
            y[to + {{i * sharers}}u] = vec4<f32>(result{{i}} / total);
        }
        {% endfor %}
    }
}
