// Computes the gated delta rule chunk by chunk, with products of the matrices that
// `gated_delta_chunks.wgsl` has computed. A workgroup keeps some columns of a head's state in its
// memory from the first chunk of a run to the last.
//
// Parameters (`GatedDeltaPass`):
//   chunk: ChunkShape - the sizes
//   chunk.workgroup: u32 - invocations of a workgroup
//   chunk.tokens: u32 - largest number of tokens in a chunk
//   chunk.depth: u32 - elements of a head's keys and queries that are in a workgroup's memory at a
//     time
//   chunk.mix_words: u32 - words of a token and head in `mixes`
//   columns: u32 - columns of the state that a workgroup updates
//   delta: Delta - the rule
//   runs: RunTable - the runs
//   state: u32 - elements of a state, `[value_heads, head_dim, head_dim]`
//
// Buffers:
//   qkv: vec4<f32>
//   mixes: vec4<f32> - `[tokens, value_heads, mix_words]`
//   states: vec4<f32>, written
//   y: f32, written

{% from "shared/delta" import key_head %}
{% from "shared/runs" import checkpoint_state, chunk_at, read_checkpoints, run_at %}
{% set chunk_tokens = chunk.tokens %}
{% include "shared/bindings" %}

{% set quads = chunk.depth // 4 %}
{% set head_quads = delta.head_dim // 4 %}
{% set chunk_quads = chunk_tokens // 4 %}
{% set half = columns // 2 %}
{% set loads = 2 * chunk_tokens * quads // chunk.workgroup %}
{% set banks = 8 if head_quads % 8 == 0 else 4 %}
{% set mix_loads = 2 * chunk_tokens * chunk_quads // chunk.workgroup %}
{% set swap = 2 * columns * chunk_quads %}

// Columns.
var<workgroup> state: array<vec4<f32>, {{columns * head_quads}}>;
// `depth` elements of each key, then of each query. Afterwards, by column and token, the
// differences of values from what the state gives for their keys, and what is added to the state.
var<workgroup> tile: array<vec4<f32>, {{[2 * chunk_tokens * quads, swap] | max}}>;
// The matrices of the chunk: towards the state and towards the result.
var<workgroup> mix: array<vec4<f32>, {{2 * chunk_tokens * chunk_quads}}>;

// The place of four elements: neighboring rows or columns start in different banks.
fn state_place(column: u32, quad: u32) -> u32 {
    return column * {{head_quads}}u + (quad ^ (column % {{banks}}u));
}

fn tile_place(row: u32, quad: u32) -> u32 {
    return row * {{quads}}u + (quad ^ (row % {{[quads, 8] | min}}u));
}

fn mix_place(token: u32, quad: u32) -> u32 {
    return token * {{2 * chunk_quads}}u + (quad ^ (token % {{chunk_quads}}u));
}

fn chunk_place(column: u32, quad: u32) -> u32 {
    return column * {{chunk_quads}}u + (quad ^ (column % {{chunk_quads}}u));
}

{# Reads the matrices of a chunk. #}
{% macro read_mix(begin, tokens, var="") %}
    {% for l in range(mix_loads) %}
    {{var}}next_mix{{l}} = mixes[
        ((first + {{begin}} + min(token{{l}}, {{tokens}} - 1u)) * {{delta.value_heads}}u + head)
            * {{chunk.mix_words // 4}}u + thread % {{2 * chunk_quads}}u
    ];
    {% endfor %}
{% endmacro %}

{# Reads a slice of the keys and queries of a chunk of `tokens` tokens, the first being `begin`. #}
{% macro read_slice(slice, begin, tokens, var="") %}
    {% for l in range(loads) %}
    {{var}}next{{l}} = qkv[
        (first + {{begin}} + min(row{{l}} % {{chunk_tokens}}u, {{tokens}} - 1u)) * {{delta.qkv.stride // 4}}u
            + from{{l}} + {{slice}} * {{quads}}u
    ];
    {% endfor %}
{% endmacro %}

@compute @workgroup_size({{chunk.workgroup}})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let head = group.x / {{delta.head_dim // columns}}u;
    let first_column = group.x % {{delta.head_dim // columns}}u * {{columns}}u;
    let run = {{ run_at(runs, "group.y") }};
    let first = step[run + RUN_FIRST_TOKEN];
    let run_tokens = step[run + RUN_TOKENS];
    let before = step[run + RUN_STATE_BEFORE];
    {{ read_checkpoints(runs) }}
    // A column's elements are contiguous.
    let place = (head * {{delta.head_dim}}u + first_column) * {{head_quads}}u;
    for (var item = thread; item < {{columns * head_quads}}u; item += {{chunk.workgroup}}u) {
        var old = vec4(0.0);
        if before > 0u {
            old = states[(before - 1u) * {{state // 4}}u + place + item];
        }
        state[state_place(item / {{head_quads}}u, item % {{head_quads}}u)] = old;
    }
    let query = {{ key_head(delta) }} * {{head_quads}}u;
    let key = query + {{delta.key_heads * head_quads}}u;
    {% for l in range(loads) %}
    let row{{l}} = (thread + {{l * chunk.workgroup}}u) / {{quads}}u;
    let from{{l}} = select(key, query, row{{l}} >= {{chunk_tokens}}u) + thread % {{quads}}u;
    {% endfor %}
    {% for l in range(mix_loads) %}
    let token{{l}} = (thread + {{l * chunk.workgroup}}u) / {{2 * chunk_quads}}u;
    {% endfor %}
    // An invocation has a token in two columns.
    let t = thread / {{half}}u;
    let column = thread % {{half}}u;

    var chunk = {{ chunk_at(runs, "step[run + RUN_FIRST_CHUNK]") }};
    var begin = 0u;
    var tokens = step[chunk + CHUNK_TOKENS];
    {{ read_slice("0u", "begin", "tokens", "var ") }}
    {{ read_mix("begin", "tokens", "var ") }}
    loop {
        let end = begin + tokens;
        let row = first + begin + min(t, tokens - 1u);
        let value = row * {{delta.qkv.stride}}u
            + (2u * {{delta.key_heads}}u + head) * {{delta.head_dim}}u + first_column + column;
        {% for c in range(2) %}
        let value{{c}} = qkv[(value + {{c * half}}u) / 4u][column % 4u];
        {% endfor %}
        let factors = mixes[(row * {{delta.value_heads}}u + head) * {{chunk.mix_words // 4}}u + {{2 * chunk_quads}}u];
        let last = ((first + end - 1u) * {{delta.value_heads}}u + head) * {{chunk.mix_words // 4}}u;
        let remains = mixes[last + {{2 * chunk_quads}}u].z;
        // After the last chunk, the same chunk again.
        let next_chunk = select(chunk, chunk + {{runs.chunk_words}}u, end < run_tokens);
        let next_begin = step[next_chunk + CHUNK_FIRST_TOKEN];
        let next_tokens = step[next_chunk + CHUNK_TOKENS];

        // The products of the state with the token's key and query.
        {% for c in range(2) %}
        var keyed{{c}} = vec4(0.0);
        var queried{{c}} = vec4(0.0);
        {% endfor %}
        for (var slice = 0u; slice < {{delta.head_dim // chunk.depth}}u; slice++) {
            workgroupBarrier();
            {% for l in range(loads) %}
            tile[tile_place(row{{l}}, thread % {{quads}}u)] = next{{l}};
            {% endfor %}
            workgroupBarrier();
            // The next slice, or the first slice of the next chunk, is loaded meanwhile.
            if slice < {{delta.head_dim // chunk.depth - 1}}u {
                {{ read_slice("(slice + 1u)", "begin", "tokens") }}
            } else {
                {% for l in range(mix_loads) %}
                mix[mix_place(token{{l}}, thread % {{2 * chunk_quads}}u)] = next_mix{{l}};
                {% endfor %}
                {{ read_slice("0u", "next_begin", "next_tokens") }}
                {{ read_mix("next_begin", "next_tokens") }}
            }
            for (var four = 0u; four < {{quads}}u; four += 4u) {
                {% for quad in range(4) %}
                {
                    let own_key = tile[tile_place(t, four + {{quad}}u)];
                    let own_query = tile[tile_place(t + {{chunk_tokens}}u, four + {{quad}}u)];
                    {% for c in range(2) %}
                    let state{{c}} = state[state_place(column + {{c * half}}u, slice * {{quads}}u + four + {{quad}}u)];
                    keyed{{c}} = fma(own_key, state{{c}}, keyed{{c}});
                    queried{{c}} = fma(own_query, state{{c}}, queried{{c}});
                    {% endfor %}
                }
                {% endfor %}
            }
        }

        // The differences between the values and the state's values for their keys, which all
        // tokens read.
        workgroupBarrier();
        {% for c in range(2) %}
        tile[chunk_place(column + {{c * half}}u, t / 4u)][t % 4u] =
            value{{c}} - factors.x * dot(keyed{{c}}, vec4(1.0));
        {% endfor %}
        workgroupBarrier();
        {% for c in range(2) %}
        var added{{c}} = vec4(0.0);
        var result{{c}} = vec4(0.0);
        {% endfor %}
        for (var quad = 0u; quad < {{chunk_quads}}u; quad++) {
            let to_state = mix[mix_place(t, quad)];
            let to_result = mix[mix_place(t, {{chunk_quads}}u + quad)];
            {% for c in range(2) %}
            let differs{{c}} = tile[chunk_place(column + {{c * half}}u, quad)];
            added{{c}} = fma(to_state, differs{{c}}, added{{c}});
            result{{c}} = fma(to_result, differs{{c}}, result{{c}});
            {% endfor %}
        }
        {% for c in range(2) %}
        // Tokens past the chunk's end add 0.
        tile[{{swap // 2}}u + chunk_place(column + {{c * half}}u, t / 4u)][t % 4u] =
            select(0.0, dot(added{{c}}, vec4(1.0)), t < tokens);
        if t < tokens {
            y[row * {{delta.y.stride}}u + head * {{delta.head_dim}}u + first_column + column + {{c * half}}u] =
                factors.y * dot(queried{{c}}, vec4(1.0)) + dot(result{{c}}, vec4(1.0));
        }
        {% endfor %}
        workgroupBarrier();

        // The state, four elements of two columns at a time.
        for (var item = thread; item < {{half * head_quads}}u; item += {{chunk.workgroup}}u) {
            let quad = item % {{head_quads}}u;
            let pair = item / {{head_quads}}u;
            {% for c in range(2) %}
            let place{{c}} = state_place(pair + {{c * half}}u, quad);
            var sum{{c}} = remains * state[place{{c}}];
            {% endfor %}
            for (var four = 0u; 4u * four < tokens; four++) {
                {% for s in range(4) %}
                let key{{s}} = qkv[(first + begin + min(4u * four + {{s}}u, tokens - 1u)) * {{delta.qkv.stride // 4}}u
                    + key + quad];
                {% endfor %}
                {% for c in range(2) %}
                let more{{c}} = tile[{{swap // 2}}u + chunk_place(pair + {{c * half}}u, four)];
                {% for s in range(4) %}
                sum{{c}} = fma(vec4(more{{c}}.{{"xyzw"[s]}}), key{{s}}, sum{{c}});
                {% endfor %}
                {% endfor %}
            }
            {% for c in range(2) %}
            state[place{{c}}] = sum{{c}};
            {% endfor %}
            {% for checkpoint in range(runs.checkpoints) %}
            if checkpoint{{checkpoint}} == end {
                let to = {{ checkpoint_state(runs, checkpoint) }} * {{state // 4}}u
                    + place + pair * {{head_quads}}u + quad;
                {% for c in range(2) %}
                states[to + {{c * half * head_quads}}u] = sum{{c}};
                {% endfor %}
            }
            {% endfor %}
            if end == run_tokens {
                let to = step[run + RUN_STATE_AFTER] * {{state // 4}}u + place + pair * {{head_quads}}u + quad;
                {% for c in range(2) %}
                states[to + {{c * half * head_quads}}u] = sum{{c}};
                {% endfor %}
            }
        }
        if end == run_tokens {
            break;
        }
        chunk = next_chunk;
        begin = next_begin;
        tokens = next_tokens;
    }
}
