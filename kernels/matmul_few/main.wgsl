// The entry point of `matmul_few.wgsl`.
//
// Parameters: as `matmul_few.wgsl`, and
//   team: u32 - `shape.team`
//   team_rows: u32 - `shape.rows`
//   group_rows: u32 - rows w that a workgroup computes
//   x_norm: PendingNorm? - `x_q8.norm`, if there is `x_q8`
//   glu: bool - whether `finish.kind` is "glu"
//   is_one_product: bool - whether all rows w belong to one part, or to gate and up
{{ entry(shape.workgroup, subgroup, numbered=true, counted=false) }} {
    let local = {{ index(subgroup) }};
    let member = local % {{team}}u;
    {% for table in tables %}
    for (var i = local; i < {{table.words}}u; i += {{shape.workgroup}}u) {
        {{table.name}}[i] = small{{table.number}}[{{table.at}}u + i];
    }
    {% endfor %}
    {% if tables %}
    workgroupBarrier();
    {% endif %}
    {% if experts %}
    let token = group.y;
    {% elif tokens == 1 %}
    let last = 0u;
    let token = 0u;
    {% else %}
    let last = {{ row_count(rows) }} - 1u;
    let token = group.y * {{tokens}}u;
    {% endif %}
    // The row of the result, which is the slot's if each slot has a row.
    {% if experts and not experts.sums %}
    let to = token * {{experts.top_k}}u + group.z;
    let expert = selected[to].x;
    if expert >= {{experts.count}}u {
        return;
    }
    {% else %}
    let to = token;
    {% endif %}
    {% if experts %}
    let last = to;
    {% endif %}
    {% if y_q8 %}
    // In the end an invocation has some elements of the result. Loading of the residual starts here.
    {% set own_elements = (32 * tokens + shape.workgroup - 1) // shape.workgroup %}
    let own_row = group.x * 32u + local % 32u;
    {% for e in range(own_elements) %}
    let own_token{{e}} = to + {{e * shape.workgroup // 32}}u + local / 32u;
    let is_own{{e}} = {{ "local < " ~ (32 * tokens) ~ "u && " if shape.workgroup > 32 * tokens }}own_token{{e}} <= last;
    {% if parts[0].out %}
    let own_at{{e}} = min(own_token{{e}}, last) * {{parts[0].out_stride}}u + own_row;
    {% endif %}
    {% if finish.kind == "add_in_place" %}
    let added{{e}} = out0[own_at{{e}}];
    {% elif finish.kind == "add" %}
    let added{{e}} = residual[min(own_token{{e}}, last) * {{finish.stride}}u + own_row];
    {% endif %}
    {% endfor %}
    let norm_weight = {{ "norm[own_row]" if y_q8.norm else "1.0" }};
    {% endif %}
    {% if shape.passes > 1 %}
    let first_within = local / {{team}}u * {{team_rows}}u;
    for (var within = first_within; within < {{group_rows}}u; within += {{group_rows // shape.passes}}u) {
    {% else %}
    {
    let within = local / {{team}}u * {{team_rows}}u;
    {% endif %}
    var part = 0u;
    var first = group.x * {{group_rows}}u + within;
    {% if experts and experts.sums %}
    var sums = Sums();
    for (var slot = token * {{experts.top_k}}u; slot < (token + 1u) * {{experts.top_k}}u; slot++) {
        let own = selected[slot];
        if own.x < {{experts.count}}u {
            let one = products0(first, slot, slot, member, own.x);
            {% for r in range(team_rows) %}
            {% if biases %}
            {% set row = "min(first + " ~ r ~ "u, " ~ (parts[0].rows - 1) ~ "u)" %}
            // One member of the team adds the bias.
            let bias{{r}} = expert_biases[{{parts[0].bias_at}}u + own.x * {{parts[0].rows}}u + {{row}}];
            sums.s{{r}}_0 += bitcast<f32>(own.y) * (one.s{{r}}_0 + select(0.0, bias{{r}}, member == 0u));
            {% else %}
            sums.s{{r}}_0 += bitcast<f32>(own.y) * one.s{{r}}_0;
            {% endif %}
            {% endfor %}
        }
    }
    {% elif experts %}
    let sums = products0(first, token, token, member, expert);
    {% elif heads > 1 %}
    let sums = products0(first, token, last, member, group.z);
    {% elif is_one_product %}
    let sums = products0(first, token, last, member);
    {% else %}
    var sums: Sums;
    {% for part in parts %}
    {{ "} else " if not loop.first }}{{ "if group.x < " ~ part.end_block ~ "u " if not loop.last }}{
        part = {{loop.index0}}u;
        first = (group.x - {{part.first_block}}u) * {{group_rows}}u + within;
        sums = products{{part.matrix.number}}(first, token, last, member);
    {% endfor %}
    }
    {% endif %}
    {% for t in range(tokens) %}
    {
        {% if x_norm %}
        let factor = inverseSqrt(team_sum(sums.squares{{t}}, local) * {{x_norm.reciprocal}} + {{x_norm.eps}});
        {% endif %}
        {% set scaled = " * factor" if x_norm else "" %}
        {% for r in range(team_rows) %}
        {% if glu %}
        {% set of_row = "expert * " ~ parts[0].rows ~ "u + min(first + " ~ r ~ "u, " ~ (parts[0].rows - 1) ~ "u)" %}
        {% for sum in [r, team_rows + r] %}
        {% set bias = " + expert_biases[" ~ parts[loop.index0].bias_at ~ "u + " ~ of_row ~ "]" if biases else "" %}
        let {{ "gate" if loop.first else "up" }}{{r}} = team_sum(sums.s{{sum}}_{{t}}, local){{scaled}}{{bias}};
        {% endfor %}
        {% if finish.function == "clamped_glu" %}
        let y{{r}} = clamped_glu(vec4(gate{{r}}), vec4(up{{r}})).x;
        {% else %}
        let y{{r}} = {{finish.function}}(vec4(gate{{r}})).x * up{{r}};
        {% endif %}
        {% else %}
        let y{{r}} = team_sum(sums.s{{r}}_{{t}}, local){{scaled}};
        {% endif %}
        {% endfor %}
        if member == 0u && to + {{t}}u <= last {
            {% for r in range(team_rows) %}
            {% if y_q8 %}
            results[{{32 * t}}u + within + {{r}}u] = y{{r}};
            {% else %}
            if first + {{r}}u < {{ parts[0].rows ~ "u" if is_one_product else "rows_of(part)" }} {
                {% set of_head = "group.z * " ~ parts[0].rows ~ "u + " if heads > 1 else "" %}
                store(to + {{t}}u, {{of_head}}first + {{r}}u, part, y{{r}});
            }
            {% endif %}
            {% endfor %}
        }
    }
    {% endfor %}
    }
    {% if y_q8 %}
    workgroupBarrier();
    {% for e in range(own_elements) %}
    {
        let element = min(local + {{e * shape.workgroup}}u, {{32 * tokens - 1}}u);
        let sum = results[element]{{ " + added" ~ e if finish.kind in ["add_in_place", "add"] }};
        {% if parts[0].out %}
        if is_own{{e}} {
            out0[own_at{{e}}] = sum;
        }
        {% endif %}
        {% if y_q8.floats %}
        if is_own{{e}} {
            y[own_token{{e}} * {{y_q8.floats.stride}}u + own_row] = sum * norm_weight;
        }
        {% endif %}
        write_q8(sum, norm_weight, own_token{{e}}, group.x, local, is_own{{e}});
    }
    {% endfor %}
    {% endif %}
}
