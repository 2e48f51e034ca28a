/* `linear` in each precision: against sums in double precision (INT8: the same bits as from whole numbers),
   and the same bits whatever rows stand beside a row and however many threads there are. */
#include "checks.h"

enum { MOST_ROWS = 64, FEW_ROWS = 30 };

static float *run(const Dense *layer, int32_t activation, int64_t threads, const float *x, int64_t rows) {
    float *exact_x = allocate((size_t)(rows * layer->in) * sizeof(float)); /* reading beyond it is noticed */
    float *y = allocate((size_t)(rows * layer->packed.out) * sizeof(float));
    memcpy(exact_x, x, (size_t)(rows * layer->in) * sizeof(float));
    int32_t status =
        level.functions->linear(&layer->packed, layer->precision, activation, threads, exact_x, rows, y);
    expect_status(status, HEEDFUL_OK, "linear");
    return y;
}

/* An output as whole numbers are summed and scaled at this level, without activation. */
static float int8_output(const Dense *layer, const float *rounded, float row_scale, int64_t j) {
    int64_t sum = 0;
    for (int64_t k = 0; k < layer->in; k++) sum += (int64_t)(rounded[k] * layer->rounded[j * layer->in + k]);
    float scaled = (float)(int32_t)sum * row_scale, scale = layer->scale[j], bias = layer->packed.bias[j];
    return level.is_fused ? fmaf(scaled, scale, bias) : scaled * scale + bias;
}

static void expect_outputs(const Dense *layer, const float *x, const float *y) {
    double tolerance = 2e-7 * sqrt((double)layer->in); /* errors of so many roundings, some up, some down */
    float *rounded = malloc((size_t)layer->in * sizeof(float));
    for (int64_t r = 0; r < MOST_ROWS; r++, x += layer->in, y += layer->packed.out) {
        double row_scale = (double)round_row(layer->precision, x, layer->in, rounded);
        for (int64_t j = 0; j < layer->out; j++) {
            double sum = 0.0, size = 0.0;
            for (int64_t k = 0; k < layer->in; k++) {
                double product = (double)rounded[k] * (double)layer->rounded[j * layer->in + k];
                sum += product;
                size += fabs(product);
            }
            size = size * row_scale * (double)layer->scale[j] + fabs((double)layer->packed.bias[j]);
            sum = sum * row_scale * (double)layer->scale[j] + (double)layer->packed.bias[j];
            if (layer->precision == INT8) sum = (double)int8_output(layer, rounded, (float)row_scale, j);
            if (!(fabs((double)y[j] - sum) <= (layer->precision == INT8 ? 0.0 : tolerance * size)))
                fail("row %lld, output %lld is %.9g and not %.9g", (long long)r, (long long)j, (double)y[j],
                     sum);
        }
    }
    free(rounded);
}

/* An activation of what comes out without it. */
static void expect_activations(int32_t activation, const float *x, const float *y, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        double expected = reference_activation(activation, (double)x[i]),
               error = fabs((double)y[i] - expected);
        if (!(error <= (activation == RELU ? 0.0 : 2.5e-7 * fabs((double)x[i]))))
            fail("f(%.9g) is %.9g and not %.9g", (double)x[i], (double)y[i], expected);
    }
}

/* Rows that are not finite do not become finite, and no other row changes. */
static void check_bad_rows(const Dense *layer, int32_t activation, const float *x, const float *y,
                           int64_t rows) {
    const float bad[] = {NAN, activation == IDENTITY ? INFINITY : NAN,
                         activation == IDENTITY ? -INFINITY : NAN};
    int64_t in = layer->in, out = layer->packed.out, is_bad[MOST_ROWS] = {0};
    float *changed = allocate((size_t)(rows * in) * sizeof(float));
    memcpy(changed, x, (size_t)(rows * in) * sizeof(float));
    for (int i = 0; i < 3 && rows > 1; i++) {
        int64_t row = random_below(rows);
        changed[row * in + random_below(in)] = bad[i];
        is_bad[row] = 1;
    }
    float *z = run(layer, activation, 1, changed, rows);
    for (int64_t r = 0; r < rows; r++) {
        if (!is_bad[r]) expect_same(z + r * out, y + r * out, out, "a row beside one that is not finite");
        for (int64_t j = 0; is_bad[r] && j < layer->out; j++)
            if (isfinite(z[r * out + j]))
                fail("a row that is not finite has a finite output %lld", (long long)j);
    }
}

