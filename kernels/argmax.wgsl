// The largest of a row of logits: the lowest id among equals, and no id where one is not a number. Each workgroup
// takes {{share}} ids; the last dispatch joins their finds.

{{bindings}}

struct Find {
    logit: f32,
    id: u32,
}

var<workgroup> best: array<Find, {{workgroup}}>;

const NONE = 0xffffffffu;

fn better(a: Find, b: Find) -> Find {
    if a.id == NONE || b.id == NONE {
        return Find(0.0, NONE);
    }
    if b.logit > a.logit || (b.logit == a.logit && b.id < a.id) {
        return b;
    }
    return a;
}

@compute @workgroup_size({{workgroup}})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) index: u32) {
    let row = group.y;
    let begin = group.x * {{share}}u;
    var find = Find({{lowest}}, {{count}}u);
    for (var i = begin + index; i < min(begin + {{share}}u, {{count}}u); i += {{workgroup}}u) {
        {% if first %}
        let logit = logits[row * {{stride}}u + i];
        // Not a number has all bits of the exponent and some of the mantissa set.
        let is_number = (bitcast<u32>(logit) & 0x7fffffffu) <= 0x7f800000u;
        find = better(find, Find(logit, select(NONE, i, is_number)));
        {% else %}
        let other = finds[row * {{count}}u + i];
        find = better(find, Find(bitcast<f32>(other.x), other.y));
        {% endif %}
    }
    best[index] = find;
    for (var half = {{workgroup // 2}}u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if index < half {
            best[index] = better(best[index], best[index + half]);
        }
    }
    if index == 0u {
        {% if first %}
        chosen[row * {{groups}}u + group.x] = vec2(bitcast<u32>(best[0].logit), best[0].id);
        {% else %}
        chosen[row] = best[0].id;
        {% endif %}
    }
}
