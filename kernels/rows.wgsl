// Makes rows ready for what reads them: {{source}}, normed where that is asked for, in the forms that the readers want.
//
// A workgroup has one row, an invocation every {{workgroup}}th block of 32 columns.

{{prelude}}

{{bindings}}

{{reduce}}

{% if decoder %}
{{decoder}}
{% endif %}

// Column `column` to `column + 3` of the row; nothing beyond its end.
fn source(row: u32, start: u32, column: u32{{ ", unit: Values, k: u32" if decoder }}) -> vec4<f32> {
    {% if decoder %}
    return four_of(unit, k);
    {% else %}
    let at = start + column / 4u;
    {% if source == "copy" or source == "select" %}
    let x = {{a}}[at];
    {% elif source == "sum" %}
    let x = {{a}}[at] + {{b}}[row * {{b_stride // 4}}u + column / 4u];
    {% elif source == "glu" %}
    let x = {{activation}}({{a}}[at]) * {{b}}[row * {{b_stride // 4}}u + column / 4u];
    {% endif %}
    {% if width % 4 %}
    return select(vec4(0.0), x, vec4(column) + vec4(0u, 1u, 2u, 3u) < vec4({{width}}u));
    {% else %}
    return x;
    {% endif %}
    {% endif %}
}

{% if decoder %}
fn four_of(unit: Values, k: u32) -> vec4<f32> {
    switch k {
        {% for k in range(8) %}
        case {{k}}u{{ ", default" if loop.last }}: {
            return unit.v{{k}};
        }
        {% endfor %}
    }
}
{% endif %}

@compute @workgroup_size({{workgroup}})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) index: u32,
    {% if subgroup %}
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) subgroups: u32,
    @builtin(subgroup_invocation_id) lane: u32,
    {% endif %}
) {
    let at = Invocation(index{{ ", subgroup, subgroups, lane" if subgroup }});
    let row = group.x;
    {% if source == "select" %}
    let start = step[{{records_at}}u + row * {{record_words}}u + 3u] * {{a_stride // 4}}u;
    {% elif source == "embed" %}
    {% if whole %}
    let start = ids[row];
    {% else %}
    // Another dispatch has the rest of the table.
    if ids[row] < {{first_row}}u || ids[row] >= {{first_row + table_rows}}u {
        return;
    }
    let start = ids[row] - {{first_row}}u;
    {% endif %}
    {% else %}
    let start = row * {{a_stride // 4}}u;
    {% endif %}
    var factor = 1.0;
    {% if norm or "half" in forms %}
    var squares = 0.0;
    var peak = 0.0;
    for (var block = index; block < {{blocks}}u; block += {{workgroup}}u) {
        {% if decoder %}
        let unit = {{ "values_of(unit0(start, block))" if coded else "values0(start, block)" }};
        {% endif %}
        for (var k = 0u; k < 8u; k++) {
            let column = block * 32u + 4u * k;
            if column < {{width}}u {
                let x = source(row, start, column{{ ", unit, k" if decoder }});
                squares += dot(x, x);
                {% if "half" in forms %}
                let most = abs(x{{ " * norm_weight[column / 4u]" if norm }});
                peak = max(peak, max(max(most.x, most.y), max(most.z, most.w)));
                {% endif %}
            }
        }
    }
    {% endif %}
    {% if norm %}
    factor = inverseSqrt(workgroup_sum_one(squares, at) * {{reciprocal}} + {{eps}});
    {% endif %}
    {% if "half" in forms %}
    // A power of two, so that the largest becomes about 256 and nothing overflows.
    peak = workgroup_max_one(peak * factor, at);
    let exponent = clamp(bitcast<u32>(peak) >> 23u, 9u, 246u) - 8u;
    let unscale = bitcast<f32>(exponent << 23u);
    let rescale = bitcast<f32>((254u - exponent) << 23u);
    if index == 0u {
        half_scales[row] = unscale;
    }
    {% endif %}
    for (var block = index; block < {{blocks}}u; block += {{workgroup}}u) {
        {% if decoder %}
        let unit = {{ "values_of(unit0(start, block))" if coded else "values0(start, block)" }};
        {% endif %}
        {% if "codes" in forms %}
        var values = array<vec4<f32>, 8>();
        var most = vec4(0.0);
        {% endif %}
        for (var k = 0u; k < 8u; k++) {
            let column = block * 32u + 4u * k;
            if column < {{width}}u {
                let x = source(row, start, column{{ ", unit, k" if decoder }});
                {% if "sum" in forms %}
                sum[row * {{sum_stride // 4}}u + column / 4u] = x;
                {% endif %}
                let y = factor * x{{ " * norm_weight[column / 4u]" if norm }};
                {% if "plain" in forms %}
                plain[row * {{plain_stride // 4}}u + column / 4u] = y;
                {% endif %}
                {% if "half" in forms %}
                let z = y * rescale;
                half_rows[(row * {{half_stride // 4}}u + column / 4u) * 2u] = pack2x16float(z.xy);
                half_rows[(row * {{half_stride // 4}}u + column / 4u) * 2u + 1u] = pack2x16float(z.zw);
                {% endif %}
                {% if "codes" in forms %}
                values[k] = y;
                most = max(most, abs(y));
                {% endif %}
            }
        }
        {% if "codes" in forms %}
        let largest = max(max(most.x, most.y), max(most.z, most.w));
        let inverse = select(127.0 / largest, 0.0, largest == 0.0);
        var sums = vec2(0.0);
        for (var k = 0u; k < 8u; k++) {
            let code = round(inverse * values[k]);
            codes[row * {{12 * blocks}}u + 8u * block + k] = pack4xI8(vec4<i32>(code));
            sums[k / 4u] += dot(code, vec4(1.0));
        }
        let scale = largest / 127.0;
        let head = row * {{12 * blocks}}u + {{8 * blocks}}u + 4u * block;
        codes[head] = bitcast<u32>(scale);
        codes[head + 1u] = bitcast<u32>(scale * sums.x);
        codes[head + 2u] = bitcast<u32>(scale * sums.y);
        {% endif %}
    }
}
