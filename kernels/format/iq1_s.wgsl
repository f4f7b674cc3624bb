// IQ1_S: a word of four points a unit, then 16 bits of high bits of points, scale and shift, then an
// f16 scale of the scales for eight units, then the grid.
//
// Parameters:
//   matrix: MatrixPlanes - the matrix
fn unit{{matrix.number}}(row: u32, u: u32) -> Unit {
    let i = row * {{matrix.units}}u + u;
    let d = half_of(small{{matrix.number}}[{{matrix.planes[2]}}u + i / 16u], i / 8u);
    let high = small{{matrix.number}}[{{matrix.planes[1]}}u + i / 2u] >> (i % 2u * 16u);
    let points = small{{matrix.number}}[i];
    let is_less = (high >> 15u) & 1u;
    {% for k in range(4) %}
    let index{{k}} = ((points >> {{8 * k}}u) & 255u) | (((high >> {{3 * k}}u) & 7u) << 8u);
    let point{{k}} = {{matrix.table}}[{{matrix.table_at}}u + index{{k}}];
    let even{{k}} = shifted(point{{k}}, is_less);
    let odd{{k}} = shifted(point{{k}} >> 4u, is_less);
    {% endfor %}
    let scale = 0.125 * d * f32(2u * ((high >> 12u) & 7u) + 1u);
    return Unit(vec4(even0, odd0, even1, odd1), vec4(even2, odd2, even3, odd3), vec2(scale), vec2(0.0));
}
