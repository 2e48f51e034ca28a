/* `encode` and `step` of small models: against the naive model, and the same bits whatever is computed
 * together. */
#include "checks.h"

enum { SENTENCES = 7, OUTPUTS = 9, STRIDE = POSITIONS - 1, LONGEST = 21 };

static const int64_t src_lengths[SENTENCES] = {7, 1, 13, 0, 5, 20, 3}; /* one has nothing to attend to */
static const int64_t tgt_lengths[OUTPUTS] = {5, 9, 1, 17, 4, 8, 2, 21, 6};
static const int64_t sources[OUTPUTS] = {0, 1, 2, 3, 4, 5, 6, 2, 5};

/* Sources of a model with their memory, and outputs with what they are given. */
typedef struct {
    const SmallModel *small;
    int64_t starts[SENTENCES + 1], tgt_starts[OUTPUTS + 1];
    int64_t *src_ids, *tgt_ids;
    float *memory[LAYERS], *self; /* self-attention of each row: (LAYERS, H, LONGEST) */
} Batch;

/* Check the weights of heads in a row, (H, LONGEST): their mean, and nothing beyond the keys. */
static void expect_mean(const HeedfulModel *m, const float *heads, const double *mean, int64_t keys,
                        double tolerance, const char *name) {
    float weights[LONGEST] = {0};
    for (int64_t h = 0; h < m->num_heads; h++)
        for (int64_t j = 0; j < LONGEST; j++) {
            float weight = heads[h * LONGEST + j];
            if (j < keys)
                weights[j] += weight / (float)m->num_heads;
            else
                expect(weight == 0, "weights beyond the keys");
        }
    expect_close(weights, mean, keys, tolerance, name);
}

static float **encode_recorded(const SmallModel *small, int64_t threads, const int64_t *ids,
                               const int64_t *starts, int64_t sentences, const HeedfulAttention *recorded) {
    float **memory = allocate(LAYERS * sizeof(float *));
    int64_t width = small->model.attention_width, rows = starts[sentences];
    for (int64_t l = 0; l < LAYERS; l++) memory[l] = allocate((size_t)(rows * 2 * width) * sizeof(float));
    expect_status(level.functions->encode(&small->model, threads, ids, starts, sentences, small->positions,
                                          POSITIONS, memory, recorded, NULL),
                  HEEDFUL_OK, "encode");
    return memory;
}

static float **encode(const SmallModel *small, int64_t threads, const int64_t *ids, const int64_t *starts,
                      int64_t sentences) {
    return encode_recorded(small, threads, ids, starts, sentences, NULL);
}

static Batch random_batch(const SmallModel *small) {
    Batch batch = {small, {0}, {0}, NULL, NULL, {NULL}, NULL};
    for (int64_t b = 0; b < SENTENCES; b++) batch.starts[b + 1] = batch.starts[b] + src_lengths[b];
    for (int64_t o = 0; o < OUTPUTS; o++) batch.tgt_starts[o + 1] = batch.tgt_starts[o] + tgt_lengths[o];
    batch.src_ids = random_ids(batch.starts[SENTENCES], small->model.src_vocabulary);
    batch.tgt_ids = random_ids(batch.tgt_starts[OUTPUTS], small->model.tgt_vocabulary);
    int64_t of_row = LAYERS * small->model.num_heads * LONGEST;
    batch.self = allocate((size_t)(batch.starts[SENTENCES] * of_row) * sizeof(float));
    HeedfulAttention recorded = {0, LONGEST, NULL, batch.self, NULL};
    memcpy(batch.memory, encode_recorded(small, 1, batch.src_ids, batch.starts, SENTENCES, &recorded),
           sizeof batch.memory);
    return batch;
}

