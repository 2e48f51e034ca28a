/* Encoder and decoder steps of a trained model; engine.py says what it is for and calls it.

   Activations are float32; a linear layer multiplies in the precision its weights were packed in. A
   sentence's result depends on nothing but the sentence. */
#include "products.h"

typedef struct {
    const float *gain, *shift;
} Norm;

typedef struct {
    Linear query_key_value, self_output, query, cross_output, inner, outer;
    Norm self_norm, cross_norm, outer_norm;
} Layer; /* the encoder's have neither query nor cross_output nor cross_norm */

typedef struct {
    int64_t width, inner, heads, vocabulary;
    int64_t num_encoder_layers, num_decoder_layers;
    int32_t precision, activation, norm_first, has_final_norm;
    float eps, embedding_scale;
    const float *src_embedding, *tgt_embedding; /* (V, D) */
    const Layer *encoder, *decoder;
    const Linear *memory; /* of each decoder layer: source states to keys and values, (2 D) */
    Norm encoder_norm, decoder_norm;
    Linear output;
    const float *output_weight; /* (V, D), not packed */
} Model;

/* What may come next in the sentences of a batch, where that is not the whole vocabulary. A few sentences,
   one after the other, are a group: what any of them may have is computed for them all. */
typedef struct {
    int64_t together;      /* sentences of a group */
    const Linear *outputs; /* of each group */
    const int64_t *ids;    /* of those outputs, ascending in each group */
    const int64_t *firsts; /* of each group in `ids` */
    const int32_t *places; /* among its group's outputs, of what each sentence may have, ascending */
    const int64_t *starts; /* of each sentence in `places` */
} Shortlist;

/* ---- what stands between the products ---- */

static void normalise(const Norm *norm, const float *x, float *y, int64_t rows, int64_t width, float eps) {
    for (int64_t r = 0; r < rows; r++, x += width, y += width) {
        float sum = 0.0f, squares = 0.0f;
        for (int64_t i = 0; i < width; i++) sum += x[i];
        float mean = sum / (float)width;
        for (int64_t i = 0; i < width; i++) squares += (x[i] - mean) * (x[i] - mean);
        float inverse = 1.0f / sqrtf(squares / (float)width + eps);
        for (int64_t i = 0; i < width; i++) y[i] = (x[i] - mean) * inverse * norm->gain[i] + norm->shift[i];
    }
}

/* scores of n keys become weights that sum to 1 */
static void softmax(float *scores, int64_t n) {
    float highest = largest(scores, n), sum = 0.0f;
    for (int64_t j = 0; j < n; j++) scores[j] = exp_of_negative(scores[j] - highest);
    for (int64_t j = 0; j < n; j++) sum += scores[j];
    float share = 1.0f / sum;
    for (int64_t j = 0; j < n; j++) scores[j] *= share;
}

/* One query over n keys and values, given by pointers to their rows; `scores` has room for n. Heads of N
   vectors stay in registers. */
#define ATTEND(N)                                                                                            \
    static void attend_##N(const float *query, const float **keys, const float **values, int64_t n,          \
                           int64_t heads, float scale, float *scores, float *result) {                       \
        for (int64_t h = 0; h < heads; h++) {                                                                \
            Floats q[N], sum[N];                                                                             \
            for (int i = 0; i < N; i++) {                                                                    \
                q[i] = floats_at(query + (h * N + i) * 16) * scale;                                          \
                sum[i] = (Floats){0};                                                                        \
            }                                                                                                \
            for (int64_t j = 0; j < n; j++) {                                                                \
                Floats dot = q[0] * floats_at(keys[j] + h * N * 16);                                         \
                for (int i = 1; i < N; i++) dot += q[i] * floats_at(keys[j] + (h * N + i) * 16);             \
                scores[j] = sum_of(dot);                                                                     \
            }                                                                                                \
            softmax(scores, n);                                                                              \
            for (int64_t j = 0; j < n; j++)                                                                  \
                for (int i = 0; i < N; i++) sum[i] += scores[j] * floats_at(values[j] + (h * N + i) * 16);   \
            for (int i = 0; i < N; i++) memcpy(result + (h * N + i) * 16, &sum[i], 64);                      \
        }                                                                                                    \
    }
