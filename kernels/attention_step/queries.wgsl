// Reads the queries, and with `new` the token's own key, and norms and rotates both if there is
// `new.before`; part of `attention_step.wgsl`, whose parameters it reads.
    {% if appends %}
    let old_word = cache[keys_now + min(index, {{dim - 1}}u) * {{64 // per_word}}u];
    {% endif %}
    {% if new %}
    {% for n in range(per_word) %}
    let d_of_v{{n}} = min(index % {{words}}u * {{per_word}}u + {{n}}u, {{head_dim - 1}}u);
    let v{{n}} = v[token * {{new.v.stride}}u + kv_head * {{head_dim}}u + d_of_v{{n}}];
    {% endfor %}
    // The token's own query and key: element `d`, and its partner in the rotation.
    let d = min(index, {{head_dim - 1}}u);
    var own_query = query(token, q_at, first_head, d);
    var own_key = k[token * {{new.k.stride}}u + kv_head * {{head_dim}}u + d];
    {% if before %}
    {% if 2 * before.rotation.pairs < head_dim %}
    // Elements that are not rotated are their own partner, with an angle of 0.
    let turns = d < {{2 * before.rotation.pairs}}u;
    let other_d = select(d, {{ partner(before.rotation) }}, turns);
    let turn = select(vec2(1.0, 0.0), angle(record, {{ pair(before.rotation) }}), turns);
    {% else %}
    let other_d = {{ partner(before.rotation) }};
    let turn = angle(record, {{ pair(before.rotation) }});
    {% endif %}
    var other_query = query(token, q_at, first_head, other_d);
    var other_key = k[token * {{new.k.stride}}u + kv_head * {{head_dim}}u + other_d];
    {% if before.norms %}
    let q_weights = vec2(q_norm[d], q_norm[other_d]);
    let k_weights = vec2(k_norm[d], k_norm[other_d]);
    {% if subgroup %}
    {{ head_squares("squares", "Heads", "query(token, q_at, first_head, d)", head_dim, subgroup) }}
    {% set key = "k[token * " ~ new.k.stride ~ "u + kv_head * " ~ head_dim ~ "u + d]" %}
    {{ head_squares("key_squares", "f32", key, head_dim, subgroup) }}
    {% else %}
    let is_own = index < {{head_dim}}u;
    let squares = workgroup_sum_heads(select(Heads(0.0), own_query * own_query, is_own), at);
    let key_squares = workgroup_sum(select(0.0, own_key * own_key, is_own), at);
    {% endif %}
    let factor = inverseSqrt(fma(squares, Heads({{before.norms.reciprocal}}), Heads({{before.norms.eps}})));
    let key_factor = inverseSqrt(fma(key_squares, {{before.norms.reciprocal}}, {{before.norms.eps}}));
    own_query *= factor * q_weights.x;
    other_query *= factor * q_weights.y;
    own_key *= key_factor * k_weights.x;
    other_key *= key_factor * k_weights.y;
    {% endif %}
    let sine = select(turn.y, -turn.y, {{ is_first(before.rotation) }});
    own_query = {{ rotated("own_query", "other_query", "Heads(turn.x)", "sine") }};
    own_key = {{ rotated("own_key", "other_key", "turn.x", "sine") }};
    {% endif %}
    if index < {{dim}}u {
        let is_padding = index >= {{head_dim}}u;
        queries[index] = select(own_query, Heads(0.0), is_padding);
        new_key[index] = select(kept(own_key), 0.0, is_padding);
    }
    {% else %}
    for (var d = index; d < {{dim}}u; d += {{shape.workgroup}}u) {
        queries[d] = query(token, q_at, first_head, d);
    }
    {% endif %}
    workgroupBarrier();
