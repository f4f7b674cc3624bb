// Sums keys times weights; part of `attention_step.wgsl`, whose parameters it reads. An invocation
// has whole elements, whose positions follow one another in a page.
    {% set elements = (dim + shape.workgroup - 1) // shape.workgroup %}
    {% for e in range(elements) %}
    let d{{e}} = min(index + {{e * shape.workgroup}}u, {{dim - 1}}u);
    var sum{{e}} = Heads(0.0);
    {% endfor %}
    for (var first = 0u; first < end; first += 16u) {
        let start = page_starts[first / 64u];
        let keys = start + kv_head * {{head_words}}u + first % 64u / {{per_word}}u;
        // All loads come first, so that they are outstanding together.
        {% for e in range(elements) %}{% for j in range(16 // per_word) %}
        let word{{e}}_{{j}} = cache[keys + d{{e}} * {{64 // per_word}}u + {{j}}u];
        {% endfor %}{% endfor %}
        {% for j in range(16 // per_word) %}
        {% set at = j * per_word %}
        {% for n in range(per_word) %}
        // The memory of positions past the end can contain NaN.
        let is_there{{at + n}} = first + {{at + n}}u < end;
        let weight{{at + n}} = shared_heads[first + {{at + n}}u];
        {% endfor %}
        {% for e in range(elements) %}
        {
            {% if cache.format == "q8_0" %}
            let scales = key_scales(start, kv_head, d{{e}} / 32u, first % 64u + {{at}}u);
            let key = vec4<f32>(unpack4xI8(word{{e}}_{{j}})) * scales;
            {% else %}
            let key = unpacked(word{{e}}_{{j}});
            {% endif %}
            {% for n in range(per_word) %}
            {% set own = "key[" ~ n ~ "]" if per_word > 1 else "key" %}
            sum{{e}} += weight{{at + n}} * select(0.0, {{own}}, is_there{{at + n}});
            {% endfor %}
        }
        {% endfor %}
        {% endfor %}
    }
    workgroupBarrier();
    {% for e in range(elements) %}
    if index + {{e * shape.workgroup}}u < {{dim}}u {
        shared_heads[d{{e}}] = sum{{e}};
    }
    {% endfor %}
    {% include "attention_step/total" %}
