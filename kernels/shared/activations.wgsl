// Activation functions, of four elements at a time.
fn silu(x: vec4<f32>) -> vec4<f32> {
    return x / (1.0 + exp(-x));
}

fn sigmoid(x: vec4<f32>) -> vec4<f32> {
    return 1.0 / (1.0 + exp(-x));
}

// The approximation of GELU by tanh, as (1 + tanh(u)) / 2 = 1 / (1 + exp(-2u)). Below -10 the
// result is 0, but the exponential would overflow.
fn gelu(x: vec4<f32>) -> vec4<f32> {
    let near = clamp(x, vec4(-10.0), vec4(10.0));
    let y = x / (1.0 + exp(-near * (1.5957691 + 0.07135482 * near * near)));
    return select(y, vec4(0.0), x < vec4(-10.0));
}
