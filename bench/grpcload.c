/* A load generator for the gRPC service of RocketMQ: HTTP/2 frames made beforehand over several connections, so that
 * what is measured is the server and not a client. Single thread, epoll. Prints one JSON object.
 *
 *   grpcload HOST PORT REQUESTS CONNECTIONS WINDOW COUNT RATE SECONDS_MAX [SAVED]
 *
 * RATE 0 is closed loop: WINDOW calls in flight per connection; above 0 calls leave on a fixed schedule, and latency
 * counts from the time a call was due. Call number n carries request n % requests. SAVED is a file for every message of
 * the answers, each after its length.
 *
 * File of requests: int32 length of the header block of a connection's first call, the block, int32 length of that of
 * all others (which refers to fields that the first brought), the block; then, repeated: int32 length, DATA payload.
 *
 * An answer counts as refused where its first message does not begin with a Status whose code is 20000; a message whose
 * first field is number 2 counts as one delivered.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <unistd.h>
#include "loadgen.h"

enum { HEAD = 9, ROOM = 8 << 20, RING = 4096, FIRST_WINDOW = 65535 };
enum { DATA, HEADERS, RST = 3, SETTINGS, PING = 6, GOAWAY, WINDOW_UPDATE };

typedef struct { int length; unsigned char *bytes; } Block;
typedef struct { double at; unsigned char *bytes; int used, room, known; long code; } Call;
typedef struct {
    int fd, in_flight;
    unsigned char *in, *out;
    size_t in_used, out_used, out_sent;
    uint32_t next_stream;
    int64_t window, taken; /* of the connection: what may be sent, and what was received since it was granted */
    int64_t first_window;
    Call *calls; /* ring by stream */
} Connection;

static Block first_block, block, *requests;
static int request_count;
static long sent, answers, refused, messages, bytes_in, failed_code;
static FILE *saved;

static void load(const char *path) {
    FILE *f = fopen(path, "rb");
    if (!f) { perror(path); exit(2); }
    int32_t length;
    requests = malloc(sizeof(Block) << 20);
    for (int i = 0; fread(&length, sizeof length, 1, f) == 1; i++) {
        Block *b = i == 0 ? &first_block : i == 1 ? &block : &requests[request_count++];
        b->length = length; b->bytes = malloc(length ? length : 1);
        if (length && fread(b->bytes, length, 1, f) != 1) exit(2);
    }
    fclose(f);
}

static void frame(Connection *c, int kind, int flags, uint32_t stream, const void *payload, int length) {
    if (c->out_used + length + HEAD > ROOM) { fprintf(stderr, "too much waits to be written\n"); exit(3); }
    unsigned char *p = c->out + c->out_used;
    put_be(p, 3, length); p[3] = kind; p[4] = flags; put_be(p + 5, 4, stream);
    if (length) memcpy(p + HEAD, payload, length);
    c->out_used += HEAD + length;
}

static int may_call(Connection *c) {
    Block *r = &requests[sent % request_count];
    return r->length <= c->window && r->length <= c->first_window && c->in_flight < RING / 2;
}

static void put_call(Connection *c, double at) {
    Block *r = &requests[sent++ % request_count], *b = c->next_stream == 1 ? &first_block : &block;
    Call *call = &c->calls[(c->next_stream >> 1) & (RING - 1)];
    call->at = at; call->used = call->known = 0; call->code = -1;
    frame(c, HEADERS, 4, c->next_stream, b->bytes, b->length);
    for (int at_byte = 0; at_byte < r->length; at_byte += 16384) {
        int size = r->length - at_byte < 16384 ? r->length - at_byte : 16384;
        frame(c, DATA, at_byte + size == r->length, c->next_stream, r->bytes + at_byte, size);
    }
    c->window -= r->length;
    c->next_stream += 2; c->in_flight++;
}

static void flush_out(Connection *c) {
    while (c->out_sent < c->out_used) {
        ssize_t n = send(c->fd, c->out + c->out_sent, c->out_used - c->out_sent, MSG_NOSIGNAL);
        if (n < 0) { if (errno == EAGAIN) return; perror("send"); exit(3); }
        c->out_sent += n;
    }
    c->out_sent = c->out_used = 0;
}

static uint64_t varint(const unsigned char **p) {
    uint64_t v = 0;
    for (int shift = 0; shift < 64; shift += 7) { unsigned char b = *(*p)++; v |= (uint64_t)(b & 127) << shift; if (b < 128) break; }
    return v;
}

static void message(Call *call, const unsigned char *p, uint32_t length) {
    if (saved) { int32_t n = length; fwrite(&n, sizeof n, 1, saved); fwrite(p, length, 1, saved); }
    if (length && *p == 0x12 && call->known) messages++;
    if (call->known) return;
    call->known = 1;
    if (length > 3 && *p == 0x0a) { p++; varint(&p); if (*p++ == 8) call->code = varint(&p); }
}

static void data(Connection *c, Call *call, const unsigned char *p, int length) {
    c->taken += length;
    if (c->taken > 16 << 20) {
        unsigned char grant[4];
        put_be(grant, 4, (uint32_t)c->taken);
        frame(c, WINDOW_UPDATE, 0, 0, grant, 4);
        c->taken = 0;
    }
    if (call->used + length > call->room) { call->room = (call->used + length) * 2; call->bytes = realloc(call->bytes, call->room); }
    memcpy(call->bytes + call->used, p, length);
    call->used += length;
    int at = 0;
    while (call->used - at >= 5) {
        uint32_t size = get_be(call->bytes + at + 1, 4);
        if (call->used - at - 5 < (int)size) break;
        message(call, call->bytes + at + 5, size);
        at += 5 + size;
    }
    memmove(call->bytes, call->bytes + at, call->used - at);
    call->used -= at;
}

