// Computes the weights of positions from their scores; part of `attention_step.wgsl`, whose
// parameters it reads.
    {% set rounds = (shape.split + shape.workgroup - 1) // shape.workgroup %}
    {% for n in range(rounds) %}
    var weight{{n}} = Heads({{lowest}});
    {
        let i = index + {{n * shape.workgroup}}u;
        if {{ "i >= hidden && " if scores.window }}i < end {
            var sum = shared_heads[i];
            for (var p = 1u; p < parts_now; p++) {
                sum += shared_heads[i + p * words_now * {{per_word}}u];
            }
            {% if new %}
            if i == old {
                sum = own_score;
            }
            {% endif %}
            let score = sum * {{scores.scale}};
            weight{{n}} = {{ "soft_cap(score)" if scores.soft_cap else "score" }};
        }
    }
    {% endfor %}
    var most = weight0;
    {% for n in range(1, rounds) %}
    most = max(most, weight{{n}});
    {% endfor %}
    most = workgroup_max_heads(most, at);
    var total = Heads(0.0);
    {% for n in range(rounds) %}
    {
        let i = index + {{n * shape.workgroup}}u;
        let weight = select(Heads(0.0), exp(weight{{n}} - most), weight{{n}} > Heads({{lowest}}));
        total += weight;
        {% if new %}
        if i == old && is_last {
            own_score = weight;
        }
        {% endif %}
        {{ "if i < " ~ shape.split ~ "u " if rounds * shape.workgroup > shape.split }}{
            shared_heads[i] = {{ "select(weight, Heads(0.0), i >= old)" if new else "weight" }};
        }
    }
    {% endfor %}
    {% if subgroup %}
    total = subgroupAdd(total);
    if lane == 0u {
        totals[subgroup] = total;
    }
    workgroupBarrier();
    {% else %}
    total = workgroup_sum_heads(total, at);
    {% endif %}
