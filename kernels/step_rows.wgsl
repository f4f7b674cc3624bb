// Computes rows that depend on the inputs of the step: the rows that it gives for tokens, its
// outputs, or its taps.
//
// Parameters (`StepRows`):
//   workgroup: u32 - invocations of a workgroup, each of which computes a column
//   width: u32 - columns of a row of `y`
//   source: StepRowSource - the rows
//   source.kind: str - "given": the step's rows, 0 for tokens without one; "placed": `x` with the
//     step's rows in the place of its own; "added": `x` plus the step's rows; "joined": the rows of
//     `x` of an output's token and of the tokens after it; "interpolated": the weighted sum of four
//     rows of the table; "tempered": `x` times 1 + scale ln(1 + floor((position + offset) / interval))
//   source.first: u32 - the first column of a given row that is read ("placed", "added")
//   source.marked: bool - whether only given rows whose column before the first one is not 0 are
//     placed ("placed")
//   source.given_width: u32 - columns of a given row ("given", "placed", "added")
//   source.part: u32 - columns of a row of `x` ("joined")
//   source.taps_at: u32 - the first word, in a token's record, of its four pairs of a row and a
//     weight ("interpolated")
//   source.scale: F32 - the factor of the logarithm ("tempered")
//   source.interval: u32 - the number of positions with the same factor ("tempered")
//   source.offset: u32 - the number that is added to a position first ("tempered")
//   x: Strided? - the operand; none if it is `y` itself, or if there is none
//   y: Strided - the result, `[rows, width]`
//   records: Records - the tokens' records
//
// Buffers:
//   y: f32, written
//   x: f32
//   given: f32 - the step's rows
//   table: f32 - the table

{% include "shared/bindings" %}

@compute @workgroup_size({{workgroup}})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) index: u32) {
    let column = group.y * {{workgroup}}u + index;
    let row = group.x;
    if column >= {{width}}u {
        return;
    }
    let record = {{records.at}}u + row * {{records.words}}u;
    let to = row * {{y.stride}}u + column;
    {% if source.kind == "joined" %}
    let token = step[record + TOKEN_OF_OUTPUT] + column / {{source.part}}u;
    y[to] = x[token * {{x.stride}}u + column % {{source.part}}u];
    {% elif source.kind == "tempered" %}
    let position = step[record + TOKEN_POSITION] + {{source.offset}}u;
    let factor = 1.0 + {{source.scale}} * log(1.0 + f32(position / {{source.interval}}u));
    y[to] = factor * {{ "x[row * " ~ x.stride ~ "u + column]" if x else "y[to]" }};
    {% elif source.kind == "interpolated" %}
    var sum = 0.0;
    for (var tap = 0u; tap < 4u; tap++) {
        let at = record + {{source.taps_at}}u + 2u * tap;
        sum += bitcast<f32>(step[at + 1u]) * table[step[at] * {{width}}u + column];
    }
    y[to] = sum;
    {% else %}
    // The number of the token's row, plus 1; 0 for a token without one.
    let number = step[record + TOKEN_INPUT_ROW];
    {% if source.kind == "given" %}
    var value = 0.0;
    {% elif x %}
    var value = x[row * {{x.stride}}u + column];
    {% else %}
    var value = y[to];
    {% endif %}
    {% if source.kind == "placed" and source.marked %}
    if number > 0u && given[(number - 1u) * {{source.given_width}}u + {{source.first - 1}}u] != 0.0 {
    {% else %}
    if number > 0u {
    {% endif %}
        {% set first = source.first if source.kind != "given" else 0 %}
        let element = given[(number - 1u) * {{source.given_width}}u + {{first}}u + column];
        value = {{ "value + element" if source.kind == "added" else "element" }};
    }
    y[to] = value;
    {% endif %}
}
