/* A few threads that help the one that calls, with work of some microseconds at a time.

   Work comes in pieces, and whoever is free takes the next. A helper that finds nothing to do for a while
   sleeps. Where others want the cores, so that helpers take little or the system puts one aside in the middle
   of a piece, the caller works alone for some time. One caller at a time has the helpers, any other works
   alone. A forked process starts helpers of its own. */
#include <stdatomic.h>
#include <stdint.h>

typedef void (*Work)(void *task, int64_t piece, int64_t thread); /* thread 0 is the caller */

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <time.h>

#define MOST_THREADS 64
#define MOST_PIECES 0xffffff
#define AWAKE 400000    /* nanoseconds that a helper stays awake between two calls */
#define PATIENCE 100000 /* nanoseconds after which a piece of a helper is late */
#define ALONE 100000000 /* nanoseconds for which there are no helpers where they were late or took little */
#define LITTLE 0.1      /* of the pieces */
#define TRIAL 1000      /* pieces */

static atomic_flag team_is_taken = ATOMIC_FLAG_INIT;
static pthread_mutex_t team_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t team_is_called = PTHREAD_COND_INITIALIZER;
static pthread_once_t team_once = PTHREAD_ONCE_INIT;
static int64_t team_size = 1;             /* threads there are, with the caller */
static _Atomic int64_t team_wanted = 0;   /* threads of the present call */
static _Atomic int64_t team_sleeping = 0; /* helpers */
/* number of the work << 32 | threads that may take of it << 24 | pieces that nobody has taken */
static _Alignas(64) _Atomic uint64_t team_open = 0;
static _Alignas(64) _Atomic int64_t team_undone = 0; /* pieces that are not done */
static int64_t team_is_back = 0;          /* when, after it was of no use */
static Work team_work;
static void *team_task;
static int64_t team_pieces;                /* of the work */
static int64_t team_all = 0, team_own = 0; /* pieces of late, and those that the caller did itself */

static inline void rest(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

static int64_t nanoseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Do pieces until none is left; returns how many. What is taken stays open, and the work what it is, until
   all pieces are done. */
static int64_t take_pieces(int64_t thread) {
    int64_t taken = 0;
    uint64_t open = atomic_load(&team_open);
    while ((open & MOST_PIECES) && thread < (int64_t)(open >> 24 & 255)) {
        if (!atomic_compare_exchange_weak(&team_open, &open, open - 1)) continue;
        team_work(team_task, team_pieces - (int64_t)(open & MOST_PIECES), thread);
        atomic_fetch_sub(&team_undone, 1);
        taken++;
        open = atomic_load(&team_open);
    }
    return taken;
}

static void sleep_until_called(int64_t thread) {
    pthread_mutex_lock(&team_mutex);
    atomic_fetch_add(&team_sleeping, 1);
    while (thread >= atomic_load(&team_wanted)) pthread_cond_wait(&team_is_called, &team_mutex);
    atomic_fetch_sub(&team_sleeping, 1);
    pthread_mutex_unlock(&team_mutex);
}

static void *help(void *number) {
    int64_t thread = (int64_t)(intptr_t)number, since = nanoseconds();
    for (int64_t idle = 0;; idle++) {
        int is_wanted = thread < atomic_load(&team_wanted);
        if (is_wanted && take_pieces(thread)) {
            idle = 0;
            since = nanoseconds();
        }
        rest();
        if (idle % 64 < 63) continue;
        sched_yield(); /* others may need the core more */
        if (!is_wanted && nanoseconds() - since > AWAKE) {
            sleep_until_called(thread);
            since = nanoseconds();
        }
    }
    return NULL;
}

/* In a forked process, which has this memory and none of the threads. */
static void forget_the_team(void) {
    pthread_mutex_init(&team_mutex, NULL);
    pthread_cond_init(&team_is_called, NULL);
    team_size = 1;
    team_wanted = team_sleeping = 0;
    team_open = 0;
    atomic_flag_clear(&team_is_taken);
}

static void mind_forks(void) { pthread_atfork(NULL, NULL, forget_the_team); }

static void start_helpers(int64_t threads) {
    sigset_t every, before;
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &before); /* signals are for the threads that expect them */
    for (; team_size < threads; team_size++) {
        pthread_t helper;
        if (pthread_create(&helper, NULL, help, (void *)(intptr_t)team_size)) break;
        pthread_detach(helper);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* Call helpers for the caller, until it sends them away; returns how many threads it has now, itself one. */
static int64_t call_helpers(int64_t threads) {
    threads = threads < MOST_THREADS ? threads : MOST_THREADS;
    if (threads < 2 || atomic_flag_test_and_set(&team_is_taken)) return 1;
    if (team_is_back && nanoseconds() < team_is_back) {
        atomic_flag_clear(&team_is_taken);
        return 1;
    }
    pthread_once(&team_once, mind_forks);
    if (team_size < threads) start_helpers(threads);
    threads = threads < team_size ? threads : team_size;
    atomic_store(&team_wanted, threads);
    if (atomic_load(&team_sleeping)) {
        pthread_mutex_lock(&team_mutex);
        pthread_cond_broadcast(&team_is_called);
        pthread_mutex_unlock(&team_mutex);
    }
    if (threads < 2) atomic_flag_clear(&team_is_taken);
    return threads;
}

static void send_helpers_away(int64_t threads) {
    if (threads < 2) return;
    if (team_all > TRIAL) {
        if ((double)(team_all - team_own) < LITTLE * (double)team_all) team_is_back = nanoseconds() + ALONE;
        team_all = team_own = 0;
    }
    atomic_store(&team_wanted, 0);
    atomic_flag_clear(&team_is_taken);
}

/* Do all pieces of some work, at most MOST_PIECES, with as many threads as `call_helpers` gave. */
static void share(int64_t threads, Work work, void *task, int64_t pieces) {
    if (threads < 2 || pieces < 2) {
        for (int64_t piece = 0; piece < pieces; piece++) work(task, piece, 0);
        return;
    }
    team_work = work;
    team_task = task;
    team_pieces = pieces;
    atomic_store(&team_undone, pieces);
    uint64_t number = (atomic_load(&team_open) >> 32) + 1;
    atomic_store(&team_open, number << 32 | (uint64_t)threads << 24 | (uint64_t)pieces);
    team_own += take_pieces(0);
    team_all += pieces;
    int64_t begun = 0;
    for (int64_t times = 1; atomic_load(&team_undone); times++) {
        rest();
        if (times % 256) continue;
        int64_t now = nanoseconds();
        if (!begun) begun = now;
        if (now - begun < PATIENCE) continue;
        team_is_back = now + ALONE;
        sched_yield(); /* to the helper, perhaps */
    }
}
#else
static int64_t call_helpers(int64_t threads) {
    (void)threads;
    return 1;
}

static void send_helpers_away(int64_t threads) { (void)threads; }

static void share(int64_t threads, Work work, void *task, int64_t pieces) {
    (void)threads;
    for (int64_t piece = 0; piece < pieces; piece++) work(task, piece, 0);
}
#endif
