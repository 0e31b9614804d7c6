/* Encoding and decoding times of wirehair. The memory of its codecs is used again. */
#include "codes.h"

#include <wirehair/wirehair.h>

/* A block that BEYOND symbols do not suffice for gets more of them. */
#define MORE 16

int main(int count, char **arguments) {
    struct block block = block_from_arguments(count, arguments);
    WirehairCodec encoder = NULL, decoder = NULL;
    uint32_t written;
    uint8_t *more = malloc((size_t)MORE * block.symbol_bytes);
    must(more != NULL && wirehair_init() == Wirehair_Success, "wirehair_init");
    /* The first repetition is not counted: it allocates the memory. */
    for (unsigned repeat = 0; repeat <= block.repeats; repeat++) {
        double start = seconds_now();
        encoder = wirehair_encoder_create(encoder, block.source, block_bytes(&block), block.symbol_bytes);
        must(encoder != NULL, "wirehair_encoder_create");
        for (unsigned number = 0; number < repairs_sent(&block); number++) {
            WirehairResult result = wirehair_encode(encoder, block.k + number, repair_symbol(&block, number), block.symbol_bytes, &written);
            must(result == Wirehair_Success, "wirehair_encode");
        }
        double encoded = seconds_now();
        unsigned next = block.k + repairs_sent(&block);
        for (unsigned number = 0; number < MORE; number++) {
            uint8_t *symbol = more + (size_t)number * block.symbol_bytes;
            must(wirehair_encode(encoder, next + number, symbol, block.symbol_bytes, &written) == Wirehair_Success, "wirehair_encode");
        }

        double received = seconds_now();
        WirehairResult result = Wirehair_NeedMore;
        decoder = wirehair_decoder_create(decoder, block_bytes(&block), block.symbol_bytes);
        must(decoder != NULL, "wirehair_decoder_create");
        for (unsigned number = 0; number < block.k; number++) {
            if (block.is_lost[number]) continue;
            result = wirehair_decode(decoder, number, source_symbol(&block, number), block.symbol_bytes);
        }
        for (unsigned number = 0; result == Wirehair_NeedMore && number < repairs_sent(&block); number++) {
            result = wirehair_decode(decoder, block.k + number, repair_symbol(&block, number), block.symbol_bytes);
        }
        for (unsigned number = 0; result == Wirehair_NeedMore && number < MORE; number++) {
            result = wirehair_decode(decoder, next + number, more + (size_t)number * block.symbol_bytes, block.symbol_bytes);
        }
        must(result == Wirehair_Success, "wirehair_decode");
        must(wirehair_recover(decoder, block.decoded, block_bytes(&block)) == Wirehair_Success, "wirehair_recover");
        double finished = seconds_now();

        check_decoded(&block);
        if (repeat > 0) {
            block.encode_seconds[repeat - 1] = encoded - start;
            block.decode_seconds[repeat - 1] = finished - received;
        }
    }
    print_times(&block);
    return 0;
}
