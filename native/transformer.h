/* Encoder and decoder steps of a trained model: `encode` and `step` of heedful.h. Activations are float32; a
   linear layer multiplies in the precision of its packed weights. A sentence's result depends only on the
   sentence. */
#ifndef HEEDFUL_TRANSFORMER_H
#define HEEDFUL_TRANSFORMER_H

#include "adapters.h"
#include "attention.h"
#include "matmul.h"

/* Memory for the activations of some rows, and for one attention of each thread. */
typedef struct {
    int64_t threads, longest;
    float *x, *normed, *wide, *gates, *heads, *out, *scores;
    const float **keys, **values;
    const HeedfulAdapter **adapters;           /* of each row */
    const HeedfulAdapter *const *of_sentences; /* those of the call; NULL: none */
    void *narrow, *memory;
} Workspace;

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* Allocate that memory and reserve workers; returns 0 if out of memory. */
static int open_workspace(Workspace *space, const HeedfulModel *m, int64_t rows, int64_t longest,
                          int64_t threads) {
    int64_t width = m->d_model, heads = m->attention_width, widest = larger(3 * heads, m->d_ff);
    if (m->is_recurrent) widest = larger(2 * width, widest);
    int64_t gates = m->encoder->gate.weight ? m->d_ff : 0;
    longest += -longest & (LANES - 1);
    threads = threads < HEEDFUL_MAX_THREADS ? threads : HEEDFUL_MAX_THREADS;
    int64_t lists = threads * longest;
    size_t floats = (size_t)(rows * (3 * width + heads + widest + gates) + lists + 16);
    char *memory = malloc(floats * sizeof(float) + narrow_bytes(rows, widest) +
                          (size_t)(2 * lists + rows) * sizeof(float *));
    space->memory = memory;
    if (!memory) return 0;
    space->longest = longest;
    space->keys = (const float **)memory;
    space->values = space->keys + lists;
    space->adapters = (const HeedfulAdapter **)(space->values + lists);
    space->x = (float *)(space->adapters + rows);
    space->normed = space->x + rows * width;
    space->heads = space->normed + rows * width;
    space->out = space->heads + rows * heads;
    space->wide = space->out + rows * width;
    space->gates = space->wide + rows * widest;
    space->scores = space->gates + rows * gates;
    space->narrow = space->scores + lists + 16;
    space->threads = heedful_call_workers(worth(threads, cost(width, widest, rows)));
    return 1;
}

static void close_workspace(Workspace *space) {
    heedful_dismiss_workers(space->threads);
    free(space->memory);
}

static void embed(const HeedfulModel *m, const float *table, int64_t id, const float *position, float *x) {
    const float *vector = table + id * m->d_model;
    for (int64_t i = 0; i < m->d_model; i++) x[i] = vector[i] * m->embedding_scale + position[i];
}

static void apply(const HeedfulModel *m, const HeedfulLinear *layer, int32_t activation, const float *x,
                  int64_t rows, float *y, Workspace *space) {
    if (space->of_sentences)
        adapted_linear(layer, m->precision, activation, space->adapters, x, rows, y, space->narrow,
                       space->threads);
    else
        linear(layer, m->precision, activation, x, rows, y, space->narrow, space->threads);
}

/* The input of a sub-layer: the residual stream, normalised for pre-norm. */
static const float *sublayer_input(const HeedfulModel *m, const HeedfulNorm *norm, Workspace *space,
                                   int64_t rows) {
    if (!m->norm_first) return space->x;
    normalise(norm, space->x, space->normed, rows, m->d_model, m->eps);
    return space->normed;
}

/* Add its output to the residual stream, and normalise for post-norm. */
static void add_residual(const HeedfulModel *m, const HeedfulNorm *norm, Workspace *space, int64_t rows) {
    for (int64_t i = 0; i < rows * m->d_model; i++) space->x[i] += space->out[i];
    if (!m->norm_first) normalise(norm, space->x, space->x, rows, m->d_model, m->eps);
}

