// What the tokens of a chunk do to each other by the gated delta rule, whatever the state before them. A workgroup has a
// head of a chunk of up to {{chunk}} tokens.
//
// With decays d, strengths b, and kept(t, s) = d of s + 1 to t multiplied, the values that tokens take on are
// u = b (v - kept(t) k state - sum over s < t of kept(t, s) (k_t k_s) u_s), or u = solved b (v - kept(t) k state), where
// solved is the inverse of 1 + that matrix of products. What tokens read is kept(t) q state + products u, with
// kept(t, s) (q_t k_s). A token's row here is what its key adds to the state for each v - kept k state of the chunk, and what
// its query reads of each; then the factors of its key and its query before the state, and what is kept of that.

{{bindings}}

{% set quads = depth // 4 %}
{% set chunk_quads = chunk // 4 %}
{% set half = chunk // 2 %}
{% set loads = 2 * chunk * quads // workgroup %}
{% set kept_stride = chunk + 1 %}

// Keys, then queries: {{depth}} elements of each at a time. Afterwards products of keys, of which the inverse takes the
// place, and products of queries with keys.
var<workgroup> tile: array<vec4<f32>, {{[2 * chunk * quads, 2 * chunk * chunk_quads] | max}}>;
// What is kept, from before the chunk and from after each token, up to each token.
var<workgroup> kept: array<f32, {{chunk * kept_stride}}>;
var<workgroup> decays: array<f32, {{chunk}}>;
var<workgroup> strengths: array<f32, {{chunk}}>;
var<workgroup> key_scales: array<f32, {{chunk}}>;
var<workgroup> query_scales: array<f32, {{chunk}}>;

// Where four elements of a row of the tile lie: neighbouring rows start in different banks.
fn place(row: u32, quad: u32) -> u32 {
    return row * {{quads}}u + (quad ^ (row % {{quads}}u));
}

fn column_place(column: u32, quad: u32) -> u32 {
    return column * {{chunk_quads}}u + (quad ^ (column % {{chunk_quads}}u));
}

{# Asks for what a slice of keys and queries brings. #}
{% macro ask_for(slice, var="") %}
    {% for l in range(loads) %}
    {{var}}next{{l}} = qkv[from{{l}} + {{slice}} * {{quads}}u];
    {% endfor %}
{% endmacro %}

@compute @workgroup_size({{workgroup}})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let head = group.x;
    let chunk = {{chunks_at}}u + group.y * {{chunk_words}}u;
    let first = step[{{runs_at}}u + step[chunk] * {{run_words}}u] + step[chunk + 1u];
    let tokens = step[chunk + 2u];
    let query = {{key_head}} * {{head_dim // 4}}u;
    {% for l in range(loads) %}
    let row{{l}} = (thread + {{l * workgroup}}u) / {{quads}}u;
    let from{{l}} = (first + min(row{{l}} % {{chunk}}u, tokens - 1u)) * {{x_stride // 4}}u + query
        + select({{key_heads * head_dim // 4}}u, 0u, row{{l}} >= {{chunk}}u) + thread % {{quads}}u;
    {% endfor %}

    // An invocation has the products of two tokens, as keys and as queries, with the keys of two.
    let i = thread / {{half}}u;
    let j = thread % {{half}}u;
    {% for a in range(2) %}{% for b in range(2) %}
    var keys{{a}}{{b}} = vec4(0.0);
    var queries{{a}}{{b}} = vec4(0.0);
    {% endfor %}{% endfor %}
    var squares = vec4(0.0);
    {{ ask_for("0u", "var ") }}
    for (var slice = 0u; slice < {{head_dim // depth}}u; slice++) {
        workgroupBarrier();
        {% for l in range(loads) %}
        tile[place(row{{l}}, thread % {{quads}}u)] = next{{l}};
        {% endfor %}
        workgroupBarrier();
        // The next slice is on its way meanwhile; after the last one that once more.
        {{ ask_for("min(slice + 1u, " ~ (head_dim // depth - 1) ~ "u)") }}
        for (var four = 0u; four < {{quads}}u; four += 4u) {
            {% for quad in range(4) %}
            {
                {% for b in range(2) %}
                let column{{b}} = tile[place(j + {{b * half}}u, four + {{quad}}u)];
                let key{{b}} = tile[place(i + {{b * half}}u, four + {{quad}}u)];
                let query{{b}} = tile[place(i + {{chunk + b * half}}u, four + {{quad}}u)];
                {% endfor %}
                {% for a in range(2) %}{% for b in range(2) %}
                keys{{a}}{{b}} = fma(key{{a}}, column{{b}}, keys{{a}}{{b}});
                queries{{a}}{{b}} = fma(query{{a}}, column{{b}}, queries{{a}}{{b}});
                {% endfor %}{% endfor %}
            }
            {% endfor %}
        }
        if thread < {{2 * chunk}}u {
            for (var quad = 0u; quad < {{quads}}u; quad++) {
                let own = tile[place(thread, quad)];
                squares = fma(own, own, squares);
            }
        }
    }

    if thread < {{chunk}}u {
        let gates = (first + min(thread, tokens - 1u)) * {{gate_stride}}u + head;
        let open = alpha[gates] + dt[head];
        let softplus = max(open, 0.0) + log(1.0 + exp(-abs(open)));
        // Beyond the chunk's end nothing is forgotten nor learnt.
        decays[thread] = select(1.0, exp(a[head] * softplus), thread < tokens);
        strengths[thread] = select(0.0, 1.0 / (1.0 + exp(-beta[gates])), thread < tokens);
        key_scales[thread] = inverseSqrt(dot(squares, vec4(1.0)) + {{eps}});
    } else if thread < {{2 * chunk}}u {
        query_scales[thread - {{chunk}}u] = inverseSqrt((dot(squares, vec4(1.0)) + {{eps}}) * {{head_dim}}.0);
    }
    workgroupBarrier();
    // Multiplied rather than divided, so that nothing overflows where nearly all is forgotten.
    if thread < {{kept_stride}}u {
        var product = 1.0;
        for (var t = 0u; t < {{chunk}}u; t++) {
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
        tile[at + {{chunk * chunk_quads}}u][s % 4u] =
            select(0.0, query_scales[t] * share * dot(queries{{a}}{{b}}, vec4(1.0)), s <= t);
    }
    {% endfor %}{% endfor %}
    workgroupBarrier();
    // The inverse, a column each, four rows at a time.
    var solved: array<vec4<f32>, {{chunk_quads}}>;
    if thread < {{chunk}}u {
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
    if thread < {{chunk}}u {
        for (var quad = 0u; quad < {{chunk_quads}}u; quad++) {
            tile[column_place(thread, quad)] = solved[quad];
        }
    }
    workgroupBarrier();
    // Four tokens for each of {{workgroup // chunk}} groups of invocations.
    let s = thread % {{chunk}}u;
    let four = thread / {{chunk}}u;
    let strength = strengths[s];
    let own = tile[column_place(s, four)];
    {% for t in range(4) %}
    var read{{t}} = vec4(0.0);
    {% endfor %}
    for (var quad = 0u; quad <= four; quad++) {
        let column = tile[column_place(s, quad)];
        {% for t in range(4) %}
        read{{t}} = fma(tile[(4u * four + {{chunk + t}}u) * {{chunk_quads}}u + quad], column, read{{t}});
        {% endfor %}
    }
    {% for t in range(4) %}
    if 4u * four + {{t}}u < tokens {
        let t = 4u * four + {{t}}u;
        let to = ((first + t) * {{value_heads}}u + head) * {{mix_words}}u + s;
        let lasts = kept[{{(chunk - 1) * kept_stride}}u + t + 1u] * key_scales[t];
        mixes[to] = lasts * own[{{t}}] * strength;
        mixes[to + {{chunk}}u] = dot(read{{t}}, vec4(1.0)) * strength;
    }
    {% endfor %}
    if thread < tokens {
        let to = ((first + thread) * {{value_heads}}u + head) * {{mix_words}}u + {{2 * chunk}}u;
        let from_before = kept[thread * {{kept_stride}}u];
        mixes[to] = from_before * key_scales[thread];
        mixes[to + 1u] = from_before * query_scales[thread];
        mixes[to + 2u] = from_before;
    }
}
