// Computes a short convolution over the tokens of a run, then SiLU if wanted: y[t] = silu(sum over i
// of w[i] x[t + i + 1 - taps]).
//
// An invocation computes a channel, and keeps the inputs of later tokens in registers. If chunks
// are computed in parallel, only the first chunk of a run reads and writes states.
//
// Parameters (`ShortConv`):
//   workgroup: u32 - invocations of a workgroup, each of which computes a channel
//   chunked: bool - whether a workgroup computes a chunk of a run, rather than a whole run
//   channels: u32 - number of channels
//   taps: u32 - length of the convolution in tokens, including the result's own token
//   silu: bool - whether SiLU follows
//   at_once: u32 - tokens that an invocation reads ahead
//   runs: RunTable - the runs
//   state: u32 - elements of a state, `[taps - 1, channels]`
//   x: Strided - the inputs, `[tokens, channels]`
//   y: Strided - the result, `[tokens, channels]`
//   bias: BoundBuffer? - a bias of each channel, if there is one
//
// Buffers:
//   x: f32
//   w: f32 - the weights, `[channels, taps]`
//   bias: f32 - `[channels]`
//   states: f32, written
//   y: f32, written

{% from "shared/runs" import checkpoint_state, chunk_at, read_checkpoints, run_at %}
{% include "shared/bindings" %}
{% include "shared/activations" %}

{% set past = range(taps - 1) %}
@compute @workgroup_size({{workgroup}})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) index: u32) {
    let channel = group.x * {{workgroup}}u + index;
    if channel >= {{channels}}u {
        return;
    }
    {% if chunked %}
    let chunk = {{ chunk_at(runs, "group.y") }};
    let run = {{ run_at(runs, "step[chunk + CHUNK_RUN]") }};
    let begin = step[chunk + CHUNK_FIRST_TOKEN];
    var end = begin + step[chunk + CHUNK_TOKENS];
    {% else %}
    let run = {{ run_at(runs, "group.y") }};
    let begin = 0u;
    let end = step[run + RUN_TOKENS];
    {% endif %}
    let first = step[run + RUN_FIRST_TOKEN];
    let tokens = step[run + RUN_TOKENS];
    let before = step[run + RUN_STATE_BEFORE];
    {% for i in past %}
    var x{{i}} = 0.0;
    {% endfor %}
    {% if chunked %}
    // The state can be overwritten, so the invocation that overwrites it computes all tokens that
    // read the old state.
    let last_input = (first + tokens - 1u) * {{x.stride}}u + channel;
    if begin > 0u {
        {% for i in past %}
        x{{i}} = x[(first + max(begin, {{taps - 1}}u) - {{taps - 1 - i}}u) * {{x.stride}}u + channel];
        {% endfor %}
    } else {
        end = max(end, min({{taps - 1}}u, tokens));
    }
    {% endif %}
    if begin == 0u && before > 0u {
        let old = (before - 1u) * {{state}}u + channel;
        {% for i in past %}
        x{{i}} = states[old + {{i * channels}}u];
        {% endfor %}
    }
    {% for i in range(taps) %}
    let w{{i}} = w[channel * {{taps}}u + {{i}}u];
    {% endfor %}
    {% if bias %}
    let shift = bias[channel];
    {% endif %}
    {{ read_checkpoints(runs) }}
    {% if chunked %}
    let first_start = select(max(begin, {{taps - 1}}u), 0u, begin == 0u);
    {% else %}
    let first_start = 0u;
    {% endif %}
    for (var start = first_start; start < end; start += {{at_once}}u) {
        // All loads come first, so that they are outstanding together; past the end the last input
        // is read again.
        {% for j in range(at_once) %}
        let now{{j}} = x[(first + min(start + {{j}}u, tokens - 1u)) * {{x.stride}}u + channel];
        {% endfor %}
        {% for j in range(at_once) %}
        if start + {{j}}u < end {
            let token = start + {{j}}u;
            let sum = {{ "shift + " if bias }}w{{taps - 1}} * now{{j}}{% for i in past %} + w{{i}} * x{{i}}{% endfor %};
            y[(first + token) * {{y.stride}}u + channel] = {{ "silu(vec4(sum)).x" if silu else "sum" }};
            {% for i in past %}
            x{{i}} = {{ "x" ~ (i + 1) if not loop.last else "now" ~ j }};
            {% endfor %}
            {% for checkpoint in range(runs.checkpoints) %}
            if checkpoint{{checkpoint}} == token + 1u {
                let to = {{ checkpoint_state(runs, checkpoint) }} * {{state}}u + channel;
                {% for i in past %}
                states[to + {{i * channels}}u] = x{{i}};
                {% endfor %}
            }
            {% endfor %}
        }
        {% endfor %}
    }
    {% if chunked %}
    if begin > 0u {
        return;
    }
    if end < tokens {
        {% for i in past %}
        x{{i}} = x[last_input - {{(taps - 2 - i) * x.stride}}u];
        {% endfor %}
    }
    {% endif %}
    let to = step[run + RUN_STATE_AFTER] * {{state}}u + channel;
    {% for i in past %}
    states[to + {{i * channels}}u] = x{{i}};
    {% endfor %}
}
