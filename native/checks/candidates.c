/* `top`, `log_probs` and `pick`: against log softmax in double precision, and against each other. */
#include "checks.h"

enum { ROWS = 30, SENTENCES = 5, BAD_ROW = 11 };

/* Log-probabilities (ROWS, vocabulary) of some states. */
static float *log_probs(const SmallModel *small, int64_t threads, const float *states, int64_t rows,
                        const HeedfulShortlist *list, const int64_t *sentences) {
    float *result = allocate((size_t)(rows * small->model.tgt_vocabulary) * sizeof(float));
    expect_status(level.functions->log_probs(&small->model, threads, states, rows, list, sentences, result),
                  HEEDFUL_OK, "log_probs");
    return result;
}

typedef struct {
    float *values;
    int64_t *ids;
} Best;

typedef struct {
    int64_t threads, count;
    const int64_t *suppressed;
    int64_t num_suppressed;
    int32_t renormalize;
    const HeedfulShortlist *list;
    const int64_t *sentences;
} Question;

static Best best(const SmallModel *small, const float *states, int64_t rows, Question q) {
    Best result = {allocate((size_t)(rows * q.count) * sizeof(float)),
                   allocate((size_t)(rows * q.count) * 8)};
    expect_status(level.functions->top(&small->model, q.threads, states, rows, q.list, q.sentences, q.count,
                                       q.suppressed, q.num_suppressed, q.renormalize, result.values,
                                       result.ids),
                  HEEDFUL_OK, "top");
    return result;
}

static void copy_doubles(const float *x, int64_t n, double *y) {
    for (int64_t i = 0; i < n; i++) y[i] = (double)x[i];
}

/* Logits, of which what is not allowed is -inf already, become log-probabilities. */
static void normalise(double *z, int64_t n) {
    double highest = -INFINITY, sum = 0.0;
    for (int64_t i = 0; i < n; i++) highest = z[i] > highest ? z[i] : highest;
    for (int64_t i = 0; i < n; i++) sum += exp(z[i] - highest);
    for (int64_t i = 0; i < n; i++) z[i] -= highest + log(sum);
}

static double *reference_logits(const SmallModel *small, const float *states) {
    int64_t width = small->model.d_model;
    double *x = allocate((size_t)(ROWS * width) * sizeof(double));
    double *z = allocate((size_t)(ROWS * small->model.tgt_vocabulary) * sizeof(double));
    copy_doubles(states, ROWS * width, x);
    reference_linear(&small->output, IDENTITY, x, ROWS, z);
    return z;
}

static void expect_log_probs(const float *found, const double *expected, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (expected[i] == -INFINITY && found[i] != -INFINITY)
            fail("id %lld has a probability", (long long)i);
        else if (expected[i] != -INFINITY)
            expect_close(found + i, expected + i, 1, 3e-6, "a log-probability");
}

/* ---- top ---- */

static const float *sorted_row;

static int compare_ids(const void *left, const void *right) {
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    if (sorted_row[a] != sorted_row[b]) return sorted_row[a] > sorted_row[b] ? -1 : 1;
    return a < b ? -1 : a > b;
}

/* A row of `top` against all log-probabilities of that row, where suppressed ids have -inf. */
static void expect_best(const SmallModel *small, const float *values, const int64_t *ids, int64_t count,
                        const float *row) {
    int64_t vocabulary = small->model.tgt_vocabulary, *order = malloc((size_t)vocabulary * 8);
    char *is_in = calloc((size_t)vocabulary, 1);
    for (int64_t i = 0; i < vocabulary; i++) order[i] = i;
    sorted_row = row;
    qsort(order, (size_t)vocabulary, sizeof *order, compare_ids);
    for (int64_t i = 0; i < count; i++) {
        expect(ids[i] >= 0 && ids[i] < vocabulary, "top has an id outside of the vocabulary");
        expect_same(values + i, row + order[i], 1, "a log-probability of top");
        if (values[i] == -INFINITY) continue;
        expect_same(values + i, row + ids[i], 1, "the log-probability of an id of top");
        expect(!is_in[ids[i]]++, "top has an id twice");
        int is_tie = ids[i] % 17 == 5 || ids[i] == 3; /* logits that are equal: see `random_output` */
        if (is_tie && ids[i] != order[i])
            fail("top has %lld before %lld", (long long)ids[i], (long long)order[i]);
    }
    free(order);
    free(is_in);
}