ATTEND(1)
ATTEND(2)
ATTEND(4)
ATTEND(8)

static void attend(const float *query, const float **keys, const float **values, int64_t n, int64_t heads,
                   int64_t size, float *scores, float *result) {
    float scale = 1.0f / sqrtf((float)size);
    switch (size) {
    case 16:
        attend_1(query, keys, values, n, heads, scale, scores, result);
        return;
    case 32:
        attend_2(query, keys, values, n, heads, scale, scores, result);
        return;
    case 64:
        attend_4(query, keys, values, n, heads, scale, scores, result);
        return;
    case 128:
        attend_8(query, keys, values, n, heads, scale, scores, result);
        return;
    }
    for (int64_t h = 0; h < heads; h++, query += size, result += size) {
        for (int64_t j = 0; j < n; j++) {
            float dot = 0.0f;
            for (int64_t i = 0; i < size; i++) dot += query[i] * keys[j][h * size + i];
            scores[j] = dot * scale;
        }
        softmax(scores, n);
        memset(result, 0, size * sizeof(float));
        for (int64_t j = 0; j < n; j++)
            for (int64_t i = 0; i < size; i++) result[i] += scores[j] * values[j][h * size + i];
    }
}

/* ---- the model ---- */

/* Room for the activations of some rows, and for one attention of each thread. */
typedef struct {
    int64_t threads, longest;
    float *x, *normed, *wide, *heads, *out, *scores;
    const float **keys, **values;
    void *narrow, *memory;
} Room;

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* Get that room, and helpers; returns 0 where there is no memory left. */
static int make_room(Room *room, const Model *m, int64_t rows, int64_t longest, int64_t threads) {
    int64_t width = m->width, widest = larger(3 * width, m->inner), lists = threads * longest;
    size_t floats = (size_t)(rows * (4 * width + widest) + lists + 16);
    size_t narrow = (size_t)(rows * widest) * sizeof(float) + (size_t)rows * sizeof(float) + 64;
    char *memory = malloc(floats * sizeof(float) + narrow + 2 * (size_t)lists * sizeof(float *));
    room->memory = memory;
    if (!memory) return 0;
    room->longest = longest;
    room->keys = (const float **)memory;
    room->values = room->keys + lists;
    room->x = (float *)(room->values + lists);
    room->normed = room->x + rows * width;
    room->heads = room->normed + rows * width;
    room->out = room->heads + rows * width;
    room->wide = room->out + rows * width;
    room->scores = room->wide + rows * widest;
    room->narrow = room->scores + lists + 16;
    room->threads = call_helpers(worth(threads, cost(width, widest, rows)));
    return 1;
}

static void leave_room(Room *room) {
    send_helpers_away(room->threads);
    free(room->memory);
}

static void embed(const Model *m, const float *table, int64_t id, const float *position, float *x) {
    for (int64_t i = 0; i < m->width; i++) x[i] = table[id * m->width + i] * m->embedding_scale + position[i];
}

static void apply(const Model *m, const Linear *layer, int32_t activation, const float *x, int64_t rows,
                  float *y, Room *room) {
    linear(layer, m->precision, activation, x, rows, y, room->narrow, room->threads);
}

/* What a sub-layer reads: the stream itself, or normalised. */
static const float *opened(const Model *m, const Norm *norm, Room *room, int64_t rows) {
    if (!m->norm_first) return room->x;
    normalise(norm, room->x, room->normed, rows, m->width, m->eps);
    return room->normed;
}

/* What it has written joins the stream. */
static void joined(const Model *m, const Norm *norm, Room *room, int64_t rows) {
    for (int64_t i = 0; i < rows * m->width; i++) room->x[i] += room->out[i];
    if (!m->norm_first) normalise(norm, room->x, room->x, rows, m->width, m->eps);
}

static void feed_forward(const Model *m, const Layer *layer, Room *room, int64_t rows) {
    const float *x = opened(m, &layer->outer_norm, room, rows);
    apply(m, &layer->inner, m->activation, x, rows, room->wide, room);
    apply(m, &layer->outer, IDENTITY, room->wide, rows, room->out, room);
    joined(m, &layer->outer_norm, room, rows);
}

