/* The exported functions: the levels, which of them this machine can run, and their functions. A level needs
   instructions of the CPU (CPUID) and registers that the operating system saves at a context switch (XGETBV).
 */
#include "heedful.h"

#include <stddef.h>

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

enum { AVX2, AVX_VNNI, AVX512, AVX512_VNNI, AVX512_BF16, AMX, FEATURES };

typedef struct {
    uint32_t eax, ebx, ecx, edx;
} Cpuid;

static Cpuid cpuid(uint32_t leaf, uint32_t part) {
    Cpuid found = {0, 0, 0, 0};
    if ((uint32_t)__get_cpuid_max(leaf & 0x80000000u, NULL) >= leaf)
        __cpuid_count(leaf, part, found.eax, found.ebx, found.ecx, found.edx);
    return found;
}

static uint64_t saved_registers(void) {
    if (!(cpuid(1, 0).ecx >> 27 & 1)) return 0; /* OSXSAVE: the system uses XSAVE */
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

#define BIT(bits, number) ((bits) >> (number) & 1)

static int has_instructions(int feature) {
    Cpuid one = cpuid(1, 0), seven = cpuid(7, 0), more = cpuid(7, 1);
    switch (feature) {
    case AVX2: /* with FMA and F16C, as on every CPU with AVX2 except VIA's */
        return BIT(seven.ebx, 5) && BIT(one.ecx, 12) && BIT(one.ecx, 29) && BIT(one.ecx, 28);
    case AVX_VNNI:
        return BIT(more.eax, 4);
    case AVX512: /* F, BW, VL, DQ */
        return BIT(seven.ebx, 16) && BIT(seven.ebx, 30) && BIT(seven.ebx, 31) && BIT(seven.ebx, 17);
    case AVX512_VNNI:
        return BIT(seven.ecx, 11);
    case AVX512_BF16:
        return BIT(more.eax, 5);
    case AMX: /* TILE, INT8, BF16 */
        return BIT(seven.edx, 24) && BIT(seven.edx, 25) && BIT(seven.edx, 22);
    }
    return 0;
}

/* Linux enables tiles for processes on request. */
static int may_use_tiles(void) {
#if defined(__linux__)
    long request_permission = 0x1023, tile_data = 18; /* ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA */
    return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
#else
    return 0;
#endif
}

static const char *why_not(uint32_t needed) {
    static const char *names[FEATURES] = {
        "the CPU has no AVX2 and FMA",
        "the CPU has no AVX-VNNI",
        "the CPU has no AVX-512 (F, BW, VL, DQ)",
        "the CPU has no AVX-512 VNNI",
        "the CPU has no AVX-512 BF16",
        "the CPU has no AMX (INT8, BF16)",
    };
    for (uint32_t feature = 0; feature < FEATURES; feature++)
        if (BIT(needed, feature) && !has_instructions((int)feature)) return names[feature];
    uint64_t saved = saved_registers();
    if (BIT(needed, AVX2) && (saved & 0x6) != 0x6) return "the operating system does not save AVX registers";
    if (BIT(needed, AVX512) && (saved & 0xe6) != 0xe6)
        return "the operating system does not save AVX-512 registers";
    if (BIT(needed, AMX) && ((saved & 0x60000) != 0x60000 || !may_use_tiles()))
        return "the operating system does not give AMX tiles to this process";
    return NULL;
}
#elif defined(__aarch64__)
#if defined(__linux__)
#include <sys/auxv.h>
#elif defined(__APPLE__)
#include <sys/sysctl.h>
#endif

enum { DOT, BF16, I8MM };

static int has_instructions(int feature) {
#if defined(__linux__)
    unsigned long one = getauxval(AT_HWCAP), two = getauxval(AT_HWCAP2);
    switch (feature) {
    case DOT:
        return one >> 20 & 1; /* HWCAP_ASIMDDP */
    case BF16:
        return two >> 14 & 1; /* HWCAP2_BF16 */
    case I8MM:
        return two >> 13 & 1; /* HWCAP2_I8MM */
    }
    return 0;
#elif defined(__APPLE__)
    static const char *names[] = {"hw.optional.arm.FEAT_DotProd", "hw.optional.arm.FEAT_BF16",
                                  "hw.optional.arm.FEAT_I8MM"};
    int value = 0;
    size_t size = sizeof value;
    return sysctlbyname(names[feature], &value, &size, NULL, 0) == 0 && value;
#else
    (void)feature;
    return 0;
#endif
}

static const char *why_not(uint32_t needed) {
    if ((needed >> DOT & 1) && !has_instructions(DOT)) return "the CPU has no dot product instructions";
    if ((needed >> BF16 & 1) && !has_instructions(BF16)) return "the CPU has no bfloat16 instructions";
    return NULL;
}
#else
static const char *why_not(uint32_t needed) {
    (void)needed;
    return NULL;
}
#endif

#if defined(__x86_64__)
#define LEVELS(L)                                                                                            \
    L(baseline, 0)                                                                                           \
    L(avx2, 1 << AVX2)                                                                                       \
    L(avx_vnni, 1 << AVX2 | 1 << AVX_VNNI)                                                                   \
    L(avx512, 1 << AVX2 | 1 << AVX512)                                                                       \
    L(avx512_vnni, 1 << AVX2 | 1 << AVX512 | 1 << AVX512_VNNI)                                               \
    L(avx512_bf16, 1 << AVX2 | 1 << AVX512 | 1 << AVX512_VNNI | 1 << AVX512_BF16)                            \
    L(amx, 1 << AVX2 | 1 << AVX512 | 1 << AVX512_VNNI | 1 << AVX512_BF16 | 1 << AMX)
#elif defined(__aarch64__)
#define LEVELS(L)                                                                                            \
    L(neon, 0)                                                                                               \
    L(neon_dot, 1 << DOT)                                                                                    \
    L(neon_bf16, 1 << DOT | 1 << BF16)
#else
#define LEVELS(L) L(baseline, 0)
#endif

#define DECLARE(name, needed) extern const HeedfulFunctions heedful_functions_##name;
LEVELS(DECLARE)

#define ENTRY(name, needed) {#name, needed, &heedful_functions_##name},
static const struct {
    const char *name;
    uint32_t needed;
    const HeedfulFunctions *functions;
} levels[] = {LEVELS(ENTRY)};

static const int32_t num_levels = (int32_t)(sizeof levels / sizeof levels[0]);

int32_t heedful_version(void) { return HEEDFUL_VERSION; }

int64_t heedful_size(int32_t structure) {
    static const size_t sizes[] = {
        sizeof(HeedfulLinear), sizeof(HeedfulNorm),      sizeof(HeedfulLayer),     sizeof(HeedfulModel),
        sizeof(HeedfulPast),   sizeof(HeedfulAttention), sizeof(HeedfulShortlist), sizeof(HeedfulFunctions),
        sizeof(HeedfulChange), sizeof(HeedfulAdapter),
    };
    int32_t count = (int32_t)(sizeof sizes / sizeof sizes[0]);
    return structure < 0 || structure >= count ? 0 : (int64_t)sizes[structure];
}

const char *heedful_level(int32_t level) {
    return level < 0 || level >= num_levels ? NULL : levels[level].name;
}

const char *heedful_why_not(int32_t level) {
    return level < 0 || level >= num_levels ? "there is no such level" : why_not(levels[level].needed);
}

const HeedfulFunctions *heedful_functions(int32_t level) {
    return level < 0 || level >= num_levels ? NULL : levels[level].functions;
}