static void feed_forward(const HeedfulModel *m, const HeedfulLayer *layer, Workspace *space, int64_t rows) {
    const float *x = sublayer_input(m, &layer->outer_norm, space, rows);
    int has_gate = layer->gate.weight != NULL;
    apply(m, &layer->inner, has_gate ? IDENTITY : m->activation, x, rows, space->wide, space);
    if (has_gate) {
        apply(m, &layer->gate, m->activation, x, rows, space->gates, space);
        for (int64_t i = 0; i < rows * m->d_ff; i++) space->wide[i] *= space->gates[i];
    }
    apply(m, &layer->outer, IDENTITY, space->wide, rows, space->out, space);
    add_residual(m, &layer->outer_norm, space, rows);
}

/* The rows of an attention: their queries, and the location of keys and values (2 A). */
typedef struct {
    const HeedfulModel *model;
    Workspace *space;
    const float *queries, *keys; /* keys: keys and values of all rows of the encoder */
    int64_t query_stride, key_stride;
    const int64_t *starts; /* of each sentence, in keys */
    int64_t rows, chunks;  /* of the encoder */
    const HeedfulPast *past;
    const int64_t *outputs, *at; /* of the decoder's rows */
    int64_t layer;
    const float *biases;     /* of self-attention, or NULL */
    Weights weights;         /* of the first row */
    int64_t of_heads_stride; /* between the rows of weights.of_heads */
} Attention;

/* Do the chunks of an attention over that many positions. An element of a key and a value costs as much as
   some multiplications. */
static void attend_in_parallel(Attention *a, HeedfulWork work, int64_t chunks, int64_t positions) {
    int64_t threads = worth(a->space->threads, 16 * a->rows * positions * a->model->attention_width);
    heedful_parallel_for(threads, work, a, chunks);
}

/* Pointers to n consecutive keys and values, in the thread's buffer. */
static void list_keys(Workspace *space, int64_t thread, const float *keys, int64_t stride, int64_t n,
                      int64_t width) {
    for (int64_t j = 0; j < n; j++) {
        space->keys[thread * space->longest + j] = keys + j * stride;
        space->values[thread * space->longest + j] = keys + j * stride + width;
    }
}

/* A row's query, at a position, over n keys that were listed. */
static void attend_to_listed(const Attention *a, int64_t row, int64_t position, int64_t n, int64_t thread) {
    int64_t width = a->model->attention_width, first = thread * a->space->longest;
    Biases biases = {a->biases, a->model->reach, position};
    Weights weights = a->weights;
    if (weights.mean) {
        weights.mean += row * weights.width;
        memset(weights.mean, 0, (size_t)weights.width * sizeof(float));
    }
    if (weights.of_heads) {
        weights.of_heads += row * a->of_heads_stride;
        memset(weights.of_heads, 0, (size_t)(a->model->num_heads * weights.width) * sizeof(float));
    }
    attend(a->queries + row * a->query_stride, a->space->keys + first, a->space->values + first, n,
           a->model->num_heads, width / a->model->num_heads, biases, a->space->scores + first,
           a->space->heads + row * width, weights);
}

/* Self-attention of some rows of concatenated sentences, each over its own sentence. */
static void attend_to_sentences(void *task, int64_t chunk, int64_t thread) {
    const Attention *a = task;
    int64_t b = 0, listed = -1;
    for (int64_t row = a->rows * chunk / a->chunks; row < a->rows * (chunk + 1) / a->chunks; row++) {
        while (a->starts[b + 1] - a->starts[0] <= row) b++;
        int64_t first = a->starts[b] - a->starts[0], n = a->starts[b + 1] - a->starts[b];
        const float *keys = a->keys + first * a->key_stride;
        if (listed != b) list_keys(a->space, thread, keys, a->key_stride, n, a->model->attention_width);
        listed = b;
        attend_to_listed(a, row, row - first, n, thread);
    }
}

/* Check that sentences are consecutive, with valid ids and positions; `longest` gets the longest. */
static int are_sentences(const HeedfulModel *m, const int64_t *ids, const int64_t *starts, int64_t sentences,
                         int64_t num_positions, int64_t *longest) {
    *longest = 0;
    if (sentences < 1 || starts[0] != 0) return 0;
    for (int64_t b = 0; b < sentences; b++) {
        if (starts[b + 1] < starts[b]) return 0;
        *longest = larger(*longest, starts[b + 1] - starts[b]);
    }
    for (int64_t r = 0; r < starts[sentences]; r++)
        if (ids[r] < 0 || ids[r] >= m->src_vocabulary) return 0;
    return *longest <= num_positions;
}