static void check_top(const SmallModel *small, const float *states, const float *all) {
    int64_t vocabulary = small->model.tgt_vocabulary;
    const int64_t counts[] = {1, 2, 5, 16, 17, 33, vocabulary};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        Best whole = best(small, states, ROWS, (Question){.threads = 1 + (int64_t)i % 2, .count = counts[i]});
        for (int64_t r = 0; r < ROWS; r++)
            expect_best(small, whole.values + r * counts[i], whole.ids + r * counts[i], counts[i],
                        all + r * vocabulary);
    }
}

/* The best of each row are suppressed. */
static void check_bans(const SmallModel *small, const float *states, const float *all) {
    int64_t vocabulary = small->model.tgt_vocabulary;
    Best free_ones = best(small, states, 1, (Question){.threads = 1, .count = 4});
    const int64_t suppressed[] = {
        free_ones.ids[2], free_ones.ids[0], 0, vocabulary - 1, -1, vocabulary, 22, 22};
    const int64_t num_suppressed = (int64_t)(sizeof suppressed / sizeof suppressed[0]);
    const int64_t counts[] = {5, vocabulary};
    float *row = allocate((size_t)vocabulary * sizeof(float));
    double *exact = allocate((size_t)vocabulary * sizeof(double));
    for (int i = 0; i < 4; i++) {
        Question question = {1, counts[i % 2], suppressed, num_suppressed, i / 2, NULL, NULL};
        Best found = best(small, states, ROWS, question);
        for (int64_t r = 0; r < ROWS; r++, found.values += counts[i % 2], found.ids += counts[i % 2]) {
            memcpy(row, all + r * vocabulary, (size_t)vocabulary * sizeof(float));
            for (int64_t b = 0; b < num_suppressed; b++)
                if (suppressed[b] >= 0 && suppressed[b] < vocabulary) row[suppressed[b]] = -INFINITY;
            copy_doubles(row, vocabulary, exact);
            normalise(exact, vocabulary);
            for (int64_t j = 0; j < counts[i % 2]; j++)
                for (int64_t b = 0; b < num_suppressed; b++)
                    if (found.ids[j] == suppressed[b] && found.values[j] > -INFINITY)
                        fail("a suppressed id is in top");
            if (i / 2 == 0) expect_best(small, found.values, found.ids, counts[i % 2], row);
            for (int64_t j = 0; i / 2 == 1 && j < 5; j++)
                expect_close(found.values + j, exact + found.ids[j], 1, 3e-6,
                             "a renormalised log-probability");
        }
    }
    int64_t *everything = allocate((size_t)vocabulary * 8);
    for (int64_t i = 0; i < vocabulary; i++) everything[i] = i;
    Best none = best(small, states, 1, (Question){1, 3, everything, vocabulary, 1, NULL, NULL});
    for (int64_t j = 0; j < 3; j++)
        expect(none.values[j] == -INFINITY, "an id is in top where all are suppressed");
}

/* A row that is not a number has no probabilities; the others are what they were. */
static void check_bad_row(const SmallModel *small, const float *states, const float *all) {
    int64_t vocabulary = small->model.tgt_vocabulary, width = small->model.d_model;
    float *changed = allocate((size_t)(ROWS * width) * sizeof(float));
    memcpy(changed, states, (size_t)(ROWS * width) * sizeof(float));
    changed[BAD_ROW * width + 9] = NAN;
    float *found = log_probs(small, 1, changed, ROWS, NULL, NULL),
          *after = found + (BAD_ROW + 1) * vocabulary;
    expect_same(found, all, BAD_ROW * vocabulary, "rows before one that is not a number");
    expect_same(after, all + (after - found), (ROWS - BAD_ROW - 1) * vocabulary, "rows after such a one");
    for (int64_t i = 0; i < vocabulary; i++)
        expect(isnan(found[BAD_ROW * vocabulary + i]), "a row that is not a number has probabilities");
    Best top = best(small, changed, ROWS, (Question){.threads = 1, .count = 4});
    for (int64_t i = 0; i < 4; i++)
        expect(isnan(top.values[BAD_ROW * 4 + i]), "a row that is not a number has best ids");
}

/* ---- pick and shortlists ---- */

/* The output layer to some ids as `pick` packs it. */
static HeedfulLinear picked(const SmallModel *small, const int64_t *ids, int64_t count) {
    static const size_t sizes[PRECISIONS] = {sizeof(float), sizeof(uint16_t), sizeof(int8_t)};
    int64_t in = small->model.d_model, panel = level.functions->panel;
    int64_t filled = count + (panel - count % panel) % panel;
    size_t bytes = (size_t)(filled * in) * sizes[small->model.precision], each = (size_t)filled * 4;
    void *weight = memset(allocate(bytes), 0, bytes);
    float *bias = memset(allocate(each), 0, each), *scale = memset(allocate(each), 0, each);
    int32_t *sums = memset(allocate(each), 0, each);
    expect_status(level.functions->pick(&small->model, ids, count, weight, bias, scale, sums), HEEDFUL_OK,
                  "pick");
    return (HeedfulLinear){in, filled, weight, bias, scale, sums, 0};
}

