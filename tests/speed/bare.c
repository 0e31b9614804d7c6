/* Loops of system calls and nothing else: what the kernel and this machine can carry.
 *
 *   bare send|send-gso GROUP PORT INTERFACE PACKET_BYTES SECONDS
 *   bare receive|receive-gro GROUP PORT INTERFACE PACKET_BYTES
 *
 * A receiver ends when nothing came for SILENCE_MS after the first packet. Both print one JSON object: bytes of UDP
 * payload, and the seconds from the first to the last call that moved any. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/udp.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#define BATCH 64
/* With headers a run stays below 64 KiB: what is longer no interface takes whole, and the kernel cuts it. */
#define RUN_BYTES_MAX 65465
#define RECEIVE_BUFFER_BYTES (32 << 20)
#define SILENCE_MS 400

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec + at.tv_nsec / 1e9;
}

static void must(int result, const char *what) {
    if (result < 0) {
        perror(what);
        exit(1);
    }
}

static struct sockaddr_in address_of(char **argv) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[3]))};
    if (inet_pton(AF_INET, argv[2], &address.sin_addr) != 1) {
        fprintf(stderr, "%s is no IPv4 address\n", argv[2]);
        exit(2);
    }
    return address;
}

/* Room for BATCH messages of message_bytes, one buffer each. */
static struct mmsghdr *messages(size_t message_bytes) {
    struct mmsghdr *headers = calloc(BATCH, sizeof *headers);
    struct iovec *slices = calloc(BATCH, sizeof *slices);
    char *buffer = calloc(BATCH, message_bytes);
    if (!headers || !slices || !buffer) must(-1, "calloc");
    for (int i = 0; i < BATCH; i++) {
        slices[i] = (struct iovec){buffer + i * message_bytes, message_bytes};
        headers[i].msg_hdr.msg_iov = &slices[i];
        headers[i].msg_hdr.msg_iovlen = 1;
    }
    return headers;
}

static void report(unsigned long long bytes, double seconds) {
    printf("{\"bytes\": %llu, \"seconds\": %.6f}\n", bytes, seconds);
}

static void send_all(char **argv, int packet_bytes, double seconds, int segmented) {
    struct sockaddr_in group = address_of(argv);
    struct ip_mreqn interface = {.imr_ifindex = if_nametoindex(argv[4])};
    int socket_fd = socket(AF_INET, SOCK_DGRAM, 0);
    must(socket_fd, "socket");
    must(setsockopt(socket_fd, IPPROTO_IP, IP_MULTICAST_IF, &interface, sizeof interface), "IP_MULTICAST_IF");
    must(connect(socket_fd, (struct sockaddr *)&group, sizeof group), "connect");
    unsigned long long bytes = 0;
    double began = now();
    if (segmented) {
        must(setsockopt(socket_fd, IPPROTO_UDP, UDP_SEGMENT, &packet_bytes, sizeof packet_bytes), "UDP_SEGMENT");
        int segments = RUN_BYTES_MAX / packet_bytes < BATCH ? RUN_BYTES_MAX / packet_bytes : BATCH;
        size_t run_bytes = (size_t)segments * packet_bytes;
        char *run = calloc(1, run_bytes);
        while (now() - began < seconds) {
            ssize_t sent = send(socket_fd, run, run_bytes, 0);
            must(sent, "send");
            bytes += sent;
        }
    } else {
        struct mmsghdr *headers = messages(packet_bytes);
        while (now() - began < seconds) {
            int sent = sendmmsg(socket_fd, headers, BATCH, 0);
            must(sent, "sendmmsg");
            bytes += (unsigned long long)sent * packet_bytes;
        }
    }
    report(bytes, now() - began);
}

static void receive_all(char **argv, int packet_bytes, int coalesced) {
    struct sockaddr_in group = address_of(argv);
    struct ip_mreqn membership = {.imr_multiaddr = group.sin_addr, .imr_ifindex = if_nametoindex(argv[4])};
    int buffer_bytes = RECEIVE_BUFFER_BYTES;
    struct timeval silence = {.tv_usec = SILENCE_MS * 1000};
    int socket_fd = socket(AF_INET, SOCK_DGRAM, 0);
    must(socket_fd, "socket");
    must(bind(socket_fd, (struct sockaddr *)&group, sizeof group), "bind");
    must(setsockopt(socket_fd, SOL_SOCKET, SO_RCVBUFFORCE, &buffer_bytes, sizeof buffer_bytes), "SO_RCVBUFFORCE");
    must(setsockopt(socket_fd, SOL_SOCKET, SO_RCVTIMEO, &silence, sizeof silence), "SO_RCVTIMEO");
    must(setsockopt(socket_fd, IPPROTO_UDP, UDP_GRO, &coalesced, sizeof coalesced), "UDP_GRO");
    must(setsockopt(socket_fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &membership, sizeof membership), "IP_ADD_MEMBERSHIP");
    struct mmsghdr *headers = messages(coalesced ? RUN_BYTES_MAX : packet_bytes);
    unsigned long long bytes = 0;
    double first = 0, last = 0;
    for (;;) {
        int got = recvmmsg(socket_fd, headers, BATCH, MSG_WAITFORONE, NULL);
        if (got < 0 && errno == EAGAIN) {
            if (bytes > 0) break;
            continue;
        }
        must(got, "recvmmsg");
        last = now();
        if (bytes == 0) first = last;
        for (int i = 0; i < got; i++) bytes += headers[i].msg_len;
    }
    report(bytes, last - first);
}

int main(int argc, char **argv) {
    int packet_bytes = argc > 5 ? atoi(argv[5]) : 0;
    if (packet_bytes < 1 || packet_bytes > RUN_BYTES_MAX) {
        fprintf(stderr, "usage: see the top of bare.c\n");
        return 2;
    }
    if (!strcmp(argv[1], "send") && argc == 7) send_all(argv, packet_bytes, atof(argv[6]), 0);
    else if (!strcmp(argv[1], "send-gso") && argc == 7) send_all(argv, packet_bytes, atof(argv[6]), 1);
    else if (!strcmp(argv[1], "receive")) receive_all(argv, packet_bytes, 0);
    else if (!strcmp(argv[1], "receive-gro")) receive_all(argv, packet_bytes, 1);
    else {
        fprintf(stderr, "usage: see the top of bare.c\n");
        return 2;
    }
    return 0;
}
