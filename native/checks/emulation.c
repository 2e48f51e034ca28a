/* In place of library.c: the levels of `emulation.h`, all of which this machine can run. */
#include "../heedful.h"

#include <stddef.h>

#define LEVELS(L) L(avx_vnni) L(avx512) L(avx512_vnni) L(avx512_bf16) L(amx)

#define DECLARE(name) extern const HeedfulFunctions heedful_functions_##name;
LEVELS(DECLARE)

#define NAME(name) #name " (emulated)",
#define FUNCTIONS(name) &heedful_functions_##name,
static const char *names[] = {LEVELS(NAME)};
static const HeedfulFunctions *functions[] = {LEVELS(FUNCTIONS)};

static int is_level(int32_t level) { return level >= 0 && level < (int32_t)(sizeof names / sizeof names[0]); }

int32_t heedful_version(void) { return HEEDFUL_VERSION; }

int64_t heedful_size(int32_t structure) { return structure == 7 ? (int64_t)sizeof(HeedfulFunctions) : 0; }

const char *heedful_level(int32_t level) { return is_level(level) ? names[level] : NULL; }

const char *heedful_why_not(int32_t level) { return is_level(level) ? NULL : "there is no such level"; }

const HeedfulFunctions *heedful_functions(int32_t level) { return is_level(level) ? functions[level] : NULL; }
