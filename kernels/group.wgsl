// Assigns a slot to each (row, expert) of a list, expert by expert, and divides the slots into
// tiles of one expert each.
//
// Parameters (`GroupKernel`):
//   workgroup: u32 - invocations of the only workgroup
//   experts: u32 - number of experts in the layer
//   top_k: u32 - largest number of active experts of a row
//   tile: u32 - slots of a tile
//   rows: RowCount - "tokens" or "outputs": the number of rows
//
// Buffers:
//   selected: vec2<u32> - the expert and the bits of its weight, `[rows, top_k]`
//   slot_of: u32, written - the slot, or NONE, `[rows, top_k]`
//   token_of: u32, written - the row of each slot
//   tiles: vec4<u32>, written - for each tile its expert, or NONE, its first slot, the slot after
//     its last, 0

{% from "shared/row_count" import row_count %}
{% include "shared/bindings" %}
{% include "shared/none" %}

// The slots of each expert, then the next free slot of each.
var<workgroup> slots: array<atomic<u32>, {{experts}}>;
var<workgroup> tile_count: u32;

@compute @workgroup_size({{workgroup}})
fn main(@builtin(local_invocation_index) index: u32) {
    let count = {{ row_count(rows) }} * {{top_k}}u;
    for (var e = index; e < {{experts}}u; e += {{workgroup}}u) {
        atomicStore(&slots[e], 0u);
    }
    workgroupBarrier();
    for (var i = index; i < count; i += {{workgroup}}u) {
        let e = selected[i].x;
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
    let tiles_end = (count + {{tile - 1}}u) / {{tile}}u + min(count, {{experts}}u);
    for (var i = tile_count + index; i < tiles_end; i += {{workgroup}}u) {
        tiles[i] = vec4(NONE, 0u, 0u, 0u);
    }
    for (var i = index; i < count; i += {{workgroup}}u) {
        let e = selected[i].x;
        var slot = NONE;
        if e < {{experts}}u {
            slot = atomicAdd(&slots[e], 1u);
            token_of[slot] = i / {{top_k}}u;
        }
        slot_of[i] = slot;
    }
}
