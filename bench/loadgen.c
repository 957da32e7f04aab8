/* A load generator for RocketMQ brokers: raw pre-encoded frames over several connections, so that what is measured
 * is the broker and not a client. Frames are templates made by bench/frames.py; only the opaque (and, for pulls, the
 * queue offset) is patched. Single thread, epoll. Prints one JSON object.
 *
 *   loadgen HOST PORT TEMPLATES MODE CONNECTIONS WINDOW COUNT RATE SECONDS_MAX
 *
 * MODE send|once|pull|poll|pop|e2e; once sends the templates one after the other, whichever connection is free, and begins again behind
 * the last; a poll is a pull of the connection's own template again and again (templates that may be held
 * wait for a message), and COUNT counts messages. RATE 0 is closed loop: WINDOW requests in flight per connection; above 0 it is open loop: requests
 * leave on a fixed schedule whatever the answers do, and latency counts from the scheduled time; in between it sleeps, since a
 * generator that spins takes a core from the broker beside it. e2e sends at RATE over CONNECTIONS and
 * polls each template of a second file (TEMPLATES is SENDS,POLLS) by one connection more; latency is that of messages, from the time their send was
 * due, which their body carries, to their coming out of a poll. pop has one template for each request in flight (CONNECTIONS x WINDOW), each of
 * a queue of its own: a queue's next pop leaves when the one before it is answered, until it gave COUNT / (CONNECTIONS x WINDOW) messages. COUNT
 * counts messages. TEMPLATES is POPS,HEADS: the headers of the answers go into the second file, each behind its int32 length.
 *
 * Template file, repeated: int32 frame length, int32 opaque position, int32 opaque kind (0: 10 decimal digits, 1: 4 bytes
 * big-endian), int32 offset position (-1: none; 19 digits; of a pop 13 digits: the time of its making), then the frame.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include "loadgen.h"

enum { OPAQUE_BASE = 1000000000, CODES = 4096, MANY = 64 };
/* Room for answers and requests of a connection, and for the times of those in flight (a power of two). */
static size_t room = 32 << 20, ring = 1 << 20;

typedef struct { int length, opaque_at, opaque_kind, offset_at; unsigned char *bytes; } Template;
typedef struct {
    int fd, in_flight, number, poller;
    unsigned char *in, *out;
    size_t in_used, out_used, out_sent;
    uint64_t next_opaque;
    int64_t *queue_offset; /* per template, for pulls */
    double *sent_at;       /* ring by opaque, for latency */
    uint64_t *due;         /* of pops: the opaques of those that leave next */
    long *got;             /* of pops: messages by place in the window */
    int due_count;
} Connection;

static Template templates[1 << 19];
static int template_count, send_count; /* of e2e: polls come behind the sends */
static long answers, refused, messages, bytes_in;
static long code_count[CODES];
static int pull, poll_own, end_to_end, once, pop, window;
static long once_next, pop_share;
static FILE *heads;
enum { BODY_AT = 88 }; /* in a record whose hosts are IPv4 */

static void load_templates(const char *path) {
    FILE *f = fopen(path, "rb");
    if (!f) { perror(path); exit(2); }
    int32_t head[4];
    while (fread(head, sizeof head, 1, f) == 1) {
        if (template_count == (int)(sizeof templates / sizeof *templates)) { fprintf(stderr, "too many templates\n"); exit(2); }
        Template *t = &templates[template_count++];
        t->length = head[0]; t->opaque_at = head[1]; t->opaque_kind = head[2]; t->offset_at = head[3];
        t->bytes = malloc(t->length);
        if (fread(t->bytes, t->length, 1, f) != 1) exit(2);
    }
    fclose(f);
}

/* The 19 digits of the template's offset become the real one's, without leading zeros (no client writes them); every
 * length that covers them shrinks. Returns the frame's size. */
static int patch_offset(unsigned char *p, const Template *t, int64_t value) {
    char digits[24];
    int n = snprintf(digits, sizeof digits, "%lld", (long long)value), cut = 19 - n, at = t->offset_at;
    memcpy(p + at, digits, n);
    memcpy(p + at + n, t->bytes + at + 19, t->length - at - 19);
    put_be(p, 4, get_be(p, 4) - cut);
    put_be(p + 5, 3, get_be(p + 5, 3) - cut);
    if (t->opaque_kind == 1) { /* binary: the value's own length, and that of all ext fields (no remark) */
        put_be(p + at - 4, 4, n);
        put_be(p + 25, 4, get_be(p + 25, 4) - cut);
    }
    return t->length - cut;
}

static int which_template(const Connection *c, uint64_t opaque) {
    if (once) return (int)(once_next++ % template_count);
    if (pop) return c->number * window + (int)(opaque % window);
    if (end_to_end) return c->poller ? send_count + c->number : (int)(opaque % send_count);
    return (int)((poll_own ? (uint64_t)c->number : opaque) % template_count);
}