/* The rows of an attention: their queries, and where keys and values (2 D together) stand. */
typedef struct {
    const Model *model;
    Room *room;
    const float *queries, *rest; /* rest: keys and values of all places, or NULL */
    int64_t query_step, rest_step;
    const int64_t *starts; /* of each sentence, in rest */
    int64_t rows, pieces;  /* of the encoder */
    const struct Past *past;
    const int64_t *outputs, *places; /* of the decoder's rows */
    int64_t layer;
} Attention;

/* Do the pieces of an attention, or its rows, over so many places each. An element of a key and a value takes
   as long as some multiplications of a product. */
static void attend_together(Attention *a, Work work, int64_t pieces, int64_t places) {
    int64_t threads = worth(a->room->threads, 16 * a->rows * places * a->model->width);
    share(threads, work, a, pieces);
}

/* n keys and values, one after the other: where the thread that attends finds them. */
static void list(Room *room, int64_t thread, const float *keys, int64_t step, int64_t n, int64_t width) {
    for (int64_t j = 0; j < n; j++) {
        room->keys[thread * room->longest + j] = keys + j * step;
        room->values[thread * room->longest + j] = keys + j * step + width;
    }
}

static void attend_to_list(const Attention *a, int64_t row, int64_t n, int64_t thread) {
    int64_t width = a->model->width, first = thread * a->room->longest;
    attend(a->queries + row * a->query_step, a->room->keys + first, a->room->values + first, n,
           a->model->heads, width / a->model->heads, a->room->scores + first, a->room->heads + row * width);
}

/* Some rows of sentences that stand one after the other, each over its own sentence. */
static void attend_to_sentences(void *task, int64_t piece, int64_t thread) {
    const Attention *a = task;
    int64_t b = 0, listed = -1;
    for (int64_t row = a->rows * piece / a->pieces; row < a->rows * (piece + 1) / a->pieces; row++) {
        while (a->starts[b + 1] <= row) b++;
        int64_t first = a->starts[b], n = a->starts[b + 1] - first;
        const float *keys = a->rest + first * a->rest_step;
        if (listed != b) list(a->room, thread, keys, a->rest_step, n, a->model->width);
        listed = b;
        attend_to_list(a, row, n, thread);
    }
}

/* Encode sentences that stand one after the other, without padding: ids (R,), of which sentence b has those
   from starts[b] to starts[b + 1]; positions (longest, D). memory[l] gets keys and values (R, 2 D) for layer
   l of the decoder. Returns 0 where there is no memory left. */
int32_t encode(const Model *m, int64_t threads, const int64_t *ids, const int64_t *starts, int64_t sentences,
               const float *positions, float *const *memory) {
    int64_t rows = starts[sentences], width = m->width, longest = 0;
    for (int64_t b = 0; b < sentences; b++) longest = larger(longest, starts[b + 1] - starts[b]);
    Room room;
    if (!make_room(&room, m, rows, longest, threads)) return 0;
    for (int64_t b = 0; b < sentences; b++)
        for (int64_t r = starts[b]; r < starts[b + 1]; r++)
            embed(m, m->src_embedding, ids[r], positions + (r - starts[b]) * width, room.x + r * width);
    Attention attention = {m, &room, room.wide, room.wide + width, .starts = starts, .rows = rows};
    attention.pieces = 1;
    attention.query_step = attention.rest_step = 3 * width;
    if (room.threads > 1) attention.pieces = rows < PIECES * room.threads ? rows : PIECES * room.threads;
    for (const Layer *layer = m->encoder; layer < m->encoder + m->num_encoder_layers; layer++) {
        const float *x = opened(m, &layer->self_norm, &room, rows);
        apply(m, &layer->query_key_value, IDENTITY, x, rows, room.wide, &room);
        attend_together(&attention, attend_to_sentences, attention.pieces, longest);
        apply(m, &layer->self_output, IDENTITY, room.heads, rows, room.out, &room);
        joined(m, &layer->self_norm, &room, rows);
        feed_forward(m, layer, &room, rows);
    }
    if (m->has_final_norm) normalise(&m->encoder_norm, room.x, room.x, rows, width, m->eps);
    for (int64_t l = 0; l < m->num_decoder_layers; l++)
        apply(m, &m->memory[l], IDENTITY, room.x, rows, memory[l], &room);
    leave_room(&room);
    return 1;
}

