/* The thread pool: see workers.h. Work is split into chunks, and a free thread takes the next. An idle worker
   sleeps after a while. If other processes use the cores, so that workers take few chunks or are suspended in
   the middle of one, the caller works alone for some time. One caller at a time has the workers, any other
   works alone. A forked process starts its own workers. */
#include "workers.h"

static void do_alone(HeedfulWork work, void *task, int64_t chunks) {
    for (int64_t chunk = 0; chunk < chunks; chunk++) work(task, chunk, 0);
}

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>

/* Since glibc 2.34 these are in libc.so.6, and a library linked with it would ask for the versions that they
   got there. The first versions are in every glibc, so that one wheel serves systems from glibc 2.28
   (before 2.34 in libpthread.so.0, which Python has loaded). Sanitizers replace the functions, and know no
   versions. */
#if defined(__GLIBC__) && !defined(HEEDFUL_SANITIZED)
#if defined(__x86_64__) && !defined(__ILP32__)
#define FIRST_VERSION "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define FIRST_VERSION "GLIBC_2.17"
#endif
#endif
#ifdef FIRST_VERSION
__asm__(".symver pthread_create, pthread_create@" FIRST_VERSION);
__asm__(".symver pthread_detach, pthread_detach@" FIRST_VERSION);
__asm__(".symver pthread_once, pthread_once@" FIRST_VERSION);
__asm__(".symver pthread_sigmask, pthread_sigmask@" FIRST_VERSION);
#endif

#define CHUNKS_MASK 0xffffff
#define AWAKE 400000    /* nanoseconds that a worker stays awake between two calls */
#define PATIENCE 100000 /* nanoseconds after which a worker's chunk is late */
#define ALONE 100000000 /* nanoseconds without workers, after they were late or took few chunks */
#define LITTLE 0.1      /* of the chunks */
#define TRIAL 1000      /* chunks */

static atomic_flag pool_is_taken = ATOMIC_FLAG_INIT;
static pthread_mutex_t pool_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t pool_is_called = PTHREAD_COND_INITIALIZER;
static pthread_once_t pool_once = PTHREAD_ONCE_INIT;
static int64_t pool_size = 1;             /* number of threads, with the caller */
static _Atomic int64_t pool_wanted = 0;   /* threads of the present call */
static _Atomic int64_t pool_sleeping = 0; /* workers */
/* number of the work << 32 | threads that may take chunks << 24 | chunks not taken */
static _Alignas(64) _Atomic uint64_t pool_open = 0;
static _Alignas(64) _Atomic int64_t pool_undone = 0; /* chunks that are not done */
static int64_t pool_is_back = 0;                     /* end of the time without workers */
static HeedfulWork pool_work;
static void *pool_task;
static int64_t pool_chunks;                /* of the work */
static int64_t pool_all = 0, pool_own = 0; /* recent chunks, and those done by the caller */

static inline void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static int64_t nanoseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Do chunks until none is left; returns their number. The work is not replaced until all chunks are done. */
static int64_t take_chunks(int64_t thread) {
    int64_t taken = 0;
    uint64_t open = atomic_load(&pool_open);
    while ((open & CHUNKS_MASK) && thread < (int64_t)(open >> 24 & 255)) {
        if (!atomic_compare_exchange_weak(&pool_open, &open, open - 1)) continue;
        pool_work(pool_task, pool_chunks - (int64_t)(open & CHUNKS_MASK), thread);
        atomic_fetch_sub(&pool_undone, 1);
        taken++;
        open = atomic_load(&pool_open);
    }
    return taken;
}

static void sleep_until_called(int64_t thread) {
    pthread_mutex_lock(&pool_mutex);
    atomic_fetch_add(&pool_sleeping, 1);
    while (thread >= atomic_load(&pool_wanted)) pthread_cond_wait(&pool_is_called, &pool_mutex);
    atomic_fetch_sub(&pool_sleeping, 1);
    pthread_mutex_unlock(&pool_mutex);
}

