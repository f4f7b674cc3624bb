// The {{most}} largest of a row of logits, best first: of equal ones the lower id. A workgroup sorts {{share}} and keeps the
// first of them; what workgroups keep goes through the same again, until one is left.

{{bindings}}

// What logits are ordered by: like them, but that one which is not a number comes before all that are.
var<workgroup> keys: array<u32, {{share}}>;
var<workgroup> ids: array<u32, {{share}}>;

// Comes after all logits.
const NONE = vec2(0u, 0xffffffffu);

{% if first %}
fn key_of(logit: f32) -> u32 {
    let bits = bitcast<u32>(logit);
    // Not a number has all bits of the exponent and some of the mantissa set.
    if (bits & 0x7fffffffu) > 0x7f800000u {
        return 0xffffffffu;
    }
    return select(bits | 0x80000000u, ~bits, bits >= 0x80000000u);
}
{% endif %}

fn comes_before(a: u32, b: u32) -> bool {
    return keys[a] > keys[b] || (keys[a] == keys[b] && ids[a] < ids[b]);
}

@compute @workgroup_size({{workgroup}})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) index: u32) {
    for (var i = index; i < {{share}}u; i += {{workgroup}}u) {
        let at = group.x * {{share}}u + i;
        var entry = NONE;
        if at < {{count}}u {
            entry = {{ "vec2(key_of(logits[at]), at)" if first else "found[at]" }};
        }
        keys[i] = entry.x;
        ids[i] = entry.y;
    }
    // A bitonic sort, after Batcher 1968.
    for (var size = 2u; size <= {{share}}u; size *= 2u) {
        for (var distance = size / 2u; distance > 0u; distance /= 2u) {
            workgroupBarrier();
            for (var n = index; n < {{share // 2}}u; n += {{workgroup}}u) {
                let a = 2u * n - n % distance;
                let b = a + distance;
                let falls = (a & size) == 0u;
                if comes_before(b, a) == falls {
                    let entry = vec2(keys[a], ids[a]);
                    keys[a] = keys[b];
                    ids[a] = ids[b];
                    keys[b] = entry.x;
                    ids[b] = entry.y;
                }
            }
        }
    }
    workgroupBarrier();
    if index < {{most}}u {
        best[group.x * {{most}}u + index] = vec2(keys[index], ids[index]);
    }
}
