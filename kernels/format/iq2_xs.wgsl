// IQ2_XS: 8 bytes a unit: four points with signs; then the scale of each half in four bits, then an
// f16 scale of the scales for eight units, then the grid.
//
// Parameters:
//   matrix: MatrixPlanes - the matrix
fn unit{{matrix.number}}(row: u32, u: u32) -> Unit {
    let i = row * {{matrix.units}}u + u;
    let d = half_of(small{{matrix.number}}[{{matrix.planes[2]}}u + i / 16u], i / 8u);
    let scales = vec2(small{{matrix.number}}[{{matrix.planes[1]}}u + i / 4u] >> (i % 4u * 8u)) >> vec2(0u, 4u);
    let points = vec2(small{{matrix.number}}[2u * i], small{{matrix.number}}[2u * i + 1u]);
    {% for k in range(4) %}
    let code{{k}} = points.{{"xy"[k // 2]}} >> {{k % 2 * 16}}u;
    let signs{{k}} = even_signs(code{{k}} >> 9u);
    let point{{k}} = {{matrix.table}}[{{matrix.table_at}}u + (code{{k}} & 511u)];
    {% endfor %}
    {% for k in range(4) %}
    let even{{k}} = with_signs(uneven_values(point{{k}}), signs{{k}});
    let odd{{k}} = with_signs(uneven_values(point{{k}} >> 4u), signs{{k}} >> 4u);
    {% endfor %}
    let lo = vec4(even0, odd0, even1, odd1);
    let hi = vec4(even2, odd2, even3, odd3);
    return Unit(lo, hi, 0.25 * d * (vec2<f32>(scales & vec2(15u)) + 0.5), vec2(0.0));
}
