// Computes, for all chunks, the matrices with which the tokens of a chunk affect each other in the
// gated delta rule. They do not depend on the state before the chunk. A workgroup computes a head
// of a chunk.
//
// Notation: token t has the decay d_t, the strength b_t, the key k_t, the query q_t and the value
// v_t. kept(t, s) is the product of the decays of tokens s + 1 to t, and kept(t) the product of all
// decays of the chunk up to t. S is the state before the chunk. Token t adds u_t = b_t (v_t -
// kept(t) k_t S - sum over s < t of kept(t, s) (k_t k_s) u_s). So u = solved b (v - kept k S),
// where solved is the inverse of the unit lower triangular matrix with b_t kept(t, s) (k_t k_s)
// below the diagonal. The result of token t is kept(t) q_t S + sum over s <= t of kept(t, s) (q_t
// k_s) u_s.
//
// `mixes` has for each token: a row of the coefficients of v_s - kept(s) k_s S in the update of the
// state along its key, a row of their coefficients in its result, the factors of its key and of its
// query before S, and kept(t).
//
// Parameters (`GatedDeltaChunks`):
//   chunk: ChunkShape - the sizes
//   chunk.workgroup: u32 - invocations of a workgroup
//   chunk.tokens: u32 - largest number of tokens in a chunk
//   chunk.depth: u32 - elements of a head's keys and queries that are in a workgroup's memory at a
//     time
//   chunk.mix_words: u32 - words of a token and head in `mixes`
//   delta: Delta - the rule
//   runs: RunTable - the runs
//
// Buffers:
//   qkv: vec4<f32>
//   alpha: f32 - `[tokens, value_heads]`
//   beta: f32 - `[tokens, value_heads]`
//   a: f32 - `[value_heads]`
//   dt: f32 - `[value_heads]`
//   mixes: f32, written - `[tokens, value_heads, mix_words]`

{% from "shared/delta" import key_head %}
{% from "shared/runs" import chunk_at, run_at %}
{% set chunk_tokens = chunk.tokens %}
{% include "shared/bindings" %}

