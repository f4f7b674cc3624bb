// Sums values times weights, and with `new.appends` appends the token's own key and value; part of
// `attention_step.wgsl`, whose parameters it reads.
    {% if appends %}
    // All invocations have read the keys by now.
    if is_last && chunk == 0u && index < {{dim}}u {
        {% if cache.format == "f16" %}
        let half = pack2x16float(vec2(new_key[index], 0.0));
        let in_low = (old_word & 0xffff0000u) | half;
        let in_high = (old_word & 0xffffu) | (half << 16u);
        cache[keys_now + index * 32u] = select(in_low, in_high, position_now % 2u == 1u);
        {% else %}
        cache[keys_now + index * 64u] = bitcast<u32>(new_key[index]);
        {% endif %}
    }
    {% endif %}
    {% for n in range(per_word) %}
    {% for w in range(passes) %}
    var sum{{w}}_{{n}} = Heads(0.0);
    {% endfor %}
    {% endfor %}
    for (var start = 0u; start < old; start += {{batch}}u) {
        {% for j in range(shape.values_at_once) %}{% for w in range(passes) %}
        let word{{j}}_{{w}} = value{{j}}_{{w}};
        {% endfor %}{% endfor %}
        if start + {{batch}}u < old {
            let next = start + {{batch}}u;
            {{ read_values("next") }}
        }
        {% for j in range(shape.values_at_once) %}
        {
            let i = start + {{j * shape.groups}}u + row;
            let weight = shared_heads[i];
            {% for w in range(passes) %}
            {
                {% if cache.format == "q8_0" %}
                let there = min(i, last_old);
                let scale = value_scale(page_starts[there / 64u], kv_head, there % 64u, column{{w}} / 8u);
                let value = vec4<f32>(unpack4xI8(word{{j}}_{{w}})) * scale;
                {% else %}
                let value = unpacked(word{{j}}_{{w}});
                {% endif %}
                {% for n in range(per_word) %}
                sum{{w}}_{{n}} += weight * value{{ "[" ~ n ~ "]" if per_word > 1 }};
                {% endfor %}
            }
            {% endfor %}
        }
        {% endfor %}
    }
    {% if new %}
    if is_last && index < {{shape.words_at_once}}u {
        let weight = own_score;
        let column = column0;
        {% if cache.format == "f16" %}
        let packed = select(pack2x16float(vec2(v0, v1)), 0u, 2u * column >= {{head_dim}}u);
        let value = unpack2x16float(packed);
        {% else %}
        let value = select(v0, 0.0, column >= {{head_dim}}u);
        let packed = bitcast<u32>(value);
        {% endif %}
        {% if appends %}
        if chunk == 0u {
            cache[page_starts[old / 64u] + values_at + old % 64u * {{words}}u + column] = packed;
        }
        {% endif %}
        {% for n in range(per_word) %}
        sum0_{{n}} += weight * value{{ "[" ~ n ~ "]" if per_word > 1 }};
        {% endfor %}
    }
    {% endif %}
    workgroupBarrier();
    if index < {{shape.groups * shape.words_at_once}}u {
        {% for w in range(passes) %}{% for n in range(per_word) %}
        shared_heads[row * {{dim}}u + column{{w}} * {{per_word}}u + {{n}}u] = sum{{w}}_{{n}};
        {% endfor %}{% endfor %}
    }
    {% include "attention_step/total" %}
