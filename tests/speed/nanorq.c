/* Encoding and decoding times of nanorq. The encoder's equations are solved once, before its times start, and its memory
 * is used again. */
#include "codes.h"

#include <nanorq.h>

#define ALIGNMENT 8

int main(int count, char **arguments) {
    struct block block = block_from_arguments(count, arguments);
    struct ioctx *source = ioctx_from_mem(block.source, block_bytes(&block));
    struct ioctx *decoded = ioctx_from_mem(block.decoded, block_bytes(&block));
    nanorq *encoder = nanorq_encoder_new_ex(block_bytes(&block), (uint16_t)block.symbol_bytes, (uint16_t)block.k, 0, ALIGNMENT);
    must(source && decoded && encoder, "nanorq_encoder_new_ex");
    must(nanorq_blocks(encoder) == 1 && nanorq_block_symbols(encoder, 0) == block.k, "a single block");
    must(nanorq_precalculate(encoder), "nanorq_precalculate");
    nanorq *decoder = nanorq_decoder_new(nanorq_oti_common(encoder), nanorq_oti_scheme_specific(encoder));
    must(decoder != NULL, "nanorq_decoder_new");
    /* The first repetition is not counted: it allocates the memory. */
    for (unsigned repeat = 0; repeat <= block.repeats; repeat++) {
        double start = seconds_now();
        must(nanorq_generate_symbols(encoder, 0, source), "nanorq_generate_symbols");
        for (unsigned number = 0; number < repairs_sent(&block); number++) {
            size_t written = nanorq_encode(encoder, repair_symbol(&block, number), block.k + number, 0, source);
            must(written == block.symbol_bytes, "nanorq_encode");
        }
        double encoded = seconds_now();
        nanorq_encoder_reset(encoder, 0);

        double received = seconds_now();
        for (unsigned number = 0; number < block.k; number++) {
            if (block.is_lost[number]) continue;
            int result = nanorq_decoder_add_symbol(decoder, source_symbol(&block, number), nanorq_tag(0, number), decoded);
            must(result != NANORQ_SYM_ERR, "nanorq_decoder_add_symbol");
        }
        for (unsigned number = 0; number < repairs_sent(&block); number++) {
            int result = nanorq_decoder_add_symbol(decoder, repair_symbol(&block, number), nanorq_tag(0, block.k + number), decoded);
            must(result != NANORQ_SYM_ERR, "nanorq_decoder_add_symbol");
        }
        must(nanorq_repair_block(decoder, decoded, 0), "nanorq_repair_block");
        double finished = seconds_now();
        nanorq_encoder_reset(decoder, 0);

        check_decoded(&block);
        if (repeat > 0) {
            block.encode_seconds[repeat - 1] = encoded - start;
            block.decode_seconds[repeat - 1] = finished - received;
        }
    }
    print_times(&block);
    return 0;
}