/* The maximum number of rows in one pass: their data stay in the cache, and weights are rarely reloaded. */
#ifndef ROWS_TOGETHER
#define ROWS_TOGETHER 128
#endif

/* The number of sentences from `starts` on, at least one, that are computed in one pass. */
static int64_t sentences_together(const int64_t *starts, int64_t sentences) {
    int64_t count = 1;
    while (count < sentences && starts[count + 1] - starts[0] <= ROWS_TOGETHER) count++;
    return count;
}

/* Record the weights of each head in a layer, of the rows from `first` on, in (rows, layers, heads, width);
   NULL: nowhere. */
static void record_heads(Attention *a, float *weights, int64_t width, int64_t layer, int64_t layers,
                         int64_t first) {
    int64_t of_layer = a->model->num_heads * width;
    a->weights.of_heads = weights ? weights + (first * layers + layer) * of_layer : NULL;
    a->weights.width = width;
    a->of_heads_stride = layers * of_layer;
}

/* Encode sentences in one pass. */
static void encode_together(const HeedfulModel *m, Workspace *space, const int64_t *ids,
                            const int64_t *starts, int64_t sentences, const float *positions,
                            float *const *memory, const HeedfulAttention *recorded) {
    int64_t first = starts[0], rows = starts[sentences] - first, width = m->d_model, longest = 0;
    int64_t heads = m->attention_width;
    if (rows == 0) return;
    for (int64_t b = 0; b < sentences; b++) {
        longest = larger(longest, starts[b + 1] - starts[b]);
        for (int64_t r = starts[b]; r < starts[b + 1]; r++) {
            embed(m, m->src_embedding, ids[r], positions + (r - starts[b]) * width,
                  space->x + (r - first) * width);
            space->adapters[r - first] = space->of_sentences ? space->of_sentences[b] : NULL;
        }
    }
    Attention attention = {m, space, space->wide, space->wide + heads, .starts = starts, .rows = rows};
    attention.chunks = 1;
    attention.query_stride = attention.key_stride = 3 * heads;
    if (space->threads > 1)
        attention.chunks = rows < CHUNKS * space->threads ? rows : CHUNKS * space->threads;
    for (int64_t l = 0; l < m->num_encoder_layers; l++) {
        const HeedfulLayer *layer = &m->encoder[l];
        const float *x = sublayer_input(m, &layer->self_norm, space, rows);
        apply(m, &layer->query_key_value, IDENTITY, x, rows, space->wide, space);
        attention.biases = layer->biases;
        if (recorded)
            record_heads(&attention, recorded->self, recorded->width, l, m->num_encoder_layers, first);
        attend_in_parallel(&attention, attend_to_sentences, attention.chunks, longest);
        apply(m, &layer->self_output, IDENTITY, space->heads, rows, space->out, space);
        add_residual(m, &layer->self_norm, space, rows);
        feed_forward(m, layer, space, rows);
    }
    if (m->has_final_norm) normalise(&m->encoder_norm, space->x, space->x, rows, width, m->eps);
    for (int64_t l = 0; l < m->num_decoder_layers; l++)
        apply(m, &m->memory[l], IDENTITY, space->x, rows, memory[l] + first * 2 * heads, space);
}

static int32_t encode(const HeedfulModel *m, int64_t threads, const int64_t *ids, const int64_t *starts,
                      int64_t sentences, const float *positions, int64_t num_positions, float *const *memory,
                      const HeedfulAttention *recorded, const HeedfulAdapter *const *adapters) {
    int64_t longest;
    if (threads < 1 || !are_sentences(m, ids, starts, sentences, num_positions, &longest))
        return HEEDFUL_BAD_ARGUMENT;
    if (recorded && recorded->width < longest) return HEEDFUL_BAD_ARGUMENT;
    Workspace space;
    int64_t rows = larger(longest, starts[sentences] < ROWS_TOGETHER ? starts[sentences] : ROWS_TOGETHER);
    if (!open_workspace(&space, m, rows, longest, threads)) return HEEDFUL_NO_MEMORY;
    for (int64_t first = 0, some; first < sentences; first += some) {
        some = sentences_together(starts + first, sentences - first);
        space.of_sentences = adapters ? adapters + first : NULL;
        encode_together(m, &space, ids, starts + first, some, positions, memory, recorded);
    }
    close_workspace(&space);
    return HEEDFUL_OK;
}

