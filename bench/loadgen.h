/* What the load generators share: a clock, a histogram of latencies, sockets and numbers in network order. */
#ifndef AEROBEE_LOADGEN_H
#define AEROBEE_LOADGEN_H
#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

/* Log-linear buckets as HdrHistogram's: 2048 sub-buckets a doubling, 1 us units: three digits of precision. */
enum { SUB = 1024, BUCKETS = 40 };
static long histogram[BUCKETS * SUB];
static long latency_count;
static double latency_max;

static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec * 1e-9; }

static void record_latency(double seconds) {
    uint64_t us10 = (uint64_t)(seconds * 1e7);
    int shift = 0;
    while ((us10 >> shift) >= SUB) shift++;
    int bucket = shift * SUB + (int)(us10 >> shift);
    if (bucket >= BUCKETS * SUB) bucket = BUCKETS * SUB - 1;
    histogram[bucket]++; latency_count++;
    if (seconds > latency_max) latency_max = seconds;
}

static double percentile(double p) {
    long want = (long)(latency_count * p), seen = 0;
    for (int i = 0; i < BUCKETS * SUB; i++) {
        seen += histogram[i];
        if (seen > want) return (double)((uint64_t)(i % SUB) << (i / SUB)) / 1e4;
    }
    return latency_max * 1e3;
}

static int connect_to(const char *host, const char *port) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
    if (getaddrinfo(host, port, &hints, &found)) { fprintf(stderr, "cannot resolve %s\n", host); exit(2); }
    int fd = socket(found->ai_family, SOCK_STREAM, 0), one = 1;
    if (connect(fd, found->ai_addr, found->ai_addrlen)) { perror("connect"); exit(2); }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    freeaddrinfo(found);
    return fd;
}

static void put_be(unsigned char *p, int bytes, uint32_t v) { while (bytes--) { p[bytes] = v & 0xFF; v >>= 8; } }
static uint32_t get_be(const unsigned char *p, int bytes) { uint32_t v = 0; while (bytes--) v = v << 8 | *p++; return v; }

#endif
