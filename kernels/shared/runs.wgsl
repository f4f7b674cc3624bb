// Reads the runs of a step and their checkpoints, for recurrent kernels.
//
// Macros, for a `RunTable`:
//   run_at(runs, number) - the first word of run `number`
//   chunk_at(runs, number) - the first word of chunk `number`
//   read_checkpoints(runs) - binds `checkpoint0`, ..: the tokens before each checkpoint of the run
//     at word `run`
//   checkpoint_state(runs, checkpoint) - the state that is written at a checkpoint of the run at
//     word `run`
{% macro run_at(runs, number) %}{{runs.runs_at}}u + {{number}} * {{runs.run_words}}u{% endmacro %}

{% macro chunk_at(runs, number) %}{{runs.chunks_at}}u + {{number}} * {{runs.chunk_words}}u{% endmacro %}

{% macro read_checkpoints(runs) %}
    {% for checkpoint in range(runs.checkpoints) %}
    let checkpoint{{checkpoint}} = step[run + {{runs.checkpoints_at + 2 * checkpoint}}u];
    {% endfor %}
{% endmacro %}

{% macro checkpoint_state(runs, checkpoint) %}step[run + {{runs.checkpoints_at + 1 + 2 * checkpoint}}u]{% endmacro %}