static void *run_worker(void *number) {
    int64_t thread = (int64_t)(intptr_t)number, since = nanoseconds();
    for (int64_t idle = 0;; idle++) {
        int is_wanted = thread < atomic_load(&pool_wanted);
        if (is_wanted && take_chunks(thread)) {
            idle = 0;
            since = nanoseconds();
        }
        relax();
        if (idle % 64 < 63) continue;
        sched_yield(); /* yield the core to other threads */
        if (!is_wanted && nanoseconds() - since > AWAKE) {
            sleep_until_called(thread);
            since = nanoseconds();
        }
    }
    return NULL;
}

/* In a forked process, which has this memory but none of the threads. */
static void forget_workers(void) {
    pthread_mutex_init(&pool_mutex, NULL);
    pthread_cond_init(&pool_is_called, NULL);
    pool_size = 1;
    atomic_store(&pool_wanted, 0);
    atomic_store(&pool_sleeping, 0);
    atomic_store(&pool_open, 0);
    atomic_flag_clear(&pool_is_taken);
}

static void watch_forks(void) { pthread_atfork(NULL, NULL, forget_workers); }

static void start_workers(int64_t threads) {
    sigset_t every, before;
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &before); /* signals are handled by other threads */
    for (; pool_size < threads; pool_size++) {
        pthread_t worker;
        if (pthread_create(&worker, NULL, run_worker, (void *)(intptr_t)pool_size)) break;
        pthread_detach(worker);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

int64_t heedful_call_workers(int64_t threads) {
    threads = threads < HEEDFUL_MAX_THREADS ? threads : HEEDFUL_MAX_THREADS;
    if (threads < 2 || atomic_flag_test_and_set(&pool_is_taken)) return 1;
    if (pool_is_back && nanoseconds() < pool_is_back) {
        atomic_flag_clear(&pool_is_taken);
        return 1;
    }
    pthread_once(&pool_once, watch_forks);
    if (pool_size < threads) start_workers(threads);
    threads = threads < pool_size ? threads : pool_size;
    atomic_store(&pool_wanted, threads);
    if (atomic_load(&pool_sleeping)) {
        pthread_mutex_lock(&pool_mutex);
        pthread_cond_broadcast(&pool_is_called);
        pthread_mutex_unlock(&pool_mutex);
    }
    if (threads < 2) atomic_flag_clear(&pool_is_taken);
    return threads;
}

void heedful_dismiss_workers(int64_t threads) {
    if (threads < 2) return;
    if (pool_all > TRIAL) {
        if ((double)(pool_all - pool_own) < LITTLE * (double)pool_all) pool_is_back = nanoseconds() + ALONE;
        pool_all = pool_own = 0;
    }
    atomic_store(&pool_wanted, 0);
    atomic_flag_clear(&pool_is_taken);
}

void heedful_parallel_for(int64_t threads, HeedfulWork work, void *task, int64_t chunks) {
    if (threads < 2 || chunks < 2 || chunks > CHUNKS_MASK) {
        do_alone(work, task, chunks);
        return;
    }
    pool_work = work;
    pool_task = task;
    pool_chunks = chunks;
    atomic_store(&pool_undone, chunks);
    uint64_t number = (atomic_load(&pool_open) >> 32) + 1;
    atomic_store(&pool_open, number << 32 | (uint64_t)threads << 24 | (uint64_t)chunks);
    pool_own += take_chunks(0);
    pool_all += chunks;
    int64_t start = 0;
    for (int64_t times = 1; atomic_load(&pool_undone); times++) {
        relax();
        if (times % 256) continue;
        int64_t now = nanoseconds();
        if (!start) start = now;
        if (now - start < PATIENCE) continue;
        pool_is_back = now + ALONE;
        sched_yield(); /* to the worker, perhaps */
    }
}
#else
int64_t heedful_call_workers(int64_t threads) {
    (void)threads;
    return 1;
}

void heedful_dismiss_workers(int64_t threads) { (void)threads; }

void heedful_parallel_for(int64_t threads, HeedfulWork work, void *task, int64_t chunks) {
    (void)threads;
    do_alone(work, task, chunks);
}
#endif
