/* The output layer: `top`, `log_probs` and `pick` of heedful.h. */
#ifndef HEEDFUL_CANDIDATES_H
#define HEEDFUL_CANDIDATES_H

#include "matmul.h"

/* log sum exp of a row */
static float log_sum(const float *z, int64_t n) {
    float highest = largest(z, n);
    if (highest == -INFINITY) return isnan(total(z, n)) ? NAN : highest;
    Floats sum = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) sum += exponential(load(z + i) - highest);
    if (i < n) sum += exponential(load_some(z + i, n - i, -INFINITY) - highest);
    return highest + logf(sum_of(sum));
}

/* The `count` largest of n numbers, padded to a multiple of PANEL, best first, ties by index, without -inf;
   returns their number. */
static int64_t choose(const float *z, int64_t n, int64_t count, float *values, int64_t *ids) {
    int64_t found = 0;
    float least = -INFINITY; /* the smallest candidate, once there are `count` */
    for (int64_t i = 0; i < n; i += PANEL) {
        if (found == count && !(largest(z + i, PANEL) > least)) continue;
        for (int64_t j = i; j < i + PANEL && j < n; j++) {
            if (z[j] == -INFINITY || (found == count && !(z[j] > least))) continue;
            int64_t index = found < count ? found++ : count - 1;
            for (; index > 0 && values[index - 1] < z[j]; index--) {
                values[index] = values[index - 1];
                ids[index] = ids[index - 1];
            }
            values[index] = z[j];
            ids[index] = j;
            least = found == count ? values[count - 1] : -INFINITY;
        }
    }
    return found;
}

/* Rows of logits (rows, out), and the results to compute. */
typedef struct {
    const HeedfulModel *model;
    const HeedfulLinear *output;
    const int64_t *own_ids; /* of that layer's outputs, with a shortlist */
    float *logits;
    const HeedfulShortlist *shortlist; /* or NULL */
    const int64_t *sentences;          /* of the rows, with a shortlist */
    int64_t count;                     /* of the best; 0: all log-probabilities, (rows, vocabulary) */
    const int64_t *suppressed;
    int64_t num_suppressed;
    int32_t renormalize;
    float *values;
    int64_t *ids;
} Choice;

/* Move the logits of a row's sentence to the front; returns their number. They are summed in their order, so
   that other sentences do not affect the result. */
static int64_t gather(const Choice *c, int64_t row, float *z, const int32_t **columns) {
    if (!c->shortlist) return c->model->tgt_vocabulary;
    const int64_t *starts = c->shortlist->starts + c->sentences[row];
    *columns = c->shortlist->columns + starts[0];
    for (int64_t i = 0; i < starts[1] - starts[0]; i++) z[i] = z[(*columns)[i]];
    return starts[1] - starts[0];
}

/* The id of logit i of such a row. */
static int64_t id_of(const Choice *c, const int32_t *columns, int64_t i) {
    return c->shortlist ? c->own_ids[columns[i]] : i;
}

static void suppress(const Choice *c, const int32_t *columns, int64_t id, float *z, int64_t n) {
    int64_t first = 0, end = n;
    while (first < end) {
        int64_t middle = (first + end) / 2;
        if (id_of(c, columns, middle) < id)
            first = middle + 1;
        else
            end = middle;
    }
    if (first < n && id_of(c, columns, first) == id) z[first] = -INFINITY;
}

static void choose_in_row(void *task, int64_t row, int64_t thread) {
    (void)thread;
    const Choice *c = task;
    const int32_t *columns = NULL;
    int64_t vocabulary = c->model->tgt_vocabulary;
    float *z = c->logits + row * c->output->out;
    int64_t n = gather(c, row, z, &columns);
    float norm = log_sum(z, n);
    if (!c->count) {
        float *all_ids = c->values + row * vocabulary;
        if (c->shortlist)
            for (int64_t i = 0; i < vocabulary; i++) all_ids[i] = -INFINITY;
        for (int64_t i = 0; i < n; i++) all_ids[id_of(c, columns, i)] = z[i] - norm;
        return;
    }
    for (int64_t i = n; i % PANEL; i++) z[i] = -INFINITY;
    for (int64_t i = 0; i < c->num_suppressed; i++) suppress(c, columns, c->suppressed[i], z, n);
    if (c->renormalize) norm = log_sum(z, n);
    float *values = c->values + row * c->count;
    int64_t *ids = c->ids + row * c->count, found = choose(z, n, c->count, values, ids);
    for (int64_t i = 0; i < c->count; i++) {
        values[i] = i < found ? values[i] - norm : -INFINITY;
        ids[i] = i < found ? id_of(c, columns, ids[i]) : 0;
    }
}

#define ROWS_OF_LOGITS 24 /* at a time: they stay in the cache */

/* The output layer of the first rows; returns how many of them share one. */
static int64_t choose_layer(Choice *c, int64_t rows) {
    const HeedfulShortlist *list = c->shortlist;
    int64_t group = c->sentences[0] / list->group_size, same = 1;
    while (same < rows && c->sentences[same] / list->group_size == group) same++;
    c->output = list->outputs + group;
    c->own_ids = list->ids + list->firsts[group];
    return same;
}

static int are_sentences_of(const HeedfulShortlist *list, const int64_t *sentences, int64_t rows) {
    if (list && (!sentences || list->group_size < 1)) return 0;
    for (int64_t r = 0; list && r < rows; r++)
        if (sentences[r] < 0 || sentences[r] >= list->num_sentences) return 0;
    return rows > 0;
}

