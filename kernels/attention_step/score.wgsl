// Multiplies queries with keys, and starts to load the first values; part of `attention_step.wgsl`,
// whose parameters it reads.
    {% if new %}
    {% if subgroup %}
    if subgroup == 0u {
        var sum = Heads(0.0);
        {% for first in range(0, dim, subgroup) %}
        {{ "if lane < " ~ (dim - first) ~ "u " if first + subgroup > dim }}{
            sum = fma(queries[{{first}}u + lane], Heads(new_key[{{first}}u + lane]), sum);
        }
        {% endfor %}
        sum = subgroupAdd(sum);
        if lane == 0u {
            own_score = sum;
        }
    }
    {% else %}
    let sum_now = workgroup_sum_heads(
        select(Heads(0.0), queries[min(index, {{dim - 1}}u)] * new_key[min(index, {{dim - 1}}u)], index < {{head_dim}}u),
        at,
    );
    if index == 0u {
        own_score = sum_now;
    }
    {% endif %}
    {% endif %}
    {% for n in range(per_word) %}
    var score{{n}} = Heads(0.0);
    {% endfor %}
    if position < end {
        let keys = page_starts[position / 64u] + kv_head * {{head_words}}u + position % 64u / {{per_word}}u;
        for (
            var first = part * stretch;
            first < min((part + 1u) * stretch, {{dim}}u);
            first += {{shape.keys_at_once}}u
        ) {
            {% if cache.format == "q8_0" %}
            let scales = key_scales(page_starts[position / 64u], kv_head, first / 32u, position % 64u);
            {% endif %}
            {
                // All loads come first, so that they are outstanding together.
                {% for j in range(shape.keys_at_once) %}
                let word{{j}} = key{{j}};
                {% endfor %}
                if first + {{shape.keys_at_once}}u < min((part + 1u) * stretch, {{dim}}u) {
                    {% for j in range(shape.keys_at_once) %}
                    key{{j}} = cache[keys + (first + {{shape.keys_at_once + j}}u) * {{64 // per_word}}u];
                    {% endfor %}
                }
                {% for j in range(shape.keys_at_once) %}
                {
                    {% if cache.format == "q8_0" %}
                    let key = vec4<f32>(unpack4xI8(word{{j}})) * scales;
                    {% else %}
                    let key = unpacked(word{{j}});
                    {% endif %}
                    let x = queries[first + {{j}}u];
                    {% for n in range(per_word) %}
                    score{{n}} += x * key{{ "[" ~ n ~ "]" if per_word > 1 }};
                    {% endfor %}
                }
                {% endfor %}
            }
        }
    }
    {% if cache.matrices == 2 %}
    {% for j in range(shape.values_at_once) %}{% for w in range(passes) %}
    var value{{j}}_{{w}}: u32;
    {% endfor %}{% endfor %}
    // The first values are loaded while the weights are computed.
    {{ read_values("0u") }}
    {% endif %}
    {% for n in range(per_word) %}
    shared_heads[part * words_now * {{per_word}}u + position + {{n}}u] = score{{n}};
    {% endfor %}
    workgroupBarrier();
