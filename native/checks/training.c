/* Parts of a training step, in float32 and bfloat16: against formulas in double precision, and backward
   against slopes of those formulas. */
#include "checks.h"

enum { MOST = 520 }; /* elements of a row */

/* An array of float32 numbers, or of bfloat16 ones. */
typedef struct {
    int is_bfloat16;
    int64_t n;
    void *data;
} Array;

static Array array(int is_bfloat16, int64_t n, double deviation) {
    Array a = {is_bfloat16, n, NULL};
    float *x = random_normals(n, 0.0, deviation);
    uint16_t *rounded = allocate((size_t)n * sizeof(uint16_t));
    for (int64_t i = 0; i < n; i++) rounded[i] = bf16_rounded(x[i]);
    a.data = is_bfloat16 ? (void *)rounded : (void *)x;
    return a;
}

static double get(const Array *a, int64_t i) {
    return (double)(a->is_bfloat16 ? bf16_value(((uint16_t *)a->data)[i]) : ((float *)a->data)[i]);
}

static void set(const Array *a, int64_t i, float x) {
    if (a->is_bfloat16)
        ((uint16_t *)a->data)[i] = bf16_rounded(x);
    else
        ((float *)a->data)[i] = x;
}

static void expect_element(const Array *a, int64_t i, double expected, double tolerance, const char *name) {
    double unit = a->is_bfloat16 ? 0x1p-8 : 0.0, x = get(a, i); /* bfloat16: half the distance of numbers */
    if (fabs(x - expected) <= tolerance * (1.0 + fabs(expected)) + unit * fabs(expected)) return;
    if (isnan(x) && isnan(expected)) return;
    fail("%s: element %lld of %lld is %.9g and not %.9g", name, (long long)i, (long long)a->n, x, expected);
}

/* ---- residual, dropout and norm ---- */

static const uint32_t threshold = 0x40000000u; /* a quarter is dropped */
static const float kept_scale = 1.0f / 0.75f, epsilon = 1e-5f;
static const uint64_t seed = 0x123456789abcdef0u;

/* One row in double precision; returns the sum of dy y. */
static double reference_row(const double *s, const float *gain, const float *shift, const double *dy,
                            int64_t width, double *y, double *normed, double *inverse) {
    double mean = 0.0, variance = 0.0, sum = 0.0;
    for (int64_t i = 0; i < width; i++) mean += s[i] / (double)width;
    for (int64_t i = 0; i < width; i++) variance += (s[i] - mean) * (s[i] - mean) / (double)width;
    *inverse = 1.0 / sqrt(variance + (double)epsilon);
    for (int64_t i = 0; i < width; i++) {
        normed[i] = (s[i] - mean) * *inverse;
        y[i] = normed[i] * (double)gain[i] + (double)shift[i];
        sum += dy[i] * y[i];
    }
    return sum;
}

typedef struct {
    Array x, h, y, normed, dy, dx, dh;
    float *gain, *shift, *inverse, *dgain, *dshift;
    int64_t rows, width;
    uint32_t threshold;
} Residual;

static void forward(const Residual *r, uint64_t with_seed) {
    const HeedfulFunctions *f = level.functions;
    if (r->x.is_bfloat16)
        f->residual_norm_bfloat16(r->x.data, r->h.data, r->gain, r->shift, r->y.data, r->normed.data,
                                  r->inverse, r->rows, r->width, epsilon, with_seed, r->threshold,
                                  kept_scale);
    else
        f->residual_norm_float32(r->x.data, r->h.data, r->gain, r->shift, r->y.data, r->normed.data,
                                 r->inverse, r->rows, r->width, epsilon, with_seed, r->threshold, kept_scale);
}

static void backward(const Residual *r) {
    const HeedfulFunctions *f = level.functions;
    void *dh = r->threshold ? r->dh.data : NULL;
    if (r->x.is_bfloat16)
        f->residual_norm_backward_bfloat16(r->dy.data, r->normed.data, r->inverse, r->gain, r->dx.data, dh,
                                           r->dgain, r->dshift, r->rows, r->width, seed, r->threshold,
                                           kept_scale);
    else
        f->residual_norm_backward_float32(r->dy.data, r->normed.data, r->inverse, r->gain, r->dx.data, dh,
                                          r->dgain, r->dshift, r->rows, r->width, seed, r->threshold,
                                          kept_scale);
}

