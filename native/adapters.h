/* Low-rank changes of linear layers (LoRA; Hu et al., 2021), in float32 beside weights of any precision. Each
   row has its own adapter, so that a batch may have many; a row's result depends only on the row. */
#ifndef HEEDFUL_ADAPTERS_H
#define HEEDFUL_ADAPTERS_H

#include "heedful.h"
#include "matmul.h"
#include "vectors.h"

enum { OUTPUTS_TOGETHER = 32 / LANES }; /* vectors: widths are multiples of 32 */

/* A layer's outputs y (rows, out) before the changes and the activation, and its inputs x (rows, in). */
typedef struct {
    const HeedfulLinear *layer;
    int32_t activation;
    const HeedfulAdapter *const *adapters; /* of each row, NULL: none */
    const float *x;
    int64_t rows, chunks;
    float *y;
} Adaptation;

/* y (out) += up^T (down x), some ranks at a time. */
static void change_row(const HeedfulChange *change, const float *x, int64_t in, float *y) {
    for (int64_t first = 0; first < change->rank; first += LANES) {
        float products[LANES];
        Floats dots[LANES];
        for (int64_t k = 0; k < LANES; k++) dots[k] = (Floats){0};
        const float *down[LANES]; /* the last rank pads the vector */
        for (int64_t k = 0; k < LANES; k++)
            down[k] = change->down + (first + k < change->rank ? first + k : change->rank - 1) * in;
        for (int64_t i = 0; i < in; i += LANES)
            for (int64_t k = 0; k < LANES; k++)
                dots[k] = multiply_add(load(x + i), load(down[k] + i), dots[k]);
        store(products, sums_of(dots));
        int64_t ranks = change->rank - first < LANES ? change->rank - first : LANES;
        const float *up = change->up + first * change->out;
        for (int64_t i = 0; i < change->out; i += LANES * OUTPUTS_TOGETHER) {
            Floats sums[OUTPUTS_TOGETHER];
            for (int64_t c = 0; c < OUTPUTS_TOGETHER; c++) sums[c] = load(y + i + c * LANES);
            for (int64_t k = 0; k < ranks; k++)
                for (int64_t c = 0; c < OUTPUTS_TOGETHER; c++)
                    sums[c] =
                        multiply_add(all(products[k]), load(up + k * change->out + i + c * LANES), sums[c]);
            for (int64_t c = 0; c < OUTPUTS_TOGETHER; c++) store(y + i + c * LANES, sums[c]);
        }
    }
}

/* Add what the adapters of some rows say, then apply the activation. */
static void change_rows(void *task, int64_t chunk, int64_t thread) {
    (void)thread;
    const Adaptation *a = task;
    int64_t number = a->layer->number, in = a->layer->in, out = a->layer->out;
    for (int64_t row = a->rows * chunk / a->chunks; row < a->rows * (chunk + 1) / a->chunks; row++) {
        const HeedfulAdapter *adapter = a->adapters[row];
        float *y = a->y + row * out;
        for (int64_t i = adapter ? adapter->firsts[number - 1] : 0; adapter && i < adapter->firsts[number];
             i++)
            change_row(&adapter->changes[i], a->x + row * in, in, y + adapter->changes[i].first);
        activate(a->activation, y, out);
    }
}

/* How many multiplications the adapters of some rows need in a layer, about; 0: none changes it. */
static int64_t cost_of_changes(const HeedfulLinear *layer, const HeedfulAdapter *const *adapters,
                               int64_t rows) {
    int64_t number = layer->number, total_cost = 0;
    for (int64_t row = 0; number && row < rows; row++)
        for (int64_t i = adapters[row] ? adapters[row]->firsts[number - 1] : 0;
             adapters[row] && i < adapters[row]->firsts[number]; i++) {
            const HeedfulChange *change = &adapters[row]->changes[i];
            total_cost += cost(change->rank, layer->in + change->out, 1);
        }
    return total_cost;
}

/* As `linear`, with the changes of each row's adapter. */
static void adapted_linear(const HeedfulLinear *layer, int32_t precision, int32_t activation,
                           const HeedfulAdapter *const *adapters, const float *x, int64_t rows, float *y,
                           void *narrow, int64_t threads) {
    int64_t of_changes = cost_of_changes(layer, adapters, rows);
    linear(layer, precision, of_changes ? IDENTITY : activation, x, rows, y, narrow, threads);
    if (!of_changes) return;
    threads = worth(threads, of_changes);
    int64_t chunks = rows < CHUNKS * threads ? rows : CHUNKS * threads;
    Adaptation task = {layer, activation, adapters, x, rows, threads > 1 ? chunks : 1, y};
    heedful_parallel_for(threads, change_rows, &task, task.chunks);
}

#endif
