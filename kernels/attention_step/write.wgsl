// Writes the result, or the partial result of a split; part of `attention_step.wgsl`, whose
// parameters it reads.
    {% set of_head = "" if shape.lanes == 1 else "[head]" %}
    {% if output and sinks %}
    {% for l in range(shape.lanes) %}
    {
        // A sink that exceeds all scores by so much leaves nothing either way.
        let own = kv_head * {{shape.group_heads}}u + min(first_head + {{l}}u, {{shape.group_heads - 1}}u);
        let lane_of = {{ "most[" ~ l ~ "]" if shape.lanes > 1 else "most" }};
        total{{ "[" ~ l ~ "]" if shape.lanes > 1 }} += exp(min(sinks[own] - lane_of, 80.0));
    }
    {% endfor %}
    {% endif %}
    for (var start = 0u; start < {{dim}}u; start += {{shape.workgroup}}u) {
        let d = start + index;
        var sum = Heads(0.0);
        if d < {{dim}}u {
            for (var r = 0u; r < {{shape.groups}}u; r++) {
                sum += shared_heads[r * {{dim}}u + d];
            }
            {% if output %}
            sum /= total;
            {% endif %}
            {% if not writes_q8 %}
            queries[d] = sum;
            {% endif %}
        }
        {% if not output %}
        if d == 0u {
            {% for l in range(shape.lanes) %}
            if first_head + {{l}}u < {{shape.group_heads}}u {
                let to = partial_at(token, group.x, kv_head * {{shape.group_heads}}u + first_head + {{l}}u);
                partials[to] = most{{ "[" ~ l ~ "]" if shape.lanes > 1 }};
                partials[to + 1u] = total{{ "[" ~ l ~ "]" if shape.lanes > 1 }};
            }
            {% endfor %}
        }
        {% endif %}
        {% if writes_q8 %}
        {% for l in range(shape.lanes) %}
        {
            let head = first_head + {{l}}u;
            let block = (kv_head * {{shape.group_heads}}u + head) * {{head_dim // 32}}u + d / 32u;
            let is_active = d < {{dim}}u{{ " && head < " ~ shape.group_heads ~ "u" if shape.group_heads % shape.lanes }};
            write_q8(sum{{ "[" ~ l ~ "]" if shape.lanes > 1 }}, 1.0, token, block, d, is_active);
        }
        {% endfor %}
        {% endif %}
    }
    {% if not writes_q8 %}
    workgroupBarrier();
    for (var i = index; i < {{shape.lanes * dim}}u; i += {{shape.workgroup}}u) {
        let head = i / {{dim}}u;
        let d = i % {{dim}}u;
        let number = kv_head * {{shape.group_heads}}u + first_head + head;
        if first_head + head < {{shape.group_heads}}u {
            {% if not output %}
            partials[partial_at(token, group.x, number) + 2u + d] = queries[d]{{of_head}};
            {% else %}
            if d < {{head_dim}}u {
                y[token * {{output.stride}}u + number * {{head_dim}}u + d] = queries[d]{{of_head}};
            }
            {% endif %}
        }
    }
    {% endif %}
