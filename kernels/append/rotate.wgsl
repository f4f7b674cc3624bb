// Norms and rotates the keys of a range; part of `append.wgsl`, whose parameters it reads. Each
// subgroup norms another key.
    {% set head_dim = cache.head_dim %}
    let last = max(range.count, 1u) - 1u;
    {% if norm %}
    {% if subgroup %}
    for (var n = subgroup; n < 4u; n += subgroups) {
        let now = min(n, last);
        {{ head_squares("squares", "f32", "key_given(range, head, now, d)", head_dim, subgroup) }}
        let factor = inverseSqrt(fma(squares, {{norm.reciprocal}}, {{norm.eps}}));
        for (var d = lane; d < {{head_dim}}u; d += {{subgroup}}u) {
            normed[n * {{head_dim}}u + d] = key_given(range, head, now, d) * (factor * weight[d]);
        }
    }
    {% else %}
    let at_workgroup = {{ invocation(subgroup) }};
    {% for n in range(4) %}
    {
        let now = min({{n}}u, last);
        var squares = 0.0;
        for (var d = index; d < {{head_dim}}u; d += {{workgroup}}u) {
            let value = key_given(range, head, now, d);
            squares += value * value;
        }
        squares = workgroup_sum(squares, at_workgroup);
        let factor = inverseSqrt(fma(squares, {{norm.reciprocal}}, {{norm.eps}}));
        for (var d = index; d < {{head_dim}}u; d += {{workgroup}}u) {
            normed[{{n * head_dim}}u + d] = key_given(range, head, now, d) * (factor * weight[d]);
        }
    }
    {% endfor %}
    {% endif %}
    workgroupBarrier();
    {% endif %}
    for (var i = index; i < {{4 * head_dim}}u; i += {{workgroup}}u) {
        let now = min(i / {{head_dim}}u, last);
        let d = i % {{head_dim}}u;
        let own = {{ "normed[i]" if norm else "key_given(range, head, now, d)" }};
        {% if 2 * before.rotation.pairs < head_dim %}
        if d >= {{2 * before.rotation.pairs}}u {
            keys_now[i] = own;
            continue;
        }
        {% endif %}
        let other_d = {{ partner(before.rotation) }};
        let other = {{ "normed[i - d + other_d]" if norm else "key_given(range, head, now, other_d)" }};
        let angle = {{before.records.at}}u + (range.token + now) * {{before.records.words}}u
            + {{before.rotation.angles_at}}u + 2u * ({{ pair(before.rotation) }});
        let turn = bitcast<vec2<f32>>(vec2(step[angle], step[angle + 1u]));
        let sine = select(turn.y, -turn.y, {{ is_first(before.rotation) }});
        keys_now[i] = {{ rotated("own", "other", "turn.x", "sine") }};
    }
    workgroupBarrier();
