/* A file from one end to others by NORM (RFC 5740), with the public calls of libnorm 1.5. C++ because its header is no
 * longer C.
 *
 *   norm send GROUP PORT INTERFACE RATE_BITS FILE RECEIVERS
 *   norm receive GROUP PORT INTERFACE NUMBER CACHE_FOLDER FILE
 *
 * Receivers are numbered from 1. The sender ends when all have acknowledged the file, a receiver when it has it. The rate
 * is the one given; 0 asks for NORM's own congestion control. */
#include <normApi.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#define SEGMENT_BYTES 1408
/* Of libnorm's own examples. */
#define BLOCK_SEGMENTS 64
#define BLOCK_PARITY 16
#define BUFFER_BYTES (64u << 20)
#define SOCKET_BUFFER_BYTES (32u << 20)
#define SENDER_NODE 1000
#define TTL 8
/* A path in memory takes far less; the library starts from 0.5 s. */
#define GRTT_SECONDS 0.005

static void must(bool holds, const char *what) {
    if (!holds) {
        fprintf(stderr, "norm: %s failed\n", what);
        exit(1);
    }
}

static NormSessionHandle open_session(NormInstanceHandle instance, char **argv, NormNodeId node) {
    NormSessionHandle session = NormCreateSession(instance, argv[2], (UINT16)atoi(argv[3]), node);
    must(session != NORM_SESSION_INVALID, "NormCreateSession");
    must(NormSetMulticastInterface(session, argv[4]), "NormSetMulticastInterface");
    must(NormSetTTL(session, TTL), "NormSetTTL");
    return session;
}

static void send_file(NormInstanceHandle instance, char **argv) {
    NormSessionHandle session = open_session(instance, argv, SENDER_NODE);
    bool finds_rate = atof(argv[5]) == 0;
    NormSetCongestionControl(session, finds_rate, finds_rate);
    if (!finds_rate) NormSetTxRate(session, atof(argv[5]));
    NormSetGrttEstimate(session, GRTT_SECONDS);
    for (int node = 1; node <= atoi(argv[7]); node++) must(NormAddAckingNode(session, node), "NormAddAckingNode");
    must(NormStartSender(session, 1, BUFFER_BYTES, SEGMENT_BYTES, BLOCK_SEGMENTS, BLOCK_PARITY, 0), "NormStartSender");
    NormSetTxSocketBuffer(session, SOCKET_BUFFER_BYTES);
    NormObjectHandle object = NormFileEnqueue(session, argv[6], "content", 7);
    must(object != NORM_OBJECT_INVALID, "NormFileEnqueue");
    must(NormSetWatermark(session, object, true), "NormSetWatermark");
    NormEvent event;
    while (NormGetNextEvent(instance, &event, true)) {
        if (event.type != NORM_TX_WATERMARK_COMPLETED) continue;
        if (NormGetAckingStatus(session, NORM_NODE_ANY) == NORM_ACK_SUCCESS) return;
        must(NormResetWatermark(session), "NormResetWatermark");
    }
}

static void receive_file(NormInstanceHandle instance, char **argv) {
    must(NormSetCacheDirectory(instance, argv[6]), "NormSetCacheDirectory");
    NormSessionHandle session = open_session(instance, argv, (NormNodeId)atoi(argv[5]));
    NormSetRxCacheLimit(session, 16);
    must(NormStartReceiver(session, BUFFER_BYTES), "NormStartReceiver");
    NormSetRxSocketBuffer(session, SOCKET_BUFFER_BYTES);
    bool is_complete = false;
    NormEvent event;
    while (NormGetNextEvent(instance, &event, true)) {
        if (event.type == NORM_RX_OBJECT_COMPLETED) {
            must(NormFileRename(event.object, argv[7]), "NormFileRename");
            is_complete = true;
        }
        /* Stays until it is ended: the sender still wants its acknowledgement. */
        if (event.type == NORM_REMOTE_SENDER_INACTIVE && is_complete) return;
    }
}

int main(int argc, char **argv) {
    NormInstanceHandle instance = NormCreateInstance(false);
    must(instance != NORM_INSTANCE_INVALID, "NormCreateInstance");
    if (argc == 8 && !strcmp(argv[1], "send")) send_file(instance, argv);
    else if (argc == 8 && !strcmp(argv[1], "receive")) receive_file(instance, argv);
    else {
        fprintf(stderr, "usage: see the top of norm.c\n");
        return 2;
    }
    NormDestroyInstance(instance);
    return 0;
}