static void check_encode(const Batch *batch, double tolerance) {
    int64_t row = 2 * batch->small->model.attention_width;
    for (int64_t b = 0; b < SENTENCES; b++) {
        int64_t first = batch->starts[b], n = src_lengths[b], own_starts[2] = {0, n};
        float **alone = encode(batch->small, 1, batch->src_ids + first, own_starts, 1);
        double *exact[LAYERS], *self[LAYERS];
        for (int64_t l = 0; l < LAYERS; l++) exact[l] = allocate((size_t)(n * row) * sizeof(double));
        for (int64_t l = 0; l < LAYERS; l++) self[l] = allocate((size_t)(n * n) * sizeof(double));
        reference_encode(batch->small, batch->src_ids + first, n, exact, self);
        int64_t of_layer = batch->small->model.num_heads * LONGEST;
        for (int64_t i = 0; i < n * LAYERS; i++)
            expect_mean(&batch->small->model, batch->self + (first * LAYERS + i) * of_layer,
                        self[i % LAYERS] + i / LAYERS * n, n, tolerance, "weights of the encoder");
        for (int64_t l = 0; l < LAYERS; l++) {
            expect_same(batch->memory[l] + first * row, alone[l], n * row, "memory of a sentence in a batch");
            expect_close(alone[l], exact[l], n * row, tolerance, "memory");
        }
    }
}

/* ---- step ---- */

/* Outputs while they are decoded: `states`, `cache` and `weights` have a row for each of their positions, the
   weights being those of one layer, (LONGEST); `self` and `cross` are of each head, (LAYERS, H, LONGEST). */
typedef struct {
    const Batch *batch;
    HeedfulPast past;
    float *pointers[OUTPUTS *
                    STRIDE]; /* NULL where nothing was written, so that to read there ends the program */
    int64_t lengths[OUTPUTS], row_of[OUTPUTS * STRIDE];
    float *states, *cache, *weights, *self, *cross;
    int64_t layer;
} Decoder;

static Decoder *open_decoder(const Batch *batch, int64_t layer) {
    Decoder *d = allocate(sizeof *d);
    int64_t rows = batch->tgt_starts[OUTPUTS], width = batch->small->model.d_model;
    int64_t kept = LAYERS * 2 * batch->small->model.attention_width;
    memset(d->pointers, 0, sizeof d->pointers);
    memset(d->lengths, 0, sizeof d->lengths);
    d->batch = batch;
    d->past =
        (HeedfulPast){OUTPUTS, SENTENCES, STRIDE, sources, batch->starts, batch->memory, d->pointers, NULL};
    d->states = allocate((size_t)(rows * width) * sizeof(float));
    d->cache = allocate((size_t)(rows * kept) * sizeof(float));
    d->weights = allocate((size_t)(rows * LONGEST) * sizeof(float));
    int64_t of_row = LAYERS * batch->small->model.num_heads * LONGEST;
    d->self = allocate((size_t)(rows * of_row) * sizeof(float));
    d->cross = allocate((size_t)(rows * of_row) * sizeof(float));
    d->layer = layer;
    return d;
}

