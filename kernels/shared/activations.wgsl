// Activation functions, of four elements at a time.
fn silu(x: vec4<f32>) -> vec4<f32> {
    return x / (1.0 + exp(-x));
}

fn sigmoid(x: vec4<f32>) -> vec4<f32> {
    return 1.0 / (1.0 + exp(-x));
}

// GELU with the error function, as x (1 - erfc(u) / 2) with u = x / sqrt(2), and erfc(u) as
// exp(-u^2) times a polynomial of 1 / (1 + u / 2) for u >= 0 (Numerical Recipes, 6.2).
fn gelu_erf(x: vec4<f32>) -> vec4<f32> {
    let u = 0.70710678 * abs(x);
    let t = 1.0 / (1.0 + 0.5 * u);
    var p = vec4(0.17087277);
    p = fma(p, t, vec4(-0.82215223));
    p = fma(p, t, vec4(1.48851587));
    p = fma(p, t, vec4(-1.13520398));
    p = fma(p, t, vec4(0.27886807));
    p = fma(p, t, vec4(-0.18628806));
    p = fma(p, t, vec4(0.09678418));
    p = fma(p, t, vec4(0.37409196));
    p = fma(p, t, vec4(1.00002368));
    p = fma(p, t, vec4(-1.26551223));
    let tail = t * exp(p - u * u);
    return max(x, vec4(0.0)) - 0.5 * abs(x) * tail;
}

// The approximation of GELU by a sigmoid.
fn quick_gelu(x: vec4<f32>) -> vec4<f32> {
    return x / (1.0 + exp(-1.702 * x));
}

// The approximation of GELU by tanh, as (1 + tanh(u)) / 2 = 1 / (1 + exp(-2u)). Below -10 the
// result is 0, but the exponential would overflow.
fn gelu(x: vec4<f32>) -> vec4<f32> {
    let near = clamp(x, vec4(-10.0), vec4(10.0));
    let y = x / (1.0 + exp(-near * (1.5957691 + 0.07135482 * near * near)));
    return select(y, vec4(0.0), x < vec4(-10.0));
}

fn relu(x: vec4<f32>) -> vec4<f32> {
    return max(x, vec4(0.0));
}

fn squared_relu(x: vec4<f32>) -> vec4<f32> {
    let positive = max(x, vec4(0.0));
    return positive * positive;
}

// The gated linear unit of gpt-oss, of both rows. Below -45 the result is 0, and exp stays finite.
fn clamped_glu(gate: vec4<f32>, up: vec4<f32>) -> vec4<f32> {
    let g = clamp(gate, vec4(-45.0), vec4(7.0));
    return g / (1.0 + exp(-1.702 * g)) * (clamp(up, vec4(-7.0), vec4(7.0)) + 1.0);
}
