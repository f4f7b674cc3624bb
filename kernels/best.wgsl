// Finds the largest of a row of logits, in descending order; of equal logits the one with the lower
// id comes first.
//
// A workgroup sorts its share of the candidates and keeps the first of them. A further dispatch
// does the same with all candidates that were kept, until one workgroup has them all.
//
// Parameters (`BestKernel`):
//   workgroup: u32 - invocations of a workgroup
//   count: u32 - candidates: logits, or the candidates that the previous round kept
//   share: u32 - candidates of a workgroup, a power of two
//   kept: u32 - candidates that a workgroup keeps
//   logits: BoundBuffer? - the logits, in the first round
//
// Buffers:
//   logits: f32 - `[count]`
//   found: vec2<u32> - the keys and ids that the previous round kept, `[count]`
//   best: vec2<u32>, written - keys and ids, `[workgroups, kept]`

{% include "shared/bindings" %}

// Keys, ordered as the logits are; the key of NaN is the largest.
var<workgroup> keys: array<u32, {{share}}>;
var<workgroup> ids: array<u32, {{share}}>;

// A key and id that come after all logits.
const LAST = vec2(0u, 0xffffffffu);

{% if logits %}
fn key_of(logit: f32) -> u32 {
    let bits = bitcast<u32>(logit);
    // NaN has all bits of the exponent and some of the mantissa set.
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
        var entry = LAST;
        if at < {{count}}u {
            entry = {{ "vec2(key_of(logits[at]), at)" if logits else "found[at]" }};
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
    if index < {{kept}}u {
        best[group.x * {{kept}}u + index] = vec2(keys[index], ids[index]);
    }
}
