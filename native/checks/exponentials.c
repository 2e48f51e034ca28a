/* `exponentials` against exp() in double precision. */
#include "checks.h"

enum {
    SOME = 4096,
    EVERY = 509
}; /* numbers at a time; of the bit patterns that are sampled, each how many */

static const float lowest = -87.33f, zero_below = -87.34f;

static double ulp_of(double x) { /* the distance of float32 numbers where x is */
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits &= 0x7ff0000000000000u; /* the power of two below it */
    memcpy(&x, &bits, sizeof bits);
    return x * 0x1p-23;
}

/* Numbers whose bit patterns follow each other, `every` apart; returns the largest error in ulp. */
static double largest_error(uint32_t first, uint32_t every, int64_t n, float *x) {
    double largest = 0.0;
    for (int64_t i = 0; i < n; i++) x[i] = float_of_bits(first + (uint32_t)i * every);
    level.functions->exponentials(x, n);
    for (int64_t i = 0; i < n; i++) {
        float from = float_of_bits(first + (uint32_t)i * every);
        double exact = exp((double)from), error = fabs((double)x[i] - exact) / ulp_of(exact);
        if (!(error <= 1.0))
            fail("exp(%.9g) is %.9g, %.3f ulp from %.17g", (double)from, (double)x[i], error, exact);
        largest = error > largest ? error : largest;
    }
    return largest;
}

static void check_borders(void) {
    const float inputs[] = {NAN, -NAN, -INFINITY, zero_below, -100.0f, -1e30f, 0.0f, -0.0f};
    const float outputs[] = {NAN, NAN, 0.0f, 0.0f, 0.0f, 0.0f, 1.0f, 1.0f};
    int64_t count = (int64_t)(sizeof inputs / sizeof inputs[0]);
    for (int64_t n = 1; n <= 2 * 16 + 3; n++) { /* vectors that are not full */
        float *x = allocate((size_t)n * sizeof(float));
        for (int64_t i = 0; i < n; i++) x[i] = inputs[(i + n) % count];
        level.functions->exponentials(x, n);
        for (int64_t i = 0; i < n; i++) {
            float expected = outputs[(i + n) % count];
            if (x[i] == expected || (isnan(x[i]) && isnan(expected))) continue;
            fail("exp(%g) is %.9g and not %g", (double)inputs[(i + n) % count], (double)x[i],
                 (double)expected);
        }
    }
}

double check_exponentials(int is_exhaustive) {
    describe("exponentials");
    check_borders();
    uint32_t first = 0x80000000u, end, every = is_exhaustive ? 1 : EVERY;
    memcpy(&end, &lowest, sizeof end);
    double largest = 0.0;
    float *x = allocate(SOME * sizeof(float));
    for (int64_t left = (end - first) / every + 1; left > 0; left -= SOME, first += SOME * every) {
        double error = largest_error(first, every, left < SOME ? left : SOME, x);
        largest = error > largest ? error : largest;
    }
    return largest;
}
