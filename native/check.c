/* Check all functions of every level that this machine can run against naive references in double precision:

       check_native [--exhaustive] [--no-fork] [LEVEL...]

   Prints a line a level, and ends with 1 at the first difference. --exhaustive checks all inputs of the
   exponentials, half a minute for each level, and not a sample. --no-fork is for emulators: processes with
   threads cannot be forked under qemu. */
#include "checks/checks.h"

#include <time.h>

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void check_level(int is_exhaustive, int may_fork) {
    static const char *names[PRECISIONS] = {"float32", "bfloat16", "int8"};
    double start = seconds(), error = check_exponentials(is_exhaustive);
    release_memory();
    printf("%s: exponentials within %.3f ulp;", level.name, error);
    for (int32_t precision = 0; precision < PRECISIONS; precision++) {
        if (!level.functions->groups[precision]) continue;
        check_linear(precision);
        check_decoding(precision);
        check_candidates(precision);
        printf(" %s", names[precision]);
    }
    check_concurrency(may_fork);
    check_training();
    printf(", training and concurrency are right (%.1f s)\n", seconds() - start);
    fflush(stdout);
}

static int is_named(const char *name, int count, char **arguments) {
    for (int i = 0; i < count; i++)
        if (!strcmp(arguments[i], name)) return 1;
    return 0;
}

int main(int count, char **arguments) {
    int is_exhaustive = is_named("--exhaustive", count, arguments);
    int may_fork = !is_named("--no-fork", count, arguments), checked = 0;
    int has_names = count > 1 + is_exhaustive + !may_fork;
    watch_memory();
    level.name = "none";
    describe("sizes and versions");
    expect(heedful_version() == HEEDFUL_VERSION, "the library is of another version");
    expect(heedful_size(7) == sizeof(HeedfulFunctions) && !heedful_size(10) && !heedful_size(-1),
           "a size is wrong");
    expect(!heedful_level(-1) && !heedful_functions(-1) && heedful_why_not(-1), "there is a level -1");
    int32_t number = 0;
    for (; heedful_level(number); number++) {
        const char *name = heedful_level(number), *why_not = heedful_why_not(number);
        if (has_names && !is_named(name, count, arguments)) continue;
        if (why_not) printf("%s: not checked: %s\n", name, why_not);
        if (why_not) continue;
        level = (Level){name, heedful_functions(number), strcmp(name, "baseline") != 0};
        check_level(is_exhaustive, may_fork);
        checked++;
    }
    expect(!heedful_functions(number) && heedful_why_not(number), "there is a level beyond the last");
    expect(checked > 0, "no such level can be checked here");
    return 0;
}