/* Write the keys and values of all rows of a layer to the cache before any row attends to them. */
static void extend_cache(const Attention *a) {
    int64_t width = a->model->attention_width;
    for (int64_t row = 0; row < a->rows; row++) {
        float *cache = a->past->cache[a->outputs[row] * a->past->stride + a->at[row]];
        memcpy(cache + a->layer * 2 * width, a->queries + row * a->query_stride + width,
               2 * (size_t)width * sizeof(float));
    }
}

/* Self-attention of a decoder row over its output up to its position. */
static void attend_to_past(void *task, int64_t row, int64_t thread) {
    const Attention *a = task;
    int64_t width = a->model->attention_width, n = a->at[row] + 1, first = thread * a->space->longest;
    float *const *cache = a->past->cache + a->outputs[row] * a->past->stride;
    for (int64_t j = 0; j < n; j++) {
        a->space->keys[first + j] = cache[j] + a->layer * 2 * width;
        a->space->values[first + j] = a->space->keys[first + j] + width;
    }
    attend_to_listed(a, row, n - 1, n, thread);
}

/* 1 / (1 + exp(-x)) */
static inline Floats sigmoid(Floats x) {
    Floats e = exponential((Floats)((Bits)x | 0x80000000u)), small = e / (e + 1.0f);
    Bits is_negative = (Bits)(x < 0.0f);
    return (Floats)(((Bits)small & is_negative) | ((Bits)(1.0f - small) & ~is_negative));
}

/* The SSRU of some rows, in the order of their positions: c = f c' + (1 - f) w with the gate f and the input
   w of a row, and the state c' of the position before it. States go to the cache, relu(c) to `out`. */
static void recur(const Attention *a) {
    int64_t width = a->model->d_model;
    for (int64_t row = 0; row < a->rows; row++) {
        float *const *cache = a->past->cache + a->outputs[row] * a->past->stride + a->at[row];
        const float *gate = a->queries + row * a->query_stride, *added = gate + width;
        const float *before = a->at[row] ? cache[-1] + a->layer * width : NULL;
        float *state = *cache + a->layer * width, *out = a->space->out + row * width;
        for (int64_t i = 0; i < width; i += LANES) {
            Floats f = sigmoid(load(gate + i)), c = (1.0f - f) * load(added + i);
            if (before) c += f * load(before + i);
            store(state + i, c);
            store(out + i, (Floats)((Bits)c & ~(Bits)(c < 0.0f))); /* NaN stays NaN */
        }
    }
}

/* Cross-attention of a decoder row. */
static void attend_to_source(void *task, int64_t row, int64_t thread) {
    const Attention *a = task;
    int64_t b = a->past->sources[a->outputs[row]], width = a->model->attention_width;
    int64_t first = a->past->starts[b], n = a->past->starts[b + 1] - first;
    list_keys(a->space, thread, a->past->memory[a->layer] + first * 2 * width, 2 * width, n, width);
    attend_to_listed(a, row, 0, n, thread);
}

/* Check that rows have valid ids, outputs and positions; `longest` gets the largest number of keys. */
static int are_rows(const HeedfulModel *m, const HeedfulPast *past, const int64_t *ids,
                    const int64_t *outputs, const int64_t *at, int64_t rows, int64_t num_positions,
                    const HeedfulAttention *attention, int64_t *longest) {
    *longest = 0;
    if (attention && (attention->layer < 0 || attention->layer >= m->num_decoder_layers)) return 0;
    for (int64_t r = 0; r < rows; r++) {
        if (ids[r] < 0 || ids[r] >= m->tgt_vocabulary) return 0;
        if (outputs[r] < 0 || outputs[r] >= past->num_outputs) return 0;
        if (at[r] < 0 || at[r] >= past->stride || at[r] >= num_positions) return 0;
        int64_t b = past->sources[outputs[r]];
        if (b < 0 || b >= past->num_sources) return 0;
        if (attention && attention->width < past->starts[b + 1] - past->starts[b]) return 0;
        if (attention && attention->self && attention->width <= at[r]) return 0;
        *longest = larger(*longest, larger(at[r] + 1, past->starts[b + 1] - past->starts[b]));
    }
    return rows > 0;
}

