/* All functions of one level: this file is compiled once for each, with its instruction set, and
   HEEDFUL_LEVEL names the level. */
#include "candidates.h"
#include "training.h"
#include "transformer.h"

static void exponentials(float *x, int64_t n) { exponentials_of(x, n, 0.0f); }

#define JOINED(name, level) name##level
#define TABLE(name, level) JOINED(name, level)

extern const HeedfulFunctions TABLE(heedful_functions_, HEEDFUL_LEVEL);
const HeedfulFunctions TABLE(heedful_functions_, HEEDFUL_LEVEL) = {
    .panel = PANEL,
#ifdef bfloat16_GROUP
    .groups = {[FLOAT32] = 1, [BFLOAT16] = bfloat16_GROUP, [INT8] = int8_GROUP},
#else
    .groups = {[FLOAT32] = 1, [INT8] = int8_GROUP},
#endif
    .weight_limit = INT8_LIMIT,
    .encode = encode,
    .step = step,
    .top = top,
    .log_probs = log_probs,
    .pick = pick,
    .linear = linear_alone,
    .exponentials = exponentials,
    .residual_norm_float32 = residual_norm_float32,
    .residual_norm_bfloat16 = residual_norm_bfloat16,
    .residual_norm_backward_float32 = residual_norm_backward_float32,
    .residual_norm_backward_bfloat16 = residual_norm_backward_bfloat16,
    .masked_softmax_float32 = masked_softmax_float32,
    .masked_softmax_bfloat16 = masked_softmax_bfloat16,
    .masked_softmax_backward_float32 = masked_softmax_backward_float32,
    .masked_softmax_backward_bfloat16 = masked_softmax_backward_bfloat16,
    .loss_rows_float32 = loss_rows_float32,
    .loss_rows_bfloat16 = loss_rows_bfloat16,
    .add_bfloat16 = add_bfloat16,
};