/* Whether backward kept an element: it has a gradient then. */
static double kept(const Residual *r, int64_t at) {
    if (!r->threshold) return 1.0;
    return get(&r->dh, at) == 0.0 && get(&r->dx, at) != 0.0 ? 0.0 : (double)kept_scale;
}

/* A row forward; the slope of the sum of dy y by each element of s is that element's dx. */
static void expect_row(const Residual *r, int64_t row, double *dgain, double *dshift) {
    double s[MOST] = {0}, dy[MOST] = {0}, y[MOST], normed[MOST], other[MOST], inverse, ignored, step = 1e-4;
    int64_t width = r->width, first = row * width;
    double tolerance = r->x.is_bfloat16 ? 0.03 : 3e-5; /* backward gets `normed` as it was rounded */
    for (int64_t i = 0; i < width; i++) {
        s[i] = get(&r->x, first + i) + get(&r->h, first + i) * kept(r, first + i);
        dy[i] = get(&r->dy, first + i);
    }
    reference_row(s, r->gain, r->shift, dy, width, y, normed, &inverse);
    expect_close(&r->inverse[row], &inverse, 1, 1e-5, "1 / deviation");
    for (int64_t i = 0; i < width; i++) {
        expect_element(&r->y, first + i, y[i], 3e-6, "y");
        expect_element(&r->normed, first + i, normed[i], 3e-6, "normed");
        double middle = s[i], slope, dx = get(&r->dx, first + i);
        s[i] = middle + step;
        slope = reference_row(s, r->gain, r->shift, dy, width, y, other, &ignored);
        s[i] = middle - step;
        slope = (slope - reference_row(s, r->gain, r->shift, dy, width, y, other, &ignored)) / (2.0 * step);
        s[i] = middle;
        expect_element(&r->dx, first + i, slope, tolerance * inverse, "dx");
        if (r->threshold) expect_element(&r->dh, first + i, dx * kept(r, first + i), tolerance, "dh");
        reference_row(s, r->gain, r->shift, dy, width, y, normed, &ignored);
        dgain[i] += dy[i] * get(&r->normed, first + i);
        dshift[i] += dy[i];
    }
}

static void check_residual(int is_bfloat16, int64_t rows, int64_t width, uint32_t drop) {
    describe("residual norm, %s, width %lld, %s", is_bfloat16 ? "bfloat16" : "float32", (long long)width,
             drop ? "dropout" : "no dropout");
    int64_t n = rows * width;
    Residual r = {.rows = rows, .width = width, .threshold = drop};
    Array *arrays[] = {&r.x, &r.h, &r.y, &r.normed, &r.dy, &r.dx, &r.dh};
    for (int i = 0; i < 7; i++) *arrays[i] = array(is_bfloat16, n, 1.0);
    r.gain = random_normals(width, 1.0, 0.2);
    r.shift = random_normals(width, 0.0, 0.2);
    r.inverse = allocate((size_t)rows * sizeof(float));
    r.dgain = random_normals(width, 0.0, 1.0); /* gradients are added to what is there */
    r.dshift = random_normals(width, 0.0, 1.0);
    double dgain[MOST], dshift[MOST], dropped = 0.0;
    for (int64_t i = 0; i < width; i++) {
        dgain[i] = (double)r.dgain[i];
        dshift[i] = (double)r.dshift[i];
    }
    forward(&r, seed);
    backward(&r);
    for (int64_t row = 0; row < rows; row++) expect_row(&r, row, dgain, dshift);
    expect_close(r.dgain, dgain, width, 1e-5, "dgain");
    expect_close(r.dshift, dshift, width, 1e-5, "dshift");
    for (int64_t i = 0; i < n; i++) dropped += kept(&r, i) == 0.0;
    if (drop && fabs(dropped - 0.25 * (double)n) > 5.0 * sqrt(0.1875 * (double)n))
        fail("%.0f elements of %lld are dropped, of which a quarter was asked for", dropped, (long long)n);
    if (drop) {
        Residual same = r;
        same.y = array(is_bfloat16, n, 0.0);
        forward(&same, seed ^ (1ull << 40));
        expect(memcmp(same.y.data, r.y.data, (size_t)n * (is_bfloat16 ? 2 : 4)) != 0,
               "another seed drops the same");
    }
    set(&r.x, width / 2, NAN);
    forward(&r, seed);
    for (int64_t i = 0; i < width; i++)
        expect(isnan(get(&r.y, i)), "a row that is not a number is normalised");
    for (int64_t i = width; i < n; i++) expect(!isnan(get(&r.y, i)), "a row beside it is not a number");
    release_memory();
}