static void check_shape(int32_t precision, int64_t in, int64_t out, int32_t activation) {
    static const char *precisions[] = {"float32", "bfloat16", "int8"};
    static const char *activations[] = {"identity", "relu", "gelu", "swish"};
    float *weight = random_normals(out * in, 0.0, 1.0 / sqrt((double)in));
    float *x = random_normals(MOST_ROWS * in, 0.1, 1.0);
    for (int64_t k = 0; k < in; k++) { /* the largest sums, too */
        weight[k] = x[9 * in + k] = 1.0f;
        weight[in + k] = x[11 * in + k] = -1.0f;
    }
    Dense layer = pack_layer(in, out, precision, weight, random_normals(out, 0.0, 0.1));
    int64_t steps = in > 512 ? 5 : 1;  /* of the numbers of rows */
    for (int64_t k = 0; k < in; k++) { /* rows of other sizes, and of zeros */
        x[3 * in + k] *= 1e4f;
        x[7 * in + k] *= 1e-4f;
        x[5 * in + k] = 0.0f;
    }
    describe("linear %s %s, in %lld, out %lld", precisions[precision], activations[activation], (long long)in,
             (long long)out);
    float *y = run(&layer, activation, 1, x, MOST_ROWS);
    float *plain = run(&layer, IDENTITY, 1, x, MOST_ROWS);
    expect_outputs(&layer, x, plain);
    expect_activations(activation, plain, y, MOST_ROWS * layer.packed.out);
    for (int64_t threads = 1; threads <= 2; threads++)
        for (int64_t n = 1; n <= MOST_ROWS; n = n < FEW_ROWS    ? n + steps
                                                : n < MOST_ROWS ? MOST_ROWS
                                                                : n + 1) {
            describe("linear %s %s, in %lld, out %lld, %lld rows, %lld threads", precisions[precision],
                     activations[activation], (long long)in, (long long)out, (long long)n,
                     (long long)threads);
            int64_t first = random_below(MOST_ROWS - n + 1);
            float *z = run(&layer, activation, threads, x + first * in, n);
            expect_same(z, y + first * layer.packed.out, n * layer.packed.out, "rows among fewer rows");
            if (threads == 1) check_bad_rows(&layer, activation, x + first * in, z, n);
        }
    release_memory();
}

/* Whole sums are the same at all levels that have the same limit for weights, so that results are nearly the
   same. */
static void check_other_levels(void) {
    enum { IN = 256, OUT = 192, ROWS = 5 };
    static float all_results[128][ROWS * OUT];
    static int is_known[128] = {0};
    int64_t limit = level.functions->weight_limit;
    float *results = all_results[limit];
    describe("linear int8 beside the other levels");
    seed_random(7);
    Dense layer = random_layer(IN, OUT, INT8);
    float *y = run(&layer, GELU, 1, random_normals(ROWS * IN, 0.0, 1.0), ROWS);
    for (int64_t i = 0; i < ROWS * OUT; i++) {
        if (!is_known[limit]) results[i] = y[i / OUT * layer.packed.out + i % OUT];
        double other = (double)results[i];
        expect_close(&y[i / OUT * layer.packed.out + i % OUT], &other, 1, 1e-6, "an output");
    }
    is_known[limit] = 1;
    release_memory();
}

static void check_refusals(int32_t precision) {
    describe("linear with bad arguments");
    Dense layer = random_layer(32, 32, precision);
    float x[32] = {0}, y[64];
    int32_t (*linear)(const HeedfulLinear *, int32_t, int32_t, int64_t, const float *, int64_t, float *) =
        level.functions->linear;
    const HeedfulLinear good = layer.packed;
    HeedfulLinear odd_in = good, odd_out = good, no_in = good, no_out = good;
    odd_in.in = 30;
    odd_out.out = good.out + 1;
    no_in.in = no_out.out = 0;
    expect_status(linear(&good, -1, 0, 1, x, 1, y), HEEDFUL_BAD_ARGUMENT, "precision -1");
    expect_status(linear(&good, PRECISIONS, 0, 1, x, 1, y), HEEDFUL_BAD_ARGUMENT, "a precision too many");
    expect_status(linear(&good, precision, 0, 0, x, 1, y), HEEDFUL_BAD_ARGUMENT, "no threads");
    expect_status(linear(&good, precision, 0, 1, x, 0, y), HEEDFUL_BAD_ARGUMENT, "no rows");
    expect_status(linear(&good, precision, 0, 1, x, -1, y), HEEDFUL_BAD_ARGUMENT, "-1 rows");
    expect_status(linear(&odd_in, precision, 0, 1, x, 1, y), HEEDFUL_BAD_ARGUMENT, "30 inputs");
    expect_status(linear(&odd_out, precision, 0, 1, x, 1, y), HEEDFUL_BAD_ARGUMENT, "no whole panels");
    expect_status(linear(&no_in, precision, 0, 1, x, 1, y), HEEDFUL_BAD_ARGUMENT, "no inputs");
    expect_status(linear(&no_out, precision, 0, 1, x, 1, y), HEEDFUL_BAD_ARGUMENT, "no outputs");
    if (!level.functions->groups[BFLOAT16])
        expect_status(linear(&good, BFLOAT16, 0, 1, x, 1, y), HEEDFUL_BAD_ARGUMENT, "bfloat16");
    release_memory();
}

void check_linear(int32_t precision) {
    int64_t panel = level.functions->panel;
    seed_random(1);
    check_shape(precision, 32, panel, IDENTITY);
    check_shape(precision, 64, 3 * panel - 5, RELU);
    check_shape(precision, 96, 4 * panel, GELU);
    check_shape(precision, 128, 7 * panel - 1, SWISH);
    check_shape(precision, 160, 9 * panel, IDENTITY);
    check_shape(precision, 1024, 640 - 3, IDENTITY); /* enough for two threads, even of one row */
    if (precision == INT8) check_other_levels();
    check_refusals(precision);
}
