/* Several threads that decode at once, and a forked process: all compute what one thread computes alone. */
#include "checks.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SENTENCES = 40, LENGTH = 12, ROWS = SENTENCES * LENGTH, CALLERS = 4, TIMES = 3 };

/* Arguments that all callers share, and what they should get. */
static const SmallModel *small;
static int64_t *ids, starts[SENTENCES + 1], own[SENTENCES], outputs[ROWS], at[ROWS];
static float *expected;

/* What a caller writes to. */
typedef struct {
    float *memory[LAYERS], *cache, *states, **pointers;
    int is_same;
} Caller;

static Caller *open_caller(void) {
    int64_t width = small->model.d_model;
    Caller *caller = allocate(sizeof *caller);
    for (int64_t l = 0; l < LAYERS; l++)
        caller->memory[l] = allocate((size_t)(ROWS * 2 * width) * sizeof(float));
    caller->cache = allocate((size_t)(ROWS * LAYERS * 2 * width) * sizeof(float));
    caller->states = allocate((size_t)(ROWS * width) * sizeof(float));
    caller->pointers = allocate(ROWS * sizeof(float *));
    return caller;
}

/* Encode and decode; returns whether all went well. */
static int decode(Caller *caller, int64_t threads) {
    const HeedfulModel *m = &small->model;
    HeedfulPast past = {SENTENCES, SENTENCES, LENGTH, own, starts, caller->memory, caller->pointers, NULL};
    return level.functions->encode(m, threads, ids, starts, SENTENCES, small->positions, POSITIONS,
                                   caller->memory, NULL, NULL) == HEEDFUL_OK &&
           level.functions->step(m, threads, &past, ids, outputs, at, ROWS, small->positions, POSITIONS,
                                 caller->cache, caller->states, NULL) == HEEDFUL_OK;
}

static void *run_caller(void *argument) {
    Caller *caller = argument;
    size_t bytes = (size_t)(ROWS * small->model.d_model) * sizeof(float);
    caller->is_same = 1;
    for (int i = 0; i < TIMES; i++)
        if (!decode(caller, 2) || memcmp(caller->states, expected, bytes)) caller->is_same = 0;
    return NULL;
}

static void check_callers(void) {
    pthread_t threads[CALLERS];
    Caller *callers[CALLERS];
    for (int i = 0; i < CALLERS; i++) callers[i] = open_caller();
    for (int i = 0; i < CALLERS; i++)
        expect(!pthread_create(&threads[i], NULL, run_caller, callers[i]), "a thread cannot be started");
    for (int i = 0; i < CALLERS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < CALLERS; i++) expect(callers[i]->is_same, "a thread beside others has other states");
}

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define CANNOT_FORK /* ThreadSanitizer ends forked processes that start threads */
#endif
#elif defined(__SANITIZE_THREAD__)
#define CANNOT_FORK
#endif

static void check_fork(int may_fork) {
    if (!may_fork) return;
#ifndef CANNOT_FORK
    Caller *caller = open_caller();
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        alarm(60); /* a process that waits for threads which it has not is not waited for */
        run_caller(caller);
        _exit(caller->is_same ? 0 : 1);
    }
    int status = 0;
    expect(child > 0 && waitpid(child, &status, 0) == child, "a process cannot be forked");
    expect(WIFEXITED(status), "a forked process does not end");
    expect(WEXITSTATUS(status) == 0, "a forked process has other states");
#endif
}

void check_concurrency(int may_fork) {
    describe("several threads and processes");
    seed_random(6);
    HeedfulModel settings = small_settings(FLOAT32, 4, RELU, 1);
    settings.d_model = 128; /* enough for threads to be worth while */
    settings.d_ff = 256;
    small = random_model(settings);
    ids = random_ids(ROWS, small->model.src_vocabulary);
    for (int64_t b = 0; b <= SENTENCES; b++) starts[b] = b * LENGTH;
    for (int64_t b = 0; b < SENTENCES; b++) own[b] = b;
    for (int64_t r = 0; r < ROWS; r++) {
        outputs[r] = r / LENGTH;
        at[r] = r % LENGTH;
    }
    Caller *alone = open_caller();
    expect(decode(alone, 1), "encode or step fails");
    expected = alone->states;
    check_callers();
    check_fork(may_fork);
    check_callers(); /* the parent still has its workers */
    release_memory();
}