/* What the outputs of a decoder stand on. */
typedef struct Past {
    const int64_t *sentences; /* (outputs,): of each output */
    const int64_t *starts;
    float *const *memory;
    float **kept; /* (outputs, stride): where keys and values (layers, 2 D) of each place stand */
    int64_t stride;
} Past;

/* The keys and values of all rows in a layer join those of earlier places before any row looks at them. */
static void keep(const Attention *a) {
    int64_t width = a->model->width;
    for (int64_t row = 0; row < a->rows; row++) {
        float *kept = a->past->kept[a->outputs[row] * a->past->stride + a->places[row]];
        memcpy(kept + a->layer * 2 * width, a->queries + row * a->query_step + width,
               2 * width * sizeof(float));
    }
}

/* A row of the decoder over what its output has at its place and before. */
static void attend_to_past(void *task, int64_t row, int64_t thread) {
    const Attention *a = task;
    int64_t width = a->model->width, n = a->places[row] + 1, first = thread * a->room->longest;
    float *const *kept = a->past->kept + a->outputs[row] * a->past->stride;
    for (int64_t j = 0; j < n; j++) {
        a->room->keys[first + j] = kept[j] + a->layer * 2 * width;
        a->room->values[first + j] = a->room->keys[first + j] + width;
    }
    attend_to_list(a, row, n, thread);
}

/* A row of the decoder over its source. */
static void attend_to_source(void *task, int64_t row, int64_t thread) {
    const Attention *a = task;
    int64_t b = a->past->sentences[a->outputs[row]], width = a->model->width;
    int64_t first = a->past->starts[b], n = a->past->starts[b + 1] - first;
    list(a->room, thread, a->past->memory[a->layer] + first * 2 * width, 2 * width, n, width);
    attend_to_list(a, row, n, thread);
}

/* Feed an id to each row, at a place of an output; rows of one output have places that follow each other.
   positions (longest, D). What is kept of the rows goes to kept (rows, layers, 2 D); states (rows, D). */
int32_t step(const Model *m, int64_t threads, const Past *past, const int64_t *ids, const int64_t *outputs,
             const int64_t *places, int64_t rows, const float *positions, float *kept, float *states) {
    int64_t width = m->width, longest = 0, end = 0;
    for (int64_t r = 0; r < rows; r++) {
        int64_t b = past->sentences[outputs[r]];
        end = larger(end, places[r] + 1);
        longest = larger(longest, larger(end, past->starts[b + 1] - past->starts[b]));
    }
    Room room;
    if (!make_room(&room, m, rows, longest, threads)) return 0;
    for (int64_t r = 0; r < rows; r++) {
        past->kept[outputs[r] * past->stride + places[r]] = kept + r * m->num_decoder_layers * 2 * width;
        embed(m, m->tgt_embedding, ids[r], positions + places[r] * width, room.x + r * width);
    }
    for (int64_t l = 0; l < m->num_decoder_layers; l++) {
        const Layer *layer = &m->decoder[l];
        Attention attention = {m, &room, room.wide, .rows = rows, .past = past, .layer = l};
        attention.outputs = outputs;
        attention.places = places;
        attention.query_step = 3 * width;
        const float *x = opened(m, &layer->self_norm, &room, rows);
        apply(m, &layer->query_key_value, IDENTITY, x, rows, room.wide, &room);
        keep(&attention);
        attend_together(&attention, attend_to_past, rows, end);
        apply(m, &layer->self_output, IDENTITY, room.heads, rows, room.out, &room);
        joined(m, &layer->self_norm, &room, rows);
        attention.query_step = width;
        x = opened(m, &layer->cross_norm, &room, rows);
        apply(m, &layer->query, IDENTITY, x, rows, room.wide, &room);
        attend_together(&attention, attend_to_source, rows, longest);
        apply(m, &layer->cross_output, IDENTITY, room.heads, rows, room.out, &room);
        joined(m, &layer->cross_norm, &room, rows);
        feed_forward(m, layer, &room, rows);
    }
    if (m->has_final_norm) normalise(&m->decoder_norm, room.x, room.x, rows, width, m->eps);
    memcpy(states, room.x, rows * width * sizeof(float));
    leave_room(&room);
    return 1;
}