/* A decoder step of some rows in one pass, from the row `first` on. */
static void step_together(const HeedfulModel *m, Workspace *space, const HeedfulPast *past,
                          const int64_t *outputs, const int64_t *at, int64_t first, int64_t rows,
                          int64_t longest, const HeedfulAttention *recorded) {
    for (int64_t l = 0; l < m->num_decoder_layers; l++) {
        const HeedfulLayer *layer = &m->decoder[l];
        Attention attention = {m, space, space->wide, .rows = rows, .past = past, .layer = l};
        attention.outputs = outputs + first;
        attention.at = at + first;
        attention.query_stride = m->is_recurrent ? 2 * m->d_model : 3 * m->attention_width;
        attention.biases = layer->biases;
        const float *x = sublayer_input(m, &layer->self_norm, space, rows);
        apply(m, &layer->query_key_value, IDENTITY, x, rows, space->wide, space);
        if (m->is_recurrent) {
            recur(&attention);
        } else {
            extend_cache(&attention);
            if (recorded)
                record_heads(&attention, recorded->self, recorded->width, l, m->num_decoder_layers, first);
            attend_in_parallel(&attention, attend_to_past, rows, longest);
            apply(m, &layer->self_output, IDENTITY, space->heads, rows, space->out, space);
        }
        add_residual(m, &layer->self_norm, space, rows);
        attention.query_stride = m->attention_width;
        attention.biases = NULL;
        x = sublayer_input(m, &layer->cross_norm, space, rows);
        apply(m, &layer->query, IDENTITY, x, rows, space->wide, space);
        if (recorded) {
            record_heads(&attention, recorded->cross, recorded->width, l, m->num_decoder_layers, first);
            if (recorded->weights && recorded->layer == l)
                attention.weights.mean = recorded->weights + first * recorded->width;
        }
        attend_in_parallel(&attention, attend_to_source, rows, longest);
        apply(m, &layer->cross_output, IDENTITY, space->heads, rows, space->out, space);
        add_residual(m, &layer->cross_norm, space, rows);
        feed_forward(m, layer, space, rows);
    }
    if (m->has_final_norm) normalise(&m->decoder_norm, space->x, space->x, rows, m->d_model, m->eps);
}

/* Rows of one output are in the order of their positions, so that later ones find the keys and values of
   earlier ones. */
static int32_t step(const HeedfulModel *m, int64_t threads, const HeedfulPast *past, const int64_t *ids,
                    const int64_t *outputs, const int64_t *at, int64_t rows, const float *positions,
                    int64_t num_positions, float *cache, float *states, const HeedfulAttention *attention) {
    int64_t width = m->d_model, kept = m->num_decoder_layers * 2 * m->attention_width, longest;
    if (threads < 1 || !are_rows(m, past, ids, outputs, at, rows, num_positions, attention, &longest))
        return HEEDFUL_BAD_ARGUMENT;
    Workspace space;
    int64_t most = rows < ROWS_TOGETHER ? rows : ROWS_TOGETHER;
    if (!open_workspace(&space, m, most, longest, threads)) return HEEDFUL_NO_MEMORY;
    if (m->is_recurrent) kept = m->num_decoder_layers * width;
    for (int64_t r = 0; r < rows; r++) past->cache[outputs[r] * past->stride + at[r]] = cache + r * kept;
    space.of_sentences = past->adapters;
    int64_t parts = (rows + most - 1) / most;
    for (int64_t part = 0; part < parts; part++) {
        int64_t first = rows * part / parts, some = rows * (part + 1) / parts - first;
        for (int64_t r = first; r < first + some; r++) {
            embed(m, m->tgt_embedding, ids[r], positions + at[r] * width, space.x + (r - first) * width);
            int64_t source = past->sources[outputs[r]];
            space.adapters[r - first] = past->adapters ? past->adapters[source] : NULL;
        }
        step_together(m, &space, past, outputs, at, first, some, longest, attention);
        memcpy(states + first * width, space.x, (size_t)(some * width) * sizeof(float));
    }
    close_workspace(&space);
    return HEEDFUL_OK;
}

#endif