/* What is written in bfloat16 is the nearest number: a shift that nothing is added to comes out as it is. */
static void check_rounding(void) {
    enum { WIDTH = 4 * 64 + 8 };
    const uint32_t special[8] = {0,          0x80000000, 0x7f800000, 0xff800000,
                                 0x7f7fffff, 0x00000001, 0x7f800001, 0xffffffff};
    describe("bfloat16");
    Residual r = {.rows = 1, .width = WIDTH};
    Array *arrays[] = {&r.x, &r.h, &r.y, &r.normed};
    for (int i = 0; i < 4; i++) *arrays[i] = array(1, WIDTH, 1.0);
    r.gain = random_normals(WIDTH, 0.0, 0.0);
    r.shift = random_normals(WIDTH, 0.0, 1.0);
    r.inverse = allocate(sizeof(float));
    for (int i = 0; i < 64; i++) /* a tie, its neighbours, and any number */
        for (int j = 0; j < 3; j++)
            r.shift[4 * i + j] = float_of_bits(0x3f800000u + (uint32_t)i * 0x10000u + 0x7fffu + (uint32_t)j);
    for (int i = 0; i < 8; i++) r.shift[WIDTH - 8 + i] = float_of_bits(special[i]);
    forward(&r, seed);
    for (int64_t i = 0; i < WIDTH; i++) {
        float x = bf16_value(((uint16_t *)r.y.data)[i]), expected = bf16_value(bf16_rounded(r.shift[i]));
        if (x != expected && !(isnan(x) && isnan(r.shift[i])))
            fail("%a becomes %a", (double)r.shift[i], (double)x);
    }
    release_memory();
}

/* ---- masked softmax ---- */

static void softmax(const double *scores, const uint8_t *mask, int64_t n, double scale, double *weights) {
    double highest = -INFINITY, sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        if (mask[i] && scale * scores[i] > highest) highest = scale * scores[i];
    for (int64_t i = 0; i < n; i++) sum += weights[i] = mask[i] ? exp(scale * scores[i] - highest) : 0.0;
    for (int64_t i = 0; i < n; i++) weights[i] = sum > 0.0 ? weights[i] / sum : 0.0;
}

static void softmax_backward(const Array *dweights, const Array *weights, const Array *dscores, int64_t rows,
                             int64_t keys, float scale) {
    if (weights->is_bfloat16)
        level.functions->masked_softmax_backward_bfloat16(dweights->data, weights->data, dscores->data, rows,
                                                          keys, scale);
    else
        level.functions->masked_softmax_backward_float32(dweights->data, weights->data, dscores->data, rows,
                                                         keys, scale);
}