static int32_t choose_next(const HeedfulModel *m, int64_t threads, const float *states, int64_t rows,
                           Choice choice) {
    if (threads < 1 || choice.count < 0 || choice.count > m->tgt_vocabulary) return HEEDFUL_BAD_ARGUMENT;
    if (!are_sentences_of(choice.shortlist, choice.sentences, rows)) return HEEDFUL_BAD_ARGUMENT;
    choice.model = m;
    choice.output = &m->output;
    int64_t width = m->d_model, most = rows < ROWS_OF_LOGITS ? rows : ROWS_OF_LOGITS;
    size_t logits = (size_t)(most * (m->output.out + PANEL)) * sizeof(float);
    choice.logits = malloc(logits + narrow_bytes(most, width));
    if (!choice.logits) return HEEDFUL_NO_MEMORY;
    void *narrow = (char *)choice.logits + logits;
    threads = heedful_call_workers(worth(threads, cost(width, m->output.out, most)));
    for (int64_t first = 0, some; first < rows; first += some) {
        some = rows - first < most ? rows - first : most;
        if (choice.shortlist) some = choose_layer(&choice, some);
        linear(choice.output, m->precision, IDENTITY, states + first * width, some, choice.logits, narrow,
               threads);
        heedful_parallel_for(threads, choose_in_row, &choice, some);
        choice.values += some * (choice.count ? choice.count : m->tgt_vocabulary);
        if (choice.count) choice.ids += some * choice.count;
        if (choice.sentences) choice.sentences += some;
    }
    heedful_dismiss_workers(threads);
    free(choice.logits);
    return HEEDFUL_OK;
}

static int32_t top(const HeedfulModel *m, int64_t threads, const float *states, int64_t rows,
                   const HeedfulShortlist *shortlist, const int64_t *sentences, int64_t count,
                   const int64_t *suppressed, int64_t num_suppressed, int32_t renormalize, float *values,
                   int64_t *ids) {
    if (count < 1) return HEEDFUL_BAD_ARGUMENT;
    Choice choice = {.shortlist = shortlist,
                     .sentences = sentences,
                     .count = count,
                     .suppressed = suppressed,
                     .num_suppressed = num_suppressed,
                     .renormalize = renormalize,
                     .values = values,
                     .ids = ids};
    return choose_next(m, threads, states, rows, choice);
}

static int32_t log_probs(const HeedfulModel *m, int64_t threads, const float *states, int64_t rows,
                         const HeedfulShortlist *shortlist, const int64_t *sentences, float *result) {
    Choice choice = {.shortlist = shortlist, .sentences = sentences, .values = result};
    return choose_next(m, threads, states, rows, choice);
}

static int32_t pick(const HeedfulModel *m, const int64_t *ids, int64_t count, void *weight, float *bias,
                    float *scale, int32_t *sums) {
    int64_t in = m->d_model, group = types[m->precision].group;
    int64_t bytes = group * types[m->precision].weight_size; /* of inputs that are packed together */
    if (count < 1) return HEEDFUL_BAD_ARGUMENT;
    for (int64_t j = 0; j < count; j++)
        if (ids[j] < 0 || ids[j] >= m->tgt_vocabulary) return HEEDFUL_BAD_ARGUMENT;
    char *row = malloc((size_t)(in * types[m->precision].weight_size)); /* the weights of one output */
    if (!row) return HEEDFUL_NO_MEMORY;
    for (int64_t j = 0; j < count; j++) {
        const float *from = m->output_weight + ids[j] * in;
        bias[j] = m->output.bias[ids[j]];
        if (m->precision == FLOAT32) memcpy(row, from, (size_t)in * sizeof(float));
        if (m->precision == BFLOAT16)
            for (int64_t k = 0; k < in; k++) ((uint16_t *)row)[k] = bf16_of(from[k]);
        if (m->precision == INT8) {
            float step = scale[j] = m->output.scale[ids[j]];
            sums[j] = m->output.sums[ids[j]];
            for (int64_t k = 0; k < in; k++) ((int8_t *)row)[k] = (int8_t)(int32_t)rintf(from[k] / step);
        }
        char *to = (char *)weight + j / PANEL * in / group * PANEL * bytes + j % PANEL * bytes;
        for (int64_t k = 0; k < in / group; k++)
            memcpy(to + k * PANEL * bytes, row + k * bytes, (size_t)bytes);
    }
    free(row);
    return HEEDFUL_OK;
}

static int32_t linear_alone(const HeedfulLinear *layer, int32_t precision, int32_t activation,
                            int64_t threads, const float *x, int64_t rows, float *y) {
    if (precision < 0 || precision >= PRECISIONS || !types[precision].group) return HEEDFUL_BAD_ARGUMENT;
    if (layer->in < 1 || layer->in % 4 || layer->out < 1 || layer->out % PANEL || rows < 1 || threads < 1)
        return HEEDFUL_BAD_ARGUMENT;
    void *narrow = malloc(narrow_bytes(rows, layer->in));
    if (!narrow) return HEEDFUL_NO_MEMORY;
    threads = heedful_call_workers(threads);
    linear(layer, precision, activation, x, rows, y, narrow, threads);
    heedful_dismiss_workers(threads);
    free(narrow);
    return HEEDFUL_OK;
}

#endif