/* Each output of a picked layer has the bits of the whole layer's. */
static void check_pick(const SmallModel *small, const float *states) {
    int64_t vocabulary = small->model.tgt_vocabulary, out = small->output.packed.out;
    int32_t precision = small->model.precision;
    float *whole = allocate((size_t)(ROWS * out) * sizeof(float));
    expect_status(level.functions->linear(&small->output.packed, precision, 0, 1, states, ROWS, whole), 0,
                  "linear");
    for (int64_t count = 1; count < 4 * level.functions->panel; count += 7) {
        int64_t *ids = random_ids(count, vocabulary);
        HeedfulLinear layer = picked(small, ids, count);
        float *some = allocate((size_t)(ROWS * layer.out) * sizeof(float));
        expect_status(level.functions->linear(&layer, precision, 0, 1, states, ROWS, some), 0, "linear");
        for (int64_t i = 0; i < ROWS * count; i++)
            expect_same(some + i / count * layer.out + i % count, whole + i / count * out + ids[i % count], 1,
                        "an output that was picked");
    }
    float buffer[2] = {0};
    for (int64_t id = -1; id <= vocabulary; id += vocabulary + 1)
        expect_status(level.functions->pick(&small->model, &id, 1, buffer, buffer, buffer, (int32_t *)buffer),
                      HEEDFUL_BAD_ARGUMENT, "pick of an id that there is not");
}

typedef struct {
    HeedfulShortlist list;
    char *allowed[SENTENCES]; /* (vocabulary,) of each sentence */
} Shortlist;

/* Some ids are allowed to each sentence: none to the second, one to the third, the same beside other groups.
 */
static Shortlist *random_shortlist(const SmallModel *small, int64_t group_size) {
    int64_t vocabulary = small->model.tgt_vocabulary, num_groups = (SENTENCES + group_size - 1) / group_size;
    Shortlist *s = allocate(sizeof *s);
    HeedfulLinear *outputs = allocate((size_t)num_groups * sizeof *outputs);
    int64_t *ids = allocate((size_t)(num_groups * vocabulary) * 8),
            *firsts = allocate((size_t)num_groups * 8);
    int32_t *columns = allocate((size_t)(SENTENCES * vocabulary) * 4);
    int64_t *starts = allocate((SENTENCES + 1) * 8), end = 0;
    seed_random(3);
    for (int64_t b = 0; b < SENTENCES; b++) {
        s->allowed[b] = allocate((size_t)vocabulary);
        for (int64_t i = 0; i < vocabulary; i++) s->allowed[b][i] = b != 1 && b != 2 && random_below(9) == 0;
    }
    s->allowed[2][vocabulary - 1] = 1;
    starts[0] = 0;
    for (int64_t g = 0; g < num_groups; g++) {
        int64_t last = (g + 1) * group_size < SENTENCES ? (g + 1) * group_size : SENTENCES;
        firsts[g] = end;
        for (int64_t i = 0; i < vocabulary; i++) {
            int is_in = 0;
            for (int64_t b = g * group_size; b < last; b++) is_in |= s->allowed[b][i];
            if (is_in) ids[end++] = i;
        }
        if (end == firsts[g]) ids[end++] = 7; /* a layer has an output at least */
        outputs[g] = picked(small, ids + firsts[g], end - firsts[g]);
        for (int64_t b = g * group_size; b < last; b++) {
            starts[b + 1] = starts[b];
            for (int64_t i = firsts[g]; i < end; i++)
                if (s->allowed[b][ids[i]]) columns[starts[b + 1]++] = (int32_t)(i - firsts[g]);
        }
    }
    s->list = (HeedfulShortlist){group_size, SENTENCES, outputs, ids, firsts, columns, starts};
    return s;
}