/* Give outputs their next ids, as many as `counts` says. */
static void feed(Decoder *d, int64_t threads, const int64_t *counts) {
    const SmallModel *small = d->batch->small;
    int64_t width = small->model.d_model, kept = LAYERS * 2 * small->model.attention_width, rows = 0, all = 0;
    for (int64_t o = 0; o < OUTPUTS; o++) all += counts[o];
    int64_t *ids = allocate((size_t)all * 8), *outputs = allocate((size_t)all * 8),
            *at = allocate((size_t)all * 8);
    float *states = allocate((size_t)(all * width) * sizeof(float));
    float *cache = allocate((size_t)(all * kept) * sizeof(float));
    int64_t of_row = LAYERS * small->model.num_heads * LONGEST;
    size_t row_bytes = (size_t)of_row * sizeof(float);
    HeedfulAttention attention = {d->layer, LONGEST, allocate((size_t)(all * LONGEST) * sizeof(float)),
                                  allocate((size_t)all * row_bytes), allocate((size_t)all * row_bytes)};
    for (int64_t o = 0; o < OUTPUTS; o++)
        for (int64_t i = 0; i < counts[o]; i++, rows++) {
            outputs[rows] = o;
            at[rows] = d->lengths[o]++;
            ids[rows] = d->batch->tgt_ids[d->batch->tgt_starts[o] + at[rows]];
        }
    expect_status(level.functions->step(&small->model, threads, &d->past, ids, outputs, at, rows,
                                        small->positions, POSITIONS, cache, states, &attention),
                  HEEDFUL_OK, "step");
    for (int64_t r = 0; r < rows; r++) {
        int64_t row = d->batch->tgt_starts[outputs[r]] + at[r];
        memcpy(d->states + row * width, states + r * width, (size_t)width * sizeof(float));
        memcpy(d->cache + row * kept, cache + r * kept, (size_t)kept * sizeof(float));
        memcpy(d->weights + row * LONGEST, attention.weights + r * LONGEST, LONGEST * sizeof(float));
        memcpy(d->self + row * of_row, attention.self + r * of_row, row_bytes);
        memcpy(d->cross + row * of_row, attention.cross + r * of_row, row_bytes);
        if (d->pointers[outputs[r] * STRIDE + at[r]] != cache + r * kept) fail("step notes another cache");
    }
}

static void expect_same_decoding(const Decoder *d, const Decoder *other, int64_t first, int64_t end,
                                 const char *name) {
    int64_t width = d->batch->small->model.d_model;
    int64_t kept = LAYERS * 2 * d->batch->small->model.attention_width;
    expect_same(d->states + first * width, other->states + first * width, (end - first) * width, name);
    expect_same(d->cache + first * kept, other->cache + first * kept, (end - first) * kept, name);
    expect_same(d->weights + first * LONGEST, other->weights + first * LONGEST, (end - first) * LONGEST,
                name);
    int64_t of_row = LAYERS * d->batch->small->model.num_heads * LONGEST;
    expect_same(d->self + first * of_row, other->self + first * of_row, (end - first) * of_row, name);
    expect_same(d->cross + first * of_row, other->cross + first * of_row, (end - first) * of_row, name);
}

/* Decode with up to `most` positions of each output at a time, sampled where `is_random`. */
static Decoder *decode(const Batch *batch, int64_t layer, int64_t threads, int64_t most, int is_random) {
    Decoder *d = open_decoder(batch, layer);
    for (int64_t rows = 1; rows;) {
        int64_t counts[OUTPUTS];
        rows = 0;
        for (int64_t o = 0; o < OUTPUTS; o++) {
            int64_t left = tgt_lengths[o] - d->lengths[o], some = is_random ? random_below(most + 1) : most;
            rows += counts[o] = some < left ? some : left;
            if (is_random && !rows && left) rows += counts[o] = 1;
        }
        if (rows) feed(d, threads, counts);
    }
    return d;
}

static void check_reference(const Batch *batch, const Decoder *d, double tolerance) {
    int64_t width = batch->small->model.d_model, kept = 2 * batch->small->model.attention_width;
    for (int64_t o = 0; o < OUTPUTS; o++) {
        int64_t b = sources[o], n = tgt_lengths[o], first = batch->tgt_starts[o];
        double *memory[LAYERS], *weights[LAYERS], *self[LAYERS];
        double *states = allocate((size_t)(n * width) * sizeof(double));
        for (int64_t l = 0; l < LAYERS; l++) {
            weights[l] = allocate((size_t)(n * src_lengths[b]) * sizeof(double));
            self[l] = allocate((size_t)(n * n) * sizeof(double));
            memory[l] = allocate((size_t)(src_lengths[b] * kept) * sizeof(double));
            for (int64_t i = 0; i < src_lengths[b] * kept; i++)
                memory[l][i] = (double)batch->memory[l][batch->starts[b] * kept + i];
        }
        reference_decode(batch->small, memory, src_lengths[b], batch->tgt_ids + first, n, states, weights,
                         self);
        expect_close(d->states + first * width, states, n * width, tolerance, "states");
        for (int64_t i = 0; i < n; i++) {
            const float *row = d->weights + (first + i) * LONGEST;
            expect_close(row, weights[d->layer] + i * src_lengths[b], src_lengths[b], tolerance, "weights");
            for (int64_t j = src_lengths[b]; j < LONGEST; j++) expect(row[j] == 0, "weights beyond a source");
            for (int64_t l = 0; l < LAYERS; l++) {
                int64_t at = ((first + i) * LAYERS + l) * batch->small->model.num_heads * LONGEST;
                expect_mean(&batch->small->model, d->cross + at, weights[l] + i * src_lengths[b],
                            src_lengths[b], tolerance, "weights of cross-attention");
                expect_mean(&batch->small->model, d->self + at, self[l] + i * n, i + 1, tolerance,
                            "weights of self-attention");
            }
        }
    }
}

