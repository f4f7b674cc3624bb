// Gives every token of every expert a slot, expert by expert, and cuts the slots into tiles that have one expert each.

{{prelude}}

{{bindings}}

// Stands where there is no expert.
const NONE = 0xffffffffu;

// How many slots an expert has, and then which is its next.
var<workgroup> slots: array<atomic<u32>, {{experts}}>;
var<workgroup> tile_count: u32;

@compute @workgroup_size({{workgroup}})
fn main(@builtin(local_invocation_index) index: u32) {
    let count = step[{{count_at}}] * {{used}}u;
    for (var e = index; e < {{experts}}u; e += {{workgroup}}u) {
        atomicStore(&slots[e], 0u);
    }
    workgroupBarrier();
    for (var i = index; i < count; i += {{workgroup}}u) {
        let e = taken[i].x;
        if e < {{experts}}u {
            atomicAdd(&slots[e], 1u);
        }
    }
    workgroupBarrier();
    if index == 0u {
        var start = 0u;
        var next = 0u;
        for (var e = 0u; e < {{experts}}u; e++) {
            let end = start + atomicLoad(&slots[e]);
            atomicStore(&slots[e], start);
            for (; start < end; start += {{tile}}u) {
                tiles[next] = vec4(e, start, end, 0u);
                next++;
            }
            start = end;
        }
        tile_count = next;
    }
    workgroupBarrier();
    for (var i = tile_count + index; i < (count + {{tile - 1}}u) / {{tile}}u + min(count, {{experts}}u); i += {{workgroup}}u) {
        tiles[i] = vec4(NONE, 0u, 0u, 0u);
    }
    for (var i = index; i < count; i += {{workgroup}}u) {
        let e = taken[i].x;
        var slot = NONE;
        if e < {{experts}}u {
            slot = atomicAdd(&slots[e], 1u);
            token_of[slot] = i / {{used}}u;
        }
        slot_of[i] = slot;
    }
}
