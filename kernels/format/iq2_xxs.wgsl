// IQ2_XXS: 8 bytes a unit: four points, and a word of signs and scale; then an f16 scale of the
// scales for eight units, then the grid.
//
// Parameters:
//   matrix: MatrixPlanes - the matrix
fn unit{{matrix.number}}(row: u32, u: u32) -> Unit {
    let i = row * {{matrix.units}}u + u;
    let d = half_of(small{{matrix.number}}[{{matrix.planes[1]}}u + i / 16u], i / 8u);
    let points = small{{matrix.number}}[2u * i];
    let word = small{{matrix.number}}[2u * i + 1u];
    {% for k in range(4) %}
    let signs{{k}} = even_signs(word >> {{7 * k}}u);
    let point{{k}} = {{matrix.table}}[{{matrix.table_at}}u + ((points >> {{8 * k}}u) & 255u)];
    {% endfor %}
    {% for k in range(4) %}
    let even{{k}} = with_signs(uneven_values(point{{k}}), signs{{k}});
    let odd{{k}} = with_signs(uneven_values(point{{k}} >> 4u), signs{{k}} >> 4u);
    {% endfor %}
    let lo = vec4(even0, odd0, even1, odd1);
    let hi = vec4(even2, odd2, even3, odd3);
    return Unit(lo, hi, vec2(0.25 * d * (f32(word >> 28u) + 0.5)), vec2(0.0));
}