{% set quads = chunk.depth // 4 %}
{% set chunk_quads = chunk_tokens // 4 %}
{% set half = chunk_tokens // 2 %}
{% set loads = 2 * chunk_tokens * quads // chunk.workgroup %}
{% set kept_stride = chunk_tokens + 1 %}

// `depth` elements of each key, then of each query. Afterwards products of keys, which the inverse
// replaces, and products of queries with keys.
var<workgroup> tile: array<vec4<f32>, {{[2 * chunk_tokens * quads, 2 * chunk_tokens * chunk_quads] | max}}>;
// The decay up to each token, from before the chunk and from after each token.
var<workgroup> kept: array<f32, {{chunk_tokens * kept_stride}}>;
var<workgroup> decays: array<f32, {{chunk_tokens}}>;
var<workgroup> strengths: array<f32, {{chunk_tokens}}>;
var<workgroup> key_scales: array<f32, {{chunk_tokens}}>;
var<workgroup> query_scales: array<f32, {{chunk_tokens}}>;

// The place of four elements of a row of the tile: neighboring rows start in different banks.
fn place(row: u32, quad: u32) -> u32 {
    return row * {{quads}}u + (quad ^ (row % {{quads}}u));
}

fn column_place(column: u32, quad: u32) -> u32 {
    return column * {{chunk_quads}}u + (quad ^ (column % {{chunk_quads}}u));
}

{# Reads a slice of keys and queries. #}
{% macro read_slice(slice, var="") %}
    {% for l in range(loads) %}
    {{var}}next{{l}} = qkv[from{{l}} + {{slice}} * {{quads}}u];
    {% endfor %}
{% endmacro %}

@compute @workgroup_size({{chunk.workgroup}})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let head = group.x;
    let chunk = {{ chunk_at(runs, "group.y") }};
    let run = {{ run_at(runs, "step[chunk + CHUNK_RUN]") }};
    let first = step[run + RUN_FIRST_TOKEN] + step[chunk + CHUNK_FIRST_TOKEN];
    let tokens = step[chunk + CHUNK_TOKENS];
    let query = {{ key_head(delta) }} * {{delta.head_dim // 4}}u;
    {% for l in range(loads) %}
    let row{{l}} = (thread + {{l * chunk.workgroup}}u) / {{quads}}u;
    let from{{l}} = (first + min(row{{l}} % {{chunk_tokens}}u, tokens - 1u)) * {{delta.qkv.stride // 4}}u + query
        + select({{delta.key_heads * delta.head_dim // 4}}u, 0u, row{{l}} >= {{chunk_tokens}}u) + thread % {{quads}}u;
    {% endfor %}

    // An invocation has the products of two tokens, as keys and as queries, with the keys of two.
    let i = thread / {{half}}u;
    let j = thread % {{half}}u;
    {% for a in range(2) %}{% for b in range(2) %}
    var keys{{a}}{{b}} = vec4(0.0);
    var queries{{a}}{{b}} = vec4(0.0);
    {% endfor %}{% endfor %}
    var squares = vec4(0.0);
    {{ read_slice("0u", "var ") }}
    for (var slice = 0u; slice < {{delta.head_dim // chunk.depth}}u; slice++) {
        workgroupBarrier();
        {% for l in range(loads) %}
        tile[place(row{{l}}, thread % {{quads}}u)] = next{{l}};
        {% endfor %}
        workgroupBarrier();
        // The next slice is loaded meanwhile; after the last slice the same again.
        {{ read_slice("min(slice + 1u, " ~ (delta.head_dim // chunk.depth - 1) ~ "u)") }}
        for (var four = 0u; four < {{quads}}u; four += 4u) {
            {% for quad in range(4) %}
            {
                {% for b in range(2) %}
                let column{{b}} = tile[place(j + {{b * half}}u, four + {{quad}}u)];
                let key{{b}} = tile[place(i + {{b * half}}u, four + {{quad}}u)];
                let query{{b}} = tile[place(i + {{chunk_tokens + b * half}}u, four + {{quad}}u)];
                {% endfor %}
                {% for a in range(2) %}{% for b in range(2) %}
                keys{{a}}{{b}} = fma(key{{a}}, column{{b}}, keys{{a}}{{b}});
                queries{{a}}{{b}} = fma(query{{a}}, column{{b}}, queries{{a}}{{b}});
                {% endfor %}{% endfor %}
            }
            {% endfor %}
        }
        if thread < {{2 * chunk_tokens}}u {
            for (var quad = 0u; quad < {{quads}}u; quad++) {
                let own = tile[place(thread, quad)];
                squares = fma(own, own, squares);
            }
        }
    }

    if thread < {{chunk_tokens}}u {
        let gates = (first + min(thread, tokens - 1u)) * {{delta.gate_stride}}u + head;
        let open = alpha[gates] + dt[head];
        let softplus = max(open, 0.0) + log(1.0 + exp(-abs(open)));
        // Tokens past the chunk's end do not change the state.
        decays[thread] = select(1.0, exp(a[head] * softplus), thread < tokens);
        strengths[thread] = select(0.0, 1.0 / (1.0 + exp(-beta[gates])), thread < tokens);
        key_scales[thread] = inverseSqrt(dot(squares, vec4(1.0)) + {{delta.eps}});
    } else if thread < {{2 * chunk_tokens}}u {
        query_scales[thread - {{chunk_tokens}}u] =
            inverseSqrt((dot(squares, vec4(1.0)) + {{delta.eps}}) * {{delta.head_dim}}.0);
    }
    workgroupBarrier();
    // Multiplied rather than divided, which does not overflow if decays are close to 0.
    if thread < {{kept_stride}}u {
        var product = 1.0;
        for (var t = 0u; t < {{chunk_tokens}}u; t++) {
            product *= select(1.0, decays[t], t >= thread);
            kept[t * {{kept_stride}}u + thread] = product;
        }
    }
    workgroupBarrier();
    {% for a in range(2) %}{% for b in range(2) %}
    {
        let t = i + {{a * half}}u;
        let s = j + {{b * half}}u;
        let share = kept[t * {{kept_stride}}u + s + 1u] * key_scales[s];
        let at = t * {{chunk_quads}}u + s / 4u;
        tile[at][s % 4u] =
            select(0.0, strengths[t] * key_scales[t] * share * dot(keys{{a}}{{b}}, vec4(1.0)), s < t);
        tile[at + {{chunk_tokens * chunk_quads}}u][s % 4u] =
            select(0.0, query_scales[t] * share * dot(queries{{a}}{{b}}, vec4(1.0)), s <= t);
    }
    {% endfor %}{% endfor %}
    workgroupBarrier();
    // The inverse, a column each, four rows at a time.
    var solved: array<vec4<f32>, {{chunk_quads}}>;
    if thread < {{chunk_tokens}}u {
        for (var quad = 0u; quad < {{chunk_quads}}u; quad++) {
            let at = 4u * quad * {{chunk_quads}}u;
            {% for t in range(4) %}
            var sum{{t}} = vec4(0.0);
            {% endfor %}
            for (var before = 0u; before < quad; before++) {
                {% for t in range(4) %}
                sum{{t}} = fma(tile[at + {{t * chunk_quads}}u + before], solved[before], sum{{t}});
                {% endfor %}
            }
            var four = select(vec4(0.0), vec4(1.0), vec4(thread) == 4u * quad + vec4(0u, 1u, 2u, 3u));
            {% for t in range(4) %}
            sum{{t}} = fma(tile[at + {{t * chunk_quads}}u + quad], four, sum{{t}});
            four.{{"xyzw"[t]}} -= dot(sum{{t}}, vec4(1.0));
            {% endfor %}
            solved[quad] = four;
        }
    }
    workgroupBarrier();
    if thread < {{chunk_tokens}}u {
        for (var quad = 0u; quad < {{chunk_quads}}u; quad++) {
            tile[column_place(thread, quad)] = solved[quad];
        }
    }
    workgroupBarrier();
    // Each group of invocations has four tokens.
    let s = thread % {{chunk_tokens}}u;
    let four = thread / {{chunk_tokens}}u;
    let strength = strengths[s];
    let own = tile[column_place(s, four)];
    {% for t in range(4) %}
    var read{{t}} = vec4(0.0);
    {% endfor %}
    for (var quad = 0u; quad <= four; quad++) {
        let column = tile[column_place(s, quad)];
        {% for t in range(4) %}
        read{{t}} = fma(tile[(4u * four + {{chunk_tokens + t}}u) * {{chunk_quads}}u + quad], column, read{{t}});
        {% endfor %}
    }
    {% for t in range(4) %}
    if 4u * four + {{t}}u < tokens {
        let t = 4u * four + {{t}}u;
        let to = ((first + t) * {{delta.value_heads}}u + head) * {{chunk.mix_words}}u + s;
        let lasts = kept[{{(chunk_tokens - 1) * kept_stride}}u + t + 1u] * key_scales[t];
        mixes[to] = lasts * own[{{t}}] * strength;
        mixes[to + {{chunk_tokens}}u] = dot(read{{t}}, vec4(1.0)) * strength;
    }
    {% endfor %}
    if thread < tokens {
        let to = ((first + thread) * {{delta.value_heads}}u + head) * {{chunk.mix_words}}u + {{2 * chunk_tokens}}u;
        let from_before = kept[thread * {{kept_stride}}u];
        mixes[to] = from_before * key_scales[thread];
        mixes[to + 1u] = from_before * query_scales[thread];
        mixes[to + 2u] = from_before;
    }
}