/* One mask for all (0), one a sentence (1), one a query (2), or both (3). */
static void check_softmax(int is_bfloat16, int64_t keys, int kind) {
    enum { SENTENCES = 3, HEADS = 2, QUERIES = 5, ROWS = SENTENCES * HEADS * QUERIES };
    const float scale = 0.35f;
    describe("masked softmax, %s, %lld keys, mask %d", is_bfloat16 ? "bfloat16" : "float32", (long long)keys,
             kind);
    int64_t of_query = kind & 2 ? keys : 0, of_row = kind & 1 ? (kind & 2 ? QUERIES * keys : keys) : 0;
    int64_t size = (of_row ? 2 * of_row : 0) + (of_query ? 4 * keys : 0) + keys;
    uint8_t *mask = allocate((size_t)size);
    for (int64_t i = 0; i < size; i++) mask[i] = random_below(3) > 0;
    for (int64_t i = 0; i < keys; i++) mask[size - keys + i] = 0; /* the last has no choice */
    Array scores = array(is_bfloat16, ROWS * keys, 4.0), before = array(is_bfloat16, ROWS * keys, 0.0);
    Array dweights = array(is_bfloat16, ROWS * keys, 1.0), dscores = array(is_bfloat16, ROWS * keys, 1.0);
    for (int64_t row = 0; row < ROWS; row++) { /* what is masked may be no number */
        const uint8_t *allowed = mask + row / (HEADS * QUERIES) * of_row + row % QUERIES * of_query;
        for (int64_t i = 0; i < keys; i++)
            if (!allowed[i] && random_below(2))
                set(&scores, row * keys + i, random_below(2) ? NAN : INFINITY);
    }
    if (mask[0]) set(&scores, 0, NAN); /* and one row is not a number */
    memcpy(before.data, scores.data, (size_t)(ROWS * keys) * (is_bfloat16 ? 2 : 4));
    if (is_bfloat16)
        level.functions->masked_softmax_bfloat16(scores.data, mask, SENTENCES, HEADS, QUERIES, keys, of_row,
                                                 of_query, scale);
    else
        level.functions->masked_softmax_float32(scores.data, mask, SENTENCES, HEADS, QUERIES, keys, of_row,
                                                of_query, scale);
    softmax_backward(&dweights, &scores, &dscores, ROWS, keys, scale);
    for (int64_t row = 0; row < ROWS; row++) {
        const uint8_t *allowed = mask + row / (HEADS * QUERIES) * of_row + row % QUERIES * of_query;
        double s[MOST], weights[MOST], other[MOST], step = 1e-4;
        int is_number = 1, has_choice = 0;
        for (int64_t i = 0; i < keys; i++) {
            s[i] = get(&before, row * keys + i);
            has_choice |= allowed[i];
            if (allowed[i] && isnan(s[i])) is_number = 0;
        }
        softmax(s, allowed, keys, (double)scale, weights);
        for (int64_t i = 0; i < keys; i++) {
            double weight = get(&scores, row * keys + i), slope = 0.0;
            if (!is_number) expect(isnan(weight), "NaN becomes a weight");
            if (!is_number) continue;
            expect_element(&scores, row * keys + i, weights[i], 1e-6, "a weight");
            if (!allowed[i] || !has_choice) expect(weight == 0.0, "a masked key has a weight");
            if (!allowed[i]) expect(get(&dscores, row * keys + i) == 0.0, "a masked key has a gradient");
            if (!allowed[i]) continue;
            for (int direction = -1; direction <= 1; direction += 2) {
                double middle = s[i];
                s[i] += direction * step;
                softmax(s, allowed, keys, (double)scale, other);
                s[i] = middle;
                for (int64_t j = 0; j < keys; j++)
                    slope += direction * other[j] * get(&dweights, row * keys + j);
            }
            expect_element(&dscores, row * keys + i, slope / (2.0 * step), is_bfloat16 ? 0.01 : 3e-6,
                           "dscores");
        }
    }
    release_memory();
}

/* ---- loss ---- */

static int32_t loss_rows(const Array *logits, const int64_t *targets, float *nll, float *norms, int64_t rows,
                         int64_t width, float confidence) {
    if (logits->is_bfloat16)
        return level.functions->loss_rows_bfloat16(logits->data, targets, nll, norms, rows, width,
                                                   confidence);
    return level.functions->loss_rows_float32(logits->data, targets, nll, norms, rows, width, confidence);
}

static void check_loss(int is_bfloat16, int64_t width) {
    enum { ROWS = 6 };
    const float confidence = 0.9f;
    describe("loss, %s, width %lld", is_bfloat16 ? "bfloat16" : "float32", (long long)width);
    Array logits = array(is_bfloat16, ROWS * width, 3.0), before = array(is_bfloat16, ROWS * width, 0.0);
    size_t bytes = (size_t)(ROWS * width) * (is_bfloat16 ? 2 : 4);
    int64_t *targets = random_ids(ROWS, width), good = targets[ROWS - 1];
    float *nll = allocate(ROWS * sizeof(float)), *norms = allocate(ROWS * sizeof(float));
    set(&logits, (ROWS - 2) * width + width / 2, NAN);
    memcpy(before.data, logits.data, bytes);
    for (int64_t bad = -1; bad <= width; bad += width + 1) {
        targets[ROWS - 1] = bad;
        expect_status(loss_rows(&logits, targets, nll, norms, ROWS, width, confidence), HEEDFUL_BAD_ARGUMENT,
                      "loss_rows with a target that there is not");
        expect(!memcmp(before.data, logits.data, bytes),
               "loss_rows writes beside a target that there is not");
    }
    targets[ROWS - 1] = good;
    expect_status(loss_rows(&logits, targets, nll, norms, ROWS, width, confidence), HEEDFUL_OK, "loss_rows");
    for (int64_t row = 0; row < ROWS; row++) {
        double sum = 0.0, z = get(&before, row * width + targets[row]);
        for (int64_t i = 0; i < width; i++) sum += exp(get(&before, row * width + i));
        double norm = log(sum), loss = norm - z;
        expect_close(norms + row, &norm, 1, 1e-6, "log sum exp");
        expect_close(nll + row, &loss, 1, 1e-6, "the loss");
        for (int64_t i = 0; i < width; i++) {
            double gradient = exp(get(&before, row * width + i) - norm);
            if (i == targets[row]) gradient -= (double)confidence;
            expect_element(&logits, row * width + i, gradient, 1e-6, "a gradient");
        }
    }
    release_memory();
}