/* An output whose table points to another's keys and values goes on as that one does. */
static void check_reordered(const Batch *batch, const Decoder *whole) {
    Decoder *d = open_decoder(batch, 0);
    int64_t from = 7, to = 2, n = tgt_lengths[from] - 1, width = batch->small->model.d_model;
    int64_t counts[OUTPUTS] = {[7] = n}, id = batch->tgt_ids[batch->tgt_starts[from] + n], output = to;
    feed(d, 1, counts); /* both have the same source */
    for (int64_t i = 0; i < n; i++) d->pointers[to * STRIDE + i] = d->pointers[from * STRIDE + i];
    float *states = allocate((size_t)width * sizeof(float));
    float *cache = allocate((size_t)(LAYERS * 2 * batch->small->model.attention_width) * sizeof(float));
    expect_status(level.functions->step(&batch->small->model, 1, &d->past, &id, &output, &n, 1,
                                        batch->small->positions, POSITIONS, cache, states, NULL),
                  HEEDFUL_OK, "step");
    expect_same(states, whole->states + (batch->tgt_starts[from] + n) * width, width,
                "states after a reorder");
}

static void check_step(const Batch *batch, double tolerance) {
    int64_t rows = batch->tgt_starts[OUTPUTS];
    Decoder *whole = decode(batch, 1, 1, STRIDE, 0), *alone = open_decoder(batch, 1);
    check_reference(batch, whole, tolerance);
    check_reference(batch, decode(batch, 0, 1, STRIDE, 0), tolerance);
    for (int64_t o = 0; o < OUTPUTS; o++) {
        int64_t counts[OUTPUTS] = {0};
        counts[o] = tgt_lengths[o];
        feed(alone, 1, counts);
    }
    expect_same_decoding(alone, whole, 0, rows, "outputs alone and in a batch");
    expect_same_decoding(decode(batch, 1, 1, 1, 0), whole, 0, rows, "positions one by one and at once");
    expect_same_decoding(decode(batch, 1, 2, 3, 1), whole, 0, rows, "positions some at a time and at once");
    check_reordered(batch, whole);
}

/* ---- arguments ---- */

