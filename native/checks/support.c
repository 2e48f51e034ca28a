/* Reports, memory and random numbers of the check program. */
#include "checks.h"

#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <unistd.h>

Level level;
static char subject[256];

void describe(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(subject, sizeof subject, format, arguments);
    va_end(arguments);
}

void fail(const char *format, ...) {
    va_list arguments;
    fflush(stdout);
    fprintf(stderr, "check_native: level %s: %s: ", level.name, subject);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(1);
}

void expect(int is_true, const char *message) {
    if (!is_true) fail("%s", message);
}

void expect_status(int32_t status, int32_t expected, const char *name) {
    if (status != expected) fail("%s returned %d and not %d", name, status, expected);
}

void expect_close(const float *x, const double *y, int64_t n, double tolerance, const char *name) {
    for (int64_t i = 0; i < n; i++) {
        if (fabs((double)x[i] - y[i]) <= tolerance * (1.0 + fabs(y[i])) || (isnan(x[i]) && isnan(y[i])))
            continue;
        fail("%s: element %lld of %lld is %.9g and not %.9g", name, (long long)i, (long long)n, (double)x[i],
             y[i]);
    }
}

void expect_same(const float *x, const float *y, int64_t n, const char *name) {
    if (!n || !memcmp(x, y, (size_t)n * sizeof(float))) return;
    for (int64_t i = 0; i < n; i++)
        if (memcmp(x + i, y + i, sizeof(float)))
            fail("%s: element %lld of %lld is %.9g and not %.9g (%a and %a)", name, (long long)i,
                 (long long)n, (double)x[i], (double)y[i], (double)x[i], (double)y[i]);
}

/* ---- memory: AddressSanitizer watches that of malloc; elsewhere a page that cannot be read follows ---- */

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HAS_WATCHED_MALLOC
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define HAS_WATCHED_MALLOC
#endif

#ifndef HAS_WATCHED_MALLOC
static void report_access(int signal_number) {
    (void)signal_number;
    char message[400];
    int n = snprintf(message, sizeof message, "check_native: level %s: %s: memory out of bounds\n",
                     level.name, subject);
    _exit(write(2, message, (size_t)n) == n ? 1 : 2);
}
#endif

void watch_memory(void) {
#ifndef HAS_WATCHED_MALLOC
    signal(SIGSEGV, report_access);
    signal(SIGBUS, report_access);
#endif
}

typedef struct Block {
    struct Block *next;
    void *start;
    size_t bytes;
} Block;

static Block *blocks = NULL;

void *allocate(size_t bytes) {
    Block *block = malloc(sizeof *block);
    if (!block) fail("no memory left");
#ifdef HAS_WATCHED_MALLOC
    block->bytes = bytes;
    char *result = block->start = malloc(bytes);
    if (!result) fail("no memory left");
#else
    size_t page = (size_t)sysconf(_SC_PAGESIZE), pages = (bytes + page - 1) / page * page;
    block->bytes = pages + page;
    block->start = mmap(NULL, block->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block->start == MAP_FAILED || mprotect((char *)block->start + pages, page, PROT_NONE))
        fail("no memory left");
    char *result = (char *)block->start + pages - bytes;
#endif
    memset(result, 0xff, bytes);
    block->next = blocks;
    blocks = block;
    return result;
}

void release_memory(void) {
    for (Block *block = blocks, *next; block; block = next) {
        next = block->next;
#ifdef HAS_WATCHED_MALLOC
        free(block->start);
#else
        munmap(block->start, block->bytes);
#endif
        free(block);
    }
    blocks = NULL;
}

/* ---- random numbers ---- */

static uint64_t random_state = 1;

void seed_random(uint64_t seed) { random_state = seed; }

static uint64_t random_bits(void) { /* SplitMix64 */
    uint64_t z = random_state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

int64_t random_below(int64_t end) { return (int64_t)(random_bits() % (uint64_t)end); }

float random_normal(void) { /* nearly: the sum of four uniform ones, without tails */
    double sum = -2.0;
    for (int i = 0; i < 4; i++) sum += (double)(random_bits() >> 11) * 0x1p-53;
    return (float)(sum * 1.7320508);
}

float *random_normals(int64_t n, double mean, double deviation) {
    float *x = allocate((size_t)n * sizeof(float));
    for (int64_t i = 0; i < n; i++) x[i] = (float)(mean + deviation * (double)random_normal());
    return x;
}

int64_t *random_ids(int64_t n, int64_t vocabulary) {
    int64_t *ids = allocate((size_t)n * sizeof(int64_t));
    for (int64_t i = 0; i < n; i++) ids[i] = random_below(vocabulary);
    return ids;
}

/* ---- numbers ---- */

float float_of_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

float bf16_value(uint16_t x) { return float_of_bits((uint32_t)x << 16); }

uint16_t bf16_rounded(float x) { /* the nearer neighbour, the even one of two that are as near */
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    uint32_t upper = bits >> 16, rest = bits & 0xffff;
    if (isnan(x)) return (uint16_t)(upper | 1);
    return (uint16_t)(upper + (rest > 0x8000 || (rest == 0x8000 && upper % 2 == 1)));
}