static void check_sum(int64_t n) {
    describe("add_bfloat16");
    float *sum = random_normals(n, 0.0, 1.0), *expected = allocate((size_t)n * sizeof(float));
    Array addend = array(1, n, 1.0);
    for (int64_t i = 0; i < n; i++) expected[i] = sum[i] + (float)get(&addend, i);
    level.functions->add_bfloat16(sum, addend.data, n);
    expect_same(sum, expected, n, "a sum");
    release_memory();
}

/* Sizes that no tensor has are refused before anything is read: all arrays are of eight bytes. */
static void check_refusals(void) {
    describe("training with sizes that cannot be");
    const HeedfulFunctions *f = level.functions;
    const int64_t sizes[][2] = {{-1, 8}, {1, 0}, {1, -8}, {1, 65537}, {1, INT64_MAX}};
    int64_t *targets = allocate(sizeof *targets);
    float *x = (float *)targets;
    uint16_t *h = (uint16_t *)targets;
    const uint8_t *mask = (const uint8_t *)targets;
    *targets = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        int64_t rows = sizes[i][0], n = sizes[i][1];
        const int32_t found[] = {
            f->residual_norm_float32(x, x, x, x, x, x, x, rows, n, epsilon, seed, threshold, kept_scale),
            f->residual_norm_bfloat16(h, h, x, x, h, h, x, rows, n, epsilon, seed, threshold, kept_scale),
            f->residual_norm_backward_float32(x, x, x, x, x, x, x, x, rows, n, seed, threshold, kept_scale),
            f->residual_norm_backward_bfloat16(h, h, x, x, h, h, x, x, rows, n, seed, threshold, kept_scale),
            f->masked_softmax_float32(x, mask, rows, 1, 1, n, 0, 0, 1.0f),
            f->masked_softmax_bfloat16(h, mask, rows, 1, 1, n, 0, 0, 1.0f),
            f->masked_softmax_backward_float32(x, x, x, rows, n, 1.0f),
            f->masked_softmax_backward_bfloat16(h, h, h, rows, n, 1.0f),
            f->loss_rows_float32(x, targets, x, x, rows, n, 1.0f),
            f->loss_rows_bfloat16(h, targets, x, x, rows, n, 1.0f),
        };
        for (size_t j = 0; j < sizeof found / sizeof found[0]; j++)
            expect_status(found[j], HEEDFUL_BAD_ARGUMENT, "a function of training");
    }
    const int64_t shapes[][4] = {{-1, 1, 0, 0}, {1, -1, 0, 0}, {1, 1, -1, 0}, {1, 1, 0, -1}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const int64_t *s = shapes[i]; /* heads, queries, strides of the mask */
        expect_status(f->masked_softmax_float32(x, mask, 1, s[0], s[1], 2, s[2], s[3], 1.0f),
                      HEEDFUL_BAD_ARGUMENT, "masked softmax");
        expect_status(f->masked_softmax_bfloat16(h, mask, 1, s[0], s[1], 2, s[2], s[3], 1.0f),
                      HEEDFUL_BAD_ARGUMENT, "masked softmax");
    }
    release_memory();
}

void check_training(void) {
    static const int64_t widths[] = {1, 2, 5, 16, 17, 33, 64, 100, 256};
    seed_random(5);
    check_rounding();
    check_refusals();
    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++)
        for (int is_bfloat16 = 0; is_bfloat16 < 2; is_bfloat16++) {
            check_residual(is_bfloat16, 4, widths[i], 0);
            if (widths[i] > 4) check_residual(is_bfloat16, 4, widths[i], threshold);
            for (int kind = 0; kind < 4; kind++) check_softmax(is_bfloat16, widths[i], kind);
            check_loss(is_bfloat16, widths[i]);
            check_sum(widths[i]);
        }
}