static void check_encode_refusals(const SmallModel *small) {
    int64_t vocabulary = small->model.src_vocabulary, width = small->model.d_model;
    float **memory = encode(small, 1, (int64_t[]){1, 2, 3}, (int64_t[]){0, 1, 3}, 2);
    const struct {
        const char *name;
        int64_t threads, ids[3], starts[3], sentences, positions;
    } bad[] = {
        {"no threads", 0, {1, 2, 3}, {0, 1, 3}, 2, POSITIONS},
        {"a negative id", 1, {1, -1, 3}, {0, 1, 3}, 2, POSITIONS},
        {"an id beyond the vocabulary", 1, {1, 2, vocabulary}, {0, 1, 3}, 2, POSITIONS},
        {"a start that is not 0", 1, {1, 2, 3}, {1, 1, 3}, 2, POSITIONS},
        {"a negative start", 1, {1, 2, 3}, {-1, 1, 3}, 2, POSITIONS},
        {"starts that descend", 1, {1, 2, 3}, {0, 3, 1}, 2, POSITIONS},
        {"no sentences", 1, {1, 2, 3}, {0, 1, 3}, 0, POSITIONS},
        {"too few positions", 1, {1, 2, 3}, {0, 1, 3}, 2, 1},
        {"no positions", 1, {1, 2, 3}, {0, 1, 3}, 2, 0},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        expect_status(level.functions->encode(&small->model, bad[i].threads, bad[i].ids, bad[i].starts,
                                              bad[i].sentences, small->positions, bad[i].positions, memory,
                                              NULL, NULL),
                      HEEDFUL_BAD_ARGUMENT, bad[i].name);
    float weights[1];
    HeedfulAttention narrow = {0, 1, NULL, weights, NULL};
    expect_status(level.functions->encode(&small->model, 1, (int64_t[]){1, 2, 3}, (int64_t[]){0, 1, 3}, 2,
                                          small->positions, POSITIONS, memory, &narrow, NULL),
                  HEEDFUL_BAD_ARGUMENT, "attention that is too narrow");
    float **nothing = encode(small, 2, NULL, (int64_t[]){0, 0, 0}, 2); /* empty sentences are none */
    expect_same(nothing[0], memory[0], 0 * width, "memory of empty sentences");
}

static void check_step_refusals(const Batch *batch) {
    const SmallModel *small = batch->small;
    Decoder *d = open_decoder(batch, 0);
    int64_t width = small->model.d_model, vocabulary = small->model.tgt_vocabulary;
    float *states = allocate((size_t)width * 2 * sizeof(float));
    float *cache = allocate((size_t)(2 * LAYERS * 2 * width) * sizeof(float));
    const struct {
        const char *name;
        int64_t threads, ids[2], outputs[2], at[2], rows, positions;
    } bad[] = {
        {"no threads", 0, {1, 2}, {0, 1}, {0, 0}, 2, POSITIONS},
        {"a negative id", 1, {1, -1}, {0, 1}, {0, 0}, 2, POSITIONS},
        {"an id beyond the vocabulary", 1, {1, vocabulary}, {0, 1}, {0, 0}, 2, POSITIONS},
        {"a negative output", 1, {1, 2}, {0, -1}, {0, 0}, 2, POSITIONS},
        {"an output beyond the last", 1, {1, 2}, {0, OUTPUTS}, {0, 0}, 2, POSITIONS},
        {"a negative position", 1, {1, 2}, {0, 1}, {0, -1}, 2, POSITIONS},
        {"a position beyond the stride", 1, {1, 2}, {0, 1}, {0, STRIDE}, 2, POSITIONS},
        {"a position beyond the table", 1, {1, 2}, {0, 0}, {0, 1}, 2, 1},
        {"no rows", 1, {1, 2}, {0, 1}, {0, 0}, 0, POSITIONS},
        {"-1 rows", 1, {1, 2}, {0, 1}, {0, 0}, -1, POSITIONS},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        expect_status(level.functions->step(&small->model, bad[i].threads, &d->past, bad[i].ids,
                                            bad[i].outputs, bad[i].at, bad[i].rows, small->positions,
                                            bad[i].positions, cache, states, NULL),
                      HEEDFUL_BAD_ARGUMENT, bad[i].name);
    for (int64_t source = -1; source <= SENTENCES; source += SENTENCES + 1) {
        int64_t bad_sources[OUTPUTS] = {0}, id = 1, output = 3, at = 0;
        bad_sources[output] = source;
        HeedfulPast past = d->past;
        past.sources = bad_sources;
        expect_status(level.functions->step(&small->model, 1, &past, &id, &output, &at, 1, small->positions,
                                            POSITIONS, cache, states, NULL),
                      HEEDFUL_BAD_ARGUMENT, "a source that there is not");
    }
    float weights[LONGEST];
    const HeedfulAttention bad_attention[] = {{-1, LONGEST, weights, NULL, NULL},
                                              {LAYERS, LONGEST, weights, NULL, NULL},
                                              {0, 6, weights, NULL, NULL}};
    for (size_t i = 0; i < sizeof bad_attention / sizeof bad_attention[0]; i++) {
        int64_t id = 1, output = 0, at = 0;
        expect_status(level.functions->step(&small->model, 1, &d->past, &id, &output, &at, 1,
                                            small->positions, POSITIONS, cache, states, &bad_attention[i]),
                      HEEDFUL_BAD_ARGUMENT, "attention of no layer, or too narrow");
    }
    for (int64_t i = 0; i < OUTPUTS * STRIDE; i++) expect(!d->pointers[i], "a refused step notes its cache");
}

/* ---- all of it ---- */

enum { MANY = 60, LENGTH = 14 };

/* Outputs as long as their sources, at all positions at once, from the sentence `first` on. */
static float *states_of(const SmallModel *small, int64_t threads, float *const *memory, int64_t first,
                        const int64_t *ids) {
    int64_t rows = (MANY - first) * LENGTH, width = small->model.d_model, starts[MANY + 1], own[MANY];
    int64_t *outputs = allocate((size_t)rows * 8), *at = allocate((size_t)rows * 8);
    float *states = allocate((size_t)(rows * width) * sizeof(float));
    float *cache = allocate((size_t)(rows * LAYERS * 2 * width) * sizeof(float));
    float **pointers = allocate((size_t)rows * sizeof(float *));
    HeedfulPast past = {MANY - first, MANY - first, LENGTH, own, starts, memory, pointers, NULL};
    for (int64_t b = 0; b <= MANY - first; b++) starts[b] = b * LENGTH;
    for (int64_t b = 0; b < MANY - first; b++) own[b] = b;
    for (int64_t r = 0; r < rows; r++) {
        outputs[r] = r / LENGTH;
        at[r] = r % LENGTH;
    }
    expect_status(level.functions->step(&small->model, threads, &past, ids + first * LENGTH, outputs, at,
                                        rows, small->positions, POSITIONS, cache, states, NULL),
                  HEEDFUL_OK, "step");
    return states;
}

/* Enough rows and a model that is wide enough for two threads. */
static void check_threads(int32_t precision) {
    HeedfulModel settings = small_settings(precision, 4, RELU, 0);
    settings.d_model = 128;
    settings.d_ff = 256;
    const SmallModel *small = random_model(settings);
    int64_t starts[MANY + 1], rows = MANY * LENGTH, last = rows - LENGTH, width = small->model.d_model;
    int64_t *ids = random_ids(rows, small->model.src_vocabulary);
    for (int64_t b = 0; b <= MANY; b++) starts[b] = b * LENGTH;
    float **memory = encode(small, 1, ids, starts, MANY), **by_two = encode(small, 2, ids, starts, MANY);
    float **alone = encode(small, 1, ids + last, starts, 1);
    for (int64_t l = 0; l < LAYERS; l++) {
        expect_same(by_two[l], memory[l], rows * 2 * width, "memory by two threads and by one");
        expect_same(alone[l], memory[l] + last * 2 * width, LENGTH * 2 * width,
                    "memory of the last sentence");
    }
    float *states = states_of(small, 1, memory, 0, ids), *own = states_of(small, 1, alone, MANY - 1, ids);
    expect_same(states_of(small, 2, memory, 0, ids), states, rows * width,
                "states by two threads and by one");
    expect_same(own, states + last * width, LENGTH * width, "states of the last sentence");
}

/* A change of the first 64 outputs of one layer, of a rank that fills no register; nothing else. */
static HeedfulAdapter random_adapter(int64_t layers, int64_t number, int64_t in) {
    enum { RANK = 5, CHANGED = 64 };
    HeedfulChange *change = allocate(sizeof *change);
    int64_t *firsts = allocate((size_t)(layers + 1) * sizeof *firsts);
    *change = (HeedfulChange){0, CHANGED, RANK, random_normals(RANK * in, 0.0, 0.2),
                              random_normals(RANK * CHANGED, 0.0, 0.2)};
    for (int64_t i = 0; i <= layers; i++) firsts[i] = i >= number;
    return (HeedfulAdapter){change, firsts};
}

/* Keys of the first decoder layer are A x more where a sentence has an adapter, and no others change a bit.
 */
static void check_adapters(int32_t precision) {
    SmallModel *small = random_model(small_settings(precision, 4, RELU, 0));
    int64_t width = small->model.d_model, starts[MANY + 1], rows = MANY * LENGTH;
    int64_t *ids = random_ids(rows, small->model.src_vocabulary);
    for (int64_t b = 0; b <= MANY; b++) starts[b] = b * LENGTH;
    small->packed_memory[0].number = 1;
    small->packed_encoder[0].inner.number = 2; /* with an activation, and no changes */
    HeedfulAdapter adapter = random_adapter(2, 1, width);
    const HeedfulAdapter *adapters[MANY];
    for (int64_t b = 0; b < MANY; b++) adapters[b] = b % 3 ? NULL : &adapter;
    float **plain = encode(small, 1, ids, starts, MANY), **changed = encode(small, 1, ids, starts, MANY);
    for (int64_t threads = 1; threads < 3; threads++) {
        expect_status(level.functions->encode(&small->model, threads, ids, starts, MANY, small->positions,
                                              POSITIONS, changed, NULL, adapters),
                      HEEDFUL_OK, "encode with adapters");
        expect_same(changed[1], plain[1], rows * 2 * width, "memory of a layer without changes");
        for (int64_t b = 0; b < MANY; b++) {
            float *now = changed[0] + b * LENGTH * 2 * width, *before = plain[0] + b * LENGTH * 2 * width;
            if (adapters[b])
                expect(memcmp(now, before, (size_t)width * sizeof(float)), "an adapter changes nothing");
            else
                expect_same(now, before, LENGTH * 2 * width, "memory of a sentence without an adapter");
            for (int64_t r = 0; r < LENGTH; r++)
                expect_same(now + (2 * r + 1) * width, before + (2 * r + 1) * width, width, "values beside");
        }
    }
}

void check_decoding(int32_t precision) {
    static const double tolerances[PRECISIONS] = {3e-5, 0.1,
                                                  0.2}; /* rounded inputs may round the other way */
    static const int64_t heads[] = {1, 2, 4, 8, 16};    /* of 64, 32, 16, 8 and 4 */
    seed_random(2);
    for (int64_t i = 0; i < 13; i++) {
        HeedfulModel settings =
            small_settings(precision, heads[i / 2 % 5], RELU + (int32_t)(i / 2 % 3), i % 2);
        if (i == 3) settings.has_final_norm = 0;
        if (i >= 10) { /* like T5, with heads of 96, 48 and 24 */
            settings.num_heads = 1 << (i - 10);
            settings.attention_width = 96;
            settings.activation = i == 12 ? SWISH : GELU_TANH;
            settings.reach = i - 7;
        }
        const SmallModel *small = random_model(settings);
        describe("decoding in precision %d with %lld heads, activation %d, %s", precision,
                 (long long)settings.num_heads, settings.activation, i % 2 ? "pre-norm" : "post-norm");
        Batch batch = random_batch(small);
        check_encode(&batch, tolerances[precision]);
        check_step(&batch, tolerances[precision]);
        if (i == 0) check_threads(precision);
        if (i == 0) check_adapters(precision);
        if (i == 0) check_encode_refusals(small);
        if (i == 0) check_step_refusals(&batch);
        release_memory();
    }
}