/* log sum exp of a row */
static float log_sum(const float *z, int64_t count) {
    float highest = largest(z, count), sum = 0.0f;
    for (int64_t i = 0; i < count; i++) sum += z[i] == -INFINITY ? 0.0f : exp_of_negative(z[i] - highest);
    return highest + logf(sum);
}

/* The `count` largest of `of` numbers, filled up to a multiple of PANEL, best first, equal ones by place;
   returns how many there are. */
static int64_t choose(const float *z, int64_t of, int64_t count, float *values, int64_t *ids) {
    int64_t found = 0;
    float least = -INFINITY; /* of those found, once there are `count` */
    for (int64_t i = 0; i < of; i += PANEL) {
        if (found == count && !(largest(z + i, PANEL) > least)) continue;
        for (int64_t j = i; j < i + PANEL && j < of; j++) {
            if (found == count && !(z[j] > least)) continue;
            int64_t place = found < count ? found++ : count - 1;
            for (; place > 0 && values[place - 1] < z[j]; place--) {
                values[place] = values[place - 1];
                ids[place] = ids[place - 1];
            }
            values[place] = z[j];
            ids[place] = j;
            least = found == count ? values[count - 1] : -INFINITY;
        }
    }
    return found;
}

/* Rows of logits (rows, out), and what is asked of them. */
typedef struct {
    const Model *model;
    const Linear *output;
    const int64_t *own_ids; /* of that layer's outputs, where there is a shortlist */
    float *logits;
    const Shortlist *shortlist; /* or NULL */
    const int64_t *sentences;   /* of the rows, where there is a shortlist */
    int64_t count;              /* of the best; 0: all log-probabilities, (rows, vocabulary) */
    const int64_t *banned;
    int64_t num_banned;
    int32_t renormalize;
    float *values;
    int64_t *ids;
} Choice;

/* The logits that a row may choose among: those of its sentence come first, and are as many as returned.
   They are summed in their order, so that it does not matter what other sentences may have. */
static int64_t gather(const Choice *c, int64_t row, float *z, const int32_t **places) {
    if (!c->shortlist) return c->model->vocabulary;
    const int64_t *starts = c->shortlist->starts + c->sentences[row];
    *places = c->shortlist->places + starts[0];
    for (int64_t i = 0; i < starts[1] - starts[0]; i++) z[i] = z[(*places)[i]];
    return starts[1] - starts[0];
}

/* The id of logit i of such a row. */
static int64_t id_of(const Choice *c, const int32_t *places, int64_t i) {
    return c->shortlist ? c->own_ids[places[i]] : i;
}

static void ban(const Choice *c, const int32_t *places, int64_t id, float *z, int64_t of) {
    int64_t first = 0, end = of;
    while (first < end) {
        int64_t middle = (first + end) / 2;
        if (id_of(c, places, middle) < id)
            first = middle + 1;
        else
            end = middle;
    }
    if (first < of && id_of(c, places, first) == id) z[first] = -INFINITY;
}

static void choose_in_row(void *task, int64_t row, int64_t thread) {
    (void)thread;
    const Choice *c = task;
    const int32_t *places = NULL;
    int64_t vocabulary = c->model->vocabulary;
    float *z = c->logits + row * c->output->out;
    int64_t of = gather(c, row, z, &places);
    float norm = log_sum(z, of);
    if (!c->count) {
        float *all = c->values + row * vocabulary;
        if (c->shortlist)
            for (int64_t i = 0; i < vocabulary; i++) all[i] = -INFINITY;
        for (int64_t i = 0; i < of; i++) all[id_of(c, places, i)] = z[i] - norm;
        return;
    }
    for (int64_t i = of; i % PANEL; i++) z[i] = -INFINITY;
    for (int64_t i = 0; i < c->num_banned; i++) ban(c, places, c->banned[i], z, of);
    if (c->renormalize) norm = log_sum(z, of);
    float *values = c->values + row * c->count;
    int64_t *ids = c->ids + row * c->count, found = choose(z, of, c->count, values, ids);
    for (int64_t i = 0; i < c->count; i++) {
        values[i] = i < found ? values[i] - norm : -INFINITY;
        ids[i] = i < found ? id_of(c, places, ids[i]) : 0;
    }
}