static void put_request(Connection *c, double at) {
    int which = which_template(c, c->next_opaque);
    Template *t = &templates[which];
    unsigned char *p = c->out + c->out_used;
    int length = t->length, opaque_at = t->opaque_at;
    memcpy(p, t->bytes, length);
    if (pop) {
        struct timespec wall;
        clock_gettime(CLOCK_REALTIME, &wall);
        uint64_t ms = (uint64_t)wall.tv_sec * 1000 + wall.tv_nsec / 1000000;
        for (int i = 12; i >= 0; i--) { p[t->offset_at + i] = '0' + ms % 10; ms /= 10; }
    } else if (t->offset_at >= 0) {
        length = patch_offset(p, t, c->queue_offset[which]);
        if (opaque_at > t->offset_at) opaque_at -= t->length - length;
    }
    uint32_t opaque = OPAQUE_BASE + (uint32_t)(c->next_opaque % 1000000000);
    if (t->opaque_kind == 0) {
        uint32_t v = opaque;
        for (int i = 9; i >= 0; i--) { p[opaque_at + i] = '0' + v % 10; v /= 10; }
    } else {
        put_be(p + opaque_at, 4, opaque);
    }
    if (end_to_end && !c->poller) memcpy(p + 8 + get_be(p + 5, 3), &at, sizeof at);
    c->sent_at[c->next_opaque & (ring - 1)] = at;
    c->out_used += length;
    c->next_opaque++; c->in_flight++;
}

static void flush_out(Connection *c) {
    while (c->out_sent < c->out_used) {
        ssize_t n = send(c->fd, c->out + c->out_sent, c->out_used - c->out_sent, MSG_NOSIGNAL);
        if (n < 0) { if (errno == EAGAIN) return; perror("send"); exit(3); }
        c->out_sent += n;
    }
    c->out_sent = c->out_used = 0;
}

static int32_t be32(const unsigned char *p) { return (int32_t)((uint32_t)p[0] << 24 | p[1] << 16 | p[2] << 8 | p[3]); }

static long number_after(const unsigned char *p, const unsigned char *end, const char *name) {
    const unsigned char *hit = memmem(p, end - p, name, strlen(name));
    if (!hit) return -1;
    hit += strlen(name);
    while (hit < end && (*hit == '"' || *hit == ':' || *hit == ' ')) hit++;
    return strtol((const char *)hit, NULL, 10);
}

static long binary_field(const unsigned char *p, const unsigned char *end, const char *name) {
    const unsigned char *hit = memmem(p, end - p, name, strlen(name));
    if (!hit || hit + strlen(name) + 4 > end) return -1;
    hit += strlen(name);
    int n = be32(hit); char text[32] = {0};
    if (n <= 0 || n > 20) return -1;
    memcpy(text, hit + 4, n);
    return strtol(text, NULL, 10);
}

static void answer(Connection *c, const unsigned char *frame, int length) {
    int word = be32(frame + 4), header = word & 0xFFFFFF, binary = (word >> 24) & 0xFF;
    const unsigned char *h = frame + 8, *end = h + header;
    long code, opaque, next;
    if (binary) { code = (h[0] << 8 | h[1]); opaque = be32(h + 5); next = pull ? binary_field(h, end, "nextBeginOffset") : 0; }
    else { code = number_after(h, end, "\"code\":"); opaque = number_after(h, end, "\"opaque\":"); next = pull ? number_after(h, end, "\"nextBeginOffset\"") : 0; }
    uint64_t index = (uint64_t)(opaque - OPAQUE_BASE);
    if (!end_to_end) record_latency(now() - c->sent_at[index & (ring - 1)]);
    answers++; c->in_flight--;
    if (code >= 0 && code < CODES) code_count[code]++;
    if (pop) {
        int32_t size = header;
        if (code == 0 && (fwrite(&size, sizeof size, 1, heads) != 1 || fwrite(h, header, 1, heads) != 1)) { perror("heads"); exit(2); }
        for (const unsigned char *body = end, *stop = frame + 4 + length; code == 0 && body + 4 < stop && be32(body) > 0; body += be32(body)) {
            messages++; c->got[index % window]++;
        }
        if (c->got[index % window] < pop_share) c->due[c->due_count++] = index + window;
    } else if (pull && (c->poller || !end_to_end)) {
        if (next >= 0) c->queue_offset[which_template(c, index)] = code == 0 || poll_own ? next : 0;
        const unsigned char *body = end, *stop = frame + 4 + length;
        while (code == 0 && body + 4 < stop) {
            int size = be32(body);
            if (size <= 0) break;
            if (end_to_end) { double at; memcpy(&at, body + BODY_AT, sizeof at); record_latency(now() - at); }
            messages++; body += size;
        }
    } else if (code == 0 && !end_to_end) messages++;
    if (code != 0 && !c->poller) refused++;
}

static void read_answers(Connection *c) {
    for (;;) {
        ssize_t n = recv(c->fd, c->in + c->in_used, room - c->in_used, 0);
        if (n < 0) { if (errno == EAGAIN) return; perror("recv"); exit(3); }
        if (n == 0) { fprintf(stderr, "the broker closed a connection\n"); exit(3); }
        c->in_used += n; bytes_in += n;
        size_t pos = 0;
        while (c->in_used - pos >= 4) {
            int length = be32(c->in + pos);
            if (c->in_used - pos < (size_t)length + 4) break;
            answer(c, c->in + pos, length);
            pos += length + 4;
        }
        memmove(c->in, c->in + pos, c->in_used - pos);
        c->in_used -= pos;
    }
}