static void check_shortlists(const SmallModel *small, const float *states, const double *logits) {
    int64_t vocabulary = small->model.tgt_vocabulary, sentences[ROWS];
    for (int64_t r = 0; r < ROWS; r++) sentences[r] = r * SENTENCES / ROWS;
    float *before = NULL;
    double *exact = allocate((size_t)vocabulary * sizeof(double));
    for (int64_t size = 1; size <= 3; size += 2) {
        const HeedfulShortlist *list = NULL;
        Shortlist *s = random_shortlist(small, size);
        list = &s->list;
        float *found = log_probs(small, 1, states, ROWS, list, sentences);
        if (before) expect_same(found, before, ROWS * vocabulary, "log-probabilities in other groups");
        before = found;
        for (int64_t r = 0; r < ROWS; r++) {
            for (int64_t i = 0; i < vocabulary; i++)
                exact[i] = s->allowed[sentences[r]][i] ? logits[r * vocabulary + i] : -INFINITY;
            if (sentences[r] != 1) normalise(exact, vocabulary);
            expect_log_probs(found + r * vocabulary, exact, vocabulary);
        }
        float *one = log_probs(small, 2, states + 4 * small->model.d_model, 1, list, sentences + 4);
        expect_same(one, found + 4 * vocabulary, vocabulary, "log-probabilities of one row");
        Best top = best(small, states, ROWS, (Question){1, 9, NULL, 0, 0, list, sentences});
        for (int64_t r = 0; r < ROWS; r++)
            expect_best(small, top.values + 9 * r, top.ids + 9 * r, 9, found + r * vocabulary);
        int64_t suppressed[] = {top.ids[0], top.ids[3], vocabulary - 1}; /* of the third sentence all */
        Best rest = best(small, states, ROWS, (Question){1, 9, suppressed, 3, 1, list, sentences});
        for (int64_t i = 0; i < 9 * ROWS; i++) {
            int is_suppressed =
                rest.ids[i] == suppressed[0] || rest.ids[i] == suppressed[1] || rest.ids[i] == suppressed[2];
            if (isnan(rest.values[i])) fail("top of a shortlist is not a number");
            if (is_suppressed && rest.values[i] > -INFINITY) fail("a suppressed id is in top of a shortlist");
        }
        for (int64_t bad = -1; bad <= SENTENCES; bad += SENTENCES + 1)
            expect_status(level.functions->log_probs(&small->model, 1, states, 1, list, &bad, found),
                          HEEDFUL_BAD_ARGUMENT, "a sentence that there is not");
    }
}

/* ---- all of it ---- */

static void check_refusals(const SmallModel *small, const float *states) {
    const HeedfulModel *m = &small->model;
    float *values = allocate((size_t)m->tgt_vocabulary * sizeof(float));
    int64_t *ids = allocate((size_t)m->tgt_vocabulary * 8);
    const struct {
        const char *name;
        int64_t threads, rows, count;
    } bad[] = {
        {"no threads", 0, 1, 1}, {"no rows", 1, 0, 1},
        {"-1 rows", 1, -1, 1},   {"no ids", 1, 1, 0},
        {"-1 ids", 1, 1, -1},    {"more ids than there are", 1, 1, m->tgt_vocabulary + 1},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        expect_status(level.functions->top(m, bad[i].threads, states, bad[i].rows, NULL, NULL, bad[i].count,
                                           NULL, 0, 0, values, ids),
                      HEEDFUL_BAD_ARGUMENT, bad[i].name);
    for (size_t i = 0; i < 3; i++)
        expect_status(level.functions->log_probs(m, bad[i].threads, states, bad[i].rows, NULL, NULL, values),
                      HEEDFUL_BAD_ARGUMENT, bad[i].name);
}

void check_candidates(int32_t precision) {
    describe("what comes next in precision %d", precision);
    seed_random(4);
    HeedfulModel settings = small_settings(precision, 2, RELU, 0);
    settings.tgt_vocabulary = 2003; /* enough for two threads; no whole panels */
    const SmallModel *small = random_model(settings);
    int64_t vocabulary = small->model.tgt_vocabulary, width = small->model.d_model;
    float *states = random_normals(ROWS * width, 0.0, 2.0);
    float *all = log_probs(small, 1, states, ROWS, NULL, NULL);
    double *logits = reference_logits(small, states),
           *exact = allocate((size_t)(ROWS * vocabulary) * sizeof(double));
    memcpy(exact, logits, (size_t)(ROWS * vocabulary) * sizeof(double));
    for (int64_t r = 0; r < ROWS; r++) normalise(exact + r * vocabulary, vocabulary);
    expect_log_probs(all, exact, ROWS * vocabulary);
    for (int64_t n = 1; n <= ROWS; n += 4) {
        float *some = log_probs(small, 1 + n % 2, states + (ROWS - n) * width, n, NULL, NULL);
        expect_same(some, all + (ROWS - n) * vocabulary, n * vocabulary, "log-probabilities of fewer rows");
    }
    check_top(small, states, all);
    check_bans(small, states, all);
    check_bad_row(small, states, all);
    check_pick(small, states);
    check_shortlists(small, states, logits);
    check_refusals(small, states);
    release_memory();
}
