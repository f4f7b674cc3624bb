// Reads the queries, and with `new` norms and rotates them and the token's own key; part of
// `attention_step.wgsl`, whose parameters it reads.
    {% if new %}
    let old_word = cache[keys_now + min(index, {{dim - 1}}u) * {{64 // per_word}}u];
    {% for n in range(per_word) %}
    let d_of_v{{n}} = min(index % {{words}}u * {{per_word}}u + {{n}}u, {{head_dim - 1}}u);
    let v{{n}} = v[token * {{new.v.stride}}u + kv_head * {{head_dim}}u + d_of_v{{n}}];
    {% endfor %}
    // The token's own query and key: element `d`, and its partner in the rotation.
    let d = min(index, {{head_dim - 1}}u);
    {% if 2 * new.rotation.pairs < head_dim %}
    // Elements that are not rotated are their own partner, with an angle of 0.
    let turns = d < {{2 * new.rotation.pairs}}u;
    let other_d = select(d, {{ partner(new.rotation) }}, turns);
    let turn = select(vec2(1.0, 0.0), angle(record, {{ pair(new.rotation) }}), turns);
    {% else %}
    let other_d = {{ partner(new.rotation) }};
    let turn = angle(record, {{ pair(new.rotation) }});
    {% endif %}
    var own_query = query(token, q_at, first_head, d);
    var other_query = query(token, q_at, first_head, other_d);
    var own_key = k[token * {{new.k.stride}}u + kv_head * {{head_dim}}u + d];
    var other_key = k[token * {{new.k.stride}}u + kv_head * {{head_dim}}u + other_d];
    {% if new.norms %}
    let q_weights = vec2(q_norm[d], q_norm[other_d]);
    let k_weights = vec2(k_norm[d], k_norm[other_d]);
    {% if subgroup %}
    // Every subgroup computes the same sums, which saves a barrier.
    var squares = Heads(0.0);
    var key_squares = 0.0;
    {% for first in range(0, head_dim, subgroup) %}
    {{ "if lane < " ~ (head_dim - first) ~ "u " if first + subgroup > head_dim }}{
        let x = query(token, q_at, first_head, {{first}}u + lane);
        let y = k[token * {{new.k.stride}}u + kv_head * {{head_dim}}u + {{first}}u + lane];
        squares += x * x;
        key_squares += y * y;
    }
    {% endfor %}
    squares = subgroupAdd(squares);
    key_squares = subgroupAdd(key_squares);
    {% else %}
    let is_own = index < {{head_dim}}u;
    let squares = workgroup_sum_heads(select(Heads(0.0), own_query * own_query, is_own), at);
    let key_squares = workgroup_sum(select(0.0, own_key * own_key, is_own), at);
    {% endif %}
    let factor = inverseSqrt(squares * {{new.norms.reciprocal}} + {{new.norms.eps}});
    let key_factor = inverseSqrt(key_squares * {{new.norms.reciprocal}} + {{new.norms.eps}});
    own_query *= factor * q_weights.x;
    other_query *= factor * q_weights.y;
    own_key *= key_factor * k_weights.x;
    other_key *= key_factor * k_weights.y;
    {% endif %}
    let sine = select(turn.y, -turn.y, {{ is_first(new.rotation) }});
    own_key = kept(own_key * turn.x + other_key * sine);
    if index < {{dim}}u {
        let is_padding = index >= {{head_dim}}u;
        queries[index] = select(own_query * turn.x + other_query * sine, Heads(0.0), is_padding);
        new_key[index] = select(own_key, 0.0, is_padding);
    }
    {% else %}
    for (var d = index; d < {{dim}}u; d += {{shape.workgroup}}u) {
        queries[d] = query(token, q_at, first_head, d);
    }
    {% endif %}
    workgroupBarrier();
