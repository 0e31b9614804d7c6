/* Common part of the drivers of erasure codes: arguments, losses, times. codes.py says what is timed.
 *
 *   DRIVER K SYMBOL_BYTES LOST SEED REPEATS
 *
 * Prints the median seconds of processor time of encoding and of decoding. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Repair symbols beyond the lost ones that a receiver has. */
#define BEYOND 1

struct block {
    unsigned k, symbol_bytes, lost, repeats;
    uint8_t *source;
    uint8_t *is_lost;
    uint8_t *repair;
    uint8_t *decoded;
    double *encode_seconds, *decode_seconds;
};

static void must(int holds, const char *what) {
    if (!holds) {
        fprintf(stderr, "%s failed\n", what);
        exit(1);
    }
}

static double seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* SplitMix64. */
static uint64_t next_random(uint64_t *state) {
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

static size_t block_bytes(const struct block *block) {
    return (size_t)block->k * block->symbol_bytes;
}

static uint8_t *source_symbol(const struct block *block, unsigned number) {
    return block->source + (size_t)number * block->symbol_bytes;
}

static uint8_t *repair_symbol(const struct block *block, unsigned number) {
    return block->repair + (size_t)number * block->symbol_bytes;
}

static unsigned repairs_sent(const struct block *block) {
    return block->lost == 0 ? 0 : block->lost + BEYOND;
}

static struct block block_from_arguments(int count, char **arguments) {
    struct block block;
    uint64_t random;
    must(count == 6, "reading K SYMBOL_BYTES LOST SEED REPEATS");
    block.k = (unsigned)atoi(arguments[1]);
    block.symbol_bytes = (unsigned)atoi(arguments[2]);
    block.lost = (unsigned)atoi(arguments[3]);
    random = (uint64_t)atoll(arguments[4]);
    block.repeats = (unsigned)atoi(arguments[5]);
    must(block.lost <= block.k && block.repeats > 0, "reading K SYMBOL_BYTES LOST SEED REPEATS");
    block.source = malloc(block_bytes(&block));
    block.decoded = malloc(block_bytes(&block));
    block.is_lost = calloc(block.k, 1);
    block.repair = malloc((size_t)(block.lost + BEYOND) * block.symbol_bytes);
    block.encode_seconds = calloc(block.repeats, sizeof(double));
    block.decode_seconds = calloc(block.repeats, sizeof(double));
    must(block.source && block.decoded && block.is_lost && block.repair && block.encode_seconds && block.decode_seconds, "malloc");
    for (unsigned lost = 0; lost < block.lost;) {
        unsigned number = (unsigned)(next_random(&random) % block.k);
        lost += !block.is_lost[number];
        block.is_lost[number] = 1;
    }
    for (size_t at = 0; at < block_bytes(&block); at++) block.source[at] = (uint8_t)(next_random(&random) >> 56);
    memset(block.decoded, 0xA5, block_bytes(&block));
    memset(block.repair, 0xA5, (size_t)(block.lost + BEYOND) * block.symbol_bytes);
    return block;
}

static void check_decoded(struct block *block) {
    must(memcmp(block->source, block->decoded, block_bytes(block)) == 0, "decoding the source");
    memset(block->decoded, 0xA5, block_bytes(block));
}

static int by_value(const void *a, const void *b) {
    double difference = *(const double *)a - *(const double *)b;
    return (difference > 0) - (difference < 0);
}

static double median(double *seconds, unsigned count) {
    qsort(seconds, count, sizeof(double), by_value);
    return seconds[count / 2];
}

static void print_times(const struct block *block) {
    printf("%.9f %.9f\n", median(block->encode_seconds, block->repeats), median(block->decode_seconds, block->repeats));
}
