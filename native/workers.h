/* A thread pool for work of some microseconds at a time. */
#ifndef HEEDFUL_WORKERS_H
#define HEEDFUL_WORKERS_H

#include <stdint.h>

enum { HEEDFUL_MAX_THREADS = 64 }; /* of one call */

typedef void (*HeedfulWork)(void *task, int64_t chunk, int64_t thread); /* thread 0 is the caller */

/* Reserve workers for the caller until it dismisses them; returns the number of threads, the caller included.
 */
int64_t heedful_call_workers(int64_t threads);

void heedful_dismiss_workers(int64_t threads);

/* Do all chunks of some work, with the threads from `heedful_call_workers`; returns when all are done. */
void heedful_parallel_for(int64_t threads, HeedfulWork work, void *task, int64_t chunks);

#endif