#define ROWS_OF_LOGITS 24 /* at a time: they stay in the cache */

/* The output layer of the first rows; returns how many of them have the same. */
static int64_t choose_layer(Choice *c, int64_t rows) {
    const Shortlist *list = c->shortlist;
    int64_t group = c->sentences[0] / list->together, same = 1;
    while (same < rows && c->sentences[same] / list->together == group) same++;
    c->output = list->outputs + group;
    c->own_ids = list->ids + list->firsts[group];
    return same;
}

static int32_t choose_of(const Model *m, int64_t threads, const float *states, int64_t rows, Choice choice) {
    choice.model = m;
    choice.output = &m->output;
    int64_t width = m->width, most = rows < ROWS_OF_LOGITS ? rows : ROWS_OF_LOGITS;
    choice.logits = malloc((size_t)(most * (m->output.out + PANEL + 2 * width)) * sizeof(float));
    if (!choice.logits) return 0;
    threads = call_helpers(worth(threads, cost(width, m->output.out, most)));
    for (int64_t first = 0, some; first < rows; first += some) {
        some = rows - first < most ? rows - first : most;
        if (choice.shortlist) some = choose_layer(&choice, some);
        linear(choice.output, m->precision, IDENTITY, states + first * width, some, choice.logits,
               choice.logits + some * choice.output->out, threads);
        share(threads, choose_in_row, &choice, some);
        choice.values += some * (choice.count ? choice.count : m->vocabulary);
        if (choice.count) choice.ids += some * choice.count;
        if (choice.sentences) choice.sentences += some;
    }
    send_helpers_away(threads);
    free(choice.logits);
    return 1;
}

/* The `count` most probable next ids of each row, best first, equal ones by id, and their log-probabilities.
   Banned ids are never among them; their probability is that of the others where `renormalize`. With a
   shortlist, those of the row's sentence are all there are; fewer than `count` are filled up with -inf. */
int32_t top(const Model *m, int64_t threads, const float *states, int64_t rows, const Shortlist *shortlist,
            const int64_t *sentences, int64_t count, const int64_t *banned, int64_t num_banned,
            int32_t renormalize, float *values, int64_t *ids) {
    Choice choice = {.shortlist = shortlist,
                     .sentences = sentences,
                     .count = count,
                     .banned = banned,
                     .num_banned = num_banned,
                     .renormalize = renormalize,
                     .values = values,
                     .ids = ids};
    return choose_of(m, threads, states, rows, choice);
}

/* All log-probabilities of what comes next, (rows, vocabulary); -inf outside of the shortlist. */
int32_t log_probs(const Model *m, int64_t threads, const float *states, int64_t rows,
                  const Shortlist *shortlist, const int64_t *sentences, float *result) {
    Choice choice = {.shortlist = shortlist, .sentences = sentences, .values = result};
    return choose_of(m, threads, states, rows, choice);
}

/* The output layer to some ids alone, packed as that to all of them is, into arrays of the right sizes. Its
   last panel is filled up with what is there. */
int32_t pick(const Model *m, const int64_t *ids, int64_t count, uint32_t *weight, float *bias, float *scale,
             int32_t *sums) {
    int64_t in = m->width, size = m->precision == INT8 ? 1 : m->precision == BFLOAT16 ? 2 : 4;
    char *row = malloc((size_t)(in * size)); /* the weights of one output */
    if (!row) return 0;
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
        int64_t groups = in * size / 4; /* of inputs, 4 bytes each */
        uint32_t *to = weight + j / PANEL * groups * PANEL + j % PANEL;
        for (int64_t k = 0; k < groups; k++) memcpy(to + k * PANEL, row + 4 * k, 4);
    }
    free(row);
    return 1;
}