static void ended(Connection *c, Call *call) {
    record_latency(now() - call->at);
    answers++; c->in_flight--;
    if (call->code != 20000) { refused++; failed_code = call->code; }
}

static void take(Connection *c, int kind, int flags, uint32_t stream, const unsigned char *p, int length) {
    Call *call = &c->calls[(stream >> 1) & (RING - 1)];
    if (kind == DATA) data(c, call, p, length);
    else if (kind == RST) { call->code = -2; ended(c, call); return; }
    else if (kind == SETTINGS && !(flags & 1)) {
        for (int i = 0; i + 6 <= length; i += 6) if (get_be(p + i, 2) == 4) c->first_window = get_be(p + i + 2, 4);
        frame(c, SETTINGS, 1, 0, NULL, 0);
    } else if (kind == PING && !(flags & 1)) frame(c, PING, 1, 0, p, length);
    else if (kind == WINDOW_UPDATE && !stream) c->window += get_be(p, 4);
    else if (kind == GOAWAY) { fprintf(stderr, "GOAWAY %u %.*s\n", get_be(p + 4, 4), length - 8, p + 8); exit(3); }
    if ((kind == DATA || kind == HEADERS) && flags & 1) ended(c, call);
}

static void read_answers(Connection *c) {
    for (;;) {
        ssize_t n = recv(c->fd, c->in + c->in_used, ROOM - c->in_used, 0);
        if (n < 0) { if (errno == EAGAIN) return; perror("recv"); exit(3); }
        if (n == 0) { fprintf(stderr, "the server closed a connection\n"); exit(3); }
        c->in_used += n; bytes_in += n;
        size_t at = 0;
        while (c->in_used - at >= HEAD) {
            unsigned char *p = c->in + at;
            int length = get_be(p, 3);
            if (c->in_used - at - HEAD < (size_t)length) break;
            take(c, p[3], p[4], get_be(p + 5, 4) & 0x7FFFFFFF, p + HEAD, length);
            at += HEAD + length;
        }
        memmove(c->in, c->in + at, c->in_used - at);
        c->in_used -= at;
    }
}

static void begin(Connection *c, const char *host, const char *port) {
    static const unsigned char settings[] = {0, 2, 0, 0, 0, 0, 0, 4, 0x7F, 0xFF, 0xFF, 0xFF}, more[] = {0x7F, 0xFE, 0, 0};
    c->fd = connect_to(host, port);
    c->in = malloc(ROOM); c->out = malloc(ROOM); c->calls = calloc(RING, sizeof(Call));
    c->next_stream = 1; c->window = c->first_window = FIRST_WINDOW;
    memcpy(c->out, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24);
    c->out_used = 24;
    frame(c, SETTINGS, 0, 0, settings, sizeof settings);
    frame(c, WINDOW_UPDATE, 0, 0, more, sizeof more);
}

int main(int argc, char **argv) {
    if (argc < 9) { fprintf(stderr, "usage: grpcload HOST PORT REQUESTS CONNECTIONS WINDOW COUNT RATE SECONDS_MAX [SAVED]\n"); return 2; }
    load(argv[3]);
    int connections = atoi(argv[4]), window = atoi(argv[5]);
    long count = atol(argv[6]);
    double rate = atof(argv[7]), seconds_max = atof(argv[8]);
    if (argc > 9 && !(saved = fopen(argv[9], "wb"))) { perror(argv[9]); return 2; }
    Connection *all = calloc(connections, sizeof *all);
    int poll = epoll_create1(0);
    for (int i = 0; i < connections; i++) {
        begin(&all[i], argv[1], argv[2]);
        struct epoll_event e = {.events = EPOLLIN, .data.ptr = &all[i]};
        epoll_ctl(poll, EPOLL_CTL_ADD, all[i].fd, &e);
    }
    prctl(PR_SET_TIMERSLACK, 1UL, 0, 0, 0);
    double start = now(), end_by = start + seconds_max;
    struct epoll_event events[256];
    while (answers < count && now() < end_by) {
        double t = now();
        if (rate > 0) {
            while (sent < count && start + sent / rate <= t && may_call(&all[sent % connections]))
                put_call(&all[sent % connections], start + sent / rate);
        } else {
            for (int i = 0; i < connections; i++)
                while (all[i].in_flight < window && sent < count && may_call(&all[i])) put_call(&all[i], t);
        }
        for (int i = 0; i < connections; i++) if (all[i].out_used) flush_out(&all[i]);
        double wait = rate > 0 && sent < count ? start + sent / rate - now() : 0.1;
        struct timespec until = {0, wait > 0 ? (long)(wait * 1e9) : 0};
        int n = epoll_pwait2(poll, events, 256, &until, NULL);
        for (int i = 0; i < n; i++) read_answers(events[i].data.ptr);
    }
    double took = now() - start;
    printf("{\"sent\":%ld,\"answers\":%ld,\"refused\":%ld,\"refused_code\":%ld,\"messages\":%ld,\"seconds\":%.6f,\"bytes_in\":%ld,", sent, answers, refused, failed_code, messages, took, bytes_in);
    printf("\"per_second\":%.1f,\"p50_ms\":%.4f,\"p99_ms\":%.4f,\"max_ms\":%.4f}\n", answers / took, percentile(0.5), percentile(0.99), latency_max * 1e3);
    return answers < count ? 4 : 0;
}