int main(int argc, char **argv) {
    if (argc != 10) { fprintf(stderr, "usage: loadgen HOST PORT TEMPLATES MODE CONNECTIONS WINDOW COUNT RATE SECONDS_MAX\n"); return 2; }
    end_to_end = !strcmp(argv[4], "e2e");
    once = !strcmp(argv[4], "once");
    pop = !strcmp(argv[4], "pop");
    poll_own = end_to_end || pop || !strcmp(argv[4], "poll");
    pull = (poll_own && !pop) || !strcmp(argv[4], "pull");
    char *second = end_to_end || pop ? strchr(argv[3], ',') : NULL;
    if (end_to_end && (!second || atof(argv[8]) <= 0)) { fprintf(stderr, "e2e wants SENDS,POLLS and a RATE\n"); return 2; }
    if (second) *second++ = 0;
    load_templates(argv[3]);
    send_count = template_count;
    if (end_to_end) load_templates(second);
    window = atoi(argv[6]);
    int senders = atoi(argv[5]), connections = senders + template_count - send_count;
    long count = atol(argv[7]), sent = 0;
    if (pop) {
        if (!second || template_count != senders * window) { fprintf(stderr, "pop wants POPS,HEADS and CONNECTIONS x WINDOW templates\n"); return 2; }
        if (!(heads = fopen(second, "wb"))) { perror(second); return 2; }
        pop_share = count / template_count;
    }
    double rate = atof(argv[8]), seconds_max = atof(argv[9]);
    if (connections > MANY) { room = 1 << 20; ring = 1 << 12; }
    Connection *all = calloc(connections, sizeof *all);
    int poll = epoll_create1(0);
    for (int i = 0; i < connections; i++) {
        Connection *c = &all[i];
        c->fd = connect_to(argv[1], argv[2]);
        c->poller = i >= senders; c->number = c->poller ? i - senders : i; c->in = malloc(room); c->out = malloc(room);
        c->queue_offset = calloc(template_count, sizeof(int64_t)); c->sent_at = calloc(ring, sizeof(double));
        c->next_opaque = i; /* start each connection at another template */
        c->due = calloc(window, sizeof(uint64_t)); c->got = calloc(window, sizeof(long));
        while (pop && c->due_count < window) { c->due[c->due_count] = c->due_count; c->due_count++; }
        struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
        epoll_ctl(poll, EPOLL_CTL_ADD, c->fd, &e);
    }
    prctl(PR_SET_TIMERSLACK, 1UL, 0, 0, 0); /* sleeps end when they are due, not up to 50 us later */
    double start = now(), end_by = start + seconds_max;
    struct epoll_event events[256];
    while ((poll_own ? messages : answers) < count && now() < end_by) {
        double t = now();
        if (rate > 0) {
            while (sent < count && start + sent / rate <= t) {
                Connection *c = &all[sent % senders];
                put_request(c, start + sent / rate); sent++;
            }
        } else if (pop) {
            for (int i = 0; i < connections; i++)
                while (all[i].due_count) { all[i].next_opaque = all[i].due[--all[i].due_count]; put_request(&all[i], t); sent++; }
        } else {
            for (int i = 0; i < connections; i++)
                while (all[i].in_flight < window && (poll_own || sent < count)) { put_request(&all[i], t); sent++; }
        }
        for (int i = senders; i < connections; i++) if (!all[i].in_flight) put_request(&all[i], t);
        for (int i = 0; i < connections; i++) if (all[i].out_used) flush_out(&all[i]);
        double wait = rate > 0 && sent < count ? start + sent / rate - now() : 0.1;
        struct timespec until = {0, wait > 0 ? (long)(wait * 1e9) : 0};
        int n = epoll_pwait2(poll, events, 256, &until, NULL);
        for (int i = 0; i < n; i++) read_answers(events[i].data.ptr);
    }
    double took = now() - start;
    if (heads && fclose(heads)) { perror("heads"); return 2; }
    printf("{\"sent\":%ld,\"answers\":%ld,\"refused\":%ld,\"messages\":%ld,\"seconds\":%.6f,\"bytes_in\":%ld,", sent, answers, refused, messages, took, bytes_in);
    printf("\"per_second\":%.1f,\"p50_ms\":%.4f,\"p99_ms\":%.4f,\"p999_ms\":%.4f,\"max_ms\":%.4f,\"codes\":{", messages / took, percentile(0.5), percentile(0.99), percentile(0.999), latency_max * 1e3);
    int first = 1;
    for (int i = 0; i < CODES; i++) if (code_count[i]) { printf("%s\"%d\":%ld", first ? "" : ",", i, code_count[i]); first = 0; }
    printf("}}\n");
    return (poll_own ? messages : answers) < count ? 4 : 0;
}
